//! The control links: who is here, who may use what, which slot to fork. One enum a direction.
//!
//! * CO-1: `Want` and `Join` say how things stand, not how they changed, so a repeated or late one does no harm.

use crate::address::Address;
use crate::data::postcard_frame;
use crate::death::Death;
use crate::error::Error;
use crate::frame::Frame;
use crate::ids::{
    ActorId, ClientId, ClusterId, Epoch, ExclusiveId, Incarnation, LeaseId, LeaseSecret, NodeId, PlacementId,
    ProgramId, SlotId,
};
use crate::limits;
use crate::objects::{FromStore, ToStore};
use crate::placement::{Facts, Rule};
use crate::program::{Start, StartError};
use crate::question::{Answer, ClientQuestion, NodeQuestion, Question};
use crate::resources::{Devices, Resources, Shape};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Client to head.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum ClientToHead {
    /// Opens or reopens the link: who this is, which leases it holds, and which head it last believed; of a slot, the
    /// lease that it has. `beats`: the client sends heartbeats, so its silence means something from now on.
    Hello {
        client: ClientId,
        name: String,
        leases: Vec<Held>,
        met: Option<Met>,
        under: Option<LeaseId>,
        beats: bool,
    },
    /// How a program is started that shapes name. Comes before the first of them; said again, it changes nothing.
    Program { program: ProgramId, start: Start },
    /// The client could use `count` leases of this shape in all. Replaces what it said of the shape before. `exclusive`: the
    /// lease is for something that must exist once.
    Want { shape: Shape, count: u32, exclusive: Option<ExclusiveId> },
    /// The client no longer uses this lease.
    Release { lease: LeaseId },
    /// The client is going; its leases end.
    Bye,
    /// The client is the slot that has this lease, and works for the task that runs under it.
    Under { lease: LeaseId },
    /// No data connection for this lease can be opened from where the client is.
    Unreachable { lease: LeaseId },
    /// The data connection of this lease has been down for too long: end what runs under it, and say so.
    Broken { lease: LeaseId },
    /// The client is there. The head sends the number back, which only the client understands.
    Heartbeat { beat: u64 },
    /// Asks the head something. May come without a `Hello`, from one that only asks.
    Ask { number: u64, question: Question },
    /// What a placement that shapes name asks of nodes. Comes before the first of them; said again, it changes nothing.
    Placement { id: PlacementId, rule: Rule },
    /// What custom resources are called that shapes ask for.
    Named { resources: Vec<String> },
    /// How much this client counts when there is not enough for all: its share goes by the weight, and whoever has the
    /// higher priority comes first.
    Standing { weight: u32, priority: i32 },
    /// The client lets go of this link, and opens another: its end says nothing about the client.
    Reopening,
    /// The answer to the head's question of this number.
    Answer { number: u64, text: Answer },
    /// How an actor of the client's stands. Replaces what it said of it before, and is said again on each link.
    Actor {
        actor: ActorId,
        /// What others find it by.
        name: Option<String>,
        /// What those who find it have to know, for them alone.
        #[serde(with = "serde_bytes")]
        about: Vec<u8>,
        /// The lease it lives under; none while it is being rebuilt.
        lease: Option<LeaseId>,
        /// It is no more, for this reason.
        gone: Option<Gone>,
        /// The submitted program that the client is, if the actor is to come back with it.
        program: Option<String>,
        /// A head has given the actor its name already.
        named: bool,
    },
    /// The client calls this actor of somebody's, or does so no more. `held`: the lease that it has for that. Said again
    /// on each link.
    Visit { actor: ActorId, stay: bool, held: Option<LeaseId> },
    /// Which actor has this name?
    Find { number: u64, name: String },
    /// Leases of this shape are of most use on these nodes, where what its tasks need is: so many on each, those it has
    /// among them. A wish and no more; how many it wants in all is said by `Want`. Replaces what it said of the shape before.
    Near { shape: Shape, nodes: Vec<(NodeId, u32)> },
    /// This lease was given back, or lost with its node, and nobody has told the client that what was under it has ended.
    /// Said again on each link, before the `Want` for another, because a head that has started anew does not know.
    Lost { lease: Held },
    /// A submitted program of this name owns what is called so. Said before the `Want` for its slot, because an earlier run of the
    /// program may have had one, of which nobody may be left to tell a head that has started anew.
    OwnedByProgram { exclusive: ExclusiveId, program: String },
    /// Ends what a client says after its `Hello`: actors and visits that it had before and has not named since are over.
    Synced,
    /// The client has heard the `Welcome` of this link: from now on it obeys this head, and no earlier one.
    Welcomed,
}

