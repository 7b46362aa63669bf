//! Slots of a session with state of their own.

use crate::function::{Function, Terms};
use crate::future::{FutureBase, future_class};
use crate::guest;
use crate::outcome::{self, Of};
use crate::session::check_own;
use crate::waiting;
use crate::wire::Wire;
use paceline::{Bytes, Cell, HistoryFull, Notice, PoolId, Session, Standing, TaskId, Waiter, Within};
use pyo3::exceptions::PyRuntimeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyTuple};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// A pool of slots. It is given back when it is closed, or forgotten.
#[pyclass(frozen, module = "paceline._native")]
pub struct Pool {
    session: Session,
    id: PoolId,
    closed: AtomicBool,
    /// How many standing calls it began with.
    prepared: AtomicU32,
    /// Something was submitted or waited for.
    used: AtomicBool,
    /// Nothing more will be submitted.
    finished: AtomicBool,
}

impl Pool {
    pub fn new(session: Session, id: PoolId) -> Pool {
        let (closed, prepared, used, finished) = Default::default();
        Pool { session, id, closed, prepared, used, finished }
    }

    pub fn session(&self) -> &Session {
        &self.session
    }

    pub fn id(&self) -> &PoolId {
        &self.id
    }

    fn give_back(&self) {
        if !self.closed.swap(true, Ordering::Relaxed) {
            self.session.close_pool(&self.id);
        }
    }

    fn standing(
        &self,
        payload: &Bound<'_, PyBytes>,
        name: &str,
        args: &Bound<'_, PyTuple>,
        kwargs: &Bound<'_, PyDict>,
        replaces: Option<&[u8]>,
    ) -> PyResult<Standing> {
        crate::ending::stays();
        check_own(args.py(), &self.session)?;
        Ok(Standing {
            payload: Wire::Pickle.call(args, Some(kwargs))?,
            function: self.session.define(Bytes::copy_from_slice(payload.as_bytes())),
            name: Arc::from(name),
            replaces: replaces.map(Bytes::copy_from_slice),
        })
    }
}

