//! Which nodes have room, found without looking at all of them.
//!
//! * RO-1: every node that takes leases is listed by what is free on it, and once more for each special resource it has.

use super::{Head, Node, NodeLink};
use paceline_proto::placement::Order;
use paceline_proto::{ClientId, CustomName, Devices, NodeId, Resources, Shape};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// GPUs, or a custom resource.
type Special = Option<CustomName>;

#[derive(Default, PartialEq, Debug)]
pub(super) struct Room {
    /// Nodes that take leases, by what is free; among equals the lowest id comes last.
    all: BTreeSet<(Resources, Reverse<NodeId>)>,
    /// Those that have some of a special resource, by what is free of that.
    special: BTreeMap<Special, BTreeSet<(u64, Resources, Reverse<NodeId>)>>,
    labels: BTreeMap<(String, String), BTreeSet<NodeId>>,
    names: BTreeMap<String, BTreeSet<NodeId>>,
}

impl Room {
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    pub fn add(&mut self, id: NodeId, node: &Node) {
        let free = node.free();
        self.all.insert((free, Reverse(id)));
        for (special, amount) in specials(&node.total, &free) {
            self.special.entry(special).or_default().insert((amount, free, Reverse(id)));
        }
    }

    pub fn remove(&mut self, id: NodeId, node: &Node) {
        let free = node.free();
        self.all.remove(&(free, Reverse(id)));
        for (special, amount) in specials(&node.total, &free) {
            let listed = self.special.entry(special).or_default();
            listed.remove(&(amount, free, Reverse(id)));
            if listed.is_empty() {
                self.special.remove(&special);
            }
        }
    }

    /// The node is here, whether or not it takes leases.
    pub fn know(&mut self, id: NodeId, node: &Node) {
        for label in &node.facts.labels {
            self.labels.entry(label.clone()).or_default().insert(id);
        }
        self.names.entry(node.name.clone()).or_default().insert(id);
    }

    pub fn forget(&mut self, id: NodeId, node: &Node) {
        for label in &node.facts.labels {
            forget(&mut self.labels, label, id);
        }
        forget(&mut self.names, &node.name, id);
    }

    /// All that take leases, the roomiest first.
    pub fn roomiest(&self) -> impl Iterator<Item = NodeId> {
        self.all.iter().rev().map(|&(_, Reverse(id))| id)
    }
}

fn specials(total: &Resources, free: &Resources) -> impl Iterator<Item = (Special, u64)> {
    let gpus = (total.gpu_units() > 0).then(|| (None, free.gpu_units()));
    let custom: Vec<_> = total.custom().map(|(name, _)| (Some(name), free.custom_units(name))).collect();
    gpus.into_iter().chain(custom)
}

fn forget<K: Ord>(index: &mut BTreeMap<K, BTreeSet<NodeId>>, key: &K, id: NodeId) {
    if let Some(nodes) = index.get_mut(key) {
        nodes.remove(&id);
        if nodes.is_empty() {
            index.remove(key);
        }
    }
}

impl Head {
    pub(super) fn takes_leases(&self, id: NodeId) -> bool {
        let up = self.nodes.get(&id).is_some_and(|node| matches!(node.link, NodeLink::Up { .. }));
        up && !self.leaving.contains(&id)
    }

    /// The best of these nodes that has room for the lease, and its devices there.
    pub(super) fn best_of(
        &self,
        nodes: impl Iterator<Item = NodeId>,
        client: ClientId,
        shape: Shape,
    ) -> Option<(NodeId, Devices)> {
        let fit = nodes.filter(|id| self.takes_leases(*id));
        if shape.needs == Resources::default() {
            let fit = fit.filter_map(|id| Some((self.crowd(id), id, self.fits(id, client, shape)?)));
            let best = match self.order(client, shape) {
                Order::Spread => fit.min_by_key(|&(crowd, id, _)| (crowd, id)),
                Order::Pack => fit.max_by_key(|&(crowd, id, _)| (crowd, Reverse(id))),
            };
            return best.map(|(_, id, devices)| (id, devices));
        }
        let fit =
            fit.filter_map(|id| Some((self.nodes[&id].free(), Reverse(id), self.fits(id, client, shape)?)));
        let best = match self.order(client, shape) {
            Order::Spread => fit.max(),
            Order::Pack => fit.min_by_key(|&(free, Reverse(id), _)| (free, id)),
        };
        best.map(|(_, Reverse(id), devices)| (id, devices))
    }

