//! Worker pools: an object of the user's type in each slot, jobs for whichever is free, updates for all.
//!
//! * WP-1: every job runs in a slot that was built and has applied all updates that were accepted before the job.
//! * WP-2: updates take at most as many bytes as the history may have; beyond, the state of one slot stands for all that
//!   came before.

use super::actor::Class;
use super::future::{FOR_EVER, block};
use super::home::{NO_ARGUMENTS, ONE_ARGUMENT};
use super::imap::Results;
use super::slots::{HISTORY, Kind, Slots, done_within, encoded, history_full};
use super::target::Target;
use super::{Cluster, Error, Future, Options, Result};
use crate::{
    Bytes, Cell, FunctionId, Outcome, PoolPlace, RetryOn, Session, Standing, TaskId, Waiter, exchange,
};
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use serde::ser::{Serialize, Serializer};
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

/// A type of which every slot of a pool has an object. [`#[paceline::worker]`](macro@crate::worker) makes one of an `impl`
/// block.
pub trait Worker: Sized + 'static {
    /// What slots know the type by.
    const NAME: &'static str;
    /// The arguments of `new`, as a tuple.
    type Arguments: Serialize + DeserializeOwned;
    /// What `run` takes: its one argument, or a tuple of all.
    type Job;
    /// What `run` returns.
    type Output: Serialize + DeserializeOwned;
    /// What `update` takes: its one argument, or a tuple of all. Nothing, if there is no `update`.
    type Update;
    #[doc(hidden)]
    type JobArguments: Serialize + DeserializeOwned;
    #[doc(hidden)]
    type UpdateArguments: Serialize;
    #[doc(hidden)]
    const CLASS: &'static Class;
    #[doc(hidden)]
    fn job(job: Self::Job) -> Self::JobArguments;
    #[doc(hidden)]
    fn update(update: Self::Update) -> Self::UpdateArguments;
    /// How its pools are to be, unless somebody says otherwise.
    fn options() -> WorkerBuilder<Self>;
}

/// The update of a worker that takes none: there is no such value.
#[derive(Clone, Copy, Debug)]
pub enum NoUpdate {}

impl Serialize for NoUpdate {
    fn serialize<S: Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
        match *self {}
    }
}

/// How a pool of workers is to be: `Searcher::options()`.
#[must_use = "spawn() opens the pool"]
pub struct WorkerBuilder<W> {
    slots: Option<u32>,
    cpus: Option<f64>,
    options: Options,
    history: usize,
    kind: PhantomData<fn() -> W>,
}

/// As many as there may be, where the cluster sets the limit.
const ALL: u32 = 2000;

impl<W: Worker> WorkerBuilder<W> {
    #[doc(hidden)]
    pub fn new() -> WorkerBuilder<W> {
        let (slots, cpus, kind) = (None, None, PhantomData);
        WorkerBuilder { slots, cpus, options: Options::new(), history: HISTORY, kind }
    }

    /// How many slots there are; by default as many as the cluster has room for, on nodes that join later, too.
    pub fn slots(self, slots: u32) -> Self {
        WorkerBuilder { slots: Some(slots.max(1)), ..self }
    }

    /// How many CPUs each slot has: 1 by default, or 0 (they share what is there) if their number is given.
    pub fn cpus(self, cpus: f64) -> Self {
        WorkerBuilder { cpus: Some(cpus), ..self }
    }

    /// How many GPUs each slot has (0).
    pub fn gpus(self, gpus: f64) -> Self {
        WorkerBuilder { options: self.options.gpus(gpus), ..self }
    }

    /// How many bytes of memory are kept for each slot (0: whatever there is).
    pub fn memory(self, bytes: u64) -> Self {
        WorkerBuilder { options: self.options.memory(bytes), ..self }
    }

    /// How often a job runs again if its slot dies, or it takes too long (3).
    pub fn retries(self, retries: u32) -> Self {
        WorkerBuilder { options: self.options.retries(retries), ..self }
    }

