//! Who is at the other end of which link.
//!
//! * LK-1: a peer has one link. A new one takes the place of the old, whose end is told first; what an older one brings
//!   was overtaken, and means nothing.
//! * LK-2: lines for a client that does not read hold up the node they come from, so that in the end the printing slot
//!   waits; but only for a moment, then they are dropped: nobody else may wait for a client that sleeps. A node whose clients
//!   sleep waits for one of them at a time, and not again for a heartbeat, so that it is never silent for long.
//! * LK-4: a link that comes from a slot may do what tasks need and nothing else, whatever it says: it asks no more than
//!   tasks may, is no node, and takes the place of nobody but another slot's.
//! * LK-5: what waits for a peer that does not read is bounded; then its link is dropped. The clients of one machine have
//!   one bound for all their links, and so have the tasks there: then the link over which most waits is dropped. A node is
//!   judged by its heartbeats alone: the programs that it is to run may be more than any bound in one step.
//! * LK-6: a node is dead if the kernel says so of its process, or, on another machine, if its link was closed or reset and its
//!   machine refuses connections to its port. A link that broke is no proof: one that lives is back in a moment.
//! * LK-7: what links have brought and the head has not handled yet is bounded in bytes.
//! * LK-8: the clients of one machine have so many links at a time, and so have the tasks there; also of those that are out of
//!   reach no more are known. Who comes then is told the setting and sent away. Nodes, and those who only ask, get in all the
//!   same: the oldest link that has not said whose it is makes room.
//! * LK-3: one that only asks is no client: the core never hears of it.

use crate::ask::Asker;
use crate::message::{FromHead, ToHead};
use paceline_core::admission::Source;
use paceline_core::head::{Config, Event, Head, LinkEnd};
use paceline_net::control::{self, Budget, Receiver, Sender};
use paceline_net::poll;
use paceline_net::secure::{PeerInfo, Secured};
use paceline_net::watch::{self, Watched};
use paceline_proto::control::{ClientToHead, HeadToClient, NodeToHead};
use paceline_proto::question::{Answer, Question};
use paceline_proto::{Address, ClientId, NodeId};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// Lines are held back when this many bytes wait for their client already.
const ENOUGH: usize = 256 << 10;
/// For how long they are at most.
const MOMENT: Duration = Duration::from_secs(1);
/// How long a peer whose link has ended may take to be seen dead.
const DYING: Duration = Duration::from_millis(300);

/// How often the port of a node whose link has ended must refuse a connection, how long that may take, and the pause
/// between two (LK-6).
const REFUSALS: u32 = 2;
const PROBE_TIMEOUT: Duration = Duration::from_secs(1);
const PROBE_PAUSE: Duration = Duration::from_millis(100);

/// A link, in the order of acceptance.
pub(crate) type LinkId = u64;

/// So many links that have not said whose they are may there be beyond the limit of a group (LK-8).
const NAMELESS: usize = 16;
/// The last links of so many peers that are gone are remembered.
const SPARE_PEERS: usize = 4096;
/// So many groups without links are kept before they are looked through.
const SPARE_GROUPS: usize = 64;
/// Long messages take so many of these, and there are so many (LK-7).
const UNIT: usize = 64 << 10;
const UNITS: usize = 1024;

/// What a link brought: a message, or its end; and the room that it takes while it waits (LK-7).
pub(crate) type Arrival = (LinkId, Result<ToHead, LinkEnd>, Option<OwnedSemaphorePermit>);

/// Where a link comes from, as the transport knows it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Origin {
    Peer,
    Slot,
}

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
            // An id that the head gives to work is nobody's to say.
            ToHead::Client(ClientToHead::Hello { client, .. }) => {
                client.work().is_none().then_some(Peer::Client(*client))
            }
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
    /// The last link of each peer, also when that is gone (LK-1).
    latest: BTreeMap<Peer, LinkId>,
    outlets: Outlets,
    accepted: LinkId,
    arrivals: mpsc::Sender<Arrival>,
    limits: Limits,
    groups: BTreeMap<GroupId, Group>,
    heavy: Arc<Semaphore>,
    /// Links over which more waits than may.
    unread: Mutex<BTreeSet<LinkId>>,
    /// Links that have ended, of nodes that may be dead (LK-6).
    suspects: BTreeMap<LinkId, NodeId>,
}

