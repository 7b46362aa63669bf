//! Hand-made scenarios: a cluster built in one line, and what a test does to it.
//!
//! ```
//! use paceline_sim::{How, Job, News, Sim, cpus, ms};
//!
//! let mut sim = Sim::new().node("a", cpus(1)).node("b", cpus(1));
//! let task = sim.submit(Job::new().takes(ms(50)));
//! sim.run_until_begun(task);
//! sim.lose("a");
//! sim.run_until("the task ends", |sim| sim.outcome(task).is_some());
//! let began = |attempt, node: &str| News::Began { task, attempt, node: node.into() };
//! assert_eq!(sim.news(), [began(1, "a"), began(2, "b"), News::Ended { task, how: How::Value }]);
//! sim.finish();
//! ```

use crate::client::PROGRAMS;
use crate::job::Job;
use crate::ledger::RunState;
use crate::link::{Delay, LinkId};
use crate::news::How;
use crate::process::Life;
use crate::trace::Tracing;
use crate::world::{START, Settings, Sim};
use paceline_core::{client, head, node};
use paceline_proto::control::Timing;
use paceline_proto::{ClusterId, DeathCause, Epoch, Incarnation, NodeId, ProgramId, Resources, Rule};
use std::time::Duration;

/// Whole CPUs.
pub fn cpus(count: u64) -> Resources {
    Resources::cpus(count)
}

pub fn us(micros: u64) -> Duration {
    Duration::from_micros(micros)
}

pub fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Longer than anything that a scenario waits for.
const PATIENCE: Duration = Duration::from_secs(120);
const MOST_STEPS: u64 = 100_000;

impl Default for Sim {
    fn default() -> Sim {
        Sim::new()
    }
}

impl Sim {
    /// A cluster without nodes, with the default settings and quick links that never fail by themselves.
    pub fn new() -> Sim {
        let quick = Delay { least: us(20), most: us(20) };
        let settings = Settings {
            head: head::Config::new(ClusterId(7), Epoch(1), [7; 32]),
            client: client::Config::default(),
            node: node::Config::new(NodeId(0), Incarnation(0), Resources::default()),
            delays: vec![quick],
            repeat_percent: 0,
            batch: Duration::ZERO,
            fork: Delay { least: ms(5), most: ms(5) },
            grace: Duration::from_secs(2),
            late: Duration::ZERO,
            redial: Some(ms(1000)),
        };
        Sim::empty(None, settings, Tracing::Last)
    }

    /// At most so many tasks of a node may wait for others.
    pub fn blocked(mut self, most: usize) -> Sim {
        self.settings.node.max_blocked = most;
        self
    }

    pub fn node(mut self, name: &str, total: Resources) -> Sim {
        self.add_node(name, total);
        self
    }

    pub fn client(mut self, name: &str) -> Sim {
        self.add_client(name);
        self
    }

    /// Submit a task for the first client. Returns its number.
    pub fn submit(&mut self, job: Job) -> usize {
        if self.clients.is_empty() {
            self.add_client("main");
        }
        self.submit_job(0, job)
    }

    pub fn submit_as(&mut self, client: &str, job: Job) -> usize {
        let client = self.clients.iter().position(|host| host.name == client).expect("a known client");
        self.submit_job(client, job)
    }

    /// A group of the first client: so many members that need this. Returns its number.
    pub fn group(&mut self, size: u32, needs: Resources) -> usize {
        if self.clients.is_empty() {
            self.add_client("main");
        }
        self.open_group(0, size, needs, Rule::default())
    }

    /// Submit a task for one member of a group.
    pub fn submit_in(&mut self, group: usize, member: u32, job: Job) -> usize {
        self.submit_to_member(group, member, job)
    }

    pub fn end_group(&mut self, group: usize) {
        self.close_group(group);
    }

    /// End a task; `anyway` also if it runs. Says whether it did.
    pub fn cancel(&mut self, task: usize, anyway: bool) -> bool {
        self.cancel_task(task, anyway)
    }

    /// End at once what the first client has cancelled and still runs.
    pub fn kill_cancelled(&mut self) {
        self.kill_interrupted(0);
    }

