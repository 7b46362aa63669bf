//! Many tasks of one function: `map` at once, `imap` lazily.
//!
//! * MA-1: at most [`AHEAD`] tasks of a map (or the look-ahead of an imap) are encoded and not yet answered, so an
//!   input of any length needs bounded memory beyond its results.
//! * MA-2: whatever ends a map early ends its tasks.

use crate::function::Function;
use crate::outcome::{self, Of};
use crate::waiting;
use crate::wire::Wire;
use bytes::Bytes;
use paceline::{Batch, Outcome, Session, Submission, TaskId, Ticket};
use parking_lot::Mutex;
use pyo3::exceptions::{PyException, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyIterator, PyList};
use std::collections::VecDeque;
use std::sync::Arc;

/// Tasks of a map that are under way at once.
const AHEAD: usize = 4096;
/// Tasks handed to the session in one go.
const FEED: usize = 64;
/// Chunks for each slot, if the user does not say: as `multiprocessing.Pool` has it.
const CHUNKS_PER_SLOT: usize = 4;

/// The input of a map: encodes it chunk by chunk.
struct Feeder {
    items: Py<PyIterator>,
    star: bool,
    wire: Wire,
    chunksize: usize,
    fed: u32,
    exhausted: bool,
}

impl Feeder {
    fn new(items: &Bound<'_, PyAny>, star: bool, wire: Wire, chunksize: usize) -> PyResult<Feeder> {
        if chunksize == 0 {
            return Err(PyValueError::new_err("chunksize must be at least 1"));
        }
        Ok(Feeder { items: items.try_iter()?.unbind(), star, wire, chunksize, fed: 0, exhausted: false })
    }

    /// Encode and submit up to `count` tasks.
    fn feed(
        &mut self,
        py: Python<'_>,
        session: &Session,
        submission: &Submission,
        batch: &Arc<Batch>,
        count: usize,
    ) -> PyResult<()> {
        let mut payloads = Vec::with_capacity(count);
        let result = self.encode(py, count, &mut payloads);
        let first = self.fed;
        self.fed += payloads.len() as u32;
        if !payloads.is_empty() {
            let tasks = payloads.into_iter().enumerate();
            session.submit_many(
                submission,
                tasks.map(|(index, payload)| (Ticket::Batch(batch.clone(), first + index as u32), payload)),
            );
        }
        result
    }

    fn encode(&mut self, py: Python<'_>, count: usize, payloads: &mut Vec<Bytes>) -> PyResult<()> {
        let mut items = self.items.bind(py).clone();
        while payloads.len() < count {
            if self.chunksize == 1 {
                match items.next() {
                    Some(item) => payloads.push(self.wire.item(&item?, self.star)?),
                    None => return self.end(),
                }
                continue;
            }
            let chunk = PyList::empty(py);
            for item in items.by_ref().take(self.chunksize) {
                chunk.append(item?)?;
            }
            if chunk.is_empty() {
                return self.end();
            }
            payloads.push(self.wire.chunk(&chunk, self.star)?);
        }
        Ok(())
    }

    fn end(&mut self) -> PyResult<()> {
        self.exhausted = true;
        Ok(())
    }
}

/// `map`: all results, in order.
pub fn run<'py>(
    function: &Function,
    items: &Bound<'py, PyAny>,
    star: bool,
    chunksize: Option<usize>,
    progress: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyList>> {
    let py = items.py();
    let (items, chunksize) = match chunksize {
        Some(chunksize) => (items.clone(), chunksize),
        None => {
            let items = sized(items)?;
            let chunksize = items.len()?.div_ceil(function.session.cpus() as usize * CHUNKS_PER_SLOT);
            (items, chunksize.max(1))
        }
    };
    let mut feeder = Feeder::new(&items, star, function.wire, chunksize)?;
    let batch = Batch::new(true);
    let result = drive(py, function, &mut feeder, &batch, progress);
    if result.is_err() {
        function.session.cancel_batch(&batch);
    }
    result
}

/// Something that knows its length.
fn sized<'py>(items: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    if items.len().is_ok() {
        return Ok(items.clone());
    }
    items.py().get_type::<PyList>().call1((items,))
}

