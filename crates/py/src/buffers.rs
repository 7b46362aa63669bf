//! Large buffers of values: they are not pickled but travel beside the pickle, and arrive as memory to read and write.
//!
//! * BU-1: what is small costs nothing: a value in which there can be no buffer is pickled as ever.
//! * BU-2: a buffer is copied once when it is sent, and not at all when it has come. `bytes` and `bytearray` own their
//!   memory, so they are copied then as well.

use crate::values::Root;
use paceline_net::segments::{APART, LARGE, Part, View, parts_of};
use parking_lot::Mutex;
use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::PyValueError;
use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{
    PyBool, PyByteArray, PyBytes, PyDict, PyFloat, PyInt, PyList, PyMemoryView, PyNone, PyString, PyTuple,
    PyType,
};
use std::cell::RefCell;
use std::ffi::c_int;
use std::sync::Arc;

/// Objects that are looked at to find out that there is no buffer among them.
const LOOK_AT: usize = 32;

/// The interpreter is released for copies from here on.
const WORTH_RELEASING: usize = 1 << 20;

/// Collects large buffers while a value is pickled.
#[pyclass(frozen, module = "paceline._native")]
#[derive(Default)]
pub struct Collector {
    buffers: Mutex<Vec<PyUntypedBuffer>>,
}

#[pymethods]
impl Collector {
    /// Whether the buffer is to be in the pickle after all.
    fn __call__(&self, buffer: &Bound<'_, PyAny>) -> bool {
        // What has no plain memory is for the pickler to refuse.
        let Ok(buffer) = PyUntypedBuffer::get(buffer) else { return true };
        let in_one_piece = buffer.is_c_contiguous() || buffer.is_fortran_contiguous();
        if buffer.len_bytes() < APART || !in_one_piece {
            return true;
        }
        let mut buffers = self.buffers.lock();
        let full = buffers.len() >= paceline_proto::parts::MOST;
        if !full {
            buffers.push(buffer);
        }
        full
    }

    fn clear(&self) {
        let buffers = std::mem::take(&mut *self.buffers.lock());
        // PY-1: letting go of them may run Python code.
        drop(buffers);
    }
}

/// A collector in use. They are used again, one for each thread that pickles.
pub struct Collecting<'py> {
    collector: Bound<'py, Collector>,
    options: Bound<'py, PyDict>,
}

thread_local! {
    static SPARE: RefCell<Option<(Py<Collector>, Py<PyDict>)>> = const { RefCell::new(None) };
}

impl<'py> Collecting<'py> {
    pub fn new(py: Python<'py>) -> PyResult<Collecting<'py>> {
        if let Some((collector, options)) = SPARE.take() {
            return Ok(Collecting { collector: collector.into_bound(py), options: options.into_bound(py) });
        }
        let collector = Bound::new(py, Collector::default())?;
        let options = PyDict::new(py);
        options.set_item(intern!(py, "buffer_callback"), &collector)?;
        Ok(Collecting { collector, options })
    }

    /// The keywords that make a pickler use it.
    pub fn options(&self) -> &Bound<'py, PyDict> {
        &self.options
    }

    pub fn collector(&self) -> &Bound<'py, Collector> {
        &self.collector
    }

    pub fn clear(&self) {
        self.collector.get().clear();
    }

    pub fn take(&self) -> impl Iterator<Item = Source> {
        std::mem::take(&mut *self.collector.get().buffers.lock()).into_iter().map(Source::Held)
    }
}

impl Drop for Collecting<'_> {
    fn drop(&mut self) {
        self.clear();
        SPARE.set(Some((self.collector.clone().unbind(), self.options.clone().unbind())));
    }
}

