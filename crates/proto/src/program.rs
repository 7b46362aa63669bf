//! Programs that slots run: how they are started, and why they could not be.

use crate::death::DeathCause;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::time::Duration;

/// How a program's zygote is started.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
pub struct Start {
    /// The number of its socket's descriptor is appended. Nothing: what the node starts for the client's own program.
    pub command: Vec<String>,
    /// What it finds in its environment, on top of the node's.
    pub variables: Vec<(String, String)>,
}

impl Start {
    /// What people call it: the file that is run.
    pub fn path(&self) -> &str {
        self.command.first().map_or("the interpreter of slots", String::as_str)
    }
}

/// Why a program gives no slots.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum StartError {
    /// The system would not run it, for this reason.
    NotRun { reason: String },
    /// It ended before it was a zygote.
    Ended { cause: DeathCause, words: String },
    /// What it said is not what zygotes say: another version, or no zygote at all.
    Foreign { reason: String, words: String },
    /// It runs, but has not said for this long that it is a zygote.
    Silent { after: Duration, words: String },
    /// Its slots die before they have done anything.
    SlotsDie { cause: DeathCause, words: String },
}

impl StartError {
    /// The last lines that it printed to its error output.
    pub fn words(&self) -> &str {
        match self {
            StartError::NotRun { .. } => "",
            StartError::Ended { words, .. }
            | StartError::Foreign { words, .. }
            | StartError::Silent { words, .. }
            | StartError::SlotsDie { words, .. } => words,
        }
    }

    /// How it ended, if it did.
    pub fn cause(&self) -> Option<DeathCause> {
        match self {
            StartError::Ended { cause, .. } | StartError::SlotsDie { cause, .. } => Some(*cause),
            StartError::NotRun { .. } | StartError::Foreign { .. } | StartError::Silent { .. } => None,
        }
    }
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StartError::NotRun { reason } => write!(f, "it cannot be run: {reason}"),
            StartError::Ended { cause, .. } => write!(f, "it {} before it was ready", ending(*cause)),
            StartError::Foreign { reason, .. } => write!(f, "it does not speak as we do: {reason}"),
            StartError::Silent { after, .. } => write!(f, "it runs, but was not ready after {after:?}"),
            StartError::SlotsDie { cause, .. } => {
                write!(f, "its slots die before they have done anything, the last {}", ending(*cause))
            }
        }
    }
}

fn ending(cause: DeathCause) -> String {
    match cause {
        DeathCause::Signal(signal) => format!("was ended by signal {signal}"),
        DeathCause::Exit(code) => format!("ended with exit code {code}"),
        DeathCause::NodeLost => "was lost with its node".into(),
        DeathCause::TimedOut => "took too long".into(),
        DeathCause::Stopped(signal) => format!("was stopped by signal {signal} and stood still for too long"),
    }
}
