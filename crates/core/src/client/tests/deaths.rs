//! What the death of a slot or node means for the calls it had (CL-4).

use super::*;

const KILLED: DeathCause = DeathCause::Signal(9);

/// One lease with calls 1 to 3 in flight, tasks 2 to 4, of a short function.
fn three_in_flight(retries: u32) -> Bench {
    let mut bench = Bench::with_leases(1);
    bench.teach(A, us(20));
    for _ in 0..3 {
        bench.submit_as(|spec| Spec { retries, ..spec });
    }
    assert_eq!(bench.said(A), ["run 2=2 3=3 4=4"]);
    bench
}

/// What a new lease is told to run.
fn next_run(bench: &mut Bench, lease: u64) -> String {
    bench.granted(lease);
    bench.up(A);
    bench.said(A).pop().unwrap()
}

#[test]
fn the_call_that_ran_is_charged_and_the_others_go_free() {
    let mut bench = three_in_flight(0);
    assert_eq!(
        bench.died(1, Some(2), 1),
        [close(A), lost(2, LostCause::SlotDied, 1, vec![charge(1, KILLED)])]
    );
    assert_eq!(next_run(&mut bench, 2), "run 1=3 2=4", "they had not begun: no retry is taken");
}

#[test]
fn a_task_whose_slot_died_does_not_run_until_it_is_known_to_again() {
    let mut bench = Bench::with_leases(1);
    bench.submit();
    bench.said(A);
    bench.running(A, 1);
    let (key, id) = bench.keys[0];
    assert!(bench.client.is_running(key, id));
    bench.died(1, Some(1), 0);
    assert!(!bench.client.is_running(key, id), "it waits, and can be cancelled gently");
    assert_eq!(bench.cancel(1, false), (true, vec![cancelled(1)]));
}

#[test]
fn a_result_that_died_with_its_slot_costs_a_retry_only_if_nothing_ran_since() {
    let mut bench = three_in_flight(1);
    assert_eq!(bench.died(1, Some(3), 2), [close(A)]);
    assert_eq!(next_run(&mut bench, 2), "run 1=2/2");
    bench.values(A, us(20), &[1]);
    assert_eq!(bench.said(A), ["run 2=3/2 3=4"]);
    let mut bench = three_in_flight(1);
    assert_eq!(bench.died(1, None, 3), [close(A)], "two had finished, none ran");
    assert_eq!(next_run(&mut bench, 2), "run 1=2/2 2=3/2 3=4");
    let mut bench = three_in_flight(0);
    let died = |task| lost(task, LostCause::SlotDied, 1, vec![charge(1, KILLED)]);
    assert_eq!(bench.died(1, None, 3), [close(A), died(2), died(3)], "neither may run again");
}

#[test]
fn a_reply_that_came_before_the_death_counts() {
    let mut bench = three_in_flight(0);
    bench.values(A, us(20), &[2]);
    assert_eq!(bench.died(1, None, 2), [close(A)]);
    assert_eq!(next_run(&mut bench, 2), "run 1=3 2=4");
}

#[test]
fn the_third_death_is_poison() {
    let mut bench = Bench::with_leases(1);
    bench.submit_as(|spec| Spec { retries: 100, ..spec });
    bench.said(A);
    assert_eq!(bench.died(1, Some(1), 0), [close(A)]);
    assert_eq!(next_run(&mut bench, 2), "run 1=1/2");
    assert_eq!(bench.died(2, Some(1), 0), [close(A)]);
    assert_eq!(next_run(&mut bench, 3), "run 1=1/3");
    let charges = (1..=3).map(|slot| charge(slot, KILLED)).collect();
    assert_eq!(bench.died(3, Some(1), 0), [close(A), lost(1, LostCause::Poison, 3, charges)]);
}

#[test]
fn without_retries_left_it_is_the_slot_that_died() {
    let mut bench = Bench::with_leases(1);
    bench.submit_as(|spec| Spec { retries: 1, ..spec });
    bench.said(A);
    bench.died(1, Some(1), 0);
    assert_eq!(next_run(&mut bench, 2), "run 1=1/2");
    let charges = vec![charge(1, KILLED), charge(2, KILLED)];
    assert_eq!(bench.died(2, Some(1), 0), [close(A), lost(1, LostCause::SlotDied, 2, charges)]);
}

#[test]
fn lost_results_and_lost_nodes_are_no_poison() {
    let mut bench = Bench::with_leases(1);
    bench.submit_as(|spec| Spec { retries: 100, ..spec });
    bench.said(A);
    for lease in 1..10 {
        let effects = if lease % 2 == 0 { bench.node_lost(lease) } else { bench.died(lease, None, 1) };
        assert_eq!(effects, [close(A)]);
        assert_eq!(next_run(&mut bench, lease + 1), format!("run 1=1/{}", lease + 1));
    }
}

#[test]
fn a_lost_node_costs_the_first_call_a_retry() {
    let mut bench = three_in_flight(1);
    assert_eq!(bench.node_lost(1), [close(A)]);
    assert_eq!(next_run(&mut bench, 2), "run 1=2/2 2=3/2 3=4/2");
    let charges = vec![charge(2, DeathCause::NodeLost)];
    assert_eq!(bench.node_lost(2), [close(A), lost(2, LostCause::NodeLost, 2, charges)], "its second retry");
    assert_eq!(next_run(&mut bench, 3), "run 1=3/3 2=4/3", "they may have begun there: other runs, for free");
}

