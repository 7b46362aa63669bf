//! `FutureBase`: the half of `paceline.Future` that is written in Rust.
//!
//! A `concurrent.futures.Future` makes a condition, two lists and more for each task; almost nobody ever looks at
//! them. Here they are made when somebody does.
//!
//! * FU-1: once `_condition` was asked for, `_state` becomes final only under it, as `concurrent.futures.wait` needs.
//! * FU-2: callbacks run once each, in the callback thread, or at once in the caller's if the task is done.

use crate::makers::Made;
use crate::outcome::{self, Of};
use crate::session::check_own;
use crate::waiting;
use crate::wire::Wire;
use paceline::{Cell, Notice, Outcome, Session, TaskId, Waiter};
use parking_lot::Mutex;
use pyo3::exceptions::{PyTimeoutError, PyTypeError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyList, PyTuple, PyType};
use pyo3::{PyTraverseError, PyVisit, ffi};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

const PENDING: &str = "PENDING";
const RUNNING: &str = "RUNNING";
const CANCELLED: &str = "CANCELLED_AND_NOTIFIED";
const FINISHED: &str = "FINISHED";

#[pyclass(subclass, frozen, module = "paceline._native")]
pub struct FutureBase {
    task: OnceLock<Task>,
    python: Mutex<PythonSide>,
    /// Its task waits for others before it is submitted.
    deferred: AtomicBool,
    /// How its result was made, if that is to be remembered.
    made: OnceLock<Box<Made>>,
}

struct Task {
    cell: Arc<Cell>,
    session: Session,
    function: Arc<str>,
    wire: Wire,
}

/// What only Python needs to know, made on demand.
#[derive(Default)]
struct PythonSide {
    result: Option<Resolved>,
    extras: Option<Box<Extras>>,
}

enum Resolved {
    Value(Py<PyAny>),
    Error(Py<PyAny>),
    Cancelled,
}

enum Ending {
    Value,
    Error,
    Cancelled,
}

#[derive(Default)]
struct Extras {
    condition: Option<Py<PyAny>>,
    waiters: Option<Py<PyList>>,
    callbacks: Vec<Py<PyAny>>,
    callback_list: Option<Py<PyList>>,
    /// With a condition: whether those behind it were told.
    published: bool,
    /// The callback thread will come by when the task is done.
    noticed: bool,
}

impl FutureBase {
    pub fn cell(&self) -> Option<&Arc<Cell>> {
        self.task.get().map(|task| &task.cell)
    }

    pub fn session(&self) -> Option<&Session> {
        self.task.get().map(|task| &task.session)
    }

    /// Its result, when it comes, was made like this.
    pub fn remember(&self, made: Box<Made>) {
        let _ = self.made.set(made);
    }

    /// Its task is submitted later.
    pub fn defer(&self) {
        self.deferred.store(true, Ordering::SeqCst);
    }

    /// Its task is submitted now, or never: by whoever gets the place of the outcome.
    pub fn take_deferred(&self) -> Option<&Arc<Cell>> {
        self.deferred.swap(false, Ordering::SeqCst).then(|| self.cell()).flatten()
    }

