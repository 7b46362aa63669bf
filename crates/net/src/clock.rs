//! The one clock: monotonic, of this machine, shared by its processes (a page may hold its readings).

use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds since the machine started.
pub fn now() -> u64 {
    read(ClockId::Monotonic)
}

/// The same, some milliseconds old, for those who ask often and count in seconds.
pub fn coarse() -> u64 {
    read(ClockId::MonotonicCoarse)
}

fn read(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
