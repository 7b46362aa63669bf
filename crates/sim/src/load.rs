//! What clients do.

use crate::client::{FUNCTIONS, PROGRAMS};
use crate::job::{Fate, Job};
use crate::random::{Random, mix};
use crate::world::{Event, Sim};
use paceline_core::client::RetryOn;
use paceline_proto::{NodeId, Part, Resources, Shape};
use std::time::Duration;

/// Share of nested tasks that return without waiting for their children.
const LEAVING_PERCENT: u64 = 25;

/// What the tasks of a run are like.
#[derive(Default)]
pub(crate) struct Load {
    pub active: bool,
    /// Share of calls that print something.
    pub chatter: u64,
    /// The functions in use; each has tasks of another length.
    functions: Vec<u8>,
    shapes: Vec<Shape>,
    /// Share of tasks that kill their slot.
    poison: u64,
    /// Share of actions that end tasks.
    cancels: u64,
    priorities: bool,
    /// Share of tasks that have not all the time they want.
    hasty: u64,
    retry_on: RetryOn,
    /// Share of tasks that go on beside others.
    overlap: u64,
    /// Share of tasks that submit tasks.
    nesting: u64,
    pub pause: Duration,
    /// A client with so many tasks submits no more.
    most: usize,
    /// Share of actions that are about groups.
    groups: u64,
    /// Share of tasks that had better run on one node.
    pub near: u64,
    /// Share of actions that are about actors.
    pub actors: u64,
    /// Share of actions that are about pools.
    pub pools: u64,
}

impl Load {
    pub fn random(random: &mut Random) -> Load {
        let half = Shape::of(Resources::fractional_cpus(0.5).expect("half a CPU is a number"));
        let with = |gpus, memory| {
            let needs = Resources::cpus(1).with(Part::Gpus(gpus)).expect("it is a sensible number");
            Shape::of(needs.and_memory(memory))
        };
        let shapes = match random.below(8) {
            0 => vec![Shape::cpus(1), Shape::cpus(2)],
            1 => vec![Shape::cpus(1), half],
            2 => vec![half, Shape::cpus(1), Shape::cpus(2), Shape::cpus(3), Shape::default()],
            3 => vec![with(1.0, 0), with(0.4, 0), with(2.0, 0), Shape::cpus(1)],
            4 => vec![with(0.0, 3), with(0.5, 5), Shape::cpus(1)],
            _ => vec![Shape::cpus(1)],
        };
        // In some runs, slots of several programs share the CPUs.
        let of = |number| Shape { program: PROGRAMS.id(number), ..Shape::cpus(1) };
        let others = match random.below(4) {
            0 => vec![of(0)],
            1 => vec![of(0), of(1), Shape { needs: half.needs, ..of(1) }],
            _ => vec![],
        };
        let shapes = [shapes, others].concat();
        let count = random.within(1..4);
        let chatter = random.pick(&[0, 5]);
        let functions: Vec<u8> = (0..count).map(|_| random.below(usize::from(FUNCTIONS)) as u8).collect();
        Load {
            active: true,
            chatter,
            functions: functions.clone(),
            shapes,
            poison: random.pick(&[0, 0, 1, 10]),
            cancels: random.pick(&[0, 3, 15]),
            priorities: random.percent(40),
            hasty: random.pick(&[0, 0, 10]),
            retry_on: RetryOn {
                slot_lost: random.percent(90),
                node_lost: random.percent(90),
                timeout: random.percent(50),
                raised: random.percent(30),
                memory: random.percent(30),
            },
            overlap: if functions.len() == 2 { 25 } else { 0 },
            nesting: random.pick(&[0, 0, 5, 30]),
            pause: Duration::from_micros(random.pick(&[100, 2_000, 50_000])),
            most: random.pick(&[3, 30, 150]),
            groups: random.pick(&[0, 0, 3, 20]),
            near: 0,
            actors: 0,
            pools: 0,
        }
    }

