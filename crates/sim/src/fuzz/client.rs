//! The client, and a head and slots that say anything.

use super::Input;
use bytes::Bytes;
use paceline_core::client::{
    Card, Client, Config, Effect, Event, LeaseKey, Near, PoolId, PoolSpec, RetryOn, Spec, Standing, TaskKey,
    Within,
};
use paceline_proto::control::{ClientToHead, Gone, HeadToClient};
use paceline_proto::data::{FromSlot, Reply, Status};
use paceline_proto::{
    ClientId, ClusterId, Epoch, ExclusiveId, FunctionId, LeaseSecret, Resources, Rule, Shape, TaskId,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

const MAX_EVENTS: usize = 600;

/// So many pools and groups are open at a time.
const MAX_OPEN: usize = 4;

struct Bench {
    core: Client<u32>,
    functions: Vec<FunctionId>,
    tasks: Vec<(TaskKey, TaskId)>,
    groups: Vec<Shape>,
    pools: Vec<PoolId>,
    shapes: Vec<Shape>,
    /// What leases of a shape were last asked for, if that must exist once.
    wanted: BTreeMap<Shape, Option<ExclusiveId>>,
    keys: BTreeSet<LeaseKey>,
    head_up: bool,
    tickets: u32,
    pending: BTreeSet<u32>,
}

/// Hands the client the events that these bytes stand for, and lets its user do anything.
pub fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let heartbeat = if input.flag() { Duration::from_secs(2) } else { Duration::ZERO };
    let config = Config { heartbeat, max_leases: 6, max_window: 4, ..Config::default() };
    let mut core = Client::new(ClientId(1), "test", config);
    let functions = (0..2).map(|number| core.define(Bytes::from(vec![number]))).collect();
    let mut bench = Bench {
        core,
        functions,
        tasks: Vec::new(),
        groups: Vec::new(),
        pools: Vec::new(),
        shapes: vec![Shape::cpus(1)],
        wanted: BTreeMap::new(),
        keys: BTreeSet::new(),
        head_up: false,
        tickets: 0,
        pending: BTreeSet::new(),
    };
    for _ in 0..MAX_EVENTS {
        if input.is_empty() {
            return;
        }
        let mut out = Vec::new();
        bench.act(&mut input, &mut out);
        for effect in out {
            bench.perform(effect);
        }
        if let Err(broken) = bench.core.check() {
            panic!("{broken}");
        }
    }
}

impl Bench {
    fn perform(&mut self, effect: Effect<u32>) {
        match effect {
            Effect::DropHead => self.head_up = false,
            Effect::ToHead(ClientToHead::Want { shape, exclusive, .. }) => {
                self.wanted.insert(shape, exclusive);
            }
            Effect::Open { key, .. } => drop(self.keys.insert(key)),
            Effect::Close { key } => drop(self.keys.remove(&key)),
            Effect::Send { key, .. } => self.core.outgoing(key, &mut Vec::new()),
            Effect::Finished { ticket, .. } => {
                assert!(self.pending.remove(&ticket), "CL-1: {ticket} ends twice");
            }
            _ => {}
        }
    }

    fn ticket(&mut self) -> u32 {
        self.tickets += 1;
        self.pending.insert(self.tickets);
        self.tickets
    }

    fn key(&self, input: &mut Input<'_>) -> LeaseKey {
        let index = usize::from(input.byte());
        match self.keys.iter().nth(index % self.keys.len().max(1)) {
            Some(&key) if !input.rarely() => key,
            _ => LeaseKey(index % 8),
        }
    }

    fn shape(&mut self, input: &mut Input<'_>) -> Shape {
        let index = usize::from(input.byte());
        if index < 16 {
            let shape = input.shape();
            self.shapes.push(shape);
            self.shapes.truncate(12);
        }
        self.shapes[index % self.shapes.len()]
    }

