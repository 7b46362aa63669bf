//! Every decision of Paceline, in state machines without sockets, clocks, randomness or threads.
//!
//! Each machine is a struct with `handle(now, event, effects)`: time comes in as a [`Tick`], what to do comes out as
//! effects in order, and the shell around it does just that. `check()` names the first broken invariant, if any.
//! The simulation crate runs whole clusters of these machines under a seed.
#![forbid(unsafe_code)]

pub mod admission;
mod alarm;
pub mod client;
pub mod head;
pub mod journal;
pub mod node;
pub mod objects;
pub mod quota;
#[cfg(test)]
mod random;
pub mod segments;
pub mod slot;
pub mod time;

pub use time::Tick;
