//! A function as one session ships it.

use crate::future::{FutureBase, future_class, log_failure};
use crate::guest::Visit;
use crate::makers::Made;
use crate::map::{self, Results};
use crate::outcome::{self, Of};
use crate::session::check_own;
use crate::wire::Wire;
use crate::{references, room, waiting};
use paceline::{Bytes, Payload, RetryOn, Session, Shape, Submission, Waiter, Within};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyTuple};
use std::sync::Arc;
use std::time::Duration;

#[pyclass(frozen, module = "paceline._native")]
pub struct Function {
    pub session: Session,
    pub submission: Submission,
    pub name: Arc<str>,
    pub wire: Wire,
    /// The actor of somebody else's that it is a method of is visited for as long as this is here.
    pub visit: Option<Arc<Visit>>,
    /// Its results stay on nodes, and may be lost with them: how each was made is remembered.
    pub remembers: bool,
}

/// First byte of a function whose results are kept, as `paceline._slot` has it.
const KEPT: u8 = b'K';

/// How the calls of a function are made, as Python says it.
pub struct Terms {
    pub wait: Option<f64>,
    pub retries: u32,
    /// What a call is repeated after, by name.
    pub retry_on: Vec<String>,
    pub timeout: Option<f64>,
    pub priority: i32,
}

impl Terms {
    /// A function of Python's with these terms. Fails in a process that was forked from the session's.
    pub fn function(
        &self,
        session: &Session,
        payload: &Bound<'_, PyBytes>,
        name: &str,
        shape: Shape,
        within: Within,
    ) -> PyResult<Function> {
        check_own(payload.py(), session)?;
        let submission = Submission {
            function: session.define(Bytes::copy_from_slice(payload.as_bytes())),
            shape,
            retries: self.retries,
            retry_on: self.causes(),
            timeout: waiting::timeout(self.timeout).unwrap_or(Duration::ZERO),
            priority: self.priority,
            wait: waiting::timeout(self.wait).unwrap_or(Duration::ZERO),
            within,
        };
        Ok(Function {
            session: session.clone(),
            submission,
            name: Arc::from(name),
            wire: Wire::Pickle,
            visit: None,
            remembers: payload.as_bytes().first() == Some(&KEPT) && session.loses_objects(),
        })
    }

    fn causes(&self) -> RetryOn {
        let named = |cause: &str| self.retry_on.iter().any(|name| name == cause);
        RetryOn {
            slot_lost: named("slot"),
            node_lost: named("node"),
            timeout: named("timeout"),
            raised: named("error"),
            memory: named("memory"),
        }
    }
}

impl Function {
    /// What a call carries, and what is to be remembered of it.
    fn encode(
        &self,
        args: &Bound<'_, PyTuple>,
        kwargs: &Bound<'_, PyDict>,
    ) -> PyResult<(Payload, Option<Box<Made>>)> {
        crate::ending::stays();
        check_own(args.py(), &self.session)?;
        if !self.remembers {
            return Ok((references::placed(&self.session, self.bytes(args, kwargs)?), None));
        }
        let (bytes, plain) = references::noting(|| self.bytes(args, kwargs))?;
        let made = Made { submission: self.submission, plain, name: self.name.clone(), wire: self.wire };
        Ok((references::placed(&self.session, bytes), Some(Box::new(made))))
    }

    fn bytes(&self, args: &Bound<'_, PyTuple>, kwargs: &Bound<'_, PyDict>) -> PyResult<Bytes> {
        match self.visit {
            None => self.wire.call(args, Some(kwargs)),
            Some(_) => references::visiting(|| self.wire.call(args, Some(kwargs))),
        }
    }
}

/// The future's result, when it comes, was made like this.
fn remembers(future: &Bound<'_, PyAny>, made: Option<Box<Made>>) -> PyResult<()> {
    if let Some(made) = made {
        future.cast::<FutureBase>()?.get().remember(made);
    }
    Ok(())
}

#[pymethods]
impl Function {
    #[getter]
    fn name(&self) -> &str {
        &self.name
    }

