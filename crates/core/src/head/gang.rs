//! Groups of leases that are granted all or none.
//!
//! * GA-1: no member of a gang is placed unless all that are missing are, in the same step.
//! * GA-2: a gang that does not fit yet keeps the nodes that could hold it from those behind it in the queue.
//! * GA-3: whoever has the leases of a gang keeps them: none is asked back.

use super::lineup::Class;
use super::{Effect, Head};
use paceline_proto::placement::Order;
use paceline_proto::{ClientId, Devices, NodeId, Resources, Shape};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

impl Head {
    pub(super) fn is_gang(&self, client: ClientId, shape: Shape) -> bool {
        self.rule(client, shape).is_some_and(|rule| !rule.gang.is_empty())
    }

    /// Whether this request stands in the queue: of a gang only one does, and only when all members are wanted.
    pub(super) fn may_ask(&self, id: ClientId, shape: Shape) -> bool {
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
        match self.fit_together(client, &missing, kept, false) {
            Some(places) => {
                for (member, node, devices) in places {
                    self.place(client, member, node, devices, out);
                }
                true
            }
            None => {
                let could = self.fit_together(client, &missing, kept, true);
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

    /// Whether all members could be placed if nothing else were here.
    pub(super) fn could_hold_gang(&self, client: ClientId, shape: Shape) -> bool {
        let members = self.members(client, shape).into_iter();
        let mut all: Vec<Shape> =
            members.flat_map(|(member, count)| std::iter::repeat_n(member, count as usize)).collect();
        all.sort_by(|a, b| b.cmp(a));
        self.fit_together(client, &all, &BTreeSet::new(), true).is_some()
    }

    /// A place for each of them, side by side; `empty`: as if nothing else were on the nodes.
    fn fit_together(
        &self,
        client: ClientId,
        members: &[Shape],
        kept: &BTreeSet<NodeId>,
        empty: bool,
    ) -> Option<Vec<(Shape, NodeId, Devices)>> {
        let nodes = self.nodes.iter().filter(|(id, _)| self.takes_leases(**id) && !kept.contains(id));
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
