//! Where the outcome of one task is put, and how those who wait for it hear of it.
//!
//! * CE-1: an outcome is stored once; whoever looks after hearing of it finds it.
//! * CE-2: storing it takes no lock that is held while anything waits, and never enters a language runtime.

use crate::aside::Stored;
use crate::batch::Batch;
use crate::notify::{Notice, Notifier};
use paceline_core::client::{Outcome, TaskKey};
use paceline_proto::TaskId;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicIsize, AtomicU8, Ordering};
use std::thread::Thread;

const PENDING: u8 = 0;
const RUNNING: u8 = 1;
const DONE: u8 = 2;

/// What comes back with a task's outcome: the place to put it.
#[derive(Clone)]
pub enum Ticket {
    /// A task with a future of its own.
    Cell(Arc<Cell>),
    /// One of many tasks of a map.
    Batch(Arc<Batch>, u32),
}

impl Ticket {
    pub(crate) fn complete(self, outcome: Stored, notifier: &Notifier) {
        match self {
            Ticket::Cell(cell) => cell.complete(outcome, notifier),
            Ticket::Batch(batch, index) => batch.complete(index, outcome),
        }
    }

    pub(crate) fn is_of(&self, batch: &Arc<Batch>) -> bool {
        matches!(self, Ticket::Batch(other, _) if Arc::ptr_eq(other, batch))
    }

    pub(crate) fn started(&self) {
        if let Ticket::Cell(cell) = self {
            let _ = cell.status.compare_exchange(PENDING, RUNNING, Ordering::SeqCst, Ordering::SeqCst);
        }
    }
}

/// The outcome of one task, to be.
pub struct Cell {
    status: AtomicU8,
    inner: Mutex<Inner>,
}

struct Inner {
    outcome: Option<Stored>,
    task: (TaskKey, TaskId),
    waiters: Vec<Arc<Waiter>>,
    notice: Option<Notice>,
}

impl Cell {
    pub(crate) fn new() -> Arc<Cell> {
        let inner = Inner {
            outcome: None,
            task: (TaskKey(usize::MAX), TaskId(0)),
            waiters: Vec::new(),
            notice: None,
        };
        Arc::new(Cell { status: AtomicU8::new(PENDING), inner: Mutex::new(inner) })
    }

    pub(crate) fn set_task(&self, key: TaskKey, id: TaskId) {
        self.inner.lock().task = (key, id);
    }

    pub(crate) fn key(&self) -> (TaskKey, TaskId) {
        self.inner.lock().task
    }

    pub fn task(&self) -> TaskId {
        self.key().1
    }

    pub fn is_done(&self) -> bool {
        self.status.load(Ordering::SeqCst) == DONE
    }

    /// Whether the task is known to have begun and not to have ended.
    pub fn is_running(&self) -> bool {
        self.status.load(Ordering::SeqCst) == RUNNING
    }

    /// The outcome; none while pending, or once it was forgotten.
    pub fn outcome(&self) -> Option<Outcome> {
        self.stored().map(Stored::load)
    }

    /// The outcome as it is kept; none while pending, or once it was forgotten.
    pub fn stored(&self) -> Option<Stored> {
        self.inner.lock().outcome.clone()
    }

    /// Give the outcome's memory back: whoever asked has it in another form.
    pub fn forget(&self) {
        self.inner.lock().outcome = None;
    }

    pub(crate) fn complete(&self, outcome: Stored, notifier: &Notifier) {
        let (waiters, notice) = {
            let mut inner = self.inner.lock();
            inner.outcome = Some(outcome);
            self.status.store(DONE, Ordering::SeqCst);
            (std::mem::take(&mut inner.waiters), inner.notice.take())
        };
        waiters.iter().for_each(|waiter| waiter.count(1));
        if let Some(notice) = notice {
            notifier.push(notice);
        }
    }

    /// Have the waiter counted when this is done. False: it is done already.
    pub fn watch(&self, waiter: &Arc<Waiter>) -> bool {
        let mut inner = self.inner.lock();
        let pending = !self.is_done();
        if pending {
            inner.waiters.push(waiter.clone());
        }
        pending
    }

    /// No longer have the waiter counted.
    pub fn unwatch(&self, waiter: &Arc<Waiter>) {
        self.inner.lock().waiters.retain(|other| !Arc::ptr_eq(other, waiter));
    }

    /// Have the notice run by the session's callback thread when this is done. Gives it back if it is done already.
    pub fn on_done(&self, notice: Notice) -> Result<(), Notice> {
        let mut inner = self.inner.lock();
        if self.is_done() {
            return Err(notice);
        }
        inner.notice = Some(notice);
        Ok(())
    }
}

/// A thread that waits until some number of tasks are done.
pub struct Waiter {
    remaining: AtomicIsize,
    thread: Thread,
}

impl Waiter {
    /// The calling thread waits for `count` tasks.
    pub fn new(count: usize) -> Arc<Waiter> {
        let remaining = AtomicIsize::new(count as isize);
        Arc::new(Waiter { remaining, thread: std::thread::current() })
    }

    /// Wait for `count` tasks from now on.
    pub fn reset(&self, count: usize) {
        self.remaining.store(count as isize, Ordering::SeqCst);
    }

    pub fn is_satisfied(&self) -> bool {
        self.remaining.load(Ordering::SeqCst) <= 0
    }

    /// So many tasks are done.
    pub fn count(&self, done: usize) {
        let before = self.remaining.fetch_sub(done as isize, Ordering::SeqCst);
        if before > 0 && before <= done as isize {
            self.unpark();
        }
    }

    pub(crate) fn park(&self, timeout: std::time::Duration) {
        // An unpark that came before is remembered, so none is lost.
        std::thread::park_timeout(timeout);
    }

    pub(crate) fn unpark(&self) {
        self.thread.unpark();
    }
}
