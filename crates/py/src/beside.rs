//! Calls that go on beside others in a slot: `paceline._slot.overlap` begins them, on whichever thread it likes.

use crate::loading;
use crate::payload;
use crate::slot::{self, runtime};
use crate::values::{self, Root};
use bytes::Bytes;
use paceline_proto::Seq;
use paceline_proto::data::{Call, Status};
use paceline_slot::{Deferred, Runtime};
use pyo3::exceptions::PyRuntimeError;
use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyDict;
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
    /// Its arguments are being unpickled.
    reads: AtomicBool,
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
        reads: AtomicBool::new(false),
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
        crate::ending::stays();
        self.reads.store(true, Ordering::Relaxed);
        let arguments = payload::Arguments::read(py, &self.payload);
        self.reads.store(false, Ordering::Relaxed);
        arguments?.apply(self.function.bind(py))
    }

    /// Raise `KeyboardInterrupt` in the thread that is at it, or see to it that this is tried again (LO-1). Between looking
    /// where the thread is and telling it nothing else runs.
    fn interrupt(&self, py: Python<'_>, thread: std::ffi::c_ulong) -> PyResult<()> {
        let frames = py.import(intern!(py, "sys"))?.call_method0(intern!(py, "_current_frames"))?;
        let frame = frames.cast::<PyDict>()?.get_item(thread)?;
        let imports = frame.map_or(Ok(false), |frame| loading::imports(&frame))?;
        if imports || self.reads.load(Ordering::Relaxed) {
            return stop_later(self.number());
        }
        let interrupt = py.get_type::<pyo3::exceptions::PyKeyboardInterrupt>();
        // SAFETY: a live exception class; a thread that is gone is not found, and nothing happens.
        unsafe { ffi::PyThreadState_SetAsyncExc(thread as _, interrupt.as_ptr()) };
        Ok(())
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
        crate::ending::stays();
        let Some(runtime) = runtime() else { return };
        let (status, payload) = slot::ended(py, result);
        if !self.answered.swap(true, Ordering::Relaxed) {
            crate::ending::detach(py, || runtime.answer(self.deferred, status, payload));
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
    Ok(crate::ending::detach(py, || runtime.next_stop()).number())
}

/// The call of this number was to stop, and cannot be stopped where it is: it is named again soon.
#[pyfunction]
pub fn stop_later(number: u64) -> PyResult<()> {
    here()?.hold_stop(number);
    Ok(())
}

fn here() -> PyResult<&'static Runtime> {
    runtime().ok_or_else(|| PyRuntimeError::new_err("this process is no slot"))
}
