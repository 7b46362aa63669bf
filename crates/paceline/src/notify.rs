//! The one thread in which callbacks run and output is printed.
//!
//! Whoever completes a task may hold the session's lock, and callbacks are the user's code, so they meet only here.
//! The thread is started with the first notice.

use parking_lot::{Condvar, Mutex};
use std::cell::Cell;
use std::sync::Arc;
use std::thread::JoinHandle;

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

pub struct Notifier {
    shared: Arc<Shared>,
    enter: Enter,
}

struct Shared {
    queue: Mutex<Queue>,
    arrived: Condvar,
}

#[derive(Default)]
struct Queue {
    notices: Vec<Notice>,
    closed: bool,
    thread: Option<JoinHandle<()>>,
}

impl Notifier {
    pub(crate) fn new(enter: Enter) -> Notifier {
        Notifier { shared: Arc::new(Shared { queue: Mutex::default(), arrived: Condvar::new() }), enter }
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

    /// No more notices will come. Waits until those that are there have run, unless called by one of them.
    pub(crate) fn close(&self) {
        let thread = {
            let mut queue = self.shared.queue.lock();
            queue.closed = true;
            queue.thread.take()
        };
        self.shared.arrived.notify_one();
        if let Some(thread) = thread
            && thread.thread().id() != std::thread::current().id()
        {
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn serve(&self, enter: &Enter) {
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
            enter(&mut || notices.by_ref().for_each(|notice| notice()));
        }
    }
}