/// Why an actor is no more.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Gone {
    /// For people.
    pub why: String,
    /// What its constructor raised, as its language has it; empty if that was not the reason.
    #[serde(with = "serde_bytes")]
    pub error: Vec<u8>,
}

impl From<&str> for Gone {
    fn from(why: &str) -> Gone {
        why.to_owned().into()
    }
}

impl From<String> for Gone {
    fn from(why: String) -> Gone {
        Gone { why, error: Vec::new() }
    }
}

/// Head to client.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum HeadToClient {
    /// Who the head is, and the timing that counts from now on.
    Welcome { cluster: ClusterId, epoch: Epoch, timing: Timing },
    /// A slot is yours: open a data connection to its node and name the lease.
    Granted {
        lease: LeaseId,
        node: NodeId,
        slot: SlotId,
        shape: Shape,
        /// The start of the node that has the slot.
        incarnation: Incarnation,
        /// Proves to the slot that this is its client, where the way to it is not safe by itself.
        secret: LeaseSecret,
        /// What it was asked for, if that must exist once. The client may ask for something else under this shape by now.
        exclusive: Option<ExclusiveId>,
    },
    /// Give this lease back after the task it runs.
    Recall { lease: LeaseId },
    /// There is no room for another lease of this shape: whatever the client holds and does not use is in the way.
    Crowded { shape: Shape },
    /// The lease is over: its slot died, or its node did.
    Ended { lease: LeaseId, death: Death },
    /// No node can ever hold this shape; `largest` is the most any node has.
    Unplaceable {
        shape: Shape,
        largest: Resources,
        /// What is missing, for people.
        why: String,
    },
    /// No slot of this program can be had; who wants one still has to say so again.
    ProgramFailed { program: ProgramId, why: StartError },
    /// Lines that user code in this slot printed.
    Output {
        slot: SlotId,
        stream: Stream,
        #[serde(with = "serde_bytes")]
        text: Vec<u8>,
    },
    /// Where a node takes data connections. Comes before the first lease on it, and again when that changes.
    NodeAt { node: NodeId, name: String, addresses: Vec<Address> },
    /// The slot of this lease is reached by way of this node, which takes connections at these addresses.
    Via { lease: LeaseId, node: NodeId, addresses: Vec<Address> },
    /// The client has gone and its last lease is over: nothing more will be said.
    Over,
    /// The answer to a client's.
    Heartbeat { beat: u64 },
    /// The answer to the question of this number.
    Answer { number: u64, text: Answer },
    /// The cluster is closing: nothing more comes of it. `by` says who ended it, for people.
    Bye { by: String },
    /// A request for leases of this shape has waited for a while; `why` says for what, for people.
    Waits { shape: Shape, why: String },
    /// The head wants to know something, on behalf of somebody who asked it.
    Ask { number: u64, question: ClientQuestion },
    /// The client's actor is known now; or it is not, because somebody else's has the name.
    ActorKnown { actor: ActorId, refused: Option<String> },
    /// The head does not know yet whether the name of the client's actor is free. It says so as soon as it does, and
    /// within this time.
    NameHeld { actor: ActorId, within: Duration, why: String },
    /// The actor lives in this slot: open a data connection to its node and name the lease, which has nothing but that.
    Visiting { actor: ActorId, lease: LeaseId, node: NodeId, slot: SlotId, secret: LeaseSecret },
    /// The actor is no more, or never was.
    ActorGone { actor: ActorId, why: Gone },
    /// Nobody knows what became of the actor, and it is not rebuilt before somebody does.
    ActorAway { actor: ActorId, why: String },
    /// The answer to `Find` of this number. `comes`: there is none, but one of this name is about to be
    /// there.
    Found {
        number: u64,
        actor: Option<ActorId>,
        #[serde(with = "serde_bytes")]
        about: Vec<u8>,
        comes: bool,
        /// Why the last actor of this name is no more, if there is none and that is known.
        gone: Option<String>,
    },
    /// The link is closed: the client may not have it, or not with so much. `why` names the setting, for people.
    Refused { why: String },
}