    fn call<'py>(
        &self,
        py: Python<'py>,
        args: &Bound<'py, PyTuple>,
        kwargs: &Bound<'py, PyDict>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (payload, made) = self.encode(args, kwargs)?;
        let waiter = Waiter::new(1);
        let cell = self.session.submit_for(&self.submission, payload, &waiter);
        if let Err(interrupt) = waiting::block(py, &self.session, &waiter, Some(&cell), None) {
            self.session.cancel(&cell, true);
            return Err(interrupt);
        }
        let of = Of::one(cell.task(), &self.name, &self.session, self.wire);
        let stored = cell.stored().expect("a satisfied waiter has an outcome");
        let value = outcome::resolve(py, outcome::load(py, stored), &of)?;
        made.into_iter().for_each(|made| made.remember(&self.session, &value, None));
        Ok(value)
    }

    fn submit<'py>(
        &self,
        py: Python<'py>,
        args: &Bound<'py, PyTuple>,
        kwargs: &Bound<'py, PyDict>,
    ) -> PyResult<Bound<'py, PyAny>> {
        future_class(py)?;
        let (payload, made) = self.encode(args, kwargs)?;
        let cell = match self.session.try_submit(&self.submission, payload) {
            Ok(cell) => cell,
            Err(full) => room::wait(py, self, full)?,
        };
        let future = FutureBase::make(py, cell, self.session.clone(), self.name.clone(), self.wire)?;
        remembers(&future, made)?;
        Ok(future)
    }

    fn offer<'py>(
        &self,
        py: Python<'py>,
        args: &Bound<'py, PyTuple>,
        kwargs: &Bound<'py, PyDict>,
    ) -> PyResult<(Bound<'py, PyAny>, Option<room::Gate>)> {
        future_class(py)?;
        let (payload, made) = self.encode(args, kwargs)?;
        let (future, gate) = match self.session.try_submit(&self.submission, payload) {
            Ok(cell) => {
                (FutureBase::make(py, cell, self.session.clone(), self.name.clone(), self.wire)?, None)
            }
            Err(full) => room::offer(py, self, full)?,
        };
        remembers(&future, made)?;
        Ok((future, gate))
    }

    /// Call it in the callback thread; here if the session is closed.
    fn call_back(&self, py: Python<'_>, callback: Py<PyAny>) {
        let notice = move || {
            crate::ending::attach(|py| {
                let callback = callback.bind(py);
                let called = callback.call0().map(drop).or_else(|error| log_failure(callback, error));
                called.unwrap_or_else(|error| error.write_unraisable(py, None));
            });
        };
        if let Err(notice) = self.session.try_notify(Box::new(notice)) {
            crate::ending::detach(py, notice);
        }
    }

    /// Only see whether the arguments can be sent.
    fn look(&self, args: &Bound<'_, PyTuple>, kwargs: &Bound<'_, PyDict>) -> PyResult<()> {
        crate::ending::stays();
        self.wire.call(args, Some(kwargs)).map(drop)
    }

    /// The future of a task whose arguments are not there yet.
    fn later<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let cell = self.session.later();
        let future = FutureBase::make(py, cell, self.session.clone(), self.name.clone(), self.wire)?;
        future.cast::<FutureBase>()?.get().defer();
        Ok(future)
    }

    /// They are: submit it, unless it was cancelled meanwhile.
    fn begin(
        &self,
        future: &Bound<'_, FutureBase>,
        args: &Bound<'_, PyTuple>,
        kwargs: &Bound<'_, PyDict>,
    ) -> PyResult<()> {
        let (payload, made) = self.encode(args, kwargs)?;
        remembers(future.as_any(), made)?;
        if let Some(cell) = future.get().take_deferred()
            && !self.session.submit_later(&self.submission, payload, cell)
        {
            self.session.end_later(cell);
        }
        Ok(())
    }

    #[pyo3(signature = (items, star, chunksize, progress, whole = false))]
    fn map<'py>(
        &self,
        items: &Bound<'py, PyAny>,
        star: bool,
        chunksize: Option<usize>,
        progress: Option<Bound<'py, PyAny>>,
        whole: bool,
    ) -> PyResult<Bound<'py, PyList>> {
        check_own(items.py(), &self.session)?;
        map::run(self, items, star, chunksize, progress.as_ref(), whole)
    }

    fn imap(
        &self,
        items: &Bound<'_, PyAny>,
        star: bool,
        chunksize: usize,
        ordered: bool,
        lookahead: usize,
    ) -> PyResult<Results> {
        check_own(items.py(), &self.session)?;
        Results::new(self, items, star, chunksize, ordered, lookahead)
    }
}
