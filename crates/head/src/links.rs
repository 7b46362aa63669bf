//! Who is at the other end of which link.
//!
//! * LK-1: a peer has one link. A new one takes the place of the old, whose end is told first; what an older one brings
//!   was overtaken, and means nothing.
//! * LK-2: lines for a client that does not read hold up the node they come from, so that in the end the printing slot
//!   waits; but only for a moment, then they are dropped: nobody else may wait for a client that sleeps.
//! * LK-3: one that only asks is no client: the core never hears of it.

use crate::ask::Asker;
use crate::message::{FromHead, ToHead};
use paceline_core::head::{Event, LinkEnd};
use paceline_net::control::{self, Receiver, Sender};
use paceline_net::poll;
use paceline_net::secure::{PeerInfo, Secured};
use paceline_net::watch::{self, Watched};
use paceline_proto::control::{ClientToHead, HeadToClient, NodeToHead};
use paceline_proto::question::{Answer, Question};
use paceline_proto::{ClientId, NodeId};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// Lines are held back when this many bytes wait for their client already.
const ENOUGH: usize = 256 << 10;
/// For how long they are.
const MOMENT: Duration = Duration::from_secs(1);
/// How long a peer whose link has ended may take to be seen dead.
const DYING: Duration = Duration::from_millis(300);

/// A link, in the order of acceptance.
pub(crate) type LinkId = u64;

/// What a link brought: a message, or its end.
pub(crate) type Arrival = (LinkId, Result<ToHead, LinkEnd>);

/// What an arrival means.
pub(crate) enum Meaning {
    Event(Event),
    Asked(Asker, Question),
    Answered(Peer, u64, Answer),
}

fn events(events: Vec<Event>) -> Vec<Meaning> {
    events.into_iter().map(Meaning::Event).collect()
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Peer {
    Client(ClientId),
    Node(NodeId),
}

impl Peer {
    /// Who opens a link with this message.
    fn introduced_by(message: &ToHead) -> Option<Peer> {
        match message {
            ToHead::Client(ClientToHead::Hello { client, .. }) => Some(Peer::Client(*client)),
            ToHead::Node(NodeToHead::Join { node, .. }) => Some(Peer::Node(*node)),
            ToHead::Client(_) | ToHead::Node(_) => None,
        }
    }

    pub(crate) fn node(self) -> Option<NodeId> {
        match self {
            Peer::Node(node) => Some(node),
            Peer::Client(_) => None,
        }
    }

    fn event(self, message: ToHead) -> Option<Event> {
        match (self, message) {
            (Peer::Client(client), ToHead::Client(message)) => Some(Event::FromClient(client, message)),
            (Peer::Node(node), ToHead::Node(message)) => Some(Event::FromNode(node, message)),
            (Peer::Client(_), ToHead::Node(_)) | (Peer::Node(_), ToHead::Client(_)) => None,
        }
    }

    fn down(self, end: LinkEnd) -> Event {
        match self {
            Peer::Client(client) => Event::ClientDown { client, end },
            Peer::Node(node) => Event::NodeDown(node),
        }
    }
}

/// Senders to the clients that are here, for the readers of node links.
type Outlets = Arc<Mutex<BTreeMap<ClientId, Sender<FromHead>>>>;

pub(crate) struct Links {
    links: BTreeMap<LinkId, Link>,
    by_peer: BTreeMap<Peer, LinkId>,
    outlets: Outlets,
    accepted: LinkId,
    arrivals: mpsc::Sender<Arrival>,
}

struct Link {
    sender: Sender<FromHead>,
    reader: JoinHandle<()>,
    peer: Option<Peer>,
    way: Way,
    /// Its process, if that is on this machine: readable when it is gone.
    process: Option<OwnedFd>,
}

/// How a peer is linked: as people see it, and from where.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Way {
    pub link: &'static str,
    pub address: Option<String>,
}

impl Drop for Link {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

impl Links {
    pub(crate) fn new(arrivals: mpsc::Sender<Arrival>) -> Links {
        Links {
            links: BTreeMap::new(),
            by_peer: BTreeMap::new(),
            outlets: Outlets::default(),
            accepted: 0,
            arrivals,
        }
    }

