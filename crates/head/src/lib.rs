//! The shell of the head: links, an event loop, and no decisions.
//!
//! Owns: the links of clients and nodes. Does not own: who gets what ([`paceline_core::head`] decides).
//!
//! [`service`] makes the two halves: [`Service::run`] is the head itself, [`Handle`] is how others reach it.
#![forbid(unsafe_code)]

mod ask;
mod explain;
pub mod journal;
mod links;
mod message;
mod report;
mod service;
mod works;

pub use ask::{Reading, Steward};
pub use explain::stands_still;
pub use service::{End, Handle, Service, service};
