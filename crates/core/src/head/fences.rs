//! What must exist once: while a copy of it may live, its owner gets no other slot for it.
//!
//! A copy may live under every lease of it that is not over in the books, whatever its state; under every lease of an
//! earlier start of the head that a client claims; and behind every **fence**, which stands for a lease that was lost with
//! a node that may still be there. Nothing of it is in the journal: a head that starts anew hears from the owners which
//! leases they hold, and which they lost (HD-8); and from its journal for how long what an earlier start placed may go on
//! without a head.
//!
//! * FE-1: the request for a slot does not stand in the queue while a copy of what it is for may live.
//! * FE-2: a fence stands until the node says that the slot has ended, the same or a later start of the node reports
//!   without it and obeys this head (FE-5), or the node has been silent for as long as it takes to end everything by its
//!   own clock, and longer by what the rates of two clocks may differ and by a heartbeat. An earlier start of the node
//!   proves nothing.
//! * FE-3: a lease that its owner claims from a new head, and that no node reports in time, becomes a fence; so does one
//!   that its owner says it has lost. Both stand for as long as if the node had been heard when that was said, and for
//!   `client_lost` more: an earlier start of the head may still be there, and keep the lease for its lost client that long.
//!   So does one that is lost with a node which has reported it and is not known to obey this head (FE-5).
//! * FE-4: a head whose `head_lost` is shorter than that of an earlier start waits for what may still run under the longer
//!   one: a node goes by it until it has been welcomed by this head. The journal keeps the longest for as long.
//! * FE-5: what a node reports proves nothing before the node is known to obey this head: until it hears the welcome it may
//!   go back to an earlier start of the head, which may place there what the report does not have. What it says to have ended
//!   meanwhile is struck from the report.
//! * FE-6: after a restart of the head, the owner of a detached actor, a submitted program, may be lost before it has named its
//!   leases. Its next run gets no slot for the actor before every node must have ended what it has of an earlier head, or
//!   one of them that obeys this head has reported the copy.
//! * FE-7: what a client from an earlier head says to have lost counts until it has said all that it has on one link
//!   (`Synced`): before, it may have been lost with a link. Nor is it known of a client that this head has forgotten.
//! * FE-8: a node hears that the holder of a lease is confirmed only when the holder is known to obey this head: until it hears
//!   the welcome it may go back to an earlier start of the head, which may give it another slot.

use super::detached::Write;
use super::{Effect, Head, Lease, Node};
use crate::time::Tick;
use paceline_proto::control::{HeadToNode, Held, Met, Timing};
use paceline_proto::{ActorId, ClientId, ExclusiveId, Incarnation, LeaseId, NodeId, Shape, SlotId, WorkId};
use std::collections::BTreeMap;
use std::time::Duration;

/// The part by which the rates of two clocks may differ: 2 %, so each may be wrong by 1 %.
const DRIFT_DIVISOR: u32 = 50;

/// The node of a copy of which nobody is left to tell where it is.
const UNKNOWN_NODE: NodeId = NodeId(0);

/// What may exist, and must not exist twice.
#[derive(Default)]
pub(super) struct Fences {
    closed: BTreeMap<LeaseId, Fence>,
    /// How many copies may live.
    copies: BTreeMap<ExclusiveId, u32>,
    /// Who asks for a slot for it, by how many requests.
    askers: BTreeMap<(ExclusiveId, ClientId), u32>,
}

/// A lease that was lost, and under which a copy may live.
struct Fence {
    exclusive: ExclusiveId,
    node: NodeId,
    incarnation: Incarnation,
    until: Tick,
}

impl Fences {
    pub(super) fn wanted_by(&mut self, exclusive: ExclusiveId, client: ClientId) {
        *self.askers.entry((exclusive, client)).or_default() += 1;
    }

    pub(super) fn not_wanted(&mut self, exclusive: ExclusiveId, client: ClientId) {
        if let Some(requests) = self.askers.get_mut(&(exclusive, client)) {
            *requests -= 1;
            if *requests == 0 {
                self.askers.remove(&(exclusive, client));
            }
        }
    }
}

