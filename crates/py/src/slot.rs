//! A Python slot: runs calls on the main thread until it is told to leave.

use crate::message::{self, Trouble};
use crate::values::{self, Root};
use crate::zygote::{Birth, Zygote};
use crate::{beside, loading, payload};
use bytes::Bytes;
use paceline::{Here, Outcome, Ticket};
use paceline_proto::data::{Call, Environment, Status};
use paceline_proto::{FunctionId, Seq};
use paceline_slot::{Next, Runtime};
use pyo3::exceptions::{PyOSError, PyRuntimeError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use std::collections::HashMap;
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Be a slot until told to end. Runs in the forked child, on its main thread.
#[pyfunction]
pub fn slot_main(py: Python<'_>, zygote: &Bound<'_, Zygote>, birth: &Bound<'_, Birth>) -> PyResult<()> {
    let (slot, control, page) = birth.get().become_slot(zygote.get())?;
    let hook = PyDict::new(py);
    hook.set_item("after_in_child", wrap_pyfunction!(after_fork_in_slot, py)?)?;
    py.import("os")?.getattr("register_at_fork")?.call((), Some(&hook))?;
    let runtime =
        Runtime::start(slot, control, page).map_err(|error| PyOSError::new_err(error.to_string()))?;
    let runtime = RUNTIME.get_or_init(|| runtime);
    SLOT.store(slot.0, Ordering::Relaxed);
    let signals = py.import("_signal")?;
    let handler = wrap_pyfunction!(on_interrupt, py)?;
    signals.getattr("signal")?.call1((signals.getattr("SIGINT")?, handler))?;
    Slot { runtime, functions: HashMap::new(), last: None, over: None }.serve(py)
}

#[pyfunction]
fn after_fork_in_slot() {
    paceline_slot::after_fork_in_child();
    paceline::after_fork_in_child();
}

/// What this process is, once it is a slot.
static RUNTIME: OnceLock<Runtime> = OnceLock::new();

/// The slot that this process is, if it is one.
pub fn runtime() -> Option<&'static Runtime> {
    RUNTIME.get().filter(|_| !paceline_slot::is_forked_child())
}

/// The session of tasks that submit tasks, once one did.
pub static NESTED: OnceLock<paceline::Session> = OnceLock::new();

/// The handler of Ctrl-C's signal in slots: it ends the call that is to stop, and nothing else.
#[pyfunction]
fn on_interrupt(_signal: i32, frame: &Bound<'_, PyAny>) -> PyResult<()> {
    match RUNTIME.get() {
        Some(runtime) if runtime.is_interrupted() => loading::interrupt(runtime, frame),
        _ => Ok(()),
    }
}

/// The task that runs and which attempt at it this is; zero for none.
static TASK: AtomicU64 = AtomicU64::new(0);
static ATTEMPT: AtomicU32 = AtomicU32::new(0);
static SLOT: AtomicU64 = AtomicU64::new(0);

/// Task, attempt and slot, inside a task.
#[pyfunction]
pub fn current() -> Option<(u64, u32, u64)> {
    let task = TASK.load(Ordering::Relaxed);
    (task != 0).then(|| (task, ATTEMPT.load(Ordering::Relaxed), SLOT.load(Ordering::Relaxed)))
}

struct Slot {
    runtime: &'static Runtime,
    functions: HashMap<FunctionId, Loaded>,
    /// The function called last: almost always the next one too.
    last: Option<(FunctionId, Loaded)>,
    /// Large arguments of the call before: let go of once its answer is on its way.
    over: Option<Py<PyAny>>,
}

/// A function, and who begins its calls if they go on beside others.
struct Loaded {
    function: Py<PyAny>,
    begins: Option<Py<PyAny>>,
}

impl Loaded {
    fn clone_ref(&self, py: Python<'_>) -> Loaded {
        let begins = self.begins.as_ref().map(|begins| begins.clone_ref(py));
        Loaded { function: self.function.clone_ref(py), begins }
    }
}

