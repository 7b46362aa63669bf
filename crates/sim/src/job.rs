//! What tasks do in the simulation.

use crate::client::PROGRAMS;
use crate::random::mix;
use bytes::Bytes;
use paceline_core::client::RetryOn;
use paceline_proto::{NodeId, Resources, Shape};
use std::time::Duration;

/// A task to submit. Built in the way of options: `Job::new().takes(ms(5)).cpus(2)`.
#[derive(Clone, Copy, Debug)]
pub struct Job {
    pub(crate) takes: Duration,
    pub(crate) fate: Fate,
    pub(crate) shape: Shape,
    pub(crate) priority: i32,
    pub(crate) retries: u32,
    pub(crate) retry_on: RetryOn,
    /// How long a run may take; zero for as long as it likes.
    pub(crate) timeout: Duration,
    /// It cannot be interrupted, only killed.
    pub(crate) stubborn: bool,
    /// It goes on beside those that come after it in its slot.
    pub(crate) beside: bool,
    /// Which of its client's functions it calls: estimates are learned per function.
    pub(crate) function: u8,
    /// Bytes of its argument and of its value, beyond what names the task.
    pub(crate) size: usize,
    /// In the middle it submits so many tasks and waits for them, and they do the same, so many levels down.
    pub(crate) children: u8,
    pub(crate) levels: u8,
    /// It returns without waiting for them. They are ended with it, and what does not stop at once goes on for a while.
    pub(crate) leaves: bool,
    /// What those need.
    pub(crate) inner: Shape,
    /// The group that it is for, by number, and the member of it; the shape is the group's then.
    pub(crate) member: Option<(usize, u32)>,
    /// The actor that it is a call of, by number.
    pub(crate) actor: Option<usize>,
    /// The pool that it is for, by number; the shape is the pool's then.
    pub(crate) pool: Option<usize>,
    /// It had better run on one of these nodes, and waits so long for a slot there while others have nothing to do.
    pub(crate) near: Option<(NodeId, NodeId, Duration)>,
}

/// How a run ends that nothing disturbs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fate {
    Value,
    Raises,
    Unsendable,
    /// It kills its slot, every time.
    Kills,
}

impl Default for Job {
    fn default() -> Job {
        Job::new()
    }
}

impl Job {
    /// One CPU, a millisecond, three retries, a value.
    pub fn new() -> Job {
        Job {
            takes: Duration::from_millis(1),
            fate: Fate::Value,
            shape: Shape::cpus(1),
            priority: 0,
            retries: 3,
            retry_on: RetryOn::default(),
            timeout: Duration::ZERO,
            stubborn: false,
            beside: false,
            function: 0,
            size: 0,
            children: 0,
            levels: 0,
            leaves: false,
            inner: Shape::cpus(1),
            member: None,
            actor: None,
            pool: None,
            near: None,
        }
    }

    pub fn takes(self, takes: Duration) -> Job {
        Job { takes, ..self }
    }

    pub fn cpus(self, count: u64) -> Job {
        Job { shape: Shape::cpus(count), ..self }
    }

    pub fn needs(self, needs: Resources) -> Job {
        Job { shape: Shape::of(needs), ..self }
    }

    /// A function of another program than the client's own.
    pub fn program(self, number: usize) -> Job {
        Job { shape: Shape { program: PROGRAMS.id(number), ..self.shape }, ..self }
    }

    /// It had better run on the node of this number, and waits so long for a slot there while others have nothing to do.
    pub fn near(self, node: u64, patience: Duration) -> Job {
        Job { near: Some((NodeId(node), NodeId(node), patience)), ..self }
    }

    pub fn priority(self, priority: i32) -> Job {
        Job { priority, ..self }
    }

    pub fn retries(self, retries: u32) -> Job {
        Job { retries, ..self }
    }

    pub fn retry_on(self, retry_on: RetryOn) -> Job {
        Job { retry_on, ..self }
    }

    pub fn timeout(self, timeout: Duration) -> Job {
        Job { timeout, ..self }
    }

    /// Only the end of its slot ends it before its time, as with code that never returns to the interpreter.
    pub fn stubborn(self) -> Job {
        Job { stubborn: true, ..self }
    }

    /// Others begin in its slot while it goes on.
    pub fn beside(self) -> Job {
        Job { beside: true, ..self }
    }

    pub fn function(self, function: u8) -> Job {
        Job { function, ..self }
    }

    /// It submits so many tasks like itself and waits for them, so many levels down.
    pub fn nests(self, children: u8, levels: u8) -> Job {
        Job { children, levels, ..self }
    }

    /// It returns without waiting for the tasks that it submits, which cannot be interrupted.
    pub fn leaves_children(self) -> Job {
        Job { leaves: true, ..self }
    }

    /// What the tasks that it submits need.
    pub fn inner_cpus(self, count: u64) -> Job {
        Job { inner: Shape::cpus(count), ..self }
    }

    /// What it submits, if it does. One that kills its slots does so again and again, and that is enough.
    pub(crate) fn child(self) -> Option<Job> {
        let fate = if self.fate == Fate::Kills { Fate::Value } else { self.fate };
        (self.levels > 0 && self.children > 0).then(|| Job {
            levels: self.levels - 1,
            leaves: false,
            stubborn: self.stubborn || self.leaves,
            shape: self.inner,
            retries: self.retries.min(2),
            fate,
            ..self
        })
    }

    /// How often it and what it submits may run, if every retry is needed.
    pub(crate) fn most_runs(self) -> u32 {
        let children = self.child().map_or(0, |child| u32::from(self.children) * child.most_runs());
        (1 + self.retries) * (1 + children)
    }

    pub fn raises(self) -> Job {
        Job { fate: Fate::Raises, ..self }
    }

    /// Its slot dies of it, every time.
    pub fn kills(self) -> Job {
        Job { fate: Fate::Kills, ..self }
    }
}

/// The argument of a task: its number, so that a call which got another's bytes is noticed.
pub(crate) fn argument(task: usize, size: usize) -> Bytes {
    let mut bytes = (task as u64).to_le_bytes().to_vec();
    bytes.resize(8 + size, task as u8);
    bytes.into()
}

/// The value of a task, a function of its number alone.
pub(crate) fn value(task: usize, size: usize) -> Bytes {
    let mut bytes = mix(task as u64 + 1).to_le_bytes().to_vec();
    bytes.resize(8 + size, task as u8);
    bytes.into()
}