/// Whether there is surely no buffer in a value (BU-1).
pub fn has_none(value: &Bound<'_, PyAny>) -> bool {
    fn look(value: &Bound<'_, PyAny>, left: &mut usize) -> bool {
        if *left == 0 {
            return false;
        }
        *left -= 1;
        if value.cast_exact::<PyString>().is_ok()
            || value.cast_exact::<PyInt>().is_ok()
            || value.cast_exact::<PyFloat>().is_ok()
            || value.cast_exact::<PyBool>().is_ok()
            || value.cast_exact::<PyNone>().is_ok()
        {
            return true;
        }
        if let Ok(bytes) = value.cast_exact::<PyBytes>() {
            return bytes.as_bytes().len() < LARGE;
        }
        if let Ok(list) = value.cast_exact::<PyList>() {
            return list.iter().all(|item| look(&item, left));
        }
        if let Ok(tuple) = value.cast_exact::<PyTuple>() {
            return tuple.iter().all(|item| look(&item, left));
        }
        if let Ok(dict) = value.cast_exact::<PyDict>() {
            return dict.iter().all(|(key, item)| look(&key, left) && look(&item, left));
        }
        false
    }
    look(value, &mut LOOK_AT.clone())
}

/// Bytes that are pickled as a large buffer: by itself pickle always has them in the pickle.
#[pyclass(frozen, module = "paceline._native")]
pub struct Apart {
    value: Py<PyAny>,
}

#[pymethods]
impl Apart {
    fn __reduce_ex__<'py>(
        &self,
        py: Python<'py>,
        _protocol: i32,
    ) -> PyResult<(Bound<'py, PyType>, (Bound<'py, PyAny>,))> {
        let module = py.import(intern!(py, "_pickle"))?;
        let buffer = module.getattr(intern!(py, "PickleBuffer"))?.call1((&self.value,))?;
        Ok((self.value.bind(py).get_type(), (buffer,)))
    }
}

fn is_large(value: &Bound<'_, PyAny>) -> bool {
    if let Ok(bytes) = value.cast_exact::<PyBytes>() {
        return bytes.as_bytes().len() >= LARGE;
    }
    value.cast_exact::<PyByteArray>().is_ok_and(|bytes| bytes.len() >= LARGE)
}

/// The value with large bytes among the arguments, or at the root of a result, set apart. None: there are none.
pub fn set_apart<'py>(value: &Bound<'py, PyAny>, root: Root) -> PyResult<Option<Bound<'py, PyAny>>> {
    let mut known = Vec::new();
    match root {
        Root::Value => one(value, &mut known),
        Root::Result if value.cast_exact::<PyTuple>().is_err() => one(value, &mut known),
        Root::Result | Root::Arguments => tuple(value, &mut known),
        Root::Call => {
            let Ok(both) = value.cast_exact::<PyTuple>() else { return Ok(None) };
            let (args, kwargs) = (both.get_item(0)?, both.get_item(1)?);
            let changed = (tuple(&args, &mut known)?, keywords(&kwargs, &mut known)?);
            if let (None, None) = changed {
                return Ok(None);
            }
            let both = (changed.0.unwrap_or(args), changed.1.unwrap_or(kwargs));
            Ok(Some(both.into_pyobject(value.py())?.into_any()))
        }
    }
}

/// Those that were set apart, each once: what is one object here is one object there.
type Known<'py> = Vec<(usize, Bound<'py, PyAny>)>;

fn one<'py>(value: &Bound<'py, PyAny>, known: &mut Known<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
    if !is_large(value) {
        return Ok(None);
    }
    let address = value.as_ptr() as usize;
    if let Some((_, apart)) = known.iter().find(|(known, _)| *known == address) {
        return Ok(Some(apart.clone()));
    }
    let apart = Bound::new(value.py(), Apart { value: value.clone().unbind() })?.into_any();
    known.push((address, apart.clone()));
    Ok(Some(apart))
}

fn tuple<'py>(value: &Bound<'py, PyAny>, known: &mut Known<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
    let Ok(items) = value.cast_exact::<PyTuple>() else { return Ok(None) };
    if !items.iter().any(|item| is_large(&item)) {
        return Ok(None);
    }
    let items = items.iter().map(|item| Ok(one(&item, known)?.unwrap_or(item)));
    let items: Vec<_> = items.collect::<PyResult<_>>()?;
    Ok(Some(PyTuple::new(value.py(), items)?.into_any()))
}