#[pymethods]
impl Pool {
    #[getter]
    fn closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed) || self.session.is_closed()
    }

    fn prepare(
        &self,
        py: Python<'_>,
        payload: &Bound<'_, PyBytes>,
        name: &str,
        args: &Bound<'_, PyTuple>,
        kwargs: &Bound<'_, PyDict>,
    ) -> PyResult<()> {
        if self.used.load(Ordering::Relaxed) {
            return Err(PyRuntimeError::new_err("what prepares the slots of a pool comes before all else"));
        }
        let call = self.standing(payload, name, args, kwargs, None)?;
        self.prepared.fetch_add(1, Ordering::Relaxed);
        self.session.prepare_pool(&self.id, call).map_err(|full| history_full(py, full, name))
    }

    #[pyo3(signature = (payload, name, args, kwargs, *, replaces=None))]
    fn update<'py>(
        &self,
        py: Python<'py>,
        payload: &Bound<'py, PyBytes>,
        name: &str,
        args: &Bound<'py, PyTuple>,
        kwargs: &Bound<'py, PyDict>,
        replaces: Option<&[u8]>,
    ) -> PyResult<Bound<'py, PyAny>> {
        future_class(py)?;
        self.used.store(true, Ordering::Relaxed);
        let call = self.standing(payload, name, args, kwargs, replaces)?;
        let name = call.name.clone();
        let cell = self.session.update_pool(&self.id, call).map_err(|full| history_full(py, full, &name))?;
        FutureBase::make(py, cell, self.session.clone(), name, Wire::Pickle)
    }

    fn cut(
        &self,
        after: u64,
        payload: &Bound<'_, PyBytes>,
        name: &str,
        args: &Bound<'_, PyTuple>,
        kwargs: &Bound<'_, PyDict>,
    ) -> PyResult<()> {
        let call = self.standing(payload, name, args, kwargs, None)?;
        let keep = self.prepared.load(Ordering::Relaxed);
        self.session.cut_pool(&self.id, TaskId(after), keep, call);
        Ok(())
    }

    #[getter]
    fn history(&self) -> usize {
        self.session.pool_history(&self.id)
    }

    #[pyo3(signature = (payload, name, *, wait, retries, retry_on, timeout, priority))]
    #[expect(clippy::too_many_arguments, reason = "they are keywords on the other side")]
    fn function(
        &self,
        payload: &Bound<'_, PyBytes>,
        name: &str,
        wait: Option<f64>,
        retries: u32,
        retry_on: Vec<String>,
        timeout: Option<f64>,
        priority: i32,
    ) -> PyResult<Function> {
        self.used.store(true, Ordering::Relaxed);
        let terms = Terms { wait, retries, retry_on, timeout, priority };
        terms.function(&self.session, payload, name, self.id.shape, Within::Pool(self.id.number))
    }

    /// Node, slot, and whether it has run all standing calls.
    fn places(&self) -> Vec<(String, u64, bool)> {
        if self.session.is_foreign() {
            return Vec::new();
        }
        let places = self.session.pool_places(&self.id).into_iter();
        places.map(|place| (place.node, place.slot.0, place.prepared)).collect()
    }

    #[pyo3(signature = (count, timeout))]
    fn ready(&self, py: Python<'_>, count: u32, timeout: Option<f64>) -> PyResult<bool> {
        self.used.store(true, Ordering::Relaxed);
        check_own(py, &self.session)?;
        self.wait(py, &self.session.pool_ready(&self.id, count), timeout)
    }

    /// Wait until the pool has ended; what broke it is raised.
    #[pyo3(signature = (timeout=None))]
    fn ended(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<bool> {
        check_own(py, &self.session)?;
        self.wait(py, &self.session.pool_ended(&self.id), timeout)
    }

    #[pyo3(signature = (timeout=None))]
    fn join(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<bool> {
        check_own(py, &self.session)?;
        self.wait(py, &self.session.pool_drained(&self.id), timeout)
    }

    /// Others may call the actor that this pool is.
    #[pyo3(signature = (actor, *, about=None))]
    fn host(&self, py: Python<'_>, actor: &[u8], about: Option<Vec<u8>>) -> PyResult<()> {
        guest::host(py, self, actor, about)
    }

    #[pyo3(signature = (keep=0))]
    fn cancel_waiting(&self, keep: usize) -> usize {
        self.session.cancel_waiting(&self.id, keep)
    }

    fn interrupt(&self, py: Python<'_>) {
        crate::ending::detach(py, || self.session.cancel_pool(&self.id));
    }

    /// What has broken the pool.
    fn broken(&self, py: Python<'_>) -> Option<PyErr> {
        let outcome = self.session.pool_broken(&self.id)?;
        let of = Of::one(TaskId(0), "the pool", &self.session, Wire::Pickle);
        outcome::resolve(py, outcome, &of).err()
    }

    fn finish(&self) {
        self.finished.store(true, Ordering::Relaxed);
        self.session.finish_pool(&self.id);
    }

    fn close(&self) {
        self.give_back();
    }
}

impl Pool {
    fn wait(&self, py: Python<'_>, cell: &Arc<Cell>, timeout: Option<f64>) -> PyResult<bool> {
        let waiter = Waiter::new(1);
        if cell.watch(&waiter)
            && !waiting::block(py, &self.session, &waiter, None, waiting::timeout(timeout))?
        {
            return Ok(false);
        }
        let of = Of::one(cell.task(), "the pool", &self.session, Wire::Pickle);
        let stored = cell.stored().expect("a satisfied waiter has an outcome");
        outcome::resolve(py, outcome::load(py, stored), &of).map(|_| true)
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        if !self.finished.load(Ordering::Relaxed) || self.closed() {
            return self.give_back();
        }
        // What was submitted still runs.
        let (session, id) = (self.session.clone(), self.id);
        let close: Notice = Box::new(move || session.close_pool(&id));
        if let Err(close) = self.session.pool_drained(&self.id).on_done(close) {
            close();
        }
    }
}

fn history_full(py: Python<'_>, full: HistoryFull, call: &str) -> PyErr {
    let made = py
        .import(intern!(py, "paceline.errors"))
        .and_then(|module| module.getattr(intern!(py, "HistoryFull"))?.call1((call, full.bytes, full.most)));
    made.map_or_else(|error| error, PyErr::from_value)
}
