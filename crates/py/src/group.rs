//! Slots that a session has together or not at all.

use crate::function::{Function, Terms};
use paceline::{Session, Shape, Within};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::sync::atomic::{AtomicBool, Ordering};

/// A group of slots. It is given back when it is closed, or forgotten.
#[pyclass(frozen, module = "paceline._native")]
pub struct Group {
    session: Session,
    shape: Shape,
    /// Its shape may be another's by now.
    closed: AtomicBool,
}

impl Group {
    pub fn new(session: Session, shape: Shape) -> Group {
        Group { session, shape, closed: AtomicBool::new(false) }
    }

    fn give_back(&self) {
        if !self.closed.swap(true, Ordering::Relaxed) {
            self.session.close_group(&self.shape);
        }
    }
}

#[pymethods]
impl Group {
    /// A function that runs in this member.
    #[pyo3(signature = (payload, name, member, *, wait, retries, retry_on, timeout, priority))]
    #[expect(clippy::too_many_arguments, reason = "they are keywords on the other side")]
    fn function(
        &self,
        payload: &Bound<'_, PyBytes>,
        name: &str,
        member: u32,
        wait: Option<f64>,
        retries: u32,
        retry_on: Vec<String>,
        timeout: Option<f64>,
        priority: i32,
    ) -> PyResult<Function> {
        let terms = Terms { wait, retries, retry_on, timeout, priority };
        terms.function(&self.session, payload, name, self.shape, Within::Member(member))
    }

    /// Node, slot and host of each member, if they are all there.
    fn places(&self) -> Option<Vec<(String, u64, Option<String>)>> {
        let places = self.session.group_places(&self.shape)?.into_iter();
        Some(places.map(|place| (place.node, place.slot.0, place.host)).collect())
    }

    fn close(&self) {
        self.give_back();
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.give_back();
    }
}
