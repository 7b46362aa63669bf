//! Names of things. Every id is a type of its own, so that none can be passed for another.

use serde::{Deserialize, Serialize};
use std::fmt;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($inner:ty), $prefix:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
        pub struct $name(pub $inner);

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($prefix, "{}"), self.0)
            }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}", self.0)
            }
        }
    };
}

id!(
    /// A cluster, drawn at random when it is made.
    ClusterId(u128),
    "cluster-"
);
id!(
    /// One start of the head; a later start has a higher number. Its lower half is drawn at random, so that two heads
    /// from copies of one journal have different ones ([`Epoch::next`]).
    Epoch(u64),
    "epoch-"
);
id!(
    /// A node, for as long as its machine keeps its place in the cluster.
    NodeId(u64),
    "node-"
);
id!(
    /// One start of a node: what the previous start granted is void. A later start has a higher number, whose lower half is
    /// drawn at random, so that two starts from copies of one directory have different ones ([`Incarnation::next`]).
    Incarnation(u64),
    "incarnation-"
);
id!(
    /// One slot process. Never used again after its death.
    SlotId(u64),
    "slot-"
);
id!(
    /// A client of the head.
    ClientId(u64),
    "client-"
);
id!(
    /// A client's right to push work to one slot. Unguessable, for it opens the data connection.
    LeaseId(u128),
    "lease-"
);
id!(
    /// A task, unique within its client.
    TaskId(u64),
    "task-"
);
id!(
    /// The place of a call in the sequence of its lease, from 1. A call that is sent again gets a new one.
    Seq(u64),
    "#"
);
id!(
    /// A function, named by the hash of its bytes.
    FunctionId(u128),
    "function-"
);

id!(
    /// A program that slots run: [`ProgramId::OWN`] is the client's own, any other is named by the hash of how it is
    /// started.
    ProgramId(u64),
    "program-"
);

id!(
    /// A rule of placement: [`PlacementId::ANY`] is the default, any other is named by the hash of what it says.
    PlacementId(u64),
    "placement-"
);

id!(
    /// A piece of work that the head owns; never used again, whichever start of the head gave it.
    WorkId(u64),
    "work-"
);

id!(
    /// An actor: an object that lives in one slot at a time. Drawn at random by whoever makes it, and kept for as long as
    /// it is rebuilt.
    ActorId(u128),
    "actor-"
);

id!(
    /// Something that must exist once, such as an actor: at most one slot is it at any time, whoever rebuilds it.
    ExclusiveId(u128),
    "exclusive-"
);

id!(
    /// A value that is kept on a node and goes by reference. Drawn at random by whoever makes it.
    ObjectId(u128),
    "object-"
);

id!(
    /// One reference on its way from a process to another. Drawn at random.
    PinId(u128),
    "pin-"
);

impl WorkId {
    /// No work at all: what the head keeps of itself goes by it.
    pub const NONE: WorkId = WorkId(0);
}

impl ClientId {
    /// Set for the clients that stand for pieces of work, which the head alone speaks for. No peer may have such an id,
    /// so none can be taken for work, whatever number it chooses.
    const WORK_TAG: u64 = 1 << 63;

    /// Returns the client with this number, which stands for no work.
    pub fn of_process(number: u64) -> ClientId {
        ClientId(number & !Self::WORK_TAG)
    }

    /// Returns the client that stands for a piece of work.
    pub fn of_work(work: WorkId) -> ClientId {
        ClientId(work.0 | Self::WORK_TAG)
    }

    /// Returns the piece of work that this client stands for, if it does.
    pub fn work(self) -> Option<WorkId> {
        (self.0 & Self::WORK_TAG != 0).then_some(WorkId(self.0 & !Self::WORK_TAG))
    }
}

impl PlacementId {
    /// Any node that has room.
    pub const ANY: PlacementId = PlacementId(0);

    pub fn is_any(self) -> bool {
        self == PlacementId::ANY
    }
}

/// What opens the data connection of one lease: known to the client that holds it and to its slot, besides head and node.
#[derive(Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct LeaseSecret(pub [u8; 32]);

impl fmt::Debug for LeaseSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a secret")
    }
}

impl ProgramId {
    /// What the client itself is.
    pub const OWN: ProgramId = ProgramId(0);

    /// Set for the client's own program with other variables in its environment.
    const DRESSED: u64 = 1 << 63;

    pub fn is_own(self) -> bool {
        self == ProgramId::OWN
    }

    /// Out of a hash of how it is started: never [`ProgramId::OWN`].
    pub fn of_hash(hash: [u8; 8], dressed: bool) -> ProgramId {
        let number = u64::from_le_bytes(hash) & !ProgramId::DRESSED;
        ProgramId(if dressed { number | ProgramId::DRESSED } else { number.max(1) })
    }

    /// Whether it is the client's own program, with the environment of all slots or with another one.
    pub fn is_clients(self) -> bool {
        self.is_own() || self.0 & ProgramId::DRESSED != 0
    }
}

impl Epoch {
    /// The next start of the head, with random bits of its own.
    pub fn next(self, random: u32) -> Epoch {
        Epoch(((self.0 >> 32) + 1) << 32 | u64::from(random))
    }

    /// Which start it is, for people.
    pub fn number(self) -> u64 {
        self.0 >> 32
    }
}

impl Incarnation {
    /// The next start of the node, with random bits of its own.
    pub fn next(self, random: u32) -> Incarnation {
        Incarnation(((self.0 >> 32) + 1) << 32 | u64::from(random))
    }

    /// Which start it is, for people.
    pub fn number(self) -> u64 {
        self.0 >> 32
    }
}

impl Seq {
    /// The number after this one.
    pub fn next(self) -> Seq {
        Seq(self.0 + 1)
    }
}
