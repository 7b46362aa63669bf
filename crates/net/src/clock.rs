//! The one clock: monotonic, of this machine, shared by its processes (a page may hold its readings).

use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds since the machine started.
pub fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
