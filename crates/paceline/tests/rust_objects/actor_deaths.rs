//! Actors whose process dies, and those that are built anew.

use crate::support::*;
use paceline::{Cluster, DeathCause, Error};
use std::path::PathBuf;
use std::time::{Duration, Instant};

pub const TESTS: &[(&str, fn())] = &[
    ("a_killed_actor_is_told_within_a_second", a_killed_actor_is_told_within_a_second),
    ("with_restarts_the_next_call_works", with_restarts_the_next_call_works),
    ("restarts_are_counted", restarts_are_counted),
    ("a_restarted_actor_begins_with_its_checkpoint", a_restarted_actor_begins_with_its_checkpoint),
    ("an_actor_that_cannot_be_built_again_is_broken", an_actor_that_cannot_be_built_again_is_broken),
    ("a_named_actor_is_called_after_its_restart", a_named_actor_is_called_after_its_restart),
];

/// A sum that can be told to die.
struct Sum {
    total: u64,
}

#[paceline::actor]
impl Sum {
    fn new(mark: Option<PathBuf>) -> Result<Sum, String> {
        match mark {
            Some(mark) if mark.exists() => return Err(format!("{} is in the way", mark.display())),
            Some(mark) => std::fs::write(&mark, "").map_err(|error| error.to_string())?,
            None => {}
        }
        Ok(Sum { total: 0 })
    }

    fn add(&mut self, number: u64) -> u64 {
        self.total += number;
        self.total
    }

    fn pid(&self) -> u32 {
        std::process::id()
    }

    fn leave(&self, code: i32) {
        std::process::exit(code)
    }

    fn hang(&self, begun: PathBuf) {
        std::fs::write(begun, "").unwrap();
        std::thread::sleep(LIMIT * 2);
    }
}

/// One that keeps its state.
struct Ledger {
    entries: Vec<String>,
}

#[paceline::actor(restarts = 100)]
impl Ledger {
    fn new() -> Ledger {
        Ledger { entries: Vec::new() }
    }

    fn write(&mut self, entry: String) -> usize {
        self.entries.push(entry);
        self.entries.len()
    }

    fn read(&self) -> Vec<String> {
        self.entries.clone()
    }

    fn pid(&self) -> u32 {
        std::process::id()
    }

    #[checkpoint]
    fn state(&self) -> Vec<String> {
        self.entries.clone()
    }

    #[restore]
    fn set_state(&mut self, entries: Vec<String>) {
        self.entries = entries;
    }
}

fn sum(cluster: &Cluster, restarts: u32) -> SumHandle {
    Sum::options().restarts(restarts).spawn(cluster, (None,)).unwrap()
}

fn a_killed_actor_is_told_within_a_second() {
    let cluster = two();
    let actor = sum(&cluster, 0);
    let (pid, begun) = (actor.pid().unwrap(), Mark::new("hang"));
    let running = actor.submit_hang(begun.0.clone());
    let behind = actor.submit_add(1);
    begun.wait();
    let killed = Instant::now();
    kill(pid);
    let error = running.wait().unwrap_err();
    assert!(killed.elapsed() < Duration::from_secs(1), "it took {:?}", killed.elapsed());
    let Error::ActorDied { death: Some(death), ran: true, again: false, .. } = &error else {
        panic!("{error:?}")
    };
    assert_eq!((death.cause, error.code()), (DeathCause::Signal(9), "actor-died"));
    assert!(
        error.to_string().contains("died with slot ") && error.to_string().contains("ended by signal 9"),
        "{error}"
    );
    for error in [behind.wait().unwrap_err(), actor.add(1).unwrap_err()] {
        assert!(matches!(error, Error::ActorDied { ran: false, again: false, .. }), "{error:?}");
    }
}

fn with_restarts_the_next_call_works() {
    let cluster = two();
    let actor = sum(&cluster, 1);
    let (pid, begun) = (actor.pid().unwrap(), Mark::new("again"));
    assert_eq!(actor.add(40).unwrap(), 40);
    let running = actor.submit_hang(begun.0.clone());
    let behind = actor.submit_add(2);
    begun.wait();
    kill(pid);
    let error = running.wait().unwrap_err();
    assert!(matches!(error, Error::ActorDied { ran: true, again: true, .. }), "{error:?}");
    assert_eq!(behind.wait().unwrap(), 2, "it had not begun, and runs in the next one, which knows nothing");
    assert_eq!(actor.add(1).unwrap(), 3);
    assert_ne!(actor.pid().unwrap(), pid);
}

fn restarts_are_counted() {
    let cluster = two();
    let actor = sum(&cluster, 2);
    for again in [true, true, false] {
        let error = actor.leave(3).unwrap_err();
        let Error::ActorDied { death: Some(death), ran: true, again: told, .. } = &error else {
            panic!("{error:?}")
        };
        assert_eq!((death.cause, *told), (DeathCause::Exit(3), again));
    }
    let error = actor.add(1).unwrap_err();
    assert!(matches!(error, Error::ActorDied { ran: false, again: false, .. }), "{error:?}");
    assert_eq!(sum(&cluster, 0).add(1).unwrap(), 1, "another one is not concerned");
}

fn a_restarted_actor_begins_with_its_checkpoint() {
    let cluster = two();
    let actor = Ledger::spawn(&cluster).unwrap();
    let all: Vec<String> = (0..5).map(|n| format!("entry {n}")).collect();
    let mut known = 0;
    for round in 1.. {
        assert!(round < 50, "the checkpoint never comes: {known} entries are known");
        for entry in &all[known..] {
            actor.write(entry.clone()).unwrap();
        }
        assert_eq!(actor.read().unwrap(), all);
        // How long a checkpoint takes is nobody's business; ever longer is long enough some time.
        std::thread::sleep(Duration::from_millis(2 * round));
        let pid = actor.pid().unwrap();
        kill(pid);
        until("the next object", || actor.pid().is_ok_and(|now| now != pid));
        let read = actor.read().unwrap();
        assert!(read.len() >= known, "what was in a checkpoint once is in all that follow");
        assert_eq!(read, all[..read.len()]);
        known = read.len();
        if known == all.len() {
            break;
        }
    }
}

fn an_actor_that_cannot_be_built_again_is_broken() {
    let cluster = two();
    let mark = Mark::new("built");
    let actor = Sum::options().restarts(5).spawn(&cluster, (Some(mark.0.clone()),)).unwrap();
    assert!(actor.leave(1).is_err());
    let error = actor.add(1).unwrap_err();
    let Error::PoolBroken { cause, .. } = &error else { panic!("{error:?}") };
    assert_eq!((cause.code(), error.code()), ("task-failed", "pool-broken"));
    assert!(error.to_string().contains("is in the way"), "{error}");
}

fn a_named_actor_is_called_after_its_restart() {
    let cluster = two();
    let actor = Sum::options().restarts(1).named("sum").spawn(&cluster, (None,)).unwrap();
    kill(actor.pid().unwrap());
    until("the next object", || actor.add(0).is_ok());
    assert_eq!(cluster.get_actor::<Sum>("sum").unwrap().add(7).unwrap(), 7);
}
