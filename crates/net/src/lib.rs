//! Sockets, descriptors, shared pages, clocks: everything below the messages.
//!
//! Owns: every system call of Paceline that needs care, and all of its `unsafe` outside the Python binding.
//! Does not own: what is said over a link, or when.
#![deny(unsafe_op_in_unsafe_fn)]

pub mod alarm;
pub mod cgroup;
pub mod clock;
pub mod control;
pub mod descent;
pub mod detached;
pub mod fault;
pub mod fds;
pub mod file;
pub mod fork;
pub mod kept;
pub mod lifeline;
pub mod link;
pub mod lockfile;
pub mod page;
pub mod poll;
pub mod private;
pub mod reap;
pub mod scratch;
pub mod sealed;
pub mod secure;
pub mod segments;
pub mod signalfd;
pub mod signals;
pub mod spin;
pub mod store;
pub mod tcp;
pub mod watch;

pub use link::{Link, Received};
pub use page::Page;
