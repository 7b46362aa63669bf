//! Password exchanges: when one may begin.
//!
//! * GU-1 (one at a time): a source has one exchange at a time, and there are [`MAX_EXCHANGES`] in all, each for
//!   [`EXCHANGE_TIMEOUT`].
//! * GU-2 (delay by source): after a failure a source waits for a second, and twice as long after each further one, up to
//!   [`MAX_DELAY`].
//! * GU-3 (bounded in all): exchanges that fail begin at no more than [`GUESSES_PER_SECOND`], whatever their sources.
//! * GU-4 (no cheap way out): the table of failures is bounded, and the sources with the fewest failures leave it first.

use super::Source;
use super::rate::Rate;
use crate::time::Tick;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Bounds the exchanges at one time.
pub const MAX_EXCHANGES: usize = 8;
/// Bounds the life of one exchange: one that keeps still takes the place of others.
pub const EXCHANGE_TIMEOUT: Duration = Duration::from_secs(2);
/// Bounds the failing exchanges that begin in one second.
pub const GUESSES_PER_SECOND: u32 = 10;
/// Bounds those that begin at once after a pause.
pub const GUESS_BURST: u32 = 10;
/// The delay after the first failure.
pub const FIRST_DELAY: Duration = Duration::from_secs(1);
/// The delay after many.
pub const MAX_DELAY: Duration = Duration::from_secs(60);
/// A source that has not failed for so long begins anew.
pub const FAILURE_MEMORY: Duration = Duration::from_secs(600);
/// Bounds the sources whose failures are remembered.
pub const MAX_FAILING_SOURCES: usize = 4096;
/// Bounds the wait of one connection: an exchange that begins last still fits into the connection's life.
pub const GUESS_PATIENCE: Duration = Duration::from_secs(3);

/// Tells whether a source may begin an exchange.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Turn {
    Now,
    Wait,
    Never { retry_in: Duration },
}

#[derive(Clone, Copy, Debug)]
struct Failures {
    count: u32,
    last: Tick,
}

impl Failures {
    fn delay(self) -> Duration {
        let doublings = self.count.saturating_sub(1).min(16);
        (FIRST_DELAY * (1 << doublings)).min(MAX_DELAY)
    }
}

/// Decides when password exchanges begin.
pub(super) struct Guesses {
    failing: BTreeMap<Source, Failures>,
    exchanging: BTreeSet<Source>,
    rate: Rate,
}

impl Default for Guesses {
    fn default() -> Guesses {
        let rate = Rate::new(GUESSES_PER_SECOND, GUESS_BURST);
        Guesses { failing: BTreeMap::new(), exchanging: BTreeSet::new(), rate }
    }
}

impl Guesses {
    /// Returns how often this source has failed lately.
    pub(super) fn failures(&self, now: Tick, source: Source) -> u32 {
        let known = self.failing.get(&source).filter(|known| now.since(known.last) < FAILURE_MEMORY);
        known.map_or(0, |known| known.count)
    }

    fn delayed_until(&self, source: Source) -> Tick {
        self.failing.get(&source).map_or(Tick::ZERO, |known| known.last + known.delay())
    }

    /// Decides whether this source begins an exchange, and notes it if so. `patience_ends`: after that it is told no.
    pub(super) fn turn(&mut self, now: Tick, source: Source, patience_ends: Tick) -> Turn {
        let until = self.delayed_until(source);
        if until > patience_ends || now >= patience_ends {
            return Turn::Never { retry_in: until.since(now).max(FIRST_DELAY) };
        }
        let one_more = self.exchanging.len() < MAX_EXCHANGES && !self.exchanging.contains(&source);
        if now < until || !one_more || !self.rate.take(now) {
            return Turn::Wait;
        }
        self.exchanging.insert(source);
        Turn::Now
    }

    /// Returns when to look again at one that waits.
    pub(super) fn next(&self, source: Source, patience_ends: Tick) -> Tick {
        // The end of another exchange is an event of its own.
        let blocked = self.exchanging.len() >= MAX_EXCHANGES || self.exchanging.contains(&source);
        let soonest = self.delayed_until(source).max(self.rate.next());
        if blocked { patience_ends } else { soonest.min(patience_ends) }
    }

    pub(super) fn on_success(&mut self, source: Source) {
        self.exchanging.remove(&source);
        self.failing.remove(&source);
        self.rate.refund();
    }

    /// Notes a failure. Returns how many there are, and how long the source waits now.
    pub(super) fn on_failure(&mut self, now: Tick, source: Source) -> (u32, Duration) {
        self.exchanging.remove(&source);
        let count = self.failures(now, source).saturating_add(1);
        let known = Failures { count, last: now };
        self.failing.insert(source, known);
        if self.failing.len() > MAX_FAILING_SOURCES {
            self.failing.retain(|_, known| now.since(known.last) < FAILURE_MEMORY);
        }
        if self.failing.len() > MAX_FAILING_SOURCES {
            let least = self.failing.iter().min_by_key(|(_, known)| (known.count, known.last));
            let least = least.map(|(source, _)| *source);
            least.and_then(|least| self.failing.remove(&least));
        }
        (count, known.delay())
    }

    pub(super) fn check(&self, exchanging: impl Iterator<Item = Source>) -> Result<(), String> {
        let mut found: Vec<Source> = exchanging.collect();
        found.sort();
        if found.windows(2).any(|two| two[0] == two[1]) || found.len() > MAX_EXCHANGES {
            return Err(format!("GU-1: exchanges of {found:?}"));
        }
        if !found.iter().eq(&self.exchanging) {
            return Err(format!("GU-1: exchanges of {found:?}, noted are {:?}", self.exchanging));
        }
        if self.failing.len() > MAX_FAILING_SOURCES {
            return Err(format!("GU-4: {} sources are remembered", self.failing.len()));
        }
        Ok(())
    }
}
