//! Large buffers between processes of one machine: ranges of sealed memory files, whose descriptors go over the links.
//!
//! Owns: the memory, payloads with parts outside of them, and what links say of both. Does not own: which range is free
//! and who holds which, which is [`paceline_core::segments`]'s to say; or what is in a payload.
//!
//! * SM-1: a process has one store, and a forked child another: nothing of its parent's is touched there.
//! * SM-2: the locks in here are the last that anybody takes, and nobody waits under them.
//! * SM-3: who cannot take segments, for want of descriptors or mappings, says so, and gets the bytes over its link. When
//!   some time has passed and there are descriptors, it says that, too; each time it was wrong, it waits twice as long.

mod blocks;
mod copy;
mod descriptors;
mod exchange;
mod giving_up;
mod habit;
mod heap;
mod keeper;
mod memory;
mod numbered;
mod pages;
mod part;
mod store;
mod wire;

pub(crate) use descriptors::{receive, send};
pub(crate) use exchange::{Exchange, Outgoing, Told};
pub(crate) use giving_up::{give_up, given_up};
pub use habit::User;
pub use part::{Part, View};
pub use store::{Parts, flatten, parted, parts_of, unflatten};
pub use wire::Kick;

use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Buffers from here on travel outside of payloads.
pub const APART: usize = 8 << 10;

/// Buffers from here on have segments of their own.
pub const LARGE: usize = 128 << 10;

/// How often this process has forked.
static FORKS: AtomicU64 = AtomicU64::new(0);

pub(crate) fn forks() -> u64 {
    FORKS.load(Ordering::SeqCst)
}

/// Count forks from now on, and have children begin anew (SM-1).
fn watch_forks() {
    static ONCE: Once = Once::new();
    extern "C" fn before() {
        FORKS.fetch_add(1, Ordering::SeqCst);
    }
    ONCE.call_once(|| {
        // SAFETY: both functions live as long as the process and only touch atomics.
        unsafe { libc::pthread_atfork(Some(before), None, Some(store::in_child)) };
    });
}

/// Have what is needed to do without them, while it can be had.
pub(crate) fn prepare() {
    store::Store::current();
}

/// Say once why large buffers take longer than they need to.
fn tell(why: &str) {
    use std::io::Write;
    static TOLD: AtomicBool = AtomicBool::new(false);
    if !TOLD.swap(true, Ordering::Relaxed) {
        let _ = writeln!(
            std::io::stderr(),
            "paceline: large buffers go through sockets, which takes longer: {why} \
             (hint: raise the limits of open files and of mappings: ulimit -n, vm.max_map_count)"
        );
    }
}