impl Head {
    /// The node of this lease is silent, and was last heard then.
    pub(super) fn fence(&mut self, now: Tick, lease: LeaseId, heard: Tick) {
        let Lease { exclusive, node, .. } = self.leases[&lease];
        let Some(exclusive) = exclusive else { return };
        let Node { incarnation, unconfirmed_report, .. } = &self.nodes[&node];
        let incarnation = *incarnation;
        let until = match unconfirmed_report {
            // The node may obey an earlier head. Whoever holds the lease has left that one by now, or comes and says so later.
            Some(report) if report.placed.contains_key(&lease) => self.earlier_copy_over_at(now),
            _ => self.out_of_reach_at(heard),
        };
        self.close_fence(lease, Fence { exclusive, node, incarnation, until });
    }

    /// A lease of an earlier start whose node has not reported; its owner named it then (FE-3).
    pub(super) fn fence_lost(&mut self, lost: Held, said: Tick) {
        let Some(exclusive) = lost.exclusive else { return };
        let until = self.earlier_copy_over_at(said);
        let Held { lease, node, incarnation, .. } = lost;
        self.close_fence(lease, Fence { exclusive, node, incarnation, until });
    }

    fn close_fence(&mut self, lease: LeaseId, fence: Fence) {
        let (exclusive, until) = (fence.exclusive, fence.until);
        let before = self.fences.closed.insert(lease, fence);
        self.add_copy(Some(exclusive));
        // Two peers may name one lease for different things.
        self.drop_copy(before.map(|before| before.exclusive));
        self.no_later_than(until);
    }

    /// A client states that it lost this lease with its node.
    pub(super) fn on_lost(&mut self, now: Tick, from: ClientId, lost: Held) {
        let Some(client) = self.clients.get_mut(&from).filter(|client| client.is_up()) else { return };
        client.lost += 1;
        // What this very head has told it to be lost, this head has fenced.
        if !client.brings_lost_leases || client.lost > self.config.max_claimed_leases {
            return;
        }
        let Held { lease, node, incarnation, .. } = lost;
        let known = self.leases.contains_key(&lease) || self.claims.contains_key(&lease);
        if known || self.has_confirmed_report(node, incarnation) {
            return;
        }
        let until = self.earlier_copy_over_at(now);
        match self.fences.closed.get_mut(&lease) {
            // An earlier head may have renewed the lease since this head put up the fence.
            Some(fence) => fence.until = fence.until.max(until),
            None => self.fence_lost(lost, now),
        }
    }

    /// Notes which head the client comes from, and whether what it says to have lost may be of an earlier one (FE-7).
    pub(super) fn note_origin(&mut self, now: Tick, id: ClientId, is_new: bool, met: Option<Met>) {
        let earlier = self.is_earlier(met);
        let forgotten = is_new && self.is_this(met) && self.earlier_ended_at().is_some_and(|at| now < at);
        let client = self.clients.get_mut(&id).expect("it has said hello");
        client.from_earlier_head |= earlier;
        client.brings_lost_leases |= earlier || forgotten;
    }

    /// A client runs a submitted program that owns this (FE-6).
    pub(super) fn on_owned_by_program(
        &mut self,
        now: Tick,
        from: ClientId,
        exclusive: ExclusiveId,
        program: &str,
    ) {
        let is_earlier = self.is_of_earlier_head(program);
        let until = self.earlier_ended_at().filter(|until| is_earlier && now < *until);
        let Some(client) = self.clients.get_mut(&from).filter(|client| client.is_up()) else { return };
        let Some(until) = until.filter(|_| !client.from_earlier_head) else { return };
        client.lost += 1;
        // No lease has this id, so nobody can report it.
        let lease = LeaseId(exclusive.0);
        let known = self.fences.copies.contains_key(&exclusive) || self.leases.contains_key(&lease);
        if !known && self.clients[&from].lost <= self.config.max_claimed_leases {
            let (node, incarnation) = (UNKNOWN_NODE, Incarnation::default());
            self.close_fence(lease, Fence { exclusive, node, incarnation, until });
        }
    }

