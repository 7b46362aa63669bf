//! Who is here, and who may use what.
//!
//! Owns: the members of the cluster, what each client wants, and every lease. Does not own: slots (their node does),
//! calls and results (they never pass the head), sockets, clocks, randomness.
//!
//! * HD-1: the leases of a node never need more than it has, but for tasks that waited for others and go on.
//! * HD-2: equal events at equal times give equal effects.
//! * HD-3: a lease ends at the head only when its node said so or is gone, so nothing is granted twice.
//! * HD-4: every lease a client was told of is either given back by it or told to have ended.
//! * HD-5: a repeated or late message changes nothing.
//! * HD-7: a slot that is a client belongs to the family of the client it works for: what it uses counts as that
//!   client's, and within a family the deeper task comes first.
//! * HD-10: a client is told where a node is before it is granted a lease there.
//! * HD-8: a head that was started again knows nothing but what its peers tell it. A lease of an earlier start counts on
//!   its node from the node's report on, and is its holder's again as soon as both have named it; nothing is granted on a
//!   node before its report. What its holder does not name, or no node reports in time, is over.
//! * HD-9: of two starts of a head only the later one is a head: whoever meets a peer that has met a later one is none.
//! * HD-11: what clients call in slots that are not theirs goes by guest leases, which have nothing but that
//!   ([`actors`]).
//! * HD-12: a node passes connections on for as long as the head has it so on its books, over whichever link.
//! * HD-6: a client that wants work gets some as long as a node could hold it, whatever the others want.

mod actors;
mod adoption;
mod books;
mod check;
mod clients;
mod deep;
mod detached;
mod devices;
mod events;
mod explain;
mod families;
mod fences;
mod fit;
mod gang;
mod leases;
mod leaving;
mod lineup;
mod never;
mod nodes;
mod reach;
mod recall;
mod room;
mod share;
mod status;
mod tangles;
#[cfg(test)]
mod tests;
mod waiting;
mod waits;

use crate::alarm::Alarm;
use crate::time::Tick;
use paceline_proto::control::{HeadToClient, HeadToNode, Held, Met, Timing};
use paceline_proto::{
    Address, ClientId, ClusterId, Devices, Epoch, ExclusiveId, Facts, Incarnation, LeaseId, Names, NodeId,
    PlacementId, ProgramId, Resources, Rule, Shape, SlotId, Start, Sum,
};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use lineup::Lineup;
use room::Room;

pub use actors::{ActorStatus, program_of as program_of_actor};
pub use detached::{ENDS_KEPT, Told, WorkStatus, Write, Wrote};
pub use events::{Effect, Event, LinkEnd};
pub use explain::Waits;
pub use waits::Waiting;

pub use status::{LeaseStatus, NodeStatus, Status};

/// How long silence may last, in heartbeats, before a node counts as lost.
const BEATS: u32 = Timing::BEATS;

/// All invariants are checked after each step, in builds that do so, up to this many nodes.
const CHECKED_UP_TO: usize = 64;

/// What the head is told at its start.
#[derive(Clone, Debug)]
pub struct Config {
    pub cluster: ClusterId,
    pub epoch: Epoch,
    /// Makes lease ids that nobody can guess. Another one at each start.
    pub secret: [u8; 32],
    pub heartbeat: Duration,
    /// How long silence may last, in heartbeats, before a node counts as lost.
    pub beats: u32,
    /// A client that was not heard of for this long has lost its leases.
    pub client_lost: Duration,
    /// A node that is gone is still counted on for this long when a request is judged impossible.
    pub head_lost: Duration,
    /// The longest time for which anything of an earlier start may go on without a head (FE-4).
    pub earlier_head_lost: Duration,
    /// For this long after the start nothing is impossible: nodes may still be on their way.
    pub settle: Duration,
    /// A lease that others wait for is left alone for this long, where taking it would only turn the tables.
    pub quantum: Duration,
    /// The most leases of one node, whatever they need.
    pub max_leases: usize,
    /// The most members of one group of leases that are granted together.
    pub max_group_members: u32,
    /// The most that one client may have of each: different shapes wanted, placement rules, programs, actors of its own,
    /// actors of others that it calls, and leases of an earlier start that it claims or states to be lost.
    pub max_shapes: usize,
    pub max_placements: usize,
    pub max_programs: usize,
    pub max_actors: usize,
    pub max_called_actors: usize,
    pub max_claimed_leases: usize,
    /// So many bytes may wait for one peer that does not read; then its link is dropped.
    pub max_unread_bytes: usize,
    /// So many bytes are kept for one client and its tasks: names, programs, rules, requests, actors.
    pub max_client_state: usize,
    /// So many bytes have the records of all submitted programs together.
    pub max_submitted_bytes: usize,
    /// So many links may the clients of one machine have at a time, and the tasks that run on one machine.
    pub max_client_links: usize,
    pub max_task_links: usize,
}