    /// How long one job may run; zero, the default, is as long as it likes. One that does not stop ends with its slot, which
    /// is replaced.
    pub fn timeout(self, timeout: Duration) -> Self {
        WorkerBuilder { options: self.options.timeout(timeout), ..self }
    }

    /// How many bytes of updates slots that come later may have to run (256,000,000).
    pub fn history(self, bytes: usize) -> Self {
        WorkerBuilder { history: bytes, ..self }
    }

    /// Open a pool whose slots each build an object with these arguments. Returns at once: slots come up in the background.
    pub fn spawn(&self, cluster: &Cluster, arguments: W::Arguments) -> Result<WorkerPool<W>> {
        let size = self.slots.unwrap_or(ALL);
        let cpus = self.cpus.unwrap_or(if self.slots.is_none() { 1.0 } else { 0.0 });
        let kind = Kind {
            size,
            eager: true,
            once: false,
            restarts: None,
            calls_per_slot: None,
            history: self.history,
        };
        let slots = Slots::open(cluster, kind, self.options.cpus(cpus))?;
        slots.prepare(W::CLASS.new, encoded(W::CLASS.new, &arguments)?)?;
        let run = slots.define(W::CLASS.methods[0]);
        let (options, updating, kind) = (self.options, Mutex::new(()), PhantomData);
        Ok(WorkerPool { slots, run, size, options, updating, kind })
    }
}

/// Slots that each have an object of the type `W`. Jobs call its `run`, updates its `update`: in every slot, between jobs, and
/// in order with them. Dropping it lets what was submitted run; its slots go then.
pub struct WorkerPool<W> {
    slots: Slots,
    run: FunctionId,
    size: u32,
    options: Options,
    /// While the state of one slot is made to stand for all updates, there are no others.
    updating: Mutex<()>,
    kind: PhantomData<fn() -> W>,
}

impl<W: Worker> WorkerPool<W> {
    /// Have `run` called in a slot that is free; its value comes with the future.
    pub fn submit(&self, job: W::Job) -> Future<W::Output> {
        match self.target() {
            Ok(target) => target.submit(&W::job(job)),
            Err(error) => Future::failed(error),
        }
    }

    /// Have `run` called for each job, and wait for all values, in the order of the jobs. The first that fails, in that
    /// order, ends the rest.
    pub fn map(&self, jobs: impl IntoIterator<Item = W::Job>) -> Result<Vec<W::Output>> {
        self.target()?.map(jobs.into_iter().map(W::job))
    }

    /// As [`map`](WorkerPool::map), but lazily: each value in its turn. A job is submitted when it is taken from the
    /// iterator: an update that comes after that is for later ones.
    pub fn imap<I: IntoIterator<Item = W::Job>>(&self, jobs: I) -> Results<W, I::IntoIter> {
        Results::new(self.target(), jobs.into_iter(), true, self.ahead())
    }

    /// As [`imap`](WorkerPool::imap), but each value comes as soon as it is there, in any order.
    pub fn imap_unordered<I: IntoIterator<Item = W::Job>>(&self, jobs: I) -> Results<W, I::IntoIter> {
        Results::new(self.target(), jobs.into_iter(), false, self.ahead())
    }

    /// Have `update` called in every slot, before any job that is submitted from now on. Slots that come later are built and
    /// updated first. Nobody has to wait for it.
    pub fn update(&self, update: W::Update) -> Result<Update> {
        self.change(update, None)
    }

    /// As [`update`](WorkerPool::update); and slots that come later are spared earlier updates of the same key.
    pub fn update_replacing(&self, key: &str, update: W::Update) -> Result<Update> {
        self.change(update, Some(key))
    }

    /// How many slots are there, and have got all updates.
    pub fn workers(&self) -> usize {
        self.places().iter().filter(|place| place.prepared).count()
    }

    /// Where its slots are.
    pub fn places(&self) -> Vec<PoolPlace> {
        self.slots.places()
    }

