//! Time as the machines see it: a monotonic, local number that the shell hands in.

use std::ops::{Add, Sub};
use std::time::Duration;

/// Nanoseconds since some start that only this process knows. Never compared with another machine's.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Tick(pub u64);

impl Tick {
    pub const ZERO: Tick = Tick(0);

    /// How long ago `earlier` was; zero if it lies ahead.
    pub fn since(self, earlier: Tick) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Tick {
    type Output = Tick;

    fn add(self, span: Duration) -> Tick {
        Tick(self.0.saturating_add(span.as_nanos() as u64))
    }
}

impl Sub<Tick> for Tick {
    type Output = Duration;

    fn sub(self, earlier: Tick) -> Duration {
        self.since(earlier)
    }
}
