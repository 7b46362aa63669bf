//! Threads that are inside our calls when the interpreter ends.
//!
//! Before 3.14, CPython ends a thread that asks for the interpreter's lock while it finalizes, by `pthread_exit`. The C
//! library then unwinds that thread's stack, and where our frames have called Python code, it meets frames that must not
//! be unwound so: the process aborts. PyO3 lets a thread stand still instead which attaches again by PyO3, but it knows
//! nothing of threads in Python code that our frames have called: the items of a map, callbacks, what pickles and unpickles
//! values.
//!
//! * EN-1: a thread that has come to a place where our frames call Python code stands still when the interpreter ends it,
//!   as it does from CPython 3.14 on. It ends with the process.
//! * EN-2: a thread that leaves by itself is not held.
//! * EN-3: the thread that finalizes is never held, for the process would not end. It can be ended, too: a sub-interpreter
//!   that is there to the end is finalized by it after the main one, and before 3.13 whoever attaches to a sub-interpreter then
//!   is ended. So nothing of ours detaches while the interpreter finalizes, when nobody else could run anyway; and if other
//!   code has, the process ends as it does without us, where the main thread ends as the last one.
//!
//! The C library runs the cleanup handlers of a thread before it unwinds frames that are behind them. Ours is not in any
//! frame of the thread's stack, so it runs before the first is unwound. Only glibc unwinds; elsewhere there is nothing to do.

use pyo3::prelude::*;
use std::cell::{OnceCell, UnsafeCell};
use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::OnceLock;
use std::time::Duration;

/// glibc's `struct _pthread_cleanup_buffer`.
#[repr(C)]
struct Buffer {
    routine: Option<extern "C" fn(*mut c_void)>,
    argument: *mut c_void,
    cancel_type: c_int,
    before: *mut Buffer,
}

/// What it takes, which is there or not.
struct Functions {
    push: unsafe extern "C" fn(*mut Buffer, extern "C" fn(*mut c_void), *mut c_void),
    pop: unsafe extern "C" fn(*mut Buffer, c_int),
}

type IsFinalizing = unsafe extern "C" fn() -> c_int;

unsafe extern "C" {
    fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void;
    fn _exit(status: c_int) -> !;
}

/// The handler of one thread. It is at a place of its own, outside of the stack.
struct Handler {
    buffer: Box<UnsafeCell<Buffer>>,
    functions: &'static Functions,
}

thread_local! {
    static HANDLER: OnceCell<Option<Handler>> = const { OnceCell::new() };
}

/// Python code is about to be called by our frames in this thread (EN-1). Costs nothing but the first time.
#[inline]
pub fn stays() {
    // A thread whose variables are gone already runs no more Python code of ours.
    let _ = HANDLER.try_with(|handler| {
        handler.get_or_init(|| functions().map(Handler::new));
    });
}

/// [`Python::attach`], where what is called may be Python code.
pub fn attach<T>(run: impl FnOnce(Python<'_>) -> T) -> T {
    stays();
    Python::attach(run)
}

/// [`Python::detach`], but not while the interpreter finalizes (EN-3).
pub fn detach<T: Send>(py: Python<'_>, run: impl FnOnce() -> T + Send) -> T {
    if is_finalizing() { run() } else { py.detach(run) }
}

impl Handler {
    fn new(functions: &'static Functions) -> Handler {
        let empty = Buffer {
            routine: None,
            argument: std::ptr::null_mut(),
            cancel_type: 0,
            before: std::ptr::null_mut(),
        };
        let buffer = Box::new(UnsafeCell::new(empty));
        // SAFETY: the buffer stays where it is until it is taken out again, in the same thread.
        unsafe { (functions.push)(buffer.get(), stand_still, std::ptr::null_mut()) };
        Handler { buffer, functions }
    }
}

impl Drop for Handler {
    fn drop(&mut self) {
        // SAFETY: this thread ends, so whatever was put before it is gone, and it is the first again.
        unsafe { (self.functions.pop)(self.buffer.get(), 0) };
    }
}

/// The thread is being ended: by the interpreter, or because it wants to (EN-2).
extern "C" fn stand_still(_: *mut c_void) {
    // CPython finalizes in its main thread, which is that of the process where it is not embedded.
    if is_finalizing() && rustix::thread::gettid() == rustix::process::getpid() {
        // SAFETY: it may be called at any time.
        unsafe { _exit(0) };
    }
    while is_finalizing() {
        std::thread::sleep(Duration::from_secs(60));
    }
}

/// Whether the interpreter has begun to end: nobody but the thread that ends it runs Python code any more.
pub fn is_finalizing() -> bool {
    static IS_FINALIZING: OnceLock<Option<IsFinalizing>> = OnceLock::new();
    // It has lost its underscore in 3.13.
    let look = || found(c"Py_IsFinalizing").or_else(|| found(c"_Py_IsFinalizing"));
    // SAFETY: this is what CPython declares under these names.
    let look = || look().map(|found| unsafe { std::mem::transmute::<*mut c_void, IsFinalizing>(found) });
    // SAFETY: it may be called at any time, without the interpreter's lock.
    IS_FINALIZING.get_or_init(look).is_some_and(|is_finalizing| unsafe { is_finalizing() } != 0)
}

fn functions() -> Option<&'static Functions> {
    static FUNCTIONS: OnceLock<Option<Functions>> = OnceLock::new();
    FUNCTIONS.get_or_init(find).as_ref()
}

fn find() -> Option<Functions> {
    let (push, pop) = (found(c"_pthread_cleanup_push")?, found(c"_pthread_cleanup_pop")?);
    // SAFETY: these are what glibc declares under these names.
    unsafe {
        Some(Functions {
            push: std::mem::transmute::<
                *mut c_void,
                unsafe extern "C" fn(*mut Buffer, extern "C" fn(*mut c_void), *mut c_void),
            >(push),
            pop: std::mem::transmute::<*mut c_void, unsafe extern "C" fn(*mut Buffer, c_int)>(pop),
        })
    }
}

fn found(name: &CStr) -> Option<*mut c_void> {
    // SAFETY: a name that ends with zero, looked for in all that this process has loaded.
    let found = unsafe { dlsym(std::ptr::null_mut(), name.as_ptr()) };
    (!found.is_null()).then_some(found)
}
