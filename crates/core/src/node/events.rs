//! What happens to a node, and what it wants done.

use super::GuestCalls;
use crate::time::Tick;
use paceline_proto::control::{HeadToNode, NodeToHead, NodeToSlot, SlotToNode, Stream};
use paceline_proto::{Address, ClientId, Death, LeaseId, ProgramId, SlotId, Start, StartError, Way};
use std::time::Duration;

/// What happens to the node.
#[derive(Clone, PartialEq, Debug)]
pub enum Event {
    /// The link to the head is up, or up again.
    HeadUp,
    HeadDown,
    FromHead(HeadToNode),
    /// Fork requests can be sent. The zygote need not have read any yet.
    ZygoteUp,
    /// The zygote is gone or could not be started. Everything it had said was handed in before.
    ZygoteDied,
    /// Another program's zygote has said that it is one.
    ProgramUp(ProgramId),
    /// It is gone or could not be started. Everything it had said was handed in before.
    ProgramDown(ProgramId, StartError),
    /// The zygotes of these programs were found to stand still, because a signal has stopped them, and no others.
    ZygotesStopped(Vec<ProgramId>),
    Forked {
        slot: SlotId,
        pid: u32,
    },
    /// A slot's process was stopped by this signal. The call that runs has had its time then, if it has so much only.
    Stopped {
        slot: SlotId,
        signal: i32,
        ends_at: Option<Tick>,
    },
    /// It goes on.
    Continued {
        slot: SlotId,
    },
    /// What the page of a slot that is gone says of its guests' calls. Comes before the end of the slot.
    GuestCalls {
        slot: SlotId,
        calls: Vec<GuestCalls>,
    },
    /// The slot's process is gone, and its group. Everything it had printed was handed in before.
    Exited {
        slot: SlotId,
        death: Death,
    },
    FromSlot(SlotId, SlotToNode),
    /// Somebody opened a data connection for this lease. The number is the shell's.
    Connection {
        connection: u64,
        lease: LeaseId,
        way: Way,
    },
    /// A slot printed something.
    Output {
        slot: SlotId,
        stream: Stream,
        text: Vec<u8>,
    },
    /// Memory is getting scarce: so many bytes are in use of those there are, and these slots have so many of them.
    Memory {
        used: u64,
        limit: u64,
        slots: Vec<(SlotId, u64)>,
    },
    /// These slots have so many bytes, with all they have started: of those that [`Node::limits`] names.
    Sizes(Vec<(SlotId, u64)>),
    /// This client has said goodbye to the node's store.
    ClientLeft(ClientId),
    /// The node is to end.
    Close,
    /// It is to end when what it runs has come to its end, or after this long.
    Leave {
        within: Duration,
    },
    /// An alarm that was asked for.
    Tick,
}

/// What the shell has to do, in this order.
#[derive(Clone, PartialEq, Debug)]
pub enum Effect {
    ToHead(NodeToHead),
    /// Close the link to the head, which is silent or no head any more, and open another. Nothing more is to be said
    /// about this one.
    DropHead,
    /// Start a zygote, then say `ZygoteUp` or `ZygoteDied`.
    StartZygote,
    /// Ask the program's zygote for this slot. Its control link takes messages from now on; they wait for it to start.
    Fork {
        slot: SlotId,
        program: ProgramId,
    },
    /// Start the zygote of another program, then say `ProgramUp` or `ProgramDown`.
    StartProgram {
        program: ProgramId,
        start: Start,
    },
    /// Kill this program's zygote and all that came of it. Nothing more is to be said about it.
    EndProgram {
        program: ProgramId,
    },
    /// Kill this program's zygote. Its death is told as any other.
    KillZygote {
        program: ProgramId,
    },
    /// Send to the slot, with the descriptor of this connection if there is one.
    ToSlot {
        slot: SlotId,
        message: NodeToSlot,
        connection: Option<u64>,
    },
    /// Kill the slot's process group.
    Kill {
        slot: SlotId,
    },
    /// Tell the zygotes to kill these slots at these times, even if this process stands still then. Replaces what was said
    /// of them before.
    KillAt {
        slots: Vec<(SlotId, Tick)>,
    },
    /// Kill the slot's process group, and say of its death that memory was the reason: it has the most of `limit`.
    EndForMemory {
        slot: SlotId,
        limit: u64,
    },
    /// Kill the slot's process group, and say of its death that it had more than its `limit`.
    Exceeded {
        slot: SlotId,
        used: u64,
        limit: u64,
    },
    /// Kill the slot's process group, and say of its death that this signal had stopped it, or that its call had had its
    /// time.
    EndStopped {
        slot: SlotId,
        signal: i32,
        timed_out: bool,
    },
    /// See to it that the slot cannot have much more than this many bytes, if the system helps.
    Confine {
        slot: SlotId,
        limit: u64,
    },
    /// Pass this connection on to the node at these addresses, where it is for this lease.
    Relay {
        connection: u64,
        lease: LeaseId,
        addresses: Vec<Address>,
    },
    /// Close this connection.
    Refuse {
        connection: u64,
    },
    /// The slot is gone: let go of whatever belongs to it.
    ForgetSlot {
        slot: SlotId,
    },
    /// Ask the slot's process group to end.
    Terminate {
        slot: SlotId,
    },
    /// Work of this name printed something.
    Printed {
        name: String,
        stream: Stream,
        text: Vec<u8>,
    },
    /// A slot that is nobody's printed something.
    Stray {
        slot: SlotId,
        text: Vec<u8>,
    },
    /// Nothing is left to wait for: end the zygote, then yourself.
    Closed,
    /// Send a `Tick` then. Replaces what was asked for before.
    WakeAt(Tick),
}
