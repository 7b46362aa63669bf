//! Submitting when the queue is full: waiting for room, or saying that there is none.

use crate::function::Function;
use crate::future::FutureBase;
use crate::waiting;
use paceline::{Cell, Full, Session, Waiter, in_callback};
use pyo3::intern;
use pyo3::prelude::*;
use std::sync::Arc;
use std::time::Duration;

/// Wait until there is room for a task, and submit it. A thread that must not wait gets `QueueFull` instead.
pub fn wait(py: Python<'_>, function: &Function, full: Full) -> PyResult<Arc<Cell>> {
    let module = py.import(intern!(py, "paceline._room"))?;
    let Full { payload, waiting, most } = full;
    let fill = (waiting.tasks, waiting.bytes, most.tasks, most.bytes);
    module.getattr(intern!(py, "check"))?.call1((in_callback(), fill))?;
    let gate = function.session.offer(&function.submission, payload);
    let waiter = Waiter::new(1);
    let mut is_shut = gate.watch(&waiter);
    while is_shut {
        match waiting::block(py, &function.session, &waiter, None, Some(SLICE)) {
            Ok(open) => is_shut = !open && !function.session.is_closed(),
            Err(interrupt) => {
                gate.withdraw();
                return Err(interrupt);
            }
        }
    }
    if gate.is_in() { Ok(gate.cell().clone()) } else { Err(closed(py, &function.session)) }
}

/// How often to look whether the cluster has ended.
const SLICE: Duration = Duration::from_millis(100);

/// A task that waits for room, without a thread that waits for it.
#[pyclass(frozen, module = "paceline._native")]
pub struct Gate {
    gate: paceline::Gate,
}

#[pymethods]
impl Gate {
    fn on_open(&self, py: Python<'_>, callback: Py<PyAny>) -> PyResult<()> {
        let callback = Arc::new(callback);
        let later = callback.clone();
        let notice = Box::new(move || {
            crate::ending::attach(|py| {
                later.call0(py).map_or_else(|error| error.write_unraisable(py, None), drop);
            });
        });
        match self.gate.on_open(notice) {
            Ok(()) => Ok(()),
            Err(_) => callback.call0(py).map(drop),
        }
    }

    fn pass_through(&self, py: Python<'_>) -> PyResult<()> {
        if self.gate.is_in() { Ok(()) } else { Err(closed(py, self.gate.session())) }
    }

    fn withdraw(&self) {
        self.gate.withdraw();
    }
}

/// The future of a task that is submitted now or when there is room, and what to wait for in that case.
pub fn offer<'py>(
    py: Python<'py>,
    function: &Function,
    full: Full,
) -> PyResult<(Bound<'py, PyAny>, Option<Gate>)> {
    let gate = function.session.offer(&function.submission, full.payload);
    let future = FutureBase::make(
        py,
        gate.cell().clone(),
        function.session.clone(),
        function.name.clone(),
        function.wire,
    )?;
    Ok((future, Some(Gate { gate })))
}

/// The session is closed: what was to be done with it is not.
pub fn closed(py: Python<'_>, session: &Session) -> PyErr {
    let made = py.import(intern!(py, "paceline.errors")).and_then(|module| match session.stopped_by() {
        Some(by) => module.getattr(intern!(py, "ClusterStopped"))?.call1((by,)),
        None => module.getattr(intern!(py, "ClusterClosed"))?.call0(),
    });
    made.map_or_else(|error| error, PyErr::from_value)
}
