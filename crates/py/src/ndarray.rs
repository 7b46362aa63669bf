//! numpy as its extensions know it: its array class, its types of numbers, how its arrays lie in memory and how they are
//! made.
//!
//! * ND-1: numpy is not imported here: it is there if somebody has imported it.
//! * ND-2: what is known of its binary interface is used only after arrays were made and found to lie as they should.

use pyo3::buffer::PyUntypedBuffer;
use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyCapsule;
use std::ffi::{c_int, c_void};

/// Types of numbers, by their letters. Of those that are the same to numpy the one that it prefers is first.
const TYPES: [&str; 16] = ["?", "b", "B", "h", "H", "i", "I", "l", "L", "q", "Q", "e", "f", "d", "F", "D"];

const C_CONTIGUOUS: c_int = 0x1;
const ALIGNED: c_int = 0x100;
const WRITEABLE: c_int = 0x400;
const WARNS_ON_WRITE: c_int = 1 << 31;

/// What an array begins with.
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

/// `PyArray_NewFromDescr`. It takes the reference to the type of numbers.
type NewFromDescr = unsafe extern "C" fn(
    *mut ffi::PyObject,
    *mut ffi::PyObject,
    c_int,
    *const ffi::Py_ssize_t,
    *const ffi::Py_ssize_t,
    *mut c_void,
    c_int,
    *mut ffi::PyObject,
) -> *mut ffi::PyObject;
const NEW_FROM_DESCR: usize = 94;

/// `PyArray_SetBaseObject`. It takes the reference to the base.
type SetBaseObject = unsafe extern "C" fn(*mut ffi::PyObject, *mut ffi::PyObject) -> c_int;
const SET_BASE_OBJECT: usize = 282;

pub struct Numpy {
    ndarray: Py<PyAny>,
    types: Vec<Type>,
    new_from_descr: NewFromDescr,
    set_base_object: SetBaseObject,
}

/// A type of numbers.
pub struct Type {
    dtype: Py<PyAny>,
    /// What it is called everywhere: its order of bytes, its kind and its size.
    pub name: String,
    size: usize,
}

/// An array as it is in memory.
pub struct Seen<'a> {
    pub begin: *mut u8,
    pub length: usize,
    pub shape: &'a [ffi::Py_ssize_t],
    pub kind: &'a Type,
    pub readonly: bool,
}

