//! Handles of actors as arguments and values.

use super::home::{self, Home};
use super::{Actor, ActorHandle, Error, Result, nested};
use crate::{ActorId, Session};
use serde::de::Error as _;
use serde::ser::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::cell::{Cell, RefCell};
use std::time::Duration;

/// What a handle is on its way: the actor, for how many milliseconds its calls may run, and its type.
type Travelling<'a> = (serde_bytes::ByteArray<16>, u64, std::borrow::Cow<'a, str>);

/// Write a handle, as an argument or a value: whoever gets it calls the same object.
#[doc(hidden)]
pub fn serialize<S: Serializer>(handle: &ActorHandle, serializer: S) -> Result<S::Ok, S::Error> {
    let ActorHandle { home, timeout } = handle;
    home.host(false, *timeout).map_err(S::Error::custom)?;
    let milliseconds = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
    let travelling: Travelling<'_> =
        (home.identity.0.to_le_bytes().into(), milliseconds, home.class.name.into());
    travelling.serialize(serializer)
}

/// Read a handle that was [written](serialize).
#[doc(hidden)]
pub fn deserialize<'de, A: Actor, D: Deserializer<'de>>(deserializer: D) -> Result<ActorHandle, D::Error> {
    let (identity, milliseconds, kind) = Travelling::deserialize(deserializer)?;
    if kind != A::NAME {
        return Err(D::Error::custom(format!("it is a {kind}, and no {}", A::NAME)));
    }
    let identity = ActorId(u128::from_le_bytes(*identity));
    let home = match home::known(identity) {
        Some(home) => home,
        None => Home::visit(&session_of_reader().map_err(D::Error::custom)?, identity, A::CLASS),
    };
    Ok(ActorHandle { home, timeout: Duration::from_millis(milliseconds) })
}

thread_local! {
    /// Whose values are being read, once that was asked for.
    static READER: RefCell<Option<Session>> = const { RefCell::new(None) };
    static ASKED: Cell<bool> = const { Cell::new(false) };
}

/// By which session a handle that was read is used.
fn session_of_reader() -> Result<Session> {
    match nested::open() {
        Err(Error::NotInSlot) => {}
        nested => return nested.map(|nested| nested.session.clone()),
    }
    ASKED.set(true);
    READER.with_borrow(Option::clone).ok_or(Error::NotInSlot)
}

/// Read a value of this session's. Almost none has handles, so who reads is told only if the first attempt asks for it.
pub(crate) fn read<T>(session: &Session, read: impl Fn() -> Result<T, String>) -> Result<T, String> {
    ASKED.set(false);
    match read() {
        Err(_) if ASKED.get() => {
            READER.set(Some(session.clone()));
            let value = read();
            READER.set(None);
            value
        }
        value => value,
    }
}
