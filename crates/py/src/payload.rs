//! What a call carries: how to apply the function, and to what.

use crate::values::{self, Root};
use bytes::Bytes;
use paceline::makers::AGAIN;
use paceline_net::segments::{LARGE, User};
use paceline_proto::parts;
use pyo3::exceptions::{PyKeyboardInterrupt, PyValueError};
use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyString, PyTuple};

/// First byte of a payload.
const ONE: u8 = 0;
const ARGUMENTS: u8 = 1;
const CALL: u8 = 2;
const EACH: u8 = 3;
const EACH_STAR: u8 = 4;

/// `function(*args, **kwargs)`
pub fn call(args: &Bound<'_, PyTuple>, kwargs: Option<&Bound<'_, PyDict>>) -> PyResult<Bytes> {
    let kwargs = kwargs.filter(|kwargs| !kwargs.is_empty());
    values::build(args.py(), |out| match kwargs {
        Some(kwargs) => {
            out.push(CALL);
            let both = PyTuple::new(args.py(), [args.as_any(), kwargs.as_any()])?;
            values::encode(&both, Root::Call, out)
        }
        None if args.len() == 1 => {
            out.push(ONE);
            values::encode(&args.get_item(0)?, Root::Value, out)
        }
        None => {
            out.push(ARGUMENTS);
            values::encode(args, Root::Arguments, out)
        }
    })
}

/// `function(item)`, or `function(*item)`
pub fn item(item: &Bound<'_, PyAny>, star: bool) -> PyResult<Bytes> {
    values::build(item.py(), |out| {
        if star {
            let args = as_tuple(item)?;
            out.push(ARGUMENTS);
            values::encode(&args, Root::Arguments, out)
        } else {
            out.push(ONE);
            values::encode(item, Root::Value, out)
        }
    })
}

/// `[function(item) for item in items]`, or `[function(*item) for item in items]`
pub fn chunk(items: &Bound<'_, PyList>, star: bool) -> PyResult<Bytes> {
    values::build(items.py(), |out| {
        out.push(if star { EACH_STAR } else { EACH });
        values::encode(items, Root::Value, out)
    })
}

fn as_tuple<'py>(item: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyTuple>> {
    match item.cast_exact::<PyTuple>() {
        Ok(tuple) => Ok(tuple.clone()),
        Err(_) => item.py().get_type::<PyTuple>().call1((item,))?.cast_into().map_err(PyErr::from),
    }
}

/// Apply a function as a payload says.
pub fn apply<'py>(function: &Bound<'py, PyAny>, payload: &[u8]) -> PyResult<Bound<'py, PyAny>> {
    apply_keeping(function, payload, &mut None)
}

/// As [`apply`]. When to let go of arguments whose memory has been copied, which takes a while, is left to the caller.
pub fn apply_keeping<'py>(
    function: &Bound<'py, PyAny>,
    payload: &[u8],
    kept: &mut Option<Py<PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    if !parts::is_parted(payload) {
        return Arguments::read(function.py(), payload)?.apply(function);
    }
    // Whether large arguments are overwritten is a habit of a function.
    User(function.as_ptr() as u64).takes();
    let arguments = Arguments::read(function.py(), payload)?;
    if parts::carried(payload) < LARGE {
        *kept = Some(arguments.value.clone().unbind());
    }
    arguments.apply(function)
}

/// What a function is applied to, and how.
pub struct Arguments<'py> {
    form: u8,
    value: Bound<'py, PyAny>,
    /// What the result is to be, if it was and is lost.
    again: Option<Again>,
}

/// An object that is made again, from this item if the call is for several.
#[derive(Clone, Copy)]
struct Again {
    object: u128,
    item: u64,
}

impl Again {
    fn read(bytes: &[u8]) -> Option<(Again, &[u8])> {
        let (object, rest) = bytes.split_first_chunk::<16>()?;
        let (item, rest) = rest.split_first_chunk::<8>()?;
        Some((Again { object: u128::from_le_bytes(*object), item: u64::from_le_bytes(*item) }, rest))
    }
}

