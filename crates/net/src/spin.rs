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

/// Look for input for at most [`limit`], if the peer's CPU is not ours. Says whether there is some.
pub fn until_readable(descriptor: impl AsFd, peer_cpu: u16) -> bool {
    let limit = limit().as_nanos() as u64;
    if limit == 0 || peer_cpu == current_cpu() {
        return false;
    }
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
