//! numpy as this extension knows it: its array class, its types of numbers, and how its arrays lie in memory.
//!
//! * ND-1: numpy is not imported here: it is there if somebody has imported it.
//! * ND-2: the memory of arrays is looked at only if a test array was found to lie there as it should.

use pyo3::buffer::PyUntypedBuffer;
use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use std::ffi::c_int;

/// Types of numbers, by their letters. Of those that are the same to numpy the one that it prefers is first.
const TYPES: [&str; 16] = ["?", "b", "B", "h", "H", "i", "I", "l", "L", "q", "Q", "e", "f", "d", "F", "D"];

const C_CONTIGUOUS: c_int = 0x1;
const WRITEABLE: c_int = 0x400;
const WARNS_ON_WRITE: c_int = 1 << 31;

pub struct Numpy {
    pub ndarray: Py<PyAny>,
    empty: Py<PyAny>,
    pub types: Vec<Type>,
}

pub struct Type {
    pub dtype: Py<PyAny>,
    /// What it is called everywhere: its order of bytes, its kind and its size.
    pub name: String,
    pub size: usize,
}

/// What an array begins with: part of numpy's binary interface, on which all extensions rely.
#[repr(C)]
struct Fields {
    head: ffi::PyObject,
    data: *mut u8,
    nd: c_int,
    dimensions: *mut ffi::Py_ssize_t,
    strides: *mut ffi::Py_ssize_t,
    base: *mut ffi::PyObject,
    descr: *mut ffi::PyObject,
    flags: c_int,
}

impl Numpy {
    /// If somebody has imported it, and its arrays lie as expected.
    pub fn imported(py: Python<'_>) -> Option<&Numpy> {
        static NUMPY: PyOnceLock<Option<Numpy>> = PyOnceLock::new();
        if let Some(numpy) = NUMPY.get(py) {
            return numpy.as_ref();
        }
        // SAFETY: a new reference, or null, without or with an error.
        let module = unsafe { ffi::PyImport_GetModule(intern!(py, "numpy").as_ptr()) };
        // SAFETY: as above.
        let Some(module) = (unsafe { Bound::from_owned_ptr_or_opt(py, module) }) else {
            drop(PyErr::take(py));
            return None;
        };
        // One that is still being imported has not everything: the next one asks again.
        let numpy = Numpy::new(&module).ok()?;
        let sound = numpy.lies_as_expected(py).unwrap_or(false);
        NUMPY.get_or_init(py, || sound.then_some(numpy)).as_ref()
    }

    fn new(module: &Bound<'_, PyAny>) -> PyResult<Numpy> {
        let dtype = module.getattr("dtype")?;
        let one = |letter: &&str| {
            let dtype = dtype.call1((*letter,))?;
            let (name, size) = (dtype.getattr("str")?.extract()?, dtype.getattr("itemsize")?.extract()?);
            Ok(Type { dtype: dtype.unbind(), name, size })
        };
        let types = TYPES.iter().map(one).collect::<PyResult<_>>()?;
        let (ndarray, empty) = (module.getattr("ndarray")?.unbind(), module.getattr("empty")?.unbind());
        Ok(Numpy { ndarray, empty, types })
    }

    /// ND-2
    fn lies_as_expected(&self, py: Python<'_>) -> PyResult<bool> {
        let room: usize = self.ndarray.bind(py).getattr("__basicsize__")?.extract()?;
        if room < size_of::<Fields>() {
            return Ok(false);
        }
        let short = self.types.iter().find(|one| one.size == 2).expect("there is one among them");
        let array = self.empty.bind(py).call1(((2, 3), &short.dtype))?;
        let begin = PyUntypedBuffer::get(&array)?.buf_ptr() as *mut u8;
        let Some(seen) = self.look(&array) else { return Ok(false) };
        let is_it = seen.begin == begin && seen.shape == [2, 3] && !seen.readonly;
        let turned = self.look(&array.getattr("T")?).is_none();
        array.call_method1("setflags", (false,))?;
        Ok(is_it
            && seen.kind.dtype.is(&short.dtype)
            && turned
            && self.look(&array).is_some_and(|it| it.readonly))
    }

    /// A plain array of numbers that lies in one piece, in C order, as it is in memory. None: it is none.
    pub fn look<'a>(&'a self, value: &'a Bound<'_, PyAny>) -> Option<Seen<'a>> {
        if value.get_type_ptr().cast() != self.ndarray.as_ptr() {
            return None;
        }
        // SAFETY: an array of exactly that class, which lies as expected (ND-2) or is our own to find that out, and lives
        // as long as it is looked at.
        let (fields, shape) = unsafe {
            let fields = &*value.as_ptr().cast::<Fields>();
            let shape = match fields.nd {
                0 => &[],
                count => {
                    std::slice::from_raw_parts(fields.dimensions.cast_const(), usize::try_from(count).ok()?)
                }
            };
            (fields, shape)
        };
        if fields.flags & C_CONTIGUOUS == 0 || fields.flags & WARNS_ON_WRITE != 0 {
            return None;
        }
        let kind = self.types.iter().find(|one| one.dtype.as_ptr() == fields.descr)?;
        let length = shape.iter().map(|size| *size as usize).product::<usize>() * kind.size;
        Some(Seen { begin: fields.data, length, shape, kind, readonly: fields.flags & WRITEABLE == 0 })
    }

    /// A new array, of as many bytes as it says, with anything in it. None: that is not what such an array has.
    pub fn array<'py>(
        &self,
        py: Python<'py>,
        shape: &Bound<'py, PyAny>,
        kind: &Type,
        length: usize,
    ) -> Option<(Bound<'py, PyAny>, *mut u8)> {
        // SAFETY: live objects, and the list of arguments ends with null.
        let array = unsafe {
            let array = ffi::PyObject_CallFunctionObjArgs(
                self.empty.as_ptr(),
                shape.as_ptr(),
                kind.dtype.as_ptr(),
                std::ptr::null_mut::<ffi::PyObject>(),
            );
            Bound::from_owned_ptr_or_err(py, array).ok()?
        };
        let seen = self.look(&array).filter(|seen| seen.length == length && !seen.readonly)?;
        let begin = seen.begin;
        Some((array, begin))
    }
}

/// An array as it is in memory.
pub struct Seen<'a> {
    pub begin: *mut u8,
    pub length: usize,
    pub shape: &'a [ffi::Py_ssize_t],
    pub kind: &'a Type,
    pub readonly: bool,
}