impl Config {
    pub fn new(cluster: ClusterId, epoch: Epoch, secret: [u8; 32]) -> Config {
        Config {
            cluster,
            epoch,
            secret,
            heartbeat: Duration::from_secs(2),
            beats: BEATS,
            client_lost: Duration::from_secs(30),
            head_lost: Duration::from_secs(60),
            earlier_head_lost: Duration::ZERO,
            settle: Duration::ZERO,
            quantum: Duration::from_millis(200),
            max_leases: 1024,
            max_group_members: 10_000,
            max_shapes: 20_000,
            max_placements: 20_000,
            max_programs: 1_000,
            max_actors: 20_000,
            max_called_actors: 20_000,
            max_claimed_leases: 100_000,
            max_unread_bytes: 64 << 20,
            max_client_state: 256 << 20,
            max_submitted_bytes: 1 << 30,
            max_client_links: 2_000,
            max_task_links: 4_096,
        }
    }
}

/// The head.
pub struct Head {
    config: Config,
    alarm: Alarm,
    clients: BTreeMap<ClientId, Client>,
    families: BTreeMap<ClientId, Family>,
    /// Requests that could use another lease, and those of them for which not enough is on its way.
    queue: Lineup,
    calling: Lineup,
    /// What both list, by client.
    listed: BTreeMap<ClientId, waiting::Listed>,
    /// What is known of the classes that wait.
    known: BTreeMap<lineup::Class, share::Known>,
    /// Families by what could be asked back of them.
    rich: BTreeSet<waiting::Richness>,
    riches: BTreeMap<ClientId, waiting::Richness>,
    /// Families that had nothing for so long that they come first.
    starving: BTreeSet<ClientId>,
    /// Who starves is not looked for before.
    look_for_starving: Tick,
    /// Leases whose tasks wait for each other, since when, and when that is looked for again.
    tangled: BTreeMap<LeaseId, Tick>,
    look_for_tangles: Tick,
    /// Clients that may not know that there is no room for them.
    untold: BTreeSet<ClientId>,
    /// Leases on their way back that are promised to nobody; those that are promised, or one of several that are; and
    /// how many are promised to whom.
    loose: BTreeSet<LeaseId>,
    owed: BTreeMap<LeaseId, Option<(ClientId, ClientId, Shape)>>,
    promised: BTreeMap<(ClientId, Shape), usize>,
    /// When requests are to be told what they wait for.
    notices: BTreeSet<(Tick, ClientId, Shape)>,
    /// Clients that are about to be told to get on by themselves (DP-1).
    held_back: BTreeSet<ClientId>,
    /// Nodes where room has grown since it was last looked for.
    grown: BTreeSet<NodeId>,
    nodes: BTreeMap<NodeId, Node>,
    /// What all nodes have together.
    total: Sum,
    /// What shares are measured by.
    scale: Sum,
    /// What custom resources are called.
    names: Names,
    room: Room,
    /// Clients that said goodbye, and their leases that are not over yet.
    going: BTreeMap<ClientId, BTreeSet<LeaseId>>,
    /// Nodes that are gone.
    departed: BTreeMap<NodeId, Departed>,
    /// What must not exist twice.
    fences: fences::Fences,
    leases: BTreeMap<LeaseId, Lease>,
    /// The same, by who holds them; and the slots that are clients, by the lease they work under.
    holders: BTreeSet<(ClientId, LeaseId)>,
    slots: BTreeSet<(LeaseId, ClientId)>,
    /// Leases of an earlier start that clients hold on nodes that have not reported yet.
    claims: BTreeMap<LeaseId, Claim>,
    /// A later start exists.
    superseded: bool,
    granted: u64,
    turns: u64,
    /// When the first thing happened.
    started_at: Option<Tick>,
    /// Nothing is impossible before.
    settled_at: Option<Tick>,
    /// No deadline lies before this.
    deadline: Option<Tick>,
    /// When leases are to be looked at again.
    next_look: Option<Tick>,
    /// Something changed that may let a lease be granted.
    dirty: bool,
    /// Nodes that are to go.
    leaving: BTreeSet<NodeId>,
    /// The cluster is ending, and who ended it.
    closing: Option<String>,
    /// What it owns itself.
    works: detached::Works,
    actors: actors::Actors,
    /// How much of all this is whose.
    books: books::Books,
}

