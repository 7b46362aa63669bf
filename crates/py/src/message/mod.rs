//! Calls and values that cross languages: MessagePack, read and written here so that Python needs no package for it.
//!
//! * MS-1: what cannot be written is an error that names the part, before anything is sent.
//! * MS-2: numpy is imported only by who has an array in hand or is sent one.
//! * MS-3: whatever bytes come, reading gives a value or an error; it never reads past the end.

mod numpy;
mod read;
mod write;

use crate::values;
use bytes::Bytes;
use paceline::exchange::{CALL, EACH, Failure, chunk};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};
use write::Problem;

/// Containers within containers, at most.
const MAX_DEPTH: usize = 128;

/// `function(*args)`
pub fn call(args: &Bound<'_, PyTuple>, kwargs: Option<&Bound<'_, PyDict>>) -> PyResult<Bytes> {
    if kwargs.is_some_and(|kwargs| !kwargs.is_empty()) {
        let message = "a function of another language takes its arguments by position, not by keyword";
        return Err(PyTypeError::new_err(message));
    }
    values::build(args.py(), |out| {
        out.push(CALL);
        arguments(args, out)
    })
}

/// `function(item)`, or `function(*item)`
pub fn item(item: &Bound<'_, PyAny>, star: bool) -> PyResult<Bytes> {
    call(&as_arguments(item, star)?, None)
}

/// `[function(item) for item in items]`, or `[function(*item) for item in items]`
pub fn each(items: &Bound<'_, PyList>, star: bool) -> PyResult<Bytes> {
    values::build(items.py(), |out| {
        out.push(EACH);
        for item in items {
            let args = as_arguments(&item, star)?;
            chunk::push(out, |out| arguments(&args, out), too_long)?;
        }
        Ok(())
    })
}

fn as_arguments<'py>(item: &Bound<'py, PyAny>, star: bool) -> PyResult<Bound<'py, PyTuple>> {
    match star {
        true => item.py().get_type::<PyTuple>().call1((item,))?.cast_into().map_err(PyErr::from),
        false => PyTuple::new(item.py(), [item]),
    }
}

fn arguments(args: &Bound<'_, PyTuple>, out: &mut Vec<u8>) -> PyResult<()> {
    write::arguments(args, out)
        .map_err(|problem| problem.into_error(args.py(), "ArgumentNotSerializable", "args"))
}

fn too_long() -> PyErr {
    PyValueError::new_err("more than 4 GiB cannot travel in one piece")
}

/// What a function of another language gave.
pub fn value<'py>(py: Python<'py>, bytes: &[u8], is_chunk: bool) -> PyResult<Bound<'py, PyAny>> {
    if !is_chunk {
        return read::value(py, bytes);
    }
    let values = PyList::empty(py);
    for bytes in chunk::iter(bytes) {
        let bytes = bytes.ok_or_else(|| PyValueError::new_err("the values are cut off"))?;
        values.append(read::value(py, bytes)?)?;
    }
    Ok(values.into_any())
}

/// Whether another language has sent this call.
pub fn is_foreign(payload: &[u8]) -> bool {
    matches!(payload.first(), Some(&(CALL | EACH)))
}

/// What went wrong with a call from another language.
pub enum Trouble {
    /// The function, or something on the way to it, raised this.
    Raised(PyErr),
    /// Its value cannot travel.
    Value(PyErr),
}

impl From<PyErr> for Trouble {
    fn from(error: PyErr) -> Trouble {
        Trouble::Raised(error)
    }
}

/// In a slot: apply a function as a payload says, and encode what it gives.
pub fn apply(function: &Bound<'_, PyAny>, payload: &[u8]) -> Result<Bytes, Trouble> {
    let mut out = Vec::new();
    match payload.split_first() {
        Some((&EACH, each)) => {
            for arguments in chunk::iter(each) {
                let arguments = arguments.ok_or_else(|| PyValueError::new_err("the calls are cut off"))?;
                let value = apply_one(function, arguments)?;
                chunk::push(&mut out, |out| result(&value, out), || Trouble::Value(too_long()))?;
            }
        }
        Some((&CALL, arguments)) => result(&apply_one(function, arguments)?, &mut out)?,
        _ => return Err(PyValueError::new_err("a malformed call").into()),
    }
    Ok(out.into())
}

fn apply_one<'py>(function: &Bound<'py, PyAny>, arguments: &[u8]) -> PyResult<Bound<'py, PyAny>> {
    let arguments = read::value(function.py(), arguments)?;
    if arguments.is_none() {
        return function.call0();
    }
    function.call1(arguments.cast::<PyList>()?.to_tuple())
}

fn result(value: &Bound<'_, PyAny>, out: &mut Vec<u8>) -> Result<(), Trouble> {
    let error = |problem: Problem| problem.into_error(value.py(), "ResultNotSerializable", "result");
    write::value(value, out).map_err(|problem| Trouble::Value(error(problem)))
}

/// In a slot: what went wrong, for the language that called.
pub fn failure(py: Python<'_>, trouble: Trouble) -> PyResult<Bytes> {
    let failure = match trouble {
        Trouble::Value(error) => Failure::Value { message: error.value(py).to_string() },
        Trouble::Raised(error) => raised(py, error)?,
    };
    failure.encode().map(Bytes::from).map_err(PyValueError::new_err)
}

fn raised(py: Python<'_>, error: PyErr) -> PyResult<Failure> {
    let module = py.import(intern!(py, "paceline._slot.failing"))?;
    let told = module.getattr(intern!(py, "tell"))?.call1((error.into_value(py),))?;
    let (kind, message, traceback, known): (String, String, String, Option<Vec<String>>) = told.extract()?;
    Ok(match known {
        Some(known) => Failure::NoSuchTask { known },
        None => Failure::Raised { kind, message, traceback },
    })
}
