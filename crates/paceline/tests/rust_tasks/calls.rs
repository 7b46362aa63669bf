//! Calling, submitting, mapping, waiting.

use crate::support::*;
use paceline::{Error, Task};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

pub const TESTS: &[(&str, fn())] = &[
    ("calls", calls),
    ("a_function_stays_a_function", a_function_stays_a_function),
    ("maps_in_order", maps_in_order),
    ("a_map_ends_with_its_first_failure", a_map_ends_with_its_first_failure),
    ("waiting_has_an_end", waiting_has_an_end),
    ("futures_can_be_awaited", futures_can_be_awaited),
    ("threads_share_a_cluster", threads_share_a_cluster),
    ("a_task_knows_which_it_is", a_task_knows_which_it_is),
    ("items_of_a_map_travel_in_chunks", items_of_a_map_travel_in_chunks),
    (
        "libraries_start_as_many_threads_as_a_task_has_cpus",
        libraries_start_as_many_threads_as_a_task_has_cpus,
    ),
];

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
struct Order {
    item: String,
    count: u32,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    note: Option<String>,
    prices: BTreeMap<u8, f64>,
}

#[paceline::task(name = "orders/double", retries = 1, cpus = 1, priority = 2)]
fn double(mut order: Order, times: u32, (a, b): (i64, i64)) -> (Order, i64) {
    order.count *= times;
    (order, a - b)
}

/// Parameters may have any name.
#[paceline::task]
fn odd_names(cluster: u8, items: u8, arguments: u8, run: u8) -> u8 {
    cluster + items + arguments + run
}

fn calls() {
    let cluster = two();
    assert_eq!(square::call(&cluster, 7).unwrap(), 49);
    assert_eq!(square::submit(&cluster, 8).wait().unwrap(), 64);
    assert_eq!(cluster.call::<square>((9,)).unwrap(), 81);
    assert_eq!(square::options().retries(0).priority(3).call(&cluster, (10,)).unwrap(), 100);
    assert_ne!(pid::call(&cluster).unwrap(), std::process::id());
    assert_eq!(odd_names::call(&cluster, 1, 2, 3, 4).unwrap(), 10);
    let order = Order { item: "nut".into(), count: 3, note: None, prices: BTreeMap::from([(1, 0.5)]) };
    let (doubled, difference) = double::call(&cluster, order.clone(), 2, (i64::MIN, -1)).unwrap();
    assert_eq!((doubled, difference), (Order { count: 6, ..order }, i64::MIN + 1));
    assert_eq!(double::NAME, "orders/double");
    let long = "x".repeat(3 << 20);
    assert_eq!(shout::call(&cluster, long.clone()).unwrap(), long.to_uppercase());
}

#[paceline::task]
fn shout(text: String) -> String {
    text.to_uppercase()
}

fn a_function_stays_a_function() {
    assert_eq!(square(7), 49);
    let square = square(3);
    assert_eq!(square, 9);
    assert_eq!((1..4).map(crate::support::square).sum::<u64>(), 14);
}

fn maps_in_order() {
    let cluster = two();
    let expected: Vec<u64> = (0..10_000).map(|x| x * x).collect();
    assert_eq!(square::map(&cluster, 0..10_000).unwrap(), expected);
    assert_eq!(divide::map(&cluster, [(6, 3), (9, 3)]).unwrap(), [2, 3]);
    assert_eq!(square::map(&cluster, []).unwrap(), [0; 0]);
    assert_eq!(square::options().map(&cluster, (0..1024).map(|x| (x,))).unwrap().len(), 1024);
}

fn a_map_ends_with_its_first_failure() {
    let cluster = two();
    let items = (0..5_000).map(|x| (100, if x == 1_500 { 0 } else { 1 }));
    let error = divide::map(&cluster, items).unwrap_err();
    assert!(matches!(error, Error::Panicked { .. }), "{error:?}");
    assert_eq!(square::call(&cluster, 7).unwrap(), 49);
}

fn waiting_has_an_end() {
    let cluster = one();
    let future = nap::submit(&cluster, Duration::from_millis(300));
    assert_eq!(future.wait_timeout(Duration::from_millis(20)).unwrap(), None);
    assert!(!future.is_done());
    assert_eq!(future.wait_timeout(LIMIT).unwrap(), Some(7));
    assert!(future.is_done());
    assert_eq!(future.wait_timeout(Duration::MAX).unwrap(), Some(7), "and again");
    assert_eq!(future.wait().unwrap(), 7);
}

fn futures_can_be_awaited() {
    let cluster = two();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        assert_eq!(square::submit(&cluster, 7).await.unwrap(), 49);
        let futures: Vec<_> = (0..500).map(|x| tokio::spawn(square::submit(&cluster, x))).collect();
        for (x, future) in (0..).zip(futures) {
            assert_eq!(future.await.unwrap().unwrap(), x * x);
        }
        let slow = nap::submit(&cluster, Duration::from_secs(60));
        assert!(tokio::time::timeout(Duration::from_millis(20), slow).await.is_err(), "the loop goes on");
        let error = divide::submit(&cluster, 1, 0).await.unwrap_err();
        assert!(matches!(error, Error::Panicked { .. }), "{error:?}");
    });
}

fn threads_share_a_cluster() {
    let cluster = two();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let cluster = &cluster;
            scope.spawn(move || {
                for x in 0..300 {
                    assert_eq!(square::call(cluster, thread * x).unwrap(), (thread * x).pow(2));
                }
            });
        }
    });
}

#[paceline::task]
fn which() -> Option<(u64, u32, u64)> {
    paceline::current().map(|current| (current.task.0, current.attempt, current.slot.0))
}

fn a_task_knows_which_it_is() {
    let cluster = one();
    let future = which::submit(&cluster);
    let task = future.task().unwrap().0;
    let (known, attempt, slot) = future.wait().unwrap().unwrap();
    assert_eq!((known, attempt), (task, 1));
    assert!(cluster.status().slots.iter().any(|status| status.slot.0 == slot));
    assert_eq!(paceline::current(), None, "this is no task");
}

fn items_of_a_map_travel_in_chunks() {
    let cluster = two();
    let tasks = |values: Vec<Option<(u64, u32, u64)>>| {
        let mut tasks: Vec<u64> = values.into_iter().map(|which| which.unwrap().0).collect();
        tasks.dedup();
        tasks.len()
    };
    let items = || (0..800).map(|_| ());
    assert_eq!(tasks(cluster.map::<which>(items()).unwrap()), 8, "four for each slot");
    assert_eq!(tasks(cluster.map::<which>(items().filter(|_| true)).unwrap()), 8, "of unknown length");
    let options = which::options;
    assert_eq!(tasks(options().chunk_size(1).map(&cluster, items()).unwrap()), 800);
    assert_eq!(tasks(options().chunk_size(300).map(&cluster, items()).unwrap()), 3);
    let timeout = options().timeout(Duration::from_secs(60));
    assert_eq!(tasks(timeout.map(&cluster, items()).unwrap()), 800, "MP-1: the time is each item's");
}

#[paceline::task]
fn threads() -> Option<String> {
    std::env::var("RAYON_NUM_THREADS").ok()
}

fn libraries_start_as_many_threads_as_a_task_has_cpus() {
    if std::env::var_os("RAYON_NUM_THREADS").is_none() {
        let cluster = two();
        assert_eq!(threads::call(&cluster).unwrap().as_deref(), Some("1"));
        assert_eq!(threads::options().cpus(2.0).call(&cluster, ()).unwrap().as_deref(), Some("2"));
    }
}
