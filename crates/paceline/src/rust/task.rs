//! A task: its name, its types, and the entry that slots find it by.

use crate::Bytes;
use crate::exchange::array::ARRAY;
use crate::exchange::{self, Failure};
use crate::rust::Options;
use rmp::Marker;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_path_to_error::Segment;
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

/// A task in the registry, or what else slots run by its name.
pub struct Entry {
    name: &'static str,
    run: Run,
    /// Anybody may call it who knows the name.
    exported: bool,
}

/// Decodes the arguments, calls the function, encodes its value.
pub type Run = fn(&[u8]) -> Result<Bytes, Failure>;

impl Entry {
    pub const fn new(name: &'static str, run: Run) -> Entry {
        Entry { name, run, exported: true }
    }

    /// What is called by handles only, such as the method of an actor.
    pub const fn of_object(name: &'static str, run: Run) -> Entry {
        Entry { name, run, exported: false }
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

/// What anybody may call, for who asks for something else.
pub(crate) fn exported() -> Vec<String> {
    let exported = inventory::iter::<Entry>.into_iter().filter(|entry| entry.exported);
    let mut names: Vec<String> = exported.map(|entry| entry.name.to_owned()).collect();
    names.sort_unstable();
    names
}

/// The arguments of a call; `names` are those of the parameters.
pub fn arguments<A: DeserializeOwned>(bytes: &[u8], names: &[&str]) -> Result<A, Failure> {
    decode(bytes).map_err(|message| {
        let message = what_is_wrong::<A>(bytes, names).unwrap_or(message);
        Failure::Arguments { message }
    })
}

/// Which argument is to blame: decoded once more, with an eye on where it fails.
fn what_is_wrong<A: DeserializeOwned>(bytes: &[u8], names: &[&str]) -> Option<String> {
    let mut rest = bytes;
    let count = rmp::decode::read_array_len(&mut rest).unwrap_or(0) as usize;
    if count != names.len() {
        let plural = if names.len() == 1 { "" } else { "s" };
        let listed = if names.is_empty() { String::new() } else { format!(" ({})", names.join(", ")) };
        return Some(format!("it takes {} argument{plural}{listed}, not {count}", names.len()));
    }
    let mut deserializer = rmp_serde::Deserializer::from_read_ref(bytes);
    let error = serde_path_to_error::deserialize::<_, A>(&mut deserializer).err()?;
    let mut path = error.path().iter();
    let Some(Segment::Seq { index }) = path.next() else { return None };
    let mut steps = String::new();
    for segment in path {
        match segment {
            Segment::Seq { index } => steps.push_str(&format!("[{index}]")),
            other => steps.push_str(&format!(".{other}")),
        }
    }
    let reason = match error.inner() {
        rmp_serde::decode::Error::TypeMismatch(marker) => format!("it is {}", kind_of(*marker)),
        // Where in its encoding an array is wrong means nothing to anybody.
        other if other.to_string().contains(ARRAY) => {
            steps.truncate(steps.rfind('[').unwrap_or(0));
            other.to_string()
        }
        other => other.to_string().replace("unit value", "None"),
    };
    Some(format!("{}{steps}: {reason}", names.get(*index)?))
}

/// What a value is, by its first byte, in words that both languages know.
fn kind_of(marker: Marker) -> &'static str {
    match marker {
        Marker::Null => "None",
        Marker::True | Marker::False => "a bool",
        Marker::F32 | Marker::F64 => "a float",
        Marker::FixStr(_) | Marker::Str8 | Marker::Str16 | Marker::Str32 => "a string",
        Marker::Bin8 | Marker::Bin16 | Marker::Bin32 => "bytes",
        Marker::FixArray(_) | Marker::Array16 | Marker::Array32 => "a list",
        Marker::FixMap(_) | Marker::Map16 | Marker::Map32 => "a map",
        Marker::FixExt1
        | Marker::FixExt2
        | Marker::FixExt4
        | Marker::FixExt8
        | Marker::FixExt16
        | Marker::Ext8
        | Marker::Ext16
        | Marker::Ext32 => "an array of numbers",
        _ => "an integer",
    }
}

pub fn value<O: Serialize>(value: &O) -> Result<Bytes, Failure> {
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
    build(|out| write(out, value))
}

/// The payload of one call.
pub(crate) fn encode_call(arguments: &impl Serialize) -> Result<Bytes, String> {
    build(|out| {
        out.push(exchange::CALL);
        write(out, arguments)
    })
}

/// Append one list of arguments to the payload of a chunk.
pub(crate) fn push_call(chunk: &mut Vec<u8>, arguments: &impl Serialize) -> Result<(), String> {
    let too_long = || "it has more than 4 GiB".to_owned();
    exchange::chunk::push(chunk, |out| write(out, arguments), too_long)
}

fn write(out: &mut Vec<u8>, value: &impl Serialize) -> Result<(), String> {
    rmp_serde::encode::write_named(out, value).map_err(|error| error.to_string())
}

fn build(write: impl FnOnce(&mut Vec<u8>) -> Result<(), String>) -> Result<Bytes, String> {
    let mut scratch = SCRATCH.take();
    scratch.clear();
    write(&mut scratch)?;
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
