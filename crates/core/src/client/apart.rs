//! Tasks that had better run on one node, or one of a few, because what they need is there.
//!
//! Such a task waits apart from those that run anywhere. A lease on such a node takes it when its turn comes. What bounds the
//! wait, so that a preference never costs more than what it is about:
//!
//! * AP-1: while a slot elsewhere has nothing to do, the task waits for as long as its patience lasts, and no longer: then
//!   that slot takes it.
//! * AP-2: if later tasks have gone past the first that waits for a node for [`PASSED_OVER`], it goes wherever its turn comes.
//! * AP-3: a task that was sent once, and has come back, runs anywhere.

use super::dispatch::expected;
use super::shapes::ShapeKey;
use super::task::Near;
use super::{Client, Effect, LeaseKey, TaskKey};
use crate::Tick;
use paceline_proto::{NodeId, TaskId};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// So long may others go past the first of those that wait for the same (AP-2).
const PASSED_OVER: Duration = Duration::from_secs(1);

/// Inputs of fewer bytes than this come faster than anybody could decide about them.
const LEAST: u64 = 256 << 10;
/// More nodes than this are as good as any.
const MOST_NODES: usize = 16;
/// The bytes that travel in a second, more or less, and how long a task waits at most in order that they need not.
const SPEED: u64 = 1 << 30;
const MOST_PATIENCE: Duration = Duration::from_millis(500);

impl Near {
    /// Where a task had better run: what it needs, as so many bytes that these nodes have. Waits for as long as the bytes
    /// would travel.
    pub fn to<'a>(inputs: impl Iterator<Item = (u64, &'a [NodeId])>) -> Option<Near> {
        let mut bytes: BTreeMap<NodeId, u64> = BTreeMap::new();
        for (size, nodes) in inputs {
            for node in nodes {
                *bytes.entry(*node).or_default() += size;
            }
        }
        let most = bytes.values().copied().max().filter(|most| *most >= LEAST)?;
        // Those that lack little are as good.
        let nodes: Vec<NodeId> =
            bytes.iter().filter(|(_, has)| **has >= most - most / 8).map(|(node, _)| *node).collect();
        let patience = Duration::from_nanos((most as u128 * 1_000_000_000 / SPEED as u128) as u64);
        let patience = patience.min(MOST_PATIENCE);
        (nodes.len() <= MOST_NODES).then(|| Near { nodes: nodes.into(), patience })
    }
}

/// When it is a task's turn: the higher priority first, then who came first.
pub(super) type Turn = (Reverse<i32>, TaskId);

/// Nodes that are all the same to a task, in order.
pub(super) type Nodes = Arc<[NodeId]>;

/// A task whose turn it is, and the nodes that it waited for, if it did.
type Next = (TaskKey, Option<Nodes>);

#[derive(Default)]
pub(super) struct Apart {
    queues: BTreeMap<Nodes, Waiting>,
}

/// The tasks that wait for the same nodes. Never empty.
#[derive(Default)]
struct Waiting {
    tasks: BTreeMap<Turn, (TaskKey, Duration)>,
    /// Since when a slot elsewhere has nothing to do.
    idle: Option<Tick>,
    /// Since when others go past the first.
    passed: Option<Tick>,
    /// How many of them the head knows of.
    told: u32,
}

impl Waiting {
    fn first(&self) -> (Turn, TaskKey, Duration) {
        let (turn, (task, patience)) = self.tasks.first_key_value().expect("nothing is kept without tasks");
        (*turn, *task, *patience)
    }

    /// When a slot elsewhere may take the first (AP-1), if one has nothing to do.
    fn until(&self) -> Option<Tick> {
        self.idle.map(|since| since + self.first().2)
    }
}

impl Apart {
    pub fn is_empty(&self) -> bool {
        self.queues.is_empty()
    }

    pub fn push(&mut self, turn: Turn, task: TaskKey, near: Near) {
        let waiting = self.queues.entry(near.nodes).or_default();
        waiting.tasks.insert(turn, (task, near.patience));
    }

