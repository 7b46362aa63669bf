//! Taking work back for slots that have nothing to do (WD-1, WD-2).

use super::*;

/// Two leases: A has task 1 running and task 2 ahead, B has just become idle.
fn one_busy_one_idle() -> Bench {
    let mut bench = Bench::with_leases(1);
    bench.submit_many(2);
    bench.said(A);
    bench.granted(2);
    bench
}

#[test]
fn half_is_asked_back_when_there_is_much() {
    let mut bench = one_busy_one_idle();
    assert_eq!(bench.up(B), [send_now(B), send_now(A)]);
    assert_eq!(bench.said(A), ["withdraw 2"]);
    assert_eq!(bench.tick(), [], "it is asked for once");
    assert_eq!(bench.client.leases[A.0].in_flight().len(), 2, "WD-1: it moves when its slot gave it back");
    assert_eq!(bench.said(B), ["hello 0"]);
    assert_eq!(bench.withdrawn(A, &[2]), [send_now(B)]);
    assert_eq!(bench.said(B), ["define f", "run 1=2"], "the same run of the task: it had not begun");
}

#[test]
fn a_call_that_began_is_not_given_back_and_nothing_is_lost() {
    let mut bench = one_busy_one_idle();
    bench.up(B);
    bench.said(A);
    assert_eq!(bench.values(A, us(5), &[1]), [value(1)]);
    assert_eq!(bench.values(A, us(5), &[2]), [value(2)], "the slot had claimed it");
    assert_eq!(bench.client.pending(), 0);
}

#[test]
fn little_work_is_left_alone_unless_the_slot_stalls() {
    let mut bench = Bench::with_leases(1);
    bench.teach(A, us(20));
    bench.submit_many(4);
    bench.said(A);
    bench.granted(2);
    let stall = bench.now + us(300);
    assert_eq!(bench.up(B), [send_now(B), wake(stall)], "WD-2: it is done before the asking");
    bench.pass(us(300));
    assert_eq!(bench.tick(), [send_now(A), wake(at(200))]);
    assert_eq!(bench.said(A), ["withdraw 3 4 5"], "all that waits: what runs must be long");
}

#[test]
fn all_is_asked_back_from_a_slot_that_runs_something_long() {
    let mut bench = Bench::with_leases(1);
    bench.teach(A, us(20));
    bench.submit_many(4);
    bench.said(A);
    bench.granted(2);
    bench.up(B);
    bench.said(B);
    assert_eq!(bench.running(A, 2), [Effect::Started { ticket: 2 }, send_now(A)]);
    assert_eq!(bench.said(A), ["withdraw 3 4 5"]);
    assert_eq!(bench.withdrawn(A, &[3, 4, 5]), [send_now(B), send_soon(B)]);
    assert_eq!(bench.said(B), ["define f", "run 1=3 2=4 3=5"]);
}

#[test]
fn nothing_is_asked_back_while_tasks_wait() {
    let mut bench = Bench::with_leases(2);
    bench.teach(B, ms(20));
    bench.submit_many(3);
    bench.said(A);
    bench.said(B);
    assert_eq!(bench.client.queued(), 1);
    assert_eq!(bench.values(B, ms(20), &[2]), [value(2), send_now(B)], "WD-2: the one that waits is sent");
    assert_eq!(bench.said(A), Vec::<String>::new());
}

#[test]
fn what_was_not_sent_yet_needs_no_asking() {
    let mut bench = Bench::with_leases(1);
    bench.teach(A, us(20));
    bench.submit();
    bench.said(A);
    // These wait for company in the shell.
    bench.submit_many(2);
    bench.granted(2);
    assert_eq!(bench.up(B), [send_now(B), send_now(B), send_soon(A)]);
    assert_eq!(bench.said(B), ["hello 0", "define f", "run 1=3"], "shared with the idle one");
    assert_eq!(bench.said(A), ["run 5=4"]);
}

#[test]
fn a_slot_whose_link_is_down_is_not_asked() {
    let mut bench = one_busy_one_idle();
    assert_eq!(bench.down(A), []);
    assert_eq!(bench.up(B), [send_now(B)]);
    assert_eq!(bench.tick(), []);
    bench.up(A);
    bench.resumed(A, 2);
    assert_eq!(bench.said(A), ["hello 0", "withdraw 2"]);
}

#[test]
fn what_waits_in_a_recalled_slot_goes_to_others() {
    let mut bench = Bench::with_leases(2);
    bench.submit_many(4);
    bench.said(A);
    bench.said(B);
    assert_eq!(bench.recall(1), [send_now(A)]);
    assert_eq!(bench.said(A), ["withdraw 2"]);
    assert_eq!(bench.withdrawn(A, &[2]), [], "the other is full, and this one takes no more");
    assert_eq!(bench.values(A, ms(1), &[1]), [value(2), want(3), release(1), close(A)]);
}