impl Slot {
    fn serve(mut self, py: Python<'_>) -> PyResult<()> {
        let mut finished: Option<(Seq, Status, Bytes)> = None;
        loop {
            let next = self.runtime.advance(finished.take());
            drop(self.over.take());
            match next {
                Some(Next::Call(call)) => {
                    finished = self.run(py, &call);
                    if paceline_slot::is_forked_child() {
                        // The function forked and returned in the child, too. Only its parent answers.
                        return Ok(());
                    }
                }
                Some(Next::Environment(environment)) => self.bind(py, environment)?,
                Some(Next::Exit) => return Ok(()),
                None => {
                    crate::ending::detach(py, || self.runtime.wait());
                    py.check_signals()?;
                }
            }
        }
    }

    fn bind(&self, py: Python<'_>, environment: Environment) -> PyResult<()> {
        let variables = PyDict::new(py);
        for (name, value) in self.runtime.device_variables() {
            variables.set_item(name, value)?;
        }
        // The client names counts that its user has not set, without a value: how many there are is known only here.
        let threads = self.runtime.needs().map_or(1, |needs| needs.threads()).to_string();
        let counts = PyDict::new(py);
        for (name, value) in environment.variables {
            if value.is_empty() && paceline_slot::THREAD_COUNTS.contains(&name.as_str()) {
                counts.set_item(name, &threads)?;
            } else {
                variables.set_item(name, value)?;
            }
        }
        let module = py.import(intern!(py, "paceline._slot"))?;
        let far = self.runtime.is_far();
        let files = self.runtime.files().filter(|files| far && Path::new(files).exists());
        let directory = match &files {
            // As at the client's, below its directory here.
            Some(files) => format!("{files}/root{}", at_home(&environment.directory, files)),
            None if far => own_directory()?,
            None => environment.directory,
        };
        let bind = module.getattr(intern!(py, "bind"))?;
        bind.call1((directory, environment.path, variables, far, files, counts))?;
        Ok(())
    }

    /// None: it goes on elsewhere.
    fn run(&mut self, py: Python<'_>, call: &Call) -> Option<(Seq, Status, Bytes)> {
        TASK.store(call.task.0, Ordering::Relaxed);
        ATTEMPT.store(call.attempt, Ordering::Relaxed);
        if message::is_foreign(&call.payload) {
            let result = self.foreign_value(py, call);
            TASK.store(0, Ordering::Relaxed);
            return Some(match result.map_err(|trouble| message::failure(py, trouble)) {
                Ok(payload) => (call.seq, Status::Value, payload),
                Err(Ok(payload)) => (call.seq, Status::Raised, payload),
                Err(Err(error)) => (call.seq, Status::Unsendable, Bytes::from(error.to_string())),
            });
        }
        let runtime = self.runtime;
        let result = match self.function(py, call.function) {
            Ok(Loaded { function, begins: Some(begins) }) => {
                TASK.store(0, Ordering::Relaxed);
                return beside::begin(py, runtime, function, begins, call);
            }
            Ok(loaded) => {
                let mut over = None;
                let result = value(loaded.function.bind(py), call, &mut over);
                self.over = over;
                result
            }
            Err(error) => Err(error),
        };
        TASK.store(0, Ordering::Relaxed);
        if let Some(session) = NESTED.get()
            && !self.runtime.keeps()
        {
            // What the task did not wait for ends with it; what an object submitted, with the object.
            session.cancel_pending();
        }
        let (status, payload) = ended(py, result);
        Some((call.seq, status, payload))
    }

    /// As [`Slot::value`], for a caller of another language.
    fn foreign_value(&mut self, py: Python<'_>, call: &Call) -> Result<Bytes, Trouble> {
        message::apply(self.function(py, call.function)?.function.bind(py), &call.payload)
    }

    fn function(&mut self, py: Python<'_>, id: FunctionId) -> PyResult<&Loaded> {
        if self.last.as_ref().is_none_or(|(last, _)| *last != id) {
            let function = match self.functions.get(&id) {
                Some(function) => function.clone_ref(py),
                None => self.load(py, id)?,
            };
            self.last = Some((id, function));
        }
        let (_, function) = self.last.as_ref().expect("set above");
        Ok(function)
    }

