//! The head, and peers that say anything.

use super::Input;
use paceline_core::head::{Config, Effect, Event, Head, LinkEnd};
use paceline_proto::control::{ClientToHead, Gone, HeadToNode, Held, Met, NodeToHead, Placement, Stream};
use paceline_proto::question::Question;
use paceline_proto::work::{Placed, Standing};
use paceline_proto::{
    ClientId, ClusterId, Epoch, ExclusiveId, Facts, Incarnation, LeaseId, NodeId, Work, WorkId,
    placement::Device,
};
use std::collections::VecDeque;

/// So many events are made of one input.
const MAX_EVENTS: usize = 600;

const CLUSTER: ClusterId = ClusterId(9);

/// Hands the head the events that these bytes stand for.
pub fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let mut config = Config::new(CLUSTER, Epoch(2 << 32), [7; 32]);
    config.max_leases = 1 + input.below(12) as usize;
    (config.max_group_members, config.max_shapes, config.max_actors) = (6, 5, 2);
    let mut head = Head::new(config);
    if input.flag() {
        // What a journal may say: work that was placed by an earlier start.
        let placed = Placed {
            node: NodeId(1),
            incarnation: Incarnation(1 + input.below(2)),
            lease: LeaseId(1),
            name: "n".into(),
        };
        let standing =
            Standing { placed: input.option(|_| placed), stopping: input.rarely(), ..Standing::default() };
        head.restore(vec![(WorkId(1 << 32 | 1), work(&mut input), standing)], Vec::new());
    }
    let mut writes = VecDeque::new();
    for _ in 0..MAX_EVENTS {
        if input.is_empty() {
            return;
        }
        let Some(event) = event(&mut input, &mut writes) else { continue };
        let mut out = Vec::new();
        let now = input.now;
        head.handle(now, event, &mut out);
        if let Err(broken) = head.check() {
            panic!("{broken}");
        }
        for effect in out {
            match effect {
                Effect::Write { work, .. } => writes.push_back(work),
                Effect::ToNode(
                    _,
                    HeadToNode::Place { lease, .. }
                    | HeadToNode::Run { lease, .. }
                    | HeadToNode::Admit { lease, .. },
                ) => {
                    input.learn(lease);
                }
                Effect::Superseded { .. } => return,
                _ => {}
            }
        }
    }
}

fn event(input: &mut Input<'_>, writes: &mut VecDeque<WorkId>) -> Option<Event> {
    input.pass();
    Some(match input.byte() {
        0..=7 => Event::Tick,
        8..=13 => {
            let ends = [LinkEnd::Dead, LinkEnd::Closed, LinkEnd::Reset, LinkEnd::Lost];
            Event::ClientDown { client: input.client(), end: ends[input.below(4) as usize] }
        }
        14..=18 => Event::NodeDown(input.node()),
        19 => Event::NodeDied(input.node()),
        20..=22 => Event::Drain(input.node()),
        23 => Event::Close { by: "x".into() },
        24..=29 => Event::Submit { asker: 1, work: work(input) },
        30..=32 => Event::StopWork { asker: 2, name: input.name() },
        33..=60 => {
            let work = writes.pop_front()?;
            Event::Written { work, wrote: if input.rarely() { Err("full".into()) } else { Ok(7) } }
        }
        61..=150 => {
            let node = input.node();
            Event::FromNode(node, from_node(input, node))
        }
        _ => {
            let client = input.client();
            Event::FromClient(client, from_client(input, client))
        }
    })
}

fn work(input: &mut Input<'_>) -> Work {
    Work {
        token: u128::from(input.below(4)),
        name: input.name(),
        needs: input.resources(),
        resources: input.some(1, |_| "a".into()),
        restarts: input.below(3) as u32,
        start: Vec::new(),
    }
}

fn met(input: &mut Input<'_>) -> Option<Met> {
    let epochs = [0, 1 << 32, 1 << 32, 2 << 32];
    let met = |input: &mut Input<'_>| Met {
        cluster: if input.rarely() { ClusterId(8) } else { CLUSTER },
        epoch: Epoch(if input.byte() == 1 { 3 << 32 } else { epochs[input.below(4) as usize] }),
    };
    input.option(met)
}

fn some_lease(input: &mut Input<'_>) -> LeaseId {
    if input.rarely() {
        let lease = LeaseId(u128::from(input.below(8)));
        input.learn(lease);
    }
    input.lease()
}

pub(super) fn placement(input: &mut Input<'_>) -> Placement {
    Placement {
        lease: some_lease(input),
        client: input.client(),
        slot: input.slot(),
        shape: input.shape(),
        blocked: input.flag(),
        holder: input.client(),
        epoch: Epoch([0, 1 << 32, 2 << 32][input.below(3) as usize]),
        devices: input.devices(),
        exclusive: input.exclusive(),
    }
}

