//! The tasks of one shape that wait for a slot, and the leases of that shape that can take some.

use super::apart::{Apart, Nodes, Turn};
use super::lease::Lease;
use super::shapes::ShapeKey;
use super::task::Near;
use super::{LeaseKey, TaskKey};
use paceline_proto::TaskId;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

pub(super) struct Queue {
    waiting: Priorities,
    length: usize,
    /// Tasks that had better run on one node.
    pub apart: Apart,
    /// Leases with nothing in flight; the one used last is taken first, for its slot is still awake.
    pub idle: Vec<LeaseKey>,
    /// Leases at work whose window may have room, taken in turn. May name one that is full or idle by now.
    pub open: VecDeque<LeaseKey>,
    /// All leases of this shape.
    pub leases: Vec<LeaseKey>,
    /// How many of them have something in flight, and which have more than one call.
    pub busy: usize,
    pub ahead: BTreeSet<LeaseKey>,
    /// How many leases the head was last asked for.
    pub wanted: u32,
    /// What its tasks wait for, as the head says.
    pub waits_for: String,
    /// Tasks of this shape in flight.
    pub in_flight: usize,
    /// The group that these are the tasks of, or of one member of it, by its shape.
    pub group: Option<ShapeKey>,
    /// These are calls of an actor of somebody else's.
    pub guest: bool,
    /// An actor that others call lives in its slot; and it has none yet that they know.
    pub hosts: bool,
    pub homeless: bool,
    /// Nothing is sent yet: other members of the group are missing.
    pub gated: bool,
    /// The pool that these are the tasks of, if it is one.
    pub pool: Kind,
    /// Tasks that were accepted later than this wait until all slots of the pool were sent what comes before them.
    pub barrier: TaskId,
    /// Somebody waits for the slots of the pool, or they go back as they run dry.
    pub attentive: bool,
}

/// What the leases of a queue are.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) enum Kind {
    /// As any others.
    #[default]
    Plain,
    /// Those of a pool.
    Pool,
    /// The one of a pool whose tasks run at most once and in order.
    Once,
}

impl Default for Queue {
    fn default() -> Queue {
        Queue {
            waiting: Priorities::default(),
            length: 0,
            apart: Apart::default(),
            idle: Vec::new(),
            open: VecDeque::new(),
            leases: Vec::new(),
            busy: 0,
            ahead: BTreeSet::new(),
            wanted: 0,
            waits_for: String::new(),
            in_flight: 0,
            group: None,
            guest: false,
            hosts: false,
            homeless: false,
            gated: false,
            pool: Kind::Plain,
            barrier: NO_BARRIER,
            attentive: false,
        }
    }
}

/// Tasks by priority. Almost all have none, and theirs is a queue that keeps its room.
#[derive(Default)]
struct Priorities {
    ordinary: VecDeque<TaskKey>,
    others: BTreeMap<Reverse<i32>, VecDeque<TaskKey>>,
}

impl Priorities {
    fn of(&mut self, priority: i32) -> &mut VecDeque<TaskKey> {
        if priority == 0 { &mut self.ordinary } else { self.others.entry(Reverse(priority)).or_default() }
    }

    /// The priority whose turn it is. Empty queues of other priorities are never kept.
    fn first(&self) -> Option<i32> {
        match self.others.first_key_value() {
            Some((Reverse(priority), _)) if *priority > 0 || self.ordinary.is_empty() => Some(*priority),
            _ => (!self.ordinary.is_empty()).then_some(0),
        }
    }

    fn drop_if_empty(&mut self, priority: i32) {
        if self.others.get(&Reverse(priority)).is_some_and(VecDeque::is_empty) {
            self.others.remove(&Reverse(priority));
        }
    }
}

impl Queue {
    pub fn is_pool(&self) -> bool {
        self.pool != Kind::Plain
    }

    /// Whether these are tasks that any slot of the shape may run, not calls of an actor, a pool or a group.
    pub fn has_plain_tasks(&self) -> bool {
        !self.is_pool() && !self.guest && self.group.is_none()
    }

    /// Whether it is a pool's and something may be due in it that no message tells of.
    pub fn is_stirred(&self) -> bool {
        self.is_pool() && (self.attentive || self.barrier != NO_BARRIER)
    }

    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether something waits for leases of this shape: tasks, or a group for its members.
    pub fn is_hungry(&self) -> bool {
        self.length > 0 || self.wanted > self.leases.len() as u32 && (self.group.is_some() || self.is_pool())
    }

    /// Whether its leases come and go otherwise than by demand.
    pub fn is_kept(&self) -> bool {
        self.group.is_some() || self.guest || self.is_pool()
    }

    pub fn push(&mut self, task: TaskKey, priority: i32) {
        self.length += 1;
        self.waiting.of(priority).push_back(task);
    }

    /// A task that had better run on one node.
    pub fn push_near(&mut self, turn: Turn, task: TaskKey, near: Near) {
        self.length += 1;
        self.apart.push(turn, task, near);
    }

    /// A task that was out already goes where it was: before all that came later.
    pub fn put_back(&mut self, task: TaskKey, priority: i32, came_before: impl Fn(TaskKey) -> bool) {
        self.length += 1;
        let tasks = self.waiting.of(priority);
        let place = tasks.partition_point(|other| came_before(*other));
        tasks.insert(place, task);
    }

