//! The store link: bytes by name, between a node and whoever holds a lease there.
//!
//! Owns: what is said over the link, on both sides, in threads that wait for it. Does not own: where bytes are kept
//! ([`Shelves`]), nor how the link is opened ([`crate::secure::dial_store`]).
//!
//! * SL-1: chunks of several things may come in turn, and those of what could not be taken are let pass.
//! * SL-2: whoever must wait to write reads meanwhile, so two that send at the same time never stall.
//! * SL-3: a peer that takes or sends nothing for [`SILENCE`] in the middle of something has gone. One that has nothing to
//!   say may be silent for as long as it likes.

mod client;
mod serve;
mod wire;

pub use client::{Client, Error, Thing};
pub use serve::{Incoming, Outgoing, Shelves, serve};

use std::time::Duration;

/// How long nothing may move in the middle of something.
pub const SILENCE: Duration = Duration::from_secs(30);
