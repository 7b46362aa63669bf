//! Calls whose results are kept on nodes: how they were made is told to the store when the reference arrives, so that
//! they can be made again.

use crate::objects::HeldReference;
use crate::outcome::{self, Of};
use crate::references::Plain;
use crate::wire::Wire;
use paceline::makers::{Maker, Told};
use paceline::{Session, Submission};
use pyo3::intern;
use pyo3::prelude::*;
use std::sync::Arc;

/// A call as it was submitted.
pub struct Made {
    pub submission: Submission,
    pub plain: Plain,
    pub name: Arc<str>,
    pub wire: Wire,
}

impl Made {
    /// This is what it has made: a reference. With `item`, from that item of a call for so many.
    pub fn remember(&self, session: &Session, value: &Bound<'_, PyAny>, item: Option<(usize, usize)>) {
        let Ok(held) = value.getattr(intern!(value.py(), "_held")) else { return };
        // It may have come with its value, and then nothing can be lost.
        let Ok(held) = held.cast::<HeldReference>() else { return };
        let (name, wire) = (self.name.clone(), self.wire);
        let told: Told = Arc::new(move |session, task, outcome| {
            crate::ending::attach(|py| {
                let error = outcome::resolve(py, outcome, &Of::one(task, &name, session, wire)).err()?;
                Some(format!("{name}: {error}"))
            })
        });
        let Plain { bytes, inputs } = &self.plain;
        let item = item.map(|(item, of)| (item as u64, of as u64));
        let maker = Maker::new(session, self.submission, bytes.clone(), item, inputs.clone(), told);
        held.get().remember(maker);
    }
}
