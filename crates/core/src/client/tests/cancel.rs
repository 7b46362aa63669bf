//! Ending tasks before their time.

use super::*;

#[test]
fn a_queued_task_is_just_dropped() {
    let mut bench = Bench::new();
    bench.submit_many(2);
    assert_eq!(bench.cancel(1, false), (true, vec![cancelled(1)]));
    assert_eq!(bench.cancel(1, false), (false, vec![]), "CL-1");
    bench.granted(1);
    bench.up(A);
    assert_eq!(bench.said(A), ["hello 0", "define f", "run 1=2"]);
}

#[test]
fn a_task_in_flight_is_asked_back_and_ends_at_once() {
    let mut bench = Bench::with_leases(1);
    bench.submit_many(2);
    bench.said(A);
    assert_eq!(bench.cancel(2, false), (true, vec![cancelled(2), send_now(A)]));
    assert_eq!(bench.said(A), ["withdraw 2"]);
    assert_eq!(bench.cancel(2, true), (false, vec![]), "CL-1");
    assert_eq!(bench.client.pending(), 2, "its record stays until the slot has answered");
    assert_eq!(bench.withdrawn(A, &[2]), []);
    assert_eq!(bench.values(A, us(5), &[1]), [value(1)]);
    assert_eq!(bench.client.pending(), 0);
}

#[test]
fn a_task_that_ran_after_all_ends_once() {
    let mut bench = Bench::with_leases(1);
    bench.submit();
    bench.said(A);
    assert_eq!(bench.cancel(1, false), (true, vec![cancelled(1), send_now(A)]));
    assert_eq!(bench.values(A, us(5), &[1]), [], "nobody waits for the value");
    assert_eq!(bench.client.pending(), 0);
}

#[test]
fn a_task_known_to_run_is_ended_only_anyway() {
    let mut bench = Bench::with_leases(1);
    bench.submit();
    bench.said(A);
    let (key, id) = bench.keys[0];
    assert!(!bench.client.is_running(key, id));
    bench.running(A, 1);
    assert!(bench.client.is_running(key, id));
    assert_eq!(bench.cancel(1, false), (false, vec![]));
    assert_eq!(bench.cancel(1, true), (true, vec![cancelled(1), send_now(A)]));
    assert_eq!(bench.said(A), ["cancel 1"]);
    assert_eq!(bench.replies(A, Status::Cancelled, us(9), &[1]), []);
    assert_eq!(bench.client.functions.estimate(bench.functions[0]), None, "nothing is learned from it");
}

#[test]
fn what_was_told_to_stop_can_be_killed() {
    let mut bench = Bench::with_leases(1);
    bench.submit_many(2);
    bench.said(A);
    bench.running(A, 1);
    assert_eq!(bench.kill_interrupted(), [], "nothing was told to stop");
    bench.cancel(1, true);
    bench.said(A);
    assert_eq!(bench.kill_interrupted(), [send_now(A)]);
    assert_eq!(bench.said(A), ["kill 1"], "and nobody else");
}

#[test]
fn a_cancelled_task_is_not_repeated() {
    let mut bench = Bench::with_leases(1);
    bench.submit();
    bench.said(A);
    bench.cancel(1, true);
    assert_eq!(bench.died(1, Some(1), 0), [close(A)]);
    assert_eq!(bench.client.pending(), 0);
}

#[test]
fn a_cancelled_task_is_not_repeated_for_its_own_error_either() {
    let mut bench = Bench::with_leases(1);
    let retry_on = RetryOn { raised: true, ..RetryOn::default() };
    bench.submit_as(|spec| Spec { retry_on, ..spec });
    bench.said(A);
    bench.cancel(1, false);
    bench.said(A);
    assert_eq!(bench.replies(A, Status::Raised, us(5), &[1]), []);
    assert_eq!(bench.client.pending(), 0, "it ran after all, and nobody asks for it any more");
    assert_eq!(bench.said(A), Vec::<String>::new());
}

#[test]
fn a_cancelled_task_that_was_not_sent_is_not_sent_elsewhere() {
    let mut bench = Bench::with_leases(1);
    bench.teach(A, us(20));
    bench.submit();
    bench.said(A);
    bench.submit_many(2);
    assert_eq!(bench.cancel(3, false), (true, vec![cancelled(3), send_now(A)]));
    bench.granted(2);
    bench.up(B);
    assert_eq!(bench.said(B), ["hello 0", "define f", "run 1=4"]);
    assert_eq!(bench.client.pending(), 2);
}

#[test]
fn many_are_cancelled_in_one_go() {
    let mut bench = Bench::with_leases(1);
    bench.submit_many(6);
    bench.said(A);
    let effects = bench.act(|client, _, out| client.cancel_all(|ticket| ticket % 2 == 0, out));
    assert_eq!(effects, [cancelled(4), cancelled(6), cancelled(2), send_now(A)]);
    assert_eq!(bench.said(A), ["cancel 2"]);
    assert_eq!((bench.client.pending(), bench.client.queued()), (4, 2));
}

#[test]
fn a_value_that_keeps_objects_is_not_dropped_in_silence() {
    let mut bench = Bench::with_leases(1);
    bench.submit();
    bench.submit();
    bench.said(A);
    bench.cancel(1, true);
    let mut value = b"v".to_vec();
    paceline_proto::pins::append(&[paceline_proto::PinId(7)], &mut value);
    let value = Bytes::from(value);
    let reply = Reply { seq: Seq(1), status: Status::Value, took: us(5), payload: value.clone() };
    let replies = Event::FromSlot(A, FromSlot::Replies { first: 0, replies: vec![reply] });
    let unclaimed = Effect::Unclaimed { value };
    assert!(bench.handle(replies.clone()).contains(&unclaimed));
    assert!(!bench.handle(replies).contains(&unclaimed), "a repeated reply keeps nothing more");
}
