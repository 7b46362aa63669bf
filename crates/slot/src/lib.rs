//! What runs inside a slot, whatever language the user's code is in.
//!
//! Two threads. The main thread runs user code; while it has none it reads calls and writes replies itself, without a
//! hop. The companion thread ([`companion`]) never touches the language runtime: it listens to the node, and while
//! user code runs it serves the data link, so that calls are taken in, taken back and answered whatever that code does.
#![forbid(unsafe_code)]

mod attaching;
mod becoming;
mod companion;
mod deadlines;
mod directory;
mod guests;
mod interrupts;
mod nesting;
mod overlap;
mod runtime;
pub mod zygote;

pub use directory::create as private_directory;
pub use nesting::Wait;
pub use overlap::Deferred;
pub use runtime::{Next, Runtime};

use std::sync::atomic::{AtomicBool, Ordering};

static FORKED: AtomicBool = AtomicBool::new(false);

/// In a child that user code forked: this process is no slot. Its copies of our descriptors close, and should the user's
/// function return here, [`is_forked_child`] says that there is nobody to answer.
pub fn after_fork_in_child() {
    FORKED.store(true, Ordering::SeqCst);
    paceline_net::kept::close_in_child();
}

pub fn is_forked_child() -> bool {
    FORKED.load(Ordering::SeqCst)
}

/// How many threads numerical libraries start: variables that a slot sets to the CPUs of its task, unless its user has.
pub const THREAD_COUNTS: [&str; 5] = [
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "RAYON_NUM_THREADS",
];
