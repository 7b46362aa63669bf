//! Clients and nodes that do anything at any time, over links that lose what was on its way.

use super::*;
use crate::random::Random;
use std::collections::VecDeque;

/// A node that does as it is told, in its own time.
#[derive(Default)]
struct ModelNode {
    leases: BTreeMap<LeaseId, Placement>,
    inbox: VecDeque<HeadToNode>,
    outbox: VecDeque<NodeToHead>,
    up: bool,
    incarnation: u64,
    /// A task went on that had waited for others.
    went_on: bool,
}

/// A client that remembers what it was told.
#[derive(Default)]
struct ModelClient {
    leases: BTreeSet<LeaseId>,
    inbox: VecDeque<HeadToClient>,
    up: bool,
}

struct Model {
    bench: Bench,
    random: Random,
    nodes: BTreeMap<NodeId, ModelNode>,
    clients: BTreeMap<ClientId, ModelClient>,
    slots: u64,
    /// Tasks wait for others, and slots are clients.
    nests: bool,
    /// The lease of each client that is a slot.
    under: BTreeMap<ClientId, LeaseId>,
}

impl Model {
    fn new(seed: u64) -> Model {
        let ids = 1..=4;
        Model {
            bench: Bench::new(),
            random: Random::new(seed),
            nodes: ids.clone().map(|id| (NodeId(id), ModelNode::default())).collect(),
            clients: ids.map(|id| (ClientId(id), ModelClient::default())).collect(),
            slots: 0,
            nests: false,
            under: BTreeMap::new(),
        }
    }

    /// A task waits for others, or goes on.
    fn task_waits(&mut self, id: NodeId) {
        let node = self.nodes.get_mut(&id).unwrap();
        let count = node.leases.len() as u64;
        if count == 0 {
            return;
        }
        let lease = *node.leases.keys().nth(self.random.below(count) as usize).unwrap();
        let placement = node.leases.get_mut(&lease).unwrap();
        placement.blocked = !placement.blocked;
        node.went_on |= !placement.blocked;
        let blocked = placement.blocked;
        let full = self.random.below(3) == 0;
        if node.up {
            node.outbox.push_back(NodeToHead::Blocked { lease, blocked, full });
        }
    }

    /// A client turns out to be a slot, with a lease that may or may not be known.
    fn slot_is_client(&mut self, node: NodeId, client: ClientId) {
        if self.clients[&client].up && client != ClientId(1) {
            let lease = self.nodes[&node].leases.keys().next().copied().unwrap_or_default();
            self.under.insert(client, lease);
            self.handle(Event::FromClient(client, ClientToHead::Under { lease }));
        }
    }

    fn handle(&mut self, event: Event) {
        let effects = self.bench.handle(event);
        self.route(effects);
    }

