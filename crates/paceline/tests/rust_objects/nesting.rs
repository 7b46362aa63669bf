//! Tasks that submit tasks, actors that others call, and objects that make objects.

use crate::actors::{Counter, CounterHandle};
use crate::support::*;
use paceline::{Cluster, Error};
use std::path::PathBuf;
use std::time::Duration;

pub const TESTS: &[(&str, fn())] = &[
    ("tasks_submit_tasks", tasks_submit_tasks),
    ("no_depth_is_too_deep", no_depth_is_too_deep),
    ("what_nobody_waits_for_ends_with_its_task", what_nobody_waits_for_ends_with_its_task),
    ("a_task_that_waits_can_be_cancelled", a_task_that_waits_can_be_cancelled),
    ("a_program_of_others_submits_tasks", a_program_of_others_submits_tasks),
    ("tasks_call_an_actor", tasks_call_an_actor),
    ("actors_call_and_make_actors", actors_call_and_make_actors),
    ("a_handle_to_what_is_gone_is_told", a_handle_to_what_is_gone_is_told),
    ("tasks_open_pools", tasks_open_pools),
];

#[paceline::task]
fn fibonacci(n: u64) -> paceline::Result<u64> {
    if n < 2 {
        return Ok(n);
    }
    let cluster = Cluster::current()?;
    let first = fibonacci::submit(&cluster, n - 1);
    Ok(fibonacci::call(&cluster, n - 2)? + first.wait()?)
}

#[paceline::task]
fn descend(depth: u32) -> paceline::Result<u32> {
    if depth == 0 {
        return Ok(0);
    }
    Ok(descend::call(&Cluster::current()?, depth - 1)? + 1)
}

#[paceline::task]
fn nap(begun: PathBuf, time: Duration) {
    std::fs::write(begun, std::process::id().to_string()).unwrap();
    std::thread::sleep(time);
}

#[paceline::task]
fn leave_behind(begun: PathBuf) -> paceline::Result<u32> {
    let child = nap::submit(&Cluster::current()?, begun.clone(), LIMIT * 2);
    Mark::at(begun).wait();
    drop(child);
    Ok(7)
}

#[paceline::task]
fn wait_for_nap(begun: PathBuf) -> paceline::Result<()> {
    nap::call(&Cluster::current()?, begun, LIMIT * 2)
}

#[paceline::task]
fn sum_of_squares(count: u64) -> paceline::Result<u64> {
    #[paceline::task]
    fn square(x: u64) -> u64 {
        x * x
    }
    Ok(square::map(&Cluster::current()?, 0..count)?.into_iter().sum())
}

#[paceline::task]
fn count_with(counter: CounterHandle, times: u32) -> paceline::Result<Vec<i64>> {
    let futures: Vec<_> = (0..times).map(|_| counter.submit_add(1)).collect();
    futures.into_iter().map(paceline::Future::wait).collect()
}

#[paceline::task]
fn pass_on(counter: CounterHandle) -> CounterHandle {
    counter
}

/// Has an actor of its own, and one of somebody else's.
struct Manager {
    own: CounterHandle,
    other: Option<CounterHandle>,
}

#[paceline::actor(cpus = 0)]
impl Manager {
    fn new() -> paceline::Result<Manager> {
        let own = Counter::options().cpus(0.0).spawn(&Cluster::current()?, (100,))?;
        Ok(Manager { own, other: None })
    }

    fn meet(&mut self, other: CounterHandle) {
        self.other = Some(other);
    }

    fn add(&mut self, step: i64) -> paceline::Result<(i64, Option<i64>)> {
        Ok((self.own.add(step)?, self.other.as_ref().map(|other| other.add(step)).transpose()?))
    }

    fn lend(&self) -> CounterHandle {
        self.own.clone()
    }
}

struct Doubler;

#[paceline::worker]
impl Doubler {
    fn new() -> Doubler {
        Doubler
    }

    fn run(&mut self, x: u64) -> u64 {
        2 * x
    }
}

#[paceline::task]
fn double_all(count: u64) -> paceline::Result<Vec<u64>> {
    let pool = Doubler::options().slots(2).spawn(&Cluster::current()?, ())?;
    let values = pool.map(0..count)?;
    pool.close()?;
    Ok(values)
}

