//! The head's shell.

use crate::disk::{Desk, Disk};
use crate::link::{End, LinkId, Repeat};
use crate::rivals::Peer;
use crate::stalls::{Clock, Standstill};
use crate::works::Shelf;
use crate::world::{Event as Happening, Machine, Sim};
use paceline_core::Tick;
use paceline_core::head::{Config, Effect, Event, Head, LinkEnd};
use paceline_proto::control::{ClientToHead, HeadToClient, HeadToNode, NodeToHead, Timing};
use paceline_proto::{ClientId, Epoch, NodeId};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// A place where a head runs, and may be started again.
pub(crate) struct HeadHost {
    /// None while it is down.
    pub core: Option<Head>,
    /// What outlives it.
    pub disk: Disk,
    /// What is on its way there.
    pub desk: Desk,
    /// The link of each peer that has said who it is.
    pub clients: BTreeMap<ClientId, LinkId>,
    pub nodes: BTreeMap<NodeId, LinkId>,
    /// The last link of each peer, also when that is gone: what comes over an older one is old.
    latest_clients: BTreeMap<ClientId, LinkId>,
    latest_nodes: BTreeMap<NodeId, LinkId>,
    wake: Option<Tick>,
    /// It dies after so many more effects.
    doomed: Option<usize>,
    pub clock: Clock,
    pub standstill: Standstill<Event>,
}

impl HeadHost {
    fn new(disk: Disk) -> HeadHost {
        HeadHost {
            core: None,
            disk,
            desk: Desk::default(),
            clients: BTreeMap::new(),
            nodes: BTreeMap::new(),
            latest_clients: BTreeMap::new(),
            latest_nodes: BTreeMap::new(),
            wake: None,
            doomed: None,
            clock: Clock::default(),
            standstill: Standstill::default(),
        }
    }

    pub fn first() -> HeadHost {
        HeadHost::new(Disk::default())
    }

    pub fn shelf_ref(&self) -> &Shelf {
        &self.disk.shelf
    }
}

impl Sim {
    /// A head starts from what is on its disk.
    pub(crate) fn head_starts(&mut self, at: usize) {
        if self.heads[at].core.is_some() {
            return;
        }
        if let Some(room) = self.room_at(at) {
            return self.agenda.add(room, Happening::HeadStarts { head: at });
        }
        let first = self.heads[at].disk.epoch == Epoch::default();
        let epoch = self.heads[at].disk.epoch.next(self.random.next() as u32);
        self.heads[at].disk.epoch = epoch;
        if !first && self.timings.is_some() {
            self.draw_timing();
        }
        let mut config = Config { epoch, ..self.settings.head.clone() };
        config.earlier_head_lost = self.heads[at].disk.head_lost;
        let timing = Timing { heartbeat: config.heartbeat, head_lost: config.head_lost };
        self.heads[at].disk.head_lost = config.earlier_head_lost.max(timing.ends_within());
        config.secret[..8].copy_from_slice(&epoch.0.to_le_bytes());
        if !first {
            config.settle = self.settings.head.head_lost;
            self.ledger.tally.head_starts += 1;
        }
        self.note(|_| format!("head {at} starts as {epoch:?}"));
        // A machine that starts knows nothing of older connections, and says so to whoever uses them.
        for link in self.links_of(|kind| kind.head() == Some(at)) {
            self.reset_link(link, End::Far);
        }
        let mut core = Head::new(config);
        let Shelf { works, ended } = self.heads[at].disk.shelf.clone();
        let works = works.into_iter().map(|(id, (work, standing))| (id, work, standing)).collect();
        core.restore(works, ended.into_iter().collect());
        self.heads[at].core = Some(core);
        self.head_handles(at, Event::Tick);
    }

    /// Somebody has changed the settings before the head is started again.
    fn draw_timing(&mut self) {
        let Some(random) = &mut self.timings else { return };
        let usual =
            Timing { heartbeat: self.settings.node.heartbeat, head_lost: self.settings.node.head_lost };
        let heartbeat = usual.heartbeat * random.pick(&[1, 2, 4]) / random.pick(&[1, 2, 4]);
        let head_lost = usual.head_lost * random.pick(&[1, 2, 4]) / random.pick(&[1, 2, 4]);
        self.set_timing(Timing { heartbeat, head_lost: head_lost.max(heartbeat * 3) });
    }

