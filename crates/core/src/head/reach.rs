//! How clients reach the slots of their leases: where nodes are, and what to do for a client that gets nowhere (HD-10).

use super::{ClientLink, Effect, Head, LeaseState, NodeLink};
use paceline_proto::control::{HeadToClient, HeadToNode};
use paceline_proto::{Address, ClientId, LeaseId, NodeId};

impl Head {
    /// A node says where it takes data connections. Clients that know of another place hear of it.
    pub(super) fn on_addresses(&mut self, id: NodeId, addresses: Vec<Address>, out: &mut Vec<Effect>) {
        let Some(node) = self.nodes.get_mut(&id) else { return };
        if node.addresses == addresses {
            return;
        }
        node.addresses = addresses;
        let known =
            self.clients.iter_mut().filter_map(|(&it, client)| client.reaches.remove(&id).then_some(it));
        for client in known.collect::<Vec<_>>() {
            self.tell_where(client, id, out);
        }
    }

    /// Tell a client where a node is, unless it knows. A node in the client's own process is nowhere.
    pub(super) fn tell_where(&mut self, id: ClientId, node: NodeId, out: &mut Vec<Effect>) {
        let Some(entry) = self.nodes.get(&node).filter(|entry| !entry.addresses.is_empty()) else { return };
        let Some(client) = self.clients.get_mut(&id).filter(|client| client.is_up()) else { return };
        if client.reaches.insert(node) {
            let (name, addresses) = (entry.name.clone(), entry.addresses.clone());
            self.tell_client(id, HeadToClient::NodeAt { node, name, addresses }, out);
        }
    }

    /// A client cannot open a connection for its lease: another node may. If none is left to try, the lease ends, and
    /// its client is told when nothing of it runs any more.
    pub(super) fn on_unreachable(&mut self, from: ClientId, id: LeaseId, out: &mut Vec<Effect>) {
        if self.on_guest_unreachable(from, id, out) {
            return;
        }
        let Some(lease) = self.leases.get(&id).filter(|lease| lease.client == from) else { return };
        if !matches!(lease.state, LeaseState::Held { .. } | LeaseState::Recalled { .. }) {
            return;
        }
        let (target, before) = (lease.node, lease.via);
        self.unrelay(id, out);
        let addresses = self.nodes[&target].addresses.clone();
        match self.next_relay(target, before).filter(|_| !addresses.is_empty()) {
            Some(via) => {
                self.leases.get_mut(&id).expect("seen above").via = Some(via);
                let there = self.nodes[&via].addresses.clone();
                self.tell_node(via, HeadToNode::Relay { lease: id, addresses }, out);
                self.tell_client(from, HeadToClient::Via { lease: id, node: via, addresses: there }, out);
            }
            None => self.on_broken(from, id, out),
        }
    }

    /// The next node that could pass connections on, in the order of their ids.
    pub(super) fn next_relay(&self, target: NodeId, before: Option<NodeId>) -> Option<NodeId> {
        let later = |id: NodeId| before.is_none_or(|before| id > before);
        let mut nodes = self.nodes.iter().filter(|(id, _)| **id != target && later(**id));
        let able =
            |node: &super::Node| matches!(node.link, NodeLink::Up { .. }) && !node.addresses.is_empty();
        nodes.find(|(_, node)| able(node)).map(|(&id, _)| id)
    }

    /// A node forgets what it passes on with its link: it is told again.
    pub(super) fn relay_again(&self, id: NodeId, out: &mut Vec<Effect>) {
        let leases = self.leases.iter().filter(|(_, lease)| lease.via == Some(id));
        let leases = leases.map(|(&lease, entry)| (lease, entry.node));
        let guests = self.guests_via(id);
        for (lease, target) in leases.chain(guests) {
            let addresses = self.nodes.get(&target).map(|node| node.addresses.clone()).unwrap_or_default();
            self.tell_node(id, HeadToNode::Relay { lease, addresses }, out);
        }
    }

    /// The lease is over, or goes another way: who passed its connections on need not any more.
    pub(super) fn unrelay(&mut self, id: LeaseId, out: &mut Vec<Effect>) {
        let via = self.leases.get_mut(&id).and_then(|lease| lease.via.take());
        if let Some(via) = via {
            self.tell_node(via, HeadToNode::End { lease: id }, out);
        }
    }

    /// Clients that are leaving hear when their last lease is over.
    pub(super) fn see_off(&mut self, out: &mut Vec<Effect>) {
        while let Some((&id, _)) = self.going.iter().find(|(_, leases)| leases.is_empty()) {
            self.going.remove(&id);
            if self.clients.get(&id).is_some_and(|client| matches!(client.link, ClientLink::Leaving)) {
                self.tell_client(id, HeadToClient::Over, out);
            }
        }
    }
}