fn keywords<'py>(value: &Bound<'py, PyAny>, known: &mut Known<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
    let Ok(dict) = value.cast_exact::<PyDict>() else { return Ok(None) };
    if !dict.iter().any(|(_, item)| is_large(&item)) {
        return Ok(None);
    }
    let changed = PyDict::new(value.py());
    for (key, item) in dict {
        changed.set_item(key, one(&item, known)?.unwrap_or(item))?;
    }
    Ok(Some(changed.into_any()))
}

/// A buffer to be sent.
pub enum Source {
    /// Held, so that nobody moves it.
    Held(PyUntypedBuffer),
    /// Of an object that is kept. Nobody moves it as long as the interpreter is not released.
    Bare { _of: Py<PyAny>, begin: *mut u8, length: usize },
}

impl Source {
    fn bytes(&self) -> &[u8] {
        let (begin, length) = match self {
            Source::Held(buffer) => (buffer.buf_ptr().cast::<u8>(), buffer.len_bytes()),
            Source::Bare { begin, length, .. } => (*begin, *length),
        };
        // SAFETY: what has them is kept, and they are in one piece. If another thread writes them meanwhile, what arrives
        // is some mixture, as it would be for any reader.
        unsafe { std::slice::from_raw_parts(begin, length) }
    }
}

/// Copy buffers to where they are sent from.
pub fn copy(py: Python<'_>, sources: &[Source]) -> impl Iterator<Item = Part> {
    let worth_releasing = sources.iter().map(|source| source.bytes().len()).sum::<usize>() >= WORTH_RELEASING;
    let one = move |source: &Source| match source {
        Source::Held(_) if worth_releasing => {
            let bytes = source.bytes();
            crate::ending::detach(py, || Part::copy_of(bytes))
        }
        source => Part::copy_of(source.bytes()),
    };
    sources.iter().map(one)
}

/// A large buffer that has come.
#[pyclass(frozen, module = "paceline._native")]
pub struct Memory {
    view: View,
}

impl Memory {
    pub fn of(part: &Arc<Part>) -> Memory {
        Memory { view: View::of(part) }
    }

    /// Where it is, and how long.
    pub fn place(&self) -> (*mut u8, usize) {
        (self.view.begin(), self.view.len())
    }
}

#[pymethods]
impl Memory {
    unsafe fn __getbuffer__(slf: Bound<'_, Memory>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        let memory = &slf.get().view;
        // SAFETY: the interpreter's own structure, filled by its own function; the memory lives as long as this object, to
        // which the structure gets a reference.
        let filled = unsafe {
            let length = memory.len() as ffi::Py_ssize_t;
            ffi::PyBuffer_FillInfo(view, slf.as_ptr(), memory.begin().cast(), length, 0, flags)
        };
        if filled == 0 { Ok(()) } else { Err(PyErr::fetch(slf.py())) }
    }
}

/// A part of a payload as an object that has its memory.
pub fn object<'py>(py: Python<'py>, part: &Arc<Part>, readonly: bool) -> PyResult<Bound<'py, PyAny>> {
    let memory = Bound::new(py, Memory::of(part))?.into_any();
    if readonly { to_readonly(&memory) } else { Ok(memory) }
}

fn to_readonly<'py>(memory: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    PyMemoryView::from(memory)?.call_method0(intern!(memory.py(), "toreadonly"))
}

/// The keywords that make `loads` find the parts of a payload.
pub fn options<'py>(py: Python<'py>, payload: &[u8]) -> PyResult<Bound<'py, PyDict>> {
    let parts =
        parts_of(payload).ok_or_else(|| PyValueError::new_err("the large buffers of this value are gone"))?;
    let list = PyList::empty(py);
    for part in parts.iter() {
        // One that must be copied may take a while, but that is rare.
        list.append(object(py, part, false)?)?;
    }
    let options = PyDict::new(py);
    options.set_item(intern!(py, "buffers"), list)?;
    Ok(options)
}