    pub(crate) fn set_timing(&mut self, timing: Timing) {
        self.note(|_| format!("the next head has {timing:?}"));
        self.ledger.tally.timings += 1;
        (self.settings.head.heartbeat, self.settings.head.head_lost) = (timing.heartbeat, timing.head_lost);
    }

    /// The head dies and comes back after a while. If `silent`, nobody sees its links close.
    pub(crate) fn head_dies(&mut self, at: usize, silent: bool, back: Option<Duration>) {
        let host = &mut self.heads[at];
        if host.core.take().is_none() {
            return;
        }
        self.tear_journal(at);
        let host = &mut self.heads[at];
        *host = HeadHost { clock: host.clock, ..HeadHost::new(host.disk.clone()) };
        self.ledger.tally.head_deaths += 1;
        self.note(|_| format!("head {at} dies, silent: {silent}"));
        for link in self.links_of(|kind| kind.head() == Some(at)) {
            self.lose_end(link, End::Far, silent);
        }
        if let Some(pause) = back {
            self.after(pause, Happening::HeadStarts { head: at });
        }
    }

    /// The head dies in the middle of something.
    pub(crate) fn doom_head(&mut self, at: usize, effects: usize) {
        self.heads[at].doomed = Some(effects);
    }

    /// Somebody starts a head from a copy of the journal.
    pub(crate) fn start_rival(&mut self) {
        let disk = self.heads[0].disk.clone();
        if self.heads.len() == 1 {
            self.heads.push(HeadHost::new(disk));
        } else if self.heads[1].core.is_none() {
            self.heads[1].disk = disk;
        }
        self.head_starts(1);
    }

    /// Somebody wants this node to finish what it runs and go.
    pub(crate) fn drain_node(&mut self, node: usize) {
        let (Some(head), id) = (self.some_head(), self.nodes[node].id) else { return };
        self.ledger.tally.leaving += 1;
        self.note(|sim| format!("head {head} is to let node {} go", sim.nodes[node].name));
        self.head_handles(head, Event::Drain(id));
    }

    pub(crate) fn heads_alive(&self) -> Vec<usize> {
        (0..self.heads.len()).filter(|at| self.heads[*at].core.is_some()).collect()
    }

    /// A head that somebody who looks for one finds.
    pub(crate) fn some_head(&mut self) -> Option<usize> {
        let alive = self.heads_alive();
        if alive.len() < 2 { alive.first().copied() } else { Some(self.random.pick(&alive)) }
    }

    pub(crate) fn head_handles(&mut self, at: usize, event: Event) {
        if let Some(event) = self.heads[at].standstill.keep(self.now, event) {
            self.head_takes(at, event);
        }
    }

    pub(crate) fn head_takes(&mut self, at: usize, event: Event) {
        let now = self.heads[at].clock.read(self.now);
        let mut events = VecDeque::from([event]);
        while let Some(event) = events.pop_front() {
            let Some(core) = &mut self.heads[at].core else { return };
            let mut effects = Vec::new();
            core.handle(now, event, &mut effects);
            self.touch(Machine::Head(at));
            for effect in effects {
                match &mut self.heads[at].doomed {
                    Some(0) => {
                        let pause =
                            self.random.span(Duration::from_millis(1)..self.settings.head.heartbeat * 4);
                        return self.head_dies(at, false, Some(pause));
                    }
                    Some(left) => *left -= 1,
                    None => {}
                }
                events.extend(self.head_performs(at, effect));
            }
        }
    }

