//! What people are told of requests that wait.

use super::*;

fn waits(cpus: u64) -> HeadToClient {
    HeadToClient::Waits { shape: Shape::cpus(cpus), why: format!("{cpus} CPUs") }
}

/// Tasks that need this many CPUs, and one more for each of them.
fn waiting(shapes: std::ops::RangeInclusive<u64>) -> Bench {
    let mut bench = Bench::new();
    for cpus in shapes {
        bench.submit_as(|spec| Spec { shape: Shape::cpus(cpus), ..spec });
    }
    bench
}

fn said(effects: &[Effect<u64>]) -> Vec<(usize, usize, &str)> {
    let told = effects.iter().filter_map(|effect| match effect {
        Effect::Waits { tasks, requests, why } => Some((*tasks, *requests, why.as_str())),
        _ => None,
    });
    told.collect()
}

#[test]
fn many_requests_are_one_line() {
    let mut bench = waiting(1..=5);
    for cpus in 1..=5 {
        assert_eq!(said(&bench.head_says(waits(cpus))), []);
    }
    let effects = bench.pass(ms(100)).tick();
    assert_eq!(said(&effects), [(5, 5, "1 CPUs")], "NT-1");
    bench.submit_as(|spec| Spec { shape: Shape::cpus(6), ..spec });
    bench.head_says(waits(6));
    assert_eq!(said(&bench.pass(ms(20_000)).tick()), [], "NT-1: it was quiet for too short a time");
    assert_eq!(said(&bench.pass(ms(10_000)).tick()), [(1, 1, "6 CPUs")]);
}

#[test]
fn what_is_over_is_not_told() {
    let mut bench = waiting(1..=2);
    bench.head_says(waits(1));
    bench.head_says(waits(2));
    bench.cancel(1, false);
    assert_eq!(said(&bench.pass(ms(100)).tick()), [(1, 1, "2 CPUs")], "NT-2");
    let mut bench = waiting(1..=1);
    bench.head_says(waits(1));
    bench.cancel(1, false);
    assert_eq!(said(&bench.pass(ms(100)).tick()), []);
    bench.submit_as(|spec| Spec { shape: Shape::cpus(1), ..spec });
    bench.head_says(waits(1));
    assert_eq!(said(&bench.pass(ms(100)).tick()), [(1, 1, "1 CPUs")], "and nothing was said before");
}
