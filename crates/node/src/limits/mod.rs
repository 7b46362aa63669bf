//! What keeps a slot within the memory it asked for: how much it has ([`measure`]), and where the kernel helps, a control
//! group that it cannot leave ([`group`]).
//!
//! * LM-1: what counts is what the slot and every process it has started have for themselves: anonymous pages and private
//!   dirty ones, in memory or swapped out. Programs and libraries do not count, nor what is shared with others.
//! * LM-2: a slot without a limit is never looked at, and a call costs nothing either way.
//! * LM-3: one that takes more than it may is ended within a fraction of a second; where control groups can be written,
//!   it does not even get the memory.

mod group;
mod measure;

pub(crate) use group::Group;
pub(crate) use measure::{Size, size_of};

use std::time::Duration;

/// As fast as memory can be filled, about.
const BYTES_PER_MILLISECOND: u64 = 4 << 20;
const SOONEST: Duration = Duration::from_millis(10);
/// The end of a slot must be known to its client within a second of the cause.
pub(crate) const LATEST: Duration = Duration::from_millis(200);

/// How long until the next look at a slot that could take so many bytes more.
pub(crate) fn pause(left: u64) -> Duration {
    Duration::from_millis(left / 2 / BYTES_PER_MILLISECOND).clamp(SOONEST, LATEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_near_the_limit_is_looked_at_often() {
        assert_eq!(pause(0), SOONEST);
        assert_eq!(pause(800 << 20), Duration::from_millis(100));
        assert_eq!(pause(64 << 30), LATEST);
    }
}
