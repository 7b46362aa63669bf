//! How a task is to be run.

use super::task::Task;
use super::{Error, Future, Result, Runner};
use crate::{FunctionId, Part, Resources, RetryOn, Shape, Submission, Within};
use std::marker::PhantomData;
use std::time::Duration;

/// How often a task is run again if its slot dies.
const RETRIES: u32 = 3;

/// How a task is to be run: what stands in `#[paceline::task(...)]`, or [`Configured`].
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Options {
    pub(super) retries: u32,
    cpus: f64,
    gpus: f64,
    memory: u64,
    pub(super) wait: Duration,
    pub(super) priority: i32,
    pub(super) timeout: Duration,
    chunk: usize,
}

impl Default for Options {
    fn default() -> Options {
        Options::new()
    }
}

impl Options {
    pub const fn new() -> Options {
        Options {
            retries: RETRIES,
            cpus: 1.0,
            gpus: 0.0,
            memory: 0,
            wait: Duration::ZERO,
            priority: 0,
            timeout: Duration::ZERO,
            chunk: 0,
        }
    }

    /// How often it is run again when its slot dies (3). One that has killed three slots is stopped all the same.
    #[must_use]
    pub const fn retries(self, retries: u32) -> Options {
        Options { retries, ..self }
    }

    /// How many CPUs it uses (1); a fraction is allowed.
    #[must_use]
    pub const fn cpus(self, cpus: f64) -> Options {
        Options { cpus, ..self }
    }

    /// How many GPUs it uses (0): a fraction of one, or whole ones.
    #[must_use]
    pub const fn gpus(self, gpus: f64) -> Options {
        Options { gpus, ..self }
    }

    /// How many bytes of memory are kept for it (0: whatever there is).
    #[must_use]
    pub const fn memory(self, bytes: u64) -> Options {
        Options { memory: bytes, ..self }
    }

    /// How long it waits for a slot; zero, the default, is as long as it takes.
    #[must_use]
    pub const fn wait(self, wait: Duration) -> Options {
        Options { wait, ..self }
    }

    /// Larger ones run first (0).
    #[must_use]
    pub const fn priority(self, priority: i32) -> Options {
        Options { priority, ..self }
    }

    /// How long it may run; zero, the default, is as long as it likes.
    #[must_use]
    pub const fn timeout(self, timeout: Duration) -> Options {
        Options { timeout, ..self }
    }

    /// How many items of a map travel together; zero, the default, is as many as keep all slots busy.
    #[must_use]
    pub const fn chunk_size(self, items: usize) -> Options {
        Options { chunk: items, ..self }
    }

    pub(crate) fn chunk(self) -> usize {
        self.chunk
    }

    /// What a slot must have.
    pub(crate) fn needs(self) -> Result<Resources> {
        let Options { cpus, gpus, memory, .. } = self;
        let needs = Resources::fractional_cpus(cpus).ok_or(Error::NotANumberOfCpus { cpus })?;
        let needs = needs.with(Part::Gpus(gpus)).and_then(|needs| needs.with(Part::Memory(memory)));
        needs.ok_or(Error::NotANumberOfGpus { gpus })
    }

    pub(crate) fn submission(self, function: FunctionId) -> Result<Submission> {
        let Options { retries, wait, priority, timeout, .. } = self;
        let retry_on = RetryOn::default();
        let (shape, within) = (Shape::of(self.needs()?), Within::Any);
        Ok(Submission { function, shape, retries, retry_on, timeout, priority, wait, within })
    }
}

/// A task with options other than its own: `square::options().retries(0).call(&cluster, (7,))`.
#[must_use]
pub struct Configured<T> {
    options: Options,
    task: PhantomData<fn() -> T>,
}

impl<T: Task> Configured<T> {
    #[doc(hidden)]
    pub fn new() -> Configured<T> {
        Configured { options: T::OPTIONS, task: PhantomData }
    }

    /// See [`Options::retries`].
    pub fn retries(self, retries: u32) -> Self {
        Configured { options: self.options.retries(retries), ..self }
    }

    /// See [`Options::cpus`].
    pub fn cpus(self, cpus: f64) -> Self {
        Configured { options: self.options.cpus(cpus), ..self }
    }

    /// See [`Options::gpus`].
    pub fn gpus(self, gpus: f64) -> Self {
        Configured { options: self.options.gpus(gpus), ..self }
    }

    /// See [`Options::memory`].
    pub fn memory(self, bytes: u64) -> Self {
        Configured { options: self.options.memory(bytes), ..self }
    }

    /// See [`Options::wait`].
    pub fn wait(self, wait: Duration) -> Self {
        Configured { options: self.options.wait(wait), ..self }
    }

    /// See [`Options::priority`].
    pub fn priority(self, priority: i32) -> Self {
        Configured { options: self.options.priority(priority), ..self }
    }

    /// See [`Options::timeout`].
    pub fn timeout(self, timeout: Duration) -> Self {
        Configured { options: self.options.timeout(timeout), ..self }
    }

    /// See [`Options::chunk_size`].
    pub fn chunk_size(self, items: usize) -> Self {
        Configured { options: self.options.chunk_size(items), ..self }
    }

    /// Run it in a slot and wait for its value.
    pub fn call(&self, runner: &(impl Runner + ?Sized), arguments: T::Arguments) -> Result<T::Output> {
        runner.target::<T>(self.options)?.call(&arguments)
    }

    /// Have it run in a slot; its value comes with the future.
    pub fn submit(&self, runner: &(impl Runner + ?Sized), arguments: T::Arguments) -> Future<T::Output> {
        match runner.target::<T>(self.options) {
            Ok(target) => target.submit(&arguments),
            Err(error) => Future::failed(error),
        }
    }

    /// As [`Configured::submit`], but never waits for room; see [`Cluster::try_submit`](super::Cluster::try_submit).
    pub fn try_submit(
        &self,
        runner: &(impl Runner + ?Sized),
        arguments: T::Arguments,
    ) -> Result<Future<T::Output>> {
        runner.target::<T>(self.options)?.try_submit(&arguments)
    }

    /// Run it for each tuple of arguments and wait for all values, in order.
    pub fn map(
        &self,
        runner: &(impl Runner + ?Sized),
        items: impl IntoIterator<Item = T::Arguments>,
    ) -> Result<Vec<T::Output>> {
        runner.target::<T>(self.options)?.map(items)
    }
}
