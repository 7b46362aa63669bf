//! What a task's outcome is to Python: a value, or an exception to raise.

use crate::wire::Wire;
use paceline::exchange::Failure;
use paceline::{
    ActorDied, Charge, DeathCause, GroupLost, Lost, LostCause, MemoryUse, NotStarted, OutOfMemory, Outcome,
    PoolBroken, Session, StartError, Stored, TaskId,
};
use pyo3::exceptions::{PyKeyboardInterrupt, PyRuntimeError, PyStopIteration};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

/// Which task an outcome is of, for the message.
pub struct Of<'a> {
    pub task: TaskId,
    pub function: &'a str,
    /// Knows where it ran.
    pub session: &'a Session,
    pub wire: Wire,
    /// Its value is the list of those of a chunk.
    pub chunk: bool,
}

impl<'a> Of<'a> {
    pub fn one(task: TaskId, function: &'a str, session: &'a Session, wire: Wire) -> Of<'a> {
        Of { task, function, session, wire, chunk: false }
    }
}

/// An outcome that was kept. The disk is asked for it without the interpreter.
pub fn load(py: Python<'_>, stored: Stored) -> Outcome {
    if stored.is_on_disk() { crate::ending::detach(py, || stored.load()) } else { stored.load() }
}

/// The value, or the exception.
pub fn resolve<'py>(py: Python<'py>, outcome: Outcome, of: &Of<'_>) -> PyResult<Bound<'py, PyAny>> {
    crate::ending::stays();
    match outcome {
        // Nobody was there to return anything.
        Outcome::Value(bytes) if bytes.is_empty() => Ok(py.None().into_bound(py)),
        Outcome::Value(bytes) => {
            of.wire.value(py, &bytes, of.chunk).map_err(|error| unreadable(py, error, of))
        }
        Outcome::Raised(bytes) if of.wire == Wire::Message => Err(foreign_error(py, &bytes, of)?),
        Outcome::Raised(bytes) => Err(remote_error(py, &bytes)),
        Outcome::Unsendable(bytes) => {
            let fields = fields(py, of)?;
            fields.set_item("reason", String::from_utf8_lossy(&bytes))?;
            Err(lost(py, "result", &fields))
        }
        Outcome::Cancelled => Err(cancelled(py)),
        Outcome::TimedOut { after, attempts } => {
            let fields = fields(py, of)?;
            fields.set_item("timeout", after.as_secs_f64())?;
            fields.set_item("attempts", attempts)?;
            Err(lost(py, "timeout", &fields))
        }
        Outcome::Lost(how) => Err(lost_error(py, &how, of)?),
        Outcome::NotStarted(failed) => Err(not_started(py, &failed, of)?),
        Outcome::Unplaceable(refused) => {
            let fields = fields(py, of)?;
            fields.set_item("needs", refused.needs.to_string())?;
            fields.set_item("largest", refused.largest.to_string())?;
            fields.set_item("why", refused.why)?;
            Err(lost(py, "no-resources", &fields))
        }
        Outcome::HeadLost { after } => {
            let fields = fields(py, of)?;
            fields.set_item("after", after.as_secs_f64())?;
            Err(lost(py, "head-lost", &fields))
        }
        Outcome::Stopped { by } => {
            let fields = fields(py, of)?;
            fields.set_item("by", by.as_ref())?;
            Err(lost(py, "stopped", &fields))
        }
        Outcome::Refused { why } => {
            let fields = fields(py, of)?;
            fields.set_item("why", why.as_ref())?;
            Err(lost(py, "limit-reached", &fields))
        }
        Outcome::NoRoom(waited) => {
            let fields = fields(py, of)?;
            fields.set_item("needs", waited.needs.to_string())?;
            fields.set_item("why", waited.why)?;
            fields.set_item("waited", true)?;
            Err(lost(py, "no-resources", &fields))
        }
        Outcome::GroupLost(how) => Err(group_lost(py, &how, of)?),
        Outcome::PoolBroken(why) => Err(pool_broken(py, &why, of)?),
        Outcome::ActorDied(how) => Err(actor_died(py, &how, of)?),
        Outcome::ActorGone(how) => {
            let fields = fields(py, of)?;
            if let Some(charge) = &how.charge {
                say_death(&fields, charge, of)?;
                fields.set_item("node_lost", charge.cause == DeathCause::NodeLost)?;
                fields.set_item("timed_out", charge.cause == DeathCause::TimedOut)?;
            } else {
                fields.set_item("why", how.why.as_ref())?;
            }
            fields.set_item("ran", how.ran)?;
            let died = lost(py, "actor-died", &fields);
            if !how.error.is_empty() {
                died.set_cause(py, Some(remote_error(py, &how.error)));
            }
            Err(died)
        }
        Outcome::ActorAway { why, .. } => {
            let fields = fields(py, of)?;
            fields.set_item("why", why.as_ref())?;
            Err(lost(py, "actor-unavailable", &fields))
        }
        Outcome::TooDeep { needs } => {
            let fields = fields(py, of)?;
            fields.set_item("needs", needs.to_string())?;
            Err(lost(py, "too-deep", &fields))
        }
    }
}

