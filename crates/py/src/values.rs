//! Values to bytes and back.
//!
//! Plain pickle is asked first; it is quick and right for almost everything. It would name what lives in the main
//! script by reference, which no slot could follow, so a pickle that mentions `__main__` is made again by value.

use crate::buffers::{self, Collecting, Source};
use crate::loading;
use crate::references::{self, Travel};
use crate::scalar;
use bytes::Bytes;
use memchr::memmem;
use paceline_net::segments;
use paceline_proto::parts;
use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyTuple};
use std::cell::RefCell;
use std::ops::{Deref, DerefMut};

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

/// A payload in the making: bytes, and large buffers that are not among them.
pub struct Out {
    bytes: Vec<u8>,
    buffers: Vec<Source>,
}

impl Deref for Out {
    type Target = Vec<u8>;

    fn deref(&self) -> &Vec<u8> {
        &self.bytes
    }
}

impl DerefMut for Out {
    fn deref_mut(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
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
pub fn encode(value: &Bound<'_, PyAny>, root: Root, out: &mut Out) -> PyResult<()> {
    if scalar::write(value, &mut out.bytes, &mut out.buffers) {
        return Ok(());
    }
    let py = value.py();
    if buffers::has_none(value) {
        let pickle = pickle(py)?;
        let bytes = call_two(pickle.dumps.bind(py), value, pickle.protocol.bind(py));
        let bytes = bytes.and_then(|bytes| bytes.cast_into::<PyBytes>().map_err(PyErr::from));
        if let Ok(bytes) = &bytes
            && memmem::find(bytes.as_bytes(), b"__main__").is_none()
        {
            out.extend_from_slice(bytes.as_bytes());
            return Ok(());
        }
    }
    let mark = references::mark();
    let collecting = Collecting::new(py)?;
    let bytes = references::travelling(root.travel(), || match plain(value, root, &collecting) {
        Ok(bytes) if memmem::find(bytes.as_bytes(), b"__main__").is_none() => Ok(bytes),
        Err(error) if !error.is_instance_of::<pyo3::exceptions::PyException>(py) => Err(error),
        _ => {
            collecting.clear();
            // They are found again.
            references::since(mark);
            by_value(value, root, &collecting)
        }
    })?;
    if matches!(root, Root::Result) {
        references::pin_since(py, mark)?;
    }
    out.extend_from_slice(bytes.as_bytes());
    out.buffers.extend(collecting.take());
    Ok(())
}

fn plain<'py>(
    value: &Bound<'py, PyAny>,
    root: Root,
    collecting: &Collecting<'py>,
) -> PyResult<Bound<'py, PyBytes>> {
    let py = value.py();
    let pickle = pickle(py)?;
    let set_apart = buffers::set_apart(value, root)?;
    let value = set_apart.as_ref().unwrap_or(value);
    let arguments = PyTuple::new(py, [value, pickle.protocol.bind(py)])?;
    let bytes = pickle.dumps.bind(py).call(arguments, Some(collecting.options()))?;
    bytes.cast_into::<PyBytes>().map_err(PyErr::from)
}

fn by_value<'py>(
    value: &Bound<'py, PyAny>,
    root: Root,
    collecting: &Collecting<'py>,
) -> PyResult<Bound<'py, PyBytes>> {
    let py = value.py();
    let module = py.import(intern!(py, "paceline._pickling"))?;
    let arguments = (value, root.name(), collecting.collector());
    let bytes = module.getattr(intern!(py, "dumps"))?.call1(arguments)?;
    bytes.cast_into::<PyBytes>().map_err(PyErr::from)
}

/// The value of an encoding that is a payload of its own.
pub fn decode<'py>(py: Python<'py>, payload: &[u8]) -> PyResult<Bound<'py, PyAny>> {
    decode_part(py, payload, parts::inner(payload))
}

/// The value of an encoding that is in a payload, whose parts it may refer to.
pub fn decode_part<'py>(py: Python<'py>, payload: &[u8], bytes: &[u8]) -> PyResult<Bound<'py, PyAny>> {
    if let Some(value) = scalar::read(py, bytes, payload) {
        return Ok(value);
    }
    let loads = pickle(py)?.loads.bind(py);
    let bytes = PyBytes::new(py, bytes).into_any();
    loading::whole(|| {
        if !parts::is_parted(payload) {
            return call_one(loads, &bytes);
        }
        loads.call((bytes,), Some(&buffers::options(py, payload)?))
    })
}

/// Build a payload; small ones without growing a new buffer each time.
pub fn build(py: Python<'_>, write: impl FnOnce(&mut Out) -> PyResult<()>) -> PyResult<Bytes> {
    thread_local!(static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) });
    // Taken out for the time of writing: pickling may run user code that gets here again.
    let mut out = Out { bytes: BUFFER.take(), buffers: Vec::new() };
    out.bytes.clear();
    let build = references::Build::begin();
    write(&mut out)?;
    let found = build.found();
    let Out { bytes: buffer, buffers } = out;
    if !found.is_empty() {
        let bytes = match buffers.is_empty() {
            true => buffer.into(),
            false => segments::parted(&buffer, buffers::copy(py, &buffers)),
        };
        return Ok(references::carry(bytes, found));
    }
    if !buffers.is_empty() {
        let bytes = segments::parted(&buffer, buffers::copy(py, &buffers));
        if buffer.len() <= SCRATCH {
            BUFFER.set(buffer);
        }
        return Ok(bytes);
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
