//! Plain arrays of numpy's to pickle and back without asking numpy, which takes longer than all the rest of a call.
//!
//! What is written is real pickle: a call of `numpy.ndarray` with the shape, the type and a buffer, which is in the pickle
//! if it is short and beside it if not.
//!
//! * AR-1: only arrays of exactly that class are written, which have something in them, lie in one piece in C order, and
//!   are of one of numpy's own types of numbers. All others numpy pickles itself.
//! * AR-2: numpy is not imported here. Who is sent an array before it was imported has the pickle module see to it, which
//!   is not stopped halfway.
//! * AR-3: what is short arrives as an array with memory of its own; what is long, over the memory it has come in.

use crate::buffers::{Memory, Source};
use crate::ndarray::Numpy;
use crate::scalar::{
    self, BYTEARRAY8, BYTES8, MARK, NEXT_BUFFER, READONLY_BUFFER, REDUCE, SHORT_STRING, TUPLE,
};
use paceline_net::segments::{APART, LARGE, Part, Parts, parts_of};
use paceline_proto::parts::MOST;
use pyo3::buffer::PyUntypedBuffer;
use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use std::sync::Arc;

/// `numpy.ndarray`, and the beginning of its arguments.
const NDARRAY: &[u8] = b"\x8c\x05numpy\x8c\x07ndarray\x93(";

/// Dimensions, at most.
const DIMENSIONS: usize = 64;

/// Append an array, if it is of a kind written here (AR-1). If not, nothing is left behind.
pub fn write(value: &Bound<'_, PyAny>, out: &mut Vec<u8>, beside: &mut Vec<Source>) -> bool {
    let Some(numpy) = Numpy::imported(value.py()) else { return false };
    let Some(seen) = numpy.look(value).filter(|seen| seen.length > 0) else { return false };
    let length = seen.length;
    let source = if length < APART || beside.len() == MOST {
        None
    } else if length < LARGE && beside.is_empty() {
        Some(Source::Bare { _of: value.clone().unbind(), begin: seen.begin, length })
    } else {
        let Ok(buffer) = PyUntypedBuffer::get(value) else { return false };
        Some(Source::Held(buffer))
    };
    out.reserve(if source.is_none() { length + 128 } else { 128 });
    out.extend_from_slice(NDARRAY);
    out.push(MARK);
    seen.shape.iter().for_each(|size| scalar::write_number(*size as i64, out));
    out.extend_from_slice(&[TUPLE, SHORT_STRING, seen.kind.name.len() as u8]);
    out.extend_from_slice(seen.kind.name.as_bytes());
    if let Some(source) = source {
        beside.push(source);
        out.push(NEXT_BUFFER);
        if seen.readonly {
            out.push(READONLY_BUFFER);
        }
    } else {
        out.push(if seen.readonly { BYTES8 } else { BYTEARRAY8 });
        out.extend_from_slice(&(length as u64).to_le_bytes());
        // SAFETY: the array lives, lies in one piece, and we hold the interpreter while it is copied.
        out.extend_from_slice(unsafe { std::slice::from_raw_parts(seen.begin, length) });
    }
    out.extend_from_slice(&[TUPLE, REDUCE]);
    true
}

/// The buffers that have come beside a pickle, in turn.
pub struct Beside<'a> {
    payload: &'a [u8],
    parts: Option<Arc<Parts>>,
    next: usize,
}

impl<'a> Beside<'a> {
    /// Those of this payload. Nothing is done before the first is asked for.
    pub fn of(payload: &'a [u8]) -> Beside<'a> {
        Beside { payload, parts: None, next: 0 }
    }

    fn next(&mut self) -> Option<&Arc<Part>> {
        if self.parts.is_none() {
            self.parts = parts_of(self.payload);
        }
        let part = self.parts.as_ref()?.get(self.next)?;
        self.next += 1;
        Some(part)
    }
}

/// Whether an array begins here.
pub fn is_next(rest: &[u8]) -> bool {
    rest.starts_with(NDARRAY)
}

/// The array that begins here, if it was written as above.
pub fn read<'py>(py: Python<'py>, rest: &mut &[u8], beside: &mut Beside<'_>) -> Option<Bound<'py, PyAny>> {
    *rest = rest.strip_prefix(NDARRAY)?.strip_prefix(&[MARK])?;
    let mut shape = [0; DIMENSIONS];
    let mut count = 0;
    while *rest.first()? != TUPLE {
        *shape.get_mut(count)? = scalar::read_number(rest)? as ffi::Py_ssize_t;
        count += 1;
    }
    *rest = &rest[1..];
    let shape = &shape[..count];
    let [_, length] = scalar::take::<2>(rest).filter(|[code, _]| *code == SHORT_STRING)?;
    let name = scalar::take_bytes(rest, usize::from(length))?;
    let numpy = Numpy::imported(py)?;
    let kind = numpy.kind(name)?;
    let code = scalar::take::<1>(rest)?[0];
    let array = match code {
        NEXT_BUFFER => {
            let readonly = rest.first() == Some(&READONLY_BUFFER);
            *rest = &rest[usize::from(readonly)..];
            let memory = Bound::new(py, Memory::of(beside.next()?)).ok()?;
            let place = memory.get().place();
            numpy.over(shape, kind, place, memory.into_any(), readonly)?
        }
        BYTEARRAY8 | BYTES8 => {
            let bytes = long(rest)?;
            let (array, begin) = numpy.array(py, shape, kind, bytes.len())?;
            // SAFETY: the array has as many bytes, and is known to nobody else.
            unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), begin, bytes.len()) };
            if code == BYTES8 {
                array.call_method1(intern!(py, "setflags"), (false,)).ok()?;
            }
            array
        }
        _ => return None,
    };
    (scalar::take::<2>(rest)? == [TUPLE, REDUCE]).then_some(array)
}

fn long<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = u64::from_le_bytes(scalar::take(rest)?);
    scalar::take_bytes(rest, usize::try_from(length).ok()?)
}
