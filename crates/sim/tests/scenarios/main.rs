//! What should happen, told in small clusters.

mod heads;
mod loss;
mod near;
mod nesting;
mod once;
mod programs;
mod timing;

use paceline_sim::How::{
    Cancelled, GroupLost, HeadLost, NodeLost, NotStarted, Poison, Raised, SlotDied, TimedOut, TooDeep,
    Unplaceable, Value,
};
use paceline_sim::{Job, News, RetryOn, Sim, cpus, ms, us};
use std::time::Duration;

fn began(task: usize, attempt: u32, node: &str) -> News {
    News::Began { task, attempt, node: node.into() }
}

fn ended(task: usize, how: paceline_sim::How) -> News {
    News::Ended { task, how }
}

fn slot_died(node: &str) -> News {
    News::SlotDied(node.into())
}

/// A cluster of one node whose slots are ready.
fn one_node(total: u64) -> Sim {
    let mut sim = Sim::new().node("a", cpus(total)).client("main");
    sim.run_for(ms(100));
    sim
}

#[test]
fn a_task_gives_its_value() {
    let mut sim = one_node(1);
    let task = sim.submit(Job::new());
    let error = sim.submit(Job::new().raises());
    sim.finish();
    assert_eq!(
        sim.news(),
        [began(task, 1, "a"), began(error, 1, "a"), ended(task, Value), ended(error, Raised)],
        "the slot goes on before its client has read the reply"
    );
    sim.run_for(Duration::from_secs(11));
    assert_eq!(sim.news(), [slot_died("a")], "it was warm for ten seconds, and a fresh one takes its place");
    sim.assert_quiet();
}

#[test]
fn the_death_of_a_slot_repeats_its_call_and_no_other() {
    let mut sim = one_node(1);
    let running = sim.submit(Job::new().takes(ms(5)));
    let waiting = sim.submit(Job::new().takes(ms(5)));
    sim.run_until_begun(running);
    sim.kill_slot_of(running);
    sim.run_until("both have ended", |sim| sim.outcome(waiting).is_some());
    assert_eq!(
        sim.news(),
        [
            began(running, 1, "a"),
            slot_died("a"),
            began(running, 2, "a"),
            began(waiting, 1, "a"),
            ended(running, Value),
            ended(waiting, Value),
        ]
    );
}

#[test]
fn without_retries_a_death_ends_the_task_that_ran() {
    let mut sim = one_node(1);
    let running = sim.submit(Job::new().takes(ms(5)).retries(0));
    let waiting = sim.submit(Job::new().takes(ms(5)).retries(0));
    sim.run_until_begun(running);
    sim.kill_slot_of(running);
    sim.finish();
    assert_eq!((sim.outcome(running), sim.runs(running)), (Some(SlotDied), 1));
    assert_eq!((sim.outcome(waiting), sim.runs(waiting)), (Some(Value), 1), "it had not begun");
}

#[test]
fn poison_kills_three_slots_and_its_neighbours_run_once() {
    let mut sim = one_node(2);
    let before: Vec<usize> = (0..20).map(|_| sim.submit(Job::new().takes(us(5)))).collect();
    let poison = sim.submit(Job::new().takes(us(5)).kills().retries(100));
    let after: Vec<usize> = (0..20).map(|_| sim.submit(Job::new().takes(us(5)))).collect();
    sim.finish();
    assert_eq!((sim.outcome(poison), sim.runs(poison)), (Some(Poison), 3));
    for task in before.into_iter().chain(after) {
        assert_eq!(sim.outcome(task), Some(Value));
        assert!(sim.runs(task) <= 2, "only one whose result died with the slot runs again");
    }
}

#[test]
fn a_slot_at_work_that_is_killed_again_and_again_is_replaced_at_once() {
    let mut sim = one_node(1);
    let begin = sim.elapsed();
    for _ in 0..20 {
        let done = sim.submit(Job::new().takes(us(50)));
        sim.run_until("a call has run", |sim| sim.outcome(done).is_some());
        let killed = sim.submit(Job::new().takes(ms(5)));
        sim.run_until_begun(killed);
        sim.kill_slot_of(killed);
        sim.run_until("it runs again", |sim| sim.outcome(killed).is_some());
        assert_eq!((sim.outcome(killed), sim.runs(killed)), (Some(Value), 2));
    }
    assert!(sim.elapsed() - begin < Duration::from_secs(1), "its place backs off: {:?}", sim.elapsed());
    sim.finish();
}

#[test]
fn what_was_told_to_stop_and_does_not_can_be_ended_at_once() {
    let mut sim = one_node(1);
    let stubborn = sim.submit(Job::new().takes(Duration::from_secs(60)).stubborn());
    let next = sim.submit(Job::new().takes(us(50)));
    sim.run_until_begun(stubborn);
    // By then the companion serves the link.
    sim.run_for(ms(10));
    assert!(sim.cancel(stubborn, true));
    sim.run_for(ms(10));
    assert_eq!(sim.outcome(next), None);
    let begin = sim.elapsed();
    sim.kill_cancelled();
    sim.run_until("the next one runs", |sim| sim.outcome(next).is_some());
    assert!(sim.elapsed() - begin < ms(100), "not after two seconds: {:?}", sim.elapsed() - begin);
    assert_eq!((sim.outcome(next), sim.runs(next)), (Some(Value), 1));
    sim.finish();
}

