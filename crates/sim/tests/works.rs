//! Work that the head owns, in scenarios made by hand. That there are never two of one is checked at every start.

use paceline_sim::{End, Sim, cpus, ms};
use std::time::Duration;

fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

/// Two nodes, work on one of them, and which that is.
fn at_work(restarts: u32) -> (Sim, usize, String) {
    let mut sim = Sim::new().node("a", cpus(1)).node("b", cpus(1));
    let work = sim.submit_work(seconds(300), restarts);
    sim.run_until("it runs", |sim| sim.work_at(work).0.is_some());
    let node = sim.work_at(work).0.unwrap().to_owned();
    (sim, work, node)
}

#[test]
fn it_goes_on_while_the_head_is_away() {
    let (mut sim, work, node) = at_work(0);
    sim.kill_head();
    sim.run_for(seconds(20));
    sim.start_head();
    assert_eq!(sim.work_state(work), Some("unreachable"));
    sim.run_until("it is found again", |sim| sim.work_state(work) == Some("running"));
    assert_eq!(sim.work_at(work), (Some(&*node), 1));
    sim.run_for(seconds(100));
    assert_eq!(sim.work_at(work), (Some(&*node), 1));
}

#[test]
fn a_cut_that_heals_in_time_changes_nothing() {
    let (mut sim, work, node) = at_work(3);
    sim.cut_off(&node, seconds(30), false);
    sim.run_for(seconds(29));
    assert_eq!((sim.work_state(work), sim.work_at(work)), (Some("unreachable"), (Some(&*node), 1)));
    sim.run_until("it is found again", |sim| sim.work_state(work) == Some("running"));
    sim.run_for(seconds(100));
    assert_eq!(sim.work_at(work), (Some(&*node), 1));
}

#[test]
fn after_a_cut_that_lasts_the_old_one_is_gone_before_the_new_one_begins() {
    let (mut sim, work, node) = at_work(1);
    sim.cut_off(&node, seconds(90), false);
    sim.run_for(seconds(57));
    assert_eq!(sim.work_at(work), (Some(&*node), 1));
    sim.run_until("the node ends it", |sim| sim.work_at(work).0.is_none());
    sim.run_until("it runs elsewhere", |sim| sim.work_at(work).0.is_some());
    assert_ne!(sim.work_at(work).0, Some(&*node));
    sim.run_for(seconds(60));
    assert_eq!(sim.work_at(work).1, 2);
}

#[test]
fn a_lost_node_is_waited_for_unless_it_comes_back_without_it() {
    let (mut sim, work, node) = at_work(1);
    sim.lose(&node);
    sim.run_for(seconds(50));
    assert_eq!((sim.work_state(work), sim.work_at(work)), (Some("unreachable"), (None, 1)));
    sim.restore(&node);
    sim.run_until("it runs again", |sim| sim.work_at(work).0.is_some());
    assert_eq!(sim.work_at(work).1, 2);
    let (mut sim, work, node) = at_work(0);
    sim.lose(&node);
    sim.run_until("it is given up", |sim| sim.work_end(work).is_some());
    assert_eq!(sim.work_end(work), Some(End::NodeLost));
}

#[test]
fn an_end_that_nobody_heard_of_is_told_to_the_next_head() {
    let mut sim = Sim::new().node("a", cpus(1));
    let work = sim.submit_work(seconds(5), 0);
    sim.run_until("it runs", |sim| sim.work_at(work).0.is_some());
    sim.kill_head();
    sim.run_for(seconds(10));
    assert_eq!(sim.work_at(work), (None, 1));
    sim.start_head();
    sim.run_until("its end is known", |sim| sim.work_end(work).is_some());
    assert!(sim.work_end(work).unwrap().is_success());
    sim.finish();
}

#[test]
fn it_is_stopped() {
    let (mut sim, work, _) = at_work(3);
    sim.stop_work(work);
    sim.run_until("it has ended", |sim| sim.work_end(work).is_some());
    assert_eq!((sim.work_end(work), sim.work_at(work)), (Some(End::Stopped), (None, 1)));
    sim.run_for(ms(100));
    sim.finish();
}

#[test]
fn journal_on_a_full_disk_recovers_by_itself_when_there_is_room() {
    let (mut sim, work, _) = at_work(0);
    sim.fill_disk(seconds(20));
    sim.stop_work(work);
    sim.run_for(seconds(19));
    assert!(sim.journal_failure().is_some(), "JQ-3");
    assert_eq!(sim.work_end(work), None, "DT-4: its end is not on disk");
    // The database refuses everything until it was opened again, and nobody starts the head again.
    sim.run_until("its end is on disk", |sim| sim.work_end(work).is_some());
    assert_eq!(sim.journal_failure(), None);
    let next = sim.submit_work(seconds(1), 0);
    sim.run_until("the next one has ended", |sim| sim.work_end(next).is_some());
    sim.finish();
}
