//! What goes wrong without a death, and how it is told.

use crate::support::*;
use paceline::{Cluster, Error, Task};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

pub const TESTS: &[(&str, fn())] = &[
    ("errors_arrive_with_text_and_type", errors_arrive_with_text_and_type),
    ("panics_arrive_and_the_slot_lives_on", panics_arrive_and_the_slot_lives_on),
    ("unknown_tasks_are_refused", unknown_tasks_are_refused),
    ("what_cannot_travel_is_told", what_cannot_travel_is_told),
    ("what_never_fits_is_told", what_never_fits_is_told),
];

#[derive(Debug, thiserror::Error)]
#[error("there is no {what}")]
struct Missing {
    what: String,
}

#[paceline::task]
fn find(what: String) -> Result<usize, Missing> {
    if what == "needle" { Ok(7) } else { Err(Missing { what }) }
}

#[paceline::task]
fn read(path: PathBuf) -> std::io::Result<String> {
    std::fs::read_to_string(path)
}

fn errors_arrive_with_text_and_type() {
    let cluster = one();
    assert_eq!(find::call(&cluster, "needle".into()).unwrap(), 7);
    let error = find::call(&cluster, "hay".into()).unwrap_err();
    assert_eq!((error.code(), error.hint()), ("task-failed", None));
    assert_eq!(error.to_string(), "rust_tasks::failures::find failed: there is no hay");
    let Error::Failed { kind, .. } = error else { panic!("{error:?}") };
    assert_eq!(kind, "rust_tasks::failures::Missing");
    let error = read::call(&cluster, "/nonexistent".into()).unwrap_err();
    assert!(matches!(&error, Error::Failed { kind, .. } if kind == "std::io::error::Error"), "{error:?}");
    assert!(error.to_string().contains("No such file"), "{error}");
}

#[paceline::task]
fn panic_with_anything() {
    std::panic::panic_any(7);
}

fn panics_arrive_and_the_slot_lives_on() {
    let cluster = one();
    let before = pid::call(&cluster).unwrap();
    for _ in 0..3 {
        let error = divide::call(&cluster, 1, 0).unwrap_err();
        let Error::Panicked { message, location, .. } = &error else { panic!("{error:?}") };
        assert_eq!((message.as_str(), error.code()), ("attempt to divide by zero", "task-panicked"));
        assert!(location.contains("support.rs:"), "{location}");
    }
    let error = panic_with_anything::call(&cluster).unwrap_err();
    assert!(matches!(error, Error::Panicked { .. }), "{error:?}");
    assert_eq!(divide::call(&cluster, 6, 3).unwrap(), 2);
    assert_eq!(pid::call(&cluster).unwrap(), before, "RS-2");
}

/// Made by hand and registered nowhere.
struct Unknown;

impl Task for Unknown {
    const NAME: &'static str = "unknown";
    type Arguments = ();
    type Output = ();
}

/// Has the name of another task, and other types.
struct Impostor;

impl Task for Impostor {
    const NAME: &'static str = square::NAME;
    type Arguments = (String,);
    type Output = u64;
}

fn unknown_tasks_are_refused() {
    let cluster = one();
    let error = cluster.call::<Unknown>(()).unwrap_err();
    let Error::NoSuchTask { task: "unknown", known } = &error else { panic!("{error:?}") };
    assert!(known.contains(&"orders/double".to_owned()), "{known:?}");
    assert!(error.hint().is_some());
    let error = cluster.call::<Impostor>(("x".into(),)).unwrap_err();
    assert!(matches!(error, Error::Decode { what: "the arguments", .. }), "{error:?}");
}

/// Cannot be encoded if it is odd, or decoded if it is four.
struct Picky(u8);

impl Serialize for Picky {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.0.is_multiple_of(2) {
            self.0.serialize(serializer)
        } else {
            Err(serde::ser::Error::custom("it is odd"))
        }
    }
}

impl<'a> Deserialize<'a> for Picky {
    fn deserialize<D: serde::Deserializer<'a>>(deserializer: D) -> Result<Picky, D::Error> {
        match u8::deserialize(deserializer)? {
            4 => Err(serde::de::Error::custom("it is four")),
            number => Ok(Picky(number)),
        }
    }
}

#[paceline::task]
fn add(picky: Picky, number: u8) -> Picky {
    Picky(picky.0 + number)
}

fn what_cannot_travel_is_told() {
    let cluster = one();
    for (picky, number, code, text) in [
        (1, 0, "not-serializable", "an argument of rust_tasks::failures::add cannot be encoded: it is odd"),
        (
            4,
            0,
            "not-deserializable",
            "the arguments of rust_tasks::failures::add cannot be decoded: picky: it is four",
        ),
        (2, 1, "not-serializable", "the value of rust_tasks::failures::add cannot be encoded: it is odd"),
        (2, 2, "not-deserializable", "the value of rust_tasks::failures::add cannot be decoded: it is four"),
    ] {
        let error = add::call(&cluster, Picky(picky), number).err().unwrap();
        assert_eq!((error.code(), error.to_string().as_str()), (code, text));
        let later = add::submit(&cluster, Picky(picky), number).wait().err().unwrap();
        assert_eq!(later.to_string(), text);
    }
    assert_eq!(add::call(&cluster, Picky(2), 4).unwrap().0, 6);
}

fn what_never_fits_is_told() {
    let cluster = one();
    let error = square::options().cpus(2.0).call(&cluster, (7,)).unwrap_err();
    assert_eq!(error.code(), "no-resources");
    let error = square::options().cpus(-1.0).call(&cluster, (7,)).unwrap_err();
    assert_eq!(error.to_string(), "not a number of CPUs: -1");
    assert_eq!(Cluster::embedded().cpus(0).start().err().unwrap().code(), "bad-cpus");
}
