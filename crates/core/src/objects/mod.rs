//! Values that are kept on a node and go by reference: who has a reference, who has the bytes, and for how long.
//!
//! Three roles. A **process** (a client, or a slot) has references and maybe bytes; [`Holder`] counts its references, so
//! that its store hears of the first and of the end of the last. The **store** of a node ([`Store`]) keeps objects and
//! knows which processes hold them. The **owner** is the root client on whose account an object was made, by itself or by
//! a task of its: when it ends, so do its objects, whoever still refers to them.
//!
//! A reference that travels keeps its object: in the arguments of a call as long as the caller keeps the call, which it
//! does until it has the outcome; in a result by a **pin** that is on the owner's account, so that the slot that sent it
//! may end, until whoever got the result has claimed it.
//!
//! In a cluster the owner has a store of its own, which decides how long its objects live and knows which nodes have copies
//! (`copies.rs`), and who of them passes it on to whom (`tree.rs`). The store of a node is one of the processes there: it tells of the first reference on its node and of the
//! end of the last, asks for the bytes that it lacks, once for all its slots, and lets go of them when it is told to
//! (`far.rs`). Which nodes have copies is also told to the client that owns them, for its tasks run better there
//! (`whereabouts.rs`).
//!
//! What is lost with a node that ends is made again by running its task again, where the owner knows that task (`makers.rs`).
//!
//! * OB-1: as long as a living process holds an object of a living owner, or a pin or another object keeps it, its bytes
//!   are there: in memory or on disk. Only those that nodes alone had end with the last of these.
//! * OB-2: an object that nothing keeps any more is gone; so is everything of an owner that has ended.
//! * OB-3: memory in use is counted until the last process has let go of it, and room is given only within the limit.
//! * OB-4: what waits for room is served in order, or told after its time that there is none.
//! * OB-5: every question is answered once.

mod check;
mod copies;
mod far;
mod holder;
mod makers;
mod object;
mod room;
mod store;
mod tree;
mod whereabouts;

pub use holder::Holder;
pub use store::{Effect, Event, LinkId, Status, Store};