    fn head_performs(&mut self, at: usize, effect: Effect) -> Vec<Event> {
        match effect {
            Effect::ToClient(client, message) => self.head_tells_client(at, client, &message),
            Effect::ToNode(node, message) => self.head_tells_node(at, node, &message),
            Effect::DropNode(node) => {
                if let Some(link) = self.heads[at].nodes.remove(&node) {
                    self.note(|_| format!("head {at} drops {node:?}"));
                    self.close_end(link, End::Far);
                }
            }
            Effect::DropClient(client) => {
                if let Some(link) = self.heads[at].clients.remove(&client) {
                    self.note(|_| format!("head {at} drops {client:?}"));
                    self.close_end(link, End::Far);
                }
            }
            Effect::Superseded { by } => {
                let own = self.heads[at].disk.epoch;
                assert!(by > own, "HD-9: {own:?} gives way to {by:?}");
                self.ledger.tally.superseded += 1;
                // Somebody sees to it that there is one head.
                let alone = self.heads_alive() == [at];
                self.head_dies(at, false, alone.then_some(Duration::from_secs(1)));
            }
            Effect::WakeAt(wake) => {
                self.heads[at].wake = Some(wake);
                let (late, when) = (self.lateness(), self.heads[at].clock.when(wake));
                self.agenda.add(when + late, Happening::WakeHead { head: at, at: wake });
            }
            Effect::Write { work, write } => return self.head_writes(at, work, write),
            Effect::Told { asker, told } => self.submitter_is_told(at, asker, &told),
        }
        Vec::new()
    }

    pub(crate) fn wake_head(&mut self, head: usize, at: Tick) {
        if self.heads[head].wake == Some(at) {
            self.heads[head].wake = None;
            self.head_handles(head, Event::Tick);
        }
    }

    fn head_tells_client(&mut self, at: usize, client: ClientId, message: &HeadToClient) {
        let repeat = match message {
            HeadToClient::Welcome { .. }
            | HeadToClient::Recall { .. }
            | HeadToClient::Crowded { .. }
            | HeadToClient::NodeAt { .. }
            | HeadToClient::Via { .. }
            | HeadToClient::Heartbeat { .. }
            | HeadToClient::Ended { .. } => Repeat::Later,
            HeadToClient::Granted { .. }
            | HeadToClient::Visiting { .. }
            | HeadToClient::ActorKnown { .. }
            | HeadToClient::NameHeld { .. }
            | HeadToClient::ActorAway { .. } => Repeat::AtOnce,
            HeadToClient::ActorGone { .. } => Repeat::Later,
            HeadToClient::Found { .. } => Repeat::Never,
            HeadToClient::ProgramFailed { .. }
            | HeadToClient::Unplaceable { .. }
            | HeadToClient::Answer { .. }
            | HeadToClient::Ask { .. }
            | HeadToClient::Over
            | HeadToClient::Bye { .. }
            | HeadToClient::Refused { .. }
            | HeadToClient::Waits { .. }
            | HeadToClient::Output { .. } => Repeat::Never,
        };
        self.ledger.tally.recalls += u64::from(matches!(message, HeadToClient::Recall { .. }));
        self.ledger.tally.crowded += u64::from(matches!(message, HeadToClient::Crowded { .. }));
        if !matches!(message, HeadToClient::Heartbeat { .. }) {
            self.note(|_| format!("head {at} -> {client:?}: {message:?}"));
        }
        if let Some(&link) = self.heads[at].clients.get(&client) {
            self.post(link, End::Near, encoded(|out| message.encode(out)), None, repeat);
        }
    }

    fn head_tells_node(&mut self, at: usize, node: NodeId, message: &HeadToNode) {
        let repeat = match message {
            HeadToNode::Welcome { .. } | HeadToNode::Program { .. } | HeadToNode::End { .. } => Repeat::Later,
            HeadToNode::Place { .. } | HeadToNode::Run { .. } | HeadToNode::Relay { .. } => Repeat::AtOnce,
            HeadToNode::Admit { .. } => Repeat::AtOnce,
            HeadToNode::Heartbeat { .. }
            | HeadToNode::Heard { .. }
            | HeadToNode::TooDeep { .. }
            | HeadToNode::HolderConfirmed { .. } => Repeat::Later,
            HeadToNode::Bye | HeadToNode::Ask { .. } => Repeat::Never,
        };
        if !matches!(message, HeadToNode::Heartbeat { .. }) {
            self.note(|_| format!("head {at} -> {node:?}: {message:?}"));
        }
        if let Some(&link) = self.heads[at].nodes.get(&node) {
            self.post(link, End::Near, encoded(|out| message.encode(out)), None, repeat);
        }
    }

