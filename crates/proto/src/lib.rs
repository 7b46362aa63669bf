//! What crosses a link: ids, messages, and the frames that carry them.
//!
//! Owns: the bytes of every message. Does not own: sockets, time, decisions.
//!
//! Two families of messages share one frame ([`frame`]): the data link between a client and a slot, laid out by hand
//! because every call pays for it ([`data`]), and the control links between head, node, client, slot and zygote,
//! encoded by postcard ([`control`]).
#![forbid(unsafe_code)]

pub mod address;
pub mod control;
pub mod data;
pub mod death;
pub mod error;
#[doc(hidden)]
pub mod exercise;
pub mod frame;
pub mod ids;
pub mod lending;
pub mod limits;
pub mod objects;
pub mod open;
pub mod parts;
pub mod pins;
pub mod placement;
pub mod program;
pub mod question;
pub mod resources;
pub mod store;
pub mod version;
pub mod work;

pub use address::{Address, Way};
pub use bytes::Bytes;
pub use death::{Death, DeathCause, MemoryUse, OutOfMemory};
pub use error::Error;
pub use ids::{
    ActorId, ClientId, ClusterId, Epoch, ExclusiveId, FunctionId, Incarnation, LeaseId, LeaseSecret, NodeId,
    ObjectId, PinId, PlacementId, ProgramId, Seq, SlotId, TaskId, WorkId,
};
pub use placement::{Device, Facts, Rule};
pub use program::{Start, StartError};
pub use resources::{CustomName, Devices, Names, Part, Resources, Shape, Sum};
pub use work::Work;