    pub fn run_for(&mut self, span: Duration) {
        let until = self.now + span;
        let most = self.steps + MOST_STEPS;
        while self.agenda.next_at().is_some_and(|at| at <= until) {
            self.step();
            assert!(self.steps < most, "time does not pass");
        }
        self.now = until;
    }

    /// Run until something is the case; `what` names it should it never be.
    pub fn run_until(&mut self, what: &str, is_so: impl Fn(&Sim) -> bool) {
        let (until, most) = (self.now + PATIENCE, self.steps + MOST_STEPS);
        while !is_so(self) {
            let more = self.step() && self.steps < most;
            assert!(more && self.now < until, "it never came to this: {what}");
        }
    }

    pub fn run_until_begun(&mut self, task: usize) {
        self.run_until("the task begins", |sim| sim.slot_of(task).is_some());
    }

    /// Run until every task has ended and every lease is given back.
    pub fn finish(&mut self) {
        self.come_to_rest();
    }

    /// The machine of this name is gone, and nobody sees its links close.
    pub fn lose(&mut self, name: &str) {
        let node = self.node_named(name);
        self.lose_node(node, true);
    }

    /// The process of a node dies with its slots, and its machine says so.
    pub fn kill_node(&mut self, name: &str) {
        let node = self.node_named(name);
        self.lose_node(node, false);
    }

    /// It starts again.
    pub fn restore(&mut self, name: &str) {
        let node = self.node_named(name);
        self.node_returns(node);
    }

    /// For this long the node and the head do not hear each other; `with_data`: nobody hears the node.
    pub fn cut_off(&mut self, name: &str, span: Duration, with_data: bool) {
        let node = self.node_named(name);
        self.partition(node, self.now + span, with_data);
    }

    /// Break the link between a node and the head. It comes back within two heartbeats.
    pub fn cut_head_of(&mut self, name: &str) {
        let node = self.node_named(name);
        let link = self.nodes[node].head.expect("the node has a link to the head");
        self.break_link(link);
    }

    /// The head dies; it starts again with [`Sim::start_head`].
    pub fn kill_head(&mut self) {
        self.head_dies(0, false, None);
    }

    pub fn start_head(&mut self) {
        self.head_starts(0);
    }

    /// Starts the head again, with other settings.
    pub fn start_head_with(&mut self, heartbeat: Duration, head_lost: Duration) {
        self.set_timing(Timing { heartbeat, head_lost });
        self.head_starts(0);
    }

    /// A second head from a copy of the first one's journal.
    pub fn start_second_head(&mut self) {
        self.start_rival();
    }

    /// How many heads there are.
    pub fn heads(&self) -> usize {
        self.heads_alive().len()
    }

    /// For this long a client and the head do not hear each other.
    pub fn cut_off_from_head(&mut self, client: &str, span: Duration) {
        let client = self.clients.iter().position(|host| host.name == client).expect("a known client");
        self.cut_off_client(client, self.now + span);
    }

    /// The process of a client stands still for so long.
    pub fn stop_client(&mut self, client: &str, span: Duration) {
        let client = self.clients.iter().position(|host| host.name == client).expect("a known client");
        self.stall_client(client, span);
    }

    /// For this long a client and the slots of a node do not hear each other.
    pub fn cut_off_from_slots(&mut self, client: &str, name: &str, span: Duration) {
        let client = self.clients.iter().position(|host| host.name == client).expect("a known client");
        let node = self.node_named(name);
        self.cut_off_pair(client, node, self.now + span);
    }

    /// Clients and head hear from each other all the time, as between machines.
    pub fn beating(mut self) -> Sim {
        self.settings.client.heartbeat = self.settings.head.heartbeat;
        self
    }

    /// Kill the slot that runs this task.
    pub fn kill_slot_of(&mut self, task: usize) {
        let process = self.slot_of(task).expect("the task runs");
        self.kill(process, DeathCause::Signal(9));
    }

    /// Break all data links of a client.
    pub fn cut_links(&mut self, client: &str) {
        let host = self.clients.iter().find(|host| host.name == client).expect("a known client");
        let links: Vec<LinkId> = host.leases.values().filter_map(|serving| serving.link).collect();
        links.into_iter().for_each(|link| self.break_link(link));
    }

