//! What must not be stopped halfway: imports, and the unpickling of functions, arguments and values.
//!
//! An exception in the middle of an import takes back the module that was to be imported, but none of those that it had
//! imported itself; from then on the process has parts without a whole, and some extension modules cannot be imported
//! twice at all. Classes that are unpickled by value are known before they are complete.
//!
//! * LO-1: the exception that stops a call is not raised while the thread that it is for imports or unpickles, but as soon
//!   as that is done. The grace of the call counts meanwhile: what takes longer ends with its slot.

use crate::slot::runtime;
use paceline_slot::Runtime;
use pyo3::exceptions::PyKeyboardInterrupt;
use pyo3::intern;
use pyo3::prelude::*;
use std::cell::Cell;

/// Where the code of the import system says it comes from.
const IMPORT_SYSTEM: &str = "<frozen importlib._bootstrap>";

thread_local! {
    /// How many times over this thread is in [`whole`].
    static DEPTH: Cell<u32> = const { Cell::new(0) };
    /// The call of this thread was to stop meanwhile.
    static HELD: Cell<bool> = const { Cell::new(false) };
}

/// Do something that is not stopped halfway.
pub fn whole<T>(work: impl FnOnce() -> PyResult<T>) -> PyResult<T> {
    let depth = Depth::begin();
    let done = work();
    drop(depth);
    if DEPTH.get() == 0 && HELD.take() && runtime().is_some_and(Runtime::is_interrupted) {
        return Err(PyKeyboardInterrupt::new_err(()));
    }
    done
}

struct Depth;

impl Depth {
    fn begin() -> Depth {
        DEPTH.set(DEPTH.get() + 1);
        Depth
    }
}

impl Drop for Depth {
    fn drop(&mut self) {
        DEPTH.set(DEPTH.get() - 1);
    }
}

/// The call of this thread is to stop, which is in this frame. The exception, unless it has to wait.
pub fn interrupt(runtime: &Runtime, frame: &Bound<'_, PyAny>) -> PyResult<()> {
    if DEPTH.get() > 0 {
        HELD.set(true);
        Ok(())
    } else if imports(frame)? {
        runtime.hold_interrupt();
        Ok(())
    } else {
        Err(PyKeyboardInterrupt::new_err(()))
    }
}

/// Whether an import is among the calls that have led to this frame.
pub fn imports(frame: &Bound<'_, PyAny>) -> PyResult<bool> {
    let py = frame.py();
    let mut frame = frame.clone();
    while !frame.is_none() {
        let file = frame.getattr(intern!(py, "f_code"))?.getattr(intern!(py, "co_filename"))?;
        if file.eq(intern!(py, IMPORT_SYSTEM))? {
            return Ok(true);
        }
        frame = frame.getattr(intern!(py, "f_back"))?;
    }
    Ok(false)
}