#[test]
fn task_without_retries_that_may_have_begun_does_not_run_again() {
    let mut bench = three_in_flight(0);
    let gone = |task| lost(task, LostCause::NodeLost, 1, vec![charge(1, DeathCause::NodeLost)]);
    assert_eq!(bench.node_lost(1), [close(A), gone(2), gone(3), gone(4)]);
    let mut bench = three_in_flight(0);
    let died = |task| lost(task, LostCause::SlotDied, 1, vec![charge(1, KILLED)]);
    assert_eq!(
        bench.died(1, Some(3), 2),
        [close(A), died(2), died(3)],
        "the first had run, its result is lost"
    );
    assert_eq!(next_run(&mut bench, 2), "run 1=4", "it had not begun");
}

#[test]
fn what_was_never_sent_was_never_begun() {
    let mut bench = Bench::with_leases(1);
    bench.submit_as(|spec| Spec { retries: 0, ..spec });
    assert_eq!(bench.node_lost(1), [close(A)]);
    assert_eq!(next_run(&mut bench, 2), "run 1=1");
}

#[test]
fn what_killed_a_slot_goes_alone_to_an_idle_one() {
    let mut bench = Bench::with_leases(2);
    bench.teach(B, us(20));
    bench.submit_many(2);
    assert_eq!(
        [bench.said(A), bench.said(B)].map(|said| said.last().unwrap().clone()),
        ["run 1=3", "run 2=2"]
    );
    assert_eq!(bench.died(1, Some(1), 0), [close(A)], "the other slot is at work: results could die with it");
    assert_eq!(bench.values(B, us(20), &[2]), [value(2), send_now(B)]);
    assert_eq!(bench.said(B), ["run 3=3/2"]);
}

#[test]
fn the_other_slots_take_over() {
    let mut bench = Bench::with_leases(2);
    bench.submit_many(4);
    bench.said(A);
    bench.said(B);
    bench.values(B, us(20), &[1, 2]);
    assert_eq!(bench.died(1, None, 0), [close(A), send_now(B), send_soon(B)]);
    assert_eq!(bench.said(B), ["run 3=2 4=4"]);
}

#[test]
fn a_repeated_end_changes_nothing() {
    let mut bench = three_in_flight(3);
    bench.died(1, Some(2), 1);
    assert_eq!(bench.died(1, Some(2), 1), []);
    assert_eq!(bench.node_lost(1), []);
    assert_eq!(bench.client.queued(), 3);
}

#[test]
fn a_slot_that_ended_to_stop_a_call_is_no_charge() {
    let timed_out = |bench: &mut Bench, lease: u64| {
        let death = Death {
            cause: DeathCause::TimedOut,
            out_of_memory: OutOfMemory::No,
            running: Some(Seq(1)),
            finished: Seq(0),
        };
        bench.head_says(HeadToClient::Ended { lease: LeaseId(lease.into()), death })
    };
    let mut bench = Bench::with_leases(1);
    let retry_on = RetryOn { timeout: true, ..RetryOn::default() };
    bench.submit_as(|spec| Spec { timeout: ms(5), retries: 4, retry_on, ..spec });
    bench.said(A);
    for lease in 1..=4 {
        assert_eq!(timed_out(&mut bench, lease), [close(A)], "never poison");
        assert_eq!(next_run(&mut bench, lease + 1), format!("run 1=1/{}", lease + 1));
    }
    let outcome = Outcome::TimedOut { after: ms(5), attempts: 5 };
    assert_eq!(timed_out(&mut bench, 5), [close(A), finished(1, outcome)]);
}

#[test]
fn deaths_repeat_only_what_was_asked_for() {
    let retry_on =
        RetryOn { slot_lost: false, node_lost: false, timeout: false, raised: false, memory: false };
    let mut bench = Bench::with_leases(1);
    bench.submit_as(|spec| Spec { retry_on, ..spec });
    bench.said(A);
    let charges = vec![charge(1, KILLED)];
    assert_eq!(bench.died(1, Some(1), 0), [close(A), lost(1, LostCause::SlotDied, 1, charges)]);
    let mut bench = Bench::with_leases(1);
    bench.submit_as(|spec| Spec { retry_on, ..spec });
    bench.said(A);
    let charges = vec![charge(1, DeathCause::NodeLost)];
    assert_eq!(bench.node_lost(1), [close(A), lost(1, LostCause::NodeLost, 1, charges)]);
}

/// The slot of this lease is ended because its call had more memory than it may.
fn exceeded(bench: &mut Bench, lease: u64) -> (Vec<Effect<u64>>, Charge) {
    let out_of_memory = OutOfMemory::Exceeded(MemoryUse { peak: 11, limit: 10 });
    let death = Death { cause: KILLED, out_of_memory, running: Some(Seq(1)), finished: Seq(0) };
    let effects = bench.head_says(HeadToClient::Ended { lease: LeaseId(lease.into()), death });
    (effects, Charge { out_of_memory, ..charge(lease, KILLED) })
}

#[test]
fn who_took_more_memory_than_it_may_would_do_so_again() {
    let mut bench = Bench::with_leases(1);
    bench.submit_as(|spec| Spec { retries: 3, ..spec });
    bench.said(A);
    let (effects, charge) = exceeded(&mut bench, 1);
    assert_eq!(effects, [close(A), lost(1, LostCause::SlotDied, 1, vec![charge])]);
    let mut bench = Bench::with_leases(1);
    let retry_on = RetryOn { memory: true, ..RetryOn::default() };
    bench.submit_as(|spec| Spec { retries: 1, retry_on, ..spec });
    bench.said(A);
    assert_eq!(exceeded(&mut bench, 1).0, [close(A)], "unless it was asked for");
    assert_eq!(next_run(&mut bench, 2), "run 1=1/2");
}
