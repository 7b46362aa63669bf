//! The link between a process and the store of its node: values that are kept there and go by reference. The store of a
//! node says the same to the store of a client, where that keeps what it owns: it is one of the processes there.
//!
//! * OM-1: numbers are the asker's own; an answer has the number of its question.
//! * OM-2: memory that comes along is sealed: its length and its bytes never change again.
//! * OM-3: over a network no memory comes along. What is large is offered, and its bytes follow over a store link once there
//!   is room for them.

use crate::address::Address;
use crate::ids::{ClientId, LeaseId, LeaseSecret, NodeId, ObjectId, PinId};
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
    /// Opens the link of a node's store to the store of a client, in place of `Hello`. Who knows the secret may open links to
    /// this store, in the name of a lease, for as long as this link is there.
    Node { owner: ClientId, node: NodeId, lease: LeaseId, secret: LeaseSecret },
    /// An object was made on this node, which has its bytes and holds it.
    Made { object: ObjectId, size: u64, inside: Vec<Reference> },
    /// The bytes that were wanted are all here.
    Has { object: ObjectId },
    /// There is room for the bytes that were offered.
    Send { object: ObjectId },
    /// This process knows how the object was made: by a task that it can run again, unless that may not be (`again`), out of
    /// the objects `inputs`. To know it takes so many bytes.
    Remember { object: ObjectId, inputs: Vec<ObjectId>, bytes: u64, again: bool },
    /// The task that makes the object has run again. Why it could not make it, if so.
    Ran { object: ObjectId, failed: Option<String> },
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
    /// Here it is: so many bytes, which come when they are asked for (OM-3).
    Offered { number: u64, object: ObjectId, size: u64, from: Source },
    /// They cannot be sent.
    Unsent { object: ObjectId },
    /// The object has ended: a copy of it is of no use any more.
    Gone { object: ObjectId, why: Missing },
    /// The object is lost, and needed: run the task again that makes it, under the same name.
    Make { object: ObjectId },
    /// Nobody will ask for it to be made again.
    Forget { object: ObjectId },
    /// In place of `Welcome`: there is no link for this process. `why` names the setting, for people.
    Refused { why: String },
}

/// Where the bytes of an object are to be had.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Source {
    /// From whoever says so, when it hears that there is room.
    Here,
    /// From the store of that node, over a link in the name of this lease.
    Node { addresses: Vec<Address>, lease: LeaseId, secret: LeaseSecret },
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
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub enum Missing {
    /// Nobody has it, or knows how it was made.
    Lost,
    /// The client that it belonged to has ended.
    OwnerLost,
    /// The client that it belongs to has no link with this node.
    Unlinked,
    /// How it was made was known once, but there was too much to remember.
    Forgotten,
    /// It was made again as often as may be.
    TooOften,
    /// The task that made it may not be run again.
    NotAgain,
    /// What the task that made it was given is gone, too, and cannot be made again.
    NoInput,
    /// The task that made it has failed when it was run again, for this reason.
    Failed(String),
}