impl<'py> Arguments<'py> {
    pub fn read(py: Python<'py>, payload: &[u8]) -> PyResult<Arguments<'py>> {
        let (mut form, mut encoded) =
            parts::inner(payload).split_first().ok_or_else(|| malformed("empty"))?;
        let mut again = None;
        if *form == AGAIN {
            let (object, call) = Again::read(encoded).ok_or_else(|| malformed("too short"))?;
            again = Some(object);
            (form, encoded) = call.split_first().ok_or_else(|| malformed("empty"))?;
        }
        let value = values::decode_part(py, payload, encoded).map_err(|error| unreadable(py, error))?;
        Ok(Arguments { form: *form, value, again })
    }

    pub fn apply(self, function: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        match self.again {
            None => self.apply_plainly(function),
            Some(again) => self.apply_again(function, again),
        }
    }

    /// Make an object again. Of many items only the one that it was made from is needed.
    fn apply_again(mut self, function: &Bound<'py, PyAny>, again: Again) -> PyResult<Bound<'py, PyAny>> {
        let py = function.py();
        let make = py.import(intern!(py, "paceline._slot"))?.getattr(intern!(py, "again"))?;
        let function = make.call1((function, again.object))?;
        if self.form == EACH || self.form == EACH_STAR {
            let item = self.value.get_item(again.item)?;
            (self.form, self.value) = match self.form {
                EACH => (ONE, item),
                _ => (ARGUMENTS, as_tuple(&item)?.into_any()),
            };
        }
        self.again = None;
        self.apply(&function)
    }

    fn apply_plainly(self, function: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let (py, value) = (function.py(), self.value);
        match self.form {
            ONE => values::call_one(function, &value),
            ARGUMENTS => call_tuple(function, &value, None),
            CALL => {
                let both = value.cast_into::<PyTuple>()?;
                call_tuple(function, &both.get_item(0)?, Some(&both.get_item(1)?))
            }
            EACH => each(py, intern!(py, "each"), function, &value),
            EACH_STAR => each(py, intern!(py, "each_star"), function, &value),
            form => Err(malformed(&format!("of form {form}"))),
        }
    }
}

fn malformed(what: &str) -> PyErr {
    PyValueError::new_err(format!("payload {what}"))
}

fn call_tuple<'py>(
    function: &Bound<'py, PyAny>,
    args: &Bound<'py, PyAny>,
    kwargs: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let args = args.cast::<PyTuple>()?;
    let kwargs = kwargs.map(|kwargs| kwargs.cast::<PyDict>()).transpose()?;
    let kwargs = kwargs.map_or(std::ptr::null_mut(), |kwargs| kwargs.as_ptr());
    // SAFETY: a callable, a tuple, and a dictionary or null.
    unsafe {
        Bound::from_owned_ptr_or_err(
            function.py(),
            ffi::PyObject_Call(function.as_ptr(), args.as_ptr(), kwargs),
        )
    }
}

/// The function of all items, by a loop of the interpreter's own, which is quicker than ours. Not by `map`: it would take
/// a function's `StopIteration` for the end of its input.
fn each<'py>(
    py: Python<'py>,
    how: &Bound<'py, PyString>,
    function: &Bound<'py, PyAny>,
    items: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    py.import(intern!(py, "paceline._slot"))?.getattr(how)?.call1((function, items))
}

/// The error for arguments that were sent and cannot be read.
fn unreadable(py: Python<'_>, error: PyErr) -> PyErr {
    // Even an exit: it is no end that the function asked for. But Ctrl-C, and what stops a task, are what they are.
    if error.is_instance_of::<PyKeyboardInterrupt>(py) {
        return error;
    }
    let made = py
        .import(intern!(py, "paceline._slot.failing"))
        .and_then(|module| module.getattr(intern!(py, "unreadable"))?.call1((error.into_value(py),)));
    made.map_or_else(|error| error, PyErr::from_value)
}