struct Client {
    name: String,
    /// How many bytes its name, programs, rules and preferred nodes have.
    bytes: usize,
    /// Something that it declared was not kept, for want of room.
    dropped: bool,
    link: ClientLink,
    /// When it last said something, if it is one that says something again and again.
    heard: Option<Tick>,
    /// When it last said anything.
    spoke: Tick,
    /// It lets go of its link, and opens another.
    reopens: bool,
    /// It came from an earlier start of this head.
    from_earlier_head: bool,
    /// What it says to have lost may be of an earlier head (FE-7), and how many leases it has said so of on this link.
    brings_lost_leases: bool,
    lost: usize,
    /// It obeys this head, and no earlier one any more (FE-8).
    obeys: bool,
    /// How the programs are started that its shapes name.
    programs: BTreeMap<ProgramId, Start>,
    /// What its shapes ask of nodes.
    placements: BTreeMap<PlacementId, Rule>,
    /// Rules of groups that are too large.
    oversized: BTreeSet<PlacementId>,
    /// Its part of what there is not enough of, and who comes before whom; those of its root count.
    weight: u32,
    priority: i32,
    wants: BTreeMap<Shape, Want>,
    /// Where leases of a shape are of most use to it, and how many.
    near: BTreeMap<Shape, Vec<(NodeId, u32)>>,
    /// Its leases that are not yet ending.
    leases: BTreeMap<Shape, BTreeSet<LeaseId>>,
    /// How many more it says that it has, on nodes that have not reported yet.
    claimed: BTreeMap<Shape, usize>,
    /// The client it works for, itself if it is no slot; and how many tasks lie between.
    root: ClientId,
    depth: u32,
    /// Its own lease, if it is a slot.
    under: Option<LeaseId>,
    /// That lease has ended: nothing is for it until it has another.
    orphan: bool,
    /// It has asked for so long without waiting that it gets what it asks for (DP-1).
    polls: bool,
    /// Nodes of which it knows where they are.
    reaches: BTreeSet<NodeId>,
}

/// A client and the slots that are clients on its behalf.
#[derive(Clone, PartialEq, Default, Debug)]
struct Family {
    /// What their leases need together that are not yet ending, but for those whose task waits for others.
    used: Sum,
    /// What of it they keep when they have given back what they were asked for.
    keeps: Sum,
    /// What is on its way to them.
    promised: Sum,
    /// Leases that may be asked back, by the depth of their task and what they need, and since when they are held.
    held: BTreeMap<(u32, Resources), BTreeSet<(Tick, LeaseId)>>,
}

enum ClientLink {
    Up,
    /// It said goodbye, and only listens to the last of what its slots printed.
    Leaving,
    Down {
        until: Tick,
    },
}

#[derive(Clone, Copy)]
struct Want {
    count: u32,
    /// Its place among equals: when it was first wanted, or when a lease of it was last granted or ended.
    order: u64,
    /// Since when so many are wanted.
    since: Tick,
    /// The client knows that there is no room.
    told: bool,
    /// What it is for, if that must exist once.
    exclusive: Option<ExclusiveId>,
}

struct Node {
    incarnation: Incarnation,
    name: String,
    total: Resources,
    facts: Facts,
    devices: devices::Books,
    /// Where it takes data connections.
    addresses: Vec<Address>,
    /// What its leases need; for a moment more than it has when tasks go on that had waited (HD-1).
    used: Resources,
    /// What is on its way back: leases recalled or ending.
    returning: Resources,
    leases: BTreeSet<LeaseId>,
    link: NodeLink,
    /// It was told to go.
    dismissed: bool,
    /// So many tasks wait for others that the next one has to get on by itself.
    full: bool,
    /// What its last report has, until the node is known to obey this head (FE-5).
    unconfirmed_report: Option<Report>,
}

/// What a node has said that it has.
struct Report {
    /// Less what it has said to have ended since.
    placed: BTreeMap<LeaseId, SlotId>,
    /// What must exist once, and was among it.
    found: BTreeSet<ExclusiveId>,
}

/// A node that is gone, and until when it is counted on when a request is judged impossible.
struct Departed {
    node: Node,
    until: Tick,
}

