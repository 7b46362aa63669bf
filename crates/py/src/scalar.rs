//! Numbers, strings, bytes, None, and lists of them, to pickle and back without asking the pickle module.
//!
//! What is written is real pickle, so the other side may read it with whatever it has. What this cannot write or read,
//! the pickle module does.
//!
//! * SC-1: only values of exactly these types are written; a subclass is the pickle module's to handle.
//! * SC-2: whatever bytes come, reading gives a value or declines; it never reads past the end.

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyFloat, PyInt, PyList, PyString};

const HEADER: [u8; 2] = [0x80, 5];
const STOP: u8 = b'.';
const NONE: u8 = b'N';
const TRUE: u8 = 0x88;
const FALSE: u8 = 0x89;
const BININT: u8 = b'J';
const BININT1: u8 = b'K';
const BININT2: u8 = b'M';
const LONG1: u8 = 0x8a;
const BINFLOAT: u8 = b'G';
const SHORT_STRING: u8 = 0x8c;
const STRING: u8 = b'X';
const SHORT_BYTES: u8 = b'C';
const EMPTY_LIST: u8 = b']';
const MARK: u8 = b'(';
const APPENDS: u8 = b'e';

/// Longer strings gain nothing here.
const MAX_STRING: usize = 4096;

/// Append the pickle of `value`, if it is of a kind written here. If not, `out` is as it was.
pub fn write(value: &Bound<'_, PyAny>, out: &mut Vec<u8>) -> bool {
    let start = out.len();
    out.extend_from_slice(&HEADER);
    let written = write_scalar(value, out) || write_list(value, out);
    if written {
        out.push(STOP);
    } else {
        out.truncate(start);
    }
    written
}

fn write_list(value: &Bound<'_, PyAny>, out: &mut Vec<u8>) -> bool {
    let Ok(list) = value.cast_exact::<PyList>() else { return false };
    out.extend_from_slice(&[EMPTY_LIST, MARK]);
    let written = list.iter().all(|item| write_scalar(&item, out));
    out.push(APPENDS);
    written
}

fn write_scalar(value: &Bound<'_, PyAny>, out: &mut Vec<u8>) -> bool {
    if let Ok(number) = value.cast_exact::<PyInt>() {
        return write_int(number, out);
    }
    if value.is_none() {
        out.push(NONE);
    } else if let Ok(number) = value.cast_exact::<PyFloat>() {
        out.push(BINFLOAT);
        out.extend_from_slice(&number.value().to_be_bytes());
    } else if let Ok(text) = value.cast_exact::<PyString>() {
        return write_string(text, out);
    } else if let Ok(truth) = value.cast_exact::<PyBool>() {
        out.push(if truth.is_true() { TRUE } else { FALSE });
    } else if let Ok(bytes) = value.cast_exact::<PyBytes>() {
        let bytes = bytes.as_bytes();
        let Ok(length) = u8::try_from(bytes.len()) else { return false };
        out.extend_from_slice(&[SHORT_BYTES, length]);
        out.extend_from_slice(bytes);
    } else {
        return false;
    }
    true
}

fn write_int(number: &Bound<'_, PyInt>, out: &mut Vec<u8>) -> bool {
    let mut overflow = 0;
    // SAFETY: the object is an int, which converts without running any code.
    let value = unsafe { ffi::PyLong_AsLongLongAndOverflow(number.as_ptr(), &mut overflow) };
    if overflow != 0 {
        return false;
    }
    if let Ok(byte) = u8::try_from(value) {
        out.extend_from_slice(&[BININT1, byte]);
    } else if let Ok(short) = u16::try_from(value) {
        out.push(BININT2);
        out.extend_from_slice(&short.to_le_bytes());
    } else if let Ok(int) = i32::try_from(value) {
        out.push(BININT);
        out.extend_from_slice(&int.to_le_bytes());
    } else {
        out.extend_from_slice(&[LONG1, 8]);
        out.extend_from_slice(&value.to_le_bytes());
    }
    true
}

