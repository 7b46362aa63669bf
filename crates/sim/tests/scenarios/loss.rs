//! Nodes, clients, links and zygotes that are lost.

use super::*;

#[test]
fn a_broken_link_loses_nothing_and_repeats_nothing() {
    for pause in 0..40 {
        let mut sim = one_node(1);
        let tasks: Vec<usize> = (0..50).map(|_| sim.submit(Job::new().takes(us(20)))).collect();
        sim.run_until_begun(tasks[0]);
        sim.run_for(us(pause * 7));
        sim.cut_links("main");
        sim.finish();
        for task in tasks {
            assert_eq!((sim.outcome(task), sim.runs(task)), (Some(Value), 1));
        }
    }
}

#[test]
fn a_lost_node_costs_a_retry_and_its_tasks_run_elsewhere() {
    let mut sim = one_node(1);
    let task = sim.submit(Job::new().takes(ms(50)).retries(1));
    sim.run_until_begun(task);
    let mut sim = sim.node("b", cpus(1));
    sim.lose("a");
    sim.run_until("it has ended", |sim| sim.outcome(task).is_some());
    assert_eq!((sim.outcome(task), sim.runs(task)), (Some(Value), 2));
    let task = sim.submit(Job::new().takes(Duration::from_secs(90)).retries(0));
    sim.run_until("the next runs", |sim| sim.node_of(task) == Some("b"));
    sim.lose("b");
    sim.run_until("it has ended", |sim| sim.outcome(task).is_some());
    assert_eq!((sim.outcome(task), sim.runs(task)), (Some(NodeLost), 1));
    sim.restore("a");
    let task = sim.submit(Job::new());
    sim.run_until("it runs on the node that came back", |sim| sim.node_of(task) == Some("a"));
    sim.finish();
}

#[test]
fn killed_process_of_a_node_is_noticed_at_once() {
    let mut sim = Sim::new().beating().node("a", cpus(1)).node("b", cpus(1)).client("main");
    sim.run_for(ms(100));
    let tasks: Vec<usize> = (0..2).map(|_| sim.submit(Job::new().takes(ms(200)))).collect();
    tasks.iter().for_each(|task| sim.run_until_begun(*task));
    sim.kill_node("a");
    let begin = sim.elapsed();
    sim.run_until("both have ended", |sim| tasks.iter().all(|task| sim.outcome(*task).is_some()));
    assert!(tasks.iter().all(|task| sim.outcome(*task) == Some(Value)));
    assert!(sim.elapsed() - begin < Duration::from_secs(1), "no heartbeat is waited for");
    sim.finish();
}

#[test]
fn a_short_silence_of_a_node_is_nothing_and_a_long_one_is_its_loss() {
    for (silence, runs) in [(Duration::from_secs(5), 1), (Duration::from_secs(9), 2)] {
        let mut sim = one_node(1);
        let task = sim.submit(Job::new().takes(Duration::from_secs(30)));
        sim.run_until_begun(task);
        sim.cut_off("a", silence, false);
        sim.finish();
        assert_eq!((sim.outcome(task), sim.runs(task)), (Some(Value), runs), "{silence:?}");
    }
}

/// How long one client waits for the only CPU when the other one, whose task has it, dies; and what became of that task.
fn after_the_death_of_a_client(sim: Sim) -> (Duration, Option<paceline_sim::How>) {
    let mut sim = sim.node("a", cpus(1)).client("dying").client("waiting");
    let task = sim.submit_as("dying", Job::new().takes(Duration::from_secs(100)));
    sim.run_until_begun(task);
    let other = sim.submit_as("waiting", Job::new());
    sim.run_for(ms(10));
    sim.end("dying", true);
    let begin = sim.elapsed();
    sim.run_until("the other client's task ends", |sim| sim.outcome(other).is_some());
    let (took, outcome) = (sim.elapsed() - begin, sim.outcome(task));
    sim.finish();
    (took, outcome)
}

#[test]
fn the_work_of_a_dead_client_ends_within_a_second() {
    let (took, outcome) = after_the_death_of_a_client(Sim::new());
    assert!(took < Duration::from_secs(1));
    assert_eq!(outcome, Some(Cancelled));
}

#[test]
fn the_work_of_a_dead_client_on_another_machine_ends_within_three_heartbeats() {
    let (took, _) = after_the_death_of_a_client(Sim::new().beating());
    assert!(took < ms(7000), "nobody waits for `client_lost`");
}

#[test]
fn a_dead_zygote_is_replaced_and_its_slots_too() {
    let mut sim = one_node(2);
    let task = sim.submit(Job::new().takes(ms(50)));
    sim.run_until_begun(task);
    sim.kill_zygote("a");
    sim.finish();
    assert_eq!((sim.outcome(task), sim.runs(task)), (Some(Value), 2));
    sim.run_for(ms(100));
    assert_eq!(sim.slots("a"), 2);
}

#[test]
fn what_a_task_submitted_ends_with_its_slot() {
    let mut sim = one_node(2);
    let outer = sim.submit(Job::new().takes(ms(20)).nests(1, 1).retries(0));
    sim.run_until("the inner task runs", |sim| sim.runs_of_inner() > 0);
    sim.kill_slot_of(outer);
    sim.finish();
    assert_eq!((sim.outcome(outer), sim.outcome(outer + 1)), (Some(SlotDied), Some(Cancelled)));
}

#[test]
fn a_client_that_cannot_reach_a_slot_any_more_runs_its_call_elsewhere() {
    let mut sim = Sim::new().beating().node("a", cpus(1)).node("b", cpus(1)).client("main");
    sim.run_for(ms(100));
    let task = sim.submit(Job::new().takes(Duration::from_secs(20)));
    sim.run_until_begun(task);
    let first = sim.node_of(task).expect("it runs").to_owned();
    sim.cut_off_from_slots("main", &first, Duration::from_secs(100));
    sim.run_until("it runs again", |sim| sim.runs(task) == 2);
    assert_eq!(sim.slots(&first), 1, "what ran there was ended first, and replaced");
    assert_ne!(sim.node_of(task), None);
    sim.run_until("it ends", |sim| sim.outcome(task).is_some());
    assert_eq!(sim.outcome(task), Some(Value));
    sim.finish();
}

#[test]
fn client_that_stands_still_before_its_first_heartbeat_is_given_up() {
    let mut sim = Sim::new().beating().node("a", cpus(1)).client("main").client("other");
    sim.run_for(ms(1));
    let held = sim.submit_as("other", Job::new().takes(Duration::from_secs(600)));
    sim.run_until_begun(held);
    assert!(sim.elapsed() < Duration::from_secs(1), "it has sent no heartbeat yet");
    sim.stop_client("other", Duration::from_secs(300));
    let task = sim.submit(Job::new().takes(ms(5)));
    sim.run_for(Duration::from_secs(25));
    assert_eq!(sim.outcome(task), None, "it may still come back");
    sim.run_for(Duration::from_secs(10));
    assert_eq!(sim.outcome(task), Some(Value), "the CPU of a client that is gone is free");
}
