//! What a task can ask about itself.

use crate::{SlotId, TaskId};
use paceline_proto::data::Environment;
use paceline_slot::Runtime;
use parking_lot::Mutex;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// What this process is, once it is a slot.
static RUNTIME: OnceLock<Runtime> = OnceLock::new();

/// The task that runs and which attempt at it this is; zero for none.
static TASK: AtomicU64 = AtomicU64::new(0);
static ATTEMPT: AtomicU32 = AtomicU32::new(0);
static SLOT: AtomicU64 = AtomicU64::new(0);

/// What runs here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Current {
    pub task: TaskId,
    /// Which run of the task this is, from 1.
    pub attempt: u32,
    pub slot: SlotId,
}

/// Which task this is, in a task or a thread that it has started; none elsewhere. The items of a map that travel together
/// are one task.
pub fn current() -> Option<Current> {
    let task = TaskId(TASK.load(Ordering::Relaxed));
    let attempt = ATTEMPT.load(Ordering::Relaxed);
    let slot = SlotId(SLOT.load(Ordering::Relaxed));
    (task.0 != 0).then_some(Current { task, attempt, slot })
}

pub(crate) fn is_slot(slot: SlotId) {
    SLOT.store(slot.0, Ordering::Relaxed);
}

/// This runs from now on: a task and which attempt at it; none: nothing does. Says what ran before.
pub(crate) fn runs(running: Option<(TaskId, u32)>) -> Option<(TaskId, u32)> {
    let (task, attempt) = running.unwrap_or((TaskId(0), 0));
    let attempt = ATTEMPT.swap(attempt, Ordering::Relaxed);
    let task = TaskId(TASK.swap(task.0, Ordering::Relaxed));
    (task.0 != 0).then_some((task, attempt))
}

/// Where the client has this slot's calls find themselves, since the last time it said.
static ENVIRONMENT: Mutex<Option<Environment>> = Mutex::new(None);

pub(crate) fn is_bound(environment: &Environment) {
    *ENVIRONMENT.lock() = Some(environment.clone());
}

pub(crate) fn environment() -> Option<Environment> {
    ENVIRONMENT.lock().clone()
}

pub(crate) fn runtime() -> Option<&'static Runtime> {
    RUNTIME.get()
}

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
