//! What the tests of calls between languages call. It shows every kind of argument, value and failure.

use paceline::Array;
use serde::de::{Deserializer, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// Whatever another language may send, short of arrays.
#[derive(Serialize)]
#[serde(untagged)]
enum Any {
    Nothing,
    Truth(bool),
    Int(i64),
    Large(u64),
    Float(f64),
    Text(String),
    Bytes(ByteBuf),
    List(Vec<Any>),
    Map(BTreeMap<String, Any>),
}

/// As it comes: deriving this would take bytes for text, and an empty list for bytes.
impl<'de> Deserialize<'de> for Any {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Any, D::Error> {
        deserializer.deserialize_any(AnyVisitor)
    }
}

struct AnyVisitor;

impl<'de> Visitor<'de> for AnyVisitor {
    type Value = Any;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("anything but an array")
    }

    fn visit_unit<E>(self) -> Result<Any, E> {
        Ok(Any::Nothing)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Any, E> {
        Ok(Any::Truth(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Any, E> {
        Ok(Any::Int(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Any, E> {
        Ok(Any::Large(value))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Any, E> {
        Ok(Any::Float(value))
    }

    fn visit_str<E>(self, value: &str) -> Result<Any, E> {
        Ok(Any::Text(value.to_owned()))
    }

    fn visit_bytes<E>(self, value: &[u8]) -> Result<Any, E> {
        Ok(Any::Bytes(ByteBuf::from(value)))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Any, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(Any::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Any, A::Error> {
        let mut map = BTreeMap::new();
        while let Some((key, value)) = entries.next_entry()? {
            map.insert(key, value);
        }
        Ok(Any::Map(map))
    }
}

#[paceline::task(name = "echo")]
fn echo(value: Any) -> Any {
    value
}

#[paceline::task(name = "area")]
fn area(width: f64, height: f64) -> f64 {
    width * height
}

#[derive(Serialize, Deserialize)]
struct Person {
    name: String,
    #[serde(default)]
    age: Option<u8>,
}

#[paceline::task(name = "birthday")]
fn birthday(person: Person, years: u8) -> Person {
    Person { age: person.age.map(|age| age + years), ..person }
}

#[paceline::task(name = "double")]
fn double(mut values: Array<f64>) -> Array<f64> {
    values.data_mut().iter_mut().for_each(|value| *value *= 2.0);
    values
}

#[paceline::task(name = "not")]
fn not(mut values: Array<bool>) -> Array<bool> {
    values.data_mut().iter_mut().for_each(|value| *value = !*value);
    values
}

macro_rules! same {
    ($($name:ident: $type:ty = $known_as:literal),+ $(,)?) => {$(
        #[paceline::task(name = $known_as)]
        fn $name(values: Array<$type>) -> Array<$type> {
            values
        }
    )+};
}

same! {
    same_i1: i8 = "same/i1", same_i2: i16 = "same/i2", same_i4: i32 = "same/i4", same_i8: i64 = "same/i8",
    same_u1: u8 = "same/u1", same_u2: u16 = "same/u2", same_u4: u32 = "same/u4", same_u8: u64 = "same/u8",
    same_f4: f32 = "same/f4", same_f8: f64 = "same/f8",
}

#[paceline::task(name = "fail")]
fn fail(text: String) -> Result<(), std::io::Error> {
    Err(std::io::Error::other(text))
}

#[paceline::task(name = "third")]
fn third(values: Vec<i64>) -> i64 {
    values[2]
}

#[paceline::task(name = "pid")]
fn pid() -> u32 {
    std::process::id()
}

#[paceline::task(name = "current")]
fn current() -> (u64, u32, u64) {
    let current = paceline::current().expect("a task knows that it is one");
    (current.task.0, current.attempt, current.slot.0)
}

/// Says where it runs, then naps.
#[paceline::task(name = "nap")]
fn nap(mark: PathBuf, millis: u64) -> u32 {
    let part = mark.with_extension("part");
    std::fs::write(&part, std::process::id().to_string()).expect("the mark can be written");
    std::fs::rename(part, mark).expect("and renamed");
    std::thread::sleep(Duration::from_millis(millis));
    std::process::id()
}

#[paceline::task(name = "abort")]
fn abort() {
    std::process::abort()
}

#[paceline::task(name = "talk")]
fn talk(text: String) {
    println!("{text}");
}

fn main() {
    paceline::init();
    match std::env::args().nth(1) {
        Some(word) => eprintln!("started as {word} by somebody who is no node"),
        None => println!("this program is for others to call"),
    }
}
