//! A node with a hand on its clock, for the tests.

mod blocked;
mod devices;
mod guests;
mod leaving;
mod links;
mod memory;
mod programs;
mod random;
mod stopped;
mod supply;
mod works;
mod zygotes;

use super::*;
use paceline_proto::control::{HeadToNode, NodeToSlot, SlotToNode, Stream};
use paceline_proto::{
    ClusterId, DeathCause, Facts, Incarnation, NodeId, OutOfMemory, Seq, Start, StartError,
};

const A: ClientId = ClientId(1);
const SECRET: LeaseSecret = LeaseSecret([5; 32]);
const B: ClientId = ClientId(2);

struct Bench {
    node: Node,
    now: Tick,
    /// The alarm the node asked for last.
    wake: Option<Tick>,
    /// What the zygotes were told last.
    kill_at: BTreeMap<SlotId, Tick>,
}

impl Bench {
    /// A node that has heard of nothing yet.
    fn new(cpus: u64, spares: u64) -> Bench {
        let mut config = Config::new(NodeId(1), Incarnation(1), Resources::cpus(cpus));
        config.spares = spares;
        Bench { node: Node::new(config), now: Tick::ZERO, wake: None, kill_at: BTreeMap::new() }
    }

    /// A node with head and zygote, whose slots 1.. are ready.
    fn ready(cpus: u64) -> Bench {
        let mut bench = Bench::new(cpus, 0);
        bench.handle(Event::HeadUp);
        bench.handle(Event::ZygoteUp);
        (1..=cpus).for_each(|slot| drop(bench.slot_ready(slot)));
        bench
    }

    /// Everything the node does about this event, except that it asks for an alarm. A head that is up says so.
    fn handle(&mut self, event: Event) -> Vec<Effect> {
        let welcome = event == Event::HeadUp;
        let mut out = self.handle_only(event);
        if welcome {
            let answer = self.welcome(1);
            out.extend(answer.into_iter().filter(|effect| *effect != beat(self.now)));
        }
        out
    }

    fn welcome(&mut self, epoch: u64) -> Vec<Effect> {
        let Config { heartbeat, head_lost, .. } = self.node.config;
        self.welcome_with(epoch, Timing { heartbeat, head_lost })
    }

    fn welcome_with(&mut self, epoch: u64, timing: Timing) -> Vec<Effect> {
        let message = HeadToNode::Welcome { cluster: ClusterId(9), epoch: Epoch(epoch), timing };
        self.handle_only(Event::FromHead(message))
    }

    fn handle_only(&mut self, event: Event) -> Vec<Effect> {
        let mut out = Vec::new();
        self.node.handle(self.now, event, &mut out);
        self.node.check().unwrap();
        out.retain_mut(|effect| match effect {
            Effect::ToSlot { message: NodeToSlot::Bind { total, own, .. }, .. } => {
                // The same for all slots of a program, and no test's concern.
                (*total, *own) = (Resources::default(), true);
                true
            }
            Effect::KillAt { slots } => {
                self.kill_at.extend(slots.iter().copied());
                false
            }
            Effect::WakeAt(at) => {
                self.wake = Some(*at);
                false
            }
            _ => true,
        });
        out
    }

    /// Let time pass, waking the node as it asks. Heartbeats are answered, and left out.
    fn pass(&mut self, span: Duration) -> Vec<Effect> {
        let mut out = self.pass_alone(span, true);
        out.retain(|effect| !matches!(effect, Effect::ToHead(NodeToHead::Heartbeat { .. })));
        out
    }

    fn pass_alone(&mut self, span: Duration, answers: bool) -> Vec<Effect> {
        let end = self.now + span;
        let mut out = Vec::new();
        while let Some(at) = self.wake.filter(|at| *at <= end) {
            self.wake = None;
            self.now = self.now.max(at);
            let mut effects = self.handle(Event::Tick);
            for effect in effects.clone() {
                if let (Effect::ToHead(NodeToHead::Heartbeat { beat }), true) = (effect, answers) {
                    effects.extend(self.handle(Event::FromHead(HeadToNode::Heartbeat { beat })));
                }
            }
            out.extend(effects);
        }
        self.now = end;
        out
    }

    fn forked(&mut self, slot: u64) -> Vec<Effect> {
        self.handle(Event::Forked { slot: SlotId(slot), pid: pid(slot) })
    }