/// The settings that bound links.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    unread_bytes: usize,
    client_links: usize,
    task_links: usize,
    heartbeat: Duration,
}

impl Limits {
    pub(crate) fn of(config: &Config) -> Limits {
        Limits {
            unread_bytes: config.max_unread_bytes,
            client_links: config.max_client_links,
            task_links: config.max_task_links,
            heartbeat: config.heartbeat,
        }
    }

    fn links(&self, origin: Origin) -> (usize, &'static str) {
        match origin {
            Origin::Peer => (self.client_links, "max_client_links"),
            Origin::Slot => (self.task_links, "max_task_links"),
        }
    }
}

/// Those who share limits: the clients of one machine, or the tasks there.
type GroupId = (Origin, Source);

struct Group {
    links: BTreeSet<LinkId>,
    /// Clients that came from there, as long as the core may know them.
    clients: BTreeSet<ClientId>,
    budget: Budget,
}

struct Link {
    id: LinkId,
    sender: Sender<FromHead>,
    reader: JoinHandle<()>,
    peer: Option<Peer>,
    origin: Origin,
    source: Source,
    /// Given back when the link is gone.
    _place: Place,
    way: Way,
    /// Its process, if that is on this machine: readable when it is gone.
    process: Option<OwnedFd>,
    /// Its machine, if that is another one.
    machine: Option<IpAddr>,
    /// Where a node listens on that machine.
    port: Option<SocketAddr>,
}