/// Node to head.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[allow(clippy::large_enum_variant, reason = "the large one comes once for each link")]
pub enum NodeToHead {
    /// Opens or reopens the link: what the node has, which leases live on it, and which head it last obeyed.
    Join {
        node: NodeId,
        incarnation: Incarnation,
        name: String,
        total: Resources,
        leases: Vec<Placement>,
        met: Option<Met>,
        /// Where it takes data connections; nowhere if it is a part of its client's process.
        addresses: Vec<Address>,
        facts: Facts,
    },
    /// The lease has its slot.
    Placed { lease: LeaseId, slot: SlotId },
    /// The lease is over, either because it was told so (`death` is none) or because the slot died.
    Ended { lease: LeaseId, death: Option<Death> },
    /// This program gives no slots. Comes before the end of the leases that waited for one.
    ProgramFailed { program: ProgramId, why: StartError },
    Output {
        client: ClientId,
        slot: SlotId,
        stream: Stream,
        #[serde(with = "serde_bytes")]
        text: Vec<u8>,
    },
    /// The node is there. The head sends the number back, which only the node understands.
    Heartbeat { beat: u64 },
    /// The task that runs under this lease waits for others, and does not need its CPUs meanwhile; or it goes on.
    /// `full`: the next one that waits will be told to get on by itself.
    Blocked { lease: LeaseId, blocked: bool, full: bool },
    /// The answer to the head's question of this number.
    Answer { number: u64, text: Answer },
    /// The node wants to go: let it finish what it runs, then say goodbye.
    Leaving,
}

/// Head to node.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum HeadToNode {
    /// Who the head is, and the timing that counts from now on, also for what runs here already.
    Welcome { cluster: ClusterId, epoch: Epoch, timing: Timing },
    /// How a program is started; comes before every lease that names it.
    Program { program: ProgramId, start: Start },
    /// Find a slot for this lease. `client` is whom its work is for, `holder` who was promised it: the client itself,
    /// or one of its tasks.
    Place {
        lease: LeaseId,
        client: ClientId,
        shape: Shape,
        holder: ClientId,
        secret: LeaseSecret,
        /// The GPUs it has, or has a part of.
        devices: Devices,
        /// Its slot ends with it, and serves no other.
        once: bool,
        /// It is for something that must exist once: without a sign of the head its slot is ended in time.
        exclusive: Option<ExclusiveId>,
    },
    /// End the lease. Its slot stays warm for the same client unless something still runs in it.
    End { lease: LeaseId },
    /// The cluster is closing, or the node was asked to leave: end everything and go.
    Bye,
    /// A client will open a data connection for this lease here, which is for the node at these addresses: pass it on.
    /// Until the end of the lease is told.
    Relay { lease: LeaseId, addresses: Vec<Address> },
    /// The answer to a node's.
    Heartbeat { beat: u64 },
    /// The head knows how this lease ended: it need not be told again.
    Heard { lease: LeaseId },
    /// The head wants to know something.
    Ask { number: u64, question: NodeQuestion },
    /// The task under this lease waits for what can run nowhere but in its own slot.
    TooDeep { lease: LeaseId },
    /// The same as `Place`, of work that the head owns: the slot becomes it. `holder` stands for the work itself.
    Run {
        lease: LeaseId,
        holder: ClientId,
        shape: Shape,
        devices: Devices,
        name: String,
        /// How it is started; only the slot reads it.
        #[serde(with = "serde_bytes")]
        start: Vec<u8>,
    },
    /// Take data connections for this lease, too, and hand them to the slot of the lease `host`: another client calls the
    /// actor there. `again`: the node did so under an earlier head.
    Admit { lease: LeaseId, host: LeaseId, secret: LeaseSecret, again: bool },
    /// The holder of this lease, which an earlier start of the head placed, has named it to this one, which it obeys: from now
    /// on the signs of this head keep alive what runs under it.
    HolderConfirmed { lease: LeaseId },
}

