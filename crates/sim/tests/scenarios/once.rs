//! What must exist once, when nodes are cut off, stand still or sleep, and heads are started anew. That there are never two
//! copies is checked after every step (ON-1).

use super::*;

const HEAD_LOST: Duration = Duration::from_secs(60);
const HEARTBEAT: Duration = Duration::from_secs(2);

/// Two nodes with room for one actor each, and an actor that lives on one of them, whose name is returned, too.
fn actor_on_a_node() -> (Sim, usize, String) {
    actor_with_clocks(0, 0)
}

/// The same; the clocks of the head and of the nodes are faster by so many parts of a million.
fn actor_with_clocks(head: i64, nodes: i64) -> (Sim, usize, String) {
    let mut sim = Sim::new().beating().node("a", cpus(1)).node("b", cpus(1)).client("main");
    sim.set_clocks(head, nodes);
    sim.run_for(ms(100));
    if head != nodes {
        // With a long heartbeat it would be that which makes up for the clocks.
        sim.kill_head();
        sim.start_head_with(HEARTBEAT / 10, HEAD_LOST);
        sim.run_for(HEARTBEAT);
    }
    let actor = sim.actor();
    sim.run_until("the actor lives", |sim| sim.actor_at(actor).is_some());
    let node = sim.actor_at(actor).expect("seen just now").to_owned();
    (sim, actor, node)
}

fn finish(mut sim: Sim, actor: usize) {
    sim.run_until("it is rebuilt elsewhere", |sim| {
        sim.copies_of(actor) == 2 && sim.actor_at(actor).is_some()
    });
    sim.end_actor_pool(actor);
    sim.finish();
}

#[test]
fn actor_without_a_name_on_a_node_cut_off_exists_once() {
    let (mut sim, actor, node) = actor_on_a_node();
    sim.cut_off(&node, HEAD_LOST * 3, true);
    sim.run_for(HEAD_LOST - HEARTBEAT * 2);
    assert_eq!(sim.copies_of(actor), 1, "FE-1: it is waited for");
    finish(sim, actor);
}

#[test]
fn actor_on_a_node_cut_off_exists_once_when_the_head_is_started_anew() {
    // Before anybody knows that the node is silent, and when its owner has been told.
    for known in [ms(500), HEARTBEAT * 10] {
        let (mut sim, actor, node) = actor_on_a_node();
        sim.cut_off(&node, HEAD_LOST * 3, true);
        sim.run_for(known);
        sim.kill_head();
        sim.run_for(ms(500));
        sim.start_head();
        sim.run_for(HEARTBEAT * 10);
        assert_eq!(sim.copies_of(actor), 1, "FE-3: the new head knows of it");
        finish(sim, actor);
    }
}

#[test]
fn actor_on_a_node_that_stands_still_while_cut_off_exists_once() {
    for span in [HEARTBEAT * 3, HEAD_LOST / 2, HEAD_LOST * 2] {
        let (mut sim, actor, node) = actor_on_a_node();
        sim.cut_off(&node, HEAD_LOST * 3, true);
        sim.run_for(HEARTBEAT);
        sim.stop_node(&node, span);
        finish(sim, actor);
    }
}

#[test]
fn actor_on_a_machine_suspended_for_long_exists_once() {
    let (mut sim, actor, node) = actor_on_a_node();
    sim.suspend(&node, HEAD_LOST * 2);
    sim.run_until("it is rebuilt meanwhile", |sim| sim.copies_of(actor) == 2);
    sim.run_for(HEAD_LOST * 2);
    finish(sim, actor);
}

#[test]
fn actor_on_a_node_with_a_slow_clock_exists_once() {
    let (mut sim, actor, node) = actor_with_clocks(10_000, -10_000);
    sim.cut_off(&node, HEAD_LOST * 3, true);
    finish(sim, actor);
}

#[test]
fn work_on_a_node_that_stands_still_while_cut_off_exists_once() {
    let mut sim = Sim::new().beating().node("a", cpus(1)).node("b", cpus(1)).client("main");
    sim.run_for(ms(100));
    let work = sim.submit_work(HEAD_LOST * 10, 1);
    sim.run_until("it runs", |sim| sim.work_at(work).0.is_some());
    let node = sim.work_at(work).0.expect("seen just now").to_owned();
    sim.cut_off(&node, HEAD_LOST * 3, true);
    sim.run_for(HEARTBEAT);
    sim.stop_node(&node, HEAD_LOST * 2);
    sim.run_until("it is started elsewhere", |sim| sim.work_at(work).1 == 2);
    sim.stop_work(work);
    sim.finish();
}