    /// A new `paceline.Future` for a task.
    pub fn make<'py>(
        py: Python<'py>,
        cell: Arc<Cell>,
        session: Session,
        function: Arc<str>,
        wire: Wire,
    ) -> PyResult<Bound<'py, PyAny>> {
        let class = future_class(py)?;
        let base = py.get_type::<FutureBase>();
        // Calling the class would run `Future.__init__`, which makes all that is made on demand here.
        // SAFETY: `FutureBase` has a `tp_new`, and `class` is a subclass of it that adds no fields of its own.
        let object = unsafe {
            let new = ffi::PyType_GetSlot(base.as_type_ptr(), ffi::Py_tp_new);
            let new: ffi::newfunc = std::mem::transmute(new);
            let object = new(class.bind(py).as_type_ptr(), PyTuple::empty(py).as_ptr(), std::ptr::null_mut());
            Bound::from_owned_ptr_or_err(py, object)?
        };
        let future = object.cast::<FutureBase>()?;
        let _ = future.get().task.set(Task { cell, session, function, wire });
        Ok(object)
    }

    pub fn is_done(&self) -> bool {
        self.cell().is_none_or(|cell| cell.is_done())
    }

    fn task(&self) -> PyResult<&Task> {
        self.task.get().ok_or_else(|| PyTypeError::new_err("a Future is made by submitting a task"))
    }

    /// Whether the outcome is there within the time.
    fn wait_done(&self, py: Python<'_>, timeout: Option<Duration>) -> PyResult<bool> {
        let task = self.task()?;
        if task.cell.is_done() {
            return Ok(true);
        }
        check_own(py, &task.session)?;
        let waiter = Waiter::new(1);
        if !task.cell.watch(&waiter) {
            return Ok(true);
        }
        let done = waiting::block(py, &task.session, &waiter, Some(&task.cell), timeout);
        if !matches!(done, Ok(true)) {
            task.cell.unwatch(&waiter);
        }
        done
    }

    /// The outcome in Python's form. The task must be done.
    fn resolved(&self, py: Python<'_>) -> PyResult<Resolved> {
        if let Some(result) = &self.python.lock().result {
            return Ok(result.clone_ref(py));
        }
        let task = self.task()?;
        // Decoding may run user code, so no lock is held; if two threads do it, the first one's result is kept.
        let outcome = task.cell.stored().map(|stored| outcome::load(py, stored));
        let resolved = match outcome {
            None => match &self.python.lock().result {
                Some(result) => return Ok(result.clone_ref(py)),
                None => Resolved::Cancelled,
            },
            Some(Outcome::Cancelled) => Resolved::Cancelled,
            Some(outcome) => {
                let of = Of::one(task.cell.task(), &task.function, &task.session, task.wire);
                match outcome::resolve(py, outcome, &of) {
                    Ok(value) => {
                        // Before anybody has the reference, and can make something else from it.
                        if let Some(made) = self.made.get() {
                            made.remember(&task.session, &value, None);
                        }
                        Resolved::Value(value.unbind())
                    }
                    Err(error) => Resolved::Error(error.into_value(py).into_any()),
                }
            }
        };
        let kept = {
            let mut python = self.python.lock();
            python.result.get_or_insert(resolved).clone_ref(py)
        };
        task.cell.forget();
        Ok(kept)
    }

    /// How a task that is done has ended. Its value is left as it is: whoever asks for it reads it, maybe from disk.
    fn ending(&self) -> Ending {
        match &self.python.lock().result {
            Some(Resolved::Value(_)) => return Ending::Value,
            Some(Resolved::Error(_)) => return Ending::Error,
            Some(Resolved::Cancelled) => return Ending::Cancelled,
            None => {}
        }
        match self.cell().and_then(|cell| cell.stored()) {
            Some(stored) if stored.is_value() => Ending::Value,
            Some(stored) if !stored.is_cancelled() => Ending::Error,
            _ => Ending::Cancelled,
        }
    }

    fn is_cancelled(&self) -> bool {
        if let Some(result) = &self.python.lock().result {
            return matches!(result, Resolved::Cancelled);
        }
        let stored = self.cell().filter(|cell| cell.is_done()).and_then(|cell| cell.stored());
        stored.is_some_and(|stored| stored.is_cancelled())
    }
}

impl Resolved {
    fn clone_ref(&self, py: Python<'_>) -> Resolved {
        match self {
            Resolved::Value(value) => Resolved::Value(value.clone_ref(py)),
            Resolved::Error(error) => Resolved::Error(error.clone_ref(py)),
            Resolved::Cancelled => Resolved::Cancelled,
        }
    }
}

/// The class of all futures. Whoever starts a task asks for it first: an import takes milliseconds, and a Ctrl-C in the
/// middle of it would leave a task that has begun and that nobody can name.
pub fn future_class(py: Python<'_>) -> PyResult<&Py<PyType>> {
    static CLASS: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    CLASS.get_or_try_init(py, || {
        let class = py.import("paceline._future")?.getattr("Future")?;
        Ok(class.cast_into::<PyType>()?.unbind())
    })
}

#[pymethods]
impl FutureBase {
    #[new]
    #[pyo3(signature = (*_args, **_kwargs))]
    fn new(_args: &Bound<'_, PyTuple>, _kwargs: Option<&Bound<'_, pyo3::types::PyDict>>) -> FutureBase {
        FutureBase {
            task: OnceLock::new(),
            python: Mutex::default(),
            deferred: AtomicBool::new(false),
            made: OnceLock::new(),
        }
    }

    #[getter]
    fn task_id(&self) -> PyResult<u64> {
        Ok(self.task()?.cell.task().0)
    }

    /// Where the task is, and what it waits for, in words.
    fn explain(&self, py: Python<'_>) -> PyResult<String> {
        let task = self.task()?;
        let id = task.cell.task();
        if task.cell.is_done() {
            return Ok(format!("task {} ({}) has ended", id.0, task.function));
        }
        if id == TaskId::default() {
            let what = match self.deferred.load(Ordering::SeqCst) {
                true => "the tasks whose results are its arguments",
                false => "room in the queue of this program",
            };
            return Ok(format!("{} waits for {what}", task.function));
        }
        let told = waiting::interruptible(py, |interrupted| task.session.explain(id, interrupted))?;
        Ok(told.map_or_else(|why| why, |lines| lines.join("\n")))
    }

