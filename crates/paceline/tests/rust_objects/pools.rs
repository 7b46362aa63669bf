//! Worker pools: what is built once in every slot, jobs, and how a pool ends.

use crate::support::*;
use paceline::{Error, WorkerPool};
use std::path::PathBuf;
use std::time::{Duration, Instant};

pub const TESTS: &[(&str, fn())] = &[
    ("every_slot_builds_its_object_once", every_slot_builds_its_object_once),
    ("values_come_in_order_or_as_they_end", values_come_in_order_or_as_they_end),
    ("jobs_are_taken_as_values_are_read", jobs_are_taken_as_values_are_read),
    ("a_job_that_fails_fails_alone", a_job_that_fails_fails_alone),
    ("a_job_runs_again_when_its_slot_dies", a_job_runs_again_when_its_slot_dies),
    ("a_job_may_run_for_so_long", a_job_may_run_for_so_long),
    ("what_cannot_be_built_breaks_the_pool", what_cannot_be_built_breaks_the_pool),
    ("a_pool_ends_as_it_is_told", a_pool_ends_as_it_is_told),
];

struct Scaler {
    scale: u64,
    jobs: u64,
}

/// What is told of a slot: its process, and how many jobs its object has had.
type Told = (u64, u32, u64);

#[paceline::worker]
impl Scaler {
    fn new(scale: u64, built: Option<PathBuf>) -> Scaler {
        if let Some(built) = built {
            let mut file = std::fs::File::options().create(true).append(true).open(built).unwrap();
            std::io::Write::write_all(&mut file, b"x").unwrap();
        }
        Scaler { scale, jobs: 0 }
    }

    fn run(&mut self, x: u64) -> Told {
        self.jobs += 1;
        (x * self.scale(), std::process::id(), self.jobs)
    }

    fn scale(&self) -> u64 {
        self.scale
    }
}

/// Does what it is told.
struct Servant;

#[derive(serde::Serialize, serde::Deserialize, Clone)]
enum Order {
    Sleep(Duration),
    Hang { begun: PathBuf },
    DieOnce { mark: PathBuf },
    Fail(String),
    Panic,
    Answer(u32),
}

#[paceline::worker]
impl Servant {
    fn new() -> Servant {
        Servant
    }

    fn run(&mut self, order: Order, times: u32) -> Result<u32, String> {
        match order {
            Order::Sleep(time) => std::thread::sleep(time),
            Order::Hang { begun } => {
                std::fs::write(begun, std::process::id().to_string()).unwrap();
                std::thread::sleep(LIMIT * 2);
            }
            Order::DieOnce { mark } => {
                if !mark.exists() {
                    std::fs::write(mark, "").unwrap();
                    std::process::abort();
                }
            }
            Order::Fail(why) => return Err(why),
            Order::Panic => panic!("on purpose"),
            Order::Answer(number) => return Ok(number * times),
        }
        Ok(times)
    }
}

/// Cannot be built.
struct Stillborn;

#[paceline::worker]
impl Stillborn {
    fn new(kills: bool) -> Result<Self, String> {
        if kills {
            std::process::abort();
        }
        Err("no data".into())
    }

    fn run(&mut self) {}
}

fn servants(slots: u32) -> (paceline::Cluster, WorkerPool<Servant>) {
    let cluster = two();
    let pool = Servant::options().slots(slots).spawn(&cluster, ()).unwrap();
    (cluster, pool)
}