    /// A node that obeys this head has reported a lease of this: it is the copy that nobody could tell of (FE-6).
    pub(super) fn fences_on_found(&mut self, exclusive: ExclusiveId) {
        let unknown = LeaseId(exclusive.0);
        if self.fences.closed.get(&unknown).is_some_and(|fence| fence.node == UNKNOWN_NODE) {
            self.open_fence(unknown);
        }
    }

    /// Returns whether this start of a node, or a later one, has said what it has, and obeys this head (FE-5).
    pub(super) fn has_confirmed_report(&self, node: NodeId, incarnation: Incarnation) -> bool {
        self.nodes
            .get(&node)
            .is_some_and(|node| node.incarnation >= incarnation && node.unconfirmed_report.is_none())
    }

    /// What the lease would be for, if that must exist once.
    pub(super) fn exclusive_of(&self, client: ClientId, shape: Shape) -> Option<ExclusiveId> {
        self.clients.get(&client)?.wants.get(&shape)?.exclusive
    }

    /// Whether a copy of what the request is for may live (FE-1).
    pub(super) fn is_fenced(&self, client: ClientId, shape: Shape) -> bool {
        let exclusive = self.exclusive_of(client, shape);
        exclusive.is_some_and(|exclusive| self.fences.copies.contains_key(&exclusive))
    }

    /// Why a request does not stand in the queue, for people.
    pub(super) fn why_fenced(&self, client: ClientId, shape: Shape) -> Option<String> {
        let exclusive = self.exclusive_of(client, shape).filter(|_| self.is_fenced(client, shape))?;
        let Some(fence) = self.fences.closed.values().find(|fence| fence.exclusive == exclusive) else {
            return Some("the slot where the actor was has not ended yet".into());
        };
        if fence.node == UNKNOWN_NODE {
            return Some(
                "the head has started again, and the actor may live on a node that has not come back".into(),
            );
        }
        let node = self.departed.get(&fence.node).map(|departed| &departed.node);
        let name = node.or(self.nodes.get(&fence.node)).map_or("its node", |node| &node.name);
        Some(format!(
            "node {name} does not answer: the actor is rebuilt once its slot there is known to have ended"
        ))
    }

    /// Whether the actor is not rebuilt because nobody knows what became of it.
    pub(super) fn is_actor_fenced(&self, actor: ActorId) -> bool {
        self.fences.closed.values().any(|fence| fence.exclusive == ExclusiveId(actor.0))
    }

    /// Returns whether a copy of this may live.
    pub(super) fn may_have_copy(&self, exclusive: ExclusiveId) -> bool {
        self.fences.copies.contains_key(&exclusive)
    }

    /// Returns when no copy of this can live any more, should its node stay silent.
    pub(super) fn copy_over_at(&self, now: Tick, exclusive: ExclusiveId) -> Tick {
        let fences = self.fences.closed.values().filter(|fence| fence.exclusive == exclusive);
        fences.map(|fence| fence.until).max().unwrap_or_else(|| self.out_of_reach_at(now))
    }

    /// Counts one more lease under which a copy may live.
    pub(super) fn add_copy(&mut self, exclusive: Option<ExclusiveId>) {
        let Some(exclusive) = exclusive else { return };
        let copies = self.fences.copies.entry(exclusive).or_default();
        *copies += 1;
        if *copies == 1 {
            self.note_askers(exclusive);
        }
    }

    /// Lists the requests for a slot for it anew: whether they stand in the queue has changed (FE-1).
    fn note_askers(&mut self, exclusive: ExclusiveId) {
        let all = (exclusive, ClientId(0))..=(exclusive, ClientId(u64::MAX));
        let askers: Vec<ClientId> = self.fences.askers.range(all).map(|(&(_, client), _)| client).collect();
        askers.into_iter().for_each(|client| self.note_hunger(client));
    }

