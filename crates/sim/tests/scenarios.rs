//! What should happen, told in small clusters.

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
fn what_a_task_submitted_ends_with_its_slot() {
    let mut sim = one_node(2);
    let outer = sim.submit(Job::new().takes(ms(20)).nests(1, 1).retries(0));
    sim.run_until("the inner task runs", |sim| sim.runs_of_inner() > 0);
    sim.kill_slot_of(outer);
    sim.finish();
    assert_eq!((sim.outcome(outer), sim.outcome(outer + 1)), (Some(SlotDied), Some(Cancelled)));
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
fn slots_of_two_programs_share_the_cpus() {
    let mut sim = one_node(2);
    let own: Vec<usize> = (0..20).map(|_| sim.submit(Job::new().takes(ms(5)))).collect();
    let other: Vec<usize> = (0..20).map(|_| sim.submit(Job::new().takes(ms(5)).program(0))).collect();
    sim.finish();
    for task in own.into_iter().chain(other) {
        assert_eq!((sim.outcome(task), sim.runs(task)), (Some(Value), 1));
    }
    // The check after every step has seen to it that no more ran at once than there are CPUs.
    assert!(sim.has_program("a", 0) && !sim.has_program("a", 1));
}

#[test]
fn idle_leases_give_way_to_another_program_at_once() {
    let mut sim = one_node(1);
    for round in 0..6 {
        let job = Job::new().takes(us(50));
        let task = sim.submit(if round % 2 == 0 { job } else { job.program(0) });
        let began = sim.elapsed();
        sim.run_until("the task ends", |sim| sim.outcome(task).is_some());
        // The first of each program waits for its slot to be forked.
        let limit = if round < 2 { ms(50) } else { ms(20) };
        assert!(sim.elapsed() - began < limit, "round {round} took {:?}", sim.elapsed() - began);
    }
    sim.finish();
}

#[test]
fn the_death_of_a_programs_zygote_ends_its_slots_and_no_other() {
    let mut sim = one_node(2);
    let own = sim.submit(Job::new().takes(ms(50)));
    let other = sim.submit(Job::new().takes(ms(50)).program(0));
    sim.run_until_begun(own);
    sim.run_until_begun(other);
    sim.kill_program("a", 0);
    sim.finish();
    assert_eq!((sim.outcome(own), sim.runs(own)), (Some(Value), 1), "ND-7");
    assert_eq!(
        (sim.outcome(other), sim.runs(other)),
        (Some(Value), 2),
        "it is started again for the second run"
    );
    let other = sim.submit(Job::new().takes(ms(50)).program(0));
    sim.run_until_begun(other);
    sim.kill_zygote("a");
    sim.finish();
    assert_eq!((sim.outcome(other), sim.runs(other)), (Some(Value), 1), "ND-7");
}

#[test]
fn a_program_that_cannot_start_is_told_and_may_be_tried_again() {
    let mut sim = one_node(1);
    sim.break_programs(true);
    let tasks: Vec<usize> = (0..5).map(|_| sim.submit(Job::new().program(1))).collect();
    let own = sim.submit(Job::new());
    sim.run_until("all are told", |sim| tasks.iter().all(|task| sim.outcome(*task).is_some()));
    for task in tasks {
        assert_eq!((sim.outcome(task), sim.runs(task)), (Some(NotStarted), 0), "PR-1");
    }
    sim.break_programs(false);
    let again = sim.submit(Job::new().program(1));
    sim.finish();
    assert_eq!((sim.outcome(own), sim.outcome(again)), (Some(Value), Some(Value)));
    sim.run_for(Duration::from_secs(80));
    assert!(!sim.has_program("a", 1), "nobody has asked for it for a while");
}

#[test]
fn a_program_whose_slots_die_at_once_is_given_up() {
    let mut sim = one_node(1);
    let task = sim.submit(Job::new().takes(ms(5)).program(0));
    for _ in 0..3 {
        sim.run_until("there is a slot", |sim| sim.slots_of_program("a", 0) == 1);
        sim.kill_slots_of_program("a", 0);
    }
    sim.finish();
    assert_eq!((sim.outcome(task), sim.runs(task)), (Some(NotStarted), 0), "PR-2");
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
