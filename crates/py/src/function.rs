//! A function as one session ships it.

use crate::future::FutureBase;
use crate::guest::Visit;
use crate::map::{self, Results};
use crate::outcome::{self, Of};
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
}

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
    /// A function of Python's with these terms.
    pub fn function(
        &self,
        session: &Session,
        payload: &Bound<'_, PyBytes>,
        name: &str,
        shape: Shape,
        within: Within,
    ) -> Function {
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
        Function {
            session: session.clone(),
            submission,
            name: Arc::from(name),
            wire: Wire::Pickle,
            visit: None,
        }
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
    fn payload(&self, args: &Bound<'_, PyTuple>, kwargs: &Bound<'_, PyDict>) -> PyResult<Payload> {
        let bytes = match self.visit {
            None => self.wire.call(args, Some(kwargs))?,
            Some(_) => references::visiting(|| self.wire.call(args, Some(kwargs)))?,
        };
        Ok(references::placed(&self.session, bytes))
    }
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
        let payload = self.payload(args, kwargs)?;
        let waiter = Waiter::new(1);
        let cell = self.session.submit_for(&self.submission, payload, &waiter);
        if let Err(interrupt) = waiting::block(py, &self.session, &waiter, Some(&cell), None) {
            self.session.cancel(&cell, true);
            return Err(interrupt);
        }
        let of = Of::one(cell.task(), &self.name, &self.session, self.wire);
        let stored = cell.stored().expect("a satisfied waiter has an outcome");
        outcome::resolve(py, outcome::load(py, stored), &of)
    }

    fn submit<'py>(
        &self,
        py: Python<'py>,
        args: &Bound<'py, PyTuple>,
        kwargs: &Bound<'py, PyDict>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let payload = self.payload(args, kwargs)?;
        let cell = match self.session.try_submit(&self.submission, payload) {
            Ok(cell) => cell,
            Err(full) => room::wait(py, self, full)?,
        };
        FutureBase::make(py, cell, self.session.clone(), self.name.clone(), self.wire)
    }

    fn offer<'py>(
        &self,
        py: Python<'py>,
        args: &Bound<'py, PyTuple>,
        kwargs: &Bound<'py, PyDict>,
    ) -> PyResult<(Bound<'py, PyAny>, Option<room::Gate>)> {
        let payload = self.payload(args, kwargs)?;
        match self.session.try_submit(&self.submission, payload) {
            Ok(cell) => {
                Ok((FutureBase::make(py, cell, self.session.clone(), self.name.clone(), self.wire)?, None))
            }
            Err(full) => room::offer(py, self, full),
        }
    }

    /// Only see whether the arguments can be sent.
    fn look(&self, args: &Bound<'_, PyTuple>, kwargs: &Bound<'_, PyDict>) -> PyResult<()> {
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
        let payload = self.payload(args, kwargs)?;
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
        Results::new(self, items, star, chunksize, ordered, lookahead)
    }
}