fn tasks_submit_tasks() {
    let cluster = two();
    assert_eq!(fibonacci::call(&cluster, 10).unwrap(), 55);
    assert_eq!(sum_of_squares::call(&cluster, 100).unwrap(), 328_350);
    assert_eq!(sum_of_squares::map(&cluster, [1, 2, 3]).unwrap(), [0, 1, 5]);
    assert!(matches!(Cluster::current(), Err(Error::NotInSlot)));
    let one = Cluster::embedded().cpus(1).start().unwrap();
    assert_eq!(fibonacci::call(&one, 7).unwrap(), 13, "who waits leaves its CPU to others");
}

fn no_depth_is_too_deep() {
    let cluster = Cluster::embedded().cpus(1).start().unwrap();
    assert_eq!(descend::call(&cluster, 80).unwrap(), 80, "the deepest run in the middle of those that wait");
}

fn what_nobody_waits_for_ends_with_its_task() {
    let (cluster, begun) = (two(), Mark::new("left"));
    assert_eq!(leave_behind::call(&cluster, begun.0.clone()).unwrap(), 7);
    let pid: u32 = std::fs::read_to_string(&begun.0).unwrap().parse().unwrap();
    until("the child to end", || is_gone(pid));
}

fn a_task_that_waits_can_be_cancelled() {
    let (cluster, begun) = (two(), Mark::new("awaited"));
    let waits = wait_for_nap::submit(&cluster, begun.0.clone());
    until("the child to begin", || std::fs::read_to_string(&begun.0).is_ok_and(|text| !text.is_empty()));
    let pid: u32 = std::fs::read_to_string(&begun.0).unwrap().parse().unwrap();
    assert!(waits.cancel());
    assert!(matches!(waits.wait(), Err(Error::Cancelled { .. })));
    until("the child to end", || is_gone(pid));
    assert_eq!(descend::call(&cluster, 2).unwrap(), 2);
}

fn a_program_of_others_submits_tasks() {
    let cluster = two();
    let program = cluster.program(std::env::current_exe().unwrap());
    let call = program.function::<(u64,), u64>("rust_objects::nesting::fibonacci");
    assert_eq!(call.call((6,)).unwrap(), 8);
}

fn tasks_call_an_actor() {
    let cluster = two();
    let counter = Counter::options().cpus(0.0).spawn(&cluster, (0,)).unwrap();
    let tasks: Vec<_> = (0..4).map(|_| count_with::submit(&cluster, counter.clone(), 25)).collect();
    for task in tasks {
        let values = task.wait().unwrap();
        assert!(values.len() == 25 && values.is_sorted(), "the calls of each run in order: {values:?}");
    }
    assert_eq!(counter.count().unwrap(), 100);
    let back = pass_on::call(&cluster, counter.clone()).unwrap();
    assert!(back == counter);
    assert_eq!(back.add(1).unwrap(), 101);
}

fn actors_call_and_make_actors() {
    let cluster = two();
    let counter = Counter::options().cpus(0.0).spawn(&cluster, (0,)).unwrap();
    let manager = Manager::spawn(&cluster).unwrap();
    assert_eq!(manager.add(1).unwrap(), (101, None));
    manager.meet(counter.clone()).unwrap();
    assert_eq!(manager.add(1).unwrap(), (102, Some(1)));
    assert_eq!(counter.add(1).unwrap(), 2);
    let lent = manager.lend().unwrap();
    assert_eq!(lent.add(1).unwrap(), 103, "it is the manager's");
    manager.destroy();
    until("it to end with its maker", || lent.add(1).is_err_and(|error| error.code() == "actor-died"));
}

fn a_handle_to_what_is_gone_is_told() {
    let cluster = two();
    let counter = Counter::options().cpus(0.0).spawn(&cluster, (0,)).unwrap();
    let pid = counter.pid().unwrap();
    assert_eq!(count_with::call(&cluster, counter.clone(), 1).unwrap(), [1]);
    kill(pid);
    let error = count_with::call(&cluster, counter.clone(), 1).unwrap_err();
    assert!(error.to_string().contains("ended with its actor"), "{error}");
    counter.destroy();
    let error = count_with::call(&cluster, counter, 1).unwrap_err();
    assert!(matches!(error, Error::Failed { .. } | Error::Encode { .. }), "{error:?}");
}

fn tasks_open_pools() {
    let cluster = two();
    assert_eq!(double_all::call(&cluster, 5).unwrap(), [0, 2, 4, 6, 8]);
}
