//! How much may wait to be sent (RM-1, RM-2). Every step of the bench compares the count with the queues.

use super::*;

fn small() -> Config {
    Config { queue_tasks: 3, queue_bytes: 1000, ..Config::default() }
}

fn of(bytes: usize) -> impl Fn(Spec) -> Spec {
    move |spec| Spec { payload: Bytes::from(vec![7; bytes]), ..spec }
}

#[test]
fn what_is_sent_does_not_count() {
    let mut bench = Bench::with(small());
    bench.add_lease(1);
    for bytes in [900, 900] {
        bench.submit_as(of(bytes));
    }
    assert_eq!(bench.client.waiting(), Waiting::default(), "one runs, one waits in the slot");
    for _ in 0..3 {
        assert!(bench.client.has_room(10), "RM-1");
        bench.submit_as(of(10));
    }
    assert_eq!(bench.client.waiting(), Waiting { tasks: 3, bytes: 30 });
    assert!(!bench.client.has_room(0), "as many tasks as may wait");
    bench.values(A, ms(1), &[1]);
    assert!(bench.client.has_room(10));
}

#[test]
fn bytes_count_as_well_and_an_empty_queue_takes_anything() {
    let mut bench = Bench::with(small());
    assert!(bench.client.has_room(1_000_000), "RM-2");
    bench.submit_as(of(600));
    assert!(bench.client.has_room(400));
    assert!(!bench.client.has_room(401));
    assert!(!bench.client.has_room(usize::MAX));
    let (done, _) = bench.cancel(1, false);
    assert!(done && bench.client.has_room(1_000_000), "RM-2");
}

#[test]
fn what_comes_back_counts_again() {
    let mut bench = Bench::with(small());
    bench.add_lease(1);
    for bytes in [100, 200] {
        bench.submit_as(of(bytes));
    }
    bench.said(A);
    bench.died(1, Some(1), 0);
    assert_eq!(bench.client.waiting(), Waiting { tasks: 2, bytes: 300 });
    let mut out = Vec::new();
    bench.client.close(&mut out);
    assert_eq!(bench.client.waiting(), Waiting::default());
}
