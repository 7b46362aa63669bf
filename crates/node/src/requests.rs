//! What is asked of the node from outside.

use crate::places::{LinkLimits, LinkPlace};
use crate::store::Store;
use paceline_core::node::{Config, Status};
use paceline_core::objects;
use paceline_net::descent::Mark;
use paceline_net::secure::Secured;
use paceline_proto::question::{Answer, NodeQuestion};
use paceline_proto::{LeaseId, Way};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;

/// Hands a link to the head. Its place is given back with the link.
pub type Uplink = Arc<dyn Fn(OwnedFd, LinkPlace) + Send + Sync>;

/// Told whenever the link to the head has ended: another is wanted ([`Handle::join`]).
pub type Headless = Arc<dyn Fn() + Send + Sync>;
/// Answers what only the process around the node knows: its logs, and more about its status, as JSON fields.
pub type Answers = Arc<dyn Fn(&NodeQuestion) -> Answer + Send + Sync>;

/// Takes what work of this name has printed.
pub type Printing = Arc<dyn Fn(&str, &[u8]) + Send + Sync>;

/// What a node needs to start.
#[derive(Clone)]
pub struct Options {
    pub config: Config,
    /// Starts the zygote. The number of its socket's descriptor is appended.
    pub command: Vec<String>,
    /// What the zygote finds in its environment, on top of ours.
    pub variables: Vec<(String, String)>,
    /// How its slots reach the head, to be clients themselves.
    pub uplink: Uplink,
    pub headless: Headless,
    /// Answers the head's questions that are not about slots.
    pub answers: Option<Answers>,
    /// Takes what work of the head's prints.
    pub printed: Option<Printing>,
    /// How many bytes objects may have in memory.
    pub object_memory: u64,
    /// How many links slots and clients may have here.
    pub limits: LinkLimits,
    /// What everything that it starts is marked with (ZN-2); none if no later start has the same id.
    pub descent: Option<Mark>,
    /// Where what clients bring is kept; none if there is nobody who could bring anything.
    pub store: Option<Store>,
}

pub(crate) enum Request {
    Head(Secured),
    Offer(OwnedFd),
    Opened(OwnedFd, LeaseId, Way),
    Store(OwnedFd, LeaseId, Way),
    Owner(OwnedFd, LeaseId, Way),
    Status(Box<dyn FnOnce(Status, objects::Status) + Send>),
    Objects(Secured),
    Leave(Duration),
    Close,
    Crash,
}

/// Reaches a node. Cheap to clone, usable from any thread; the node ends when the last one is gone.
#[derive(Clone)]
pub struct Handle {
    pub(crate) requests: mpsc::UnboundedSender<Request>,
}

impl Handle {
    /// The head is at the other end of this connection, in place of any earlier one.
    pub fn join(&self, head: impl Into<Secured>) {
        let _ = self.requests.send(Request::Head(head.into()));
    }

    /// Somebody opened a data connection: this non-blocking socket, from which the opening header is still to be read.
    /// False: the node has ended.
    pub fn offer(&self, connection: OwnedFd) -> bool {
        self.requests.send(Request::Offer(connection)).is_ok()
    }

    /// The same, of a connection whose header was read: it is for this lease, and came this way. What follows the header
    /// is still to be read. False: the node has ended.
    pub fn offer_opened(&self, connection: OwnedFd, lease: LeaseId, way: Way) -> bool {
        self.requests.send(Request::Opened(connection, lease, way)).is_ok()
    }

    /// Somebody opened a connection to the node's store under this lease. What follows the header is still to be read.
    /// False: the node has ended.
    pub fn offer_store(&self, connection: OwnedFd, lease: LeaseId, way: Way) -> bool {
        self.requests.send(Request::Store(connection, lease, way)).is_ok()
    }

    /// A client opened a connection between its store of objects and the node's, under this lease. What follows the header is
    /// still to be read. False: the node has ended.
    pub fn offer_owner(&self, connection: OwnedFd, lease: LeaseId, way: Way) -> bool {
        self.requests.send(Request::Owner(connection, lease, way)).is_ok()
    }

    /// A process that has objects, or wants them, is at the other end of this connection. False: the node has ended.
    pub fn objects(&self, connection: impl Into<Secured>) -> bool {
        self.requests.send(Request::Objects(connection.into())).is_ok()
    }

    /// Ask how things stand, with slots and with objects. The answer never comes if the node has ended.
    pub fn status(&self, answer: impl FnOnce(Status, objects::Status) + Send + 'static) {
        let _ = self.requests.send(Request::Status(Box::new(answer)));
    }

    /// Let what runs come to its end, for so long at most, then end as by `close`.
    pub fn leave(&self, within: Duration) {
        let _ = self.requests.send(Request::Leave(within));
    }

    /// End every slot, the zygote and the node.
    pub fn close(&self) {
        let _ = self.requests.send(Request::Close);
    }

    /// Makes the node panic, so that tests can see what a defect of it does.
    #[doc(hidden)]
    pub fn crash(&self) {
        let _ = self.requests.send(Request::Crash);
    }
}
