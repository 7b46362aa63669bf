//! Arrays of numbers, as numpy has them.

use super::write::{self, Problem, length, put};
use paceline::exchange::array::{EXT, Parts, TYPES, write_header};
use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::{PyModuleNotFoundError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyDict, PyTuple};
use rmp::encode;

/// Append an array, or a number of numpy's own. False: it is neither.
pub fn write(value: &Bound<'_, PyAny>, out: &mut Vec<u8>) -> Result<bool, Problem> {
    let kind = value.get_type();
    let module = kind.module().map(|module| module.to_string()).unwrap_or_default();
    if module != "numpy" {
        return Ok(false);
    }
    let failed = |error: PyErr| Problem::new(error.to_string());
    match kind.name().map(|name| name.to_string()).as_deref() {
        Ok("ndarray" | "memmap") => array(value, out).map(|()| true),
        // A number that an array gave: as Python has it.
        _ if value.hasattr("dtype").unwrap_or(false) && value.hasattr("item").unwrap_or(false) => {
            let item = value.call_method0("item").map_err(failed)?;
            match item.get_type().is(&kind) {
                true => Ok(false),
                false => write::value(&item, out).map(|()| true),
            }
        }
        _ => Ok(false),
    }
}

fn array(value: &Bound<'_, PyAny>, out: &mut Vec<u8>) -> Result<(), Problem> {
    let py = value.py();
    let failed = |error: PyErr| Problem::new(error.to_string());
    let dtype = value.getattr(intern!(py, "dtype")).map_err(failed)?;
    let kind: String = dtype.getattr(intern!(py, "kind")).and_then(|kind| kind.extract()).map_err(failed)?;
    let width: usize =
        dtype.getattr(intern!(py, "itemsize")).and_then(|width| width.extract()).map_err(failed)?;
    let name = format!("{kind}{width}");
    if !TYPES.contains(&name.as_str()) {
        return Err(Problem::new(format!("it is an array of {dtype}")));
    }
    let shape: Vec<u64> = value.getattr(intern!(py, "shape")).and_then(|it| it.extract()).map_err(failed)?;
    let plain = plain(value, &name).map_err(failed)?;
    let buffer = PyUntypedBuffer::get(&plain).map_err(failed)?;
    let mut header = Vec::new();
    write_header(&name, shape.iter().copied(), &mut header);
    let size = buffer.len_bytes();
    put(encode::write_ext_meta(out, length(header.len() + size)?, EXT))?;
    out.extend_from_slice(&header);
    if size > 0 {
        assert!(buffer.is_c_contiguous(), "it was asked for in C order");
        // SAFETY: the buffer is held, its bytes lie in one piece, and we hold the interpreter while they are copied.
        out.extend_from_slice(unsafe { std::slice::from_raw_parts(buffer.buf_ptr().cast::<u8>(), size) });
    }
    Ok(())
}

/// The elements in C order and little endian: those of the array itself, if they are so already.
fn plain<'py>(value: &Bound<'py, PyAny>, name: &str) -> PyResult<Bound<'py, PyAny>> {
    let options = PyDict::new(value.py());
    options.set_item("order", "C")?;
    options.set_item("copy", false)?;
    options.set_item("subok", false)?;
    // In one dimension, for an array of none has no shape that a buffer could show.
    value.call_method("astype", (format!("<{name}"),), Some(&options))?.call_method1("reshape", (-1,))
}

pub fn read<'py>(py: Python<'py>, body: &[u8]) -> PyResult<Bound<'py, PyAny>> {
    let parts = Parts::read(body).ok_or_else(|| PyValueError::new_err("a malformed array"))?;
    let numpy = py.import(intern!(py, "numpy")).map_err(|error| {
        if error.is_instance_of::<PyModuleNotFoundError>(py) {
            PyModuleNotFoundError::new_err("an array came from another language, and numpy is not installed")
        } else {
            error
        }
    })?;
    let dtype = format!("<{}", parts.kind);
    let shape = PyTuple::new(py, &parts.shape)?;
    if parts.bytes.is_empty() {
        return numpy.call_method1("zeros", (shape, dtype));
    }
    // Over memory of its own, so that it can be written to.
    let bytes = PyByteArray::new(py, parts.bytes);
    numpy.call_method1("frombuffer", (bytes, dtype))?.call_method1("reshape", (shape,))
}
