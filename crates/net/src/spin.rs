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
/// Looking pays only if both ends do: one that sleeps answers too late for the other, which then goes to sleep as well,
/// and so on, turn by turn. To get back into step one of them looks for as long as the other needs to wake up
/// ([`REACH`]); after that both are awake. The most they skip is small, and differs, so that their turns meet.
pub struct Spinner {
    failures: u32,
    skip: u32,
    most: u32,
    /// Others want the CPU: until then, sleep instead.
    yields_until: u64,
    /// How long to do so the next time they are seen.
    yield_for: u64,
    /// Looks since they were seen last.
    undisturbed: u32,
}

/// What looking gave.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Looked {
    Found,
    Nothing,
    /// Somebody else ran on this CPU meanwhile: there are more that want to run than CPUs.
    Preempted,
}

/// Between two looks of a thread that runs lie far less than this; more means that it did not run.
const PREEMPTED: u64 = 100_000;
/// For how long to leave the CPU to others after they were seen, the first time and at most: each time they are still
/// there it is longer, or finding that out would cost them too much.
const YIELD_FIRST: u64 = 200_000_000;
const YIELD_MOST: u64 = 1_600_000_000;
/// So many looks without them, and they are gone.
const GONE_AFTER: u32 = 2_000;

/// After so many failures in a row nobody answers in time, and looking is left to so many times fewer waits.
const HOPELESS: u32 = 64;
const RARELY: u32 = 12;
/// So many failures in a row are a hiccup, after which both ends should be awake again.
const PATIENCE: u32 = 4;
/// After a failure look this many times longer: as long as a sleeper takes to wake up on another CPU, and to answer.
const REACH: u32 = 5;

impl Spinner {
    /// For the end that calls.
    pub fn of_client() -> Spinner {
        Spinner::new(6)
    }

    /// For the end that answers.
    pub fn of_slot() -> Spinner {
        Spinner::new(4)
    }

    fn new(most: u32) -> Spinner {
        Spinner { failures: 0, skip: 0, most, yields_until: 0, yield_for: YIELD_FIRST, undisturbed: 0 }
    }

    /// How long to look this time, if at all, given the CPU the peer last sent from.
    pub fn look_for(&mut self, peer_cpu: u16) -> Option<Duration> {
        if limit().is_zero() || peer_cpu == current_cpu() {
            return None;
        }
        if self.skip > 0 {
            self.skip -= 1;
            return None;
        }
        if self.yields_until != 0 && clock::now() < self.yields_until {
            return None;
        }
        Some(if self.failures == 0 { limit() } else { limit() * REACH })
    }

    /// What looking gave.
    pub fn learn(&mut self, looked: Looked) {
        if looked == Looked::Preempted {
            self.yields_until = clock::now() + self.yield_for;
            self.yield_for = (self.yield_for * 2).min(YIELD_MOST);
            self.undisturbed = 0;
        } else {
            self.yields_until = 0;
            self.undisturbed += 1;
            if self.undisturbed >= GONE_AFTER {
                self.undisturbed = 0;
                self.yield_for = YIELD_FIRST;
            }
        }
        self.failures = if looked == Looked::Found { 0 } else { self.failures + 1 };
        self.skip = self.failures.saturating_sub(PATIENCE).min(self.most);
        if self.failures > HOPELESS {
            self.skip = self.most * RARELY;
        }
    }
}

/// Look for input for at most this long.
pub fn until_readable(descriptor: impl AsFd, limit: Duration) -> Looked {
    let limit = limit.as_nanos() as u64;
    let start = clock::now();
    let mut last = start;
    loop {
        if poll::readable(&descriptor) {
            return Looked::Found;
        }
        let now = clock::now();
        if now - last > PREEMPTED {
            return Looked::Preempted;
        }
        if now - start >= limit {
            return Looked::Nothing;
        }
        last = now;
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
            let tries = spinner.look_for(other).is_some();
            if tries {
                spinner.learn(Looked::Nothing);
            }
            tries
        });
        assert!(limit().is_zero() || (60..120).contains(&tries.count()));
        spinner.learn(Looked::Found);
        assert!(limit().is_zero() || spinner.look_for(other) == Some(limit()));
        spinner.learn(Looked::Preempted);
        assert_eq!(spinner.look_for(other), None, "others want the CPU");
    }
}
