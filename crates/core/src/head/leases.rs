//! The life of a lease: placed, held, recalled, ending, gone. Every book about leases is kept here.

use super::{Effect, Head, Lease, LeaseState, NodeLink};
use paceline_proto::control::{HeadToClient, HeadToNode, Placement};
use paceline_proto::{ClientId, LeaseId, NodeId, Shape};
use std::cmp::Reverse;

impl Head {
    /// Ask the node for a slot. The caller has seen that it fits.
    pub(super) fn place(&mut self, client: ClientId, shape: Shape, node: NodeId, out: &mut Vec<Effect>) {
        let id = self.next_lease();
        self.leases.insert(id, Lease { client, node, shape, state: LeaseState::Placing });
        let holder = self.clients.get_mut(&client).expect("leases are placed for clients that are here");
        holder.leases.entry(shape).or_default().insert(id);
        holder.used = holder.used.plus(&shape.needs);
        let start = holder.programs.get(&shape.program).cloned();
        self.take(node, id, shape);
        self.send_to_back(client, shape);
        self.note_hunger(client);
        if let Some(start) = start {
            // Said every time: the node may have forgotten it, and it costs less than knowing.
            self.tell_node(node, HeadToNode::Program { program: shape.program, start }, out);
        }
        self.tell_node(node, HeadToNode::Place { lease: id, client, shape }, out);
    }

    /// A node has a lease that was given up: it counts until the node says that it is over (HD-3).
    pub(super) fn adopt(&mut self, id: NodeId, placement: &Placement) {
        let &Placement { lease, client, shape, .. } = placement;
        let node = self.nodes.get_mut(&id).expect("the node has just joined");
        if shape.needs.fits_in(&node.free) && node.leases.len() < self.config.max_leases {
            node.returning = node.returning.plus(&shape.needs);
            self.leases.insert(lease, Lease { client, node: id, shape, state: LeaseState::Ending });
            self.take(id, lease, shape);
        }
    }

    /// Ask the client to give the lease back.
    pub(super) fn recall(&mut self, id: LeaseId, out: &mut Vec<Effect>) {
        let lease = self.leases.get_mut(&id).expect("only known leases are recalled");
        let LeaseState::Held { slot, .. } = lease.state else { panic!("only held leases are recalled") };
        lease.state = LeaseState::Recalled { slot };
        let (client, node, needs) = (lease.client, lease.node, lease.shape.needs);
        let node = self.nodes.get_mut(&node).expect("a lease has its node");
        node.returning = node.returning.plus(&needs);
        let holder = self.clients.get_mut(&client).expect("a held lease has its client");
        holder.recalled = holder.recalled.plus(&needs);
        self.tell_client(client, HeadToClient::Recall { lease: id }, out);
    }

    /// The client is through with the lease. It counts on the node until that says so, too (HD-3).
    pub(super) fn end(&mut self, id: LeaseId, out: &mut Vec<Effect>) {
        let lease = self.leases.get_mut(&id).expect("only known leases end");
        let before = std::mem::replace(&mut lease.state, LeaseState::Ending);
        let (client, node, shape) = (lease.client, lease.node, lease.shape);
        assert!(before != LeaseState::Ending, "a lease ends once");
        if !matches!(before, LeaseState::Recalled { .. }) {
            let node = self.nodes.get_mut(&node).expect("a lease has its node");
            node.returning = node.returning.plus(&shape.needs);
        }
        self.strike(client, shape, id, before);
        self.tell_node(node, HeadToNode::End { lease: id }, out);
        self.dirty = true;
    }

    /// The lease is over everywhere.
    pub(super) fn finish(&mut self, id: LeaseId) {
        let lease = self.leases.remove(&id).expect("only known leases finish");
        if lease.state != LeaseState::Ending {
            self.strike(lease.client, lease.shape, id, lease.state);
        }
        let node = self.nodes.get_mut(&lease.node).expect("a lease has its node");
        if matches!(lease.state, LeaseState::Recalled { .. } | LeaseState::Ending) {
            node.returning = node.returning.minus(&lease.shape.needs).expect("what returns was counted");
        }
        node.leases.remove(&id);
        let before = node.free;
        node.free = before.plus(&lease.shape.needs);
        if matches!(node.link, NodeLink::Up { .. }) {
            self.room.remove(&(before, Reverse(lease.node)));
            self.room.insert((node.free, Reverse(lease.node)));
        }
        self.dirty = true;
    }

    fn take(&mut self, id: NodeId, lease: LeaseId, shape: Shape) {
        let node = self.nodes.get_mut(&id).expect("leases are placed on nodes that are here");
        let before = node.free;
        node.free = before.minus(&shape.needs).expect("HD-1: the lease fits");
        node.leases.insert(lease);
        self.room.remove(&(before, Reverse(id)));
        self.room.insert((node.free, Reverse(id)));
    }

    /// Strike the lease off its client's books.
    fn strike(&mut self, id: ClientId, shape: Shape, lease: LeaseId, state: LeaseState) {
        let client = self.clients.get_mut(&id).expect("a lease that is not ending has its client");
        if matches!(state, LeaseState::Recalled { .. }) {
            client.recalled = client.recalled.minus(&shape.needs).expect("what was recalled was counted");
        }
        client.used = client.used.minus(&shape.needs).expect("what is used was counted");
        let same = client.leases.get_mut(&shape).expect("the lease is on the client's books");
        same.remove(&lease);
        if same.is_empty() {
            client.leases.remove(&shape);
        }
        self.send_to_back(id, shape);
        self.note_hunger(id);
    }

    /// Whoever got or gave up a lease comes after those who wait with as little.
    fn send_to_back(&mut self, id: ClientId, shape: Shape) {
        self.turns += 1;
        if let Some(want) = self.clients.get_mut(&id).and_then(|client| client.wants.get_mut(&shape)) {
            want.order = self.turns;
            want.told = false;
        }
    }

    /// Unguessable without the secret, yet a pure function of it.
    fn next_lease(&mut self) -> LeaseId {
        self.granted += 1;
        let hash = blake3::keyed_hash(&self.config.secret, &self.granted.to_le_bytes());
        let (id, _) = hash.as_bytes().split_first_chunk::<16>().expect("a hash is longer than an id");
        LeaseId(u128::from_le_bytes(*id))
    }
}
