//! Values to bytes and back.
//!
//! Plain pickle is asked first; it is quick and right for almost everything. It would name what lives in the main
//! script by reference, which no slot could follow, so a pickle that mentions `__main__` is made again by value.

use crate::references::{self, Travel};
use crate::scalar;
use bytes::Bytes;
use memchr::memmem;
use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyBytes;
use std::cell::RefCell;

/// Payloads up to this size are built in a buffer that is used again.
const SCRATCH: usize = 4096;

/// What a value is to the user, for the error that names what cannot travel.
#[derive(Clone, Copy)]
pub enum Root {
    /// The tuple of arguments.
    Arguments,
    /// The tuple of arguments and the keywords.
    Call,
    /// One argument.
    Value,
    /// What a function returned.
    Result,
}

impl Root {
    fn name(self) -> &'static str {
        match self {
            Root::Arguments => "args",
            Root::Call => "call",
            Root::Value => "value",
            Root::Result => "result",
        }
    }

    fn travel(self) -> Travel {
        match self {
            Root::Arguments | Root::Call | Root::Value => Travel::Arguments,
            Root::Result => Travel::Result,
        }
    }
}

struct Pickle {
    dumps: Py<PyAny>,
    loads: Py<PyAny>,
    protocol: Py<PyAny>,
}

fn pickle(py: Python<'_>) -> PyResult<&Pickle> {
    static PICKLE: PyOnceLock<Pickle> = PyOnceLock::new();
    PICKLE.get_or_try_init(py, || {
        let module = py.import("_pickle")?;
        Ok(Pickle {
            dumps: module.getattr("dumps")?.unbind(),
            loads: module.getattr("loads")?.unbind(),
            protocol: 5_i32.into_pyobject(py)?.into_any().unbind(),
        })
    })
}

/// Append the encoding of a value.
pub fn encode(value: &Bound<'_, PyAny>, root: Root, out: &mut Vec<u8>) -> PyResult<()> {
    if scalar::write(value, out) {
        return Ok(());
    }
    let mark = references::mark();
    let bytes = references::travelling(root.travel(), || match plain(value) {
        Ok(bytes) if memmem::find(bytes.as_bytes(), b"__main__").is_none() => Ok(bytes),
        Err(error) if !error.is_instance_of::<pyo3::exceptions::PyException>(value.py()) => Err(error),
        _ => {
            // They are found again.
            references::since(mark);
            by_value(value, root)
        }
    })?;
    if matches!(root, Root::Result) {
        references::pin_since(value.py(), mark)?;
    }
    out.extend_from_slice(bytes.as_bytes());
    Ok(())
}

fn plain<'py>(value: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyBytes>> {
    let py = value.py();
    let pickle = pickle(py)?;
    let bytes = call_two(pickle.dumps.bind(py), value, pickle.protocol.bind(py))?;
    bytes.cast_into::<PyBytes>().map_err(PyErr::from)
}

fn by_value<'py>(value: &Bound<'py, PyAny>, root: Root) -> PyResult<Bound<'py, PyBytes>> {
    let py = value.py();
    let module = py.import(intern!(py, "paceline._pickling"))?;
    let bytes = module.getattr(intern!(py, "dumps"))?.call1((value, root.name()))?;
    bytes.cast_into::<PyBytes>().map_err(PyErr::from)
}

/// The value of an encoding.
pub fn decode<'py>(py: Python<'py>, bytes: &[u8]) -> PyResult<Bound<'py, PyAny>> {
    if let Some(value) = scalar::read(py, bytes) {
        return Ok(value);
    }
    call_one(pickle(py)?.loads.bind(py), &PyBytes::new(py, bytes).into_any())
}

/// Build a payload; small ones without growing a new buffer each time.
pub fn build(write: impl FnOnce(&mut Vec<u8>) -> PyResult<()>) -> PyResult<Bytes> {
    thread_local!(static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) });
    // Taken out for the time of writing: pickling may run user code that gets here again.
    let mut buffer = BUFFER.take();
    buffer.clear();
    let build = references::Build::begin();
    write(&mut buffer)?;
    let found = build.found();
    if !found.is_empty() {
        return Ok(references::carry(buffer, found));
    }
    if buffer.len() > SCRATCH {
        return Ok(Bytes::from(buffer));
    }
    let bytes = Bytes::copy_from_slice(&buffer);
    BUFFER.set(buffer);
    Ok(bytes)
}

/// Call with one argument, the quickest way a stable interface has.
pub fn call_one<'py>(
    function: &Bound<'py, PyAny>,
    argument: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = function.py();
    // SAFETY: live objects, and the list of arguments ends with null.
    unsafe {
        let result = ffi::PyObject_CallFunctionObjArgs(
            function.as_ptr(),
            argument.as_ptr(),
            std::ptr::null_mut::<ffi::PyObject>(),
        );
        Bound::from_owned_ptr_or_err(py, result)
    }
}

fn call_two<'py>(
    function: &Bound<'py, PyAny>,
    first: &Bound<'py, PyAny>,
    second: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = function.py();
    // SAFETY: live objects, and the list of arguments ends with null.
    unsafe {
        let result = ffi::PyObject_CallFunctionObjArgs(
            function.as_ptr(),
            first.as_ptr(),
            second.as_ptr(),
            std::ptr::null_mut::<ffi::PyObject>(),
        );
        Bound::from_owned_ptr_or_err(py, result)
    }
}