    #[pyo3(signature = (timeout=None))]
    fn result(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Py<PyAny>> {
        if !self.wait_done(py, waiting::timeout(timeout))? {
            return Err(PyTimeoutError::new_err(()));
        }
        match self.resolved(py)? {
            Resolved::Value(value) => Ok(value),
            Resolved::Error(error) => Err(PyErr::from_value(error.into_bound(py))),
            Resolved::Cancelled => Err(outcome::cancelled(py)),
        }
    }

    #[pyo3(signature = (timeout=None))]
    fn exception(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Option<Py<PyAny>>> {
        if !self.wait_done(py, waiting::timeout(timeout))? {
            return Err(PyTimeoutError::new_err(()));
        }
        match self.resolved(py)? {
            Resolved::Value(_) => Ok(None),
            Resolved::Error(error) => Ok(Some(error)),
            Resolved::Cancelled => Err(outcome::cancelled(py)),
        }
    }

    fn done(&self) -> bool {
        self.cell().is_some_and(|cell| cell.is_done())
    }

    fn running(&self) -> bool {
        self.cell().is_some_and(|cell| cell.is_running())
    }

    fn cancelled(&self) -> bool {
        self.is_cancelled()
    }

    fn cancel(&self) -> PyResult<bool> {
        let task = self.task()?;
        if let Some(cell) = self.take_deferred() {
            task.session.end_later(cell);
            return Ok(true);
        }
        Ok(task.session.cancel(&task.cell, false) || self.is_cancelled())
    }

    /// What the task waits for has failed, and so has the task.
    fn _fail(&self, error: Py<PyAny>) -> PyResult<()> {
        let task = self.task()?;
        if let Some(cell) = self.take_deferred() {
            self.python.lock().result = Some(Resolved::Error(error));
            task.session.end_later(cell);
        }
        Ok(())
    }

    fn _interrupt(&self) -> PyResult<bool> {
        let task = self.task()?;
        if let Some(cell) = self.take_deferred() {
            task.session.end_later(cell);
            return Ok(true);
        }
        Ok(task.session.cancel(&task.cell, true))
    }

    #[pyo3(signature = (r#fn))]
    fn add_done_callback(slf: &Bound<'_, Self>, r#fn: Py<PyAny>) -> PyResult<()> {
        crate::ending::stays();
        let callback = r#fn;
        let this = slf.get();
        if this.task()?.cell.is_done() && this.python.lock().extras.is_none() {
            return call_back(slf, &callback);
        }
        if !this.done() {
            check_own(slf.py(), &this.task()?.session)?;
        }
        this.python.lock().extras.get_or_insert_default().callbacks.push(callback);
        Self::ask_for_notice(slf)
    }

    #[getter(_state)]
    fn state(&self) -> &'static str {
        let unpublished = {
            let python = self.python.lock();
            python.extras.as_ref().is_some_and(|extras| extras.condition.is_some() && !extras.published)
        };
        if self.done() && !unpublished {
            if self.is_cancelled() { CANCELLED } else { FINISHED }
        } else if self.running() {
            RUNNING
        } else {
            PENDING
        }
    }

    #[getter(_condition)]
    fn condition(slf: &Bound<'_, Self>) -> PyResult<Py<PyAny>> {
        let py = slf.py();
        let this = slf.get();
        if let Some(extras) = &this.python.lock().extras
            && let Some(condition) = &extras.condition
        {
            return Ok(condition.clone_ref(py));
        }
        let condition =
            py.import(intern!(py, "threading"))?.getattr(intern!(py, "Condition"))?.call0()?.unbind();
        let kept = {
            let mut python = this.python.lock();
            let extras = python.extras.get_or_insert_default();
            extras.condition.get_or_insert(condition).clone_ref(py)
        };
        Self::ask_for_notice(slf)?;
        Ok(kept)
    }

    #[getter(_waiters)]
    fn waiters(&self, py: Python<'_>) -> Py<PyList> {
        let empty = PyList::empty(py).unbind();
        let mut python = self.python.lock();
        python.extras.get_or_insert_default().waiters.get_or_insert(empty).clone_ref(py)
    }

    #[getter(_done_callbacks)]
    fn done_callbacks(&self, py: Python<'_>) -> Py<PyList> {
        let empty = PyList::empty(py).unbind();
        let mut python = self.python.lock();
        python.extras.get_or_insert_default().callback_list.get_or_insert(empty).clone_ref(py)
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        // The collector runs with the interpreter stopped: if the lock is held, its holder is not in Python, and what
        // it is about to store is not garbage.
        let Some(python) = self.python.try_lock() else { return Ok(()) };
        match &python.result {
            Some(Resolved::Value(object) | Resolved::Error(object)) => visit.call(object)?,
            Some(Resolved::Cancelled) | None => {}
        }
        if let Some(extras) = &python.extras {
            visit.call(&extras.condition)?;
            visit.call(&extras.waiters)?;
            visit.call(&extras.callback_list)?;
            for callback in &extras.callbacks {
                visit.call(callback)?;
            }
        }
        Ok(())
    }

    fn __clear__(&self) {
        let taken = self.python.try_lock().map(|mut python| std::mem::take(&mut *python));
        drop(taken);
    }
}

impl FutureBase {
    /// Have the callback thread publish the outcome when it comes; if it is there, publish it now.
    fn ask_for_notice(slf: &Bound<'_, Self>) -> PyResult<()> {
        let this = slf.get();
        if !this.done() {
            check_own(slf.py(), &this.task()?.session)?;
        }
        {
            let mut python = this.python.lock();
            let extras = python.extras.get_or_insert_default();
            if std::mem::replace(&mut extras.noticed, true) && !this.done() {
                return Ok(());
            }
        }
        let task = this.task()?;
        let future = slf.clone().unbind();
        let notice: Notice = Box::new(move || {
            crate::ending::attach(|py| {
                publish(future.bind(py)).unwrap_or_else(|error| error.write_unraisable(py, None));
            });
        });
        match task.cell.on_done(notice) {
            Ok(()) => {
                let session = task.session.clone();
                session.expect_callback();
                Ok(())
            }
            Err(_) => publish(slf),
        }
    }
}

/// Tell everybody who asked: those behind the condition, then the callbacks.
fn publish(future: &Bound<'_, FutureBase>) -> PyResult<()> {
    crate::ending::stays();
    let py = future.py();
    let this = future.get();
    let (condition, waiters) = {
        let python = this.python.lock();
        match &python.extras {
            Some(extras) if !extras.published => (
                extras.condition.as_ref().map(|condition| condition.clone_ref(py)),
                extras.waiters.as_ref().map(|waiters| waiters.clone_ref(py)),
            ),
            _ => (None, None),
        }
    };
    if let Some(condition) = condition {
        let condition = condition.bind(py);
        condition.call_method0(intern!(py, "acquire"))?;
        let told = tell_waiters(future, waiters.as_ref());
        let notified = condition.call_method0(intern!(py, "notify_all"));
        condition.call_method0(intern!(py, "release"))?;
        told.and(notified.map(drop))?;
    }
    loop {
        let callbacks = match &mut this.python.lock().extras {
            Some(extras) => std::mem::take(&mut extras.callbacks),
            None => Vec::new(),
        };
        if callbacks.is_empty() {
            return Ok(());
        }
        for callback in &callbacks {
            call_back(future, callback)?;
        }
    }
}

/// Under the condition: the state is final from now on.
fn tell_waiters(future: &Bound<'_, FutureBase>, known: Option<&Py<PyList>>) -> PyResult<()> {
    let py = future.py();
    let this = future.get();
    let waiters = {
        let mut python = this.python.lock();
        let Some(extras) = &mut python.extras else { return Ok(()) };
        if std::mem::replace(&mut extras.published, true) {
            return Ok(());
        }
        extras.waiters.as_ref().or(known).map(|waiters| waiters.clone_ref(py))
    };
    let Some(waiters) = waiters else { return Ok(()) };
    let method = match this.ending() {
        Ending::Value => intern!(py, "add_result"),
        Ending::Error => intern!(py, "add_exception"),
        Ending::Cancelled => intern!(py, "add_cancelled"),
    };
    for waiter in waiters.bind(py).iter() {
        waiter.call_method1(method, (future,))?;
    }
    Ok(())
}

/// Run one callback; what it raises is logged, as `concurrent.futures` does.
fn call_back(future: &Bound<'_, FutureBase>, callback: &Py<PyAny>) -> PyResult<()> {
    let py = future.py();
    match callback.bind(py).call1((future,)) {
        Ok(_) => Ok(()),
        Err(error) => log_failure(future, error),
    }
}

/// Log what a callback has raised, unless it is none of its own, such as an interrupt.
pub fn log_failure(whose: &Bound<'_, PyAny>, error: PyErr) -> PyResult<()> {
    let py = whose.py();
    if !error.is_instance_of::<pyo3::exceptions::PyException>(py) {
        return Err(error);
    }
    let logger = py.import("concurrent.futures._base")?.getattr("LOGGER")?;
    let keywords = pyo3::types::PyDict::new(py);
    keywords.set_item("exc_info", error.into_value(py))?;
    logger.call_method("error", ("exception calling callback for %r", whose), Some(&keywords))?;
    Ok(())
}
