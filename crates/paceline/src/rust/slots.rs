//! Slots that are kept for one purpose: those of an actor, of a pool of workers, of an executor.
//!
//! * SL-1: what is dropped without a word still runs what was submitted, and its slots go back then.

use super::future::{FOR_EVER, block, resolve_with};
use super::slot_main;
use super::task;
use super::{Cluster, Error, Options, Result};
use crate::{
    Bytes, Cell, FunctionId, HistoryFull, Notice, PoolId, PoolPlace, PoolSpec, RetryOn, Rule, Session,
    Standing, Submission, TaskId, Waiter, Within,
};
use serde::Serialize;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How many bytes of updates slots that come later may have to run.
pub(crate) const HISTORY: usize = 256_000_000;

/// What kind of slots they are to be.
pub(crate) struct Kind {
    pub size: u32,
    /// All of them are asked for at once; else as calls need them.
    pub eager: bool,
    /// Calls run at most once, and in order.
    pub once: bool,
    pub restarts: Option<u32>,
    pub calls_per_slot: Option<u32>,
    pub history: usize,
}

pub(crate) struct Slots {
    pub session: Session,
    id: PoolId,
    closed: AtomicBool,
}

impl Slots {
    pub fn open(cluster: &Cluster, kind: Kind, options: Options) -> Result<Slots> {
        if cluster.session.is_closed() {
            return Err(Error::Closed);
        }
        let Kind { size, eager, once, restarts, calls_per_slot, history } = kind;
        let (needs, program, rule) = (options.needs()?, cluster.program, Rule::default());
        let spec = PoolSpec {
            size,
            eager,
            once,
            exclusive: None,
            restarts,
            owner_program: None,
            calls_per_slot,
            history,
            needs,
            program,
            rule,
        };
        let session = cluster.session.clone();
        let id = session.open_pool(spec);
        Ok(Slots { session, id, closed: AtomicBool::new(false) })
    }

    pub fn id(&self) -> &PoolId {
        &self.id
    }

    pub fn define(&self, name: &str) -> FunctionId {
        self.session.define(slot_main::name_bytes(name))
    }

    /// A call that every slot runs.
    pub fn standing(&self, name: &'static str, payload: Bytes, replaces: Option<&[u8]>) -> Standing {
        let replaces = replaces.map(Bytes::copy_from_slice);
        Standing { function: self.define(name), payload, name: Arc::from(name), replaces }
    }

    /// The first call that every slot runs.
    pub fn prepare(&self, name: &'static str, payload: Bytes) -> Result<()> {
        let call = self.standing(name, payload, None);
        self.session.prepare_pool(&self.id, call).map_err(|full| history_full(name, full))
    }

    /// A call that every slot runs before all that is submitted from now on.
    pub fn update(&self, call: Standing) -> Result<Arc<Cell>, HistoryFull> {
        self.session.update_pool(&self.id, call)
    }

    /// What slots that come later run instead of the updates before the task `after`.
    pub fn cut(&self, after: TaskId, call: Standing) {
        self.session.cut_pool(&self.id, after, 1, call);
    }

    pub fn submission(&self, function: FunctionId, options: Options) -> Submission {
        Submission {
            function,
            shape: self.id.shape,
            retries: options.retries,
            retry_on: RetryOn::default(),
            timeout: options.timeout,
            priority: options.priority,
            wait: options.wait,
            within: Within::Pool(self.id.number),
        }
    }

    pub fn places(&self) -> Vec<PoolPlace> {
        self.session.pool_places(&self.id)
    }

    /// Wait until so many slots are there and prepared. False: it took too long.
    pub fn ready(&self, count: u32, name: &'static str, timeout: Duration) -> Result<bool> {
        done_within(&self.session, &self.session.pool_ready(&self.id, count), name, timeout)
    }

    /// Wait for what was submitted, and give the slots back.
    pub fn end(&self, name: &'static str) -> Result<()> {
        if self.session.is_closed() {
            return Err(Error::Closed);
        }
        self.finish();
        let drained = self.session.pool_drained(&self.id);
        while !done_within(&self.session, &drained, name, FOR_EVER)? {}
        self.close();
        Ok(())
    }

    /// End every call but the `keep` oldest. Says how many.
    pub fn cancel_waiting(&self, keep: u32) -> usize {
        self.session.cancel_waiting(&self.id, keep as usize)
    }

    /// Nothing more is submitted.
    pub fn finish(&self) {
        self.session.finish_pool(&self.id);
    }

    /// Give the slots back now: what waits is cancelled, and what runs ends with its slot.
    pub fn close(&self) {
        if !self.closed.swap(true, Ordering::Relaxed) {
            self.session.close_pool(&self.id);
        }
    }
}

impl Drop for Slots {
    fn drop(&mut self) {
        if self.closed.load(Ordering::Relaxed) || self.session.is_closed() {
            return;
        }
        self.finish();
        let (session, id) = (self.session.clone(), self.id);
        let close: Notice = Box::new(move || session.close_pool(&id));
        if let Err(close) = self.session.pool_drained(&self.id).on_done(close) {
            close();
        }
    }
}

/// Wait for something that has no value. False: it took too long.
pub(crate) fn done_within(
    session: &Session,
    cell: &Cell,
    name: &'static str,
    timeout: Duration,
) -> Result<bool> {
    let waiter = Waiter::new(1);
    if cell.watch(&waiter) && !block(session, &waiter, None, timeout)? {
        cell.unwatch(&waiter);
        return Ok(false);
    }
    let outcome = cell.outcome().expect("it is done, and nobody makes it forget");
    resolve_with(session, name, outcome, |_| Ok(true))
}

/// The payload of a call.
pub(crate) fn encoded(name: &'static str, arguments: &impl Serialize) -> Result<Bytes> {
    task::encode_call(arguments).map_err(|message| Error::Encode { task: name, what: "an argument", message })
}

pub(crate) fn history_full(task: &'static str, full: HistoryFull) -> Error {
    Error::HistoryFull { task, bytes: full.bytes, most: full.most }
}
