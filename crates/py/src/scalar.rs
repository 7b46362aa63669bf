//! Small plain values to pickle and back without asking the pickle module: numbers, strings, bytes, None, plain arrays
//! (`arrays.rs`), and lists, tuples and dictionaries of them.
//!
//! What is written is real pickle, so the other side may read it with whatever it has. What this cannot write or read,
//! the pickle module does.
//!
//! * SC-1: only values of exactly these types are written; a subclass is the pickle module's to handle.
//! * SC-2: whatever bytes come, reading gives a value or declines; it never reads past the end.
//! * SC-3: a list, dictionary or array that occurs twice is the pickle module's, which keeps it one.

use crate::arrays::{self, Beside};
use crate::buffers::Source;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple};

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
pub const SHORT_STRING: u8 = 0x8c;
const SHORT_BYTES: u8 = b'C';
const EMPTY_LIST: u8 = b']';
const EMPTY_DICT: u8 = b'}';
pub const MARK: u8 = b'(';
const APPENDS: u8 = b'e';
const SETITEMS: u8 = b'u';
pub const TUPLE: u8 = b't';
pub const REDUCE: u8 = b'R';
pub const BYTES8: u8 = 0x8e;
pub const BYTEARRAY8: u8 = 0x96;
pub const NEXT_BUFFER: u8 = 0x97;
pub const READONLY_BUFFER: u8 = 0x98;

/// Containers within containers, at most.
const MAX_DEPTH: usize = 4;

/// Append the pickle of `value`, if it is of a kind written here, and long buffers to those beside it. If not, both are as
/// they were.
pub fn write(value: &Bound<'_, PyAny>, out: &mut Vec<u8>, beside: &mut Vec<Source>) -> bool {
    let (start, before) = (out.len(), beside.len());
    out.extend_from_slice(&HEADER);
    let mut writer = Writer { out, beside, containers: Vec::new() };
    let written = writer.write(value, MAX_DEPTH) && writer.nothing_twice();
    if written {
        out.push(STOP);
    } else {
        out.truncate(start);
        beside.truncate(before);
    }
    written
}

struct Writer<'a> {
    out: &'a mut Vec<u8>,
    beside: &'a mut Vec<Source>,
    /// Addresses of the lists, dictionaries and arrays written so far.
    containers: Vec<usize>,
}

impl Writer<'_> {
    fn write(&mut self, value: &Bound<'_, PyAny>, depth: usize) -> bool {
        write_scalar(value, self.out) || (depth > 0 && self.write_container(value, depth - 1))
    }

    fn write_container(&mut self, value: &Bound<'_, PyAny>, depth: usize) -> bool {
        if let Ok(list) = value.cast_exact::<PyList>() {
            self.containers.push(value.as_ptr() as usize);
            self.out.extend_from_slice(&[EMPTY_LIST, MARK]);
            let written = list.iter().all(|item| self.write(&item, depth));
            self.out.push(APPENDS);
            written
        } else if let Ok(dict) = value.cast_exact::<PyDict>() {
            self.containers.push(value.as_ptr() as usize);
            self.out.extend_from_slice(&[EMPTY_DICT, MARK]);
            let written =
                dict.iter().all(|(key, item)| write_scalar(&key, self.out) && self.write(&item, depth));
            self.out.push(SETITEMS);
            written
        } else if let Ok(tuple) = value.cast_exact::<PyTuple>() {
            self.out.push(MARK);
            let written = tuple.iter().all(|item| self.write(&item, depth));
            self.out.push(TUPLE);
            written
        } else {
            self.write_array(value)
        }
    }

    fn write_array(&mut self, value: &Bound<'_, PyAny>) -> bool {
        let written = arrays::write(value, self.out, self.beside);
        if written {
            self.containers.push(value.as_ptr() as usize);
        }
        written
    }

    fn nothing_twice(&mut self) -> bool {
        self.containers.sort_unstable();
        self.containers.windows(2).all(|pair| pair[0] != pair[1])
    }
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
    write_number(value, out);
    true
}

pub fn write_number(value: i64, out: &mut Vec<u8>) {
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
}

fn write_string(text: &Bound<'_, PyString>, out: &mut Vec<u8>) -> bool {
    // Lone surrogates have no UTF-8; pickle has its own way with them. Long strings may occur often, and pickle writes
    // them once.
    let Ok(text) = text.to_str() else { return false };
    let Ok(length) = u8::try_from(text.len()) else { return false };
    out.extend_from_slice(&[SHORT_STRING, length]);
    out.extend_from_slice(text.as_bytes());
    true
}

