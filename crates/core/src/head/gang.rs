//! Groups of leases that are granted all or none.
//!
//! * GA-1: no member of a gang is placed unless all that are missing are, in the same step.
//! * GA-2: a gang that does not fit yet keeps the nodes that could hold it from those behind it in the queue.
//! * GA-3: whoever has the leases of a gang keeps them: none is asked back for others.
//! * GA-4: nobody sits on a part of a gang. If a member is lost on its way and no other fits, those that are there are
//!   asked back; a client gives them back unless it had them all.

use super::lineup::Class;
use super::{Effect, Head, LeaseState};
use paceline_proto::placement::Order;
use paceline_proto::{ClientId, Devices, LeaseId, NodeId, PlacementId, Resources, Shape};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// What is counted as room for a gang.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Room {
    /// What is free.
    Free,
    /// What the nodes have that take leases, as if nothing were on them.
    Whole,
    /// The same of all nodes that are known.
    Ever,
}

impl Head {
    /// Whether leases of this shape stay with whoever has them (GA-3).
    pub(super) fn is_firm(&self, client: ClientId, shape: Shape) -> bool {
        self.rule(client, shape).is_some_and(paceline_proto::Rule::is_firm)
    }

    pub(super) fn is_gang(&self, client: ClientId, shape: Shape) -> bool {
        self.rule(client, shape).is_some_and(|rule| !rule.gang.is_empty())
    }

    /// Whether this request stands in the queue: of a gang only one does, and only when all members are wanted; and none
    /// for what may still exist (FE-1).
    pub(super) fn may_ask(&self, id: ClientId, shape: Shape) -> bool {
        if self.is_fenced(id, shape) {
            return false;
        }
        if !self.is_gang(id, shape) {
            return true;
        }
        let client = &self.clients[&id];
        let wanted =
            |member: &Shape, count: u32| client.wants.get(member).is_some_and(|want| want.count >= count);
        let members = self.members(id, shape);
        let missing = self.missing(id, shape);
        members.iter().all(|(member, count)| wanted(member, *count)) && missing.first() == Some(&shape)
    }

    fn members(&self, id: ClientId, shape: Shape) -> Vec<(Shape, u32)> {
        let members = self.rule(id, shape).map(|rule| &*rule.gang).unwrap_or_default();
        let of = |needs, program| Shape { needs, program, placement: shape.placement };
        members.iter().map(|member| (of(member.needs, member.program), member.count)).collect()
    }

    /// The leases it does not have, the largest first.
    fn missing(&self, id: ClientId, shape: Shape) -> Vec<Shape> {
        let client = &self.clients[&id];
        let members = self.members(id, shape).into_iter();
        let mut missing: Vec<Shape> = members
            .flat_map(|(member, count)| {
                let missing = (count as usize).saturating_sub(client.count(member));
                std::iter::repeat_n(member, missing)
            })
            .collect();
        missing.sort_by(|a, b| b.cmp(a));
        missing
    }

    /// Place all that is missing, or nothing; then the nodes that could hold it are kept.
    pub(super) fn grant_gang(
        &mut self,
        class: Class,
        client: ClientId,
        shape: Shape,
        kept: &mut BTreeSet<NodeId>,
        out: &mut Vec<Effect>,
    ) -> bool {
        let missing = self.missing(client, shape);
        match self.fit_together(client, &missing, kept, Room::Free) {
            Some(places) => {
                for (member, node, devices) in places {
                    self.place(client, member, node, devices, out);
                }
                true
            }
            None => {
                self.recall_members(client, shape, out);
                let could = self.fit_together(client, &missing, kept, Room::Whole);
                let mut by_node: BTreeMap<NodeId, Resources> = BTreeMap::new();
                for (member, node, _) in could.into_iter().flatten() {
                    let sum = by_node.entry(node).or_default();
                    *sum = sum.plus(&member.needs);
                }
                kept.extend(by_node.keys());
                self.known.entry(class).or_default().gang = by_node;
                false
            }
        }
    }

