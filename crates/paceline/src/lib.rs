//! Run work on a Paceline cluster.
//!
//! Rust programs mark functions with [`task`], call [`init`] first in `main` and start a [`Cluster`]:
//!
//! ```rust,standalone_crate
//! #[paceline::task]
//! fn square(x: u64) -> u64 {
//!     x * x
//! }
//!
//! fn main() -> paceline::Result<()> {
//!     paceline::init();
//!     let cluster = paceline::Cluster::connect()?;
//!     assert_eq!(square::call(&cluster, 7)?, 49);
//!     Ok(())
//! }
//! ```
//!
//! Below that, for bindings of any language: a [`Session`] is a client of one cluster; [`embedded`] starts a cluster
//! inside this process. Decisions are made by `paceline_core::client`; this crate moves bytes between it, the head and
//! the slots.
#![forbid(unsafe_code)]

mod actors;
mod aside;
mod batch;
mod cell;
mod connecting;
mod dialer;
pub mod embedded;
#[doc(hidden)]
pub mod exchange;
mod explain;
pub mod files;
mod host;
#[doc(hidden)]
pub mod makers;
mod nested;
mod notify;
#[doc(hidden)]
pub mod objects;
mod owner;
mod pool;
mod pump;
mod reactor;
pub mod remote;
mod room;
mod routes;
mod rust;
mod session;
mod state;
mod unclaimed;

pub use actors::{Found, Search};
pub use aside::Stored;
pub use batch::Batch;
pub use cell::{Cell, Ticket, Waiter};
pub use exchange::array::{Array, Element};
pub use nested::Blocked;
pub use notify::{Notice, Notifier, Patience, in_callback};
pub use paceline_core::client::{
    ActorDied, ActorGone, Card, Charge, GroupLost, Here, HistoryFull, Lost, LostCause, NoRoom, NotStarted,
    Outcome, PoolBroken, PoolId, PoolSpec, RetryOn, Spec, Standing, Unplaceable, Waiting, Within,
};
pub use paceline_macros::{actor, task, worker};
pub use paceline_node::hardware;
pub use paceline_proto::{
    ActorId, Bytes, ClientId, DeathCause, FunctionId, MemoryUse, OutOfMemory, Part, ProgramId, Resources,
    Rule, Shape, SlotId, Start, StartError, TaskId,
};
pub use pool::PoolPlace;
pub use pump::Waited;
pub use remote::Credentials;
pub use room::{Full, Gate, Limits, Refused, Warn};
pub use rust::{
    Actor, ActorBuilder, ActorHandle, Arguments, Builder, Cluster, Configured, Current, Death, Error,
    Executor, ExecutorBuilder, Function, Future, NoUpdate, Options, Program, Result, Results, Runner, Task,
    Update, Worker, WorkerBuilder, WorkerPool, current, init, is_cancelled, private as __private,
};
pub use session::{GroupPlace, Payload, Session, Submission, after_fork_in_child};
pub use state::Print;
pub use unclaimed::on_unclaimed;

/// The examples of the guide are tests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/rust.md")]
struct Guide;

#[cfg(doctest)]
#[doc = include_str!("../../../docs/languages.md")]
struct Languages;
