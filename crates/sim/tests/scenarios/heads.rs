//! The head goes away, comes back, or is not alone.

use super::*;

#[test]
fn a_death_while_the_head_is_away_is_told_when_it_is_back() {
    let mut sim = one_node(1);
    let task = sim.submit(Job::new().takes(Duration::from_secs(5)).retries(0));
    sim.run_until_begun(task);
    sim.cut_head_of("a");
    sim.run_for(us(100));
    sim.kill_slot_of(task);
    sim.finish();
    assert_eq!(sim.outcome(task), Some(SlotDied), "it says what happened, not that the node was lost");
}

#[test]
fn a_head_that_is_started_again_costs_no_run() {
    let mut sim = Sim::new().beating().node("a", cpus(2)).client("main").client("other");
    sim.run_for(ms(100));
    let running: Vec<usize> = (0..2).map(|_| sim.submit(Job::new().takes(Duration::from_secs(5)))).collect();
    sim.run_until_begun(running[1]);
    sim.kill_head();
    let waiting = sim.submit_as("other", Job::new().takes(ms(5)));
    sim.run_for(Duration::from_secs(2));
    sim.start_head();
    sim.run_until("the one that waited has ended", |sim| sim.outcome(waiting).is_some());
    for task in running {
        assert_eq!((sim.outcome(task), sim.runs(task)), (Some(Value), 1), "its lease was adopted");
    }
    assert_eq!((sim.outcome(waiting), sim.runs(waiting)), (Some(Value), 1));
    sim.finish();
}

#[test]
fn work_goes_on_while_there_is_no_head() {
    let mut sim = Sim::new().beating().node("a", cpus(1)).client("main");
    sim.run_for(ms(100));
    let first = sim.submit(Job::new().takes(ms(50)));
    sim.run_until_begun(first);
    sim.kill_head();
    let tasks: Vec<usize> = (0..20).map(|_| sim.submit(Job::new().takes(ms(50)))).collect();
    sim.run_until("all have run", |sim| tasks.iter().all(|task| sim.outcome(*task).is_some()));
    assert!(tasks.iter().all(|task| sim.outcome(*task) == Some(Value)), "the lease goes on");
    sim.start_head();
    sim.finish();
}

#[test]
fn nodes_lost_and_joined_while_there_is_no_head_are_seen_when_it_is_back() {
    let mut sim = Sim::new().beating().node("a", cpus(1)).node("b", cpus(1)).client("main");
    sim.run_for(ms(100));
    let tasks: Vec<usize> = (0..2).map(|_| sim.submit(Job::new().takes(Duration::from_secs(60)))).collect();
    tasks.iter().for_each(|task| sim.run_until_begun(*task));
    let lost = sim.node_of(tasks[0]).expect("it runs").to_owned();
    sim.kill_head();
    sim.lose(&lost);
    let mut sim = sim.node("c", cpus(1));
    sim.run_for(Duration::from_secs(3));
    sim.start_head();
    sim.run_until("it runs elsewhere", |sim| sim.runs(tasks[0]) == 2);
    assert_eq!(sim.node_of(tasks[0]), Some("c"), "the new node is used");
    sim.run_until("both have ended", |sim| tasks.iter().all(|task| sim.outcome(*task).is_some()));
    assert_eq!((sim.outcome(tasks[1]), sim.runs(tasks[1])), (Some(Value), 1));
    sim.finish();
}

#[test]
fn what_ran_on_a_node_that_is_lost_with_the_head_runs_elsewhere_without_it() {
    let mut sim = Sim::new().beating().node("a", cpus(1)).node("b", cpus(1)).client("main");
    sim.run_for(ms(100));
    let tasks: Vec<usize> = (0..2).map(|_| sim.submit(Job::new().takes(Duration::from_secs(2)))).collect();
    tasks.iter().for_each(|task| sim.run_until_begun(*task));
    sim.kill_head();
    sim.lose("a");
    let begin = sim.elapsed();
    sim.run_until("both have run", |sim| tasks.iter().all(|task| sim.outcome(*task).is_some()));
    assert!(tasks.iter().all(|task| sim.outcome(*task) == Some(Value)));
    assert!(sim.elapsed() - begin < Duration::from_secs(20), "nobody waits for the head");
    sim.start_head();
    sim.finish();
}

#[test]
fn what_waits_for_a_head_that_stays_away_ends_with_a_word() {
    let mut sim = Sim::new().beating().node("a", cpus(1)).client("main");
    sim.run_for(ms(100));
    sim.kill_head();
    let task = sim.submit(Job::new().takes(ms(5)));
    sim.run_for(Duration::from_secs(55));
    assert_eq!(sim.outcome(task), None, "it may come back");
    sim.run_for(Duration::from_secs(10));
    assert_eq!(sim.outcome(task), Some(HeadLost));
    let late = sim.submit(Job::new().takes(ms(5)));
    assert_eq!(sim.outcome(late), Some(HeadLost), "nobody is kept waiting for what is known");
    sim.start_head();
    sim.run_for(Duration::from_secs(10));
    let again = sim.submit(Job::new().takes(ms(5)));
    sim.run_until("there is a head again", |sim| sim.outcome(again).is_some());
    assert_eq!(sim.outcome(again), Some(Value));
    sim.finish();
}

#[test]
fn of_two_heads_from_one_journal_one_ends() {
    let mut sim = Sim::new().beating().node("a", cpus(1)).node("b", cpus(1)).client("main");
    sim.run_for(ms(100));
    sim.start_second_head();
    assert_eq!(sim.heads(), 2);
    // Whoever has met the later one tells the earlier one of it.
    for _ in 0..40 {
        sim.cut_head_of("a");
        sim.run_for(Duration::from_secs(5));
        if sim.heads() == 1 {
            break;
        }
    }
    assert_eq!(sim.heads(), 1, "one has met who met the other");
    let task = sim.submit(Job::new().takes(ms(5)));
    sim.run_until("the other one grants", |sim| sim.outcome(task).is_some());
    sim.finish();
}

#[test]
fn a_client_out_of_the_heads_reach_for_a_moment_loses_nothing() {
    let mut sim = Sim::new().beating().node("a", cpus(1)).client("main");
    sim.run_for(ms(100));
    let task = sim.submit(Job::new().takes(Duration::from_secs(20)));
    sim.run_until_begun(task);
    sim.cut_off_from_head("main", Duration::from_secs(12));
    sim.run_until("it ends", |sim| sim.outcome(task).is_some());
    assert_eq!((sim.outcome(task), sim.runs(task)), (Some(Value), 1));
    sim.finish();
}

#[test]
fn a_group_lives_through_the_death_of_the_head() {
    let mut sim = Sim::new().beating().node("a", cpus(2)).client("main");
    sim.run_for(ms(100));
    let group = sim.group(2, cpus(1));
    let first = sim.submit_in(group, 0, Job::new());
    sim.run_until("the group works", |sim| sim.outcome(first) == Some(Value));
    sim.kill_head();
    let alone = sim.submit_in(group, 1, Job::new());
    sim.run_until("it needs no head", |sim| sim.outcome(alone) == Some(Value));
    sim.start_head();
    sim.run_for(Duration::from_secs(20));
    let again = sim.submit_in(group, 0, Job::new());
    sim.run_until("the head that came back leaves it alone", |sim| sim.outcome(again) == Some(Value));
    sim.end_group(group);
    sim.finish();
}