enum NodeLink {
    Up {
        heard: Tick,
    },
    /// It may come back until then, and was there until `heard` at most.
    Down {
        until: Tick,
        heard: Tick,
    },
}

/// A client says that it holds a lease of an earlier start.
struct Claim {
    client: ClientId,
    held: Held,
    /// When it said so.
    said: Tick,
    /// So long may its node take to report.
    until: Tick,
    /// The client cannot reach the slot.
    broken: bool,
}

struct Lease {
    /// Who holds it; of one that nobody has claimed, who did before.
    client: ClientId,
    node: NodeId,
    shape: Shape,
    devices: Devices,
    /// Its task waits for others and needs no CPUs.
    blocked: bool,
    /// It is not asked back (GA-3).
    firm: bool,
    /// What is under it, if that must exist once.
    exclusive: Option<ExclusiveId>,
    state: LeaseState,
    /// The node through which its client reaches it, if it cannot by itself.
    via: Option<NodeId>,
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum LeaseState {
    /// The node looks for a slot; the client has not heard of the lease.
    Placing,
    Held {
        slot: SlotId,
        since: Tick,
    },
    /// The client was asked to give it back.
    Recalled {
        slot: SlotId,
    },
    /// The client has lost its slot out of sight. The node ends it, and then the client hears of that.
    Broken,
    /// The client is through with it; the node is not.
    Ending,
    /// Of an earlier start of the head; its holder has not come back yet (HD-8).
    Unclaimed {
        slot: SlotId,
        until: Tick,
    },
}

impl Head {
    pub fn new(config: Config) -> Head {
        Head {
            alarm: Alarm::new(config.heartbeat),
            config,
            clients: BTreeMap::new(),
            families: BTreeMap::new(),
            queue: Lineup::default(),
            calling: Lineup::default(),
            listed: BTreeMap::new(),
            known: BTreeMap::new(),
            rich: BTreeSet::new(),
            riches: BTreeMap::new(),
            starving: BTreeSet::new(),
            look_for_starving: Tick::ZERO,
            tangled: BTreeMap::new(),
            look_for_tangles: Tick::ZERO,
            untold: BTreeSet::new(),
            loose: BTreeSet::new(),
            owed: BTreeMap::new(),
            promised: BTreeMap::new(),
            notices: BTreeSet::new(),
            held_back: BTreeSet::new(),
            grown: BTreeSet::new(),
            nodes: BTreeMap::new(),
            total: Sum::default(),
            scale: Sum::default(),
            names: Names::new(),
            room: Room::default(),
            going: BTreeMap::new(),
            departed: BTreeMap::new(),
            fences: fences::Fences::default(),
            leases: BTreeMap::new(),
            holders: BTreeSet::new(),
            slots: BTreeSet::new(),
            claims: BTreeMap::new(),
            superseded: false,
            granted: 0,
            turns: 0,
            started_at: None,
            settled_at: None,
            deadline: None,
            next_look: None,
            dirty: false,
            leaving: BTreeSet::new(),
            closing: None,
            works: detached::Works::default(),
            actors: actors::Actors::default(),
            books: books::Books::default(),
        }
    }

    /// One step. Effects are appended to `out`.
    pub fn handle(&mut self, now: Tick, event: Event, out: &mut Vec<Effect>) {
        if self.superseded {
            return;
        }
        self.on_time(now, out);
        match event {
            Event::FromClient(client, message) => self.on_client(now, client, message, out),
            Event::ClientDown { client, end } => self.on_client_down(now, client, end, out),
            Event::FromNode(node, message) => self.on_node(now, node, message, out),
            Event::NodeDown(node) => self.on_node_down(now, node, out),
            Event::NodeDied(node) => self.on_node_died(now, node, out),
            Event::Drain(node) => self.on_drain(node, out),
            Event::Close { by } => self.on_close(by, out),
            Event::Submit { asker, work } => self.on_submit(now, asker, work, out),
            Event::StopWork { asker, name } => self.on_stop_work(now, asker, &name, out),
            Event::Written { work, wrote } => self.on_written(now, work, wrote, out),
            Event::Tick => self.dirty = true,
        }
        if std::mem::take(&mut self.dirty) && self.closing.is_none() {
            self.share(now, out);
        }
        self.settle_names(now, out);
        self.settle_actors(out);
        self.see_off(out);
        self.dismiss(out);
        let next = self.deadline.into_iter().chain(self.next_look).min();
        out.extend(self.alarm.on_settled(now, next).map(Effect::WakeAt));
        // It looks at everything: in a large cluster that would be all there is time for.
        debug_assert_eq!(if self.nodes.len() > CHECKED_UP_TO { Ok(()) } else { self.check() }, Ok(()));
    }

