//! A task: its name, its types, and the entry that slots find it by.

use crate::Bytes;
use crate::rust::Options;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::any::type_name;
use std::cell::Cell;
use std::collections::HashMap;
use std::fmt::Display;

/// A function that runs in slots. [`#[paceline::task]`](macro@crate::task) makes one of a function.
pub trait Task: 'static {
    /// What slots know it by.
    const NAME: &'static str;
    const OPTIONS: Options = Options::new();
    /// Its arguments, as a tuple.
    type Arguments: Serialize + DeserializeOwned;
    /// Its value, if it has one: what is in the `Ok` of a function that may fail.
    type Output: Serialize + DeserializeOwned;
}

/// How a call went wrong inside the slot, as it travels.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Failure {
    /// The function returned an error of this type.
    Failed {
        kind: String,
        message: String,
    },
    Panicked {
        message: String,
        location: String,
    },
    /// This program has no such task.
    NoSuchTask,
    /// The arguments do not have the types that the function takes.
    Arguments {
        message: String,
    },
    /// The value cannot be encoded.
    Value {
        message: String,
    },
}

/// A task in the registry.
pub struct Entry {
    pub(crate) name: &'static str,
    pub(crate) run: Run,
}

/// Decodes the arguments, calls the function, encodes its value.
pub type Run = fn(&[u8]) -> Result<Bytes, Failure>;

impl Entry {
    pub const fn new(name: &'static str, run: Run) -> Entry {
        Entry { name, run }
    }
}

inventory::collect!(Entry);

/// All tasks of this program, by name; or the first name that two of them have.
pub(crate) fn registry() -> Result<HashMap<&'static str, Run>, &'static str> {
    let mut tasks = HashMap::new();
    for entry in inventory::iter::<Entry> {
        if tasks.insert(entry.name, entry.run).is_some() {
            return Err(entry.name);
        }
    }
    Ok(tasks)
}

/// A result by whatever alias.
pub trait Fallible {
    type Value;
    fn split(self) -> Result<Self::Value, Failure>;
}

impl<T, E: Display> Fallible for Result<T, E> {
    type Value = T;

    fn split(self) -> Result<T, Failure> {
        // The alternate form of some errors, such as anyhow's, tells the whole chain of causes.
        self.map_err(|error| Failure::Failed {
            kind: type_name::<E>().to_owned(),
            message: format!("{error:#}"),
        })
    }
}

pub fn arguments<T: Task>(bytes: &[u8]) -> Result<T::Arguments, Failure> {
    decode(bytes).map_err(|message| Failure::Arguments { message })
}

pub fn value<T: Task>(value: &T::Output) -> Result<Bytes, Failure> {
    encode(value).map_err(|message| Failure::Value { message })
}

/// From here on, encoded bytes are kept where they are instead of being copied to memory of just their size.
const LONG: usize = 64 << 10;

thread_local! {
    /// Where values are encoded: how long they get is known only afterwards.
    static SCRATCH: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Structures travel with the names of their fields, so that every serde attribute works.
pub(crate) fn encode(value: &impl Serialize) -> Result<Bytes, String> {
    let mut scratch = SCRATCH.take();
    scratch.clear();
    rmp_serde::encode::write_named(&mut scratch, value).map_err(|error| error.to_string())?;
    if scratch.len() >= LONG {
        return Ok(scratch.into());
    }
    let bytes = Bytes::copy_from_slice(&scratch);
    SCRATCH.set(scratch);
    Ok(bytes)
}

pub(crate) fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, String> {
    rmp_serde::from_slice(bytes).map_err(|error| error.to_string())
}
