//! Calls that go on beside others in a slot: `paceline._slot.overlap` begins them, on whichever thread it likes.

use crate::payload;
use crate::slot::{self, runtime};
use crate::values::{self, Root};
use bytes::Bytes;
use paceline_proto::Seq;
use paceline_proto::data::{Call, Status};
use paceline_slot::{Deferred, Runtime};
use pyo3::exceptions::PyRuntimeError;
use pyo3::ffi;
use pyo3::prelude::*;
use std::sync::atomic::{AtomicBool, Ordering};

/// A call that goes on beside others. Whoever has it answers it, once.
#[pyclass(frozen, module = "paceline._native")]
pub struct Beside {
    deferred: Deferred,
    function: Py<PyAny>,
    payload: Bytes,
    #[pyo3(get)]
    task: u64,
    #[pyo3(get)]
    attempt: u32,
    answered: AtomicBool,
}

/// Hand a call to `begins`. None: it is answered later. The call is deferred first (OV-1).
pub fn begin(
    py: Python<'_>,
    runtime: &Runtime,
    function: &Py<PyAny>,
    begins: &Py<PyAny>,
    call: &Call,
) -> Option<(Seq, Status, Bytes)> {
    let deferred = runtime.defer(call.seq)?;
    let beside = Beside {
        deferred,
        function: function.clone_ref(py),
        payload: call.payload.clone(),
        task: call.task.0,
        attempt: call.attempt,
        answered: AtomicBool::new(false),
    };
    if let Err(error) = begins.call1(py, (beside,)) {
        let (status, payload) = slot::ended(py, Err(error));
        runtime.answer(deferred, status, payload);
    }
    None
}

#[pymethods]
impl Beside {
    #[getter]
    fn number(&self) -> u64 {
        self.deferred.number()
    }

    fn apply<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        payload::apply(self.function.bind(py), &self.payload)
    }

    fn answer(&self, py: Python<'_>, value: &Bound<'_, PyAny>) {
        self.end(py, values::build(py, |out| values::encode(value, Root::Result, out)));
    }

    fn fail(&self, py: Python<'_>, error: Bound<'_, PyAny>) {
        self.end(py, Err(PyErr::from_value(error)));
    }
}

impl Beside {
    fn end(&self, py: Python<'_>, result: PyResult<Bytes>) {
        let Some(runtime) = runtime() else { return };
        let (status, payload) = slot::ended(py, result);
        if !self.answered.swap(true, Ordering::Relaxed) {
            py.detach(|| runtime.answer(self.deferred, status, payload));
        }
    }
}

/// So many calls may go on beside each other.
#[pyfunction]
pub fn allow_overlap(most: usize) -> PyResult<()> {
    here()?.allow_deferred(most);
    Ok(())
}

/// Wait until a call that goes on beside others is to stop. Its number.
#[pyfunction]
pub fn next_stop(py: Python<'_>) -> PyResult<u64> {
    let runtime = here()?;
    Ok(py.detach(|| runtime.next_stop()).number())
}

/// Raise `KeyboardInterrupt` in a thread.
#[pyfunction]
pub fn interrupt_thread(py: Python<'_>, thread: std::ffi::c_ulong) {
    let interrupt = py.get_type::<pyo3::exceptions::PyKeyboardInterrupt>();
    // SAFETY: a live exception class; a thread that is gone is not found, and nothing happens.
    unsafe { ffi::PyThreadState_SetAsyncExc(thread as _, interrupt.as_ptr()) };
}

fn here() -> PyResult<&'static Runtime> {
    runtime().ok_or_else(|| PyRuntimeError::new_err("this process is no slot"))
}
