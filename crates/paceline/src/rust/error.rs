//! What can go wrong, as the caller sees it.

use super::program::interned;
use crate::exchange::Failure;
use crate::{
    ActorDied, ActorGone, Charge, DeathCause, Lost, LostCause, OutOfMemory, Outcome, PoolBroken, Resources,
    Session, StartError, Waiting,
};
use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why there is no value.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The function returned an error: its text, and the name of its type.
    #[error("{task} failed: {message}")]
    Failed { task: &'static str, message: String, kind: String },
    #[error("{task} panicked at {location}: {message}")]
    Panicked { task: &'static str, message: String, location: String },
    /// The slot died while the task ran, and it may not be run again.
    #[error("{task} lost its slot: {death}, after {attempts} attempts")]
    SlotDied { task: &'static str, death: Death, attempts: u32 },
    /// It has killed as many slots as a task may.
    #[error("{task} was stopped because it killed {deaths} slots, the last: {death}")]
    Poison { task: &'static str, death: Death, deaths: usize },
    #[error("{task} ran for longer than {after:?}, in attempt {attempts}")]
    TimedOut { task: &'static str, after: Duration, attempts: u32 },
    #[error("{task} was cancelled")]
    Cancelled { task: &'static str },
    /// A Python function raised an exception: the name of its type, its text, and where it came from.
    #[error("{task} raised {kind}: {message}")]
    Raised { task: &'static str, kind: String, message: String, traceback: String },
    /// There is no function of this name. These are exported.
    #[error("the slots have no task of this name: {task}{}", listed(known))]
    NoSuchTask { task: &'static str, known: Vec<String> },
    /// The program that has the function could not be started.
    #[error("{task} cannot run, for {program} could not be started: {why}{}", quoted(why.words()))]
    NotStarted { task: &'static str, program: String, why: Box<StartError> },
    /// No node can ever hold it, or the head gives one client no more of something.
    #[error("{} {task}, which needs {needs}: {why}", no_slot(why))]
    Unplaceable { task: &'static str, needs: Box<Resources>, why: String },
    /// It waited for a slot for as long as it may.
    #[error("no slot for {task}, which needs {needs}, in the time it may wait{}", because(why))]
    NoRoom { task: &'static str, needs: Box<Resources>, why: String },
    /// The head of the cluster was out of reach for as long as anything waits for it.
    #[error("{task} waited for the head of the cluster, which was out of reach for {after:?}")]
    HeadLost { task: &'static str, after: Duration },
    /// Somebody ended the cluster.
    #[error("{task} ended with the cluster, which was stopped by {by}")]
    Stopped { task: &'static str, by: String },
    /// The head or the node did not let this process have a link, because of a limit.
    #[error("{task} did not run: {why}")]
    LimitReached { task: &'static str, why: String },
    /// The process that the actor lives in has died, or the actor is no more. `ran`: the call had begun, as far as
    /// anybody knows; otherwise it never will. `again`: the actor is built anew and takes the next call.
    #[error("{task} ended with its actor, which {why}; {}", begun(*ran))]
    ActorDied { task: &'static str, why: String, death: Option<Death>, ran: bool, again: bool },
    /// Nobody knows just now what became of the actor, which may live. The call has not run.
    #[error("{task} did not run: its actor cannot be reached{}", because(why))]
    ActorUnavailable { task: &'static str, why: String },
    /// Others cannot call the actor: its name is another's, most likely.
    #[error("the actor cannot have the name {name}: {why}")]
    ActorRefused { name: String, why: String },
    #[error("there is no actor of this name in the cluster that can be had: {name}{}", because(why))]
    NoSuchActor { name: String, why: String },
    /// What prepares the slots of a pool failed in so many of them in a row.
    #[error("{task} cannot run, for its pool is broken: {cause}; so it went in {tries} slots in a row")]
    PoolBroken { task: &'static str, tries: u32, cause: Box<Error> },
    /// The updates that slots which come later must run take more room than they may.
    #[error("{task} does not fit: the updates of the pool take {bytes} of {most} bytes")]
    HistoryFull { task: &'static str, bytes: usize, most: usize },
    /// Arguments or value could not be made into bytes.
    #[error("{what} of {task} cannot be encoded: {message}")]
    Encode { task: &'static str, what: &'static str, message: String },
    /// Bytes are not what their type says.
    #[error("{what} of {task} cannot be decoded: {message}")]
    Decode { task: &'static str, what: &'static str, message: String },
    /// More tasks, or bytes of their arguments, wait to be sent than may.
    #[error(
        "no room for {task}: {} of {} tasks and {} of {} bytes wait to be sent",
        waiting.tasks, most.tasks, waiting.bytes, most.bytes
    )]
    QueueFull { task: &'static str, waiting: Waiting, most: Waiting },
    #[error("the cluster is closed")]
    Closed,
    #[error("not a number of CPUs: {cpus}")]
    NotANumberOfCpus { cpus: f64 },
    /// GPUs that are neither whole nor a fraction of one.
    #[error("this is no number of GPUs: {gpus}")]
    NotANumberOfGpus { gpus: f64 },
    #[error("paceline::init() was not called")]
    NotInitialised,
    #[error("a task cannot start a cluster")]
    InSlot,
    #[error("no task runs here, so it has no cluster")]
    NotInSlot,
    /// The task that submitted it waits, and may neither leave its CPUs to it nor run it itself.
    #[error("{task}, which needs {needs}, cannot run: too many tasks wait for others on this node")]
    TooDeep { task: &'static str, needs: Box<Resources> },
    #[error("two tasks have this name: {name}")]
    SameName { name: &'static str },
    #[error("the cluster could not be started: {0}")]
    Start(Arc<io::Error>),
    #[error("{0}")]
    Connect(Arc<crate::remote::Error>),
}

fn listed(known: &[String]) -> String {
    if known.is_empty() { String::new() } else { format!(", there are {}", known.join(", ")) }
}

fn begun(ran: bool) -> &'static str {
    if ran { "it had begun, and is not run again" } else { "it had not begun" }
}

fn quoted(words: &str) -> String {
    if words.is_empty() { String::new() } else { format!("\n{words}") }
}

/// How a slot ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Death {
    pub cause: DeathCause,
    pub out_of_memory: OutOfMemory,
}

impl Death {
    fn of(charge: &Charge) -> Death {
        Death { cause: charge.cause, out_of_memory: charge.out_of_memory }
    }
}

impl fmt::Display for Death {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.cause {
            DeathCause::Signal(signal) => write!(f, "ended by signal {signal}")?,
            DeathCause::Exit(code) => write!(f, "left with exit code {code}")?,
            DeathCause::NodeLost => write!(f, "its node was lost")?,
            DeathCause::TimedOut => write!(f, "ended because the task took too long")?,
            DeathCause::Stopped(signal) => {
                write!(f, "ended because signal {signal} had stopped it, and it stood still for too long")?
            }
        }
        let (said, memory) = match self.out_of_memory {
            OutOfMemory::Yes(memory) => ("out of memory", memory),
            OutOfMemory::Exceeded(memory) => ("it took more memory than it may", memory),
            OutOfMemory::Likely(memory) => ("likely out of memory", memory),
            OutOfMemory::No => return Ok(()),
        };
        write!(f, " ({said}")?;
        if memory.peak > 0 && memory.limit > 0 {
            write!(f, ": it had {} of {} MiB", memory.peak >> 20, memory.limit >> 20)?;
        }
        write!(f, ")")
    }
}

impl Error {
    /// A short name that does not change; the Python exceptions have the same.
    pub fn code(&self) -> &'static str {
        match self {
            Error::Failed { .. } => "task-failed",
            Error::Panicked { .. } => "task-panicked",
            Error::SlotDied { .. } => "slot-died",
            Error::Poison { .. } => "poison-task",
            Error::TimedOut { .. } => "task-timeout",
            Error::Cancelled { .. } => "cancelled",
            Error::Raised { .. } => "task-raised",
            Error::NoSuchTask { .. } => "no-such-task",
            Error::NotStarted { .. } => "program-not-started",
            Error::Unplaceable { .. } | Error::NoRoom { .. } => "no-resources",
            Error::HeadLost { .. } => "head-lost",
            Error::Stopped { .. } => "cluster-stopped",
            Error::LimitReached { .. } => "limit-reached",
            Error::ActorDied { .. } => "actor-died",
            Error::ActorUnavailable { .. } => "actor-unavailable",
            Error::ActorRefused { .. } => "actor-refused",
            Error::NoSuchActor { .. } => "no-such-actor",
            Error::PoolBroken { .. } => "pool-broken",
            Error::HistoryFull { .. } => "history-full",
            Error::Encode { .. } => "not-serializable",
            Error::Decode { .. } => "not-deserializable",
            Error::QueueFull { .. } => "queue-full",
            Error::Closed => "cluster-closed",
            Error::NotANumberOfCpus { .. } => "bad-cpus",
            Error::NotANumberOfGpus { .. } => "bad-gpus",
            Error::NotInitialised => "not-initialised",
            Error::InSlot => "in-slot",
            Error::NotInSlot => "not-in-slot",
            Error::TooDeep { .. } => "nesting-too-deep",
            Error::SameName { .. } => "same-name",
            Error::Start(_) => "not-started",
            Error::Connect(_) => "connection-failed",
        }
    }

    /// What may help, if anything is known to.
    pub fn hint(&self) -> Option<&'static str> {
        Some(match self {
            Error::Failed { .. } | Error::Cancelled { .. } | Error::Start(_) | Error::Connect(_) => {
                return None;
            }
            Error::Panicked { .. } => "the slot lives on; the location is in the task's own code",
            Error::SlotDied { .. } => "allow more retries if the task is safe to run again",
            Error::Poison { .. } => "look for abort, exit, stack overflow or memory in the task",
            Error::TimedOut { .. } => "raise the timeout, or check paceline::is_cancelled() in long loops",
            Error::Raised { .. } => "the traceback is in the error",
            Error::NotStarted { why, .. } => match **why {
                StartError::NotRun { .. } => "is the path right, and has the program been built?",
                StartError::Foreign { .. } => "build both with the same version of paceline",
                _ => {
                    "a Rust program calls paceline::init() first in main; Python needs paceline installed for \
                     that interpreter"
                }
            },
            Error::NoSuchTask { .. } => "is the function marked #[paceline::task] and its crate linked?",
            Error::Unplaceable { .. } => "ask for less, or start the cluster with more",
            Error::NoRoom { .. } => "wait longer, ask for less, or add nodes",
            Error::HeadLost { .. } => "is the head running and reachable? then submit the task again",
            Error::Stopped { .. } => "start it again, connect to it again, and submit the task again",
            Error::LimitReached { .. } => "use fewer at a time, or start the cluster with a higher limit",
            Error::ActorDied { again: true, .. } => "the actor is built anew and takes further calls",
            Error::ActorDied { .. } => {
                "options().restarts(n) has it built anew after a death; #[checkpoint] and #[restore] keep its state"
            }
            Error::ActorUnavailable { .. } => "try again in a while",
            Error::ActorRefused { .. } => "choose another name, or end the actor that has it",
            Error::NoSuchActor { .. } => {
                "options().named(...) gives an actor its name; it ends with its maker"
            }
            Error::PoolBroken { .. } => {
                "what every slot of a pool runs must neither fail nor end its process"
            }
            Error::HistoryFull { .. } => {
                "give the type #[checkpoint] and #[restore], which then stand for all updates before; or use \
                 update_replacing() where an update makes earlier ones void; or raise history()"
            }
            Error::Encode { .. } => "derive serde::Serialize, and use string or integer keys in maps",
            Error::Decode { .. } => "types whose Serialize and Deserialize differ cannot travel",
            Error::QueueFull { .. } => "submit() waits for room; or raise queue_tasks() or queue_bytes()",
            Error::Closed => "the Cluster was dropped or closed: keep it as long as its futures",
            Error::NotANumberOfCpus { .. } => "give a number from 0 on, such as 0.5",
            Error::NotANumberOfGpus { .. } => "give a whole number, or a fraction of one such as 0.5",
            Error::NotInitialised => "make paceline::init() the first line of main",
            Error::InSlot => "Cluster::current() is the one that this task runs on",
            Error::NotInSlot => "Cluster::connect() starts one, and connect_to() joins one",
            Error::TooDeep { .. } => "let fewer tasks wait for others at a time, or ask for less",
            Error::SameName { .. } => "give one of them another name: #[paceline::task(name = \"...\")]",
        })
    }

    /// What an outcome that is no value means for this task.
    pub(crate) fn of(session: &Session, task: &'static str, outcome: Outcome) -> Error {
        match outcome {
            Outcome::Value(_) => unreachable!("a value is no error"),
            Outcome::Raised(bytes) => match Failure::decode(&bytes) {
                Ok(failure) => Error::in_slot(task, failure),
                Err(message) => Error::Decode { task, what: "the error", message },
            },
            Outcome::Unsendable(bytes) => Error::Encode {
                task,
                what: "the value",
                message: String::from_utf8_lossy(&bytes).into_owned(),
            },
            Outcome::Cancelled => Error::Cancelled { task },
            Outcome::TimedOut { after, attempts } => Error::TimedOut { task, after, attempts },
            Outcome::Lost(lost) => Error::lost(task, &lost),
            Outcome::NotStarted(failed) => {
                Error::NotStarted { task, program: failed.path, why: Box::new(failed.why) }
            }
            Outcome::Unplaceable(refused) => {
                Error::Unplaceable { task, needs: Box::new(refused.needs), why: refused.why }
            }
            Outcome::NoRoom(waited) => Error::NoRoom { task, needs: Box::new(waited.needs), why: waited.why },
            Outcome::HeadLost { after } => Error::HeadLost { task, after },
            Outcome::Stopped { by } => Error::Stopped { task, by: by.into() },
            Outcome::Refused { why } => Error::LimitReached { task, why: why.into() },
            Outcome::GroupLost(_) => unreachable!("tasks of Rust are in no group"),
            Outcome::PoolBroken(why) => Error::pool_broken(session, task, &why),
            Outcome::ActorDied(how) => {
                let ActorDied { ran, charge, deaths: _, again } = *how;
                Error::actor_died(session, task, &charge, ran, again)
            }
            Outcome::ActorGone(how) => match *how {
                ActorGone { ran, charge: Some(charge), .. } => {
                    Error::actor_died(session, task, &charge, ran, false)
                }
                ActorGone { ran, why, .. } => Error::actor_gone(task, &why, ran),
            },
            Outcome::ActorAway { why, .. } => Error::ActorUnavailable { task, why: why.into() },
            Outcome::TooDeep { needs } => Error::TooDeep { task, needs },
        }
    }

    /// The call of an actor that is no more.
    pub(crate) fn actor_gone(task: &'static str, why: &str, ran: bool) -> Error {
        Error::ActorDied { task, why: format!("is gone: {why}"), death: None, ran, again: false }
    }

    fn actor_died(session: &Session, task: &'static str, charge: &Charge, ran: bool, again: bool) -> Error {
        let death = Death::of(charge);
        let why = format!("died with slot {} on {}: {death}", charge.slot.0, session.node_name(charge.node));
        Error::ActorDied { task, why, death: Some(death), ran, again }
    }

    fn pool_broken(session: &Session, task: &'static str, why: &PoolBroken) -> Error {
        let (tries, cause) = match why {
            PoolBroken::Raised { call, error, tries } => {
                (*tries, Error::of(session, interned(call), Outcome::Raised(error.clone())))
            }
            PoolBroken::Unsendable { call, reason, tries } => {
                (*tries, Error::of(session, interned(call), Outcome::Unsendable(reason.clone())))
            }
            PoolBroken::Killed { call, charge, tries } => {
                (*tries, Error::SlotDied { task: interned(call), death: Death::of(charge), attempts: *tries })
            }
            PoolBroken::Died { charge, deaths } => {
                (*deaths, Error::SlotDied { task, death: Death::of(charge), attempts: *deaths })
            }
        };
        Error::PoolBroken { task, tries, cause: Box::new(cause) }
    }

    fn in_slot(task: &'static str, failure: Failure) -> Error {
        match failure {
            Failure::Failed { kind, message } => Error::Failed { task, message, kind },
            Failure::Panicked { message, location } => Error::Panicked { task, message, location },
            Failure::Raised { kind, message, traceback } => Error::Raised { task, kind, message, traceback },
            Failure::NoSuchTask { known } => Error::NoSuchTask { task, known },
            Failure::Arguments { message } => Error::Decode { task, what: "the arguments", message },
            Failure::Value { message } => Error::Encode { task, what: "the value", message },
        }
    }

    fn lost(task: &'static str, lost: &Lost) -> Error {
        let last = lost.charges.last();
        let death = Death {
            cause: last.map_or(DeathCause::NodeLost, |charge| charge.cause),
            out_of_memory: last.map_or(OutOfMemory::No, |charge| charge.out_of_memory),
        };
        match lost.cause {
            LostCause::Poison => Error::Poison { task, death, deaths: lost.charges.len() },
            LostCause::SlotDied | LostCause::NodeLost => {
                Error::SlotDied { task, death, attempts: lost.attempts }
            }
        }
    }
}

/// What is the matter, by the reason that the head gives: a setting of its own, or what the nodes have.
fn no_slot(why: &str) -> &'static str {
    if why.ends_with(" of the head)") { "the head gives no slot to" } else { "no node can ever hold" }
}

fn because(why: &str) -> String {
    if why.is_empty() { String::new() } else { format!(": {why}") }
}
