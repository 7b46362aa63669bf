//! Plain arrays of numpy's to pickle and back without asking numpy, which takes longer than all the rest of a call.
//!
//! What is written is real pickle: a call of `numpy.ndarray` with the shape, the type and a buffer, which is in the pickle
//! if it is short and beside it if not.
//!
//! * AR-1: only arrays of exactly that class are written, which have something in them, lie in one piece in C order, and
//!   are of one of numpy's own types of numbers. All others numpy pickles itself.
//! * AR-2: numpy is not imported here. Who is sent an array before it was imported has the pickle module see to it, which
//!   is not stopped halfway.

use crate::buffers;
use crate::scalar::{
    self, BYTEARRAY8, BYTES8, MARK, NEXT_BUFFER, READONLY_BUFFER, REDUCE, SHORT_STRING, TUPLE,
};
use paceline_net::segments::{APART, Part, parts_of};
use paceline_proto::parts::MOST;
use pyo3::buffer::PyUntypedBuffer;
use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyByteArray, PyBytes, PyTuple};
use std::sync::Arc;

/// `numpy.ndarray`, and the beginning of its arguments.
const NDARRAY: &[u8] = b"\x8c\x05numpy\x8c\x07ndarray\x93(";

/// Types of numbers, by their letters. Of those that are the same to numpy the one that it prefers is first.
const TYPES: [&str; 16] = ["?", "b", "B", "h", "H", "i", "I", "l", "L", "q", "Q", "e", "f", "d", "F", "D"];

/// Dimensions, at most.
const DIMENSIONS: usize = 64;

struct Numpy {
    ndarray: Py<PyAny>,
    types: Vec<Type>,
}

struct Type {
    dtype: Py<PyAny>,
    /// What it is called everywhere: its order of bytes, its kind and its size.
    name: String,
}

static NUMPY: PyOnceLock<Numpy> = PyOnceLock::new();

impl Numpy {
    fn new(module: &Bound<'_, PyAny>) -> PyResult<Numpy> {
        let dtype = module.getattr("dtype")?;
        let one = |letter: &&str| {
            let dtype = dtype.call1((*letter,))?;
            let name = dtype.getattr("str")?.extract()?;
            Ok(Type { dtype: dtype.unbind(), name })
        };
        let types = TYPES.iter().map(one).collect::<PyResult<_>>()?;
        Ok(Numpy { ndarray: module.getattr("ndarray")?.unbind(), types })
    }

    /// If somebody has imported it.
    fn imported(py: Python<'_>) -> Option<&Numpy> {
        if let Some(numpy) = NUMPY.get(py) {
            return Some(numpy);
        }
        // SAFETY: a new reference, or null, without or with an error.
        let module = unsafe { ffi::PyImport_GetModule(intern!(py, "numpy").as_ptr()) };
        // SAFETY: as above.
        let Some(module) = (unsafe { Bound::from_owned_ptr_or_opt(py, module) }) else {
            drop(PyErr::take(py));
            return None;
        };
        NUMPY.get_or_try_init(py, || Numpy::new(&module)).ok()
    }
}

