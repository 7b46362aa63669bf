//! Actors: how they are built, called, found, and how they end.

use crate::support::*;
use paceline::{Cluster, Error};
use std::io::Write;
use std::path::PathBuf;
use std::time::{Duration, Instant};

pub const TESTS: &[(&str, fn())] = &[
    ("an_actor_lives_in_a_slot", an_actor_lives_in_a_slot),
    ("calls_run_in_order", calls_run_in_order),
    ("threads_share_an_actor", threads_share_an_actor),
    ("a_constructor_that_fails_is_told", a_constructor_that_fails_is_told),
    ("an_actor_survives_its_errors", an_actor_survives_its_errors),
    ("a_call_may_run_for_so_long", a_call_may_run_for_so_long),
    ("the_last_handle_ends_it_after_its_calls", the_last_handle_ends_it_after_its_calls),
    ("destroy_ends_it_now", destroy_ends_it_now),
    ("a_name_is_of_one_actor", a_name_is_of_one_actor),
    ("an_actor_that_is_refused_its_name_is_not_built", an_actor_that_is_refused_its_name_is_not_built),
    ("actors_have_resources", actors_have_resources),
    ("an_actor_ends_with_its_cluster", an_actor_ends_with_its_cluster),
];

pub struct Counter {
    count: i64,
}

#[paceline::actor]
impl Counter {
    pub fn new(start: i64) -> Self {
        Counter { count: start }
    }

    /// Add to it.
    pub fn add(&mut self, step: i64) -> i64 {
        self.count += step;
        self.count
    }

    pub fn count(&self) -> i64 {
        self.count
    }

    pub fn pid(&self) -> u32 {
        std::process::id()
    }

    fn divide(&mut self, by: i64) -> Result<i64, String> {
        if by == 0 {
            return Err(format!("{} cannot be divided by nothing", self.count));
        }
        self.count /= by;
        Ok(self.count)
    }

    fn panic(&mut self, mut why: String) {
        self.count += 1000;
        why.push('!');
        panic!("{why}");
    }

    fn nap(&self, time: Duration, begun: Option<PathBuf>) -> i64 {
        if let Some(begun) = begun {
            std::fs::write(begun, "").unwrap();
        }
        let until = Instant::now() + time;
        while Instant::now() < until && !paceline::is_cancelled() {
            std::thread::sleep(Duration::from_millis(1));
        }
        self.count
    }

    fn twice(&self) -> (i64, Option<i64>) {
        (self.count, Self::helper(self.count))
    }

    fn helper(count: i64) -> Option<i64> {
        count.checked_mul(2)
    }
}

/// What is built of text, if that is a number; and travels itself.
#[derive(serde::Serialize, serde::Deserialize)]
struct Number {
    value: u32,
}

#[paceline::actor(name = "numbers/number", cpus = 0)]
impl Number {
    fn new(text: String) -> Result<Self, std::num::ParseIntError> {
        assert!(text != "bad", "not even a number");
        Ok(Number { value: text.parse()? })
    }

    fn merge(&mut self, other: Self) -> Self {
        self.value += other.value;
        Number { value: self.value }
    }
}

fn an_actor_lives_in_a_slot() {
    let cluster = two();
    let counter = Counter::spawn(&cluster, 10).unwrap();
    assert_eq!(counter.add(1).unwrap(), 11);
    assert_eq!(counter.submit_add(5).wait().unwrap(), 16);
    assert_eq!(counter.count().unwrap(), 16);
    assert_eq!(counter.twice().unwrap(), (16, Some(32)));
    let (pid, place) = (counter.pid().unwrap(), counter.place().unwrap());
    assert_ne!(pid, std::process::id());
    assert!(place.prepared && format!("{counter:?}").contains("actors::Counter, slot "), "{counter:?}");
    assert_eq!(Counter::new(5).add(2), 7, "a type like any other");
    let other = Counter::spawn(&cluster, 0).unwrap();
    assert_ne!(other.pid().unwrap(), pid);
    assert!(counter == counter.clone() && counter != other);
    let number = Number::spawn(&cluster, "7".into()).unwrap();
    assert_eq!(number.merge(Number { value: 3 }).unwrap().value, 10);
}