    fn act(&mut self, input: &mut Input<'_>, out: &mut Vec<Effect<u32>>) {
        input.pass();
        let now = input.now;
        match input.byte() {
            0..=7 => self.core.handle(now, Event::Tick, out),
            8..=15 if !self.head_up => {
                self.head_up = true;
                self.core.handle(now, Event::HeadUp, out);
            }
            8..=11 => {
                self.head_up = false;
                self.core.handle(now, Event::HeadDown, out);
            }
            16..=35 => {
                let key = self.key(input);
                self.core.handle(now, Event::LinkUp(key), out);
            }
            36..=41 => {
                let key = self.key(input);
                self.core.handle(now, Event::LinkDown(key), out);
            }
            42..=99 => {
                let (key, message) = (self.key(input), from_slot(input));
                self.core.handle(now, Event::FromSlot(key, message), out);
            }
            100..=139 => self.submit(input, out),
            140..=145 => {
                let index = usize::from(input.byte());
                if let Some(&(key, id)) = self.tasks.get(index % self.tasks.len().max(1)) {
                    self.core.cancel(key, id, input.flag(), out);
                }
            }
            146 => {
                let odd = u32::from(input.flag());
                self.core.cancel_all(|ticket| ticket % 2 == odd, out);
            }
            147 => self.core.kill_interrupted(out),
            148..=150 => {
                let lease = input.lease();
                self.core.work_under(lease, out);
            }
            151..=153 => {
                let has = input.resources();
                if let Some(here) = self.core.take_here(&has, out) {
                    self.pending.remove(&here.ticket);
                }
            }
            154..=163 => self.use_group(input, out),
            164..=183 => self.use_pool(input, out),
            184..=195 => self.use_actor(input, out),
            _ => {
                let message = self.head_message(input);
                self.core.handle(now, Event::FromHead(message), out);
            }
        }
    }