/// Append an array, if it is of a kind written here (AR-1). If not, nothing is left behind.
pub fn write(value: &Bound<'_, PyAny>, out: &mut Vec<u8>, beside: &mut Vec<PyUntypedBuffer>) -> bool {
    let py = value.py();
    let Some(numpy) = Numpy::imported(py) else { return false };
    if value.get_type_ptr().cast() != numpy.ndarray.as_ptr() {
        return false;
    }
    let Ok(dtype) = value.getattr(intern!(py, "dtype")) else { return false };
    let Some(found) = numpy.types.iter().find(|one| one.dtype.is(&dtype)) else { return false };
    let Ok(buffer) = PyUntypedBuffer::get(value) else { return false };
    let length = buffer.len_bytes();
    if length == 0 || !buffer.is_c_contiguous() {
        return false;
    }
    out.reserve(if length < APART { length + 128 } else { 128 });
    out.extend_from_slice(NDARRAY);
    out.push(MARK);
    buffer.shape().iter().for_each(|size| scalar::write_number(*size as i64, out));
    out.extend_from_slice(&[TUPLE, SHORT_STRING, found.name.len() as u8]);
    out.extend_from_slice(found.name.as_bytes());
    if length >= APART && beside.len() < MOST {
        out.push(NEXT_BUFFER);
        if buffer.readonly() {
            out.push(READONLY_BUFFER);
        }
        beside.push(buffer);
    } else {
        out.push(if buffer.readonly() { BYTES8 } else { BYTEARRAY8 });
        out.extend_from_slice(&(length as u64).to_le_bytes());
        // SAFETY: the buffer is held, its bytes lie in one piece, and we hold the interpreter while they are copied.
        out.extend_from_slice(unsafe { std::slice::from_raw_parts(buffer.buf_ptr().cast::<u8>(), length) });
    }
    out.extend_from_slice(&[TUPLE, REDUCE]);
    true
}

/// The buffers that have come beside a pickle, in turn.
pub struct Beside<'a> {
    payload: &'a [u8],
    parts: Option<Arc<Vec<Arc<Part>>>>,
    next: usize,
}

impl<'a> Beside<'a> {
    /// Those of this payload. Nothing is done before the first is asked for.
    pub fn of(payload: &'a [u8]) -> Beside<'a> {
        Beside { payload, parts: None, next: 0 }
    }

    fn next<'py>(&mut self, py: Python<'py>, readonly: bool) -> Option<Bound<'py, PyAny>> {
        if self.parts.is_none() {
            self.parts = parts_of(self.payload);
        }
        let part = self.parts.as_ref()?.get(self.next)?;
        self.next += 1;
        buffers::object(py, part, readonly).ok()
    }
}

/// Whether an array begins here.
pub fn is_next(rest: &[u8]) -> bool {
    rest.starts_with(NDARRAY)
}

/// The array that begins here, if it was written as above.
pub fn read<'py>(py: Python<'py>, rest: &mut &[u8], beside: &mut Beside<'_>) -> Option<Bound<'py, PyAny>> {
    let after = rest.strip_prefix(NDARRAY)?.strip_prefix(&[MARK])?;
    *rest = after;
    let mut shape = Vec::with_capacity(4);
    while *rest.first()? != TUPLE {
        if shape.len() == DIMENSIONS {
            return None;
        }
        shape.push(scalar::read_scalar(py, rest)?);
    }
    *rest = &rest[1..];
    let shape = PyTuple::new(py, shape).ok()?;
    let [_, length] = scalar::take::<2>(rest).filter(|[code, _]| *code == SHORT_STRING)?;
    let name = scalar::take_bytes(rest, usize::from(length))?;
    let numpy = Numpy::imported(py)?;
    let found = numpy.types.iter().find(|one| one.name.as_bytes() == name)?;
    let buffer = match scalar::take::<1>(rest)?[0] {
        NEXT_BUFFER => {
            let readonly = rest.first() == Some(&READONLY_BUFFER);
            *rest = &rest[usize::from(readonly)..];
            beside.next(py, readonly)?
        }
        BYTEARRAY8 => PyByteArray::new(py, long(rest)?).into_any(),
        BYTES8 => PyBytes::new(py, long(rest)?).into_any(),
        _ => return None,
    };
    (scalar::take::<2>(rest)? == [TUPLE, REDUCE]).then_some(())?;
    // SAFETY: live objects, and the list of arguments ends with null.
    let array = unsafe {
        let array = ffi::PyObject_CallFunctionObjArgs(
            numpy.ndarray.as_ptr(),
            shape.as_ptr(),
            found.dtype.as_ptr(),
            buffer.as_ptr(),
            std::ptr::null_mut::<ffi::PyObject>(),
        );
        Bound::from_owned_ptr_or_err(py, array)
    };
    array.ok()
}

fn long<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = u64::from_le_bytes(scalar::take(rest)?);
    scalar::take_bytes(rest, usize::try_from(length).ok()?)
}