fn calls_run_in_order() {
    let cluster = two();
    let counter = Counter::spawn(&cluster, 0).unwrap();
    let futures: Vec<_> = (0..1000).map(|_| counter.submit_add(1)).collect();
    assert_eq!(counter.count().unwrap(), 1000, "a call waits behind those that were submitted");
    let values: Vec<i64> = futures.into_iter().map(|future| future.wait().unwrap()).collect();
    assert_eq!(values, (1..=1000).collect::<Vec<_>>());
}

fn threads_share_an_actor() {
    let cluster = two();
    let counter = Counter::spawn(&cluster, 0).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let values: Vec<i64> = (0..100).map(|_| counter.add(1).unwrap()).collect();
                assert!(values.is_sorted());
            });
        }
    });
    assert_eq!(counter.count().unwrap(), 400);
}

fn a_constructor_that_fails_is_told() {
    let cluster = two();
    let error = Number::spawn(&cluster, "seven".into()).unwrap_err();
    assert_eq!(error.to_string(), "numbers/number::new failed: invalid digit found in string");
    let error = Number::spawn(&cluster, "bad".into()).unwrap_err();
    assert!(matches!(&error, Error::Panicked { message, .. } if message == "not even a number"), "{error:?}");
    assert_eq!(Counter::spawn(&cluster, 7).unwrap().count().unwrap(), 7);
}

fn an_actor_survives_its_errors() {
    let cluster = two();
    let counter = Counter::spawn(&cluster, 10).unwrap();
    let pid = counter.pid().unwrap();
    let error = counter.divide(0).unwrap_err();
    let Error::Failed { task, message, kind } = &error else { panic!("{error:?}") };
    assert_eq!(
        (*task, message.as_str()),
        ("rust_objects::actors::Counter::divide", "10 cannot be divided by nothing")
    );
    assert_eq!(kind, "alloc::string::String");
    let error = counter.submit_panic("on purpose".into()).wait().unwrap_err();
    assert!(matches!(&error, Error::Panicked { message, .. } if message == "on purpose!"), "{error:?}");
    assert_eq!((counter.divide(2).unwrap(), counter.pid().unwrap()), (505, pid), "it is the same object");
}

fn a_call_may_run_for_so_long() {
    let cluster = two();
    let counter = Counter::spawn(&cluster, 5).unwrap();
    let began = Instant::now();
    let error = counter.with_timeout(Duration::from_millis(50)).nap(LIMIT, None).unwrap_err();
    assert_eq!(error.code(), "task-timeout");
    assert!(began.elapsed() < LIMIT / 2);
    assert_eq!(counter.count().unwrap(), 5, "it has looked, and lives");
    let limited = Counter::options().timeout(Duration::from_millis(50)).spawn(&cluster, (6,)).unwrap();
    assert_eq!(limited.nap(LIMIT, None).unwrap_err().code(), "task-timeout");
}

fn the_last_handle_ends_it_after_its_calls() {
    let cluster = two();
    let counter = Counter::spawn(&cluster, 5).unwrap();
    let pid = counter.pid().unwrap();
    let first = counter.submit_nap(Duration::from_millis(50), None);
    let last = counter.clone().submit_add(1);
    drop(counter);
    assert_eq!((first.wait().unwrap(), last.wait().unwrap()), (5, 6));
    until("the process to end", || is_gone(pid));
}

fn destroy_ends_it_now() {
    let cluster = two();
    let counter = Counter::spawn(&cluster, 5).unwrap();
    let (pid, begun) = (counter.pid().unwrap(), Mark::new("destroyed"));
    let running = counter.submit_nap(LIMIT * 2, Some(begun.0.clone()));
    begun.wait();
    let waiting = counter.submit_add(1);
    let other = counter.clone();
    counter.destroy();
    counter.destroy();
    for error in [running.wait().unwrap_err(), waiting.wait().unwrap_err()] {
        assert_eq!(error.code(), "cancelled", "{error}");
    }
    let error = other.add(1).unwrap_err();
    let expected = "rust_objects::actors::Counter::add ended with its actor, which is gone: it was destroyed; \
                    it had not begun";
    assert_eq!((error.code(), error.to_string().as_str()), ("actor-died", expected));
    until("the process to end", || is_gone(pid));
}

