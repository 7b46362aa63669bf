//! The files that a client's code needs on machines other than its own, and which nodes have them.
//!
//! Owns: one link to the store of each such node, and the order between files and functions. Does not own: which files
//! those are ([`Gather`]), nor what a node does with them.
//!
//! * FI-1: a data connection to another machine is used only after its node has the files of that moment, or has said
//!   why it cannot have them.
//! * FI-2: what a node has already is not sent again; of several leases on a node, one brings the files.
//! * FI-3: nothing is looked at before there is a connection to another machine.
//! * FI-4: what cannot be delivered is told to the user once for each node and reason, and ends nothing.

mod bundle;
mod hashes;
mod scan;

pub use bundle::{Bundle, Wanted};

use crate::room::Warn;
use paceline_net::secure;
use paceline_net::store::{Client, Error, Thing};
use paceline_proto::store::{Failure, Space};
use paceline_proto::{Address, LeaseId, LeaseSecret, NodeId};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a link to a store may take to be opened.
const PATIENCE: Duration = Duration::from_secs(5);
/// So often files are looked at anew that changed while they were sent.
const AGAIN: usize = 3;

/// Says which files there are now, or why that cannot be said.
pub type Gather = Arc<dyn Fn() -> Result<Bundle, String> + Send + Sync>;

/// Cheap to clone.
#[derive(Clone)]
pub struct Files {
    shared: Arc<Shared>,
}

struct Shared {
    gather: Gather,
    warn: Warn,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    bundle: Option<Arc<Bundle>>,
    nodes: HashMap<NodeId, Arc<Mutex<Node>>>,
    closed: bool,
}

/// What is known of one node.
#[derive(Default)]
struct Node {
    link: Option<Client>,
    has: Option<Arc<Bundle>>,
    way: Option<WayIn>,
    /// What the user was told.
    told: Vec<String>,
}

/// What opens a link to a node's store.
#[derive(Clone)]
pub(crate) struct WayIn {
    pub addresses: Vec<Address>,
    pub relayed: bool,
    pub lease: LeaseId,
    pub secret: LeaseSecret,
}

impl Files {
    pub fn new(gather: Gather, warn: Warn) -> Files {
        Files { shared: Arc::new(Shared { gather, warn, state: Mutex::default() }) }
    }

    /// Have this node have the files (FI-1). Takes as long as it takes; an error means that the node is out of reach.
    pub(crate) fn bring(&self, node: NodeId, way: WayIn) -> io::Result<()> {
        let known = self.shared.state.lock().nodes.entry(node).or_default().clone();
        let mut known = known.lock();
        known.way = Some(way);
        self.bring_to(&mut known)
    }

    fn bring_to(&self, node: &mut Node) -> io::Result<()> {
        for attempt in 0..AGAIN {
            let bundle = match self.bundle() {
                Ok(Some(bundle)) => bundle,
                Ok(None) => return Ok(()),
                Err(why) => {
                    self.tell(node, why);
                    return Ok(());
                }
            };
            match node.send(&bundle) {
                Ok(()) => node.has = Some(bundle.clone()),
                Err(Error::Link(error)) => {
                    node.link = None;
                    return Err(error);
                }
                // They changed, or it let go of some for want of room.
                Err(Error::Refused(Failure::Other { .. } | Failure::Missing)) if attempt + 1 < AGAIN => {
                    self.forget(&bundle);
                    continue;
                }
                Err(Error::Refused(why)) => {
                    self.tell(node, why.to_string());
                    return Ok(());
                }
            }
            let state = self.shared.state.lock();
            if state.closed || state.bundle.as_ref().is_some_and(|now| now.name == bundle.name) {
                return Ok(());
            }
        }
        Ok(())
    }

    /// The files as they are now; none if this is over.
    fn bundle(&self) -> Result<Option<Arc<Bundle>>, String> {
        let state = self.shared.state.lock();
        if state.closed {
            return Ok(None);
        }
        if let Some(bundle) = &state.bundle {
            return Ok(Some(bundle.clone()));
        }
        drop(state);
        let made = Arc::new((self.shared.gather)()?);
        let mut state = self.shared.state.lock();
        Ok(Some(state.bundle.get_or_insert(made).clone()))
    }

    fn forget(&self, bundle: &Bundle) {
        let mut state = self.shared.state.lock();
        state.bundle.take_if(|now| now.name == bundle.name);
    }

    fn tell(&self, node: &mut Node, why: String) {
        if !node.told.contains(&why) {
            (self.shared.warn)(&format!(
                "the files of this program could not be delivered to a node: {why}\nhint: free some room there (TMPDIR \
                 of the node says where), or deliver less"
            ));
            node.told.push(why);
        }
    }

    /// Look again, and have every node have what is new before this returns, as far as it can be reached. False: none has
    /// anything.
    pub fn refresh(&self) -> bool {
        let nodes: Vec<_> = {
            let mut state = self.shared.state.lock();
            if state.bundle.take().is_none() {
                return false;
            }
            state.nodes.values().cloned().collect()
        };
        for node in nodes {
            // One that cannot be reached gets them with the next connection.
            let _ = self.bring_to(&mut node.lock());
        }
        true
    }

    /// The nodes need not keep anything of this client.
    pub(crate) fn close(&self, goes: bool) {
        let nodes = {
            let mut state = self.shared.state.lock();
            state.closed = true;
            std::mem::take(&mut state.nodes)
        };
        for node in nodes.into_values() {
            // One that is in the middle of something hears of it by the end of its link.
            if let Some(link) = node.try_lock().and_then(|mut node| node.link.take())
                && goes
            {
                link.bye();
            }
        }
    }
}

impl Node {
    fn send(&mut self, bundle: &Arc<Bundle>) -> Result<(), Error> {
        if self.link.as_mut().is_some_and(|link| !link.is_open()) {
            self.link = None;
        }
        if self.link.is_some() && self.has.as_ref().is_some_and(|has| has.name == bundle.name) {
            return Ok(());
        }
        let link = match &mut self.link {
            Some(link) => link,
            None => {
                let WayIn { addresses, relayed, lease, secret } =
                    self.way.clone().ok_or_else(|| io::Error::from(io::ErrorKind::NotConnected))?;
                let deadline = Instant::now() + PATIENCE;
                match secure::dial_store(&addresses, relayed, lease, secret, deadline) {
                    Ok(opened) => self.link.insert(Client::new(opened)),
                    // One that only calls somebody's actor there has nothing to bring.
                    Err(secure::Error::Lease { .. }) => return Ok(()),
                    Err(error) => return Err(Error::Link(error.into())),
                }
            }
        };
        let names = bundle.names();
        let lacking = link.lacks(Space::Files, &names)?;
        let things = lacking.into_iter().map(|place| {
            let name = names[place];
            if name == bundle.name {
                let bytes = bundle.bytes.clone();
                return Ok(Thing {
                    name,
                    length: bytes.len() as u64,
                    bytes: Box::new(io::Cursor::new(bytes)),
                });
            }
            let (path, length) = &bundle.sources[&name];
            let file = File::open(path).map_err(|error| Failure::Other {
                text: format!("{} was there a moment ago: {error}", path.display()),
            })?;
            Ok(Thing { name, length: *length, bytes: Box::new(file) })
        });
        link.put(Space::Files, things)?;
        link.unpack(bundle.name).map(drop)
    }
}
