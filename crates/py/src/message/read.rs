//! MessagePack to Python values.

use super::{MAX_DEPTH, numpy};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyDict, PyFloat, PyInt, PyList, PyString};
use rmp::Marker;

/// Items of a list for which room is made before they are read.
const MAX_ITEMS_AHEAD: usize = 1024;

/// The one value that these bytes are.
pub fn value<'py>(py: Python<'py>, bytes: &[u8]) -> PyResult<Bound<'py, PyAny>> {
    let mut reader = Reader { py, rest: bytes };
    let value = reader.value(MAX_DEPTH)?;
    if reader.rest.is_empty() { Ok(value) } else { Err(malformed("it goes on after its end")) }
}

struct Reader<'a, 'py> {
    py: Python<'py>,
    rest: &'a [u8],
}

fn malformed(what: &str) -> PyErr {
    PyValueError::new_err(format!("malformed MessagePack: {what}"))
}

impl<'a, 'py> Reader<'a, 'py> {
    fn value(&mut self, depth: usize) -> PyResult<Bound<'py, PyAny>> {
        let py = self.py;
        let marker = Marker::from_u8(self.take::<1>()?[0]);
        Ok(match marker {
            Marker::Null => py.None().into_bound(py),
            Marker::True | Marker::False => PyBool::new(py, marker == Marker::True).to_owned().into_any(),
            Marker::FixPos(number) => int(py, number),
            Marker::FixNeg(number) => int(py, number),
            Marker::U8 => int(py, u8::from_be_bytes(self.take()?)),
            Marker::U16 => int(py, u16::from_be_bytes(self.take()?)),
            Marker::U32 => int(py, u32::from_be_bytes(self.take()?)),
            Marker::U64 => PyInt::new(py, u64::from_be_bytes(self.take()?)).into_any(),
            Marker::I8 => int(py, i8::from_be_bytes(self.take()?)),
            Marker::I16 => int(py, i16::from_be_bytes(self.take()?)),
            Marker::I32 => int(py, i32::from_be_bytes(self.take()?)),
            Marker::I64 => int(py, i64::from_be_bytes(self.take()?)),
            Marker::F32 => PyFloat::new(py, f32::from_be_bytes(self.take()?).into()).into_any(),
            Marker::F64 => PyFloat::new(py, f64::from_be_bytes(self.take()?)).into_any(),
            Marker::FixStr(length) => self.text(length.into())?,
            Marker::Str8 | Marker::Str16 | Marker::Str32 => {
                let length = self.length(marker == Marker::Str8, marker == Marker::Str16)?;
                self.text(length)?
            }
            Marker::Bin8 | Marker::Bin16 | Marker::Bin32 => {
                let length = self.length(marker == Marker::Bin8, marker == Marker::Bin16)?;
                PyBytes::new(py, self.bytes(length)?).into_any()
            }
            Marker::FixArray(length) => self.list(length.into(), depth)?,
            Marker::Array16 | Marker::Array32 => {
                let length = self.length(false, marker == Marker::Array16)?;
                self.list(length, depth)?
            }
            Marker::FixMap(length) => self.dict(length.into(), depth)?,
            Marker::Map16 | Marker::Map32 => {
                let length = self.length(false, marker == Marker::Map16)?;
                self.dict(length, depth)?
            }
            Marker::FixExt1 => self.ext(1)?,
            Marker::FixExt2 => self.ext(2)?,
            Marker::FixExt4 => self.ext(4)?,
            Marker::FixExt8 => self.ext(8)?,
            Marker::FixExt16 => self.ext(16)?,
            Marker::Ext8 | Marker::Ext16 | Marker::Ext32 => {
                let length = self.length(marker == Marker::Ext8, marker == Marker::Ext16)?;
                self.ext(length)?
            }
            Marker::Reserved => return Err(malformed("a byte that means nothing")),
        })
    }

    /// A length of one byte, two, or else four.
    fn length(&mut self, one: bool, two: bool) -> PyResult<usize> {
        Ok(match (one, two) {
            (true, _) => u8::from_be_bytes(self.take()?).into(),
            (_, true) => u16::from_be_bytes(self.take()?).into(),
            _ => u32::from_be_bytes(self.take()?) as usize,
        })
    }

    fn take<const N: usize>(&mut self) -> PyResult<[u8; N]> {
        let (head, rest) = self.rest.split_first_chunk::<N>().ok_or_else(|| malformed("it is cut off"))?;
        self.rest = rest;
        Ok(*head)
    }

    fn bytes(&mut self, length: usize) -> PyResult<&'a [u8]> {
        let (head, rest) = self.rest.split_at_checked(length).ok_or_else(|| malformed("it is cut off"))?;
        self.rest = rest;
        Ok(head)
    }

    fn text(&mut self, length: usize) -> PyResult<Bound<'py, PyAny>> {
        let text = std::str::from_utf8(self.bytes(length)?).map_err(|_| malformed("text that is none"))?;
        Ok(PyString::new(self.py, text).into_any())
    }

    fn list(&mut self, length: usize, depth: usize) -> PyResult<Bound<'py, PyAny>> {
        let depth = depth.checked_sub(1).ok_or_else(|| malformed("it is nested too deeply"))?;
        // Each item has a byte at least, but lists within lists may all claim the same bytes.
        let mut items = Vec::with_capacity(length.min(self.rest.len()).min(MAX_ITEMS_AHEAD));
        for _ in 0..length {
            items.push(self.value(depth)?);
        }
        Ok(PyList::new(self.py, items)?.into_any())
    }

    fn dict(&mut self, length: usize, depth: usize) -> PyResult<Bound<'py, PyAny>> {
        let depth = depth.checked_sub(1).ok_or_else(|| malformed("it is nested too deeply"))?;
        let dict = PyDict::new(self.py);
        for _ in 0..length {
            let key = self.value(depth)?;
            // A key must be hashable, and what a list was there may well have been a tuple.
            let key = match key.cast::<PyList>() {
                Ok(list) => list.to_tuple().into_any(),
                Err(_) => key,
            };
            dict.set_item(key, self.value(depth)?)?;
        }
        Ok(dict.into_any())
    }

    fn ext(&mut self, length: usize) -> PyResult<Bound<'py, PyAny>> {
        let kind = i8::from_be_bytes(self.take()?);
        let body = self.bytes(length)?;
        match kind {
            paceline::exchange::array::EXT => numpy::read(self.py, body),
            other => Err(malformed(&format!("an ext of type {other}"))),
        }
    }
}

fn int(py: Python<'_>, number: impl Into<i64>) -> Bound<'_, PyAny> {
    PyInt::new(py, number.into()).into_any()
}
