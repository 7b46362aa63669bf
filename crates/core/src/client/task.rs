//! A task, from its submission to its outcome.

use super::LeaseKey;
use super::shapes::ShapeKey;
use paceline_proto::{
    ActorId, Bytes, DeathCause, FunctionId, NodeId, OutOfMemory, Resources, Seq, Shape, SlotId, StartError,
    TaskId,
};
use std::sync::Arc;
use std::time::Duration;

/// The place of a task in the client's table; reused after the task has ended.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct TaskKey(pub usize);

/// What is submitted.
#[derive(Clone, Debug, Default)]
pub struct Spec {
    pub function: FunctionId,
    pub payload: Bytes,
    pub shape: Shape,
    pub retries: u32,
    pub retry_on: RetryOn,
    /// How long one attempt may run; zero for as long as it likes.
    pub timeout: Duration,
    pub priority: i32,
    /// How long it waits for a slot; zero for as long as it takes.
    pub wait: Duration,
    pub within: Within,
    /// Where it had better run, if that makes a difference. Only for tasks that any lease of their shape takes.
    pub near: Option<Near>,
}

/// The nodes that have most of what a task needs, and how long it is worth waiting for a slot there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Near {
    /// In order, each once.
    pub nodes: Arc<[NodeId]>,
    pub patience: Duration,
}

/// Which leases of its shape a task is for.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Within {
    #[default]
    Any,
    /// That of this member; the shape is a group's.
    Member(u32),
    /// Those of the pool of this number, whose shape it is.
    Pool(u32),
    /// That of this actor of somebody else's; the shape says nothing.
    Guest(ActorId),
}

/// What makes a task run again, as long as it has retries left.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RetryOn {
    pub slot_lost: bool,
    pub node_lost: bool,
    pub timeout: bool,
    /// The user's own exceptions.
    pub raised: bool,
    /// It took more memory than it had asked for, and would most likely do so again.
    pub memory: bool,
}

impl Default for RetryOn {
    fn default() -> RetryOn {
        RetryOn { slot_lost: true, node_lost: true, timeout: false, raised: false, memory: false }
    }
}

/// How a task ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    Value(Bytes),
    /// The user's exception.
    Raised(Bytes),
    /// Ran, but neither its value nor its exception could be encoded; the bytes say why.
    Unsendable(Bytes),
    Cancelled,
    /// An attempt ran longer than it may.
    TimedOut {
        after: Duration,
        attempts: u32,
    },
    /// Its slots or nodes died.
    Lost(Box<Lost>),
    /// The program that it is a function of gives no slots.
    NotStarted(Box<NotStarted>),
    /// No node can ever hold it.
    Unplaceable(Box<Unplaceable>),
    /// It waited for a slot for as long as it may.
    NoRoom(Box<NoRoom>),
    /// It was one of a group that has lost a member.
    GroupLost(Box<GroupLost>),
    /// It was one of a pool that has ended.
    PoolBroken(Box<PoolBroken>),
    /// The one slot of a pool whose calls run at most once has died.
    ActorDied(Box<ActorDied>),
    /// It waited for the head, which was out of reach for so long.
    HeadLost {
        after: Duration,
    },
    /// Somebody ended the cluster.
    Stopped {
        by: Box<str>,
    },
    /// The head or the node did not let this client have a link, for this reason.
    Refused {
        why: Box<str>,
    },
    /// The actor that it is a call of is no more, or died while the call was there.
    ActorGone(Box<ActorGone>),
    /// Nobody knows what became of the actor that it is a call of. It has not run.
    ActorAway {
        actor: ActorId,
        why: Box<str>,
    },
    /// The task that submitted it waits, and may neither leave its CPUs to it nor run it itself.
    TooDeep {
        needs: Box<Resources>,
    },
}

/// Which actor is gone, and whether the call that ended with it had begun.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ActorGone {
    pub actor: ActorId,
    pub ran: bool,
    /// The death that ended the call, if one did.
    pub charge: Option<Charge>,
    pub why: Box<str>,
    /// What its constructor raised, if that was the reason; else empty.
    pub error: Bytes,
}

/// What no node can ever hold.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Unplaceable {
    pub needs: Resources,
    /// The most any node has.
    pub largest: Resources,
    /// What is missing.
    pub why: String,
}

/// What there was no room for, and what it waited for if that is known.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NoRoom {
    pub needs: Resources,
    pub why: String,
}

/// Which member a group has lost, and how.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GroupLost {
    pub member: u32,
    pub size: u32,
    pub charge: Charge,
}

/// Why a pool has ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PoolBroken {
    /// A standing call raised in so many slots in a row.
    Raised { call: Arc<str>, error: Bytes, tries: u32 },
    /// What a standing call raised could not be encoded; the bytes say why.
    Unsendable { call: Arc<str>, reason: Bytes, tries: u32 },
    /// So many slots in a row died in a standing call; the last one like this.
    Killed { call: Arc<str>, charge: Charge, tries: u32 },
    /// So many slots died, the last one like this, and no more are made good.
    Died { charge: Charge, deaths: u32 },
}

/// How the slot of an actor died.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ActorDied {
    /// The call had begun, as far as anybody knows. Otherwise it never will.
    pub ran: bool,
    pub charge: Charge,
    /// How often it has died, and whether it is there again for the next call.
    pub deaths: u32,
    pub again: bool,
}

/// Which program could not be started, and why.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NotStarted {
    /// The file that was to be run.
    pub path: String,
    pub why: StartError,
}

/// Why a task was given up.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Lost {
    pub cause: LostCause,
    /// How often the task was begun.
    pub attempts: u32,
    /// The deaths charged to it, and last of all the one that ended it.
    pub charges: Vec<Charge>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LostCause {
    /// The slot died and no retry was left.
    SlotDied,
    /// The node was lost and no retry was left.
    NodeLost,
    /// It killed as many slots as a task may.
    Poison,
}

/// One death that a task had to answer for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Charge {
    pub slot: SlotId,
    pub node: NodeId,
    pub cause: DeathCause,
    pub out_of_memory: OutOfMemory,
}

impl<Ticket> Task<Ticket> {
    /// Whether to run again for a reason the user asked for. Takes one of its retries.
    pub fn retries_after(&mut self, asked_for: bool) -> bool {
        let again = asked_for && self.retries > 0;
        self.retries -= u32::from(again);
        again
    }
}

pub(super) struct Task<Ticket> {
    pub id: TaskId,
    /// None once nobody waits for the outcome any more (cancelled while in flight).
    pub ticket: Option<Ticket>,
    pub function: FunctionId,
    pub payload: Bytes,
    pub shape: ShapeKey,
    pub priority: i32,
    pub retries: u32,
    pub retry_on: RetryOn,
    pub timeout: Duration,
    /// How often it was begun, as far as is known. No two runs have the same number.
    pub attempts: u32,
    /// Where it is in flight; none while it is queued.
    pub sent: Option<(LeaseKey, Seq)>,
    pub started: bool,
    /// To be ended even while it runs; nobody waits for its outcome.
    pub interrupt: bool,
    /// Almost always empty, so that it costs a task one word.
    #[expect(clippy::box_collection, reason = "a task is one of millions, and almost none has charges")]
    pub charges: Option<Box<Vec<Charge>>>,
}
