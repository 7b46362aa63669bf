//! A rate that may be exceeded for a moment after a pause.

use crate::time::Tick;
use std::time::Duration;

/// Lets so many things a second happen, and a burst of them after a pause (the generic cell rate algorithm).
#[derive(Clone, Debug)]
pub(super) struct Rate {
    interval: Duration,
    burst: u32,
    /// When the allowance that was used is made up for.
    even_at: Tick,
}

impl Rate {
    pub(super) fn new(per_second: u32, burst: u32) -> Rate {
        Rate { interval: Duration::from_secs(1) / per_second, burst, even_at: Tick::ZERO }
    }

    /// Takes one from the allowance. False: there is none before [`Rate::next`].
    pub(super) fn take(&mut self, now: Tick) -> bool {
        if now < self.next() {
            return false;
        }
        self.even_at = self.even_at.max(now) + self.interval;
        true
    }

    /// Gives one back that was taken.
    pub(super) fn refund(&mut self) {
        self.even_at = Tick(self.even_at.0.saturating_sub(self.interval.as_nanos() as u64));
    }

    /// Returns when there is allowance for one more.
    pub(super) fn next(&self) -> Tick {
        let ahead = self.interval * self.burst.saturating_sub(1);
        Tick(self.even_at.0.saturating_sub(ahead.as_nanos() as u64))
    }
}
