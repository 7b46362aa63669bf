//! Run work on a Paceline cluster.
//!
//! A [`Session`] is a client of one cluster; [`embedded`] starts a cluster inside this process. Decisions are made by
//! `paceline_core::client`; this crate moves bytes between it, the head and the slots.
#![forbid(unsafe_code)]

mod batch;
mod cell;
pub mod embedded;
mod notify;
mod pump;
mod reactor;
mod rust;
mod session;
mod state;

pub use batch::Batch;
pub use cell::{Cell, Ticket, Waiter};
pub use notify::{Notice, Notifier};
pub use paceline_core::client::{Charge, Lost, LostCause, Outcome, RetryOn, Spec};
pub use paceline_proto::{Bytes, DeathCause, FunctionId, OutOfMemory, Resources, Shape, TaskId};
pub use paceline_macros::task;
pub use pump::Waited;
pub use rust::{
    Builder, Cluster, Configured, Error, Future, Options, Result, Task, init, is_cancelled,
    private as __private,
};
pub use session::{Session, Submission, after_fork_in_child};
pub use state::Print;