    fn on_time(&mut self, now: Tick, out: &mut Vec<Effect>) {
        if self.settled_at.is_none() {
            self.started_at = Some(now);
            self.settled_at = Some(now + self.config.settle);
            self.no_later_than(now + self.config.settle);
            self.begin_works(now);
            self.expect_earlier_ends();
        }
        let gap = self.alarm.on_step(now);
        if gap > Duration::ZERO {
            self.on_gap(gap);
        }
        if self.next_look.is_some_and(|at| at <= now) {
            self.next_look = None;
            self.dirty = true;
        }
        if self.deadline.is_some_and(|deadline| deadline <= now) {
            self.on_deadline(now, out);
        }
    }

    /// The whole process stood still, so nobody could be heard: silence does not count.
    fn on_gap(&mut self, gap: Duration) {
        for client in self.clients.values_mut() {
            if let ClientLink::Down { until } = &mut client.link {
                *until = *until + gap;
            }
            client.heard = client.heard.map(|heard| heard + gap);
            client.spoke = client.spoke + gap;
        }
        for claim in self.claims.values_mut() {
            claim.until = claim.until + gap;
            claim.said = claim.said + gap;
        }
        for lease in self.leases.values_mut() {
            if let LeaseState::Unclaimed { until, .. } = &mut lease.state {
                *until = *until + gap;
            }
        }
        for node in self.nodes.values_mut() {
            match &mut node.link {
                NodeLink::Up { heard } => *heard = *heard + gap,
                NodeLink::Down { until, heard } => (*until, *heard) = (*until + gap, *heard + gap),
            }
        }
        for departed in self.departed.values_mut() {
            departed.until = departed.until + gap;
        }
        self.works_on_gap(gap);
        self.actors_on_gap(gap);
        self.fences_on_gap(gap);
        self.started_at = self.started_at.map(|at| at + gap);
        self.settled_at = self.settled_at.map(|at| at + gap);
        self.deadline = self.deadline.map(|at| at + gap);
        self.next_look = self.next_look.map(|at| at + gap);
    }

    fn on_deadline(&mut self, now: Tick, out: &mut Vec<Effect>) {
        self.deadline = None;
        self.dirty = true;
        self.give_up_clients(now, out);
        self.give_up_nodes(now, out);
        self.give_up_claims(now, out);
        self.works_on_deadline(now, out);
        self.actors_on_deadline(now);
        self.fences_on_deadline(now);
        self.forget_earlier_timing(now, out);
        if let Some(at) = self.settled_at.filter(|at| *at > now) {
            self.no_later_than(at);
        } else {
            self.judge_all(now, out);
        }
    }

    /// Returns whether the head that a peer has met follows this one.
    pub fn is_outranked_by(&self, met: Met) -> bool {
        met.cluster == self.config.cluster && met.epoch > self.config.epoch
    }

    /// Whether the head that a peer last believed is no later one than this (HD-9).
    fn outranks(&mut self, met: Option<Met>, out: &mut Vec<Effect>) -> bool {
        let later = met.filter(|met| self.is_outranked_by(*met));
        if let Some(met) = later {
            self.superseded = true;
            out.push(Effect::Superseded { by: met.epoch });
        }
        later.is_none()
    }

    /// See whether leases can be granted or asked back then.
    fn look_at(&mut self, at: Tick) {
        self.next_look = Some(self.next_look.map_or(at, |next| next.min(at)));
    }

    fn no_later_than(&mut self, at: Tick) {
        self.deadline = Some(self.deadline.map_or(at, |deadline| deadline.min(at)));
    }

    fn tell_client(&self, client: ClientId, message: HeadToClient, out: &mut Vec<Effect>) {
        let hears = |client: &Client| !matches!(client.link, ClientLink::Down { .. });
        if self.clients.get(&client).is_some_and(hears) && !self.is_work(client) {
            out.push(Effect::ToClient(client, message));
        }
    }

    fn tell_node(&self, node: NodeId, message: HeadToNode, out: &mut Vec<Effect>) {
        if self.nodes.get(&node).is_some_and(|node| matches!(node.link, NodeLink::Up { .. })) {
            out.push(Effect::ToNode(node, message));
        }
    }
}