impl Numpy {
    /// If somebody has imported it, and it is as expected.
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
        let sound = numpy.is_as_expected(py).unwrap_or(false);
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
        let ndarray = module.getattr("ndarray")?.unbind();
        let core = module.getattr("_core").or_else(|_| module.getattr("core"))?;
        let functions = core.getattr("_multiarray_umath")?.getattr("_ARRAY_API")?;
        let functions = functions.cast_into::<PyCapsule>()?.pointer_checked(None)?.cast::<*const c_void>();
        // SAFETY: numpy's table of functions, which never goes away; the places of these two have been theirs for ever.
        let (new_from_descr, set_base_object) = unsafe {
            (
                std::mem::transmute::<*const c_void, NewFromDescr>(*functions.add(NEW_FROM_DESCR).as_ref()),
                std::mem::transmute::<*const c_void, SetBaseObject>(*functions.add(SET_BASE_OBJECT).as_ref()),
            )
        };
        Ok(Numpy { ndarray, types, new_from_descr, set_base_object })
    }

    /// ND-2
    fn is_as_expected(&self, py: Python<'_>) -> PyResult<bool> {
        let room: usize = self.ndarray.bind(py).getattr("__basicsize__")?.extract()?;
        if room < size_of::<Fields>() {
            return Ok(false);
        }
        let short = self.types.iter().find(|one| one.size == 2).expect("there is one among them");
        let array = self.ndarray.bind(py).call1(((2, 3), &short.dtype))?;
        let is_it = |array: &Bound<'_, PyAny>, readonly: bool| {
            let begin = PyUntypedBuffer::get(array)?.buf_ptr().cast();
            let seen = self.look(array).filter(|seen| seen.begin == begin && seen.readonly == readonly);
            PyResult::Ok(seen.is_some_and(|seen| seen.shape == [2, 3] && std::ptr::eq(seen.kind, short)))
        };
        if !is_it(&array, false)? || self.look(&array.getattr("T")?).is_some() {
            return Ok(false);
        }
        let Some((made, begin)) = self.array(py, &[2, 3], short, 12) else { return Ok(false) };
        let Some(over) = self.over(&[2, 3], short, (begin, 12), made.clone(), true) else { return Ok(false) };
        let is_its_base = over.getattr("base")?.is(&made) && self.array(py, &[2, 3], short, 11).is_none();
        array.call_method1("setflags", (false,))?;
        Ok(is_its_base && is_it(&made, false)? && is_it(&over, true)? && is_it(&array, true)?)
    }

    pub fn kind(&self, name: &[u8]) -> Option<&Type> {
        self.types.iter().find(|one| one.name.as_bytes() == name)
    }

    /// A plain array of numbers that lies in one piece, in C order, as it is in memory. None: it is none.
    pub fn look<'a>(&'a self, value: &'a Bound<'_, PyAny>) -> Option<Seen<'a>> {
        if value.get_type_ptr().cast() != self.ndarray.as_ptr() {
            return None;
        }
        // SAFETY: an array of exactly that class, which lies as expected (ND-2), or is one of our own to find that out, and
        // lives as long as it is looked at.
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
        let length = bytes(shape, kind)?;
        Some(Seen { begin: fields.data, length, shape, kind, readonly: fields.flags & WRITEABLE == 0 })
    }

    /// A new array with anything in it. None: it would not have so many bytes, or there is no memory for it.
    pub fn array<'py>(
        &self,
        py: Python<'py>,
        shape: &[ffi::Py_ssize_t],
        kind: &Type,
        length: usize,
    ) -> Option<(Bound<'py, PyAny>, *mut u8)> {
        let array = self.make(py, shape, kind, length, std::ptr::null_mut(), 0)?;
        let begin = self.look(&array)?.begin;
        Some((array, begin))
    }

    /// An array over memory of something that it keeps. None: it would have more bytes than these.
    pub fn over<'py>(
        &self,
        shape: &[ffi::Py_ssize_t],
        kind: &Type,
        (begin, length): (*mut u8, usize),
        keeps: Bound<'py, PyAny>,
        readonly: bool,
    ) -> Option<Bound<'py, PyAny>> {
        let flags = C_CONTIGUOUS | ALIGNED | if readonly { 0 } else { WRITEABLE };
        let array = self.make(keeps.py(), shape, kind, length, begin, flags)?;
        // SAFETY: a new array, and a reference that it takes.
        let failed = unsafe { (self.set_base_object)(array.as_ptr(), keeps.into_ptr()) } != 0;
        if failed {
            drop(PyErr::take(array.py()));
            return None;
        }
        Some(array)
    }

    fn make<'py>(
        &self,
        py: Python<'py>,
        shape: &[ffi::Py_ssize_t],
        kind: &Type,
        length: usize,
        begin: *mut u8,
        flags: c_int,
    ) -> Option<Bound<'py, PyAny>> {
        bytes(shape, kind).filter(|bytes| *bytes == length)?;
        let count = c_int::try_from(shape.len()).ok()?;
        // SAFETY: as numpy documents it: a class, a reference that it takes, dimensions that it copies, and memory for all
        // of them, or none.
        unsafe {
            let dtype = kind.dtype.clone_ref(py).into_ptr();
            let (class, none) = (self.ndarray.as_ptr(), std::ptr::null_mut());
            let strides = std::ptr::null();
            let array = (self.new_from_descr)(
                class,
                dtype,
                count,
                shape.as_ptr(),
                strides,
                begin.cast(),
                flags,
                none,
            );
            Bound::from_owned_ptr_or_err(py, array).ok()
        }
    }
}

/// How many bytes such an array has. None: more than there can be.
fn bytes(shape: &[ffi::Py_ssize_t], kind: &Type) -> Option<usize> {
    let count = shape.iter().try_fold(1, |all: usize, size| all.checked_mul(usize::try_from(*size).ok()?));
    count?.checked_mul(kind.size)
}