    /// A lease is over, or counts under another name: there is one copy less that may live.
    pub(super) fn drop_copy(&mut self, exclusive: Option<ExclusiveId>) {
        let Some(exclusive) = exclusive else { return };
        let copies = self.fences.copies.get_mut(&exclusive).expect("every copy was counted");
        *copies -= 1;
        if *copies == 0 {
            self.fences.copies.remove(&exclusive);
            self.actors.on_no_copy(exclusive);
            self.note_askers(exclusive);
            self.dirty = true;
        }
    }

    /// What was under this lease is known to have ended.
    pub(super) fn open_fence(&mut self, lease: LeaseId) {
        if let Some(fence) = self.fences.closed.remove(&lease) {
            self.drop_copy(Some(fence.exclusive));
        }
    }

    /// The node says that the lease has ended.
    pub(super) fn fences_on_ended(&mut self, node: NodeId, lease: LeaseId) {
        // Once it is over it stays over, whichever head the node obeys.
        let at_least = |node: &Node, of: &Fence| node.incarnation >= of.incarnation;
        let proven = |fence: &Fence| {
            fence.node == node && self.nodes.get(&node).is_some_and(|node| at_least(node, fence))
        };
        if self.fences.closed.get(&lease).is_some_and(proven) {
            self.open_fence(lease);
        }
    }

    /// The node is here again, and has these (FE-2).
    pub(super) fn fences_on_report(&mut self, node: NodeId, placed: &BTreeMap<LeaseId, SlotId>) {
        let proven = |lease: &LeaseId, fence: &Fence| {
            fence.node == node
                && self.has_confirmed_report(node, fence.incarnation)
                && !placed.contains_key(lease)
        };
        let gone = self.fences.closed.iter().filter(|(lease, fence)| proven(lease, fence));
        for lease in gone.map(|(&lease, _)| lease).collect::<Vec<_>>() {
            self.open_fence(lease);
        }
    }

    pub(super) fn fences_on_deadline(&mut self, now: Tick) {
        let over = self.fences.closed.iter().filter(|(_, fence)| fence.until <= now);
        for lease in over.map(|(&lease, _)| lease).collect::<Vec<_>>() {
            self.open_fence(lease);
        }
        let next = self.fences.closed.values().map(|fence| fence.until).min();
        next.into_iter().for_each(|at| self.no_later_than(at));
    }

    pub(super) fn fences_on_gap(&mut self, gap: Duration) {
        self.fences.closed.values_mut().for_each(|fence| fence.until = fence.until + gap);
    }

    /// Forgets one request of the client.
    pub(super) fn forget_want(&mut self, id: ClientId, shape: Shape) {
        let want = self.clients.get_mut(&id).and_then(|client| client.wants.remove(&shape));
        if let Some(exclusive) = want.and_then(|want| want.exclusive) {
            self.fences.not_wanted(exclusive, id);
        }
    }

    /// The client does not ask for these any more.
    pub(super) fn forget_wants(&mut self, id: ClientId) {
        let Some(client) = self.clients.get_mut(&id) else { return };
        let wants = std::mem::take(&mut client.wants);
        client.forget_near();
        for exclusive in wants.into_values().filter_map(|want| want.exclusive) {
            self.fences.not_wanted(exclusive, id);
        }
    }

    /// Returns how long silence may last in this cluster.
    pub(super) fn timing(&self) -> Timing {
        Timing { heartbeat: self.config.heartbeat, head_lost: self.config.head_lost }
    }

    /// Returns until when what must exist once may be running on a node that was last heard then (FE-2, FE-4).
    pub(super) fn out_of_reach_at(&self, heard: Tick) -> Tick {
        let own = heard + self.out_of_reach_for(self.timing().ends_within());
        // It may have said what it has, and not have heard of this head's timing.
        self.started_at.map_or(own, |at| own.max(at + self.earlier_out_of_reach_for()))
    }