/// The value of a pickle in a payload, if it is of a kind read here.
pub fn read<'py, 'a>(py: Python<'py>, pickle: &'a [u8], payload: &'a [u8]) -> Option<Bound<'py, PyAny>> {
    let rest = pickle.strip_prefix(&HEADER)?;
    let mut reader = Reader { py, rest, beside: Beside::of(payload), keys: [const { None }; KEYS] };
    let value = reader.read(MAX_DEPTH)?;
    (reader.rest == [STOP]).then_some(value)
}

/// How many keys of dictionaries a reader remembers.
const KEYS: usize = 32;

struct Reader<'a, 'py> {
    py: Python<'py>,
    rest: &'a [u8],
    beside: Beside<'a>,
    /// Keys read before, with their bytes: the dictionaries of a list mostly have the same ones, and an object that is
    /// used again need not be made, nor its hash computed.
    keys: [Option<(&'a [u8], Bound<'py, PyAny>)>; KEYS],
}

impl<'a, 'py> Reader<'a, 'py> {
    fn read(&mut self, depth: usize) -> Option<Bound<'py, PyAny>> {
        match *self.rest {
            [EMPTY_LIST, MARK, ..] if depth > 0 => {
                self.rest = &self.rest[2..];
                let items = self.items(APPENDS, depth - 1)?;
                PyList::new(self.py, items).ok().map(Bound::into_any)
            }
            [EMPTY_DICT, MARK, ..] if depth > 0 => {
                self.rest = &self.rest[2..];
                self.dict(depth - 1)
            }
            [MARK, ..] if depth > 0 => {
                self.rest = &self.rest[1..];
                let items = self.items(TUPLE, depth - 1)?;
                PyTuple::new(self.py, items).ok().map(Bound::into_any)
            }
            [SHORT_STRING, 5, b'n', ..] if arrays::is_next(self.rest) => {
                arrays::read(self.py, &mut self.rest, &mut self.beside)
            }
            _ => read_scalar(self.py, &mut self.rest),
        }
    }

    fn items(&mut self, end: u8, depth: usize) -> Option<Vec<Bound<'py, PyAny>>> {
        let mut items = Vec::with_capacity(if depth + 1 == MAX_DEPTH { self.rest.len() / 8 } else { 4 });
        loop {
            if *self.rest.first()? == end {
                self.rest = &self.rest[1..];
                return Some(items);
            }
            items.push(self.read(depth)?);
        }
    }

    fn dict(&mut self, depth: usize) -> Option<Bound<'py, PyAny>> {
        let dict = PyDict::new(self.py);
        loop {
            if *self.rest.first()? == SETITEMS {
                self.rest = &self.rest[1..];
                return Some(dict.into_any());
            }
            let key = self.key()?;
            let value = self.read(depth)?;
            dict.set_item(key, value).ok()?;
        }
    }

    fn key(&mut self) -> Option<Bound<'py, PyAny>> {
        let [SHORT_STRING, length, after @ ..] = self.rest else {
            return read_scalar(self.py, &mut self.rest);
        };
        let (bytes, after) = after.split_at_checked(usize::from(*length))?;
        let mix = |byte: Option<&u8>| byte.map_or(0, |byte| usize::from(*byte));
        let place = (bytes.len() * 7 + mix(bytes.first()) * 31 + mix(bytes.last())) % KEYS;
        self.rest = after;
        if let Some((known, key)) = &self.keys[place]
            && *known == bytes
        {
            return Some(key.clone());
        }
        let key = string(self.py, bytes)?;
        self.keys[place] = Some((bytes, key.clone()));
        Some(key)
    }
}

/// A whole number of up to 64 bits.
pub fn read_number(rest: &mut &[u8]) -> Option<i64> {
    match take::<1>(rest)?[0] {
        BININT1 => Some(i64::from(take::<1>(rest)?[0])),
        BININT2 => Some(i64::from(u16::from_le_bytes(take(rest)?))),
        BININT => Some(i64::from(i32::from_le_bytes(take(rest)?))),
        LONG1 => (take::<1>(rest)? == [8]).then_some(i64::from_le_bytes(take(rest)?)),
        _ => None,
    }
}

pub fn read_scalar<'py>(py: Python<'py>, rest: &mut &[u8]) -> Option<Bound<'py, PyAny>> {
    let (&code, after) = rest.split_first()?;
    if matches!(code, BININT1 | BININT2 | BININT | LONG1) {
        return read_number(rest).map(|number| int(py, number));
    }
    *rest = after;
    match code {
        NONE => Some(py.None().into_bound(py)),
        TRUE => Some(PyBool::new(py, true).to_owned().into_any()),
        FALSE => Some(PyBool::new(py, false).to_owned().into_any()),
        BINFLOAT => Some(PyFloat::new(py, f64::from_be_bytes(take(rest)?)).into_any()),
        SHORT_STRING => {
            let [length] = take::<1>(rest)?;
            string(py, take_bytes(rest, usize::from(length))?)
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

pub fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (head, tail) = rest.split_first_chunk::<N>()?;
    *rest = tail;
    Some(*head)
}

pub fn take_bytes<'a>(rest: &mut &'a [u8], length: usize) -> Option<&'a [u8]> {
    let (head, tail) = rest.split_at_checked(length)?;
    *rest = tail;
    Some(head)
}
