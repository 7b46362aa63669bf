//! Doing without segments of others for a while, for want of descriptors or mappings (SM-3).

use super::store::Store;
use super::tell;
use crate::clock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// How long to do without them, the first time and at most.
const FIRST: Duration = Duration::from_secs(1);
const MOST: Duration = Duration::from_secs(60);

/// When to look whether they can be had again. 0: they can.
static UNTIL: AtomicU64 = AtomicU64::new(0);
/// For how long it was, the last time.
static LAST: AtomicU64 = AtomicU64::new(0);

/// Whether this process does without segments of others for now.
pub(crate) fn given_up() -> bool {
    match UNTIL.load(Ordering::Relaxed) {
        0 => false,
        until => !is_over(until),
    }
}

/// The time has passed, and there is what it takes to try again.
#[cold]
fn is_over(until: u64) -> bool {
    let now = clock::now();
    if now < until {
        return false;
    }
    let over = Store::current().refill_reserve();
    let next = if over { 0 } else { now + FIRST.as_nanos() as u64 };
    let _ = UNTIL.compare_exchange(until, next, Ordering::Relaxed, Ordering::Relaxed);
    over
}

/// Do without them for some time, and say so once.
pub(crate) fn give_up(why: &str) {
    let (first, most) = (FIRST.as_nanos() as u64, MOST.as_nanos() as u64);
    let time = (2 * LAST.load(Ordering::Relaxed)).clamp(first, most);
    if UNTIL.compare_exchange(0, clock::now() + time, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
        LAST.store(time, Ordering::Relaxed);
        // What is sent again comes over another connection, which needs descriptors.
        Store::current().free_reserve();
        tell(why);
    }
}
