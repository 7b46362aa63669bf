//! Tasks that had better run on one node, because what they need is there.
//!
//! Such a task waits apart from those that run anywhere. A lease on its node takes it when its turn comes. What bounds the
//! wait, so that a preference never costs more than what it is about:
//!
//! * AP-1: while a slot elsewhere has nothing to do, the task waits for as long as its patience lasts, and no longer: then
//!   that slot takes it.
//! * AP-2: if later tasks have gone past the first of a node for [`PASSED_OVER`], it goes wherever its turn comes.
//! * AP-3: a task that was sent once, and has come back, runs anywhere.

use super::dispatch::expected;
use super::shapes::ShapeKey;
use super::task::Near;
use super::{Client, Effect, LeaseKey, TaskKey};
use crate::Tick;
use paceline_proto::{NodeId, TaskId};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// So long may others go past the first task of a node (AP-2).
const PASSED_OVER: Duration = Duration::from_secs(1);

/// When it is a task's turn: the higher priority first, then who came first.
pub(super) type Turn = (Reverse<i32>, TaskId);

/// A task whose turn it is, and the node that it waited for, if it did.
type Next = (TaskKey, Option<NodeId>);

#[derive(Default)]
pub(super) struct Apart {
    nodes: BTreeMap<NodeId, Waiting>,
}

/// The tasks that wait for one node. Never empty.
#[derive(Default)]
struct Waiting {
    tasks: BTreeMap<Turn, (TaskKey, Duration)>,
    /// Since when a slot elsewhere has nothing to do.
    idle: Option<Tick>,
    /// Since when others go past the first.
    passed: Option<Tick>,
    /// How many leases the head was told to be of use there.
    told: u32,
}

impl Waiting {
    fn first(&self) -> (Turn, TaskKey, Duration) {
        let (turn, (task, patience)) = self.tasks.first_key_value().expect("a node without tasks is not kept");
        (*turn, *task, *patience)
    }

    /// When a slot elsewhere may take the first (AP-1), if one has nothing to do.
    fn until(&self) -> Option<Tick> {
        self.idle.map(|since| since + self.first().2)
    }
}

impl Apart {
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    pub fn push(&mut self, turn: Turn, task: TaskKey, near: Near) {
        let waiting = self.nodes.entry(near.node).or_default();
        waiting.tasks.insert(turn, (task, near.patience));
    }

    pub fn pop_of(&mut self, node: NodeId) -> Option<TaskKey> {
        let waiting = self.nodes.get_mut(&node)?;
        let (_, (task, _)) = waiting.tasks.pop_first()?;
        waiting.passed = None;
        if waiting.tasks.is_empty() {
            self.nodes.remove(&node);
        }
        Some(task)
    }

    /// Whichever comes first.
    pub fn pop(&mut self) -> Option<TaskKey> {
        let node = self.nodes.iter().min_by_key(|(_, waiting)| waiting.first().0).map(|(node, _)| *node)?;
        self.pop_of(node)
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
        self.nodes.retain(|_, waiting| {
            waiting.tasks.retain(|_, (task, _)| keep(*task));
            !waiting.tasks.is_empty()
        });
    }

    pub fn iter(&self) -> impl Iterator<Item = TaskKey> + '_ {
        self.nodes.values().flat_map(|waiting| waiting.tasks.values().map(|(task, _)| *task))
    }

    /// How many go before this one to the same node.
    pub fn position(&self, task: TaskKey) -> Option<usize> {
        self.nodes.values().find_map(|waiting| waiting.tasks.values().position(|(key, _)| *key == task))
    }

    /// The node that a task waits for.
    pub fn node_of(&self, task: TaskKey) -> Option<NodeId> {
        let mut nodes = self.nodes.iter();
        nodes.find(|(_, waiting)| waiting.tasks.values().any(|(key, _)| *key == task)).map(|(node, _)| *node)
    }

    /// The first task of a node.
    fn first_of(&self, node: NodeId) -> Option<TaskKey> {
        self.nodes.get(&node).map(|waiting| waiting.first().1)
    }

    /// What a lease on this node takes: the first of those that run anywhere, which is given, or of its node's, if it may
    /// take these. One that has nothing else to do takes what has waited long enough for another node.
    fn choose(
        &self,
        now: Tick,
        node: NodeId,
        anywhere: Option<(Turn, TaskKey)>,
        own: bool,
        idle: bool,
    ) -> Option<Next> {
        let mine = self.nodes.get(&node).filter(|_| own).map(|waiting| waiting.first());
        let mine = mine.map(|(turn, task, _)| (turn, task, Some(node)));
        let others = || self.nodes.iter().filter(|(other, _)| **other != node);
        let passed = others().filter(|(_, waiting)| {
            waiting.passed.is_some_and(|since| now.since(since) >= PASSED_OVER)
        });
        let passed = passed.map(|(other, waiting)| (waiting.first().0, waiting.first().1, Some(*other)));
        let first = anywhere.map(|(turn, task)| (turn, task, None)).into_iter().chain(mine).chain(passed).min();
        let left = || {
            let due = others().filter(|(_, waiting)| idle && waiting.until().is_some_and(|at| at <= now));
            due.map(|(other, waiting)| (waiting.first().0, waiting.first().1, Some(*other))).min()
        };
        first.or_else(left).map(|(_, task, near)| (task, near))
    }

    /// A lease on this node has taken the task of this turn (AP-2).
    pub fn goes_past(&mut self, now: Tick, node: NodeId, turn: Turn) {
        for (_, waiting) in self.nodes.iter_mut().filter(|(other, _)| **other != node) {
            if waiting.first().0 < turn {
                waiting.passed.get_or_insert(now);
            }
        }
    }

    /// Leases on these nodes have nothing to do. Says when one of them may take something.
    fn note_idle(&mut self, now: Tick, idle: &BTreeSet<NodeId>) -> Option<Tick> {
        let mut next = None;
        for (node, waiting) in &mut self.nodes {
            if idle.iter().any(|other| other != node) {
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
        let mut list = Vec::new();
        for (node, waiting) in &mut self.nodes {
            let count = held(*node).saturating_add(waiting.tasks.len() as u32);
            if count > waiting.told {
                // In powers of two, as leases are asked for.
                waiting.told = count.checked_next_power_of_two().unwrap_or(count);
                news = true;
            }
            list.push((*node, waiting.told));
        }
        news.then_some(list)
    }

    /// The same for a head that knows nothing.
    pub fn told(&self) -> Vec<(NodeId, u32)> {
        self.nodes.iter().map(|(node, waiting)| (*node, waiting.told)).filter(|(_, told)| *told > 0).collect()
    }

    /// How many nodes are waited for on which there is no lease.
    pub fn without(&self, held: impl Fn(NodeId) -> u32) -> usize {
        self.nodes.keys().filter(|node| held(**node) == 0).count()
    }

    pub fn check(&self) -> Result<(), String> {
        match self.nodes.iter().find(|(_, waiting)| waiting.tasks.is_empty()) {
            Some((node, _)) => Err(format!("AP-1: nothing waits for {node:?}, and it is kept")),
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
        let short = || {
            let first = queue.apart.first_of(lease.node).map(|task| &self.tasks[task.0]);
            let takes = first.and_then(|task| expected(&self.config, &self.functions, task));
            takes.is_some_and(|takes| takes <= self.config.ahead)
        };
        let own = lease.is_idle() || short();
        queue.apart.choose(now, lease.node, anywhere, own, lease.is_idle())
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
