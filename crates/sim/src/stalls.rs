//! Processes that stand still, machines that are suspended, and clocks that go at rates of their own.
//!
//! A process that stands still (SIGSTOP, a debugger) does nothing: what is for it waits, and is handled in order when it
//! goes on. With a machine that is suspended all its processes stand still. Clocks go on meanwhile.
//!
//! * ON-1: at no time are there two processes that both are the same actor, or the same work, and may run.

use crate::node::NodeHost;
use crate::process::{Life, Process};
use crate::random::Random;
use crate::world::{Event, START, Sim};
use paceline_core::Tick;
use paceline_core::client::PoolSpec;
use paceline_proto::{DeathCause, ProgramId, Resources, Rule, SlotId};
use std::collections::VecDeque;
use std::time::Duration;

/// Clocks may be wrong by so many parts of a million: what the fences of the head allow for.
const CLOCK_ERROR_PPM: u64 = 10_000;

/// What waits for a process that stands still.
pub(crate) struct Standstill<E> {
    until: Tick,
    waiting: VecDeque<E>,
}

impl<E> Default for Standstill<E> {
    fn default() -> Standstill<E> {
        Standstill { until: Tick::ZERO, waiting: VecDeque::new() }
    }
}

impl<E> Standstill<E> {
    /// Keeps the event if the process stands still. Gives it back if not.
    pub fn keep(&mut self, now: Tick, event: E) -> Option<E> {
        if self.until <= now && self.waiting.is_empty() {
            return Some(event);
        }
        self.waiting.push_back(event);
        None
    }

    /// Until when it stands still, if it does.
    pub fn until(&self, now: Tick) -> Option<Tick> {
        Some(self.until).filter(|until| *until > now)
    }

    /// Whether something waits that happened before now.
    pub fn is_behind(&self) -> bool {
        !self.waiting.is_empty()
    }

    fn next(&mut self, now: Tick) -> Option<E> {
        if self.until > now { None } else { self.waiting.pop_front() }
    }
}

/// The clock of one machine.
#[derive(Clone, Copy, Default)]
pub(crate) struct Clock {
    /// How much faster it is than the time of the world, in parts of a million.
    ppm: i64,
}

impl Clock {
    pub fn random(random: &mut Random) -> Clock {
        Clock { ppm: random.within(0..2 * CLOCK_ERROR_PPM + 1) as i64 - CLOCK_ERROR_PPM as i64 }
    }

    pub fn read(self, now: Tick) -> Tick {
        let passed = now.since(START).as_nanos() * (1_000_000 + self.ppm) as u128 / 1_000_000;
        Tick(START.0 + passed as u64)
    }

    /// When it shows this.
    pub fn when(self, shown: Tick) -> Tick {
        if self.ppm == 0 {
            return shown;
        }
        let passed = shown.since(START).as_nanos() * 1_000_000;
        Tick(START.0 + passed.div_ceil((1_000_000 + self.ppm) as u128) as u64)
    }
}

impl Sim {
    /// The clock of a machine that is added.
    pub(crate) fn some_clock(&mut self) -> Clock {
        self.clocks.as_mut().map_or(Clock::default(), Clock::random)
    }

    /// How long something stands still: for less than a heartbeat, for some, or for longer than anybody waits.
    pub(crate) fn some_standstill(&mut self) -> Duration {
        let (beat, lost) = (self.settings.node.heartbeat, self.settings.node.head_lost);
        match self.random.below(3) {
            0 => self.random.span(Duration::from_micros(100)..beat),
            1 => self.random.span(beat..beat * 5),
            _ => self.random.span(lost / 2..lost * 2),
        }
    }

    pub(crate) fn stall_node(&mut self, node: usize, span: Duration) {
        if self.nodes[node].core.is_some() {
            self.note(|sim| format!("node {} stands still for {span:?}", sim.nodes[node].name));
            self.ledger.tally.stalls += 1;
            let until = self.now + span;
            self.nodes[node].standstill.until = self.nodes[node].standstill.until.max(until);
            self.after(span, Event::NodeGoesOn { node });
        }
    }

    /// Everything on the machine of a node stands still.
    pub(crate) fn suspend_machine(&mut self, node: usize, span: Duration) {
        if self.nodes[node].core.is_some() {
            self.ledger.tally.suspends += 1;
            self.stall_node(node, span);
            let until = self.now + span;
            self.nodes[node].suspended_until = self.nodes[node].suspended_until.max(until);
            for process in self.nodes[node].slots.values().copied().collect::<Vec<_>>() {
                let paused = &mut self.processes[process].paused_until;
                *paused = (*paused).max(until);
            }
        }
    }

    pub(crate) fn stall_head(&mut self, at: usize, span: Duration) {
        if self.heads[at].core.is_some() {
            self.note(|_| format!("head {at} stands still for {span:?}"));
            self.ledger.tally.stalls += 1;
            let until = self.now + span;
            self.heads[at].standstill.until = self.heads[at].standstill.until.max(until);
            self.after(span, Event::HeadGoesOn { head: at });
        }
    }

    pub(crate) fn stall_client(&mut self, client: usize, span: Duration) {
        if self.clients[client].alive && self.clients[client].slot.is_none() {
            self.note(|_| format!("client {client} stands still for {span:?}"));
            self.ledger.tally.stalls += 1;
            let until = self.now + span;
            self.clients[client].standstill.until = self.clients[client].standstill.until.max(until);
            self.after(span, Event::ClientGoesOn { client });
        }
    }

