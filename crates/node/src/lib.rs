//! The shell of the node: processes, links and pipes, and no decisions.
//!
//! Owns: the zygote's process, what belongs to each slot on this side, the link to the head. Does not own: how many
//! slots there are and whose they are ([`paceline_core::node`] decides), nor what runs in them.
//!
//! [`service`] makes the two halves: [`Service::run`] is the node itself, [`Handle`] is how others reach it.
//!
//! * NS-1: everything opened here closes on exec, and in forked children of this process.
//! * NS-2: what a slot printed is handed on before its death is.
//! * NS-3: a slot that prints faster than its client reads is made to wait; nothing else is.
#![forbid(unsafe_code)]

mod death;
pub mod hardware;
mod limits;
mod memory;
mod news;
mod objects;
mod opening;
mod output;
mod places;
mod relay;
mod report;
mod requests;
mod service;
mod shell;
mod slots;
mod store;
mod words;
mod zygote;

pub use objects::{
    MEMORY as OBJECT_MEMORY, NodeAt, Objects, Whereabouts, default_limit as default_object_memory,
};
pub use places::{LinkLimits, LinkPlace};
pub use requests::{Answers, Handle, Headless, Options, Printing, Uplink};
pub use service::{End, Service, service};
pub use store::Store;