#[test]
fn work_sent_ahead_is_taken_back_for_an_idle_slot() {
    let mut sim = one_node(2);
    // The function is unknown: each slot gets a task, then one more ahead.
    let long = sim.submit(Job::new().takes(Duration::from_secs(10)));
    let short = sim.submit(Job::new().takes(ms(20)));
    let (third, fourth) = (sim.submit(Job::new().takes(ms(1))), sim.submit(Job::new().takes(ms(1))));
    sim.run_until_begun(long);
    let begin = sim.elapsed();
    sim.run_until("the short ones end", |sim| {
        [short, third, fourth].iter().all(|task| sim.outcome(*task).is_some())
    });
    assert!(
        sim.elapsed() - begin < ms(50),
        "a slot inside a long call gives back what waits: {:?}",
        sim.elapsed()
    );
    assert_eq!(sim.outcome(long), None);
    assert!([short, third, fourth].iter().all(|task| sim.runs(*task) == 1));
    sim.finish();
    assert_eq!((sim.outcome(long), sim.runs(long)), (Some(Value), 1));
}

#[test]
fn two_clients_share_what_there_is() {
    let mut sim = Sim::new().node("a", cpus(4)).client("first").client("second");
    for _ in 0..200 {
        sim.submit_as("first", Job::new().takes(ms(20)));
    }
    sim.run_until("the first has it all", |sim| sim.leases("first") == 4);
    for _ in 0..200 {
        sim.submit_as("second", Job::new().takes(ms(20)));
    }
    sim.run_until("both have half", |sim| (sim.leases("first"), sim.leases("second")) == (2, 2));
    for _ in 0..50 {
        sim.run_for(ms(10));
        assert_eq!((sim.leases("first"), sim.leases("second")), (2, 2), "and it stays so");
    }
    sim.finish();
}

#[test]
fn cancelling_ends_a_task_wherever_it_is() {
    let mut sim = one_node(1);
    let running = sim.submit(Job::new().takes(Duration::from_secs(5)));
    let ahead = sim.submit(Job::new());
    let queued = sim.submit(Job::new());
    sim.run_until_begun(running);
    sim.run_for(ms(10));
    assert!(!sim.cancel(running, false), "it is known to run");
    assert!(sim.cancel(ahead, false) && sim.cancel(queued, false));
    assert!(sim.cancel(running, true));
    assert!(!sim.cancel(running, true), "a task ends once");
    sim.finish();
    assert_eq!([running, ahead, queued].map(|task| sim.outcome(task)), [Some(Cancelled); 3]);
    assert_eq!([running, ahead, queued].map(|task| sim.runs(task)), [1, 0, 0]);
}

#[test]
fn a_task_that_takes_too_long_is_stopped() {
    let mut sim = one_node(1);
    let slow = Job::new().takes(Duration::from_secs(9)).timeout(ms(20));
    let (polite, stubborn) = (sim.submit(slow), sim.submit(slow.stubborn()));
    let behind = sim.submit(Job::new().takes(us(10)).retries(0));
    sim.run_until("all have ended", |sim| sim.outcome(behind).is_some());
    assert_eq!([polite, stubborn].map(|task| (sim.outcome(task), sim.runs(task))), [(Some(TimedOut), 1); 2]);
    assert_eq!((sim.outcome(behind), sim.runs(behind)), (Some(Value), 1));
    assert!(sim.elapsed() < Duration::from_secs(4), "a stubborn one has two seconds");
    let retry_on = RetryOn { timeout: true, ..RetryOn::default() };
    let again = sim.submit(slow.retry_on(retry_on).retries(2));
    sim.finish();
    assert_eq!((sim.outcome(again), sim.runs(again)), (Some(TimedOut), 3));
}

#[test]
fn idle_leases_are_given_back_and_slots_stay_warm() {
    let mut sim = one_node(2);
    let task = sim.submit(Job::new());
    sim.run_until("it ends", |sim| sim.outcome(task).is_some());
    sim.run_for(ms(190));
    assert_eq!(sim.leases("main"), 1);
    sim.run_for(ms(20));
    assert_eq!(sim.leases("main"), 0);
    let begin = sim.elapsed();
    let task = sim.submit(Job::new().takes(us(10)));
    sim.run_until("it ends", |sim| sim.outcome(task).is_some());
    assert!(sim.elapsed() - begin < ms(1), "no fork is waited for");
    assert_eq!(sim.slots("a"), 2);
    sim.finish();
}

#[test]
fn what_no_node_can_hold_is_refused_at_once() {
    let mut sim = one_node(2);
    let task = sim.submit(Job::new().cpus(3));
    let begin = sim.elapsed();
    sim.run_until("it is refused", |sim| sim.outcome(task).is_some());
    assert!(sim.elapsed() - begin < ms(1));
    assert_eq!(sim.outcome(task), Some(Unplaceable));
}

