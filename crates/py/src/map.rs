//! Many tasks of one function: `map` at once, `imap` lazily.
//!
//! * MA-1: at most [`AHEAD`] tasks of a map (or the look-ahead of an imap) are encoded and not yet answered, and none
//!   is added while there is no room in the queue and some are under way. So an input of any length needs bounded
//!   memory beyond its results, and goes on whatever others have in the queue.
//! * MA-2: whatever ends a map early ends its tasks.
//! * MA-3: a chunk that the user did not ask for costs nobody a retry: if its slot dies, its items run one by one.

use crate::function::Function;
use crate::makers::Made;
use crate::outcome::{self, Of};
use crate::references::{self, Plain};
use crate::session::check_own;
use crate::waiting;
use crate::wire::Wire;
use paceline::{Batch, Bytes, Lost, LostCause, Outcome, Payload, Session, Submission, TaskId, Ticket};
use paceline_proto::parts::carried;
use parking_lot::Mutex;
use pyo3::exceptions::{PyException, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyIterator, PyList};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// Tasks of a map that are under way at once.
const AHEAD: usize = 4096;
/// Tasks handed to the session in one go.
const FEED: usize = 64;
/// Or bytes of them.
const FEED_BYTES: usize = 1 << 20;
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
    /// The chunks that were fed and whose outcomes were not taken, if they may have to run again item by item.
    kept: Option<VecDeque<Py<PyList>>>,
    /// Calls as they were submitted, by their number, if what they make is to be remembered.
    made: Option<(Submission, HashMap<u32, Plain>)>,
}

impl Feeder {
    fn new(items: &Bound<'_, PyAny>, star: bool, wire: Wire, chunksize: usize) -> PyResult<Feeder> {
        crate::ending::stays();
        if chunksize == 0 {
            return Err(PyValueError::new_err("chunksize must be at least 1"));
        }
        Ok(Feeder {
            items: items.try_iter()?.unbind(),
            star,
            wire,
            chunksize,
            fed: 0,
            exhausted: false,
            kept: None,
            made: None,
        })
    }

    fn of(function: &Function, items: &Bound<'_, PyAny>, star: bool, chunksize: usize) -> PyResult<Feeder> {
        let feeder = Feeder::new(items, star, function.wire, chunksize)?;
        let made = function.remembers.then(|| (function.submission, HashMap::new()));
        Ok(Feeder { made, ..feeder })
    }

    /// The bytes of a call that has this number.
    fn payload(&mut self, number: u32, build: impl FnOnce() -> PyResult<Bytes>) -> PyResult<Bytes> {
        let Some((_, made)) = &mut self.made else { return build() };
        let (payload, plain) = references::noting(build)?;
        made.insert(number, plain);
        Ok(payload)
    }

    /// The call of this number has made this.
    fn remember(
        &mut self,
        session: &Session,
        name: &Arc<str>,
        number: u32,
        value: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let Some((submission, made)) = &mut self.made else { return Ok(()) };
        let Some(plain) = made.remove(&number) else { return Ok(()) };
        let made = Made { submission: *submission, plain, name: name.clone(), wire: self.wire };
        if self.chunksize == 1 {
            made.remember(session, value, None);
            return Ok(());
        }
        let values = value.cast::<PyList>()?;
        for (item, value) in values.iter().enumerate() {
            made.remember(session, &value, Some((item, values.len())));
        }
        Ok(())
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
        let result = self.encode(py, session, count, &mut payloads);
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

    fn encode(
        &mut self,
        py: Python<'_>,
        session: &Session,
        count: usize,
        payloads: &mut Vec<Payload>,
    ) -> PyResult<()> {
        let mut items = self.items.bind(py).clone();
        let mut bytes = 0;
        while payloads.len() < count && bytes < FEED_BYTES {
            if self.chunksize == 1 {
                let Some(item) = items.next() else { return self.end() };
                let (item, wire, star) = (item?, self.wire, self.star);
                let payload = self.payload(self.fed + payloads.len() as u32, || wire.item(&item, star))?;
                bytes += carried(&payload);
                payloads.push(references::placed(session, payload));
                continue;
            }
            let chunk = PyList::empty(py);
            for item in items.by_ref().take(self.chunksize) {
                chunk.append(item?)?;
            }
            if chunk.is_empty() {
                return self.end();
            }
            let (wire, star) = (self.wire, self.star);
            let payload = self.payload(self.fed + payloads.len() as u32, || wire.chunk(&chunk, star))?;
            bytes += carried(&payload);
            payloads.push(references::placed(session, payload));
            if let Some(kept) = &mut self.kept {
                kept.push_back(chunk.unbind());
            }
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
    whole: bool,
) -> PyResult<Bound<'py, PyList>> {
    crate::ending::stays();
    let py = items.py();
    let ours = chunksize.is_none();
    let (items, chunksize) = match chunksize {
        Some(chunksize) => (items.clone(), chunksize),
        None => {
            let items = sized(items)?;
            let chunksize = items.len()?.div_ceil(function.session.cpus() as usize * CHUNKS_PER_SLOT);
            (items, chunksize.max(1))
        }
    };
    let mut feeder = Feeder::of(function, &items, star, chunksize)?;
    let mut submission = function.submission;
    if ours && may_split(&submission) && chunksize > 1 {
        feeder.kept = Some(VecDeque::new());
        submission.retries = 0;
    }
    let results = PyList::empty(py);
    drive(function, &submission, &mut feeder, &results, progress, whole)?;
    Ok(results)
}

/// Whether deaths of slots and nodes are all that makes this run again, so that it may be a chunk's items that do (MA-3).
fn may_split(submission: &Submission) -> bool {
    let retry_on = submission.retry_on;
    submission.retries > 0 && retry_on.slot_lost && !retry_on.timeout && !retry_on.raised
}

/// Something that knows its length.
fn sized<'py>(items: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    if items.len().is_ok() {
        return Ok(items.clone());
    }
    items.py().get_type::<PyList>().call1((items,))
}