    /// Returns until when a copy may be running that an earlier start of the head placed, and that its owner had left by then
    /// (FE-3).
    fn earlier_copy_over_at(&self, left: Tick) -> Tick {
        left + self.config.client_lost + self.earlier_out_of_reach_for()
    }

    /// Returns for how long after the last sign of it something of an earlier start may be running (FE-3, FE-4).
    pub(super) fn earlier_out_of_reach_for(&self) -> Duration {
        self.out_of_reach_for(self.timing().ends_within().max(self.config.earlier_head_lost))
    }

    /// Returns how long the head waits for what ends within this time by the clock of its node (FE-2).
    fn out_of_reach_for(&self, ends_within: Duration) -> Duration {
        ends_within + ends_within / DRIFT_DIVISOR + self.config.heartbeat
    }

    /// Returns when nothing runs any more under a timing that is longer than this head's, if any does.
    pub(super) fn earlier_over_at(&self) -> Option<Tick> {
        let longer = self.config.earlier_head_lost > self.timing().ends_within();
        self.earlier_ended_at().filter(|_| longer)
    }

    /// Returns when nothing runs any more that an earlier start of the head placed and this one has not heard of.
    fn earlier_ended_at(&self) -> Option<Tick> {
        self.started_at.map(|at| self.earlier_copy_over_at(at))
    }

    pub(super) fn expect_earlier_ends(&mut self) {
        self.earlier_over_at().into_iter().for_each(|at| self.no_later_than(at));
    }

    /// The next head need not wait for it (FE-4). Should this not be written, it waits longer than it must.
    pub(super) fn forget_earlier_timing(&mut self, now: Tick, out: &mut Vec<Effect>) {
        match self.earlier_over_at() {
            Some(at) if at <= now => {
                let ends_within = self.timing().ends_within();
                self.config.earlier_head_lost = ends_within;
                out.push(Effect::Write { work: WorkId::NONE, write: Write::HeadLost(ends_within) });
            }
            Some(at) => self.no_later_than(at),
            None => {}
        }
    }

    /// FE-1, counted anew.
    pub(super) fn check_fences(&self) -> Result<(), String> {
        let mut copies: BTreeMap<ExclusiveId, u32> = BTreeMap::new();
        let leases = self.leases.values().filter_map(|lease| lease.exclusive);
        let claims = self.claims.values().filter_map(|claim| claim.held.exclusive);
        let fences = self.fences.closed.values().map(|fence| fence.exclusive);
        for exclusive in leases.chain(claims).chain(fences) {
            *copies.entry(exclusive).or_default() += 1;
        }
        if copies != self.fences.copies {
            return Err(format!("FE-1: {copies:?} may live, not {:?}", self.fences.copies));
        }
        Ok(())
    }

    /// Whether a later start of this node is known, so that this one is none any more.
    pub fn is_outrun(&self, node: NodeId, incarnation: Incarnation) -> bool {
        let departed = self.departed.get(&node).map(|departed| &departed.node);
        // Only of what this head has seen itself: what clients say of nodes must not end any.
        let known = self.nodes.get(&node).or(departed);
        known.is_some_and(|node| node.incarnation > incarnation)
    }

    /// Send a node away that has been outrun. The shell has not let it take the place of one that is up.
    pub(super) fn send_away(&self, id: NodeId, out: &mut Vec<Effect>) {
        let is_up = |node: &Node| matches!(node.link, super::NodeLink::Up { .. });
        if !self.nodes.get(&id).is_some_and(is_up) {
            out.extend(self.farewell().map(|message| Effect::ToNode(id, message)));
            out.push(Effect::DropNode(id));
        }
    }

    pub(super) fn welcome_node(&self) -> HeadToNode {
        let (cluster, epoch) = (self.config.cluster, self.config.epoch);
        HeadToNode::Welcome { cluster, epoch, timing: self.timing() }
    }

    /// What ends a node that this head does not count on. It believes nothing from one that has not said who it is.
    pub fn farewell(&self) -> [HeadToNode; 2] {
        [self.welcome_node(), HeadToNode::Bye]
    }
}
