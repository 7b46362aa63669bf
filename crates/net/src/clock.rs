//! The one clock: monotonic, of this machine, shared by its processes (a page may hold its readings).
//!
//! It goes on while the machine is suspended: whoever has slept through a deadline finds that it has passed, as everybody
//! else does.

use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds since the machine started.
pub fn now() -> u64 {
    read(ClockId::Boottime)
}

/// A clock of its own, some milliseconds behind, for those who ask often and count in seconds. It stands still while the
/// machine is suspended, so its readings must not be compared with those of [`now`].
pub fn coarse() -> u64 {
    read(ClockId::MonotonicCoarse)
}

fn read(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
