//! How the calls of a function travel: as pickle between Pythons, as MessagePack to another language.

use crate::{message, payload, values};
use bytes::Bytes;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Wire {
    Pickle,
    Message,
}

impl Wire {
    /// `function(*args, **kwargs)`
    pub fn call(self, args: &Bound<'_, PyTuple>, kwargs: Option<&Bound<'_, PyDict>>) -> PyResult<Bytes> {
        match self {
            Wire::Pickle => payload::call(args, kwargs),
            Wire::Message => message::call(args, kwargs),
        }
    }

    /// `function(item)`, or `function(*item)`
    pub fn item(self, item: &Bound<'_, PyAny>, star: bool) -> PyResult<Bytes> {
        match self {
            Wire::Pickle => payload::item(item, star),
            Wire::Message => message::item(item, star),
        }
    }

    /// `[function(item) for item in items]`, or `[function(*item) for item in items]`
    pub fn chunk(self, items: &Bound<'_, PyList>, star: bool) -> PyResult<Bytes> {
        match self {
            Wire::Pickle => payload::chunk(items, star),
            Wire::Message => message::each(items, star),
        }
    }

    /// What came back: the value, or the list of values of a chunk.
    pub fn value<'py>(self, py: Python<'py>, bytes: &[u8], is_chunk: bool) -> PyResult<Bound<'py, PyAny>> {
        match self {
            Wire::Pickle => values::decode(py, bytes),
            Wire::Message => message::value(py, bytes, is_chunk),
        }
    }
}