#[test]
fn long_and_short_tasks_fill_the_slots_evenly() {
    // Also with the long ones last: no more than half the work and one longest task.
    let orders: [fn(usize) -> bool; 3] = [|i| i % 10 == 3, |i| i >= 90, |i| i < 10];
    for is_long in orders {
        let mut sim = one_node(2);
        let takes = |i| if is_long(i) { ms(100) } else { ms(1) };
        let begin = sim.elapsed();
        let tasks: Vec<usize> = (0..100).map(|i| sim.submit(Job::new().takes(takes(i)))).collect();
        sim.run_until("all end", |sim| tasks.iter().all(|task| sim.outcome(*task).is_some()));
        let work: Duration = (0..100).map(takes).sum();
        let makespan = sim.elapsed() - begin;
        assert!(makespan <= (work / 2 + ms(100)).mul_f64(1.05), "{makespan:?} for {work:?} of work");
        assert!(tasks.iter().all(|task| sim.runs(*task) == 1));
    }
}

#[test]
fn a_task_leaves_its_cpu_to_those_it_waits_for() {
    let mut sim = one_node(1);
    let outer = sim.submit(Job::new().nests(2, 1));
    let other = sim.submit(Job::new());
    sim.run_until("all have ended", |sim| sim.outcome(outer).is_some() && sim.outcome(other).is_some());
    assert_eq!((sim.outcome(outer), sim.outcome(other)), (Some(Value), Some(Value)));
    let (first, second) = (other + 1, other + 2);
    assert_eq!((sim.outcome(first), sim.outcome(second)), (Some(Value), Some(Value)));
    let news = sim.news();
    let at = |what: &News| news.iter().position(|it| it == what).expect("it happened");
    assert!(at(&began(first, 1, "a")) < at(&ended(outer, Value)));
    assert!(at(&began(first, 1, "a")) < at(&began(other, 1, "a")), "deeper tasks go first");
    sim.finish();
}

#[test]
fn what_nobody_may_wait_for_runs_where_it_is_waited_for_or_not_at_all() {
    let mut sim = Sim::new().blocked(0).node("a", cpus(2)).client("main");
    sim.run_for(ms(100));
    let fits = sim.submit(Job::new().nests(2, 2));
    sim.finish();
    assert_eq!(sim.outcome(fits), Some(Value));
    let large = sim.submit(Job::new().nests(1, 1).inner_cpus(2));
    sim.finish();
    assert_eq!((sim.outcome(large), sim.outcome(large + 1)), (Some(Value), Some(TooDeep)));
}

#[test]
fn a_group_begins_together_and_ends_with_one_member() {
    let mut sim = Sim::new().node("a", cpus(1)).node("b", cpus(1)).client("main").client("other");
    sim.run_for(ms(100));
    let busy = sim.submit_as("other", Job::new().takes(ms(300)));
    sim.run_until_begun(busy);
    let group = sim.group(2, cpus(1));
    let [first, second] = [0, 1].map(|member| sim.submit_in(group, member, Job::new().takes(ms(500))));
    sim.run_for(ms(100));
    assert_eq!((sim.runs(first), sim.runs(second)), (0, 0), "a node is free, and one is not enough");
    let small = sim.submit_as("other", Job::new().takes(ms(100)));
    sim.run_until("both members have begun", |sim| sim.runs(first) + sim.runs(second) == 2);
    assert_ne!(sim.node_of(first), sim.node_of(second));
    let behind = sim.submit_in(group, 1, Job::new());
    sim.kill_slot_of(first);
    sim.run_until("all of it has ended", |sim| sim.outcome(behind).is_some());
    let ends = [first, second, behind].map(|task| sim.outcome(task));
    assert_eq!(ends, [Some(GroupLost); 3], "whatever retries they have");
    sim.end_group(group);
    sim.run_until("others go on", |sim| sim.outcome(small) == Some(Value));
    sim.finish();
}

#[test]
fn calls_that_overlap_begin_in_order_and_end_in_any() {
    let mut sim = one_node(1);
    let long = sim.submit(Job::new().takes(ms(50)).beside());
    let tasks: Vec<usize> = (0..20).map(|_| sim.submit(Job::new().takes(ms(5)).beside())).collect();
    sim.run_until_begun(long);
    sim.run_until("the short ones have ended", |sim| tasks.iter().all(|task| sim.outcome(*task).is_some()));
    assert_eq!(sim.outcome(long), None, "it goes on");
    sim.finish();
    let news = sim.news();
    let begun = |task: usize| news.iter().position(|news| *news == began(task, 1, "a"));
    assert!(tasks.windows(2).all(|pair| begun(pair[0]) < begun(pair[1])), "in order: {news:?}");
}

#[test]
fn the_death_of_a_slot_ends_all_that_overlapped() {
    let mut sim = one_node(1);
    let tasks: Vec<usize> = (0..3).map(|_| sim.submit(Job::new().takes(ms(50)).beside())).collect();
    sim.run_until_begun(tasks[2]);
    sim.kill_slot_of(tasks[2]);
    sim.finish();
    assert!(tasks.iter().all(|task| sim.outcome(*task) == Some(Value)), "they may run again");
}
