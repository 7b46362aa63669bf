//! Where a session's slots are: in a cluster of this process, in the one whose slot this process is, or in one that is
//! reached by its address.
//!
//! * HO-1: nothing here blocks. What takes time is done elsewhere and delivered to the session when it is there.

use crate::embedded::Status;
use crate::routes::Routes;
use crate::session::Shared;
use paceline_net::secure::Secured;
use paceline_node::Whereabouts;
use paceline_proto::control::HeadToClient;
use paceline_proto::{LeaseId, LeaseSecret, NodeId};
use rustix::fd::OwnedFd;
use std::io;
use std::sync::Weak;

/// What came of the wish for a connection.
pub(crate) enum Opened {
    Now(Secured),
    /// It is being opened; [`Shared::on_dialed`] or [`Shared::on_head_dialed`] is told how that went.
    Later,
    /// Not this time.
    Failed(io::Error),
}

impl From<io::Result<OwnedFd>> for Opened {
    fn from(result: io::Result<OwnedFd>) -> Opened {
        result.map_or_else(Opened::Failed, |socket| Opened::Now(socket.into()))
    }
}

pub(crate) trait Host: Send {
    /// A data connection for a lease.
    fn open(&mut self, lease: LeaseId) -> Opened;

    /// Whether the lease's slot may be out of reach, and the head can do something about that.
    fn is_distributed(&self, _lease: LeaseId) -> bool {
        false
    }

    /// Whether nodes can end, and objects with them, while this process goes on.
    fn loses_nodes(&self) -> bool {
        false
    }

    /// The link to the head broke: open another. None if its end is the end of the cluster.
    fn reach_head(&mut self) -> Option<Opened> {
        None
    }

    /// The ways to nodes that are somewhere, if there are such.
    fn routes(&mut self) -> Option<&mut Routes> {
        None
    }

    /// What the head says, before anybody acts on it: addresses are the host's to keep.
    fn on_head(&mut self, message: &HeadToClient) {
        self.routes().into_iter().for_each(|routes| routes.on_head(message));
    }

    /// A lease was granted: its slot is on this node, and the secret opens the way to it.
    fn on_granted(&mut self, lease: LeaseId, node: NodeId, secret: LeaseSecret) {
        self.routes().into_iter().for_each(|routes| routes.on_granted(lease, node, secret));
    }

    /// See whether there is a shorter way to the slot than the one that is used, if that is by way of another node.
    fn retry_direct(&mut self, lease: LeaseId) {
        self.routes().into_iter().for_each(|routes| routes.retry_direct(lease));
    }

    /// Whether there was.
    fn on_direct(&mut self, lease: LeaseId, open: bool) {
        self.routes().into_iter().for_each(|routes| routes.on_direct(lease, open));
    }

    /// The lease is over.
    fn forget(&mut self, lease: LeaseId) {
        self.routes().into_iter().for_each(|routes| routes.forget(lease));
    }

    /// Whose connections they are that are opened later.
    fn deliver_to(&mut self, session: Weak<Shared>) {
        self.routes().into_iter().for_each(|routes| routes.deliver_to(session.clone()));
    }

    /// A link to the store of a node, and on whose account. None if there is no way to one.
    fn reach_store(&mut self) -> Option<io::Result<OwnedFd>> {
        None
    }

    /// Where the objects of this client are, if they may be on several nodes.
    fn whereabouts(&self) -> Option<Whereabouts> {
        None
    }

    /// Whether the cluster goes on when this client leaves it.
    fn outlives_us(&self) -> bool {
        false
    }

    fn status(&self) -> Status;

    /// Begin to end, without waiting. What slots still print comes over the control link, then its end.
    fn close(&self);

    /// End whatever was started for it. Harmless when repeated.
    fn shutdown(&mut self);
}