    pub fn pop_of(&mut self, nodes: &Nodes) -> Option<TaskKey> {
        let waiting = self.queues.get_mut(nodes)?;
        let (_, (task, _)) = waiting.tasks.pop_first()?;
        waiting.passed = None;
        if waiting.tasks.is_empty() {
            self.queues.remove(nodes);
        }
        Some(task)
    }

    /// Whichever comes first.
    pub fn pop(&mut self) -> Option<TaskKey> {
        let first = self.queues.iter().min_by_key(|(_, waiting)| waiting.first().0);
        let nodes = first.map(|(nodes, _)| nodes.clone())?;
        self.pop_of(&nodes)
    }

    pub fn remove(&mut self, task: TaskKey) -> bool {
        let before = self.iter().count();
        self.retain(|key| key != task);
        self.iter().count() < before
    }

    pub fn remove_all(&mut self, tasks: &BTreeSet<TaskKey>) {
        self.retain(|key| !tasks.contains(&key));
    }

    fn retain(&mut self, keep: impl Fn(TaskKey) -> bool) {
        self.queues.retain(|_, waiting| {
            waiting.tasks.retain(|_, (task, _)| keep(*task));
            !waiting.tasks.is_empty()
        });
    }

    pub fn iter(&self) -> impl Iterator<Item = TaskKey> + '_ {
        self.queues.values().flat_map(|waiting| waiting.tasks.values().map(|(task, _)| *task))
    }

    /// How many go before this one to the same nodes.
    pub fn position(&self, task: TaskKey) -> Option<usize> {
        self.queues.values().find_map(|waiting| waiting.tasks.values().position(|(key, _)| *key == task))
    }

    /// The nodes that a task waits for.
    pub fn nodes_of(&self, task: TaskKey) -> Vec<NodeId> {
        let mut queues = self.queues.iter();
        let found = queues.find(|(_, waiting)| waiting.tasks.values().any(|(key, _)| *key == task));
        found.map_or_else(Vec::new, |(nodes, _)| nodes.to_vec())
    }

    /// What a lease on this node takes: the first of those that run anywhere, which is given, and of those that wait for
    /// its node and that it `may` take. One that has nothing else to do takes what has waited long enough for others.
    fn choose(
        &self,
        now: Tick,
        node: NodeId,
        anywhere: Option<(Turn, TaskKey)>,
        idle: bool,
        may: impl Fn(TaskKey) -> bool,
    ) -> Option<Next> {
        let (mut first, mut left) = (anywhere.map(|(turn, task)| (turn, task, None)), None);
        for (nodes, waiting) in &self.queues {
            let (turn, task, _) = waiting.first();
            let passed = || waiting.passed.is_some_and(|since| now.since(since) >= PASSED_OVER);
            let due = || idle && waiting.until().is_some_and(|at| at <= now);
            let best = match nodes.contains(&node) {
                true if may(task) => &mut first,
                false if passed() => &mut first,
                false if due() => &mut left,
                _ => continue,
            };
            if best.as_ref().is_none_or(|(other, ..)| turn < *other) {
                *best = Some((turn, task, Some(nodes)));
            }
        }
        first.or(left).map(|(_, task, nodes)| (task, nodes.cloned()))
    }

    /// A lease on this node has taken the task of this turn (AP-2).
    pub fn goes_past(&mut self, now: Tick, node: NodeId, turn: Turn) {
        for (nodes, waiting) in &mut self.queues {
            if !nodes.contains(&node) && waiting.first().0 < turn {
                waiting.passed.get_or_insert(now);
            }
        }
    }

    /// Leases on these nodes have nothing to do. Says when one of them may take something.
    fn note_idle(&mut self, now: Tick, idle: &BTreeSet<NodeId>) -> Option<Tick> {
        let mut next = None;
        for (nodes, waiting) in &mut self.queues {
            if idle.iter().any(|other| !nodes.contains(other)) {
                waiting.idle.get_or_insert(now);
                next = next.into_iter().chain(waiting.until()).min();
            }
        }
        next
    }

    /// On which nodes leases would be of use, and how many, if that is more than the head was told. `held`: how many there
    /// are on a node.
    pub fn news(&mut self, held: impl Fn(NodeId) -> u32) -> Option<Vec<(NodeId, u32)>> {
        let mut news = false;
        for waiting in self.queues.values_mut() {
            let count = waiting.tasks.len() as u32;
            if count > waiting.told {
                // In powers of two, as leases are asked for.
                waiting.told = count.checked_next_power_of_two().unwrap_or(count);
                news = true;
            }
        }
        news.then(|| self.told(held))
    }

    /// The same for a head that knows nothing.
    pub fn told(&self, held: impl Fn(NodeId) -> u32) -> Vec<(NodeId, u32)> {
        let mut counts: BTreeMap<NodeId, u32> = BTreeMap::new();
        for (nodes, waiting) in &self.queues {
            for node in nodes.iter() {
                let count = counts.entry(*node).or_insert_with(|| held(*node));
                *count = count.saturating_add(waiting.told);
            }
        }
        counts.into_iter().collect()
    }

    /// For how many of them there is no lease on any of their nodes.
    pub fn without(&self, held: impl Fn(NodeId) -> u32) -> usize {
        self.queues.keys().filter(|nodes| nodes.iter().all(|node| held(*node) == 0)).count()
    }

    pub fn check(&self) -> Result<(), String> {
        match self.queues.iter().find(|(_, waiting)| waiting.tasks.is_empty()) {
            Some((nodes, _)) => Err(format!("AP-1: nothing waits for {nodes:?}, and it is kept")),
            None => Ok(()),
        }
    }
}

