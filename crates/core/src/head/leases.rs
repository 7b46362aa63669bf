//! The life of a lease: placed, held, recalled, ending, gone.

use super::{Effect, Head, Lease, LeaseState, Node, NodeLink};
use paceline_proto::control::{HeadToClient, HeadToNode};
use paceline_proto::{ClientId, Devices, LeaseId, LeaseSecret, NodeId, Shape};

impl Head {
    /// Ask the node for a slot. The caller has seen that it fits.
    pub(super) fn place(
        &mut self,
        client: ClientId,
        shape: Shape,
        node: NodeId,
        devices: Devices,
        out: &mut Vec<Effect>,
    ) {
        let id = self.next_lease();
        let state = LeaseState::Placing;
        let firm = self.is_firm(client, shape) || self.is_work(client);
        let exclusive = self.exclusive_of(client, shape);
        let lease = Lease { client, node, shape, devices, blocked: false, firm, exclusive, state, via: None };
        self.leases.insert(id, lease);
        self.add_copy(exclusive);
        self.holders.insert((client, id));
        let holder = self.clients.get_mut(&client).expect("leases are placed for clients that are here");
        holder.leases.entry(shape).or_default().insert(id);
        let root = holder.root;
        let start = holder.programs.get(&shape.program).cloned();
        self.nodes.get_mut(&node).expect("leases are placed on nodes that are here").leases.insert(id);
        self.count(id);
        if self.on_work_granted(client, id, node, out) {
            return self.note_hunger(client);
        }
        self.send_to_back(client, shape);
        self.untold.insert(client);
        self.note_hunger(client);
        if let Some(start) = start {
            // Said every time: the node may have forgotten it, and it costs less than knowing.
            self.tell_node(node, HeadToNode::Program { program: shape.program, start }, out);
        }
        let secret = self.secret_of(id);
        let (lease, holder, once) = (id, client, firm);
        let place =
            HeadToNode::Place { lease, client: root, shape, holder, secret, devices, once, exclusive };
        self.tell_node(node, place, out);
    }

    /// Ask the client to give the lease back.
    pub(super) fn recall(&mut self, id: LeaseId, out: &mut Vec<Effect>) {
        let lease = &self.leases[&id];
        let LeaseState::Held { slot, .. } = lease.state else { panic!("only held leases are recalled") };
        let client = lease.client;
        self.change_state(id, LeaseState::Recalled { slot });
        self.tell_client(client, HeadToClient::Recall { lease: id }, out);
    }

    /// The client is through with the lease. It counts on the node until that says so, too (HD-3).
    pub(super) fn end(&mut self, id: LeaseId, out: &mut Vec<Effect>) {
        let Lease { client, node, shape, state, .. } = self.leases[&id];
        assert!(state != LeaseState::Ending, "a lease ends once");
        self.change_state(id, LeaseState::Ending);
        if state.is_somebodys() {
            self.strike(client, shape, id);
        }
        self.tell_node(node, HeadToNode::End { lease: id }, out);
        self.dirty = true;
    }

    /// The lease is over everywhere.
    pub(super) fn finish(&mut self, id: LeaseId) {
        self.uncount(id);
        self.keep_promise(id);
        let lease = self.leases.remove(&id).expect("only known leases finish");
        self.holders.remove(&(lease.client, id));
        self.drop_copy(lease.exclusive);
        if let Some(last) = self.going.get_mut(&lease.client) {
            last.remove(&id);
        }
        self.nodes.get_mut(&lease.node).expect("a lease has its node").leases.remove(&id);
        self.grown.insert(lease.node);
        if lease.blocked {
            self.on_full(lease.node, false);
        }
        if lease.state.is_somebodys() {
            self.strike(lease.client, lease.shape, id);
        }
        self.dirty = true;
    }

    pub(super) fn change_state(&mut self, id: LeaseId, state: LeaseState) {
        self.uncount(id);
        self.leases.get_mut(&id).expect("only known leases change").state = state;
        self.count(id);
    }

    /// Change what is used of a node, and list its room anew.
    pub(super) fn change_node(&mut self, id: NodeId, change: impl FnOnce(&mut Node)) {
        let node = self.nodes.get_mut(&id).expect("a lease has its node");
        let before = node.free();
        let listed = matches!(node.link, NodeLink::Up { .. }) && !self.leaving.contains(&id);
        if listed {
            self.room.remove(id, node);
        }
        change(node);
        if listed {
            self.room.add(id, node);
        }
        if !node.free().fits_in(&before) {
            self.grown.insert(id);
        }
    }

    /// Strike the lease off its client's list.
    fn strike(&mut self, id: ClientId, shape: Shape, lease: LeaseId) {
        let client = self.clients.get_mut(&id).expect("a lease that is not ending has its client");
        let same = client.leases.get_mut(&shape).expect("the lease is on the client's list");
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
            self.untold.insert(id);
        }
    }

    /// What opens the data connection of a lease. Nobody who knows the lease alone can tell it.
    pub(super) fn secret_of(&self, lease: LeaseId) -> LeaseSecret {
        let mut hasher = blake3::Hasher::new_keyed(&self.config.secret);
        hasher.update(b"the secret of the lease ").update(&lease.0.to_le_bytes());
        LeaseSecret(*hasher.finalize().as_bytes())
    }

    /// Unguessable without the secret, yet a pure function of it.
    pub(super) fn next_lease(&mut self) -> LeaseId {
        self.granted += 1;
        let hash = blake3::keyed_hash(&self.config.secret, &self.granted.to_le_bytes());
        let (id, _) = hash.as_bytes().split_first_chunk::<16>().expect("a hash is longer than an id");
        LeaseId(u128::from_le_bytes(*id))
    }
}