/// Run all that the feeder has, and add the results. What ends this early ends its tasks (MA-2).
fn drive<'py>(
    function: &Function,
    submission: &Submission,
    feeder: &mut Feeder,
    results: &Bound<'py, PyList>,
    progress: Option<&Bound<'py, PyAny>>,
    whole: bool,
) -> PyResult<()> {
    let batch = Batch::new(true);
    let ended = collect(function, submission, feeder, &batch, results, progress, whole);
    if ended.is_err() {
        function.session.cancel_batch(&batch);
    }
    ended
}

/// With `whole`, a task that fails ends nothing: the first error is raised when all have ended.
fn collect<'py>(
    function: &Function,
    submission: &Submission,
    feeder: &mut Feeder,
    batch: &Arc<Batch>,
    results: &Bound<'py, PyList>,
    progress: Option<&Bound<'py, PyAny>>,
    whole: bool,
) -> PyResult<()> {
    let py = results.py();
    let mut ready = Vec::new();
    let mut taken = 0;
    let mut failed = None;
    loop {
        let under_way = feeder.fed as usize - batch.done();
        if !feeder.exhausted && under_way < AHEAD && (under_way == 0 || function.session.has_room()) {
            // Large chunks one by one: the first slot starts while the second chunk is encoded.
            let count = if feeder.chunksize > FEED { 1 } else { FEED };
            match feeder.feed(py, &function.session, submission, batch, count) {
                Err(error) if whole && error.is_instance_of::<PyException>(py) => {
                    feeder.exhausted = true;
                    failed.get_or_insert(error);
                }
                fed => fed?,
            }
            if feeder.chunksize > 1 || under_way < AHEAD / 2 {
                continue;
            }
        }
        // Read before looking: what comes in between ends the wait at once.
        let done = batch.done();
        batch.take_ready(&mut ready);
        if !ready.is_empty() {
            let first = taken;
            taken += ready.len();
            for (index, stored) in ready.drain(..).enumerate() {
                let number = (first + index) as u32;
                let kept = feeder.kept.as_mut().and_then(VecDeque::pop_front);
                let retry_on = function.submission.retry_on;
                let runs_again = |how: &Lost| match how.cause {
                    LostCause::SlotDied => true,
                    LostCause::NodeLost => retry_on.node_lost,
                    LostCause::Poison => false,
                };
                match (kept, outcome::load(py, stored)) {
                    (Some(items), Outcome::Lost(how)) if runs_again(&how) => {
                        one_by_one(function, items.bind(py), feeder.star, results, progress)?;
                    }
                    (_, outcome) => match append(function, results, outcome, feeder, number) {
                        Err(error) if whole => {
                            failed.get_or_insert(error);
                        }
                        appended => appended?,
                    },
                }
            }
            if let Some(progress) = progress {
                progress.call1((results.len(),))?;
            }
            continue;
        }
        let fed = feeder.fed as usize;
        if feeder.exhausted && taken == fed {
            return failed.map_or(Ok(()), Err);
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

/// The slot of a chunk died: only the item that was to blame, if it was one, should have the deaths charged to it that
/// follow (MA-3). The one that happened was the first run of all of them.
fn one_by_one<'py>(
    function: &Function,
    items: &Bound<'py, PyList>,
    star: bool,
    results: &Bound<'py, PyList>,
    progress: Option<&Bound<'py, PyAny>>,
) -> PyResult<()> {
    let submission = Submission { retries: function.submission.retries - 1, ..function.submission };
    drive(function, &submission, &mut Feeder::of(function, items, star, 1)?, results, progress, false)
}

fn append(
    function: &Function,
    results: &Bound<'_, PyList>,
    outcome: Outcome,
    feeder: &mut Feeder,
    number: u32,
) -> PyResult<()> {
    let py = results.py();
    let chunk = feeder.chunksize > 1;
    let of = Of { chunk, ..Of::one(TaskId(0), &function.name, &function.session, function.wire) };
    let value = outcome::resolve_item(py, outcome, &of)?;
    feeder.remember(&function.session, &function.name, number, &value)?;
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
        let feeder = Feeder::of(function, items, star, chunksize)?;
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
        check_own(py, &self.session)?;
        loop {
            if let Some(value) = lazy.chunk.pop_front() {
                return Ok(Some(value));
            }
            let under_way = lazy.feeder.fed as usize - lazy.taken;
            let is_wanted = under_way < self.lookahead && (under_way == 0 || self.session.has_room());
            if !lazy.feeder.exhausted && lazy.failed.is_none() && is_wanted {
                let count = (self.lookahead - under_way).min(FEED);
                match lazy.feeder.feed(py, &self.session, &self.submission, &self.batch, count) {
                    Err(error) if error.is_instance_of::<PyException>(py) => lazy.failed = Some(error),
                    fed => fed?,
                }
            }
            // Read before looking: what comes in between ends the wait at once.
            let done = self.batch.done();
            if let Some((number, stored)) = self.batch.take_next_one() {
                lazy.taken += 1;
                let one = Of::one(TaskId(0), &self.name, &self.session, lazy.feeder.wire);
                let of = Of { chunk: lazy.feeder.chunksize > 1, ..one };
                let value = outcome::resolve_item(py, outcome::load(py, stored), &of)?;
                lazy.feeder.remember(&self.session, &self.name, number, &value)?;
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
        crate::ending::stays();
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