    fn spec(&mut self, input: &mut Input<'_>) -> Spec {
        let near = |input: &mut Input<'_>| Near {
            nodes: Arc::from(vec![input.node()]),
            patience: Duration::from_millis(input.below(200)),
        };
        Spec {
            function: self.functions[input.below(2) as usize],
            payload: Bytes::from(input.text()),
            shape: if input.rarely() { input.shape() } else { Shape::cpus(1) },
            retries: input.below(3) as u32,
            retry_on: RetryOn { raised: input.flag(), timeout: input.flag(), ..RetryOn::default() },
            timeout: Duration::from_secs(input.below(2)),
            priority: [0, 0, 5, -5][input.below(4) as usize],
            wait: Duration::from_secs(input.below(2)),
            within: Within::Any,
            near: if input.rarely() { Some(near(input)) } else { None },
        }
    }

    fn submit(&mut self, input: &mut Input<'_>, out: &mut Vec<Effect<u32>>) {
        let mut spec = self.spec(input);
        let index = usize::from(input.byte());
        match input.byte() {
            0..=149 => {}
            150..=179 if !self.groups.is_empty() => {
                spec.shape = self.groups[index % self.groups.len()];
                spec.within = Within::Member(input.below(2) as u32);
            }
            180..=219 if !self.pools.is_empty() => {
                let pool = self.pools[index % self.pools.len()];
                (spec.shape, spec.within) = (pool.shape, Within::Pool(pool.number));
            }
            220..=255 => spec.within = Within::Guest(input.actor()),
            _ => {}
        }
        if spec.within != Within::Any {
            spec.near = None;
        }
        let ticket = self.ticket();
        let task = self.core.submit(input.now, spec, ticket, out);
        self.tasks.push(task);
        if self.tasks.len() > 40 {
            self.tasks.remove(0);
        }
    }

    fn use_group(&mut self, input: &mut Input<'_>, out: &mut Vec<Effect<u32>>) {
        if self.groups.len() < MAX_OPEN && input.flag() {
            let size = 1 + input.below(2) as u32;
            let shape = self.core.open_group(size, Resources::cpus(1), input.program(), Rule::default(), out);
            self.shapes.push(shape);
            self.groups.push(shape);
        } else if input.rarely() && !self.groups.is_empty() {
            let shape = self.groups.remove(0);
            self.core.close_group(&shape, out);
        }
    }

    fn use_pool(&mut self, input: &mut Input<'_>, out: &mut Vec<Effect<u32>>) {
        let index = usize::from(input.byte());
        if self.pools.is_empty() || self.pools.len() < MAX_OPEN && input.rarely() {
            let once = input.flag();
            let spec = PoolSpec {
                size: if once { 1 } else { 1 + input.below(2) as u32 },
                eager: input.flag(),
                once,
                restarts: input.option(|input| input.below(2) as u32),
                owner_program: input.flag().then(|| "owner".into()),
                calls_per_slot: input.option(|input| 1 + input.below(3) as u32),
                history: 8,
                needs: Resources::cpus(input.below(2)),
                program: input.program(),
                rule: Rule::default(),
                exclusive: input.exclusive(),
            };
            let pool = self.core.open_pool(spec, out);
            self.shapes.push(pool.shape);
            return self.pools.push(pool);
        }
        let pool = self.pools[index % self.pools.len()];
        match input.below(10) {
            0 => {
                self.pools.retain(|it| *it != pool);
                self.core.close_pool(&pool, out);
            }
            1 => self.core.finish_pool(&pool, out),
            2 => {
                let ticket = self.ticket();
                self.core.pool_ready(&pool, input.below(3) as u32, ticket, out);
            }
            3 => {
                let ticket = self.ticket();
                self.core.pool_ended(&pool, ticket, out);
            }
            4 => {
                let ticket = self.ticket();
                self.core.pool_drained(&pool, ticket, out);
            }
            5 => {
                self.core.cancel_waiting(&pool, input.below(3) as usize, out);
            }
            6 => {
                let card = Card { name: None, about: Vec::new(), program: None };
                self.core.host_pool(input.actor(), Some(card), &pool, out);
            }
            _ => {
                let call = Standing {
                    function: self.functions[0],
                    payload: Bytes::from(input.text()),
                    name: "update".into(),
                    replaces: input.option(|_| Bytes::from_static(b"k")),
                };
                let ticket = if input.flag() { Some(self.ticket()) } else { None };
                let accepted = self.core.update_pool(input.now, &pool, call, ticket, out).is_ok();
                if let Some(ticket) = ticket.filter(|_| !accepted) {
                    self.pending.remove(&ticket);
                }
            }
        }
    }

    fn use_actor(&mut self, input: &mut Input<'_>, out: &mut Vec<Effect<u32>>) {
        let actor = input.actor();
        match input.below(6) {
            0 | 1 => self.core.visit(actor, out),
            2 => self.core.leave_actor(actor, out),
            3 => {
                let card = Card { name: input.option(Input::name), about: Vec::new(), program: None };
                let lease = input.option(Input::lease);
                self.core.host_actor(actor, card, lease, out);
            }
            4 => {
                let lease = input.option(Input::lease);
                self.core.move_actor(actor, lease, out);
            }
            _ => self.core.end_actor(actor, "over", out),
        }
    }

    fn head_message(&mut self, input: &mut Input<'_>) -> HeadToClient {
        let lease = input.lease();
        match input.byte() {
            0..=24 => {
                let timing = input.timing();
                let epoch = Epoch((1 + input.below(3)) << 32);
                HeadToClient::Welcome { cluster: ClusterId(9), epoch, timing }
            }
            25..=99 => {
                let (node, slot, shape) = (input.node(), input.slot(), self.shape(input));
                let (incarnation, secret) = (input.incarnation(), LeaseSecret::default());
                let exclusive = self.wanted.get(&shape).copied().flatten();
                HeadToClient::Granted { lease, node, slot, shape, incarnation, secret, exclusive }
            }
            100..=109 => HeadToClient::Recall { lease },
            110..=119 => HeadToClient::Crowded { shape: self.shape(input) },
            120..=159 => HeadToClient::Ended { lease, death: input.death() },
            160..=167 => HeadToClient::Unplaceable {
                shape: self.shape(input),
                largest: input.resources(),
                why: "no".into(),
            },
            168..=173 => HeadToClient::ProgramFailed { program: input.program(), why: input.start_error() },
            174..=179 => {
                HeadToClient::Heartbeat { beat: [0, input.now.0, u64::MAX][input.below(3) as usize] }
            }
            180..=183 => HeadToClient::Over,
            184 => HeadToClient::Bye { by: "x".into() },
            185 => HeadToClient::Refused { why: "x".into() },
            186..=195 => HeadToClient::Waits { shape: self.shape(input), why: "room".into() },
            196..=219 => HeadToClient::Visiting {
                actor: input.actor(),
                lease,
                node: input.node(),
                slot: input.slot(),
                secret: LeaseSecret::default(),
            },
            220..=231 => HeadToClient::ActorGone { actor: input.actor(), why: Gone::default() },
            232..=243 => HeadToClient::ActorAway { actor: input.actor(), why: "away".into() },
            _ => HeadToClient::ActorKnown { actor: input.actor(), refused: input.option(|_| "no".into()) },
        }
    }
}

fn from_slot(input: &mut Input<'_>) -> FromSlot {
    match input.byte() {
        0..=39 => FromSlot::Hello { received: input.seq() },
        40..=179 => {
            let reply = |input: &mut Input<'_>| {
                let statuses = [
                    Status::Value,
                    Status::Raised,
                    Status::Unsendable,
                    Status::Cancelled,
                    Status::Withdrawn,
                    Status::TimedOut,
                ];
                Reply {
                    seq: input.seq(),
                    status: statuses[input.below(6) as usize],
                    took: Duration::from_millis(input.below(50)),
                    payload: Bytes::from(input.text()),
                }
            };
            let first = if input.rarely() { u64::MAX } else { input.below(6) };
            FromSlot::Replies { first, replies: input.some(3, reply) }
        }
        180..=219 => FromSlot::Running { call: input.seq() },
        _ => FromSlot::Begun { calls: input.some(2, Input::seq) },
    }
}