/// What a link holds for as long as it is there: a place among those that somebody else counts.
pub(crate) type Place = Option<Box<dyn Send + Sync>>;

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
    pub(crate) fn new(arrivals: mpsc::Sender<Arrival>, limits: Limits) -> Links {
        Links {
            links: BTreeMap::new(),
            by_peer: BTreeMap::new(),
            latest: BTreeMap::new(),
            outlets: Outlets::default(),
            accepted: 0,
            arrivals,
            limits,
            groups: BTreeMap::new(),
            heavy: Arc::new(Semaphore::new(UNITS)),
            unread: Mutex::default(),
            suspects: BTreeMap::new(),
        }
    }

    pub(crate) fn accept(&mut self, connection: Secured, origin: Origin, place: Place) -> io::Result<()> {
        let source = match connection.peer {
            PeerInfo::Own | PeerInfo::Unix { .. } => Source::Unix,
            PeerInfo::Tls { address } => Source::from(address.ip()),
        };
        let most = self.limits.links(origin).0;
        self.make_room((origin, source), most);
        let group = self.groups.entry((origin, source)).or_insert_with(|| Group {
            links: BTreeSet::new(),
            clients: BTreeSet::new(),
            budget: Budget::new(self.limits.unread_bytes),
        });
        // What is in this process is no stranger, and must not suffer from any.
        let budget = (!matches!(connection.peer, PeerInfo::Own)).then(|| group.budget.clone());
        let way = match connection.peer {
            PeerInfo::Own | PeerInfo::Unix { .. } => Way { link: "unix", address: None },
            PeerInfo::Tls { address } => Way { link: "tcp+tls", address: Some(address.to_string()) },
        };
        let machine = match connection.peer {
            PeerInfo::Tls { address } => Some(address.ip().to_canonical()),
            PeerInfo::Own | PeerInfo::Unix { .. } => None,
        };
        let process = process_of(&connection.peer);
        let watched = process.as_ref().and_then(|process| watch::to_read(process.try_clone().ok()?).ok());
        let (sender, receiver) = control::channel_within(connection, budget)?;
        self.accepted += 1;
        group.links.insert(self.accepted);
        let ways = Ways {
            arrivals: self.arrivals.clone(),
            outlets: self.outlets.clone(),
            heavy: self.heavy.clone(),
            heartbeat: self.limits.heartbeat,
        };
        let reader = tokio::spawn(read(self.accepted, receiver, ways, watched));
        let link = Link {
            id: self.accepted,
            sender,
            reader,
            peer: None,
            origin,
            source,
            _place: place,
            way,
            process,
            machine,
            port: None,
        };
        self.links.insert(self.accepted, link);
        Ok(())
    }

    /// Drops the oldest links of a group that have not said whose they are, if there are too many (LK-8).
    fn make_room(&mut self, group: GroupId, most: usize) {
        let Some(links) = self.groups.get(&group).map(|group| &group.links) else { return };
        let count = links.iter().filter(|id| !self.is_node(**id)).count();
        let over = (count + 1).saturating_sub(most.saturating_add(NAMELESS));
        let nameless = links.iter().filter(|id| self.links.get(id).is_some_and(|link| link.peer.is_none()));
        for id in nameless.take(over).copied().collect::<Vec<_>>() {
            tracing::warn!(
                link = id,
                "link dropped reason=\"there are too many that have not said whose they are\""
            );
            self.drop_link(id, LinkEnd::Lost);
        }
    }

    fn is_node(&self, id: LinkId) -> bool {
        self.links.get(&id).is_some_and(|link| matches!(link.peer, Some(Peer::Node(_))))
    }

    /// Returns why one that says who it is is not served, if it is not (LK-8).
    fn refuse(&mut self, id: LinkId, message: &ToHead, core: &Head) -> Option<String> {
        let ToHead::Client(ClientToHead::Hello { client, .. }) = message else { return None };
        let link = self.links.get(&id).filter(|link| link.peer.is_none())?;
        let key = (link.origin, link.source);
        let (most, setting) = self.limits.links(link.origin);
        let whose =
            if key.0 == Origin::Slot { "the tasks of one machine" } else { "the clients of one machine" };
        let is_client =
            |id: &&LinkId| self.links.get(id).is_some_and(|link| matches!(link.peer, Some(Peer::Client(_))));
        // A link that takes the place of another one is not one more.
        let again = self.by_peer.contains_key(&Peer::Client(*client));
        let group = self.groups.get(&key)?;
        if !again && group.links.iter().filter(is_client).count() >= most {
            return Some(format!("{whose} may have {most} links at a time ({setting} of the head)"));
        }
        self.forget_groups(core);
        let group = self.groups.get_mut(&key)?;
        group.clients.insert(*client);
        if group.clients.len() > most {
            group.clients.retain(|other| other == client || core.knows_client(*other));
        }
        if group.clients.len() > most {
            group.clients.remove(client);
            return Some(format!(
                "of {whose} {most} are known at a time, also for a while after they have gone ({setting} of the head)"
            ));
        }
        None
    }

    /// Forgets groups without links whose clients the head has forgotten, once they are many: a client may come from another
    /// address each time.
    fn forget_groups(&mut self, core: &Head) {
        if self.groups.len() > self.links.len() + SPARE_GROUPS {
            self.groups.retain(|_, group| {
                group.clients.retain(|client| core.knows_client(*client));
                !group.links.is_empty() || !group.clients.is_empty()
            });
        }
    }

    /// What an arrival means to the head, in order.
    pub(crate) fn on_arrival(&mut self, (id, message, _room): Arrival, core: &Head) -> Vec<Meaning> {
        if let Some(client) = message.as_ref().ok().and_then(|message| self.usurped(id, message)) {
            tracing::warn!(
                link = id,
                %client,
                "link of a slot dropped reason=\"it says that it is somebody else\""
            );
            return events(self.drop_link(id, LinkEnd::Lost));
        }
        let refusal = message.as_ref().ok().and_then(|message| self.refuse(id, message, core));
        let Some(link) = self.links.get(&id) else { return events(self.on_probed(id, message.err())) };
        if let Some(why) = refusal {
            tracing::warn!(link = id, source = %link.source, why, "link refused");
            link.sender.send(&FromHead::Client(HeadToClient::Refused { why }), Vec::new());
            return events(self.drop_link(id, LinkEnd::Lost));
        }
        if let Ok(ToHead::Node(NodeToHead::Join { node, incarnation, name, .. })) = &message
            && core.is_outrun(*node, *incarnation)
        {
            // It does not take the place of the later start, whose link stays (LK-1).
            tracing::warn!(node = name, %incarnation, "a node joins whose later start is known, and is sent away");
            for message in core.farewell() {
                link.sender.send(&FromHead::Node(message), Vec::new());
            }
            return Vec::new();
        }
        match (link.peer, message) {
            (_, Err(end)) => events(self.drop_link(id, end)),
            (_, Ok(ToHead::Client(ClientToHead::Ask { number, question })))
                if link.origin == Origin::Slot && !question.is_for_tasks() =>
            {
                tracing::warn!(link = id, ?question, "question of a task refused");
                self.answer(Asker { link: id, number }, Question::refusal());
                Vec::new()
            }
            (_, Ok(ToHead::Client(ClientToHead::Hello { met: Some(met), .. })))
                if link.origin == Origin::Slot && core.is_outranked_by(met) =>
            {
                // Nodes and clients tell a head that another has taken its place; a task could make that up.
                tracing::warn!(link = id, "link of a slot dropped reason=\"it has met a later head\"");
                events(self.drop_link(id, LinkEnd::Lost))
            }
            (_, Ok(ToHead::Node(_))) if link.origin == Origin::Slot => {
                tracing::warn!(link = id, "link of a slot dropped reason=\"it says that it is a node\"");
                events(self.drop_link(id, LinkEnd::Lost))
            }
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
            // Its introduction was on its way for longer than that of a link that was opened later (LK-1). What it says its peer
            // has is old, also if the later one is gone by now.
            Some(peer) if self.latest.get(&peer).is_some_and(|newer| *newer > id) => {
                return self.drop_link(id, LinkEnd::Lost);
            }
            Some(peer) if known.is_none() => {
                events = self.introduce(id, peer);
                Some(peer)
            }
            peer => peer,
        };
        if let (ToHead::Node(NodeToHead::Join { addresses, .. }), Some(link)) =
            (&message, self.links.get_mut(&id))
        {
            link.port = addresses.iter().find_map(|address| port_on(link.machine?, address));
        }
        match peer.and_then(|peer| peer.event(message)) {
            Some(event) => events.push(event),
            None => {
                tracing::warn!(link = id, ?peer, "a peer said what is not its to say");
                events.extend(self.drop_link(id, LinkEnd::Lost));
            }
        }
        events
    }

    /// Returns the client that a slot says it is, though that is no slot: it is connected, or may come back (LK-4).
    fn usurped(&self, id: LinkId, message: &ToHead) -> Option<ClientId> {
        let Some(Peer::Client(client)) = Peer::introduced_by(message) else { return None };
        let is_slot = self.links.get(&id).is_some_and(|link| link.origin == Origin::Slot);
        let mut peers = self.groups.iter().filter(|((origin, _), _)| *origin == Origin::Peer);
        (is_slot && peers.any(|(_, group)| group.clients.contains(&client))).then_some(client)
    }

    fn introduce(&mut self, id: LinkId, peer: Peer) -> Vec<Event> {
        let old = self.by_peer.get(&peer).copied();
        let events = old.map_or(Vec::new(), |old| self.drop_link(old, LinkEnd::Lost));
        let link = self.links.get_mut(&id).expect("the message came over it");
        link.peer = Some(peer);
        self.by_peer.insert(peer, id);
        self.latest.insert(peer, id);
        if self.latest.len() > 2 * self.by_peer.len() + SPARE_PEERS {
            self.latest.retain(|peer, _| self.by_peer.contains_key(peer));
        }
        if let Peer::Client(client) = peer {
            lock(&self.outlets).insert(client, link.sender.clone());
        }
        events
    }

    fn drop_link(&mut self, id: LinkId, end: LinkEnd) -> Vec<Event> {
        let Some(link) = self.links.remove(&id) else { return Vec::new() };
        if let Some(group) = self.groups.get_mut(&(link.origin, link.source)) {
            group.links.remove(&id);
            if group.links.is_empty() && group.clients.is_empty() {
                self.groups.remove(&(link.origin, link.source));
            }
        }
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
        let mut events = vec![peer.down(end)];
        if let Peer::Node(node) = peer {
            match (end, link.port) {
                (LinkEnd::Dead, _) => events.push(Event::NodeDied(node)),
                (LinkEnd::Closed | LinkEnd::Reset, Some(port)) => {
                    self.suspects.insert(id, node);
                    tokio::spawn(probe(id, port, self.arrivals.clone()));
                }
                _ => {}
            }
        }
        events
    }

    /// A node whose link has ended was looked for (LK-6).
    fn on_probed(&mut self, id: LinkId, end: Option<LinkEnd>) -> Vec<Event> {
        let Some(node) = self.suspects.remove(&id) else { return Vec::new() };
        if end != Some(LinkEnd::Dead) || self.by_peer.contains_key(&Peer::Node(node)) {
            return Vec::new();
        }
        tracing::warn!(link = id, ?node, "node died reason=\"its port refuses connections\"");
        vec![Event::NodeDied(node)]
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
            self.note_unread(link);
        }
    }

    /// Notes a link over which more waits than may (LK-5).
    fn note_unread(&self, link: &Link) {
        if self.is_node(link.id) {
            return;
        }
        let most = self.limits.unread_bytes;
        let queued = link.sender.queued();
        let mut unread = (queued > most).then_some(link.id);
        let group = self.groups.get(&(link.origin, link.source));
        // If the sum is too large, one has its share of it: so the others need not be asked each time.
        if let Some(group) =
            group.filter(|group| unread.is_none() && queued > most / group.links.len().max(1))
        {
            let others = group.links.iter().filter(|id| !self.is_node(**id));
            let waits = others.filter_map(|id| Some((self.links.get(id)?.sender.queued(), *id)));
            let waits: Vec<(usize, LinkId)> = waits.collect();
            if waits.iter().map(|(bytes, _)| bytes).sum::<usize>() > most {
                unread = waits.into_iter().max().map(|(_, id)| id);
            }
        }
        if let Some(id) = unread {
            self.unread.lock().unwrap_or_else(PoisonError::into_inner).insert(id);
        }
    }

    /// Drops links over which more waits than may, and returns what that means to the head.
    pub(crate) fn drop_unread(&mut self) -> Vec<Event> {
        let unread = std::mem::take(self.unread.get_mut().unwrap_or_else(PoisonError::into_inner));
        let drop = |id| {
            let (bytes, peer) = self.links.get(&id).map(|link| (link.sender.queued(), link.peer))?;
            tracing::warn!(link = id, ?peer, bytes, "link dropped reason=\"the peer does not read\"");
            Some(self.drop_link(id, LinkEnd::Lost))
        };
        unread.into_iter().filter_map(drop).flatten().collect()
    }

    /// Answer one that asked, whoever it is.
    pub(crate) fn answer(&self, asker: Asker, text: Answer) {
        if let Some(link) = self.links.get(&asker.link) {
            let message = HeadToClient::Answer { number: asker.number, text };
            link.sender.send(&FromHead::Client(message), Vec::new());
            self.note_unread(link);
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

/// Where a reader brings what it reads.
struct Ways {
    arrivals: mpsc::Sender<Arrival>,
    outlets: Outlets,
    heavy: Arc<Semaphore>,
    heartbeat: Duration,
}

impl Ways {
    /// Waits until there is room for a long message (LK-7).
    async fn room_for(&self, message: &Result<ToHead, LinkEnd>) -> Option<OwnedSemaphorePermit> {
        let units = message.as_ref().map_or(0, ToHead::weight) / UNIT;
        let units = u32::try_from(units.min(UNITS)).unwrap_or(u32::MAX);
        match units {
            0 => None,
            units => self.heavy.clone().acquire_many_owned(units).await.ok(),
        }
    }
}

async fn read(id: LinkId, mut receiver: Receiver<ToHead>, ways: Ways, process: Option<Watched>) {
    let mut patience = Patience::new(ways.heartbeat);
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
            && !patience.has_room(*client, &ways.outlets).await
        {
            continue;
        }
        let last = message.is_err();
        if let Some(process) = process.as_ref().filter(|_| last) {
            // A process that is killed closes its sockets a little before it is gone.
            let _ = tokio::time::timeout(DYING, process.readable()).await;
        }
        let room = ways.room_for(&message).await;
        if ways.arrivals.send((id, message, room)).await.is_err() || last {
            return;
        }
    }
}

/// Finds out whether anybody listens at the port of a node whose link has ended, and tells (LK-6).
async fn probe(id: LinkId, port: SocketAddr, arrivals: mpsc::Sender<Arrival>) {
    let mut end = LinkEnd::Dead;
    for _ in 0..REFUSALS {
        let connected = tokio::time::timeout(PROBE_TIMEOUT, TcpStream::connect(port)).await;
        if !matches!(connected, Ok(Err(error)) if error.kind() == io::ErrorKind::ConnectionRefused) {
            end = LinkEnd::Lost;
            break;
        }
        tokio::time::sleep(PROBE_PAUSE).await;
    }
    let _ = arrivals.send((id, Err(end), None)).await;
}

/// Returns the socket of an address on this machine, if it is there.
fn port_on(machine: IpAddr, address: &Address) -> Option<SocketAddr> {
    let Address::Tcp { host, port } = address else { return None };
    let host: IpAddr = host.parse().ok()?;
    (host.to_canonical() == machine).then_some(SocketAddr::new(machine, *port))
}

/// The process at the other end, if the kernel has named it.
fn process_of(peer: &PeerInfo) -> Option<OwnedFd> {
    let PeerInfo::Unix { pid, .. } = peer else { return None };
    let pid = Pid::from_raw(i32::try_from(*pid).ok()?)?;
    pidfd_open(pid, PidfdFlags::empty()).ok()
}

/// How a node's link waits for clients that do not keep up with what their slots print (LK-2).
struct Patience {
    heartbeat: Duration,
    /// Those that had no room the last time.
    deaf: BTreeSet<ClientId>,
    /// Until when nobody else is waited for.
    over_until: Option<Instant>,
}

impl Patience {
    fn new(heartbeat: Duration) -> Patience {
        Patience { heartbeat, deaf: BTreeSet::new(), over_until: None }
    }

    /// Returns how long this client may hold up the node.
    fn wait_limit(&self, client: ClientId) -> Duration {
        let is_over = self.over_until.is_some_and(|until| until > Instant::now());
        match is_over || self.deaf.contains(&client) {
            true => Duration::ZERO,
            false => MOMENT.min(self.heartbeat / 2),
        }
    }

    async fn has_room(&mut self, client: ClientId, outlets: &Outlets) -> bool {
        let Some(outlet) = lock(outlets).get(&client).cloned() else { return true };
        let limit = self.wait_limit(client);
        let room =
            outlet.queued() <= ENOUGH || tokio::time::timeout(limit, outlet.drained_to(ENOUGH)).await.is_ok();
        if room {
            self.deaf.remove(&client);
            return true;
        }
        if !limit.is_zero() {
            self.over_until = Some(Instant::now() + self.heartbeat);
        }
        if self.deaf.insert(client) {
            tracing::warn!(%client, "a client does not read: what its slots print is dropped");
        }
        false
    }
}

fn lock(outlets: &Outlets) -> std::sync::MutexGuard<'_, BTreeMap<ClientId, Sender<FromHead>>> {
    outlets.lock().unwrap_or_else(PoisonError::into_inner)
}