    fn load(&mut self, py: Python<'_>, id: FunctionId) -> PyResult<Loaded> {
        let bytes = self.runtime.function(id);
        let bytes =
            bytes.ok_or_else(|| PyRuntimeError::new_err("the call names a function that was not sent"))?;
        let function = load(py, &bytes)?;
        let begins = function.getattr_opt(intern!(py, "_pl_begin"))?.map(Bound::unbind);
        let loaded = Loaded { function: function.unbind(), begins };
        self.functions.insert(id, loaded.clone_ref(py));
        Ok(loaded)
    }
}

fn value(function: &Bound<'_, PyAny>, call: &Call, over: &mut Option<Py<PyAny>>) -> PyResult<Bytes> {
    let value = payload::apply_keeping(function, &call.payload, over)?;
    values::build(function.py(), |out| values::encode(&value, Root::Result, out))
}

/// What to answer.
pub fn ended(py: Python<'_>, result: PyResult<Bytes>) -> (Status, Bytes) {
    match result.map_err(|error| describe(py, error)) {
        Ok(payload) => (Status::Value, payload),
        Err(Ok(payload)) => (Status::Raised, payload),
        Err(Err(error)) => (Status::Unsendable, Bytes::from(error.to_string())),
    }
}

fn load<'py>(py: Python<'py>, bytes: &[u8]) -> PyResult<Bound<'py, PyAny>> {
    let module = py.import(intern!(py, "paceline._slot"))?;
    let load = module.getattr(intern!(py, "load"))?;
    loading::whole(|| load.call1((PyBytes::new(py, bytes),)))
}

/// Run a task in the middle of another that waits for it. An interrupt is meant for the outer one.
pub fn run_here(py: Python<'_>, here: &Here<Ticket>) -> (Outcome, PyResult<()>) {
    let outer = (TASK.swap(here.task.0, Ordering::Relaxed), ATTEMPT.load(Ordering::Relaxed));
    let mut attempts = here.attempt..=here.attempt.saturating_add(here.retries);
    let ended = loop {
        let last = attempts.next().expect("the loop ends with the last one");
        ATTEMPT.store(last, Ordering::Relaxed);
        let value = load(py, &here.bytes).and_then(|function| {
            let value = payload::apply(&function, &here.payload)?;
            values::build(py, |out| values::encode(&value, Root::Result, out))
        });
        match value {
            Ok(payload) => break (Outcome::Value(payload), Ok(())),
            Err(error) if RUNTIME.get().is_some_and(Runtime::is_interrupted) => {
                break (Outcome::Cancelled, Err(error));
            }
            Err(_) if !attempts.is_empty() => {}
            Err(error) => match describe(py, error) {
                Ok(payload) => break (Outcome::Raised(payload), Ok(())),
                Err(error) => break (Outcome::Unsendable(Bytes::from(error.to_string())), Ok(())),
            },
        }
    };
    TASK.store(outer.0, Ordering::Relaxed);
    ATTEMPT.store(outer.1, Ordering::Relaxed);
    ended
}

/// The user's exception as bytes.
fn describe(py: Python<'_>, error: PyErr) -> PyResult<Bytes> {
    let module = py.import(intern!(py, "paceline._slot"))?;
    let bytes = module.getattr(intern!(py, "failure"))?.call1((error.into_value(py),))?;
    Ok(Bytes::copy_from_slice(bytes.cast::<PyBytes>()?.as_bytes()))
}

/// A client's directory as the client itself knows it, if this is told by one of its tasks on another machine.
fn at_home<'a>(directory: &'a str, files: &str) -> &'a str {
    let client = Path::new(files).file_name().unwrap_or_default().to_string_lossy();
    directory.split_once(&format!("/clients/{client}/root")).map_or(directory, |(_, rest)| rest)
}

/// Where user code of a client elsewhere runs: a directory of this slot's own, made when it is first needed.
fn own_directory() -> PyResult<String> {
    static MADE: OnceLock<String> = OnceLock::new();
    if let Some(made) = MADE.get() {
        return Ok(made.clone());
    }
    let path = paceline_slot::private_directory().map_err(|error| PyOSError::new_err(error.to_string()))?;
    Ok(MADE.get_or_init(|| path.to_string_lossy().into_owned()).clone())
}
