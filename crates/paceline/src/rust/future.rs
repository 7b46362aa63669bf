//! A value to be.

use super::{Error, Result, current, slot_main, task, travel};
use crate::{Cell, Outcome, Session, TaskId, Waited, Waiter};
use serde::de::DeserializeOwned;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

/// Long enough to be for ever, and short enough to be added to a clock.
pub(crate) const FOR_EVER: Duration = Duration::from_secs(3600 * 24 * 365);

/// The value of a task to be. Wait for it, or await it on any executor. Dropping it does not end the task.
#[must_use = "a task's errors are seen only by whoever waits for it"]
pub struct Future<T> {
    /// Or why it was never submitted.
    state: Result<Submitted>,
    value: PhantomData<fn() -> T>,
}

struct Submitted {
    session: Session,
    cell: Arc<Cell>,
    name: &'static str,
}

impl<T: DeserializeOwned> Future<T> {
    pub(crate) fn new(session: Session, cell: Arc<Cell>, name: &'static str) -> Future<T> {
        Future { state: Ok(Submitted { session, cell, name }), value: PhantomData }
    }

    pub(crate) fn failed(error: Error) -> Future<T> {
        Future { state: Err(error), value: PhantomData }
    }

    /// Wait for the value.
    pub fn wait(self) -> Result<T> {
        let submitted = self.state?;
        while !submitted.wait(FOR_EVER)? {}
        submitted.take()
    }

    /// Wait for the value for so long at most; none if it has not come by then.
    pub fn wait_timeout(&self, timeout: Duration) -> Result<Option<T>> {
        let submitted = self.state.as_ref().map_err(Clone::clone)?;
        if submitted.wait(timeout.min(FOR_EVER))? { submitted.take().map(Some) } else { Ok(None) }
    }

    /// Whether the task has ended, in whatever way.
    pub fn is_done(&self) -> bool {
        self.state.as_ref().map_or(true, |submitted| submitted.cell.is_done())
    }

    /// End the task, even while it runs: waiting for it fails with [`Error::Cancelled`] at once. False: it has ended
    /// already. A task that runs is told ([`is_cancelled`](crate::is_cancelled)) and has two seconds to return.
    pub fn cancel(&self) -> bool {
        let Ok(submitted) = &self.state else { return false };
        submitted.session.cancel(&submitted.cell, true)
    }

    /// The task's number, for messages; none if it was never submitted.
    pub fn task(&self) -> Option<TaskId> {
        self.state.as_ref().ok().map(|submitted| submitted.cell.task())
    }
}

impl Submitted {
    /// Whether the outcome has come.
    fn wait(&self, timeout: Duration) -> Result<bool> {
        let waiter = Waiter::new(1);
        if !self.cell.watch(&waiter) {
            return Ok(true);
        }
        let waited = block(&self.session, &waiter, Some(&self.cell), timeout);
        if !matches!(waited, Ok(true)) {
            self.cell.unwatch(&waiter);
        }
        waited
    }

    fn take<T: DeserializeOwned>(&self) -> Result<T> {
        let outcome = self.cell.outcome().expect("it is done, and nobody makes it forget");
        resolve(&self.session, self.name, outcome)
    }
}

/// Wait until the waiter is satisfied. False: it took too long. A task that waits leaves its CPUs to others meanwhile, or
/// runs what it waits for itself.
pub(crate) fn block(
    session: &Session,
    waiter: &Arc<Waiter>,
    focus: Option<&Cell>,
    timeout: Duration,
) -> Result<bool> {
    let until = std::time::Instant::now() + timeout;
    let mut waits = session.keep_waiting();
    loop {
        let left = until.saturating_duration_since(std::time::Instant::now());
        match session.wait(waiter, focus, left) {
            Waited::Satisfied => return Ok(true),
            Waited::TimedOut => return Ok(false),
            Waited::Interrupted if session.is_closed() => {
                return if waiter.is_satisfied() { Ok(true) } else { Err(Error::Closed) };
            }
            // Inside a slot a signal says that the task which waits is to stop.
            Waited::Interrupted if current::is_cancelled() => {
                return Err(Error::Cancelled { task: "the task that waits" });
            }
            // Elsewhere it is the program's own business.
            Waited::Interrupted => {}
            Waited::Here(here) => {
                drop(waits.take());
                let outcome = slot_main::run_here(&here);
                session.finish_here(*here, outcome);
                waits = session.keep_waiting();
            }
        }
    }
}

pub(crate) fn resolve<T: DeserializeOwned>(
    session: &Session,
    task: &'static str,
    outcome: Outcome,
) -> Result<T> {
    resolve_with(session, task, outcome, |bytes| travel::read(session, || task::decode(bytes)))
}

pub(crate) fn resolve_with<T>(
    session: &Session,
    task: &'static str,
    outcome: Outcome,
    decode: impl FnOnce(&[u8]) -> Result<T, String>,
) -> Result<T> {
    match outcome {
        Outcome::Value(bytes) => {
            decode(&bytes).map_err(|message| Error::Decode { task, what: "the value", message })
        }
        Outcome::Cancelled if session.is_closed() => Err(Error::Closed),
        outcome => Err(Error::of(session, task, outcome)),
    }
}

impl<T: DeserializeOwned> std::future::Future for Future<T> {
    type Output = Result<T>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<T>> {
        let submitted = match &self.state {
            Ok(submitted) => submitted,
            Err(error) => return Poll::Ready(Err(error.clone())),
        };
        let waker = context.waker().clone();
        // One notice at a time: the waker of the last poll is the one that counts.
        if submitted.cell.on_done(Box::new(move || waker.wake())).is_err() {
            return Poll::Ready(submitted.take());
        }
        submitted.session.expect_callback();
        Poll::Pending
    }
}