    pub(crate) fn node_goes_on(&mut self, node: usize) {
        if self.nodes[node].suspended_until <= self.now {
            self.zygotes_kill(node);
            self.check_copies(node);
        }
        while let Some(event) = self.nodes[node].standstill.next(self.now) {
            self.node_takes(node, event);
        }
    }

    pub(crate) fn head_goes_on(&mut self, at: usize) {
        while let Some(event) = self.heads[at].standstill.next(self.now) {
            self.head_takes(at, event);
        }
    }

    pub(crate) fn client_goes_on(&mut self, client: usize) {
        while let Some(event) = self.clients[client].standstill.next(self.now) {
            self.client_takes(client, event);
        }
    }

    /// The zygotes are told when slots have to have ended.
    pub(crate) fn zygotes_are_told(&mut self, node: usize, slots: Vec<(SlotId, Tick)>) {
        let clock = self.nodes[node].clock;
        if let Some(first) = slots.iter().map(|(_, at)| *at).min() {
            self.agenda.add(clock.when(first), Event::ZygotesKill { node });
        }
        self.nodes[node].kill_at.extend(slots);
    }

    pub(crate) fn zygotes_kill(&mut self, node: usize) {
        let NodeHost { clock, suspended_until, .. } = self.nodes[node];
        // It is looked at again when the machine goes on.
        if suspended_until > self.now {
            return;
        }
        let shows = clock.read(self.now);
        let due = self.nodes[node].kill_at.iter().filter(|(_, at)| **at <= shows);
        for slot in due.map(|(slot, _)| *slot).collect::<Vec<_>>() {
            if let Some(&process) = self.nodes[node].slots.get(&slot) {
                self.kill(process, DeathCause::Signal(9));
            }
        }
    }

    /// Whether user code of this process may run, now or whenever something wakes it.
    fn may_run(&self, process: &Process) -> bool {
        let suspended = self.nodes[process.node].suspended_until > self.now;
        matches!(process.life, Life::Starting | Life::Alive) && !suspended
    }

    /// Another process that is the same actor, or the same work, as this one (ON-1).
    pub(crate) fn twin_of(&self, process: usize) -> Option<usize> {
        let own = &self.processes[process];
        let actor = own.pool.filter(|pool| self.pools[*pool].once);
        let same = |other: &Process| {
            actor.is_some() && other.pool == actor || own.work.is_some() && other.work == own.work
        };
        let mut others = self.processes.iter().enumerate();
        others.find(|(at, other)| *at != process && same(other) && self.may_run(other)).map(|(at, _)| at)
    }

    /// ON-1, of a process that has become something.
    pub(crate) fn check_copy(&self, process: usize) {
        if let Some(other) = self.twin_of(process) {
            let Process { pool, work, .. } = &self.processes[process];
            let (a, b) = (self.slot_name(other), self.slot_name(process));
            panic!("ON-1: pool {pool:?}, work {work:?} is {a} and {b}");
        }
    }

    /// The same of all on this machine.
    fn check_copies(&self, node: usize) {
        for &process in self.nodes[node].slots.values() {
            if self.may_run(&self.processes[process]) {
                self.check_copy(process);
            }
        }
    }
}

/// For scenarios.
impl Sim {
    /// An actor of the first client that is rebuilt as often as it takes. Returns its number.
    pub fn actor(&mut self) -> usize {
        self.open_actor(0, Resources::cpus(1))
    }

    /// The same of any client, and of a size of its own.
    pub(crate) fn open_actor(&mut self, client: usize, needs: Resources) -> usize {
        let spec = PoolSpec {
            size: 1,
            eager: true,
            once: true,
            exclusive: None,
            restarts: None,
            owner_program: None,
            calls_per_slot: None,
            history: 1 << 20,
            needs,
            program: ProgramId::OWN,
            rule: Rule::default(),
        };
        let pool = self.open_pool(client, spec);
        self.update_pool(pool, Duration::from_millis(1), 0, false, None, false);
        pool
    }

    /// The node where the actor lives; none while it has no living copy.
    pub fn actor_at(&self, actor: usize) -> Option<&str> {
        let lives = |process: &&Process| process.pool == Some(actor) && process.life == Life::Alive;
        let process = self.processes.iter().rfind(lives)?;
        Some(&self.nodes[process.node].name)
    }

    /// How many processes have been this actor.
    pub fn copies_of(&self, actor: usize) -> usize {
        self.processes.iter().filter(|process| process.pool == Some(actor)).count()
    }

    /// The client has no more use for it.
    pub fn end_actor_pool(&mut self, actor: usize) {
        self.pool_ends(actor);
    }

    /// The process of a node stands still for so long; its slots do not.
    pub fn stop_node(&mut self, name: &str, span: Duration) {
        let node = self.node_named(name);
        self.stall_node(node, span);
    }

    /// The machine of a node is suspended for so long.
    pub fn suspend(&mut self, name: &str, span: Duration) {
        let node = self.node_named(name);
        self.suspend_machine(node, span);
    }

    /// The clocks of the head's machine and of those of the nodes are faster by so many parts of a million. To be said
    /// before anything happens.
    pub fn set_clocks(&mut self, head: i64, nodes: i64) {
        self.heads[0].clock = Clock { ppm: head };
        self.nodes.iter_mut().for_each(|host| host.clock = Clock { ppm: nodes });
    }
}