    /// Wait until so many slots are there and built, or all that the pool may have. False: it took too long.
    pub fn ready(&self, count: u32, timeout: Duration) -> Result<bool> {
        self.slots.ready(count, W::NAME, timeout.min(FOR_EVER))
    }

    /// Wait for what was submitted, and give the slots back.
    pub fn close(self) -> Result<()> {
        self.slots.end(W::NAME)
    }

    /// Give the slots back now: what waits is cancelled, and what runs ends with its slot.
    pub fn terminate(self) {
        self.slots.close();
    }

    fn target(&self) -> Result<Target> {
        let session = self.slots.session.clone();
        if session.is_closed() {
            return Err(Error::Closed);
        }
        let mut submission = self.slots.submission(self.run, self.options);
        submission.retry_on = RetryOn { timeout: !submission.timeout.is_zero(), ..RetryOn::default() };
        Ok(Target { session, submission, name: W::CLASS.methods[0], chunk: 1, slots: self.size as usize })
    }

    /// How many jobs are taken beyond the values that were read.
    fn ahead(&self) -> usize {
        let there = self.places().len();
        2 * if there > 0 {
            there
        } else {
            (self.slots.session.cpus() as usize).min(self.size as usize).max(1)
        }
    }

    fn change(&self, update: W::Update, key: Option<&str>) -> Result<Update> {
        let name = *W::CLASS.methods.get(1).expect("without an update there is no value of its type");
        let payload = encoded(name, &W::update(update))?;
        if self.slots.session.is_closed() {
            return Err(Error::Closed);
        }
        let call = self.slots.standing(name, payload, key.map(str::as_bytes));
        let _alone = self.updating.lock();
        let cell = match self.slots.update(call.clone()) {
            Err(full) => {
                self.change_after_cut(call, name).unwrap_or_else(|| Err(history_full(name, full)))?
            }
            Ok(cell) => cell,
        };
        Ok(Update { session: self.slots.session.clone(), cell, name })
    }

    /// Let the state of one slot stand for all updates so far (WP-2), and then accept this one. None, if the type says
    /// nothing of its state.
    fn change_after_cut(&self, call: Standing, name: &'static str) -> Option<Result<Arc<Cell>>> {
        let (save, restore) = W::CLASS.saves?;
        let cut = || {
            let (task, state) = self.ask(save)?;
            let payload = [&[exchange::CALL, ONE_ARGUMENT], &state[..]].concat();
            self.slots.cut(task, self.slots.standing(restore, payload.into(), None));
            self.slots.update(call).map_err(|full| history_full(name, full))
        };
        Some(cut())
    }

    /// The state of one slot, and the task that asked for it. Should that run again, it finds the same: there is no other
    /// update meanwhile.
    fn ask(&self, save: &'static str) -> Result<(TaskId, Bytes)> {
        let session = &self.slots.session;
        let submission = self.slots.submission(self.slots.define(save), Options::new());
        let payload = Bytes::from_static(&[exchange::CALL, NO_ARGUMENTS]);
        let waiter = Waiter::new(1);
        let cell = session.submit_for(&submission, payload, &waiter);
        while !block(session, &waiter, Some(&cell), FOR_EVER)? {}
        match cell.outcome().expect("it is done, and nobody makes it forget") {
            Outcome::Value(state) => Ok((cell.task(), state)),
            Outcome::Cancelled if session.is_closed() => Err(Error::Closed),
            outcome => Err(Error::of(session, save, outcome)),
        }
    }
}

/// An update that was accepted. It is applied whether or not anybody waits.
pub struct Update {
    session: Session,
    cell: Arc<Cell>,
    name: &'static str,
}

impl Update {
    /// Wait until all slots that are there have applied it.
    pub fn wait(&self) -> Result<()> {
        while !self.wait_timeout(FOR_EVER)? {}
        Ok(())
    }

    /// The same for so long at most. False: it took too long.
    pub fn wait_timeout(&self, timeout: Duration) -> Result<bool> {
        done_within(&self.session, &self.cell, self.name, timeout.min(FOR_EVER))
    }
}