    fn slot_ready(&mut self, slot: u64) -> Vec<Effect> {
        let ready = SlotToNode::Ready { slot: SlotId(slot), pid: pid(slot) };
        self.handle(Event::FromSlot(SlotId(slot), ready))
    }

    fn exited(&mut self, slot: u64) -> Vec<Effect> {
        self.handle(Event::Exited { slot: SlotId(slot), death: died(None) })
    }

    fn place(&mut self, lease: u128, client: ClientId, shape: Shape) -> Vec<Effect> {
        self.handle(Event::FromHead(HeadToNode::Place {
            lease: LeaseId(lease),
            client,
            shape,
            holder: client,
            secret: SECRET,
            devices: Devices::default(),
            once: false,
            exclusive: None,
        }))
    }

    fn end(&mut self, lease: u128) -> Vec<Effect> {
        self.handle(Event::FromHead(HeadToNode::End { lease: LeaseId(lease) }))
    }

    fn detached(&mut self, slot: u64, lease: u128) -> Vec<Effect> {
        self.handle(Event::FromSlot(SlotId(slot), SlotToNode::Detached { lease: LeaseId(lease) }))
    }

    fn connect(&mut self, connection: u64, lease: u128) -> Vec<Effect> {
        self.handle(Event::Connection { connection, lease: LeaseId(lease), way: Way::Unix })
    }
}

fn pid(slot: u64) -> u32 {
    1000 + slot as u32
}

/// A death of the call that ran, or before there was any.
fn died(running: Option<Seq>) -> Death {
    let finished = running.map_or(Seq(0), |call| Seq(call.0 - 1));
    Death { cause: DeathCause::Signal(9), out_of_memory: OutOfMemory::No, running, finished }
}

fn one() -> Shape {
    Shape::cpus(1)
}

fn fork(slot: u64) -> Effect {
    Effect::Fork { slot: SlotId(slot), program: ProgramId::OWN }
}

fn kill(slot: u64) -> Effect {
    Effect::Kill { slot: SlotId(slot) }
}

fn forget(slot: u64) -> Effect {
    Effect::ForgetSlot { slot: SlotId(slot) }
}

fn to_slot(slot: u64, message: NodeToSlot) -> Effect {
    Effect::ToSlot { slot: SlotId(slot), message, connection: None }
}

fn bind(slot: u64, client: ClientId, shape: Shape) -> Effect {
    to_slot(
        slot,
        NodeToSlot::Bind {
            client,
            needs: shape.needs,
            total: Resources::default(),
            own: shape.program.is_own(),
            devices: Devices::default(),
            files: None,
        },
    )
}

fn detach(slot: u64, lease: u128) -> Effect {
    to_slot(slot, NodeToSlot::Detach { lease: LeaseId(lease) })
}

fn exit(slot: u64) -> Effect {
    to_slot(slot, NodeToSlot::Exit)
}

fn attach(slot: u64, lease: u128, connection: u64) -> Effect {
    let message = NodeToSlot::Attach { lease: LeaseId(lease), secret: None };
    Effect::ToSlot { slot: SlotId(slot), message, connection: Some(connection) }
}

fn placed(lease: u128, slot: u64) -> Effect {
    Effect::ToHead(NodeToHead::Placed { lease: LeaseId(lease), slot: SlotId(slot) })
}

fn ended(lease: u128, death: Option<Death>) -> Effect {
    Effect::ToHead(NodeToHead::Ended { lease: LeaseId(lease), death })
}

/// The node comes back to the head that it has met.
fn join(cpus: u64, leases: &[(u128, ClientId, u64)]) -> Effect {
    let placement = |&(lease, client, slot)| Placement {
        lease: LeaseId(lease),
        client,
        slot: SlotId(slot),
        shape: Shape::cpus(1),
        blocked: false,
        holder: client,
        epoch: Epoch(1),
        devices: Devices::default(),
        exclusive: None,
    };
    Effect::ToHead(NodeToHead::Join {
        node: NodeId(1),
        incarnation: Incarnation(1),
        name: String::new(),
        total: Resources::cpus(cpus),
        leases: leases.iter().map(placement).collect(),
        addresses: Vec::new(),
        met: Some(Met { cluster: ClusterId(9), epoch: Epoch(1) }),
        facts: Facts::default(),
    })
}

fn beat(now: Tick) -> Effect {
    Effect::ToHead(NodeToHead::Heartbeat { beat: now.0 })
}

fn millis(count: u64) -> Duration {
    Duration::from_millis(count)
}
