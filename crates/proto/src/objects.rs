//! The link between a process and the store of its node: values that are kept there and go by reference.
//!
//! * OM-1: numbers are the asker's own; an answer has the number of its question.
//! * OM-2: memory that comes along is sealed: its length and its bytes never change again.

use crate::ids::{ClientId, NodeId, ObjectId, PinId};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// What a reference says: which object, whose it is, and the node whose store counts who has a reference.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct Reference {
    pub object: ObjectId,
    pub owner: ClientId,
    pub home: NodeId,
}

/// Process to store.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum ToStore {
    /// Opens the link. What this process keeps belongs to the client `owner`. `root`: it is that client.
    Hello { owner: ClientId, root: bool },
    /// An object of so many bytes is to come. It may wait for room for so long.
    Reserve { number: u64, object: ObjectId, size: u64, wait: Duration },
    /// The bytes of an object for which there is room: sealed memory comes along. It refers to those `inside`. Whoever
    /// puts it holds it.
    Put { object: ObjectId, inside: Vec<Reference> },
    /// The same of few bytes, for which no room was asked before.
    PutSmall {
        number: u64,
        object: ObjectId,
        #[serde(with = "serde_bytes")]
        bytes: Vec<u8>,
        inside: Vec<Reference>,
        wait: Duration,
    },
    /// The reservation is not needed.
    Abandon { object: ObjectId },
    /// This process has a reference to the object from now on.
    Hold { number: u64, reference: Reference },
    /// It has none any more.
    Release { object: ObjectId },
    /// It wants the bytes.
    Get { number: u64, reference: Reference },
    /// It has nothing of the bytes any more.
    LetGo { object: ObjectId },
    /// A reference is on its way to another process of the same owner, and keeps the object until it is claimed.
    Pin { number: u64, pin: PinId, reference: Reference },
    /// The reference has arrived here: from now on this process holds the object.
    Claim { number: u64, pin: PinId, reference: Reference },
    /// Nobody will claim it.
    Unpin { pin: PinId },
}

/// Store to process.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum FromStore {
    /// Comes first: this is the store of that node.
    Welcome { node: NodeId },
    /// There is room for the object; or, if it came along, it is kept.
    Room { number: u64 },
    /// There is none.
    Full { number: u64, why: Full },
    /// The object is held, or pinned.
    Held { number: u64 },
    /// Here it is.
    Small {
        number: u64,
        #[serde(with = "serde_bytes")]
        bytes: Vec<u8>,
    },
    /// Here it is: a file comes along, whose bytes never change.
    Memory { number: u64, object: ObjectId, size: u64 },
    /// It is not to be had.
    Missing { number: u64, why: Missing },
    /// The bytes are better let go of as soon as nobody uses them.
    Unneeded { object: ObjectId },
}

/// Why there is no room for an object.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Full {
    pub size: u64,
    /// How many bytes the store has in memory,
    pub used: u64,
    /// and may have.
    pub limit: u64,
    /// Why nothing was moved to disk, if that failed.
    pub disk: Option<String>,
}

/// Why an object is not to be had.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub enum Missing {
    /// Nobody knows it.
    Lost,
    /// The client that it belonged to has ended.
    OwnerLost,
}
