//! Executors: slots of their own for tasks.

use crate::support::*;
use paceline::Error;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

pub const TESTS: &[(&str, fn())] = &[
    ("tasks_run_in_slots_of_an_executor", tasks_run_in_slots_of_an_executor),
    ("every_slot_is_initialised", every_slot_is_initialised),
    ("an_initializer_that_fails_breaks_it", an_initializer_that_fails_breaks_it),
    ("shutdown_waits", shutdown_waits),
    ("shutdown_now_cancels_what_has_not_begun", shutdown_now_cancels_what_has_not_begun),
    ("slots_are_replaced_after_so_many_tasks", slots_are_replaced_after_so_many_tasks),
    ("whatever_points_to_a_runner_is_one", whatever_points_to_a_runner_is_one),
];

static SCALE: AtomicU64 = AtomicU64::new(0);

#[paceline::task]
fn set_scale(scale: u64) -> Result<(), String> {
    if scale == 0 {
        return Err("nothing to scale by".into());
    }
    SCALE.fetch_add(scale, Ordering::Relaxed);
    Ok(())
}

#[paceline::task]
fn scaled(x: u64) -> (u64, u32) {
    (x * SCALE.load(Ordering::Relaxed), std::process::id())
}

#[paceline::task]
fn pid(time: Duration) -> u32 {
    std::thread::sleep(time);
    std::process::id()
}

#[paceline::task(retries = 0)]
fn hang(begun: PathBuf, time: Duration) -> u8 {
    std::fs::write(begun, std::process::id().to_string()).unwrap();
    std::thread::sleep(time);
    7
}

fn distinct(mut pids: Vec<u32>) -> Vec<u32> {
    pids.sort_unstable();
    pids.dedup();
    pids
}

const MOMENT: Duration = Duration::from_millis(10);

fn tasks_run_in_slots_of_an_executor() {
    let cluster = two();
    let executor = cluster.executor(3).start().unwrap();
    let futures: Vec<_> = (0..30).map(|_| pid::submit(&executor, MOMENT)).collect();
    let own = distinct(futures.into_iter().map(|future| future.wait().unwrap()).collect());
    assert_eq!((own.len(), executor.places().len()), (3, 3), "three on two CPUs");
    let others = distinct(pid::options().chunk_size(1).map(&cluster, [(MOMENT,); 10]).unwrap());
    assert!(others.iter().all(|pid| !own.contains(pid)), "nobody else's tasks run there");
    assert!(own.contains(&pid::call(&executor, MOMENT).unwrap()));
    assert_eq!(scaled::map(&executor, 0..1000).unwrap().len(), 1000);
    assert!(pid::try_submit(&executor, MOMENT).unwrap().wait().is_ok());
    drop(executor);
    until("its processes to end", || own.iter().all(|pid| is_gone(*pid)));
}

fn every_slot_is_initialised() {
    let cluster = two();
    let executor = cluster.executor(2).initializer::<set_scale>((10,)).start().unwrap();
    let values = scaled::map(&executor, 0..100).unwrap();
    assert!(values.iter().zip(0..).all(|((value, _), x)| *value == x * 10), "once in every slot");
    let begun = Mark::new("executor");
    let victim = hang::submit(&executor, begun.0.clone(), LIMIT * 2);
    until("the task to begin", || std::fs::read_to_string(&begun.0).is_ok_and(|text| !text.is_empty()));
    let killed = Instant::now();
    kill(std::fs::read_to_string(&begun.0).unwrap().parse().unwrap());
    let error = victim.wait().unwrap_err();
    assert!(killed.elapsed() < Duration::from_secs(1), "it took {:?}", killed.elapsed());
    assert_eq!(error.code(), "slot-died");
    let values = scaled::map(&executor, 0..100).unwrap();
    assert!(values.iter().zip(0..).all(|((value, _), x)| *value == x * 10), "also in the next one");
}

fn an_initializer_that_fails_breaks_it() {
    let cluster = two();
    let executor = cluster.executor(2).initializer::<set_scale>((0,)).start().unwrap();
    let error = scaled::call(&executor, 7).unwrap_err();
    let Error::PoolBroken { cause, tries: 3, .. } = &error else { panic!("{error:?}") };
    assert!(cause.to_string().ends_with("set_scale failed: nothing to scale by"), "{error}");
    assert_eq!(scaled::submit(&executor, 7).wait().unwrap_err().code(), "pool-broken");
    assert_eq!(scaled::call(&cluster, 7).unwrap().0, 0, "the cluster is not concerned");
}

fn shutdown_waits() {
    let cluster = two();
    let executor = cluster.executor(2).start().unwrap();
    let futures: Vec<_> = (0..8).map(|_| pid::submit(&executor, MOMENT)).collect();
    executor.shutdown().unwrap();
    assert!(futures.iter().all(paceline::Future::is_done));
    let pids = distinct(futures.into_iter().map(|future| future.wait().unwrap()).collect());
    until("its processes to end", || pids.iter().all(|pid| is_gone(*pid)));
}

fn shutdown_now_cancels_what_has_not_begun() {
    let cluster = two();
    let executor = cluster.executor(1).start().unwrap();
    let begun = Mark::new("running");
    let running = hang::submit(&executor, begun.0.clone(), Duration::from_millis(100));
    begun.wait();
    let waiting: Vec<_> = (0..50).map(|_| pid::submit(&executor, MOMENT)).collect();
    assert_eq!(executor.shutdown_now().unwrap(), 50);
    assert_eq!(running.wait().unwrap(), 7, "what runs is waited for");
    assert!(waiting.into_iter().all(|it| it.wait().is_err_and(|error| error.code() == "cancelled")));
}

fn slots_are_replaced_after_so_many_tasks() {
    let cluster = two();
    let executor = cluster.executor(1).tasks_per_slot(2).start().unwrap();
    let pids: Vec<u32> = (0..6).map(|_| pid::call(&executor, Duration::ZERO).unwrap()).collect();
    assert!(pids[0] == pids[1] && pids[2] == pids[3] && pids[4] == pids[5], "{pids:?}");
    assert_eq!(distinct(pids).len(), 3);
}

fn whatever_points_to_a_runner_is_one() {
    let cluster = Arc::new(two());
    let executor = Arc::new(cluster.executor(1).start().unwrap());
    assert_eq!(scaled::call(&cluster, 7).unwrap().0, 0);
    assert_eq!(scaled::submit(&executor, 7).wait().unwrap().0, 0);
    let reference = &*cluster;
    assert_eq!(scaled::call(reference, 7).unwrap().0 + scaled::call(&reference, 7).unwrap().0, 0);
    let lazy = LazyLock::new(|| cluster.executor(1).start().unwrap());
    assert_eq!(scaled::options().retries(0).call(&lazy, (7,)).unwrap().0, 0);
}