    /// The zygote of this node dies, and its slots with it.
    pub fn kill_zygote(&mut self, name: &str) {
        let node = self.node_named(name);
        self.zygote_dies(node, ProgramId::OWN);
    }

    /// The zygote of a program other than the clients' own dies, and its slots with it.
    pub fn kill_program(&mut self, name: &str, program: usize) {
        let node = self.node_named(name);
        self.zygote_dies(node, PROGRAMS.id(program));
    }

    /// Whether the zygote of such a program lives on a node.
    pub fn has_program(&self, name: &str, program: usize) -> bool {
        self.nodes[self.node_named(name)].zygotes.contains_key(&PROGRAMS.id(program))
    }

    /// How many slots of such a program are there, before they can take work or after.
    pub fn slots_of_program(&self, name: &str, program: usize) -> usize {
        self.processes_of(name, program).len()
    }

    pub fn kill_slots_of_program(&mut self, name: &str, program: usize) {
        for process in self.processes_of(name, program) {
            self.kill(process, DeathCause::Signal(9));
        }
    }

    fn processes_of(&self, name: &str, program: usize) -> Vec<usize> {
        let slots = self.nodes[self.node_named(name)].slots.values().copied();
        let is_one = |process: &usize| {
            let process = &self.processes[*process];
            process.program == PROGRAMS.id(program) && matches!(process.life, Life::Starting | Life::Alive)
        };
        slots.filter(is_one).collect()
    }

    /// From now on programs do not start.
    pub fn break_programs(&mut self, broken: bool) {
        self.plan.active = broken;
        self.plan.bad_zygotes = if broken { 100 } else { 0 };
    }

    /// The client leaves in an orderly way, or dies.
    pub fn end(&mut self, client: &str, dies: bool) {
        let client = self.clients.iter().position(|host| host.name == client).expect("a known client");
        self.end_client(client, dies);
    }

    /// How long the simulation has run.
    pub fn elapsed(&self) -> Duration {
        self.now.since(START)
    }

    /// How the task ended, if it has.
    pub fn outcome(&self, task: usize) -> Option<How> {
        self.ledger.entries[task].outcome.as_ref().map(How::from)
    }

    /// How often the task began.
    pub fn runs(&self, task: usize) -> usize {
        self.ledger.entries[task].runs.len()
    }

    /// How often tasks began that other tasks submitted.
    pub fn runs_of_inner(&self) -> usize {
        let inner = self.ledger.entries.iter().filter(|entry| entry.parent.is_some());
        inner.map(|entry| entry.runs.len()).sum()
    }

    /// Which node runs the task now.
    pub fn node_of(&self, task: usize) -> Option<&str> {
        self.slot_of(task).map(|process| self.nodes[self.processes[process].node].name.as_str())
    }

    /// How many leases a client has.
    pub fn leases(&self, client: &str) -> usize {
        self.clients.iter().find(|host| host.name == client).expect("a known client").leases.len()
    }

    /// How many slots live on a node.
    pub fn slots(&self, name: &str) -> usize {
        let slots = self.nodes[self.node_named(name)].slots.values();
        slots.filter(|process| self.is_alive(**process)).count()
    }

    /// Nothing is left: no task, no lease, no news that the test has not looked at.
    pub fn assert_quiet(&mut self) {
        assert!(self.is_at_rest(), "not quiet: {}", self.unrest());
        self.run_for(Duration::from_secs(30));
        assert!(self.is_at_rest(), "not quiet any more: {}", self.unrest());
        let news = self.news();
        assert!(news.is_empty(), "unexplained: {news:?}");
    }

    pub(crate) fn node_named(&self, name: &str) -> usize {
        self.nodes.iter().position(|host| host.name == name).expect("a known node")
    }

    pub(crate) fn slot_of(&self, task: usize) -> Option<usize> {
        let mut runs = self.ledger.entries[task].runs.iter().rev();
        runs.find(|run| run.state == RunState::Running).map(|run| run.process)
    }
}
