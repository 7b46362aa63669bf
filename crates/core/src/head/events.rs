//! What happens to a head, and what it wants done.

use super::detached::{Told, Write, Wrote};
use crate::time::Tick;
use paceline_proto::control::{ClientToHead, HeadToClient, HeadToNode, NodeToHead};
use paceline_proto::{ClientId, Epoch, NodeId, Work, WorkId};

/// What happens to the head. A link opens with `Hello` or `Join`; the shell reports the end of an older link of the same
/// peer first.
#[derive(Clone, PartialEq, Debug)]
pub enum Event {
    FromClient(ClientId, ClientToHead),
    /// The client's link is gone.
    ClientDown {
        client: ClientId,
        end: LinkEnd,
    },
    FromNode(NodeId, NodeToHead),
    /// The node's link is gone.
    NodeDown(NodeId),
    /// The node's link is gone, and its machine says that its process is, too. What it ran may live for a moment longer.
    NodeDied(NodeId),
    /// Let this node finish what it runs and go.
    Drain(NodeId),
    /// The cluster is to end: everybody is told to go. `by` says who wants that, for people.
    Close {
        by: String,
    },
    /// Somebody wants this run. The number is the shell's.
    Submit {
        asker: u64,
        work: Work,
    },
    /// Somebody wants the work of this name to end.
    StopWork {
        asker: u64,
        name: String,
    },
    /// What was to be written of this work is on disk, or cannot be. Comes once for each, in their order.
    Written {
        work: WorkId,
        wrote: Wrote,
    },
    /// An alarm that was asked for.
    Tick,
}

/// How a link ended, as far as the shell can tell.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LinkEnd {
    /// The process at the other end is dead.
    Dead,
    /// The other end was closed in order: its process has ended, unless it said that it opens another link.
    Closed,
    /// It was reset: by the machine of a process that ended with something unread, or by anything on the way.
    Reset,
    /// Nothing came through any more, or another link has taken its place: nobody knows.
    Lost,
}

/// What the shell has to do, in this order.
#[derive(Clone, PartialEq, Debug)]
pub enum Effect {
    ToClient(ClientId, HeadToClient),
    ToNode(NodeId, HeadToNode),
    /// Close the link of a node that went silent: if it is alive it comes back with `Join`.
    DropNode(NodeId),
    /// The same for a client.
    DropClient(ClientId),
    /// A later start of this head exists: this one has nothing more to say, and ends. Nothing comes after it.
    Superseded {
        by: Epoch,
    },
    /// Send a `Tick` then. Replaces what was asked for before.
    WakeAt(Tick),
    /// Write this into the journal, then say `Written`.
    Write {
        work: WorkId,
        write: Write,
    },
    /// Answer one that wanted work to run, or to end.
    Told {
        asker: u64,
        told: Told,
    },
}
