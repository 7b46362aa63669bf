//! The object that lives in a slot: an actor, or the worker of a pool.
//!
//! * OB-1: there is at most one in a process, it is the main thread's, and it ends with the process.
//! * OB-2: a checkpoint is put into an object that was just built. One that has gone on is newer than any.

use super::task::{self, Entry};
use crate::Bytes;
use crate::exchange::Failure;
use std::any::{Any, type_name};
use std::cell::RefCell;

thread_local! {
    static OBJECT: RefCell<Option<Object>> = const { RefCell::new(None) };
}

struct Object {
    object: Box<dyn Any>,
    /// A method was called since it was built.
    called: bool,
}

/// What ends when the object of its slot is there.
pub(crate) const PING: &str = "paceline::ping";

inventory::submit! {
    Entry::of_object(PING, |_| task::value(&()))
}

/// Make this the slot's object.
pub fn construct<T: 'static>(object: T) {
    OBJECT.set(Some(Object { object: Box::new(object), called: false }));
}

/// Call a method of the slot's object.
pub fn with<T: 'static, R>(call: impl FnOnce(&mut T) -> R) -> Result<R, Failure> {
    find(|object, called| {
        *called = true;
        call(object)
    })
}

/// Ask the slot's object for its state.
pub fn checkpoint<T: 'static, R>(call: impl FnOnce(&mut T) -> R) -> Result<R, Failure> {
    find(|object, _| call(object))
}

/// Put a checkpoint into the slot's object, if that was just built, or `always`.
pub fn restore<T: 'static>(
    always: bool,
    call: impl FnOnce(&mut T) -> Result<(), Failure>,
) -> Result<Bytes, Failure> {
    find(|object, called| if always || !*called { call(object) } else { Ok(()) })??;
    task::value(&())
}

fn find<T: 'static, R>(call: impl FnOnce(&mut T, &mut bool) -> R) -> Result<R, Failure> {
    OBJECT.with_borrow_mut(|slot| match slot {
        Some(Object { object, called }) => match object.downcast_mut() {
            Some(object) => Ok(call(object, called)),
            None => Err(missing::<T>()),
        },
        None => Err(missing::<T>()),
    })
}

fn missing<T>() -> Failure {
    Failure::Arguments { message: format!("there is no {} in this slot", type_name::<T>()) }
}