fn every_slot_builds_its_object_once() {
    let (cluster, built) = (two(), Mark::new("built-pool"));
    let pool = Scaler::spawn(&cluster, 10, Some(built.0.clone())).unwrap();
    assert!(pool.ready(2, LIMIT).unwrap());
    let told = pool.map(0..100).unwrap();
    assert_eq!(told.iter().map(|it| it.0).collect::<Vec<_>>(), (0..100).map(|x| x * 10).collect::<Vec<_>>());
    let mut pids: Vec<u32> = told.iter().map(|it| it.1).collect();
    pids.sort_unstable();
    pids.dedup();
    assert_eq!(pids.len(), 2, "one slot for each CPU");
    let most: u64 =
        pids.iter().map(|pid| told.iter().filter(|it| it.1 == *pid).map(|it| it.2).max().unwrap()).sum();
    assert_eq!(most, 100, "objects count their jobs");
    assert_eq!(std::fs::read(&built.0).unwrap(), b"xx");
    assert_eq!((pool.workers(), pool.places().len()), (2, 2));
    assert_eq!(pool.submit(7).wait().unwrap().0, 70);
    let more = Scaler::options().slots(5).spawn(&cluster, (2, None)).unwrap();
    assert!(more.ready(99, LIMIT).unwrap(), "all it may have");
    assert_eq!(more.workers(), 5, "a number of slots is no number of CPUs");
    assert_eq!(more.submit(4).wait().unwrap().0, 8);
}

fn values_come_in_order_or_as_they_end() {
    let (_cluster, pool) = servants(2);
    let orders = |slow: u32| {
        (0..40).map(move |n| match n {
            n if n == slow => (Order::Sleep(Duration::from_millis(100)), n),
            n => (Order::Answer(1), n),
        })
    };
    let values: Vec<u32> = pool.imap(orders(0)).map(|value| value.unwrap()).collect();
    assert_eq!(values, (0..40).collect::<Vec<_>>());
    let mut values: Vec<u32> = pool.imap_unordered(orders(0)).map(|value| value.unwrap()).collect();
    assert_ne!(values[0], 0, "the slow one is not waited for");
    values.sort_unstable();
    assert_eq!(values, (0..40).collect::<Vec<_>>());
    assert_eq!(pool.imap(std::iter::empty()).count(), 0);
}

fn jobs_are_taken_as_values_are_read() {
    let (_cluster, pool) = servants(2);
    let taken = std::cell::Cell::new(0);
    let endless = (0..).inspect(|_| taken.set(taken.get() + 1)).map(|n| (Order::Answer(2), n));
    let mut values = pool.imap(endless).lookahead(4);
    assert_eq!(values.next().unwrap().unwrap(), 0);
    assert_eq!(taken.get(), 4, "four beyond those that were read before");
    let next: Vec<u32> = values.by_ref().take(10).map(Result::unwrap).collect();
    assert_eq!(next, (1..=10).map(|n| n * 2).collect::<Vec<_>>());
    assert_eq!(taken.get(), 14);
    drop(values);
    let (begun, began) = (Mark::new("dropped"), Instant::now());
    let hangs = [(Order::Answer(1), 1), (Order::Hang { begun: begun.0.clone() }, 1)];
    let mut values = pool.imap(hangs);
    assert_eq!(values.next().unwrap().unwrap(), 1);
    begun.wait();
    drop(values);
    assert_eq!(pool.map([(Order::Answer(1), 1), (Order::Answer(1), 2)]).unwrap(), [1, 2]);
    assert!(began.elapsed() < LIMIT, "what nobody asks for was cancelled");
}

fn a_job_that_fails_fails_alone() {
    let (_cluster, pool) = servants(1);
    let orders =
        [(Order::Answer(1), 1), (Order::Fail("no".into()), 1), (Order::Panic, 1), (Order::Answer(1), 4)];
    let told: Vec<_> = pool.imap(orders.clone()).map(|value| value.map_err(|error| error.code())).collect();
    assert_eq!(told, [Ok(1), Err("task-failed"), Err("task-panicked"), Ok(4)]);
    let error = pool.map(orders).unwrap_err();
    assert_eq!(error.to_string(), "rust_objects::pools::Servant::run failed: no");
    assert_eq!(pool.submit((Order::Answer(3), 3)).wait().unwrap(), 9);
}