    /// Room on one of the nodes where the client has most use for a lease.
    fn near_room(&self, id: ClientId, shape: Shape, kept: &BTreeSet<NodeId>) -> Option<(NodeId, Devices)> {
        let client = self.clients.get(&id)?;
        let near = client.near.get(&shape)?;
        let there = |node: NodeId| {
            let leases = client.leases.get(&shape).into_iter().flatten();
            leases.filter(|lease| self.leases.get(lease).is_some_and(|lease| lease.node == node)).count()
        };
        let mut fit = near.iter().filter(|(node, _)| self.takes_leases(*node) && !kept.contains(node));
        fit.find_map(|&(node, count)| {
            let devices = self.fits(node, id, shape)?;
            (there(node) < count as usize).then_some((node, devices))
        })
    }

    /// How many leases a node has for what it is. Those that need nothing go by this, or all would go to one node.
    fn crowd(&self, id: NodeId) -> u64 {
        let node = &self.nodes[&id];
        node.leases.len() as u64 * 1_000 / node.total.threads()
    }

    /// The best node of all that has room for the lease and is not kept for another.
    pub(super) fn room_for(
        &self,
        client: ClientId,
        shape: Shape,
        kept: &BTreeSet<NodeId>,
    ) -> Option<(NodeId, Devices)> {
        let fit = |id: NodeId| {
            let free = !kept.contains(&id);
            free.then(|| self.fits(id, client, shape)).flatten().map(|devices| (id, devices))
        };
        if let Some(near) = self.near_room(client, shape, kept) {
            return Some(near);
        }
        let rule = self.rule(client, shape);
        let few = rule.and_then(|rule| {
            let labels = rule.labels.iter().map(|label| self.room.labels.get(label));
            labels.min_by_key(|nodes| nodes.map_or(0, BTreeSet::len))
        });
        let order = self.order(client, shape);
        if let Some(rule) = rule.filter(|rule| !rule.nodes.is_empty()) {
            let nodes = rule.nodes.iter().filter_map(|name| self.room.names.get(name)).flatten().copied();
            return self.best_of(nodes.filter(|id| !kept.contains(id)), client, shape);
        }
        if let Some(nodes) = few {
            let nodes = nodes.into_iter().flatten().copied().filter(|id| !kept.contains(id));
            return self.best_of(nodes, client, shape);
        }
        let needs = &shape.needs;
        if *needs == Resources::default() {
            let nodes = self.room.all.iter().map(|&(_, Reverse(id))| id).filter(|id| !kept.contains(id));
            return self.best_of(nodes, client, shape);
        }
        let rarest =
            specials(needs, needs).map(|(special, amount)| (self.room.special.get(&special), amount));
        if let Some((nodes, amount)) = rarest.min_by_key(|(nodes, _)| nodes.map_or(0, BTreeSet::len)) {
            let least = (amount, Resources::default(), Reverse(NodeId(u64::MAX)));
            let mut nodes = nodes?.range(least..).map(|&(_, _, Reverse(id))| id);
            return match order {
                Order::Spread => nodes.rev().find_map(fit),
                Order::Pack => nodes.find_map(fit),
            };
        }
        // Resources are ordered by their first difference, so whatever has room for `needs` is not less than it.
        let mut nodes =
            self.room.all.range((*needs, Reverse(NodeId(u64::MAX)))..).map(|&(_, Reverse(id))| id);
        match order {
            Order::Spread => nodes.rev().find_map(fit),
            Order::Pack => nodes.find_map(fit),
        }
    }
}
