//! Paceline for Rust programs: tasks are functions of the program itself, which is also its own slot.
//!
//! Owns: how Rust functions, their arguments and their values travel. Does not own: when and where they run; that is
//! the [`Session`](crate::Session)'s, whatever the language.
//!
//! * RS-1: a process that a node has started never returns from [`init`].
//! * RS-2: a task that fails or panics leaves its slot as it was.

mod actor;
mod client;
mod current;
mod error;
mod executor;
mod future;
mod home;
mod imap;
mod map;
mod nested;
mod object;
mod options;
mod program;
mod runner;
mod slot_main;
mod slots;
mod target;
mod task;
mod travel;
mod worker;

pub use actor::{Actor, ActorBuilder, ActorHandle};
pub use client::{Builder, Cluster};
pub(crate) use current::in_slot;
pub use current::{Current, current, is_cancelled};
pub use error::{Death, Error, Result};
pub use executor::{Executor, ExecutorBuilder};
pub use future::Future;
pub use imap::Results;
pub use options::{Configured, Options};
pub use program::{Arguments, Function, Program};
pub use runner::Runner;
pub use slot_main::init;
pub use task::Task;
pub use worker::{NoUpdate, Update, Worker, WorkerBuilder, WorkerPool};

/// What the code made by the attributes uses, and nobody else.
#[doc(hidden)]
pub mod private {
    pub use super::actor::Class;
    pub use super::object::{checkpoint, construct, restore, with};
    pub use super::task::{Entry, Fallible, arguments, value};
    pub use super::travel::{deserialize, serialize};
    pub use crate::exchange::Failure;
    pub use inventory;
    pub use serde;
}

/// What cannot be a task is refused by the compiler.
///
/// ```
/// # use paceline::task;
/// #[task]
/// fn good(text: String, mut count: u8) -> Result<(), String> {
///     count += 1;
///     Err(text + &count.to_string())
/// }
/// ```
/// ```compile_fail
/// #[paceline::task]
/// fn borrows(text: &str) {}
/// ```
/// ```compile_fail
/// #[paceline::task]
/// fn generic<T>(value: T) {}
/// ```
/// ```compile_fail
/// #[paceline::task]
/// async fn later() {}
/// ```
/// ```compile_fail
/// #[paceline::task]
/// fn returns_what_cannot_travel() -> std::thread::Thread {
///     std::thread::current()
/// }
/// ```
/// ```compile_fail
/// #[paceline::task(colour = "red")]
/// fn unknown_option() {}
/// ```
/// ```compile_fail
/// #[paceline::task]
/// fn square(x: u64) -> u64 { x * x }
/// fn wrong_type(cluster: &paceline::Cluster) { square::call(cluster, "7"); }
/// ```
/// ```compile_fail
/// struct Text(String);
/// #[paceline::actor]
/// impl Text {
///     fn get(&self) -> String { self.0.clone() } // and no new()
/// }
/// ```
/// ```compile_fail
/// struct Text(String);
/// #[paceline::actor]
/// impl Text {
///     fn new() -> Text { Text(String::new()) }
///     fn borrows(&self) -> &str { &self.0 }
/// }
/// ```
/// ```compile_fail
/// struct Text(String);
/// #[paceline::actor]
/// impl Text {
///     fn new() -> Text { Text(String::new()) }
///     fn leaves(self) {}
/// }
/// ```
/// ```compile_fail
/// struct Text(String);
/// #[paceline::actor]
/// impl Text {
///     fn new() -> Text { Text(String::new()) }
///     #[checkpoint]
///     fn alone(&self) -> String { self.0.clone() }
/// }
/// ```
/// ```compile_fail
/// struct Text(String);
/// #[paceline::worker]
/// impl Text {
///     fn new() -> Text { Text(String::new()) } // and no run()
/// }
/// ```
/// ```compile_fail
/// struct Text(String);
/// #[paceline::worker]
/// impl Text {
///     fn new() -> Text { Text(String::new()) }
///     fn run(&mut self) {}
/// }
/// fn no_update(pool: &paceline::WorkerPool<Text>) { pool.update(()); }
/// ```
#[cfg(doctest)]
struct Refused;