fn a_job_runs_again_when_its_slot_dies() {
    let (cluster, pool) = servants(2);
    let mark = Mark::new("once");
    assert_eq!(pool.submit((Order::DieOnce { mark: mark.0.clone() }, 7)).wait().unwrap(), 7);
    let pool = Servant::options().slots(1).retries(0).spawn(&cluster, ()).unwrap();
    let begun = Mark::new("killed-job");
    let job = pool.submit((Order::Hang { begun: begun.0.clone() }, 1));
    let behind = pool.submit((Order::Answer(5), 5));
    until("the job to begin", || std::fs::read_to_string(&begun.0).is_ok_and(|text| !text.is_empty()));
    let killed = Instant::now();
    kill(std::fs::read_to_string(&begun.0).unwrap().parse().unwrap());
    let error = job.wait().unwrap_err();
    assert!(killed.elapsed() < Duration::from_secs(1), "it took {:?}", killed.elapsed());
    assert_eq!(error.code(), "slot-died", "{error}");
    assert_eq!(behind.wait().unwrap(), 25, "what had not begun runs in the next slot");
}

fn a_job_may_run_for_so_long() {
    let cluster = two();
    let limited = Servant::options().slots(1).timeout(Duration::from_millis(50));
    let pool = limited.retries(1).spawn(&cluster, ()).unwrap();
    let error = pool.submit((Order::Sleep(Duration::from_millis(300)), 1)).wait().unwrap_err();
    assert!(matches!(error, Error::TimedOut { attempts: 2, .. }), "{error:?}");
    assert_eq!(pool.submit((Order::Answer(1), 1)).wait().unwrap(), 1);
}

fn what_cannot_be_built_breaks_the_pool() {
    let cluster = two();
    let pool = Stillborn::options().slots(2).spawn(&cluster, (false,)).unwrap();
    let error = pool.submit(()).wait().unwrap_err();
    let Error::PoolBroken { tries: 3, cause, .. } = &error else { panic!("{error:?}") };
    assert_eq!(cause.to_string(), "rust_objects::pools::Stillborn::new failed: no data");
    assert_eq!(pool.map([(), ()]).unwrap_err().code(), "pool-broken");
    assert!(pool.imap([()]).next().unwrap().is_err());
    assert_eq!(pool.ready(1, LIMIT).unwrap_err().code(), "pool-broken");
    drop(pool);
    let pool = Stillborn::options().slots(1).spawn(&cluster, (true,)).unwrap();
    let error = pool.submit(()).wait().unwrap_err();
    let Error::PoolBroken { cause, .. } = &error else { panic!("{error:?}") };
    assert_eq!(cause.code(), "slot-died", "{error}");
}

fn a_pool_ends_as_it_is_told() {
    let cluster = two();
    let naps = |pool: &WorkerPool<Servant>| -> Vec<_> {
        (0..4).map(|n| pool.submit((Order::Sleep(Duration::from_millis(30)), n))).collect()
    };
    let gone = |pids: &[u32]| until("its processes to end", || pids.iter().all(|pid| is_gone(*pid)));
    let open = || {
        let pool = Servant::options().slots(2).spawn(&cluster, ()).unwrap();
        assert!(pool.ready(2, LIMIT).unwrap());
        let slots: Vec<_> = pool.places().iter().map(|place| place.slot).collect();
        let known = cluster.status().slots;
        let pids = known.iter().filter(|slot| slots.contains(&slot.slot)).filter_map(|slot| slot.pid);
        let pids: Vec<u32> = pids.collect();
        assert_eq!(pids.len(), 2);
        (pool, pids)
    };
    let (pool, pids) = open();
    let jobs = naps(&pool);
    pool.close().unwrap();
    assert!(jobs.iter().all(paceline::Future::is_done), "close waits");
    gone(&pids);
    let (pool, pids) = open();
    let jobs = naps(&pool);
    drop(pool);
    assert_eq!(jobs.into_iter().map(|job| job.wait().unwrap()).sum::<u32>(), 6, "what was submitted runs");
    gone(&pids);
    let (pool, pids) = open();
    let jobs = naps(&pool);
    pool.terminate();
    assert!(jobs.into_iter().all(|job| job.wait().is_err_and(|error| error.code() == "cancelled")));
    gone(&pids);
    let (pool, _) = open();
    let jobs = naps(&pool);
    drop(cluster);
    assert!(jobs.into_iter().all(|job| matches!(job.wait(), Err(Error::Closed))));
    assert!(matches!(pool.imap([(Order::Answer(1), 1)]).next(), Some(Err(Error::Closed))));
    assert!(matches!(pool.close(), Err(Error::Closed)));
}
