//! Noticing that a name a function depends on is bound to another object.

use pyo3::exceptions::PyTypeError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyString, PyTuple};
use pyo3::{PyTraverseError, PyVisit};

/// Stands for "no such name".
fn missing(py: Python<'_>) -> PyResult<&Py<PyAny>> {
    static MISSING: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    MISSING.get_or_try_init(py, || py.import("builtins")?.getattr("object")?.call0().map(Bound::unbind))
}

#[pyclass(frozen, module = "paceline._native")]
pub struct Watch {
    globals: Vec<(Py<PyDict>, Py<PyString>, Py<PyAny>)>,
    cells: Vec<(Py<PyAny>, Py<PyAny>)>,
}

#[pymethods]
impl Watch {
    #[new]
    fn new(globals: Vec<(Py<PyDict>, Py<PyString>, Py<PyAny>)>, cells: Vec<(Py<PyAny>, Py<PyAny>)>) -> Watch {
        Watch { globals, cells }
    }

    #[classattr]
    #[pyo3(name = "MISSING")]
    fn missing(py: Python<'_>) -> PyResult<Py<PyAny>> {
        Ok(missing(py)?.clone_ref(py))
    }

    pub fn unchanged(&self, py: Python<'_>) -> PyResult<bool> {
        let missing = missing(py)?.as_ptr();
        for (namespace, name, then) in &self.globals {
            // SAFETY: a dictionary and a live key; the borrowed result is only compared, never used.
            let now = unsafe { ffi::PyDict_GetItemWithError(namespace.as_ptr(), name.as_ptr()) };
            if now.is_null() && PyErr::occurred(py) {
                return Err(PyErr::fetch(py));
            }
            let now = if now.is_null() { missing } else { now };
            if now != then.as_ptr() {
                return Ok(false);
            }
        }
        for (cell, then) in &self.cells {
            let now = match cell.bind(py).getattr(pyo3::intern!(py, "cell_contents")) {
                Ok(now) => now.as_ptr(),
                Err(error) if error.is_instance_of::<pyo3::exceptions::PyValueError>(py) => missing,
                Err(error) => return Err(error),
            };
            if now != then.as_ptr() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        for (namespace, name, then) in &self.globals {
            visit.call(namespace)?;
            visit.call(name)?;
            visit.call(then)?;
        }
        for (cell, then) in &self.cells {
            visit.call(cell)?;
            visit.call(then)?;
        }
        Ok(())
    }

    fn __reduce__(&self) -> PyResult<Py<PyTuple>> {
        Err(PyTypeError::new_err("a Watch stays in its process"))
    }
}
