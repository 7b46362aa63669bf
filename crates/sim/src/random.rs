//! Numbers for the simulation: the same seed gives the same numbers, on every machine.

use std::ops::Range;
use std::time::Duration;

/// Splitmix64.
pub(crate) struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5851_f42d_4c95_7f2d)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// A number below `end`.
    pub fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    pub fn within(&mut self, range: Range<u64>) -> u64 {
        range.start + self.next() % (range.end - range.start)
    }

    pub fn percent(&mut self, percent: u64) -> bool {
        self.next() % 100 < percent
    }

    pub fn pick<T: Copy>(&mut self, among: &[T]) -> T {
        among[self.below(among.len())]
    }

    /// A span of time in which every doubling is as likely as any other.
    pub fn span(&mut self, range: Range<Duration>) -> Duration {
        let low = range.start.as_nanos().max(1) as u64;
        let octaves = (range.end.as_nanos() as u64 / low).max(1).ilog2() + 1;
        let base = low << self.within(0..u64::from(octaves));
        Duration::from_nanos(base + self.next() % base).min(range.end)
    }
}

/// A number that looks random and is always the same for the same input.
pub(crate) fn mix(value: u64) -> u64 {
    let mut mixed = value;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}
