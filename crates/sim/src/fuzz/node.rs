//! The node, and a head, slots and strangers that say anything.

use super::Input;
use paceline_core::node::{Config, Effect, Event, GuestCalls, Node};
use paceline_proto::control::{HeadToNode, SlotToNode, Stream};
use paceline_proto::question::NodeQuestion;
use paceline_proto::resources::Part;
use paceline_proto::{
    ClusterId, Epoch, Facts, Incarnation, LeaseSecret, NodeId, ProgramId, Resources, SlotId, Way,
    placement::Device,
};
use std::collections::BTreeSet;
use std::time::Duration;

const MAX_EVENTS: usize = 600;

/// What the shell knows: it reports only what has happened.
#[derive(Default)]
struct Shell {
    head_up: bool,
    zygote: Option<bool>,
    programs: BTreeSet<(ProgramId, bool)>,
    /// Slots that were asked for, and those that were forked.
    asked: Vec<(SlotId, ProgramId)>,
    alive: Vec<(SlotId, ProgramId)>,
    connections: u64,
}

/// Hands the node the events that these bytes stand for.
pub fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    // What it has itself is true, and no machine has millions of CPUs.
    let total = Resources::cpus(input.below(5)).and_gpus(input.below(3)).and_memory(1 << 30);
    let total = total.with(Part::Custom("a", 2.0)).unwrap_or(total);
    let mut config = Config::new(NodeId(1), Incarnation(1), total);
    config.max_blocked = input.below(3) as usize;
    config.spares = input.below(2);
    config.ends_without_head = input.flag();
    config.facts = Facts { devices: input.some(3, |_| Device { memory: 1 }), ..Facts::default() };
    let mut node = Node::new(config);
    let mut shell = Shell::default();
    for _ in 0..MAX_EVENTS {
        if input.is_empty() {
            return;
        }
        let Some(event) = shell.event(&mut input) else { continue };
        let mut out = Vec::new();
        let now = input.now;
        node.handle(now, event, &mut out);
        if let Err(broken) = node.check() {
            panic!("{broken}");
        }
        for effect in out {
            match effect {
                Effect::DropHead => shell.head_up = false,
                Effect::StartZygote => shell.zygote = Some(false),
                Effect::StartProgram { program, .. } => drop(shell.programs.insert((program, false))),
                Effect::EndProgram { program } => {
                    shell.programs.retain(|(it, _)| *it != program);
                    shell.asked.retain(|(_, it)| *it != program);
                    shell.alive.retain(|(_, it)| *it != program);
                }
                Effect::Fork { slot, program } => shell.asked.push((slot, program)),
                Effect::ForgetSlot { slot } => {
                    shell.asked.retain(|(it, _)| *it != slot);
                    shell.alive.retain(|(it, _)| *it != slot);
                }
                Effect::Closed => return,
                _ => {}
            }
        }
    }
}

impl Shell {
    fn slot(&self, input: &mut Input<'_>) -> SlotId {
        let index = usize::from(input.byte());
        let all: Vec<SlotId> = self.asked.iter().chain(&self.alive).map(|(slot, _)| *slot).collect();
        if all.is_empty() || input.rarely() { input.slot() } else { all[index % all.len()] }
    }