fn from_node(input: &mut Input<'_>, from: NodeId) -> NodeToHead {
    match input.byte() {
        0..=69 => {
            let device = |input: &mut Input<'_>| Device { memory: input.below(3) };
            NodeToHead::Join {
                node: if input.rarely() { input.node() } else { from },
                incarnation: input.incarnation(),
                name: input.name(),
                total: input.resources().and_gpus(input.below(3)),
                leases: input.some(4, placement),
                met: met(input),
                addresses: input.addresses(),
                facts: Facts {
                    labels: input.some(1, |_| ("zone".into(), "a".into())),
                    devices: input.some(3, device),
                    resources: input.some(2, |_| "a".into()),
                },
            }
        }
        70..=149 => NodeToHead::Placed { lease: input.lease(), slot: input.slot() },
        150..=189 => NodeToHead::Ended { lease: input.lease(), death: input.option(Input::death) },
        190..=199 => NodeToHead::ProgramFailed { program: input.program(), why: input.start_error() },
        200..=209 => NodeToHead::Output {
            client: input.client(),
            slot: input.slot(),
            stream: Stream::Out,
            text: input.text(),
        },
        210..=214 => NodeToHead::Heartbeat { beat: u64::from(input.byte()) },
        215..=219 => NodeToHead::Answer { number: 1, text: Ok(String::new()) },
        220..=224 => NodeToHead::Leaving,
        _ => NodeToHead::Blocked { lease: input.lease(), blocked: input.flag(), full: input.rarely() },
    }
}

fn held(input: &mut Input<'_>) -> Held {
    Held {
        lease: some_lease(input),
        node: input.node(),
        incarnation: input.incarnation(),
        shape: input.shape(),
        exclusive: input.exclusive(),
    }
}

fn from_client(input: &mut Input<'_>, from: ClientId) -> ClientToHead {
    match input.byte() {
        0..=39 => ClientToHead::Hello {
            client: if input.rarely() { input.client() } else { from },
            name: input.name(),
            leases: input.some(4, held),
            met: met(input),
            under: input.option(Input::lease),
            beats: input.flag(),
        },
        40..=49 => ClientToHead::Program { program: input.program(), start: input.start() },
        50..=109 => {
            let count = if input.rarely() { u32::MAX } else { input.below(5) as u32 };
            ClientToHead::Want { shape: input.shape(), count, exclusive: input.exclusive() }
        }
        110..=129 => ClientToHead::Release { lease: input.lease() },
        130..=133 => ClientToHead::Bye,
        134..=159 => ClientToHead::Under { lease: input.lease() },
        160..=167 => ClientToHead::Unreachable { lease: input.lease() },
        168..=175 => ClientToHead::Broken { lease: input.lease() },
        176..=179 => ClientToHead::Heartbeat { beat: u64::from(input.byte()) },
        180..=181 => ClientToHead::Ask { number: 1, question: Question::Status },
        182..=197 => ClientToHead::Placement { id: input.placement(), rule: input.rule() },
        198..=199 => ClientToHead::Named { resources: input.some(2, |_| "a".into()) },
        200..=203 => ClientToHead::Standing {
            weight: [0, 1, 7, u32::MAX][input.below(4) as usize],
            priority: [0, 1, i32::MIN, i32::MAX][input.below(4) as usize],
        },
        204..=205 => ClientToHead::Reopening,
        206..=207 => ClientToHead::Lost { lease: held(input) },
        208 => {
            let exclusive = input.exclusive().unwrap_or(ExclusiveId(1));
            ClientToHead::OwnedByProgram { exclusive, program: input.name() }
        }
        // Few inputs of the stored corpus have an answer here.
        209 if input.flag() => ClientToHead::Synced,
        209 if input.flag() => ClientToHead::Welcomed,
        209 => ClientToHead::Answer { number: 1, text: Ok(String::new()) },
        210..=227 => ClientToHead::Actor {
            actor: input.actor(),
            name: input.option(Input::name),
            about: input.text(),
            lease: input.option(Input::lease),
            gone: if input.rarely() { Some(Gone::default()) } else { None },
            program: input.option(Input::name),
            named: input.rarely(),
        },
        228..=243 => {
            let (actor, stay) = (input.actor(), !input.rarely());
            ClientToHead::Visit { actor, stay, held: input.option(some_lease) }
        }
        244..=247 => ClientToHead::Find { number: 1, name: input.name() },
        _ => ClientToHead::Near {
            shape: input.shape(),
            nodes: input.some(3, |input| (input.node(), input.below(3) as u32)),
        },
    }
}