    pub(crate) fn accept(&mut self, connection: Secured) -> io::Result<()> {
        let way = match connection.peer {
            PeerInfo::Own | PeerInfo::Unix { .. } => Way { link: "unix", address: None },
            PeerInfo::Tls { address } => Way { link: "tcp+tls", address: Some(address.to_string()) },
        };
        let process = process_of(&connection.peer);
        let watched = process.as_ref().and_then(|process| watch::to_read(process.try_clone().ok()?).ok());
        let (sender, receiver) = control::channel(connection)?;
        self.accepted += 1;
        let reading = read(self.accepted, receiver, self.arrivals.clone(), self.outlets.clone(), watched);
        let reader = tokio::spawn(reading);
        self.links.insert(self.accepted, Link { sender, reader, peer: None, way, process });
        Ok(())
    }

    /// What an arrival means to the head, in order.
    pub(crate) fn on_arrival(&mut self, (id, message): Arrival) -> Vec<Meaning> {
        let Some(link) = self.links.get(&id) else { return Vec::new() };
        match (link.peer, message) {
            (_, Err(end)) => events(self.drop_link(id, end)),
            // Whoever may open a link may ask, also one that does nothing else (LK-3).
            (None | Some(Peer::Client(_)), Ok(ToHead::Client(ClientToHead::Ask { number, question }))) => {
                vec![Meaning::Asked(Asker { link: id, number }, question)]
            }
            (Some(Peer::Node(node)), Ok(ToHead::Node(NodeToHead::Answer { number, text }))) => {
                vec![Meaning::Answered(Peer::Node(node), number, text)]
            }
            (Some(client @ Peer::Client(_)), Ok(ToHead::Client(ClientToHead::Answer { number, text }))) => {
                vec![Meaning::Answered(client, number, text)]
            }
            (known, Ok(message)) => events(self.on_message(id, known, message)),
        }
    }

    fn on_message(&mut self, id: LinkId, known: Option<Peer>, message: ToHead) -> Vec<Event> {
        let mut events = Vec::new();
        let peer = match known.or_else(|| Peer::introduced_by(&message)) {
            // Its introduction was on its way for longer than that of a link that was opened later (LK-1).
            Some(peer) if self.by_peer.get(&peer).is_some_and(|newer| *newer > id) => {
                return self.drop_link(id, LinkEnd::Lost);
            }
            Some(peer) if known.is_none() => {
                events = self.introduce(id, peer);
                Some(peer)
            }
            peer => peer,
        };
        match peer.and_then(|peer| peer.event(message)) {
            Some(event) => events.push(event),
            None => {
                tracing::warn!(link = id, ?peer, "a peer said what is not its to say");
                events.extend(self.drop_link(id, LinkEnd::Lost));
            }
        }
        events
    }

    fn introduce(&mut self, id: LinkId, peer: Peer) -> Vec<Event> {
        let old = self.by_peer.get(&peer).copied();
        let events = old.map_or(Vec::new(), |old| self.drop_link(old, LinkEnd::Lost));
        let link = self.links.get_mut(&id).expect("the message came over it");
        link.peer = Some(peer);
        self.by_peer.insert(peer, id);
        if let Peer::Client(client) = peer {
            lock(&self.outlets).insert(client, link.sender.clone());
        }
        events
    }

    fn drop_link(&mut self, id: LinkId, end: LinkEnd) -> Vec<Event> {
        let Some(link) = self.links.remove(&id) else { return Vec::new() };
        let Some(peer) = link.peer else { return Vec::new() };
        if self.by_peer.get(&peer) != Some(&id) {
            return Vec::new();
        }
        self.by_peer.remove(&peer);
        if let Peer::Client(client) = peer {
            lock(&self.outlets).remove(&client);
        }
        // Of a process on this machine the kernel knows better.
        let end = link.process.as_ref().map_or(end, |process| match poll::readable(process) {
            true => LinkEnd::Dead,
            false => LinkEnd::Lost,
        });
        vec![peer.down(end)]
    }

    /// Close the link of a peer that the head has given up already.
    pub(crate) fn drop_peer(&mut self, peer: Peer) {
        if let Some(&id) = self.by_peer.get(&peer) {
            self.drop_link(id, LinkEnd::Lost);
        }
    }

    pub(crate) fn send(&self, peer: Peer, message: &FromHead) {
        if let Some(link) = self.by_peer.get(&peer).and_then(|id| self.links.get(id)) {
            link.sender.send(message, Vec::new());
        }
    }

