//! Whole runs under a seed: a random cluster, random work, random faults; then peace, in which everything must end.

use crate::faults::Plan;
use crate::isolation::Isolation;
use crate::link::Delay;
use crate::load::Load;
use crate::random::Random;
use crate::rivals::Rivals;
use crate::tally::Tally;
use crate::trace::Tracing;
use crate::world::{Event, START, Settings, Sim};
use paceline_core::{client, head, node};
use paceline_proto::{ClusterId, Epoch, Incarnation, NodeId, Resources};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::Duration;

/// More steps than any run needs to come to rest: machines that wake each other for ever are noticed.
const MOST_STEPS: u64 = 300_000;

/// What a run was like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    pub steps: u64,
    /// Virtual time.
    pub lasted: Duration,
    pub tally: Tally,
}

/// Run a seed. A failure panics, after the last steps and how to replay them were printed.
pub fn run(seed: u64, steps: u64) -> Report {
    match catch_unwind(AssertUnwindSafe(|| run_traced(seed, steps, Tracing::Off))) {
        Ok(report) => report,
        // Once more, with its last steps in writing.
        Err(reason) => {
            let again = catch_unwind(AssertUnwindSafe(|| run_traced(seed, steps, Tracing::Last)));
            let text = reason.downcast_ref::<String>().map(String::as_str);
            let text = text.or(reason.downcast_ref::<&str>().copied()).unwrap_or("it panicked");
            assert!(again.is_err(), "seed {seed} fails only at times, which breaks SM-1: {text}");
            eprintln!("{text}");
            resume_unwind(reason)
        }
    }
}

/// Run a seed, keeping or printing what happens.
pub fn run_traced(seed: u64, steps: u64, tracing: Tracing) -> Report {
    let mut sim = Sim::random(seed, steps, tracing);
    while sim.steps < steps && sim.step() {}
    sim.come_to_rest();
    Report { steps: sim.steps, lasted: sim.now.since(START), tally: sim.ledger.tally }
}

impl Sim {
    fn random(seed: u64, steps: u64, tracing: Tracing) -> Sim {
        let mut random = Random::new(seed ^ 0xc1u64 << 56);
        let mut sim = Sim::empty(Some((seed, steps)), settings(&mut random), tracing);
        // Drawn apart, so that a seed's cluster is the same with and without.
        sim.settings.node.stopped_limit =
            Some(Duration::from_millis(Random::new(seed ^ 0x57u64 << 56).pick(&[100, 1_000, 30_000])));
        let mut rates = Random::new(seed ^ 0xc7u64 << 56);
        sim.clocks = rates.percent(50).then_some(rates);
        sim.heads[0].clock = sim.some_clock();
        for node in 0..random.within(1..5) {
            let total = Resources::cpus(random.pick(&[1, 2, 2, 4])).and_gpus(random.pick(&[0, 1, 2, 3]));
            let total = total.and_memory(random.pick(&[0, 6, 10]));
            sim.add_node(&format!("n{}", node + 1), total);
        }
        for client in 0..random.within(1..5) {
            let client = sim.add_client(&format!("client-{client}"));
            sim.agenda.add(sim.now, Event::Acts { client });
        }
        sim.load = Load::random(&mut random);
        // Drawn apart, as below.
        sim.load.pools = Random::new(seed ^ 0x9au64 << 56).pick(&[0, 0, 5, 30]);
        sim.load.near = Random::new(seed ^ 0x4eu64 << 56).pick(&[0, 0, 20, 80]);
        let mut plan = Plan::random(&mut random);
        // Drawn apart, so that a seed's cluster and faults are the same with and without.
        let mut apart = Random::new(seed ^ 0xd7u64 << 56);
        let works = apart.percent(50) && !plan.has_rivals();
        sim.load.actors = Random::new(seed ^ 0xacu64 << 56).pick(&[0, 20, 60]);
        plan.full_disk = if works { apart.pick(&[0, 0, 5, 30]) } else { 0 };
        plan.slow_disk = if works { apart.pick(&[0, 0, 5, 30]) } else { 0 };
        plan.add_standstills(&mut Random::new(seed ^ 0x5au64 << 56));
        sim.start_faults(plan);
        // Two heads that run at the same time with different settings know nothing of each other's.
        let mut timings = Random::new(seed ^ 0x71u64 << 56);
        sim.timings = (timings.percent(30) && !sim.plan.has_rivals()).then_some(timings);
        if works {
            sim.start_works();
        }
        if let Some(isolation) = Isolation::of_seed(seed) {
            sim.start_isolation(isolation);
        }
        // Both heads have the work that is in the journal, and must agree on the timing.
        if let Some(rivals) = Rivals::of_seed(seed).filter(|_| !works && sim.timings.is_none()) {
            sim.start_rivals(rivals);
        }
        sim
    }