    fn route(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::ToClient(id, message) => {
                    let client = self.clients.get_mut(&id).unwrap();
                    assert!(client.up, "a message for a link that is down");
                    client.inbox.push_back(message);
                }
                Effect::ToNode(id, message) => {
                    let node = self.nodes.get_mut(&id).unwrap();
                    assert!(node.up, "a message for a link that is down");
                    node.inbox.push_back(message);
                }
                Effect::DropNode(id) => self.cut_node(id),
                Effect::DropClient(_) | Effect::Superseded { .. } => {
                    unreachable!("nobody beats, nobody comes later")
                }
                Effect::WakeAt(_) => unreachable!("taken out by the bench"),
                Effect::Write { .. } | Effect::Told { .. } => unreachable!("nothing is submitted here"),
            }
        }
    }

    fn cut_node(&mut self, id: NodeId) {
        let node = self.nodes.get_mut(&id).unwrap();
        node.up = false;
        node.inbox.clear();
        node.outbox.clear();
    }

    fn step(&mut self) {
        let node = NodeId(self.random.within(1..5));
        let client = ClientId(self.random.within(1..5));
        match self.random.below(if self.nests { 24 } else { 20 }) {
            20..=22 => self.task_waits(node),
            23 => self.slot_is_client(node, client),
            0 => self.toggle_node(node),
            1 => self.toggle_client(client),
            2..=4 => {
                let span = Duration::from_millis(self.random.below(900));
                let effects = self.bench.pass(span);
                self.route(effects);
            }
            5..=8 => self.client_acts(client),
            9..=12 => self.client_reads(client),
            13..=15 => self.node_reads(node),
            16..=18 => self.node_says(node),
            _ => self.slot_dies(node),
        }
    }

    fn toggle_node(&mut self, id: NodeId) {
        let node = self.nodes.get_mut(&id).unwrap();
        if node.up {
            self.cut_node(id);
            self.handle(Event::NodeDown(id));
            if self.random.below(4) == 0 {
                // Also of one that lives: what looks like a death is no proof.
                self.handle(Event::NodeDied(id));
            }
            return;
        }
        if self.random.below(4) == 0 {
            node.incarnation += 1;
            node.leases.clear();
        }
        node.up = true;
        let join = NodeToHead::Join {
            node: id,
            incarnation: Incarnation(node.incarnation),
            name: String::new(),
            total: Resources::cpus(id.0),
            leases: node.leases.values().copied().collect(),
            addresses: if id.0.is_multiple_of(2) { vec![Address::tcp("even", 7078)] } else { Vec::new() },
            facts: Facts::default(),
            met: Some(met(1)),
        };
        self.handle(Event::FromNode(id, join));
    }

    fn toggle_client(&mut self, id: ClientId) {
        let client = self.clients.get_mut(&id).unwrap();
        if client.up {
            client.up = false;
            client.inbox.clear();
            let dead = self.random.below(4) == 0;
            let polite = self.random.below(4) == 0;
            if dead || polite {
                client.leases.clear();
            }
            if polite {
                // Nobody is there any more to hear what comes of it.
                for effect in self.bench.client_says(id, ClientToHead::Bye) {
                    if let Effect::ToNode(node, message) = effect {
                        self.nodes.get_mut(&node).unwrap().inbox.push_back(message);
                    }
                }
            }
            let ends = [LinkEnd::Closed, LinkEnd::Reset, LinkEnd::Lost];
            let end = if dead { LinkEnd::Dead } else { ends[self.random.below(3) as usize] };
            self.handle(Event::ClientDown { client: id, end });
            return;
        }
        client.up = true;
        let leases = client.leases.iter().map(|&lease| held(lease)).collect();
        let hello = ClientToHead::Hello {
            client: id,
            name: String::new(),
            leases,
            met: Some(met(1)),
            under: None,
            beats: false,
        };
        self.handle(Event::FromClient(id, hello));
    }

    fn client_acts(&mut self, id: ClientId) {
        let client = self.clients.get_mut(&id).unwrap();
        if !client.up {
            return;
        }
        let shape = [Shape::cpus(1), Shape::cpus(2), Shape::cpus(5), Shape::default()];
        let message = match self.random.below(4) {
            0 => match client.leases.pop_first() {
                Some(lease) => ClientToHead::Release { lease },
                None => return,
            },
            1 => ClientToHead::Release { lease: LeaseId(self.random.next().into()) },
            _ => ClientToHead::Want {
                shape: shape[self.random.below(4) as usize],
                count: self.random.below(4) as u32,
                exclusive: None,
            },
        };
        self.handle(Event::FromClient(id, message.clone()));
        if self.random.below(8) == 0 {
            self.handle(Event::FromClient(id, message));
        }
    }

    fn client_reads(&mut self, id: ClientId) {
        let client = self.clients.get_mut(&id).unwrap();
        match client.inbox.pop_front() {
            Some(HeadToClient::Granted { lease, .. }) => assert!(client.leases.insert(lease)),
            Some(HeadToClient::Ended { lease, .. }) => drop(client.leases.remove(&lease)),
            Some(HeadToClient::Recall { lease }) if client.leases.remove(&lease) => {
                self.handle(Event::FromClient(id, ClientToHead::Release { lease }));
            }
            _ => {}
        }
    }

    fn node_reads(&mut self, id: NodeId) {
        let node = self.nodes.get_mut(&id).unwrap();
        match node.inbox.pop_front() {
            Some(HeadToNode::Place { lease, client, shape, holder, devices, .. }) => {
                self.slots += 1;
                let slot = SlotId(self.slots);
                node.leases.insert(
                    lease,
                    Placement {
                        lease,
                        client,
                        slot,
                        shape,
                        blocked: false,
                        holder,
                        epoch: Epoch(1),
                        devices,
                        exclusive: None,
                    },
                );
                let running = node.leases.values().filter(|it| !it.blocked);
                let used = running.fold(Resources::default(), |sum, it| sum.plus(&it.shape.needs));
                // Tasks that went on may need more for a while; then nothing is placed, but this one may have been before.
                let fits = node.went_on || used.fits_in(&Resources::cpus(id.0));
                assert!(fits, "HD-1 and HD-3, as the node sees it");
                node.outbox.push_back(NodeToHead::Placed { lease, slot });
            }
            Some(HeadToNode::End { lease }) => {
                node.leases.remove(&lease);
                node.outbox.push_back(NodeToHead::Ended { lease, death: None });
            }
            _ => {}
        }
    }

    fn node_says(&mut self, id: NodeId) {
        let node = self.nodes.get_mut(&id).unwrap();
        if !node.up {
            return;
        }
        let message = node.outbox.pop_front().unwrap_or(NodeToHead::Heartbeat { beat: 0 });
        self.handle(Event::FromNode(id, message.clone()));
        if self.random.below(8) == 0 {
            self.handle(Event::FromNode(id, message));
        }
    }

    fn slot_dies(&mut self, id: NodeId) {
        let node = self.nodes.get_mut(&id).unwrap();
        if let Some((lease, _)) = node.leases.pop_first() {
            node.outbox.push_back(NodeToHead::Ended { lease, death: Some(killed()) });
        }
    }

    /// Connect everybody, let every message arrive, and see what is left.
    fn settle(&mut self) {
        for id in self.nodes.keys().copied().collect::<Vec<_>>() {
            if !self.nodes[&id].up {
                self.toggle_node(id);
            }
        }
        for id in self.clients.keys().copied().collect::<Vec<_>>() {
            if !self.clients[&id].up {
                self.toggle_client(id);
            }
            for shape in [Shape::cpus(1), Shape::cpus(2), Shape::cpus(5), Shape::default()] {
                self.handle(Event::FromClient(id, ClientToHead::Want { shape, count: 0, exclusive: None }));
            }
        }
        for _ in 0..200 {
            for id in self.nodes.keys().copied().collect::<Vec<_>>() {
                (0..4).for_each(|_| self.node_reads(id));
                (0..4).for_each(|_| self.node_says(id));
            }
            for id in self.clients.keys().copied().collect::<Vec<_>>() {
                (0..4).for_each(|_| self.client_reads(id));
            }
        }
    }
}