/// As [`resolve`], for one of many: a `StopIteration` of the function would end the loop that asks for the next one.
pub fn resolve_item<'py>(py: Python<'py>, outcome: Outcome, of: &Of<'_>) -> PyResult<Bound<'py, PyAny>> {
    resolve(py, outcome, of).map_err(|error| {
        if !error.is_instance_of::<PyStopIteration>(py) {
            return error;
        }
        let plain = PyRuntimeError::new_err(format!("{} raised StopIteration", of.function));
        plain.set_cause(py, Some(error));
        plain
    })
}

/// The error for a result that came and cannot be read.
fn unreadable(py: Python<'_>, error: PyErr, of: &Of<'_>) -> PyErr {
    // Even an exit: what comes back must not end its caller. But Ctrl-C is what it is.
    if error.is_instance_of::<PyKeyboardInterrupt>(py) {
        return error;
    }
    let made = py.import(intern!(py, "paceline._outcome")).and_then(|module| {
        module.getattr(intern!(py, "unreadable"))?.call1((error.into_value(py), of.function))
    });
    made.map_or_else(|error| error, PyErr::from_value)
}

fn fields<'py>(py: Python<'py>, of: &Of<'_>) -> PyResult<Bound<'py, PyDict>> {
    let fields = PyDict::new(py);
    fields.set_item("task", of.task.0)?;
    fields.set_item("function", of.function)?;
    Ok(fields)
}

/// How a call of another language's function went wrong.
fn foreign_error(py: Python<'_>, bytes: &[u8], of: &Of<'_>) -> PyResult<PyErr> {
    let fields = fields(py, of)?;
    let kind = match Failure::decode(bytes) {
        Ok(Failure::Failed { kind, message }) => {
            fields.set_item("type_name", kind)?;
            fields.set_item("message", message)?;
            "failed"
        }
        Ok(Failure::Panicked { message, location }) => {
            fields.set_item("type_name", "panic")?;
            fields.set_item("message", message)?;
            fields.set_item("location", location)?;
            "failed"
        }
        Ok(Failure::Raised { kind, message, traceback }) => {
            fields.set_item("type_name", kind)?;
            fields.set_item("message", message)?;
            fields.set_item("location", traceback)?;
            "failed"
        }
        Ok(Failure::NoSuchTask { known }) => {
            fields.set_item("exports", known)?;
            "no-such-function"
        }
        Ok(Failure::Arguments { message }) => {
            fields.set_item("reason", message)?;
            "wrong-arguments"
        }
        Ok(Failure::Value { message }) => {
            fields.set_item("reason", message)?;
            "result"
        }
        Err(message) => {
            fields.set_item("type_name", "unknown")?;
            fields.set_item("message", format!("the error could not be decoded: {message}"))?;
            "failed"
        }
    };
    Ok(lost(py, kind, &fields))
}

fn not_started(py: Python<'_>, failed: &NotStarted, of: &Of<'_>) -> PyResult<PyErr> {
    let fields = fields(py, of)?;
    fields.set_item("program", &failed.path)?;
    fields.set_item("reason", failed.why.to_string())?;
    fields.set_item("stderr", failed.why.words())?;
    let (signal, exit_code) = match failed.why.cause() {
        Some(DeathCause::Signal(signal)) => (Some(signal), None),
        Some(DeathCause::Exit(code)) => (None, Some(code)),
        _ => (None, None),
    };
    fields.set_item("signal", signal)?;
    fields.set_item("exit_code", exit_code)?;
    let kind = match failed.why {
        StartError::NotRun { .. } => "not-run",
        StartError::Ended { .. } => "ended",
        StartError::Foreign { .. } => "foreign",
        StartError::Silent { .. } => "silent",
        StartError::SlotsDie { .. } => "slots-die",
    };
    fields.set_item("kind", kind)?;
    Ok(lost(py, "program-not-started", &fields))
}

fn lost_error(py: Python<'_>, how: &Lost, of: &Of<'_>) -> PyResult<PyErr> {
    let fields = fields(py, of)?;
    fields.set_item("attempts", how.attempts)?;
    if let Some(last) = how.charges.last() {
        say_death(&fields, last, of)?;
    }
    let slots: Vec<u64> = how.charges.iter().map(|charge| charge.slot.0).collect();
    fields.set_item("slots", slots)?;
    let short = how
        .charges
        .last()
        .is_some_and(|charge| matches!(charge.out_of_memory, OutOfMemory::Yes(_) | OutOfMemory::Exceeded(_)));
    let kind = match how.cause {
        LostCause::SlotDied if short => "out-of-memory",
        LostCause::SlotDied => "slot-died",
        LostCause::NodeLost => "node-lost",
        LostCause::Poison => "poison",
    };
    Ok(lost(py, kind, &fields))
}