    /// Nothing goes wrong and nothing new is asked for: every task ends, and every lease is given back.
    pub(crate) fn come_to_rest(&mut self) {
        self.note(|_| "peace".into());
        self.heal();
        self.load.active = false;
        self.close_groups();
        self.close_actors();
        self.close_pools();
        let left = |task: &crate::ledger::Entry| {
            if task.outcome.is_none() { task.job.takes * task.job.most_runs() } else { Duration::ZERO }
        };
        let work: Duration = self.ledger.entries.iter().map(left).sum();
        // Links come back within twice `client_lost`, nodes within eight heartbeats; the rest is work.
        let limits = self.settings.head.client_lost * 4
            + self.settings.node.heartbeat * 40
            + self.settings.node.head_lost * 6;
        // Where clients take turns, each task may cost one.
        let open = self.ledger.entries.iter().filter(|task| task.outcome.is_none());
        let turns = Duration::from_secs(2) * open.map(|task| task.job.most_runs()).sum::<u32>();
        let until = self.now + (work * 2 + turns + limits + self.works_take() + Duration::from_secs(60));
        let most = self.steps + MOST_STEPS;
        let mut starts = 0;
        while !self.is_at_rest() {
            if std::mem::replace(&mut starts, self.ledger.tally.head_starts) != starts {
                self.end_forgotten_actors();
            }
            let more = self.step() && self.steps < most;
            assert!(more && self.now <= until, "no rest: {}", self.unrest());
        }
    }

    pub(crate) fn is_at_rest(&self) -> bool {
        self.ledger.open == 0
            && self.works_are_over()
            && self.clients.iter().all(|client| client.leases.is_empty() && client.core.pending() == 0)
            && self.clients.iter().all(|client| client.core.has_room(usize::MAX))
            && matches!(self.heads_alive()[..], [head] if self.leases_at(head).is_empty() && !self.has_actors(head))
    }

    /// Returns whether the head knows of actors that have not ended.
    fn has_actors(&self, head: usize) -> bool {
        self.heads[head].core.as_ref().is_some_and(|core| !core.actors().is_empty())
    }

    fn leases_at(&self, head: usize) -> Vec<head::LeaseStatus> {
        self.heads[head].core.as_ref().map(|core| core.status().leases).unwrap_or_default()
    }

    /// What keeps the cluster from being at rest.
    pub(crate) fn unrest(&self) -> String {
        let open: Vec<_> = (self.ledger.entries.iter().enumerate())
            .filter(|(_, entry)| entry.outcome.is_none())
            .map(|(task, entry)| (task, entry.client, entry.place, entry.job.shape))
            .take(5)
            .collect();
        let held: Vec<_> = (self.clients.iter().enumerate())
            .map(|(number, client)| (number, client.slot, client.leases.len(), client.core.pending()))
            .filter(|(_, _, leases, tasks)| leases + tasks > 0)
            .collect();
        let heads = self.heads_alive();
        let leases: Vec<_> = heads.iter().map(|head| (head, self.leases_at(*head))).collect();
        let works: Vec<_> =
            (0..self.works.len()).map(|work| (self.work_state(work), self.work_at(work))).collect();
        format!(
            "work: {works:?}; {} open tasks, among them {open:?}; leases and tasks of clients: {held:?}; at the heads: {leases:?}",
            self.ledger.open
        )
    }
}

fn settings(random: &mut Random) -> Settings {
    let millis = Duration::from_millis;
    let heartbeat = millis(random.pick(&[50, 300, 2000]));
    let mut head = head::Config::new(ClusterId(7), Epoch(1), [7; 32]);
    head.heartbeat = heartbeat;
    head.client_lost = millis(random.pick(&[100, 2_000, 30_000]));
    head.max_leases = 16;
    head.head_lost = (heartbeat * random.pick(&[5, 30])).max(millis(1_000));
    head.quantum = millis(random.pick(&[5, 200]));
    let mut node = node::Config::new(NodeId(0), Incarnation(0), Resources::default());
    node.heartbeat = heartbeat;
    node.spares = random.within(0..3);
    node.warm = millis(random.pick(&[5, 200, 10_000]));
    node.head_lost = head.head_lost;
    node.grace = millis(random.pick(&[20, 500]));
    node.max_blocked = random.pick(&[0, 1, 3, 8]);
    node.program_idle = millis(random.pick(&[20, 300, 60_000]));
    let client = client::Config {
        max_window: random.pick(&[2, 16, 512]),
        keep_idle: millis(random.pick(&[5, 50, 200])),
        max_leases: random.pick(&[2, 2000]),
        window_bytes: random.pick(&[1_000, 4 << 20]),
        queue_tasks: random.pick(&[1, 10, 100_000]),
        queue_bytes: random.pick(&[1_000, 256_000_000]),
        heartbeat: random.pick(&[Duration::ZERO, heartbeat, heartbeat]),
        head_lost: node.head_lost,
        ..client::Config::default()
    };
    let micros =
        |least, most| Delay { least: Duration::from_micros(least), most: Duration::from_micros(most) };
    let delays = match random.below(3) {
        0 => vec![micros(1, 20)],
        1 => vec![micros(1, 50), micros(100, 2_000)],
        _ => vec![micros(5, 500), micros(1_000, 40_000)],
    };
    Settings {
        redial: None,
        head,
        client,
        node,
        delays,
        repeat_percent: random.pick(&[0, 5, 25]),
        batch: Duration::from_micros(random.pick(&[0, 0, 200])),
        fork: if random.percent(80) { micros(1_000, 10_000) } else { micros(10_000, 400_000) },
        grace: millis(random.pick(&[10, 2_000])),
        late: Duration::from_micros(random.pick(&[0, 100, 2_000])),
    }
}
