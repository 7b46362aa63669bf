//! Blocking until tasks are done, with the interpreter released and Ctrl-C let through.

use crate::ending;
use crate::future::FutureBase;
use crate::session::{check_own, forked};
use crate::slot;
use paceline::{Cell, Session, Waited, Waiter};
use pyo3::exceptions::PyKeyboardInterrupt;
use pyo3::prelude::*;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A signal that another thread got wakes nobody: look for it this often.
const SLICE: Duration = Duration::from_millis(100);

/// Block until the waiter is satisfied. False: the time is over.
pub fn block(
    py: Python<'_>,
    session: &Session,
    waiter: &Arc<Waiter>,
    focus: Option<&Cell>,
    timeout: Option<Duration>,
) -> PyResult<bool> {
    ending::stays();
    if waiter.is_satisfied() {
        return Ok(true);
    }
    check_own(py, session)?;
    let until = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
    let mut waits = session.keep_waiting();
    loop {
        let slice = until.map_or(SLICE, |until| until.saturating_duration_since(Instant::now()).min(SLICE));
        match ending::detach(py, || session.wait(waiter, focus, slice)) {
            Waited::Satisfied => return Ok(true),
            Waited::TimedOut | Waited::Interrupted => {
                py.check_signals().inspect_err(|error| on_interrupt(py, session, error))?;
            }
            Waited::Here(here) => {
                drop(waits.take());
                let (outcome, interrupt) = slot::run_here(py, &here);
                session.finish_here(*here, outcome);
                interrupt?;
                waits = session.keep_waiting();
            }
        }
        if until.is_some_and(|until| until <= Instant::now()) {
            return Ok(waiter.is_satisfied());
        }
    }
}

/// Wait with the interpreter released, for something that asks again and again whether it was interrupted. It was if a
/// signal's handler has raised, which is raised here then.
pub fn interruptible<T: Send>(
    py: Python<'_>,
    wait: impl FnOnce(&mut dyn FnMut() -> bool) -> T + Send,
) -> PyResult<T> {
    let mut raised = None;
    let result = ending::detach(py, || {
        wait(&mut || {
            raised = raised.take().or_else(|| ending::attach(|py| py.check_signals().err()));
            raised.is_some()
        })
    });
    raised.map_or(Ok(result), Err)
}

/// Ctrl-C ends the wait, and whoever waited ends its tasks. What an earlier Ctrl-C has told to stop has no more time.
fn on_interrupt(py: Python<'_>, session: &Session, error: &PyErr) {
    if error.is_instance_of::<PyKeyboardInterrupt>(py) {
        ending::detach(py, || session.kill_interrupted());
    }
}

/// Seconds as Python gives them; a negative time is no time.
pub fn timeout(seconds: Option<f64>) -> Option<Duration> {
    seconds.map(|seconds| Duration::try_from_secs_f64(seconds.max(0.0)).unwrap_or(Duration::MAX))
}

/// Block until `n` of the futures are done or the time is over.
#[pyfunction]
#[pyo3(signature = (futures, n, timeout))]
pub fn wait(
    py: Python<'_>,
    futures: Vec<Bound<'_, FutureBase>>,
    n: usize,
    timeout: Option<f64>,
) -> PyResult<()> {
    ending::stays();
    let limit = self::timeout(timeout);
    let Some(session) = futures.iter().find_map(|future| future.get().session()) else { return Ok(()) };
    if session.is_foreign() {
        let done = futures.iter().filter(|future| future.get().is_done()).count();
        return if done >= n.min(futures.len()) { Ok(()) } else { Err(forked(py)) };
    }
    let waiter = Waiter::new(n.min(futures.len()));
    let mut watched = Vec::new();
    for future in &futures {
        let Some(cell) = future.get().cell() else { continue };
        if cell.watch(&waiter) {
            watched.push(cell);
        } else {
            waiter.count(1);
        }
        if waiter.is_satisfied() {
            break;
        }
    }
    let result = block(py, session, &waiter, None, limit);
    if !waiter.is_satisfied() || n < futures.len() {
        watched.iter().for_each(|cell| cell.unwatch(&waiter));
    }
    result.map(drop)
}