    /// The first of those that run anywhere.
    pub fn front(&mut self) -> Option<TaskKey> {
        let first = self.waiting.first()?;
        self.waiting.of(first).front().copied()
    }

    /// The first of those that run anywhere; if there is none, one that had rather run on some node.
    pub fn pop(&mut self) -> Option<TaskKey> {
        let task = match self.waiting.first() {
            Some(first) => {
                let task = self.waiting.of(first).pop_front();
                self.waiting.drop_if_empty(first);
                task
            }
            None => self.apart.pop(),
        };
        self.length -= usize::from(task.is_some());
        task
    }

    /// The first of those that had rather run on these nodes goes to a slot, there or elsewhere.
    pub fn pop_near(&mut self, nodes: &Nodes) -> Option<TaskKey> {
        let task = self.apart.pop_of(nodes);
        self.length -= usize::from(task.is_some());
        task
    }

    /// Take a task out of the middle. Says whether it was there.
    pub fn remove(&mut self, task: TaskKey, priority: i32) -> bool {
        let tasks = self.waiting.of(priority);
        let place = tasks.iter().position(|key| *key == task);
        if let Some(place) = place {
            tasks.remove(place);
            self.length -= 1;
        }
        self.waiting.drop_if_empty(priority);
        let apart = place.is_none() && self.apart.remove(task);
        self.length -= usize::from(apart);
        place.is_some() || apart
    }

    /// Take all of these out that are here.
    pub fn remove_all(&mut self, tasks: &BTreeSet<TaskKey>) {
        self.waiting.ordinary.retain(|task| !tasks.contains(task));
        self.waiting.others.retain(|_, queue| {
            queue.retain(|task| !tasks.contains(task));
            !queue.is_empty()
        });
        self.apart.remove_all(tasks);
        self.length = self.iter().count();
    }

    pub fn drain(&mut self) -> Vec<TaskKey> {
        let mut tasks = Vec::with_capacity(self.length);
        while let Some(task) = self.pop() {
            tasks.push(task);
        }
        tasks
    }

    pub fn iter(&self) -> impl Iterator<Item = TaskKey> + '_ {
        let anywhere = self.waiting.ordinary.iter().chain(self.waiting.others.values().flatten()).copied();
        anywhere.chain(self.apart.iter())
    }

    /// How many tasks go before this one.
    pub fn position(&self, task: TaskKey) -> Option<usize> {
        let (above, below): (Vec<_>, Vec<_>) =
            self.waiting.others.iter().partition(|(Reverse(priority), _)| *priority > 0);
        let ordinary = std::iter::once(&self.waiting.ordinary);
        let queues = above.into_iter().map(|it| it.1).chain(ordinary).chain(below.into_iter().map(|it| it.1));
        queues.flatten().position(|other| *other == task).or_else(|| self.apart.position(task))
    }

    /// The tasks of each priority, in their order.
    pub fn by_priority(&self) -> impl Iterator<Item = &VecDeque<TaskKey>> {
        std::iter::once(&self.waiting.ordinary).chain(self.waiting.others.values())
    }

    /// What is in flight on the lease has changed.
    pub fn note(&mut self, key: LeaseKey, lease: &mut Lease) {
        let (busy, ahead) = (!lease.is_idle(), lease.in_flight().len() > 1);
        if busy != lease.counted_busy {
            lease.counted_busy = busy;
            if busy { self.busy += 1 } else { self.busy -= 1 }
        }
        if ahead != lease.counted_ahead {
            lease.counted_ahead = ahead;
            if ahead {
                self.ahead.insert(key)
            } else {
                self.ahead.remove(&key)
            };
        }
    }

    pub fn forget_lease(&mut self, key: LeaseKey, lease: &Lease) {
        // The one that was idle for longest stands first, and is given back first.
        if lease.in_idle
            && let Some(place) = self.idle.iter().position(|other| *other == key)
        {
            self.idle.remove(place);
        }
        if lease.in_open
            && let Some(place) = self.open.iter().position(|other| *other == key)
        {
            self.open.remove(place);
        }
        if let Some(place) = self.leases.iter().position(|other| *other == key) {
            self.leases.remove(place);
        }
        self.busy -= usize::from(lease.counted_busy);
        self.ahead.remove(&key);
    }
}

/// No task is as late as this.
pub(super) const NO_BARRIER: TaskId = TaskId(u64::MAX);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn priorities_first_then_first_come() {
        let mut queue = Queue::default();
        for (task, priority) in [(1, 0), (2, -5), (3, 7), (4, 0), (5, 7)] {
            queue.push(TaskKey(task), priority);
        }
        queue.put_back(TaskKey(6), 0, |_| false);
        queue.put_back(TaskKey(7), 0, |other| other != TaskKey(4));
        assert!(queue.remove(TaskKey(4), 0));
        assert!(!queue.remove(TaskKey(4), 0));
        assert_eq!(queue.front(), Some(TaskKey(3)));
        assert_eq!([3, 1, 2, 9].map(|task| queue.position(TaskKey(task))), [Some(0), Some(3), Some(5), None]);
        assert_eq!(queue.drain(), [3, 5, 6, 1, 7, 2].map(TaskKey));
        assert_eq!((queue.len(), queue.front()), (0, None));
    }
}
