//! Actors that others call, and actors of others.

use crate::function::{Function, Terms};
use crate::pool::Pool;
use crate::session::check_own;
use crate::waiting;
use paceline::{ActorId, Card, Session, Shape, Within};
use pyo3::exceptions::PyValueError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A handle to an actor of somebody else's. It is let go when it is closed, or forgotten.
#[pyclass(frozen, module = "paceline._native")]
pub struct Guest {
    visit: Arc<Visit>,
}

/// A visit to an actor, which lasts until it is closed, or nobody has it or a function of it any more.
pub struct Visit {
    session: Session,
    actor: ActorId,
    closed: AtomicBool,
}

/// The number that 16 bytes are.
pub fn actor_of(bytes: &[u8]) -> PyResult<ActorId> {
    let bytes = <[u8; 16]>::try_from(bytes)
        .map_err(|_| PyValueError::new_err(format!("an actor has 16 bytes, and not {}", bytes.len())))?;
    Ok(ActorId(u128::from_le_bytes(bytes)))
}

impl Guest {
    pub fn new(session: Session, actor: ActorId) -> Guest {
        session.visit(actor);
        Guest { visit: Arc::new(Visit { session, actor, closed: AtomicBool::new(false) }) }
    }
}

impl Visit {
    fn leave(&self) {
        if !self.closed.swap(true, Ordering::Relaxed) {
            self.session.leave_actor(self.actor);
        }
    }
}

#[pymethods]
impl Guest {
    #[getter]
    fn closed(&self) -> bool {
        self.visit.closed.load(Ordering::Relaxed) || self.visit.session.is_closed()
    }

    #[getter]
    fn actor<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.visit.actor.0.to_le_bytes())
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
        let terms = Terms { wait, retries, retry_on, timeout, priority };
        let made = terms.function(
            &self.visit.session,
            payload,
            name,
            Shape::default(),
            Within::Guest(self.visit.actor),
        )?;
        Ok(Function { visit: Some(self.visit.clone()), ..made })
    }

    fn close(&self) {
        self.visit.leave();
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        self.leave();
    }
}

/// Have a name for an actor that is about to be made.
pub fn claim(
    py: Python<'_>,
    session: &Session,
    actor: &[u8],
    name: &str,
    about: Vec<u8>,
    program: Option<String>,
) -> PyResult<()> {
    check_own(py, session)?;
    let actor = actor_of(actor)?;
    let card = Card { name: None, about, program };
    let claimed =
        waiting::interruptible(py, |interrupted| session.claim_actor(actor, name, card, interrupted))?;
    claimed.map_err(|why| refused(py, why))
}

/// Let others call the actor that a pool is. Its name was claimed if nothing is said of it.
pub fn host(py: Python<'_>, pool: &Pool, actor: &[u8], about: Option<Vec<u8>>) -> PyResult<()> {
    check_own(py, pool.session())?;
    let actor = actor_of(actor)?;
    let card = about.map(|about| Card { about, ..Card::default() });
    pool.session().host_actor(actor, card, pool.id()).map_err(|why| refused(py, why))
}

/// Why an actor cannot be, as Python has it.
pub fn refused(py: Python<'_>, why: String) -> PyErr {
    let made = py
        .import(intern!(py, "paceline.errors"))
        .and_then(|module| module.getattr(intern!(py, "ActorRefused"))?.call1((why,)));
    made.map_or_else(|error| error, PyErr::from_value)
}