/// A start of the head whose word counted: leases are from it, and an earlier one of the same cluster is no head any
/// more.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct Met {
    pub cluster: ClusterId,
    pub epoch: Epoch,
}

/// How long silence may last, for everybody in a cluster alike: what a head takes for over must be over.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct Timing {
    pub heartbeat: Duration,
    pub head_lost: Duration,
}

impl Timing {
    /// A node and its head give up a link after so many heartbeats of silence.
    pub const BEATS: u32 = 3;
    pub const MIN_HEARTBEAT: Duration = Duration::from_millis(10);
    pub const MAX_HEARTBEAT: Duration = Duration::from_secs(3600);
    pub const MAX_HEAD_LOST: Duration = Duration::from_secs(30 * 24 * 3600);

    /// Returns the same within what can be worked with, whoever said it.
    pub fn bounded(self) -> Timing {
        let heartbeat = self.heartbeat.clamp(Timing::MIN_HEARTBEAT, Timing::MAX_HEARTBEAT);
        let head_lost = self.head_lost.clamp(heartbeat * Timing::BEATS, Timing::MAX_HEAD_LOST);
        Timing { heartbeat, head_lost }
    }

    /// Returns after how long without a sign of its head a node ends what must exist once, by its own clock.
    pub fn ends_within(&self) -> Duration {
        self.head_lost.max(self.heartbeat * (Timing::BEATS + 1))
    }
}

/// A lease as its holder knows it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct Held {
    pub lease: LeaseId,
    pub node: NodeId,
    /// The start of the node that had the lease.
    pub incarnation: Incarnation,
    pub shape: Shape,
    /// What must exist once and is under it.
    pub exclusive: Option<ExclusiveId>,
}

/// A lease as its node knows it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct Placement {
    pub lease: LeaseId,
    pub client: ClientId,
    pub slot: SlotId,
    pub shape: Shape,
    /// Its task waits for others.
    pub blocked: bool,
    /// Who was promised it.
    pub holder: ClientId,
    /// The start of the head that placed it.
    pub epoch: Epoch,
    /// The GPUs it has, or has a part of.
    pub devices: Devices,
    /// What must exist once and is under it.
    pub exclusive: Option<ExclusiveId>,
}

/// Which of its two outputs a line was printed to.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub enum Stream {
    Out,
    Err,
}

/// Node to slot.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum NodeToSlot {
    /// From now on this slot belongs to this client and has these resources, of all that its node has. `own`: it runs
    /// the client's own program. `devices`: the GPUs it has.
    /// `files`: where this node has what that client brings, if it is on another machine.
    Bind {
        client: ClientId,
        needs: Resources,
        total: Resources,
        own: bool,
        devices: Devices,
        files: Option<String>,
    },
    /// A data connection for this lease; its descriptor comes along. An earlier one is void. With a secret it comes from
    /// another machine: both sides prove the secret under TLS first.
    Attach { lease: LeaseId, secret: Option<LeaseSecret> },
    /// The lease is over: forget its calls.
    Detach { lease: LeaseId },
    /// Finish what runs and leave.
    Exit,
    /// Too many tasks wait for others on this node already: this one keeps its CPUs and must get on by itself.
    TooDeep { lease: LeaseId },
    /// Become what this says, with these variables in the environment.
    Become {
        #[serde(with = "serde_bytes")]
        start: Vec<u8>,
        variables: Vec<(String, String)>,
    },
    /// A data connection of another client's, which calls the actor here; its descriptor comes along. It is known by its
    /// number on the page. Ends with a `Detach` of its lease.
    Guest { lease: LeaseId, number: u32, secret: Option<LeaseSecret> },
}