    pub(crate) fn head_hears_client(
        &mut self,
        at: usize,
        link: LinkId,
        client: usize,
        message: ClientToHead,
    ) {
        let id = self.clients[client].id;
        if self.heads[at].core.is_none() {
            return;
        }
        if matches!(message, ClientToHead::Hello { .. }) {
            if self.heads[at].latest_clients.get(&id).is_some_and(|latest| *latest > link) {
                return self.close_end(link, End::Far);
            }
            self.heads[at].latest_clients.insert(id, link);
            match self.heads[at].clients.get(&id) {
                // The end of an older link is reported first.
                Some(&older) if older < link => {
                    self.head_handles(at, Event::ClientDown { client: id, end: LinkEnd::Lost });
                }
                // This is the older one: what it says was overtaken.
                Some(&newer) if newer > link => return self.close_end(link, End::Far),
                _ => {}
            }
            self.heads[at].clients.insert(id, link);
        }
        if self.heads[at].clients.get(&id) == Some(&link) {
            let first = matches!(message, ClientToHead::Hello { .. });
            self.head_handles(at, Event::FromClient(id, message));
            if first {
                self.first_word_was_heard(at, link, Peer::Client(client));
            }
        }
    }

    pub(crate) fn head_loses_client(&mut self, at: usize, link: LinkId, client: usize) {
        let id = self.clients[client].id;
        if self.heads[at].clients.get(&id) == Some(&link) {
            self.heads[at].clients.remove(&id);
            // Of a process on its own machine the head knows whether it lives; between machines a break looks like anything.
            let far = !self.settings.client.heartbeat.is_zero();
            let end = match (self.clients[client].alive, far) {
                (false, false) => LinkEnd::Dead,
                (true, false) => LinkEnd::Lost,
                (false, true) => self.random.pick(&[LinkEnd::Closed, LinkEnd::Reset]),
                (true, true) => self.random.pick(&[LinkEnd::Closed, LinkEnd::Reset, LinkEnd::Lost]),
            };
            self.note(|_| format!("head {at}: the link of {id:?} is down: {end:?}"));
            self.head_handles(at, Event::ClientDown { client: id, end });
        }
    }

    pub(crate) fn head_hears_node(&mut self, at: usize, link: LinkId, node: usize, message: NodeToHead) {
        let id = self.nodes[node].id;
        if self.heads[at].core.is_none() {
            return;
        }
        if let NodeToHead::Join { incarnation, .. } = message {
            let core = self.heads[at].core.as_ref().expect("seen above");
            if core.is_outrun(id, incarnation) {
                self.ledger.tally.outrun += 1;
                for message in core.farewell() {
                    self.post(link, End::Near, encoded(|out| message.encode(out)), None, Repeat::Never);
                }
                return;
            }
            if self.heads[at].latest_nodes.get(&id).is_some_and(|latest| *latest > link) {
                return self.close_end(link, End::Far);
            }
            self.heads[at].latest_nodes.insert(id, link);
            match self.heads[at].nodes.get(&id) {
                Some(&older) if older < link => self.head_handles(at, Event::NodeDown(id)),
                Some(&newer) if newer > link => return self.close_end(link, End::Far),
                _ => {}
            }
            self.heads[at].nodes.insert(id, link);
        }
        if self.heads[at].nodes.get(&id) == Some(&link) {
            let first = matches!(message, NodeToHead::Join { .. });
            self.head_handles(at, Event::FromNode(id, message));
            if first {
                self.first_word_was_heard(at, link, Peer::Node(node));
            }
        }
    }

    pub(crate) fn head_loses_node(&mut self, at: usize, link: LinkId, node: usize) {
        let id = self.nodes[node].id;
        if self.heads[at].nodes.get(&id) == Some(&link) {
            self.heads[at].nodes.remove(&id);
            self.note(|_| format!("head {at}: the link of {id:?} is down"));
            self.head_handles(at, Event::NodeDown(id));
            // The machine of a process that is dead says so.
            if self.nodes[node].core.is_none() && self.heads[at].core.is_some() {
                self.head_handles(at, Event::NodeDied(id));
            }
        }
    }
}

/// The bytes of a message.
pub(crate) fn encoded(encode: impl FnOnce(&mut Vec<u8>) -> Result<(), paceline_proto::Error>) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode(&mut bytes).expect("every message can be encoded");
    bytes
}
