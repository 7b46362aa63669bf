//! What a step of the head and a task of a client cost must not grow with the cluster. Somebody who looks at all nodes,
//! leases or clients for one event makes it grow by a factor of ten or more here.

use paceline_sim::scale::{self, Figures, World};
use std::time::Duration;

/// The best of several rounds: what others on this machine do can only make a round longer.
fn best(mut round: impl FnMut() -> Figures) -> Duration {
    (0..5).map(|_| round().each).min().expect("there are rounds")
}

#[test]
fn an_event_costs_the_head_the_same_in_small_and_large_clusters() {
    let mut small = World::new(100, 10);
    let mut large = World::new(2_000, 500);
    assert_eq!((small.start.leases, large.start.leases), (1_000, 20_000));
    let (few, many) = (best(|| small.churn(4_000)), best(|| large.churn(4_000)));
    assert!(many < 4 * few, "an event costs {few:?} with 100 nodes and {many:?} with 2,000");
}

#[test]
fn five_hundred_workers_and_fifteen_thousand_leases_cost_a_client_no_more_a_task() {
    let (few, many) = (best(|| scale::client(10, 20_000)), best(|| scale::client(15_000, 40_000)));
    assert!(many < 4 * few, "a task costs {few:?} with 10 leases and {many:?} with 15,000");
}
