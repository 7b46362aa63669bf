//! How much is sent to a slot at a time (LS-2).

use super::*;

/// How many calls are in flight on a lease after so many were submitted.
fn in_flight(bench: &mut Bench, submitted: usize) -> usize {
    bench.submit_many(submitted);
    bench.client.leases[A.0].in_flight().len()
}

#[test]
fn of_an_unknown_function_one_runs_and_one_waits() {
    let mut bench = Bench::with_leases(1);
    assert_eq!(bench.submit(), [send_now(A), want(1)]);
    assert_eq!(bench.submit(), [send_soon(A), want(2)], "one ahead, without waiting for the first answer");
    assert_eq!(bench.submit(), [want(4)]);
    assert_eq!(bench.said(A), ["define f", "run 1=1 2=2"]);
    assert_eq!(bench.values(A, us(5), &[1]), [value(1), send_soon(A)]);
    assert_eq!(bench.said(A), ["run 3=3"]);
}

#[test]
fn long_tasks_are_never_sent_ahead() {
    let mut bench = Bench::with_leases(1);
    bench.teach(A, ms(10));
    assert_eq!(in_flight(&mut bench, 5), 1);
    assert_eq!(bench.said(A), ["run 2=2"]);
    assert_eq!(bench.values(A, ms(10), &[2]), [value(2), send_now(A)]);
    assert_eq!(bench.said(A), ["run 3=3"]);
}

#[test]
fn a_millisecond_task_has_one_ahead() {
    let mut bench = Bench::with_leases(1);
    bench.teach(A, ms(1));
    assert_eq!(in_flight(&mut bench, 10), 2);
}

#[test]
fn short_tasks_fill_a_millisecond() {
    let mut bench = Bench::with_leases(1);
    bench.teach(A, us(50));
    assert_eq!(in_flight(&mut bench, 100), 20);
}

#[test]
fn microsecond_tasks_fill_the_window() {
    let mut bench = Bench::with_leases(1);
    bench.teach(A, us(1));
    assert_eq!(in_flight(&mut bench, 2000), 512);
    let mut bench = Bench::with(Config { max_window: 16, ..Config::default() });
    bench.add_lease(1);
    bench.teach(A, us(1));
    assert_eq!(in_flight(&mut bench, 2000), 16);
}

#[test]
fn large_arguments_narrow_the_window() {
    let mut bench = Bench::with(Config { window_bytes: 1000, ..Config::default() });
    bench.add_lease(1);
    bench.teach(A, us(1));
    for _ in 0..20 {
        bench.submit_as(|spec| Spec { payload: Bytes::from(vec![0; 300]), ..spec });
    }
    assert_eq!(bench.client.leases[A.0].in_flight().len(), 4);
    // However large they are, one runs and one waits.
    let mut bench = Bench::with(Config { window_bytes: 1000, ..Config::default() });
    bench.add_lease(1);
    bench.teach(A, us(1));
    for _ in 0..5 {
        bench.submit_as(|spec| Spec { payload: Bytes::from(vec![0; 5000]), ..spec });
    }
    assert_eq!(bench.client.leases[A.0].in_flight().len(), 2);
}

#[test]
fn nothing_follows_a_call_that_is_known_to_run_for_long() {
    let mut bench = Bench::with_leases(1);
    bench.teach(A, us(1));
    bench.submit();
    bench.said(A);
    assert_eq!(bench.running(A, 2), [Effect::Started { ticket: 2 }]);
    assert_eq!(bench.submit(), [want(2)]);
    assert_eq!(bench.said(A), Vec::<String>::new());
    assert_eq!(bench.values(A, us(1), &[2]), [value(2), send_now(A)]);
    assert_eq!(bench.said(A), ["run 3=3"]);
}

#[test]
fn few_tasks_are_spread_over_all_slots() {
    let mut bench = Bench::with_leases(3);
    bench.submit_many(3);
    assert_eq!([bench.said(A), bench.said(B), bench.said(C)].map(|said| said.len()), [2, 2, 2]);
    let mut bench = Bench::new();
    bench.submit_many(6);
    for lease in 1..=2 {
        bench.granted(lease);
    }
    assert_eq!(bench.up(A), [send_now(A), send_now(A)], "its hello, and two of them");
    assert_eq!(bench.said(A), ["hello 0", "define f", "run 1=1 2=2"]);
    assert_eq!(bench.up(B), [send_now(B), send_now(B)]);
    assert_eq!(bench.said(B), ["hello 0", "define f", "run 1=3 2=4"]);
}

#[test]
fn the_slot_used_last_is_taken_first() {
    let mut bench = Bench::with_leases(2);
    bench.submit();
    assert_eq!(bench.said(B), ["define f", "run 1=1"]);
    bench.values(B, us(5), &[1]);
    assert_eq!(bench.submit(), [send_now(B)], "it is still awake");
}
