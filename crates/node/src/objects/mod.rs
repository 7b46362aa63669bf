//! The shell of a store of objects: links to processes, to nodes and to owners, memory, and files for what goes to disk.
//! A node has one; so has a client of a cluster at an address, for what it owns.
//!
//! Owns: the bytes of objects. Does not own: who may have them, and for how long ([`paceline_core::objects`] decides).
//!
//! * OS-1: memory is taken only sealed, and of the size that was reserved; files are handed out only to be read.
//! * OS-2: nothing has a name: when the node is gone, so is everything that nobody has mapped.
//! * OS-3: writing to disk, and bytes that go over a network, keep nobody else waiting.
//! * OS-5: a process that does not read what it is told is not heard until it does, and no more than a few messages of one
//!   peer wait to be handled.
//! * OS-4: who has the secret of an owner's link may open links for bytes, for as long as that link is there.

mod bulk;
mod links;
mod shell;
mod whereabouts;

pub(crate) use bulk::{Going, Shelf, Way};
pub use whereabouts::Whereabouts;

use crate::places::LinkPlace;
use links::Passes;
use paceline_core::objects::{LinkId, Status, Store};
use paceline_net::scratch::Scratch;
use paceline_net::secure::Secured;
use paceline_proto::objects::{FromStore, ToStore};
use paceline_proto::{Address, ClientId, LeaseId, LeaseSecret, NodeId, ObjectId};
use shell::Shell;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::mpsc as sync;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::{OwnedSemaphorePermit, mpsc};

/// The setting that says how many bytes objects may have in memory.
pub const MEMORY: &str = "PACELINE_OBJECT_MEMORY";

/// Of the memory that this process may use, so much is for objects.
const SHARE: f64 = 0.3;

/// How much memory is for objects if nobody says otherwise.
pub fn default_limit(memory: u64) -> u64 {
    (memory as f64 * SHARE) as u64
}

/// Reaches a store, which starts when it is first needed. To be used inside a tokio runtime.
pub struct Objects {
    node: NodeId,
    limit: u64,
    /// Its clients have stores of their own.
    far: bool,
    /// How many bytes may be known of how objects were made, if somebody says.
    remembers: Option<u64>,
    news: Option<mpsc::UnboundedSender<News>>,
    status: Arc<Mutex<Status>>,
    passes: Passes,
    whereabouts: Whereabouts,
}

/// A node whose store is at the other end of a connection, as the client knows it.
pub struct NodeAt {
    pub addresses: Vec<Address>,
    /// By way of another node, and under this lease.
    pub relayed: Option<(LeaseId, LeaseSecret)>,
    /// Told when the node's store is there. It is gone with the link.
    pub ready: sync::Sender<()>,
}

pub(crate) enum News {
    Link(Secured, Option<LinkPlace>),
    Node(Secured, NodeAt),
    Owner(Secured, ClientId, Option<LinkPlace>),
    /// The peer may say the next thing when the permit is gone.
    From(LinkId, ToStore, Vec<OwnedFd>, OwnedSemaphorePermit),
    FromOwner(LinkId, FromStore, Vec<OwnedFd>, OwnedSemaphorePermit),
    Gone(LinkId),
    Spilled(ObjectId, io::Result<Scratch>),
    /// Bytes that were to come are here, or will not come.
    Fetched(ObjectId, io::Result<OwnedFd>),
    /// They did not get to this node.
    Unsent(LinkId, ObjectId),
    /// Is there room for so many bytes of this object, which are to come?
    Expected(ObjectId, u64, sync::Sender<bool>),
    /// Its bytes, please.
    Open(ObjectId, sync::Sender<Option<Going>>),
}

impl Objects {
    /// A store that decides how long what it has is kept.
    pub fn new(node: NodeId, limit: u64) -> Objects {
        let status = Arc::new(Mutex::new(Status { limit, ..Status::default() }));
        let (passes, whereabouts) = Default::default();
        Objects { node, limit, far: false, remembers: None, news: None, status, passes, whereabouts }
    }

    /// The store of a node whose clients have such stores.
    pub fn of_cluster(node: NodeId, limit: u64) -> Objects {
        Objects { far: true, ..Objects::new(node, limit) }
    }

    /// It knows how objects were made, in so many bytes.
    pub fn remembering(self, bytes: Option<u64>) -> Objects {
        Objects { remembers: bytes, ..self }
    }

    /// Have this know where the objects are.
    pub fn telling(self, whereabouts: Whereabouts) -> Objects {
        Objects { whereabouts, ..self }
    }

    fn news(&mut self) -> &mpsc::UnboundedSender<News> {
        self.news.get_or_insert_with(|| {
            let (sender, receiver) = mpsc::unbounded_channel();
            let make = if self.far { Store::of_cluster } else { Store::new };
            let mut core = make(self.node, self.limit);
            self.remembers.into_iter().for_each(|bytes| core.remember_at_most(bytes));
            // Not kept alive by itself.
            let (status, passes) = (self.status.clone(), self.passes.clone());
            let mut shell = Shell::new(core, self.node, sender.downgrade(), status, passes);
            shell.whereabouts = self.whereabouts.clone();
            tokio::spawn(shell.run(receiver));
            sender
        })
    }

    /// A process is at the other end. The place is given back with the link.
    pub fn on_link(&mut self, connection: Secured, place: Option<LinkPlace>) {
        let _ = self.news().send(News::Link(connection, place));
    }

    /// The store of a node is at the other end.
    pub fn on_node(&mut self, connection: Secured, node: NodeAt) {
        let _ = self.news().send(News::Node(connection, node));
    }

    /// The store of this client is at the other end.
    pub(crate) fn on_owner(&mut self, connection: Secured, client: ClientId, place: Option<LinkPlace>) {
        let _ = self.news().send(News::Owner(connection, client, place));
    }

    /// Whose link it is that somebody opens by this pass (OS-4).
    pub(crate) fn pass(&self, lease: LeaseId) -> Option<(ClientId, LeaseSecret)> {
        self.passes.find(lease)
    }

    /// For those who bring and fetch bytes.
    pub(crate) fn shelf(&mut self) -> Shelf {
        Shelf { news: self.news().downgrade() }
    }

    pub fn status(&self) -> Status {
        *self.status.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
