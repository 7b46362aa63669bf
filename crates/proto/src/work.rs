//! Work that the head owns and nobody's connection keeps alive: programs that were submitted.
//!
//! [`Work`] is what is asked for, and the record that the head's journal keeps of it. What is in its `start` only the
//! process reads that becomes it; for a program that is a [`Command`].

use crate::data::from_postcard;
use crate::death::DeathCause;
use crate::error::Error;
use crate::ids::{Incarnation, LeaseId, NodeId};
use crate::resources::Resources;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::fmt;

/// No record of work may be longer than this.
pub const LONGEST_RECORD: usize = 16 << 20;

/// No name of a piece of work may be longer than this.
pub const LONGEST_NAME: usize = 64;

/// A piece of work as it is asked for.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Work {
    /// Drawn by whoever asks. Who asks again with the same one means the same work.
    pub token: u128,
    pub name: String,
    pub needs: Resources,
    /// What the custom resources are called that it needs.
    pub resources: Vec<String>,
    /// How often it is started again when it has failed or its node was lost.
    pub restarts: u32,
    /// How it is started.
    #[serde(with = "serde_bytes")]
    pub start: Vec<u8>,
}

impl fmt::Debug for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Work { name, needs, restarts, start, .. } = self;
        write!(f, "Work {{ {name}: {needs}, {restarts} restarts, {} bytes }}", start.len())
    }
}

impl Work {
    /// Whether this can be the name of a piece of work: it is a part of file names, and typed by people.
    pub fn is_name(name: &str) -> bool {
        let plain = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_' | '.');
        !name.is_empty()
            && name.len() <= LONGEST_NAME
            && !name.starts_with(['.', '-'])
            && name.chars().all(plain)
    }
}

/// How a program is started.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Command {
    /// The program and its arguments.
    pub arguments: Vec<String>,
    /// Where it runs.
    pub directory: Directory,
    /// What it finds in its environment, on top of its node's.
    pub variables: Vec<(String, String)>,
    /// What it reads on its standard input.
    #[serde(with = "serde_bytes")]
    pub input: Vec<u8>,
}

/// In place of a program: the Python that the node's slots are processes of.
pub const PYTHON: &str = "{python}";

/// Where a program runs.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum Directory {
    /// Wherever its node puts it.
    #[default]
    Any,
    /// Here if the node's machine has it: it is where the program was submitted.
    Rather(String),
    /// Nowhere else.
    Only(String),
}

/// How far a piece of work has come, as the journal keeps it.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Standing {
    /// Where it was placed last, if it may still be there.
    pub placed: Option<Placed>,
    /// How often it was started again.
    pub restarted: u32,
    /// It is to end.
    pub stopping: bool,
    /// When it was submitted, in seconds since 1970.
    pub submitted: u64,
}

/// Where a piece of work was placed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Placed {
    pub node: NodeId,
    pub incarnation: Incarnation,
    pub lease: LeaseId,
    /// What the node is called.
    pub name: String,
}

/// How a piece of work ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum End {
    /// Its process ended so; `out_of_memory` if that was why.
    Died { cause: DeathCause, out_of_memory: bool },
    /// Its node was lost, and it may not be started again.
    NodeLost,
    /// Somebody asked for it.
    Stopped,
}

impl End {
    /// Whether it did what it was to do.
    pub fn is_success(self) -> bool {
        matches!(self, End::Died { cause: DeathCause::Exit(0), .. })
    }
}

/// What is kept of work that has ended.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Ended {
    pub token: u128,
    pub name: String,
    pub end: End,
    /// What the node is called where it was last.
    pub node: Option<String>,
    pub restarted: u32,
    /// In seconds since 1970.
    pub submitted: u64,
    pub at: u64,
}

/// The bytes of a record, for a journal and for what only its receiver reads.
pub fn to_bytes<T: Serialize>(record: &T) -> Vec<u8> {
    postcard::to_stdvec(record).expect("records are plain data")
}

pub fn from_bytes<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Error> {
    from_postcard(bytes, "record of work")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let command = Command {
            arguments: vec!["python".into(), "train.py".into()],
            directory: Directory::Rather("/tmp".into()),
            variables: vec![("A".into(), "1".into())],
            input: b"what it reads".to_vec(),
        };
        let work = Work { token: 7, name: "train".into(), start: to_bytes(&command), ..Work::default() };
        let read: Work = from_bytes(&to_bytes(&work)).unwrap();
        assert_eq!(read, work);
        assert_eq!(from_bytes(&read.start), Ok(command));
        assert!(from_bytes::<Work>(b"\xff").is_err());
    }

    #[test]
    fn names_are_plain() {
        assert!(Work::is_name("train-3.a_b"));
        for name in ["", ".hidden", "-flag", "a/b", "a b", "ä", &"x".repeat(65)] {
            assert!(!Work::is_name(name), "{name}");
        }
    }
}
