//! Executors: a number of slots that nobody else's tasks run in.

use super::runner::{Functions, Runner};
use super::slots::{HISTORY, Kind, Slots, encoded};
use super::target::Target;
use super::task::Task;
use super::{Cluster, Error, Options, Result};
use crate::{Bytes, PoolPlace};
use std::sync::Arc;

/// A number of slots in which nobody else's tasks run: `square::submit(&executor, 7)`, `square::map(&executor, 0..100)`. A slot
/// that dies is replaced, and its task runs again as its `retries` say. Dropping it lets what was submitted run; its slots
/// go then.
pub struct Executor {
    slots: Slots,
    functions: Arc<Functions>,
    size: u32,
}

/// How an executor is to be.
#[must_use = "start() starts it"]
pub struct ExecutorBuilder<'a> {
    cluster: &'a Cluster,
    size: u32,
    options: Options,
    calls_per_slot: Option<u32>,
    /// Its name, and its arguments or why they cannot travel.
    initializer: Option<(&'static str, Result<Bytes>)>,
}

/// What errors name that are nobody's task.
const EXECUTOR: &str = "the executor";

impl Cluster {
    /// An executor of so many slots, which may be more than there are CPUs.
    pub fn executor(&self, slots: u32) -> ExecutorBuilder<'_> {
        let (options, calls_per_slot, initializer) = (Options::new().cpus(0.0), None, None);
        ExecutorBuilder { cluster: self, size: slots.max(1), options, calls_per_slot, initializer }
    }
}

impl ExecutorBuilder<'_> {
    /// What every slot runs first, also one that replaces another. If it fails in three slots in a row, everything ends with
    /// [`Error::PoolBroken`].
    pub fn initializer<T: Task>(self, arguments: T::Arguments) -> Self {
        ExecutorBuilder { initializer: Some((T::NAME, encoded(T::NAME, &arguments))), ..self }
    }

    /// How many CPUs each slot has (0: they share what is there).
    pub fn cpus(self, cpus: f64) -> Self {
        ExecutorBuilder { options: self.options.cpus(cpus), ..self }
    }

    /// How many GPUs each slot has (0).
    pub fn gpus(self, gpus: f64) -> Self {
        ExecutorBuilder { options: self.options.gpus(gpus), ..self }
    }

    /// How many bytes of memory are kept for each slot (0: whatever there is).
    pub fn memory(self, bytes: u64) -> Self {
        ExecutorBuilder { options: self.options.memory(bytes), ..self }
    }

    /// A slot is replaced by a fresh one after so many tasks.
    pub fn tasks_per_slot(self, tasks: u32) -> Self {
        ExecutorBuilder { calls_per_slot: Some(tasks.max(1)), ..self }
    }

    /// Start it. Slots come as there are tasks for them.
    pub fn start(self) -> Result<Executor> {
        let ExecutorBuilder { cluster, size, options, calls_per_slot, initializer } = self;
        let kind = Kind { size, eager: false, once: false, restarts: None, calls_per_slot, history: HISTORY };
        let slots = Slots::open(cluster, kind, options)?;
        if let Some((name, payload)) = initializer {
            slots.prepare(name, payload?)?;
        }
        Ok(Executor { slots, functions: cluster.functions.clone(), size })
    }
}

impl Executor {
    /// Where its slots are just now.
    pub fn places(&self) -> Vec<PoolPlace> {
        self.slots.places()
    }

    /// Wait for what was submitted, and give the slots back.
    pub fn shutdown(self) -> Result<()> {
        self.slots.end(EXECUTOR)
    }

    /// Cancel what has not begun, wait for what runs, and give the slots back. Says how many tasks were cancelled. As many as
    /// may run count as begun: which of them have is known only in their slots.
    pub fn shutdown_now(self) -> Result<usize> {
        let cancelled = self.slots.cancel_waiting(self.size);
        self.slots.end(EXECUTOR).map(|()| cancelled)
    }
}

impl Runner for Executor {
    fn target<T: Task>(&self, options: Options) -> Result<Target> {
        let session = self.slots.session.clone();
        if session.is_closed() {
            return Err(Error::Closed);
        }
        let submission = self.slots.submission(self.functions.of::<T>(&session), options);
        let (chunk, slots) = (options.chunk(), self.size as usize);
        Ok(Target { session, submission, name: T::NAME, chunk, slots })
    }
}
