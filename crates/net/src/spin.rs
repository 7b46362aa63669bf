//! Waiting awake for a few microseconds instead of sleeping.
//!
//! Waking a sleeping thread on another CPU costs more than a whole short call does, so a reader that has just spoken
//! with its peer looks a little longer before it sleeps. Only if the peer was last seen on *another* CPU: on the same
//! one the spinner would keep from running the very thread it waits for.

use crate::clock;
use crate::poll;
use rustix::fd::AsFd;
use std::sync::OnceLock;
use std::time::Duration;

const DEFAULT: Duration = Duration::from_micros(20);
const VARIABLE: &str = "PACELINE_SPIN_US";

/// The CPU this thread runs on.
pub fn current_cpu() -> u16 {
    rustix::thread::sched_getcpu() as u16
}

/// How long to spin: `PACELINE_SPIN_US`, else 20 microseconds; never on a machine with one CPU.
pub fn limit() -> Duration {
    static LIMIT: OnceLock<Duration> = OnceLock::new();
    *LIMIT.get_or_init(|| {
        if std::thread::available_parallelism().is_ok_and(|cpus| cpus.get() == 1) {
            return Duration::ZERO;
        }
        let set = std::env::var(VARIABLE).ok().and_then(|value| value.parse().ok());
        set.map_or(DEFAULT, Duration::from_micros)
    })
}

/// Decides, wait by wait, whether looking is worth it: a link whose input never comes in time is looked at less and
/// less often, so that a stream of batches or a slow caller costs others nothing.
///
/// Looking pays only if both ends do: one that sleeps answers too late for the other. After a pause each must meet the
/// other awake by chance, so the most they skip is small, and differs, so that their turns meet.
pub struct Spinner {
    failures: u32,
    skip: u32,
    most: u32,
}

/// So many failures in a row are a hiccup, after which both ends should be awake again.
const PATIENCE: u32 = 4;

impl Spinner {
    /// For the end that calls.
    pub fn of_client() -> Spinner {
        Spinner { failures: 0, skip: 0, most: 6 }
    }

    /// For the end that answers.
    pub fn of_slot() -> Spinner {
        Spinner { failures: 0, skip: 0, most: 4 }
    }

    /// Whether to look this time, given the CPU the peer last sent from.
    pub fn wants_to(&mut self, peer_cpu: u16) -> bool {
        if limit().is_zero() || peer_cpu == current_cpu() {
            return false;
        }
        if self.skip > 0 {
            self.skip -= 1;
            return false;
        }
        true
    }

    /// What looking gave.
    pub fn learn(&mut self, found: bool) {
        self.failures = if found { 0 } else { self.failures + 1 };
        self.skip = self.failures.saturating_sub(PATIENCE).min(self.most);
    }
}

/// Look for input for at most [`limit`]. Says whether there is some.
pub fn until_readable(descriptor: impl AsFd) -> bool {
    let limit = limit().as_nanos() as u64;
    let start = clock::now();
    loop {
        if poll::readable(&descriptor) {
            return true;
        }
        if clock::now() - start >= limit {
            return false;
        }
        std::hint::spin_loop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_that_never_answers_in_time_is_left_alone() {
        let mut spinner = Spinner::of_client();
        let other = current_cpu() + 1;
        let tries = (0..1000).filter(|_| {
            let tries = spinner.wants_to(other);
            if tries {
                spinner.learn(false);
            }
            tries
        });
        assert!(limit().is_zero() || (140..180).contains(&tries.count()));
        spinner.learn(true);
        assert!(limit().is_zero() || spinner.wants_to(other));
    }
}
