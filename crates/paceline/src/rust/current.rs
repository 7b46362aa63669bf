//! What a task can ask about itself.

use paceline_slot::Runtime;
use std::sync::OnceLock;

/// What this process is, once it is a slot.
static RUNTIME: OnceLock<Runtime> = OnceLock::new();

pub(crate) fn be(runtime: Runtime) -> &'static Runtime {
    RUNTIME.get_or_init(|| runtime)
}

pub(crate) fn in_slot() -> bool {
    RUNTIME.get().is_some()
}

/// In a task: whether it was cancelled or has run out of time, and nobody waits for its value. A task that goes on for
/// two more seconds all the same is ended together with its slot. Elsewhere: false.
pub fn is_cancelled() -> bool {
    RUNTIME.get().is_some_and(Runtime::is_interrupted)
}