    fn event(&mut self, input: &mut Input<'_>) -> Option<Event> {
        input.pass();
        Some(match input.byte() {
            0..=7 => Event::Tick,
            8..=19 if !self.head_up => {
                self.head_up = true;
                Event::HeadUp
            }
            8..=11 => {
                self.head_up = false;
                Event::HeadDown
            }
            12..=23 => match self.zygote {
                Some(false) => {
                    self.zygote = Some(true);
                    Event::ZygoteUp
                }
                Some(true) if input.rarely() => {
                    self.zygote = None;
                    self.asked.retain(|(_, program)| !program.is_own());
                    Event::ZygoteDied
                }
                _ => return None,
            },
            24..=33 => {
                let (program, up) = *self.programs.first()?;
                self.programs.remove(&(program, up));
                if up || input.rarely() {
                    self.asked.retain(|(_, it)| *it != program);
                    self.alive.retain(|(_, it)| *it != program);
                    Event::ProgramDown(program, input.start_error())
                } else {
                    self.programs.insert((program, true));
                    Event::ProgramUp(program)
                }
            }
            34..=69 => {
                let slot = self.asked.pop()?;
                self.alive.push(slot);
                Event::Forked { slot: slot.0, pid: 7 }
            }
            70..=75 => {
                Event::Stopped { slot: self.slot(input), signal: 19, ends_at: input.option(|it| it.now) }
            }
            76..=77 => Event::Continued { slot: self.slot(input) },
            78..=79 => Event::ZygotesStopped(input.some(2, Input::program)),
            80..=83 => {
                let calls = |input: &mut Input<'_>| GuestCalls {
                    lease: input.lease(),
                    running: input.option(Input::seq),
                    finished: input.seq(),
                };
                Event::GuestCalls { slot: self.slot(input), calls: input.some(2, calls) }
            }
            84..=95 => {
                let index = usize::from(input.byte()) % self.alive.len().max(1);
                if self.alive.is_empty() {
                    return None;
                }
                let (slot, _) = self.alive.remove(index);
                Event::Exited { slot, death: input.death() }
            }
            96..=149 => Event::FromSlot(self.slot(input), from_slot(self.slot(input), input)),
            150..=159 => {
                self.connections += 1;
                let way = [Way::Unix, Way::Tls, Way::Relayed][input.below(3) as usize];
                Event::Connection { connection: self.connections, lease: input.lease(), way }
            }
            160..=163 => Event::Output { slot: self.slot(input), stream: Stream::Out, text: input.text() },
            164..=165 => {
                let size = |input: &mut Input<'_>| (input.slot(), u64::from(input.byte()) << 20);
                Event::Memory { used: 99, limit: 100, slots: input.some(3, size) }
            }
            166..=167 => Event::Sizes(vec![(self.slot(input), u64::from(input.byte()) << 24)]),
            168..=169 => Event::ClientLeft(input.client()),
            170 => Event::Close,
            171 => Event::Leave { within: Duration::from_secs(input.below(9)) },
            _ if self.head_up => Event::FromHead(from_head(input)),
            _ => return None,
        })
    }
}

fn from_slot(slot: SlotId, input: &mut Input<'_>) -> SlotToNode {
    match input.byte() {
        0..=99 => SlotToNode::Ready { slot: if input.rarely() { input.slot() } else { slot }, pid: 7 },
        100..=149 => SlotToNode::Detached { lease: input.lease() },
        150..=209 => SlotToNode::Blocked { lease: input.lease(), blocked: input.flag() },
        210..=219 => SlotToNode::Nest,
        220..=229 => SlotToNode::Connect,
        230..=245 => SlotToNode::Waits { lease: input.lease() },
        _ => SlotToNode::Objects,
    }
}

fn from_head(input: &mut Input<'_>) -> HeadToNode {
    match input.byte() {
        0..=49 => {
            let cluster = ClusterId(if input.rarely() { 8 } else { 9 });
            let epoch = Epoch((1 + input.below(3)) << 32);
            HeadToNode::Welcome { cluster, epoch, timing: input.timing() }
        }
        50..=64 => HeadToNode::Program { program: input.program(), start: input.start() },
        65..=129 => HeadToNode::Place {
            lease: input.lease(),
            client: input.client(),
            shape: input.shape(),
            holder: input.client(),
            secret: LeaseSecret::default(),
            devices: input.devices(),
            once: input.rarely(),
            exclusive: input.exclusive(),
        },
        130..=154 => HeadToNode::End { lease: input.lease() },
        155 => HeadToNode::Bye,
        156..=163 => HeadToNode::Relay { lease: input.lease(), addresses: input.addresses() },
        164..=171 => {
            let beats = [0, input.now.0, u64::MAX];
            HeadToNode::Heartbeat { beat: beats[input.below(3) as usize] }
        }
        172..=183 => HeadToNode::Heard { lease: input.lease() },
        184..=187 => HeadToNode::Ask { number: 1, question: NodeQuestion::Status },
        188..=199 => HeadToNode::TooDeep { lease: input.lease() },
        200..=227 => HeadToNode::Run {
            lease: input.lease(),
            holder: input.client(),
            shape: input.shape(),
            devices: input.devices(),
            name: input.name(),
            start: Vec::new(),
        },
        228..=235 => HeadToNode::HolderConfirmed { lease: input.lease() },
        _ => HeadToNode::Admit {
            lease: input.lease(),
            host: input.lease(),
            secret: LeaseSecret::default(),
            again: input.flag(),
        },
    }
}
