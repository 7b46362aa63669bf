//! The one thread in which callbacks run and output is printed.
//!
//! Whoever completes a task may hold the session's lock, and callbacks are the user's code, so they meet only here.
//! The thread is started with the first notice.
//!
//! * NF-1: the end of a session waits for the notices that are there, but never longer than whoever ends it wants to: a
//!   callback need not return.

use parking_lot::{Condvar, Mutex};
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// How often whoever ends a session is asked whether it still waits: a signal wakes nobody here.
const PATIENCE_SLICE: Duration = Duration::from_millis(100);

/// Something to run in the callback thread.
pub type Notice = Box<dyn FnOnce() + Send>;

/// Runs a round of notices: a language binding enters its runtime once around all of them.
pub type Enter = Arc<dyn Fn(&mut dyn FnMut()) + Send + Sync>;

thread_local! {
    static IN_CALLBACK: Cell<bool> = const { Cell::new(false) };
}

/// Whether the calling thread is a callback thread: it must never wait for room.
pub fn in_callback() -> bool {
    IN_CALLBACK.get()
}

/// Which notices the end of a session waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Patience {
    /// All that are there.
    All,
    /// The one that runs; the others do not run any more.
    Running,
    /// None: what runs is left behind.
    None,
}

pub struct Notifier {
    shared: Arc<Shared>,
    enter: Enter,
}

struct Shared {
    queue: Mutex<Queue>,
    arrived: Condvar,
    /// The thread has ended.
    ended: Condvar,
    /// Nothing more is to run.
    enough: AtomicBool,
}

#[derive(Default)]
struct Queue {
    notices: Vec<Notice>,
    closed: bool,
    ended: bool,
    thread: Option<JoinHandle<()>>,
}

impl Notifier {
    pub(crate) fn new(enter: Enter) -> Notifier {
        let (queue, arrived, ended, enough) = Default::default();
        Notifier { shared: Arc::new(Shared { queue, arrived, ended, enough }), enter }
    }

    pub fn push(&self, notice: Notice) {
        self.push_to(&mut self.shared.queue.lock(), notice);
    }

    /// Gives the notice back if nothing would run it any more.
    pub fn try_push(&self, notice: Notice) -> Result<(), Notice> {
        let mut queue = self.shared.queue.lock();
        if queue.closed {
            return Err(notice);
        }
        self.push_to(&mut queue, notice);
        Ok(())
    }

    fn push_to(&self, queue: &mut Queue, notice: Notice) {
        queue.notices.push(notice);
        if queue.thread.is_none() && !queue.closed {
            let (shared, enter) = (self.shared.clone(), self.enter.clone());
            let thread = std::thread::Builder::new().name("paceline-callbacks".into()).spawn(move || {
                paceline_net::signals::block_all();
                IN_CALLBACK.set(true);
                shared.serve(&enter);
            });
            queue.thread = thread.ok();
        }
        self.shared.arrived.notify_one();
    }

    /// No more notices will come. Waits for those that are there as long as `patience` says, which is asked again and
    /// again; not at all if one of them calls this.
    pub(crate) fn close(&self, mut patience: impl FnMut() -> Patience) {
        let thread = {
            let mut queue = self.shared.queue.lock();
            queue.closed = true;
            queue.thread.take()
        };
        self.shared.arrived.notify_one();
        let Some(thread) = thread.filter(|thread| thread.thread().id() != std::thread::current().id()) else {
            return;
        };
        while !self.shared.has_ended_within(PATIENCE_SLICE) {
            match patience() {
                Patience::All => {}
                Patience::Running => self.shared.enough.store(true, Ordering::Relaxed),
                Patience::None => return self.shared.enough.store(true, Ordering::Relaxed),
            }
        }
        let _ = thread.join();
    }
}

/// Tells that the thread has ended, however it did.
struct Ends<'a>(&'a Shared);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.queue.lock().ended = true;
        self.0.ended.notify_all();
    }
}

impl Shared {
    fn has_ended_within(&self, span: Duration) -> bool {
        let mut queue = self.queue.lock();
        if !queue.ended {
            self.ended.wait_for(&mut queue, span);
        }
        queue.ended
    }

    fn serve(&self, enter: &Enter) {
        let _ends = Ends(self);
        loop {
            let mut notices = {
                let mut queue = self.queue.lock();
                while queue.notices.is_empty() {
                    if queue.closed {
                        return;
                    }
                    self.arrived.wait(&mut queue);
                }
                std::mem::take(&mut queue.notices).into_iter()
            };
            let enough = || self.enough.load(Ordering::Relaxed);
            enter(&mut || notices.by_ref().filter(|_| !enough()).for_each(|notice| notice()));
        }
    }
}
