//! What must not exist twice: an actor whose node fell silent may still be there, so its owner gets no other slot for it
//! before that is known to have ended.
//!
//! Only actors that the head knows of are fenced: those that have a name, outlive their maker, or were handed to others.
//! Nothing of it is in the journal: a head that starts anew has no fences, and grants nothing on or for nodes that it has
//! not heard of.
//!
//! * FE-1: the request for another slot does not stand in the queue as long as the fence does. That is until the node says
//!   that the slot has ended, or comes back without it, or has been silent for as long as it takes to end everything by its
//!   own clock, and a heartbeat more.

use super::Head;
use crate::time::Tick;
use paceline_proto::{ClientId, LeaseId, NodeId, Shape, SlotId};
use std::collections::BTreeMap;
use std::time::Duration;

/// What a lease that was lost keeps from being granted again.
pub(super) struct Fence {
    client: ClientId,
    shape: Shape,
    node: NodeId,
    until: Tick,
}

impl Head {
    /// The node of this lease is silent, and was last heard then.
    pub(super) fn fence(&mut self, lease: LeaseId, heard: Tick) {
        if !self.hosts_actor(lease) {
            return;
        }
        let until = heard + self.out_of_reach_for();
        let held = &self.leases[&lease];
        let fence = Fence { client: held.client, shape: held.shape, node: held.node, until };
        self.fences.insert(lease, fence);
        self.no_later_than(until);
    }

    pub(super) fn is_fenced(&self, client: ClientId, shape: Shape) -> bool {
        // There are hardly ever any.
        self.fences.values().any(|fence| fence.client == client && fence.shape == shape)
    }

    /// Why a request does not stand in the queue, for people.
    pub(super) fn why_fenced(&self, client: ClientId, shape: Shape) -> Option<String> {
        let fence = self.fences.values().find(|fence| fence.client == client && fence.shape == shape)?;
        let node = self.departed.get(&fence.node).map(|departed| &departed.node);
        let name = node.or(self.nodes.get(&fence.node)).map_or("its node", |node| &node.name);
        Some(format!(
            "{name}, where the actor was, is silent: it is rebuilt only when that is known to have ended"
        ))
    }

    /// What was under this lease is known to have ended.
    pub(super) fn open_fence(&mut self, lease: LeaseId) {
        if let Some(fence) = self.fences.remove(&lease) {
            self.note_hunger(fence.client);
            self.dirty = true;
        }
    }

    /// The node is here again, and has these.
    pub(super) fn fences_on_report(&mut self, node: NodeId, placed: &BTreeMap<LeaseId, SlotId>) {
        let gone =
            self.fences.iter().filter(|(lease, fence)| fence.node == node && !placed.contains_key(lease));
        for lease in gone.map(|(&lease, _)| lease).collect::<Vec<_>>() {
            self.open_fence(lease);
        }
    }

    pub(super) fn fences_on_deadline(&mut self, now: Tick) {
        let over = self.fences.iter().filter(|(_, fence)| fence.until <= now);
        for lease in over.map(|(&lease, _)| lease).collect::<Vec<_>>() {
            self.open_fence(lease);
        }
        let next = self.fences.values().map(|fence| fence.until).min();
        next.into_iter().for_each(|at| self.no_later_than(at));
    }

    pub(super) fn fences_on_gap(&mut self, gap: Duration) {
        self.fences.values_mut().for_each(|fence| fence.until = fence.until + gap);
    }
}
