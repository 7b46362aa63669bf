//! Paceline for Rust programs: tasks are functions of the program itself, which is also its own slot.
//!
//! Owns: how Rust functions, their arguments and their values travel. Does not own: when and where they run; that is
//! the [`Session`](crate::Session)'s, whatever the language.
//!
//! * RS-1: a process that a node has started never returns from [`init`].
//! * RS-2: a task that fails or panics leaves its slot as it was.

mod client;
mod current;
mod error;
mod future;
mod map;
mod options;
mod slot_main;
mod task;

pub use client::{Builder, Cluster};
pub use current::is_cancelled;
pub use error::{Error, Result};
pub use future::Future;
pub use options::{Configured, Options};
pub use slot_main::init;
pub use task::Task;

/// What the code made by [`task`](crate::task) uses, and nobody else.
#[doc(hidden)]
pub mod private {
    pub use super::task::{Entry, Failure, Fallible, arguments, value};
    pub use inventory;
}
