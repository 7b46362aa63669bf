//! The store of a client of a cluster at an address: what it owns is kept here, and counted here.
//!
//! Owns: the thread that the store runs in, and one link to the store of each node that this client has leases on. Does not
//! own: how long objects live, and who has copies ([`paceline_core::objects`] decides).
//!
//! * OW-1: a data connection to a node is used only after that node's store and this one have met, or could not: what a
//!   slot asks for is found from the first call on.
//! * OW-2: all of it ends with this, and the nodes let go of what is ours.

use crate::files::WayIn;
use paceline_net::fds;
use paceline_net::secure::{self, Secured};
use paceline_net::signals;
use paceline_net::tcp;
use paceline_node::{NodeAt, OBJECT_MEMORY, Objects, Whereabouts, default_object_memory, hardware};
use paceline_proto::NodeId;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

/// How long opening a link may take, and then the other store's first word.
const PATIENCE: Duration = Duration::from_secs(3);
/// A node that is silent for about three of these has gone.
const HEARTBEAT: Duration = Duration::from_secs(2);
/// The setting that says how many bytes may be kept of calls whose results nodes keep, to make them again.
const REMEMBER: &str = "PACELINE_REMEMBER";
const STACK: usize = 512 << 10;

/// Cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct Owner {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    whereabouts: Whereabouts,
}

#[derive(Default)]
struct State {
    requests: Option<mpsc::UnboundedSender<Request>>,
    nodes: HashMap<NodeId, Arc<Mutex<Node>>>,
    closed: bool,
}

/// What is known of the link to one node's store.
#[derive(Default)]
struct Node {
    /// Ends with the link.
    open: Option<Receiver<()>>,
}

enum Request {
    Process(OwnedFd),
    Node(Secured, NodeAt),
}

impl Owner {
    /// A link of this process to the store.
    pub(crate) fn reach(&self) -> io::Result<OwnedFd> {
        let (ours, theirs) = fds::pair()?;
        self.ask(Request::Process(theirs))?;
        Ok(ours)
    }

    /// Where what is kept is.
    pub(crate) fn whereabouts(&self) -> Whereabouts {
        self.shared.whereabouts.clone()
    }

    /// Have the store of this node know us, if it does not (OW-1).
    pub(crate) fn meet(&self, node: NodeId, way: &WayIn) {
        let known = {
            let mut state = self.shared.state.lock();
            if state.closed {
                return;
            }
            state.nodes.entry(node).or_default().clone()
        };
        let mut known = known.lock();
        known.open.take_if(|open| open.try_recv() == Err(std::sync::mpsc::TryRecvError::Disconnected));
        if known.open.is_some() {
            return;
        }
        match self.open(way) {
            Ok(open) => known.open = Some(open),
            // One that only calls somebody's actor there has nothing to keep.
            Err(error) => tracing::debug!(%error, "no link to the store of a node"),
        }
    }

    fn open(&self, way: &WayIn) -> io::Result<Receiver<()>> {
        let deadline = Instant::now() + PATIENCE;
        let opened = secure::dial_objects(&way.addresses, way.relayed, way.lease, way.secret, deadline)?;
        if opened.tls.is_some() {
            // One that cannot be told so ends when somebody asks in vain.
            let _ = tcp::notice_silence(&opened.socket, HEARTBEAT);
        }
        let (ready, meets) = channel();
        let relayed = way.relayed.then_some((way.lease, way.secret));
        self.ask(Request::Node(opened, NodeAt { addresses: way.addresses.clone(), relayed, ready }))?;
        meets.recv_timeout(PATIENCE).map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?;
        Ok(meets)
    }

    fn ask(&self, request: Request) -> io::Result<()> {
        let mut state = self.shared.state.lock();
        if state.closed {
            return Err(io::ErrorKind::NotConnected.into());
        }
        if state.requests.is_none() {
            state.requests = Some(start(self.shared.whereabouts.clone())?);
        }
        let requests = state.requests.as_ref().expect("it was started");
        requests.send(request).map_err(|_| io::ErrorKind::NotConnected.into())
    }

    /// Nothing of ours is needed any more (OW-2).
    pub(crate) fn close(&self) {
        let mut state = self.shared.state.lock();
        state.closed = true;
        state.requests = None;
        state.nodes.clear();
    }
}

fn start(whereabouts: Whereabouts) -> io::Result<mpsc::UnboundedSender<Request>> {
    let (sender, mut requests) = mpsc::unbounded_channel();
    let limit = limit();
    let remembered = size_setting(REMEMBER);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let thread = std::thread::Builder::new().name("paceline-owner".into()).stack_size(STACK);
    thread.spawn(move || {
        signals::block_all();
        runtime.block_on(async {
            let objects = Objects::new(NodeId(0), limit).telling(whereabouts);
            let mut objects = objects.remembering(remembered);
            while let Some(request) = requests.recv().await {
                match request {
                    Request::Process(link) => objects.on_link(link.into(), None),
                    Request::Node(connection, node) => objects.on_node(connection, node),
                }
            }
        });
        // What still goes over a network ends with the links.
        runtime.shutdown_background();
    })?;
    Ok(sender)
}

/// How many bytes this process may have in memory for objects.
fn limit() -> u64 {
    size_setting(OBJECT_MEMORY).unwrap_or_else(|| default_object_memory(hardware::usable_memory()))
}

fn size_setting(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| hardware::size(&text).ok())
}