fn a_name_is_of_one_actor() {
    let cluster = two();
    let counter = Counter::options().named("tally").spawn(&cluster, (1,)).unwrap();
    counter.add(1).unwrap();
    let found = cluster.get_actor::<Counter>("tally").unwrap();
    assert!(found == counter);
    assert_eq!(found.add(1).unwrap(), 3);
    let error = Counter::options().cpus(0.0).named("tally").spawn(&cluster, (1,)).unwrap_err();
    assert_eq!(error.code(), "actor-refused", "{error}");
    let error = cluster.get_actor::<Number>("tally").unwrap_err();
    assert!(
        error.to_string().contains("it is a rust_objects::actors::Counter, and no numbers/number"),
        "{error}"
    );
    assert_eq!(cluster.get_actor::<Counter>("nobody").unwrap_err().code(), "no-such-actor");
    counter.destroy();
    let gone = || cluster.get_actor::<Counter>("tally").is_err_and(|error| error.code() == "no-such-actor");
    until("the name to be free", gone);
    let next = Counter::options().named("tally").spawn(&cluster, (7,)).unwrap();
    assert_eq!(
        (next.count().unwrap(), cluster.get_actor::<Counter>("tally").unwrap().count().unwrap()),
        (7, 7)
    );
}

/// Leaves a line in a file when it is built.
pub struct Leader;

#[paceline::actor(cpus = 0)]
impl Leader {
    pub fn new(path: PathBuf) -> Result<Self, String> {
        let opened = std::fs::OpenOptions::new().create(true).append(true).open(path);
        opened.and_then(|mut file| file.write_all(b"built\n")).map_err(|error| error.to_string())?;
        Ok(Leader)
    }

    pub fn answer(&self) -> u32 {
        42
    }
}

fn an_actor_that_is_refused_its_name_is_not_built() {
    let cluster = two();
    let built = Mark::new("leader");
    let path = built.0.clone();
    let leader = Leader::options().named("leader").spawn(&cluster, (path.clone(),)).unwrap();
    let error = Leader::options().named("leader").spawn(&cluster, (path.clone(),)).unwrap_err();
    assert_eq!(error.code(), "actor-refused", "{error}");
    assert_eq!(leader.answer().unwrap(), 42);
    // What the other had sent would have begun by now.
    let next = Leader::options().spawn(&cluster, (path.clone(),)).unwrap();
    assert_eq!(next.answer().unwrap(), 42);
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "built\nbuilt\n");
    // A name is free when its actor was not built.
    Leader::options().named("other").spawn(&cluster, (path.join("none"),)).unwrap_err();
    Leader::options().named("other").spawn(&cluster, (path,)).unwrap();
}

fn actors_have_resources() {
    let cluster = two();
    let shared: Vec<_> =
        (0..5).map(|n| Counter::options().cpus(0.0).spawn(&cluster, (n,)).unwrap()).collect();
    assert_eq!(shared.iter().map(|it| it.count().unwrap()).sum::<i64>(), 10, "five on two CPUs");
    let error = Counter::options().cpus(99.0).spawn(&cluster, (0,)).unwrap_err();
    assert!(matches!(error, Error::Unplaceable { .. }), "{error:?}");
    let _whole = Counter::options().cpus(2.0).spawn(&cluster, (0,)).unwrap();
    let patience = Duration::from_millis(50);
    let error = Counter::options().cpus(1.0).wait(patience).spawn(&cluster, (0,)).unwrap_err();
    assert!(matches!(error, Error::NoRoom { .. }), "{error:?}");
    assert!(matches!(
        Counter::options().cpus(-1.0).spawn(&cluster, (0,)),
        Err(Error::NotANumberOfCpus { .. })
    ));
}

fn an_actor_ends_with_its_cluster() {
    let cluster: Cluster = two();
    let counter = Counter::options().restarts(3).spawn(&cluster, (0,)).unwrap();
    let pid = counter.pid().unwrap();
    let waits = counter.submit_nap(LIMIT, None);
    drop(cluster);
    assert!(is_gone(pid));
    assert!(matches!(waits.wait(), Err(Error::Closed)));
    assert!(matches!(counter.add(1), Err(Error::Closed)));
    counter.destroy();
}
