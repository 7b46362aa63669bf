//! Slots that die of their tasks.

use crate::support::*;
use paceline::{DeathCause, Error};
use std::path::PathBuf;

pub const TESTS: &[(&str, fn())] = &[
    ("a_task_whose_slot_died_runs_again", a_task_whose_slot_died_runs_again),
    ("a_task_that_always_kills_is_poison", a_task_that_always_kills_is_poison),
    ("without_retries_a_death_is_told", without_retries_a_death_is_told),
];

#[paceline::task]
fn abort_once(mark: PathBuf) -> u32 {
    if !mark.exists() {
        std::fs::write(mark, "").unwrap();
        std::process::abort();
    }
    7
}

#[paceline::task]
fn abort(log: PathBuf) {
    use std::io::Write;
    let mut log = std::fs::File::options().create(true).append(true).open(log).unwrap();
    log.write_all(b"x").unwrap();
    std::process::abort();
}

#[paceline::task(retries = 0)]
fn leave(code: i32) {
    std::process::exit(code);
}

fn a_task_whose_slot_died_runs_again() {
    let cluster = two();
    let mark = Mark::new("once");
    assert_eq!(abort_once::call(&cluster, mark.0.clone()).unwrap(), 7);
}

fn a_task_that_always_kills_is_poison() {
    let cluster = one();
    let log = Mark::new("poison");
    let killer = abort::options().retries(100).submit(&cluster, (log.0.clone(),));
    let neighbours: Vec<_> = (0..20).map(|x| square::submit(&cluster, x)).collect();
    let error = killer.wait().unwrap_err();
    let Error::Poison { death, deaths, .. } = &error else { panic!("{error:?}") };
    assert_eq!((death.cause, *deaths, error.code()), (DeathCause::Signal(6), 3, "poison-task"));
    assert_eq!(std::fs::read(&log.0).unwrap(), b"xxx", "it ran three times");
    for (x, neighbour) in (0..).zip(neighbours) {
        assert_eq!(neighbour.wait().unwrap(), x * x);
    }
}

fn without_retries_a_death_is_told() {
    let cluster = one();
    let log = Mark::new("death");
    let error = abort::options().retries(0).call(&cluster, (log.0.clone(),)).unwrap_err();
    let Error::SlotDied { death, attempts, .. } = &error else { panic!("{error:?}") };
    assert_eq!((death.cause, *attempts), (DeathCause::Signal(6), 1));
    let error = leave::call(&cluster, 3).unwrap_err();
    assert!(
        matches!(&error, Error::SlotDied { death, .. } if death.cause == DeathCause::Exit(3)),
        "{error:?}"
    );
    assert_eq!(square::call(&cluster, 7).unwrap(), 49);
}