impl<Ticket: Clone> Client<Ticket> {
    /// What this lease takes next.
    pub(super) fn turn(&mut self, now: Tick, shape: ShapeKey, key: LeaseKey) -> Option<Next> {
        let queue = &mut self.shapes[shape];
        let anywhere = queue.front();
        if queue.apart.is_empty() {
            return anywhere.map(|task| (task, None));
        }
        let lease = &self.leases[key.0];
        let turn = |task: TaskKey| (Reverse(self.tasks[task.0].priority), self.tasks[task.0].id);
        let anywhere = anywhere.map(|task| (turn(task), task));
        // Were it sent ahead, it would be asked back as soon as a slot elsewhere has nothing to do.
        let short = |task: TaskKey| {
            let takes = expected(&self.config, &self.functions, &self.tasks[task.0]);
            takes.is_some_and(|takes| takes <= self.config.ahead)
        };
        let may = |task| lease.is_idle() || short(task);
        queue.apart.choose(now, lease.node, anywhere, lease.is_idle(), may)
    }

    /// A lease that may take a task, if it matters on which node it is. It is taken out of its list.
    pub(super) fn next_lease_by_node(&mut self, now: Tick, shape: ShapeKey) -> Option<(LeaseKey, bool)> {
        let mut place = self.shapes[shape].idle.len();
        while place > 0 {
            place -= 1;
            let key = self.shapes[shape].idle[place];
            let usable = self.leases[key.0].usable();
            if !usable || self.turn(now, shape, key).is_some() {
                self.shapes[shape].idle.remove(place);
                self.leases[key.0].in_idle = false;
                if usable {
                    return Some((key, true));
                }
            }
        }
        while let Some(&key) = self.shapes[shape].open.get(place) {
            let Some((task, _)) = self.turn(now, shape, key) else {
                place += 1;
                continue;
            };
            self.shapes[shape].open.remove(place);
            self.leases[key.0].in_open = false;
            let takes = expected(&self.config, &self.functions, &self.tasks[task.0]);
            if self.leases[key.0].accepts(&self.config, takes) {
                return Some((key, false));
            }
        }
        None
    }

    /// No lease takes more: what waits for a node has so much time left as there are slots elsewhere (AP-1).
    pub(super) fn note_idle_elsewhere(&mut self, now: Tick, shape: ShapeKey, out: &mut Vec<Effect<Ticket>>) {
        let queue = &mut self.shapes[shape];
        let usable = queue.idle.iter().map(|key| &self.leases[key.0]).filter(|lease| lease.usable());
        let idle: BTreeSet<NodeId> = usable.map(|lease| lease.node).collect();
        if let Some(at) = queue.apart.note_idle(now, &idle) {
            self.wake_at(at, out);
        }
    }
}
