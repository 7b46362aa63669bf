//! A head that is started again with other settings: nodes and clients take them over, and what ran under longer ones is
//! waited for. That there are never two copies of anything is checked after every step (ON-1).

use super::*;

const HEARTBEAT: Duration = Duration::from_secs(2);
const LONG: Duration = Duration::from_secs(60);
const SHORT: Duration = Duration::from_secs(10);

fn cluster() -> Sim {
    let mut sim = Sim::new().beating().node("a", cpus(1)).node("b", cpus(1)).client("main");
    sim.run_for(ms(100));
    sim
}

fn with_actor() -> (Sim, usize, String) {
    let mut sim = cluster();
    let actor = sim.actor();
    sim.run_until("the actor lives", |sim| sim.actor_at(actor).is_some());
    let node = sim.actor_at(actor).expect("seen just now").to_owned();
    (sim, actor, node)
}

fn with_work() -> (Sim, usize, String) {
    let mut sim = cluster();
    let work = sim.submit_work(LONG * 10, 1);
    sim.run_until("it runs", |sim| sim.work_at(work).0.is_some());
    let node = sim.work_at(work).0.expect("seen just now").to_owned();
    (sim, work, node)
}

fn restart(sim: &mut Sim, heartbeat: Duration, head_lost: Duration) {
    sim.kill_head();
    sim.run_for(ms(500));
    sim.start_head_with(heartbeat, head_lost);
}

fn rebuilt(sim: &mut Sim, actor: usize) {
    sim.run_until("it is rebuilt elsewhere", |sim| {
        sim.copies_of(actor) == 2 && sim.actor_at(actor).is_some()
    });
    sim.end_actor_pool(actor);
    sim.finish();
}

#[test]
fn shorter_head_lost_of_a_new_head_waits_for_an_actor_of_before() {
    let (mut sim, actor, node) = with_actor();
    sim.cut_off(&node, LONG * 3, true);
    restart(&mut sim, HEARTBEAT, SHORT);
    rebuilt(&mut sim, actor);
}

#[test]
fn shorter_head_lost_of_a_new_head_waits_for_work_of_before() {
    let (mut sim, work, node) = with_work();
    sim.cut_off(&node, LONG * 3, true);
    restart(&mut sim, HEARTBEAT, SHORT);
    sim.run_until("it is started elsewhere", |sim| sim.work_at(work).1 == 2);
    sim.stop_work(work);
    sim.finish();
}

#[test]
fn head_lost_of_a_new_head_holds_for_an_actor_that_lives_on() {
    for head_lost in [SHORT, LONG * 2] {
        let (mut sim, actor, node) = with_actor();
        restart(&mut sim, HEARTBEAT, head_lost);
        // Nothing of the time before counts any more.
        sim.run_for(LONG * 3);
        sim.cut_off(&node, LONG * 9, true);
        sim.run_for(head_lost / 2);
        assert_eq!(sim.copies_of(actor), 1, "FE-1");
        let begin = sim.elapsed();
        rebuilt(&mut sim, actor);
        assert!(sim.elapsed() - begin < head_lost * 2, "the new head's settings count: {:?}", sim.elapsed());
    }
}

#[test]
fn head_lost_of_a_new_head_holds_for_work_that_lives_on() {
    let (mut sim, work, node) = with_work();
    restart(&mut sim, HEARTBEAT, SHORT);
    sim.run_for(LONG * 3);
    sim.cut_off(&node, LONG * 9, true);
    let begin = sim.elapsed();
    sim.run_until("it is started elsewhere", |sim| sim.work_at(work).1 == 2);
    assert!(sim.elapsed() - begin < SHORT * 2, "the new head's settings count");
    sim.stop_work(work);
    sim.finish();
}

#[test]
fn longest_head_lost_of_before_outlives_a_second_restart() {
    let (mut sim, actor, node) = with_actor();
    sim.cut_off(&node, LONG * 3, true);
    restart(&mut sim, HEARTBEAT, SHORT);
    restart(&mut sim, HEARTBEAT, SHORT);
    rebuilt(&mut sim, actor);
}

#[test]
fn longest_head_lost_of_before_is_forgotten_when_nothing_runs_under_it() {
    let (mut sim, actor, node) = with_actor();
    restart(&mut sim, HEARTBEAT, SHORT);
    sim.run_for(LONG * 3);
    sim.cut_off(&node, LONG * 9, true);
    restart(&mut sim, HEARTBEAT, SHORT);
    let begin = sim.elapsed();
    rebuilt(&mut sim, actor);
    assert!(sim.elapsed() - begin < LONG, "it waits for what may run, and no longer");
}

#[test]
fn heartbeat_of_a_new_head_is_taken_over() {
    for heartbeat in [HEARTBEAT / 10, HEARTBEAT * 5] {
        let mut sim = cluster();
        let task = sim.submit(Job::new().takes(LONG));
        sim.run_until_begun(task);
        restart(&mut sim, heartbeat, LONG);
        sim.run_until("it ends", |sim| sim.outcome(task).is_some());
        assert_eq!((sim.outcome(task), sim.runs(task)), (Some(Value), 1), "no node is lost");
        sim.finish();
    }
}

#[test]
fn head_lost_of_a_new_head_is_the_clients_too() {
    let mut sim = cluster();
    restart(&mut sim, HEARTBEAT, SHORT);
    sim.run_for(LONG);
    sim.kill_head();
    let task = sim.submit(Job::new().takes(ms(5)));
    sim.run_for(SHORT + HEARTBEAT * 2);
    assert_eq!(sim.outcome(task), Some(HeadLost));
    sim.start_head();
    sim.finish();
}
