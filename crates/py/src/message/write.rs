//! Python values to MessagePack.

use super::{MAX_DEPTH, numpy};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyByteArray, PyBytes, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple};
use rmp::encode;

const HINT: &str = "between languages go None, bool, int of 64 bits, float, str, bytes, lists, tuples and dicts of \
                    them, and numpy arrays of numbers";

/// Why a value cannot be written, and how to get to the part that is to blame, from the inside out.
pub struct Problem {
    reason: String,
    path: Vec<String>,
}

impl Problem {
    pub fn new(reason: impl Into<String>) -> Problem {
        Problem { reason: reason.into(), path: Vec::new() }
    }

    fn within(mut self, step: String) -> Problem {
        self.path.push(step);
        self
    }

    /// The error of this class for it.
    pub fn into_error(self, py: Python<'_>, class: &str, root: &str) -> PyErr {
        let steps: String = self.path.iter().rev().map(String::as_str).collect();
        let path = format!("{root}{steps}");
        let message = format!("cannot send {path} to another language: {}", self.reason);
        let made = py.import("paceline.errors").and_then(|module| {
            let fields = PyDict::new(py);
            fields.set_item("path", path)?;
            fields.set_item("hint", HINT)?;
            module.getattr(class)?.call((message,), Some(&fields))
        });
        made.map_or_else(|error| error, PyErr::from_value)
    }
}

/// The arguments of a call; nil if there are none, as the other side has it.
pub fn arguments(args: &Bound<'_, PyTuple>, out: &mut Vec<u8>) -> Result<(), Problem> {
    match args.is_empty() {
        true => put(encode::write_nil(out)),
        false => sequence(args.len(), args.iter(), out, MAX_DEPTH),
    }
}

pub fn value(value: &Bound<'_, PyAny>, out: &mut Vec<u8>) -> Result<(), Problem> {
    write(value, out, MAX_DEPTH)
}

fn write(value: &Bound<'_, PyAny>, out: &mut Vec<u8>, depth: usize) -> Result<(), Problem> {
    if scalar(value, out)? {
        return Ok(());
    }
    let Some(depth) = depth.checked_sub(1) else {
        return Err(Problem::new("it is nested too deeply, or contains itself"));
    };
    if let Ok(list) = value.cast::<PyList>() {
        sequence(list.len(), list.iter(), out, depth)
    } else if let Ok(tuple) = value.cast::<PyTuple>() {
        sequence(tuple.len(), tuple.iter(), out, depth)
    } else if let Ok(dict) = value.cast::<PyDict>() {
        mapping(dict, out, depth)
    } else if numpy::write(value, out)? {
        Ok(())
    } else {
        let kind = value.get_type();
        let name = kind.fully_qualified_name().map_or_else(|_| "?".into(), |name| name.to_string());
        Err(Problem::new(format!("it is a {name}")))
    }
}

fn scalar(value: &Bound<'_, PyAny>, out: &mut Vec<u8>) -> Result<bool, Problem> {
    if value.is_none() {
        put(encode::write_nil(out))?;
    } else if let Ok(truth) = value.cast::<PyBool>() {
        put(encode::write_bool(out, truth.is_true()))?;
    } else if let Ok(number) = value.cast::<PyInt>() {
        int(number, out)?;
    } else if let Ok(number) = value.cast::<PyFloat>() {
        put(encode::write_f64(out, number.value()))?;
    } else if let Ok(text) = value.cast::<PyString>() {
        let text = text.to_str().map_err(|_| Problem::new("it is a str that is not valid Unicode"))?;
        length(text.len())?;
        put(encode::write_str(out, text))?;
    } else if let Ok(bytes) = value.cast::<PyBytes>() {
        length(bytes.as_bytes().len())?;
        put(encode::write_bin(out, bytes.as_bytes()))?;
    } else if let Ok(bytes) = value.cast::<PyByteArray>() {
        let bytes = bytes.to_vec();
        length(bytes.len())?;
        put(encode::write_bin(out, &bytes))?;
    } else {
        return Ok(false);
    }
    Ok(true)
}

fn int(number: &Bound<'_, PyInt>, out: &mut Vec<u8>) -> Result<(), Problem> {
    let mut overflow = 0;
    // SAFETY: the object is an int, which converts without running any code.
    let signed = unsafe { ffi::PyLong_AsLongLongAndOverflow(number.as_ptr(), &mut overflow) };
    if overflow == 0 {
        return put(encode::write_sint(out, signed));
    }
    match number.extract::<u64>() {
        Ok(unsigned) => put(encode::write_uint(out, unsigned)),
        Err(_) => Err(Problem::new("it is an int that does not fit 64 bits")),
    }
}

fn sequence<'py>(
    count: usize,
    items: impl Iterator<Item = Bound<'py, PyAny>>,
    out: &mut Vec<u8>,
    depth: usize,
) -> Result<(), Problem> {
    put(encode::write_array_len(out, length(count)?))?;
    for (index, item) in items.enumerate() {
        write(&item, out, depth).map_err(|problem| problem.within(format!("[{index}]")))?;
    }
    Ok(())
}

fn mapping(dict: &Bound<'_, PyDict>, out: &mut Vec<u8>, depth: usize) -> Result<(), Problem> {
    put(encode::write_map_len(out, length(dict.len())?))?;
    for (key, item) in dict {
        let step = || format!("[{}]", key.repr().map_or_else(|_| "?".into(), |text| text.to_string()));
        if !scalar(&key, out).map_err(|problem| problem.within(step()))? {
            let kind = key.get_type().to_string();
            return Err(Problem::new(format!("its key is a {kind}")).within(step()));
        }
        write(&item, out, depth).map_err(|problem| problem.within(step()))?;
    }
    Ok(())
}

pub fn length(count: usize) -> Result<u32, Problem> {
    u32::try_from(count).map_err(|_| Problem::new("it is longer than 32 bits can say"))
}

/// Writing to memory cannot fail; the codec does not know that.
pub fn put<T, E>(written: Result<T, E>) -> Result<(), Problem> {
    written.map(drop).map_err(|_| Problem::new("there is no memory for it"))
}
