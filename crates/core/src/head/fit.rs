//! Whether a node may hold a lease: what it has, what is free of it, and what the shape asks of nodes.

use super::{Head, Node};
use paceline_proto::placement::{Order, Rule};
use paceline_proto::{ClientId, Devices, NodeId, Resources, Shape};

impl Head {
    /// What this client's shape asks of nodes; none if any will do.
    pub(super) fn rule(&self, client: ClientId, shape: Shape) -> Option<&Rule> {
        self.clients.get(&client)?.placements.get(&shape.placement)
    }

    /// The devices the lease would get if it were placed there now; none if it does not fit.
    pub(super) fn fits(&self, id: NodeId, client: ClientId, shape: Shape) -> Option<Devices> {
        let node = &self.nodes[&id];
        let rule = self.rule(client, shape);
        let fits = node.leases.len() < self.config.max_leases
            && shape.needs.fits_in(&node.free())
            && rule.is_none_or(|rule| self.is_allowed(node, client, shape, rule));
        if !fits { None } else { node.devices.find(&shape.needs, gpu_memory(rule)) }
    }

    fn is_allowed(&self, node: &Node, client: ClientId, shape: Shape, rule: &Rule) -> bool {
        rule.allows(&node.name, &node.facts.labels)
            && !(rule.one_per_node && self.has_one_of(node, client, shape))
    }

    /// Whether this client's family has a lease of this placement there.
    pub(super) fn has_one_of(&self, node: &Node, client: ClientId, shape: Shape) -> bool {
        let root = self.clients[&client].root;
        let mut leases = node.leases.iter().map(|lease| &self.leases[lease]);
        leases.any(|lease| {
            let same = self.clients.get(&lease.client).is_some_and(|holder| holder.root == root);
            same && lease.shape.placement == shape.placement
        })
    }

    /// Whether the node could hold such a lease if nothing else were there.
    pub(super) fn could_hold(&self, id: NodeId, client: ClientId, shape: Shape) -> bool {
        self.nodes[&id].could_hold(shape.needs, self.rule(client, shape))
    }

    pub(super) fn order(&self, client: ClientId, shape: Shape) -> Order {
        self.rule(client, shape).map_or(Order::Spread, |rule| rule.order)
    }
}

impl Node {
    pub(super) fn could_hold(&self, needs: Resources, rule: Option<&Rule>) -> bool {
        needs.fits_in(&self.total)
            && rule.is_none_or(|rule| rule.allows(&self.name, &self.facts.labels))
            && self.devices.could_hold(&needs, gpu_memory(rule))
    }
}

fn gpu_memory(rule: Option<&Rule>) -> u64 {
    rule.map_or(0, |rule| rule.gpu_memory)
}