    /// Answer one that asked, whoever it is.
    pub(crate) fn answer(&self, asker: Asker, text: Answer) {
        if let Some(link) = self.links.get(&asker.link) {
            let message = HeadToClient::Answer { number: asker.number, text };
            link.sender.send(&FromHead::Client(message), Vec::new());
        }
    }

    /// Where one that asks is, for people.
    pub(crate) fn whereabouts(&self, asker: Asker) -> String {
        match self.links.get(&asker.link).and_then(|link| link.way.address.clone()) {
            Some(address) => format!(" from {address}"),
            None => " on the machine of its head".into(),
        }
    }

    pub(crate) fn way(&self, peer: Peer) -> Option<Way> {
        self.by_peer.get(&peer).and_then(|id| self.links.get(id)).map(|link| link.way.clone())
    }

    pub(crate) fn nodes(&self) -> Vec<NodeId> {
        let nodes = self.by_peer.keys().filter_map(|peer| match peer {
            Peer::Node(node) => Some(*node),
            Peer::Client(_) => None,
        });
        nodes.collect()
    }

    pub(crate) fn clients(&self) -> Vec<ClientId> {
        let clients = self.by_peer.keys().filter_map(|peer| match peer {
            Peer::Client(client) => Some(*client),
            Peer::Node(_) => None,
        });
        clients.collect()
    }

    pub(crate) fn has_nodes(&self) -> bool {
        self.by_peer.keys().any(|peer| matches!(peer, Peer::Node(_)))
    }

    /// Wait until everything said has gone, within reason.
    pub(crate) async fn drain(&self, within: Duration) {
        let drained = async {
            for link in self.links.values() {
                link.sender.drained_to(0).await;
            }
        };
        let _ = tokio::time::timeout(within, drained).await;
    }
}

async fn read(
    id: LinkId,
    mut receiver: Receiver<ToHead>,
    arrivals: mpsc::Sender<Arrival>,
    outlets: Outlets,
    process: Option<Watched>,
) {
    let mut deaf = BTreeSet::new();
    loop {
        let message = match receiver.next().await {
            Ok(Some((message, _))) => Ok(message),
            Ok(None) if receiver.was_reset() => Err(LinkEnd::Reset),
            Ok(None) => Err(LinkEnd::Closed),
            Err(error) => {
                tracing::warn!(link = id, %error, "a link broke");
                Err(LinkEnd::Lost)
            }
        };
        if let Ok(ToHead::Node(NodeToHead::Output { client, .. })) = &message
            && !has_room(*client, &outlets, &mut deaf).await
        {
            continue;
        }
        let last = message.is_err();
        if let Some(process) = process.as_ref().filter(|_| last) {
            // A process that is killed closes its sockets a little before it is gone.
            let _ = tokio::time::timeout(DYING, process.readable()).await;
        }
        if arrivals.send((id, message)).await.is_err() || last {
            return;
        }
    }
}

/// The process at the other end, if the kernel has named it.
fn process_of(peer: &PeerInfo) -> Option<OwnedFd> {
    let PeerInfo::Unix { pid, .. } = peer else { return None };
    let pid = Pid::from_raw(i32::try_from(*pid).ok()?)?;
    pidfd_open(pid, PidfdFlags::empty()).ok()
}

/// Wait for a client that does not keep up with what its slots print, once (LK-2).
async fn has_room(client: ClientId, outlets: &Outlets, deaf: &mut BTreeSet<ClientId>) -> bool {
    let Some(outlet) = lock(outlets).get(&client).cloned() else { return true };
    let patience = if deaf.contains(&client) { Duration::ZERO } else { MOMENT };
    let room =
        outlet.queued() <= ENOUGH || tokio::time::timeout(patience, outlet.drained_to(ENOUGH)).await.is_ok();
    if room {
        deaf.remove(&client);
    } else if deaf.insert(client) {
        tracing::warn!(%client, "a client does not read: what its slots print is dropped");
    }
    room
}

fn lock(outlets: &Outlets) -> std::sync::MutexGuard<'_, BTreeMap<ClientId, Sender<FromHead>>> {
    outlets.lock().unwrap_or_else(PoisonError::into_inner)
}
