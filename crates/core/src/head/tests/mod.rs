//! A head with a hand on its clock, for the tests.

mod actors;
mod detached;
mod families;
mod fences;
mod fencing;
mod leaving;
mod limits;
mod membership;
mod names;
mod needs;
mod programs;
mod random;
mod reach;
mod shares;
mod sharing;
mod tangles;
mod two_heads;

use super::*;
use paceline_proto::LeaseSecret;
use paceline_proto::control::{ClientToHead, Held, NodeToHead, Placement, Stream};
use paceline_proto::{Death, DeathCause, OutOfMemory, Seq, Work, WorkId};

const A: ClientId = ClientId(1);
const B: ClientId = ClientId(2);
const C: ClientId = ClientId(3);
const N1: NodeId = NodeId(1);
const N2: NodeId = NodeId(2);

struct Bench {
    head: Head,
    now: Tick,
    /// The alarm the head asked for last.
    wake: Option<Tick>,
    /// Where nodes say that they are when they join.
    addresses: Vec<Address>,
}

impl Bench {
    fn new() -> Bench {
        Bench::with(|_| ())
    }

    fn with(adjust: impl FnOnce(&mut Config)) -> Bench {
        let mut config = Config::new(ClusterId(9), Epoch(1), [7; 32]);
        adjust(&mut config);
        Bench { head: Head::new(config), now: Tick::ZERO, wake: None, addresses: Vec::new() }
    }

    /// Everything the head does about this event, except that it asks for an alarm and confirms what it hears. Who holds
    /// a lease is in the status.
    fn handle(&mut self, event: Event) -> Vec<Effect> {
        let mut out = Vec::new();
        self.head.handle(self.now, event, &mut out);
        self.head.check().unwrap();
        out.retain_mut(|effect| match effect {
            Effect::WakeAt(at) => {
                self.wake = Some(*at);
                false
            }
            Effect::ToNode(_, HeadToNode::Place { client, holder, .. }) => {
                *holder = *client;
                true
            }
            Effect::ToNode(_, HeadToNode::Heartbeat { .. } | HeadToNode::Heard { .. }) => false,
            _ => true,
        });
        out
    }

    /// Let time pass, waking the head as it asks.
    fn pass(&mut self, span: Duration) -> Vec<Effect> {
        let end = self.now + span;
        let mut out = Vec::new();
        while let Some(at) = self.wake.filter(|at| *at <= end) {
            self.wake = None;
            self.now = self.now.max(at);
            out.extend(self.handle(Event::Tick));
        }
        self.now = end;
        out
    }

    /// As [`Bench::pass`], with this node saying that it lives.
    fn pass_beating(&mut self, node: NodeId, span: Duration) -> Vec<Effect> {
        let mut out = Vec::new();
        for _ in 0..span.as_secs() {
            out.extend(self.pass(Duration::from_secs(1)));
            out.extend(self.node_says(node, NodeToHead::Heartbeat { beat: 0 }));
        }
        out
    }

    fn client_says(&mut self, client: ClientId, message: ClientToHead) -> Vec<Effect> {
        self.handle(Event::FromClient(client, message))
    }

    fn node_says(&mut self, node: NodeId, message: NodeToHead) -> Vec<Effect> {
        self.handle(Event::FromNode(node, message))
    }

    fn hello(&mut self, client: ClientId, leases: &[LeaseId]) -> Vec<Effect> {
        self.hello_after(client, leases, None)
    }

    /// The client comes from this epoch, and holds leases of the first node.
    fn hello_after(&mut self, client: ClientId, leases: &[LeaseId], epoch: Option<u64>) -> Vec<Effect> {
        let leases = leases.iter().map(|&lease| held(lease)).collect();
        let hello = ClientToHead::Hello {
            client,
            name: "test".into(),
            leases,
            met: epoch.map(met),
            under: None,
            beats: false,
        };
        self.client_says(client, hello)
    }

    fn want(&mut self, client: ClientId, shape: Shape, count: u32) -> Vec<Effect> {
        self.client_says(client, ClientToHead::Want { shape, count, exclusive: None })
    }

    /// It asks for the slot of an actor, which is that of the tests of actors.
    fn want_once(&mut self, client: ClientId) -> Vec<Effect> {
        let (shape, exclusive) = (Shape::cpus(1), Some(actors::EXCLUSIVE));
        self.client_says(client, ClientToHead::Want { shape, count: 1, exclusive })
    }

    fn release(&mut self, client: ClientId, number: u64) -> Vec<Effect> {
        self.client_says(client, ClientToHead::Release { lease: lease(number) })
    }

    fn join(&mut self, node: NodeId, cpus: u64, leases: &[(u64, ClientId)]) -> Vec<Effect> {
        self.join_as(node, Incarnation(1), cpus, leases)
    }

    fn join_as(
        &mut self,
        node: NodeId,
        incarnation: Incarnation,
        cpus: u64,
        leases: &[(u64, ClientId)],
    ) -> Vec<Effect> {
        self.join_after(node, incarnation, cpus, leases, None)
    }

    /// The first node comes from one epoch with leases of another.
    fn come_back_with(&mut self, leases: &[(u64, ClientId)], met: Option<u64>, epoch: u64) -> Vec<Effect> {
        self.join_from(N1, Incarnation(1), 1, leases, (met, epoch))
    }