/// Slot to node.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum SlotToNode {
    /// The slot can take work.
    Ready { slot: SlotId, pid: u32 },
    /// The lease's calls are forgotten and nothing of it runs.
    Detached { lease: LeaseId },
    /// The task that runs under this lease waits for others, and has given back the calls behind it; or it goes on.
    Blocked { lease: LeaseId, blocked: bool },
    /// The slot is a client, too: its link to the head comes along.
    Nest,
    /// The slot opens a data connection, as any client does; it comes along.
    Connect,
    /// The task was told to get on by itself, but all that it waits for runs elsewhere.
    Waits { lease: LeaseId },
    /// The slot has objects, or wants them: its link to the node's store comes along.
    Objects,
}

/// Node to zygote. `Fork` brings three descriptors: the slot's control socket, its output, its error output.
/// The page comes as a fourth.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum NodeToZygote {
    Fork {
        slot: SlotId,
    },
    Exit,
    /// These slots are to be killed when the clock of this machine shows the time beside them, unless another time comes
    /// before: what is in them must have ended by then, even if the node stands still.
    KillAt {
        slots: Vec<(SlotId, u64)>,
    },
    /// Brings the end of a pipe whose other end nobody has any more when the node is gone.
    Lifeline,
}

/// Zygote to node.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum ZygoteToNode {
    /// Comes first: this is a zygote indeed, and it speaks our version.
    Hello,
    Forked {
        slot: SlotId,
        pid: u32,
    },
    /// A slot has ended and was reaped, with its process group.
    Exited {
        slot: SlotId,
        pid: u32,
        cause: crate::death::DeathCause,
        /// The most bytes it had in memory.
        peak: u64,
    },
    /// A slot was stopped by this signal, and stands still.
    Stopped {
        slot: SlotId,
        signal: i32,
    },
    /// It goes on.
    Continued {
        slot: SlotId,
    },
}

macro_rules! control_message {
    ($($name:ident = $kind:literal),+ $(,)?) => {$(
        impl $name {
            /// Append this message as one frame.
            pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), Error> {
                postcard_frame($kind, self, out)
            }

            pub fn decode(frame: &Frame) -> Result<$name, Error> {
                if frame.kind != $kind {
                    return Err(Error::Kind { found: frame.kind });
                }
                limits::decode(&frame.body, stringify!($name))
            }
        }

        impl Message for $name {
            fn encode(&self, out: &mut Vec<u8>) -> Result<(), Error> {
                $name::encode(self, out)
            }

            fn decode(frame: &Frame) -> Result<$name, Error> {
                $name::decode(frame)
            }
        }
    )+};
}

/// A control message, for code that serves any link.
pub trait Message: Sized {
    fn encode(&self, out: &mut Vec<u8>) -> Result<(), Error>;
    fn decode(frame: &Frame) -> Result<Self, Error>;
}

control_message! {
    ClientToHead = 64,
    HeadToClient = 65,
    NodeToHead = 66,
    HeadToNode = 67,
    NodeToSlot = 68,
    SlotToNode = 69,
    NodeToZygote = 70,
    ZygoteToNode = 71,
    ToStore = 72,
    FromStore = 73,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::{Decoder, HEADER};

    fn frame_of(message: &impl Message) -> Frame {
        let mut bytes = Vec::new();
        message.encode(&mut bytes).unwrap();
        let mut decoder = Decoder::default();
        decoder.feed(&bytes);
        decoder.next_frame().unwrap().unwrap()
    }

    #[test]
    fn golden_want() {
        let want = ClientToHead::Want { shape: Shape::cpus(1), count: 3, exclusive: None };
        let mut bytes = Vec::new();
        want.encode(&mut bytes).unwrap();
        assert_eq!(bytes[HEADER..], [2, 0x90, 0x4e, 0, 0, 0, 0, 0, 3, 0]);
        assert_eq!(ClientToHead::decode(&frame_of(&want)), Ok(want));
    }

    #[test]
    fn a_message_of_another_link_is_refused() {
        let frame = frame_of(&HeadToNode::Bye);
        assert_eq!(ClientToHead::decode(&frame), Err(Error::Kind { found: 67 }));
    }

    #[test]
    fn trailing_bytes_are_refused() {
        let mut frame = frame_of(&NodeToSlot::Exit);
        frame.body = [&frame.body[..], b"x"].concat().into();
        assert!(matches!(NodeToSlot::decode(&frame), Err(Error::Malformed { .. })));
    }
}