fn write_string(text: &Bound<'_, PyString>, out: &mut Vec<u8>) -> bool {
    // Lone surrogates have no UTF-8; pickle has its own way with them.
    let Ok(text) = text.to_str() else { return false };
    match u8::try_from(text.len()) {
        Ok(length) => out.extend_from_slice(&[SHORT_STRING, length]),
        Err(_) if text.len() <= MAX_STRING => {
            out.push(STRING);
            out.extend_from_slice(&(text.len() as u32).to_le_bytes());
        }
        Err(_) => return false,
    }
    out.extend_from_slice(text.as_bytes());
    true
}

/// The value of a pickle, if it is of a kind read here.
pub fn read<'py>(py: Python<'py>, pickle: &[u8]) -> Option<Bound<'py, PyAny>> {
    let mut rest = pickle.strip_prefix(&HEADER)?.strip_suffix(&[STOP])?;
    let value = if let Some(items) = rest.strip_prefix(&[EMPTY_LIST, MARK]) {
        rest = items.strip_suffix(&[APPENDS])?;
        read_list(py, &mut rest)?
    } else {
        read_scalar(py, &mut rest)?
    };
    rest.is_empty().then_some(value)
}

fn read_list<'py>(py: Python<'py>, rest: &mut &[u8]) -> Option<Bound<'py, PyAny>> {
    let mut items = Vec::with_capacity(rest.len() / 2);
    while !rest.is_empty() {
        items.push(read_scalar(py, rest)?);
    }
    PyList::new(py, items).ok().map(Bound::into_any)
}

fn read_scalar<'py>(py: Python<'py>, rest: &mut &[u8]) -> Option<Bound<'py, PyAny>> {
    let (&code, after) = rest.split_first()?;
    *rest = after;
    match code {
        BININT1 => Some(int(py, i64::from(take::<1>(rest)?[0]))),
        BININT2 => Some(int(py, i64::from(u16::from_le_bytes(take(rest)?)))),
        BININT => Some(int(py, i64::from(i32::from_le_bytes(take(rest)?)))),
        LONG1 => {
            let [length] = take::<1>(rest)?;
            (length == 8).then_some(())?;
            Some(int(py, i64::from_le_bytes(take(rest)?)))
        }
        NONE => Some(py.None().into_bound(py)),
        TRUE => Some(PyBool::new(py, true).to_owned().into_any()),
        FALSE => Some(PyBool::new(py, false).to_owned().into_any()),
        BINFLOAT => Some(PyFloat::new(py, f64::from_be_bytes(take(rest)?)).into_any()),
        SHORT_STRING => {
            let [length] = take::<1>(rest)?;
            string(py, take_bytes(rest, usize::from(length))?)
        }
        STRING => {
            let length = u32::from_le_bytes(take(rest)?) as usize;
            string(py, take_bytes(rest, length)?)
        }
        SHORT_BYTES => {
            let [length] = take::<1>(rest)?;
            Some(PyBytes::new(py, take_bytes(rest, usize::from(length))?).into_any())
        }
        _ => None,
    }
}

fn int(py: Python<'_>, value: i64) -> Bound<'_, PyAny> {
    // SAFETY: makes a new reference, or null when memory is out, which PyO3 turns into a panic.
    unsafe { Bound::from_owned_ptr(py, ffi::PyLong_FromLongLong(value)) }
}

fn string<'py>(py: Python<'py>, bytes: &[u8]) -> Option<Bound<'py, PyAny>> {
    // Surrogates, which pickle writes in a way of its own, are not UTF-8: declined.
    std::str::from_utf8(bytes).ok().map(|text| PyString::new(py, text).into_any())
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (head, tail) = rest.split_first_chunk::<N>()?;
    *rest = tail;
    Some(*head)
}

fn take_bytes<'a>(rest: &mut &'a [u8], length: usize) -> Option<&'a [u8]> {
    let (head, tail) = rest.split_at_checked(length)?;
    *rest = tail;
    Some(head)
}
