//! How much work clients get done beside each other, with figures.

use super::*;
use crate::random::Random;

const ONE: fn() -> Shape = || Shape::cpus(1);

/// A task takes so long.
const TASK: Duration = Duration::from_millis(5);

/// Clients whose leases run tasks of the same length, each with so many to do.
struct Race {
    bench: Bench,
    left: BTreeMap<ClientId, u64>,
    /// What runs, by when it ends: the lease, and whether it was asked back.
    running: BTreeSet<(Tick, LeaseId, ClientId)>,
    recalled: BTreeSet<LeaseId>,
    random: Random,
    /// When each was through.
    ended: BTreeMap<ClientId, Tick>,
    done: BTreeMap<ClientId, u64>,
    slots: u64,
    cpus: u64,
}

impl Race {
    fn new(seed: u64, cpus: u64) -> Race {
        let mut bench = Bench::new();
        bench.join(N1, cpus, &[]);
        Race {
            bench,
            left: BTreeMap::new(),
            running: BTreeSet::new(),
            recalled: BTreeSet::new(),
            random: Random::new(seed),
            ended: BTreeMap::new(),
            done: BTreeMap::new(),
            slots: 0,
            cpus,
        }
    }

    fn enter(&mut self, client: ClientId, weight: u32, tasks: u64) {
        self.left.insert(client, tasks);
        let mut effects = self.bench.hello(client, &[]);
        effects.extend(self.bench.client_says(client, ClientToHead::Standing { weight, priority: 0 }));
        effects.extend(self.bench.want(client, ONE(), tasks.min(self.cpus) as u32));
        self.perform(effects);
    }

    fn perform(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::ToNode(_, HeadToNode::Place { lease, .. }) => {
                    self.slots += 1;
                    let placed = NodeToHead::Placed { lease, slot: SlotId(self.slots) };
                    let effects = self.bench.node_says(N1, placed);
                    self.perform(effects);
                }
                Effect::ToNode(_, HeadToNode::End { lease }) => {
                    let effects = self.bench.node_says(N1, NodeToHead::Ended { lease, death: None });
                    self.perform(effects);
                }
                Effect::ToClient(client, HeadToClient::Granted { lease, .. }) => self.run(client, lease),
                Effect::ToClient(_, HeadToClient::Recall { lease }) => drop(self.recalled.insert(lease)),
                _ => {}
            }
        }
    }

    /// The next task of this client, or the end of the lease.
    fn run(&mut self, client: ClientId, lease: LeaseId) {
        let left = self.left.get_mut(&client).expect("it takes part");
        if *left > 0 && !self.recalled.remove(&lease) {
            *left -= 1;
            let about = TASK.mul_f64(0.9 + self.random.below(200) as f64 / 1000.0);
            self.running.insert((self.bench.now + about, lease, client));
            return;
        }
        let count = (*left).min(self.cpus) as u32;
        let mut effects = self.bench.want(client, ONE(), count);
        effects.extend(self.bench.client_says(client, ClientToHead::Release { lease }));
        self.perform(effects);
    }

    /// One task ends. False when none is left.
    fn step(&mut self) -> bool {
        let Some((at, lease, client)) = self.running.pop_first() else { return false };
        let effects = self.bench.pass(at.since(self.bench.now));
        self.perform(effects);
        *self.done.entry(client).or_default() += 1;
        self.run(client, lease);
        if self.left[&client] == 0 && !self.running.iter().any(|(_, _, other)| *other == client) {
            self.ended.entry(client).or_insert(self.bench.now);
        }
        true
    }
}

#[test]
fn requests_wait_at_the_head_and_are_met_in_the_order_they_came() {
    let mut bench = Bench::holding(A, 1);
    bench.want(A, ONE(), 0);
    let waiting: Vec<ClientId> = (10..20).map(ClientId).collect();
    for &client in &waiting {
        bench.hello(client, &[]);
        assert_eq!(bench.want(client, ONE(), 1), [], "there is no room");
    }
    // None of them says anything again.
    let mut before = (A, 1);
    for (number, &client) in (2..).zip(&waiting) {
        bench.release(before.0, before.1);
        bench.want(before.0, ONE(), 0);
        assert_eq!(bench.ended(N1, before.1, None), [place(N1, number, client, ONE())]);
        bench.placed(N1, number);
        before = (client, number);
    }
}

#[test]
fn two_clients_with_a_thousand_tasks_each_end_together() {
    for seed in 0..20 {
        // One CPU is used in turns; of an odd number somebody has one more, which stays where it is.
        let mut race = Race::new(seed, [1, 2, 4, 8][seed as usize % 4]);
        race.enter(A, 1, 1000);
        race.enter(B, 1, 1000);
        while race.step() {
            race.bench.node_says(N1, NodeToHead::Heartbeat { beat: 0 });
        }
        let took = [A, B].map(|client| race.ended[&client].since(Tick::ZERO).as_secs_f64());
        let apart = (took[0] - took[1]).abs() / took[0].max(took[1]);
        assert!(apart < 0.1, "seed {seed}: they take {took:?} seconds");
    }
}

#[test]
fn twice_the_weight_is_twice_the_work() {
    for seed in 0..10 {
        let mut race = Race::new(seed, 6);
        race.enter(A, 1, 100_000);
        race.enter(B, 2, 100_000);
        for _ in 0..6_000 {
            race.step();
            race.bench.node_says(N1, NodeToHead::Heartbeat { beat: 0 });
        }
        let ratio = race.done[&B] as f64 / race.done[&A] as f64;
        assert!((1.9..=2.1).contains(&ratio), "seed {seed}: {:?}", race.done);
    }
}

#[test]
fn one_task_is_not_behind_a_million_others() {
    for seed in 0..20 {
        let mut race = Race::new(seed, 1 + seed % 4);
        race.enter(A, 1, 1_000_000);
        (0..200).for_each(|_| assert!(race.step()));
        let start = race.bench.now;
        race.enter(B, 1, 1);
        while !race.ended.contains_key(&B) {
            assert!(race.step());
            race.bench.node_says(N1, NodeToHead::Heartbeat { beat: 0 });
        }
        let took = race.ended[&B].since(start);
        // One that has nothing gets the lease that was held for longest, once that was for a quantum: RC-2.
        let bound = race.bench.head.config.quantum + TASK * 3;
        assert!(took <= bound, "seed {seed}: it takes {took:?}");
    }
}