    /// GA-4.
    fn recall_members(&mut self, client: ClientId, shape: Shape, out: &mut Vec<Effect>) {
        let held: Vec<LeaseId> = (self.members(client, shape).iter())
            .filter_map(|(member, _)| self.clients[&client].leases.get(member))
            .flatten()
            .copied()
            .filter(|lease| matches!(self.leases[lease].state, LeaseState::Held { .. }))
            .collect();
        held.into_iter().for_each(|lease| self.recall(lease, out));
    }

    /// A rule has become known of which the client may have leases from an earlier start of the head (GA-3).
    pub(super) fn note_members(&mut self, client: ClientId, placement: PlacementId) {
        let Some(known) = self.clients.get(&client) else { return };
        let shapes = known.leases.iter().filter(|(shape, _)| shape.placement == placement);
        let leases: Vec<LeaseId> = shapes.flat_map(|(_, leases)| leases).copied().collect();
        for lease in leases {
            self.uncount(lease);
            self.note_member(lease);
            self.count(lease);
        }
    }

    /// The same for one lease that is in no book at the moment.
    pub(super) fn note_member(&mut self, id: LeaseId) {
        let lease = &self.leases[&id];
        let firm = self.is_firm(lease.client, lease.shape);
        self.leases.get_mut(&id).expect("seen above").firm = firm;
    }

    /// Whether all members could be placed if nothing else were here, also on nodes that are out of reach just now.
    pub(super) fn could_hold_gang(&self, client: ClientId, shape: Shape) -> bool {
        let members = self.members(client, shape).into_iter();
        let mut all: Vec<Shape> =
            members.flat_map(|(member, count)| std::iter::repeat_n(member, count as usize)).collect();
        all.sort_by(|a, b| b.cmp(a));
        self.fit_together(client, &all, &BTreeSet::new(), Room::Ever).is_some()
    }

    /// A place for each of them, side by side.
    fn fit_together(
        &self,
        client: ClientId,
        members: &[Shape],
        kept: &BTreeSet<NodeId>,
        room: Room,
    ) -> Option<Vec<(Shape, NodeId, Devices)>> {
        let takes = |id: NodeId| room == Room::Ever || self.takes_leases(id) && !kept.contains(&id);
        let nodes = self.nodes.iter().filter(|(id, _)| takes(**id));
        let empty = room != Room::Free;
        let mut room: BTreeMap<NodeId, (Resources, super::devices::Books, usize)> = nodes
            .map(|(&id, node)| match empty {
                true => (id, (node.total, node.devices.untouched(), 0)),
                false => (id, (node.free(), node.devices.clone(), node.leases.len())),
            })
            .collect();
        let rule = self.rule(client, *members.first()?)?;
        let mut used = BTreeSet::new();
        let mut places = Vec::new();
        for &member in members {
            let fit = room.iter().filter_map(|(&id, (free, books, leases))| {
                let node = &self.nodes[&id];
                let taken = rule.one_per_node
                    && (used.contains(&id) || !empty && self.has_one_of(node, client, member));
                let fits = !taken
                    && *leases < self.config.max_leases
                    && member.needs.fits_in(free)
                    && rule.allows(&node.name, &node.facts.labels);
                let devices = if fits { books.find(&member.needs, rule.gpu_memory) } else { None };
                devices.map(|devices| (*free, Reverse(id), devices))
            });
            let best = match rule.order {
                Order::Spread => fit.max(),
                Order::Pack => fit.min_by_key(|&(free, Reverse(id), _)| (free, id)),
            };
            let (_, Reverse(id), devices) = best?;
            let (free, books, leases) = room.get_mut(&id).expect("chosen among them");
            *free = free.less(&member.needs);
            books.take(&member.needs, devices);
            *leases += 1;
            used.insert(id);
            places.push((member, id, devices));
        }
        Some(places)
    }
}