    pub(crate) fn job(&self, random: &mut Random) -> Job {
        let micros = |low, high| Duration::from_micros(low)..Duration::from_micros(high);
        let function = self.functions[random.below(self.functions.len())];
        let takes = match function {
            0 => micros(1, 20),
            1 => micros(50, 500),
            2 => micros(1_000, 10_000),
            3 => micros(20_000, 1_000_000),
            _ => micros(1, 1_000_000),
        };
        let fate = match random.below(100) {
            dice if (dice as u64) < self.poison => Fate::Kills,
            90..95 => Fate::Raises,
            95 => Fate::Unsendable,
            _ => Fate::Value,
        };
        let shape = self.shapes[random.below(self.shapes.len())];
        let inner = if random.percent(80) { shape } else { self.shapes[random.below(self.shapes.len())] };
        let mut job = Job {
            takes: random.span(takes),
            fate,
            shape,
            inner,
            priority: if self.priorities { random.pick(&[0, 0, 0, 5, -5]) } else { 0 },
            retries: random.pick(&[3, 3, 3, 0, 1, 10]),
            retry_on: self.retry_on,
            timeout: if random.percent(self.hasty) {
                random.span(Duration::from_micros(100)..Duration::from_millis(200))
            } else {
                Duration::ZERO
            },
            stubborn: random.percent(30),
            beside: false,
            function,
            size: random.pick(&[0, 0, 0, 0, 100, 20_000]),
            children: random.within(1..3) as u8,
            levels: if random.percent(self.nesting) { random.within(1..3) as u8 } else { 0 },
            leaves: false,
            member: None,
            pool: None,
            actor: None,
            near: None,
        };
        // By its length, so that loads without it draw the numbers they always drew.
        job.leaves = job.levels > 0 && mix(job.takes.as_nanos() as u64 ^ 0x6c656176) % 100 < LEAVING_PERCENT;
        if job.leaves {
            // What is left behind calls something that calls something: it may come back to the slot of the one that left.
            job.levels += 2;
            job.children = 1;
        }
        // Those that kill, nest or have a deadline need the main thread, which is where deaths are charged.
        let plain = job.fate != Fate::Kills && job.levels == 0 && job.timeout.is_zero();
        // By its length, so that loads without it draw the numbers they always drew.
        job.beside = plain && mix(job.takes.as_nanos() as u64) % 100 < self.overlap;
        job
    }
}

impl Sim {
    pub(crate) fn client_acts(&mut self, client: usize) {
        if !self.load.active || !self.clients[client].alive {
            return;
        }
        let room = self.load.most.saturating_sub(self.clients[client].core.pending());
        let longest = self.load.pause * if self.random.percent(3) || room == 0 { 50 } else { 1 };
        let pause = self.random.span(Duration::from_micros(10)..longest);
        self.after(pause, Event::Acts { client });
        if self.random.percent(self.load.cancels) {
            return self.cancel_some(client);
        }
        if self.random.percent(self.load.groups) {
            return self.some_group(client);
        }
        if self.load.actors > 0 && self.random.percent(self.load.actors) {
            return self.some_actor(client);
        }
        if self.random.percent(self.load.pools) {
            return self.some_pool(client);
        }
        let count = self.random.pick(&[1, 1, 4, 40]).min(room);
        for _ in 0..count {
            let job = self.load.job(&mut self.random);
            if !self.clients[client].core.has_room(job.size) {
                // It comes again, as one would who waits for room.
                self.ledger.tally.full += 1;
                return;
            }
            self.submit_job(client, job);
        }
    }

    /// Where a task had better run. By its length, so that loads without it draw the numbers they always drew.
    pub(crate) fn near_of(&self, job: &Job) -> Option<(NodeId, NodeId, Duration)> {
        let placed = job.member.is_some() || job.pool.is_some() || job.actor.is_some();
        if placed || job.near.is_some() {
            return job.near.filter(|_| !placed);
        }
        let dice = mix(job.takes.as_nanos() as u64 ^ 0x6e656172);
        // One node more than there are: it has gone.
        let node = |dice: u64| NodeId(1 + dice % (self.nodes.len() as u64 + 1));
        let patience = Duration::from_micros((dice >> 16) % 300_000);
        (dice % 100 < self.load.near).then_some((node(dice >> 8), node(dice >> 40), patience))
    }

    fn cancel_some(&mut self, client: usize) {
        if self.random.percent(20) {
            return self.kill_interrupted(client);
        }
        let first = self.ledger.entries.len().saturating_sub(400);
        let open: Vec<usize> = (first..self.ledger.entries.len())
            .filter(|task| self.ledger.entries[*task].client == client)
            .filter(|task| self.ledger.entries[*task].outcome.is_none())
            .collect();
        if open.is_empty() {
            return;
        }
        if self.random.percent(5) {
            let remainder = self.random.below(3);
            for task in open.iter().filter(|task| **task % 3 == remainder) {
                self.ledger.entries[*task].cancelled = true;
            }
            self.note(|_| format!("client {client} cancels every third task"));
            return self.client_does(client, |core, out| {
                core.cancel_all(|ticket| *ticket >= first && ticket % 3 == remainder, out);
            });
        }
        let task = self.random.pick(&open);
        let anyway = self.random.percent(50);
        self.cancel_task(task, anyway);
    }
}