/// Where something died, and how.
fn say_death(fields: &Bound<'_, PyDict>, last: &Charge, of: &Of<'_>) -> PyResult<()> {
    fields.set_item("slot", last.slot.0)?;
    fields.set_item("node", of.session.node_name(last.node))?;
    let (signal, exit_code) = match last.cause {
        // Of a signal that stops nobody dies, so it says enough.
        DeathCause::Signal(signal) | DeathCause::Stopped(signal) => (Some(signal), None),
        DeathCause::Exit(code) => (None, Some(code)),
        DeathCause::NodeLost | DeathCause::TimedOut => (None, None),
    };
    fields.set_item("signal", signal)?;
    fields.set_item("exit_code", exit_code)?;
    let (said, memory) = match last.out_of_memory {
        OutOfMemory::Yes(memory) | OutOfMemory::Exceeded(memory) => ("yes", memory),
        OutOfMemory::Likely(memory) => ("likely", memory),
        OutOfMemory::No => ("no", MemoryUse::default()),
    };
    fields.set_item("out_of_memory", said)?;
    fields.set_item("peak", memory.peak)?;
    fields.set_item("limit", memory.limit)?;
    fields.set_item("own_limit", matches!(last.out_of_memory, OutOfMemory::Exceeded(_)))
}

fn group_lost(py: Python<'_>, how: &GroupLost, of: &Of<'_>) -> PyResult<PyErr> {
    let fields = fields(py, of)?;
    say_death(&fields, &how.charge, of)?;
    fields.set_item("rank", how.member)?;
    fields.set_item("size", how.size)?;
    fields.set_item("node_lost", how.charge.cause == DeathCause::NodeLost)?;
    fields.set_item("timed_out", how.charge.cause == DeathCause::TimedOut)?;
    Ok(lost(py, "group-lost", &fields))
}

fn pool_broken(py: Python<'_>, why: &PoolBroken, of: &Of<'_>) -> PyResult<PyErr> {
    let fields = fields(py, of)?;
    let mut cause = None;
    match why {
        PoolBroken::Raised { call, error, tries } => {
            fields.set_item("call", call.as_ref())?;
            fields.set_item("tries", tries)?;
            cause = Some(remote_error(py, error));
        }
        PoolBroken::Unsendable { call, reason, tries } => {
            fields.set_item("call", call.as_ref())?;
            fields.set_item("tries", tries)?;
            fields.set_item("reason", String::from_utf8_lossy(reason))?;
        }
        PoolBroken::Killed { call, charge, tries } => {
            say_death(&fields, charge, of)?;
            fields.set_item("call", call.as_ref())?;
            fields.set_item("tries", tries)?;
            fields.set_item("node_lost", charge.cause == DeathCause::NodeLost)?;
        }
        PoolBroken::Died { charge, deaths } => {
            say_death(&fields, charge, of)?;
            fields.set_item("deaths", deaths)?;
            fields.set_item("node_lost", charge.cause == DeathCause::NodeLost)?;
        }
    }
    if let Some(cause) = &cause {
        fields.set_item("error", cause.value(py))?;
    }
    let broken = lost(py, "pool-broken", &fields);
    broken.set_cause(py, cause);
    Ok(broken)
}

fn actor_died(py: Python<'_>, how: &ActorDied, of: &Of<'_>) -> PyResult<PyErr> {
    let fields = fields(py, of)?;
    say_death(&fields, &how.charge, of)?;
    fields.set_item("ran", how.ran)?;
    fields.set_item("deaths", how.deaths)?;
    fields.set_item("again", how.again)?;
    fields.set_item("node_lost", how.charge.cause == DeathCause::NodeLost)?;
    fields.set_item("timed_out", how.charge.cause == DeathCause::TimedOut)?;
    Ok(lost(py, "actor-died", &fields))
}

fn lost(py: Python<'_>, kind: &str, fields: &Bound<'_, PyDict>) -> PyErr {
    let made = py
        .import(intern!(py, "paceline._outcome"))
        .and_then(|module| module.getattr(intern!(py, "lost"))?.call1((kind, fields)));
    made.map_or_else(|error| error, PyErr::from_value)
}

fn remote_error(py: Python<'_>, bytes: &[u8]) -> PyErr {
    let made = py
        .import(intern!(py, "paceline._outcome"))
        .and_then(|module| module.getattr(intern!(py, "remote_error"))?.call1((PyBytes::new(py, bytes),)));
    made.map_or_else(|error| error, PyErr::from_value)
}

/// `concurrent.futures.CancelledError`
pub fn cancelled(py: Python<'_>) -> PyErr {
    let made = py
        .import(intern!(py, "concurrent.futures"))
        .and_then(|module| module.getattr(intern!(py, "CancelledError"))?.call0());
    made.map_or_else(|error| error, PyErr::from_value)
}