#[test]
fn anything_may_happen_and_the_books_agree() {
    for seed in 0..120 {
        let mut model = Model::new(seed);
        model.nests = seed >= 60;
        (0..3000).for_each(|_| model.step());
        model.settle();
        let at_head: BTreeSet<LeaseId> = model.bench.head.leases.keys().copied().collect();
        let at_nodes: BTreeSet<LeaseId> =
            model.nodes.values().flat_map(|node| node.leases.keys().copied()).collect();
        // A client that was a slot is gone with its lease, and nobody tells the dead. Everybody else is known.
        let slot_died = |id: &ClientId| model.under.get(id).is_some_and(|lease| !at_nodes.contains(lease));
        let died = |id: &ClientId| !model.bench.head.clients.contains_key(id) && slot_died(id);
        let alive = model.clients.iter().filter(|(id, _)| !died(id));
        let at_clients = alive.flat_map(|(_, client)| client.leases.iter().copied()).collect();
        assert_eq!(at_head, at_nodes, "seed {seed}: head and nodes know the same leases");
        assert_eq!(at_head, at_clients, "seed {seed}: HD-4, head and clients know the same leases");
    }
}

#[test]
fn one_that_waits_is_served() {
    // HD-6: whoever wants one lease of each shape gets it, while the others never have enough.
    for seed in 0..20 {
        let mut model = Model::new(seed);
        (1..=4).for_each(|id| model.toggle_node(NodeId(id)));
        (1..=4).for_each(|id| model.toggle_client(ClientId(id)));
        for id in 1..=4 {
            for (shape, count) in [(Shape::cpus(1), 100), (Shape::cpus(2), 100), (Shape::cpus(4), 1)] {
                model.handle(Event::FromClient(
                    ClientId(id),
                    ClientToHead::Want { shape, count, exclusive: None },
                ));
            }
        }
        let mut served = BTreeSet::new();
        for _ in 0..4000 {
            let (node, client) = (NodeId(model.random.within(1..5)), ClientId(model.random.within(1..5)));
            model.node_reads(node);
            model.node_says(node);
            model.client_reads(client);
            let effects = model.bench.pass(Duration::from_millis(model.random.below(20)));
            model.route(effects);
            let held = model.bench.head.leases.values();
            served.extend(held.map(|lease| (lease.client, lease.shape)));
        }
        assert_eq!(served.len(), 12, "seed {seed}: {served:?}");
    }
}