    /// The node comes from this epoch, as do its leases.
    fn join_after(
        &mut self,
        node: NodeId,
        incarnation: Incarnation,
        cpus: u64,
        leases: &[(u64, ClientId)],
        epoch: Option<u64>,
    ) -> Vec<Effect> {
        self.join_from(node, incarnation, cpus, leases, (epoch, epoch.unwrap_or(1)))
    }

    /// The node has met the first of these epochs, and its leases are of the second.
    fn join_from(
        &mut self,
        node: NodeId,
        incarnation: Incarnation,
        cpus: u64,
        leases: &[(u64, ClientId)],
        (from, epoch): (Option<u64>, u64),
    ) -> Vec<Effect> {
        let total = Resources::cpus(cpus);
        let placement = |&(number, client)| Placement {
            lease: lease(number),
            client,
            slot: SlotId(number),
            shape: Shape::cpus(1),
            blocked: false,
            devices: Devices::default(),
            holder: client,
            epoch: Epoch(epoch),
            exclusive: None,
        };
        let leases = leases.iter().map(placement).collect();
        let (name, addresses) = ("test".into(), self.addresses.clone());
        let met = from.map(met);
        let facts = Facts::default();
        let join = NodeToHead::Join { node, incarnation, name, total, leases, met, addresses, facts };
        let mut out = self.node_says(node, join);
        // It has heard the welcome.
        out.extend(self.node_says(node, NodeToHead::Heartbeat { beat: 0 }));
        out
    }

    fn placed(&mut self, node: NodeId, number: u64) -> Vec<Effect> {
        self.node_says(node, NodeToHead::Placed { lease: lease(number), slot: SlotId(number) })
    }

    fn ended(&mut self, node: NodeId, number: u64, death: Option<Death>) -> Vec<Effect> {
        self.node_says(node, NodeToHead::Ended { lease: lease(number), death })
    }

    /// The clients and a node, and the client's leases 1.. on it, held.
    fn holding(client: ClientId, cpus: u64) -> Bench {
        let mut bench = Bench::new();
        bench.hello(client, &[]);
        bench.join(N1, cpus, &[]);
        bench.want(client, Shape::cpus(1), cpus as u32);
        (1..=cpus).for_each(|number| drop(bench.placed(N1, number)));
        bench
    }
}

/// The id of the lease that was granted as this one in order.
fn lease(number: u64) -> LeaseId {
    let hash = blake3::keyed_hash(&[7; 32], &number.to_le_bytes());
    LeaseId(u128::from_le_bytes(hash.as_bytes()[..16].try_into().unwrap()))
}

/// As its holder names a lease on the first node.
fn held(lease: LeaseId) -> Held {
    Held { lease, node: N1, incarnation: Incarnation(1), shape: Shape::cpus(1), exclusive: None }
}

/// What heads have unless they are told otherwise.
const TIMING: Timing = Timing { heartbeat: Duration::from_secs(2), head_lost: Duration::from_secs(60) };

fn met(epoch: u64) -> Met {
    Met { cluster: ClusterId(9), epoch: Epoch(epoch) }
}

/// What opens it.
fn secret(number: u64) -> LeaseSecret {
    let mut hasher = blake3::Hasher::new_keyed(&[7; 32]);
    hasher.update(b"the secret of the lease ").update(&lease(number).0.to_le_bytes());
    LeaseSecret(*hasher.finalize().as_bytes())
}

fn welcome(client: ClientId) -> Effect {
    Effect::ToClient(client, HeadToClient::Welcome { cluster: ClusterId(9), epoch: Epoch(1), timing: TIMING })
}

fn welcome_node(node: NodeId) -> Effect {
    Effect::ToNode(node, HeadToNode::Welcome { cluster: ClusterId(9), epoch: Epoch(1), timing: TIMING })
}

fn place(node: NodeId, number: u64, client: ClientId, shape: Shape) -> Effect {
    let (lease, secret) = (lease(number), secret(number));
    let (holder, devices, once) = (client, Devices::default(), false);
    let exclusive = None;
    Effect::ToNode(node, HeadToNode::Place { lease, client, shape, holder, secret, devices, once, exclusive })
}

fn end(node: NodeId, number: u64) -> Effect {
    Effect::ToNode(node, HeadToNode::End { lease: lease(number) })
}

fn granted(client: ClientId, number: u64, node: NodeId, shape: Shape) -> Effect {
    let (lease, slot, secret) = (lease(number), SlotId(number), secret(number));
    let incarnation = Incarnation(1);
    let granted = HeadToClient::Granted { lease, node, slot, shape, incarnation, secret, exclusive: None };
    Effect::ToClient(client, granted)
}

fn recall(client: ClientId, number: u64) -> Effect {
    Effect::ToClient(client, HeadToClient::Recall { lease: lease(number) })
}

fn crowded(client: ClientId, shape: Shape) -> Effect {
    Effect::ToClient(client, HeadToClient::Crowded { shape })
}

fn ended(client: ClientId, number: u64, death: Death) -> Effect {
    Effect::ToClient(client, HeadToClient::Ended { lease: lease(number), death })
}

fn node_lost() -> Death {
    Death { cause: DeathCause::NodeLost, out_of_memory: OutOfMemory::No, running: None, finished: Seq(0) }
}

fn killed() -> Death {
    Death {
        cause: DeathCause::Signal(9),
        out_of_memory: OutOfMemory::No,
        running: Some(Seq(4)),
        finished: Seq(3),
    }
}

fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}