fn drive<'py>(
    py: Python<'py>,
    function: &Function,
    feeder: &mut Feeder,
    batch: &Arc<Batch>,
    progress: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyList>> {
    let results = PyList::empty(py);
    let mut ready = Vec::new();
    let mut taken = 0;
    loop {
        let under_way = feeder.fed as usize - batch.done();
        if !feeder.exhausted && under_way < AHEAD {
            // Large chunks one by one: the first slot starts while the second chunk is encoded.
            let count = if feeder.chunksize > FEED { 1 } else { FEED };
            feeder.feed(py, &function.session, &function.submission, batch, count)?;
            if feeder.chunksize > 1 || under_way < AHEAD / 2 {
                continue;
            }
        }
        // Read before looking: what comes in between ends the wait at once.
        let done = batch.done();
        batch.take_ready(&mut ready);
        if !ready.is_empty() {
            taken += ready.len();
            for outcome in ready.drain(..) {
                append(function, &results, outcome, feeder.chunksize > 1)?;
            }
            if let Some(progress) = progress {
                progress.call1((results.len(),))?;
            }
            continue;
        }
        let fed = feeder.fed as usize;
        if feeder.exhausted && taken == fed {
            return Ok(results);
        }
        // With input left, be back before the slots run dry; without, when all is done or there is news to show.
        let target = match (feeder.exhausted, progress) {
            (false, _) => done + (fed - done).div_ceil(2),
            (true, None) => fed,
            (true, Some(_)) => (done + 1).min(fed),
        };
        waiting::block(py, &function.session, batch.waiter(target), None, None)?;
    }
}

fn append(function: &Function, results: &Bound<'_, PyList>, outcome: Outcome, chunk: bool) -> PyResult<()> {
    let py = results.py();
    let of = Of { chunk, ..Of::one(TaskId(0), &function.name, &function.session, function.wire) };
    let value = outcome::resolve_item(py, outcome, &of)?;
    if chunk {
        results.call_method1(pyo3::intern!(py, "extend"), (value,)).map(drop)
    } else {
        results.append(value)
    }
}

/// `imap`: results one by one, pulling input only as they are taken.
#[pyclass(frozen, module = "paceline._native")]
pub struct Results {
    session: Session,
    submission: Submission,
    name: Arc<str>,
    batch: Arc<Batch>,
    lookahead: usize,
    inner: Mutex<Option<Lazy>>,
}

/// The moving parts; taken out while a `__next__` is under way.
struct Lazy {
    feeder: Feeder,
    /// Tasks whose outcome was taken.
    taken: usize,
    /// Results of a chunk that are still to be handed out.
    chunk: VecDeque<Py<PyAny>>,
    /// What the input or its encoding raised: it is raised after the results of what came before.
    failed: Option<PyErr>,
}

impl Results {
    pub fn new(
        function: &Function,
        items: &Bound<'_, PyAny>,
        star: bool,
        chunksize: usize,
        ordered: bool,
        lookahead: usize,
    ) -> PyResult<Results> {
        let feeder = Feeder::new(items, star, function.wire, chunksize)?;
        Ok(Results {
            session: function.session.clone(),
            submission: function.submission,
            name: function.name.clone(),
            batch: Batch::new(ordered),
            lookahead: lookahead.div_ceil(chunksize).max(1),
            inner: Mutex::new(Some(Lazy { feeder, taken: 0, chunk: VecDeque::new(), failed: None })),
        })
    }

    fn advance(&self, py: Python<'_>, lazy: &mut Lazy) -> PyResult<Option<Py<PyAny>>> {
        loop {
            if let Some(value) = lazy.chunk.pop_front() {
                return Ok(Some(value));
            }
            let under_way = lazy.feeder.fed as usize - lazy.taken;
            if !lazy.feeder.exhausted && lazy.failed.is_none() && under_way < self.lookahead {
                let count = (self.lookahead - under_way).min(FEED);
                match lazy.feeder.feed(py, &self.session, &self.submission, &self.batch, count) {
                    Err(error) if error.is_instance_of::<PyException>(py) => lazy.failed = Some(error),
                    fed => fed?,
                }
            }
            // Read before looking: what comes in between ends the wait at once.
            let done = self.batch.done();
            if let Some(outcome) = self.batch.take_next() {
                lazy.taken += 1;
                let one = Of::one(TaskId(0), &self.name, &self.session, lazy.feeder.wire);
                let of = Of { chunk: lazy.feeder.chunksize > 1, ..one };
                let value = outcome::resolve_item(py, outcome, &of)?;
                if lazy.feeder.chunksize == 1 {
                    return Ok(Some(value.unbind()));
                }
                lazy.chunk.extend(value.cast::<PyList>()?.iter().map(Bound::unbind));
                continue;
            }
            if lazy.taken == lazy.feeder.fed as usize {
                if let Some(error) = lazy.failed.take() {
                    return Err(error);
                }
                if lazy.feeder.exhausted {
                    return Ok(None);
                }
            }
            waiting::block(py, &self.session, self.batch.waiter(done + 1), None, None)?;
        }
    }
}

#[pymethods]
impl Results {
    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        let Some(mut lazy) = self.inner.lock().take() else {
            return Err(PyValueError::new_err("imap is being advanced by another thread"));
        };
        let result = self.advance(py, &mut lazy);
        *self.inner.lock() = Some(lazy);
        result
    }
}

impl Drop for Results {
    fn drop(&mut self) {
        self.session.cancel_batch(&self.batch);
    }
}
