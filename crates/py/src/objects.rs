//! Objects and references as Python has them.
//!
//! An object is a pickle and its buffers, one after the other: the pickle's length, how many buffers there are, their
//! lengths, all as 64-bit numbers; then the pickle, then each buffer at a multiple of 64 bytes.
//!
//! * PO-1: buffers are copied once, from where they are to the memory of the object, without the interpreter's lock.
//! * PO-2: who gets an object has a map of its own: its arrays can be written, and nobody else sees it.

use crate::references::{self, Travel};
use crate::{room, session, slot};
use paceline::Session;
use paceline::embedded::fill_random;
use paceline::makers::Maker;
use paceline::objects::{Answer, Asked, Content, Held, Objects};
use paceline_net::sealed::{Filling, Mapping};
use paceline_proto::limits;
use paceline_proto::objects::{Missing, Reference};
use paceline_proto::{ClientId, NodeId, ObjectId, PinId};
use paceline_slot::{Runtime, Wait};
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::{PyTimeoutError, PyValueError};
use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyDict, PyList, PyMemoryView, PySlice, PyTuple};
use std::ffi::c_int;
use std::io;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// Objects up to this size travel in messages.
const SMALL: usize = 64 << 10;
const ALIGNED: usize = 64;
const UNLINKED: &str =
    "the object cannot be had here: this node has no link with the program that it belongs to";
const SLICE: Duration = Duration::from_millis(100);

/// The store of this process's node, as its process reaches it.
#[pyclass(frozen, module = "paceline._native", name = "Objects")]
pub struct Store {
    objects: Objects,
}

/// A reference that counts.
#[pyclass(frozen, module = "paceline._native", name = "Held")]
pub struct HeldReference {
    held: Arc<Held>,
}

/// How a reference is read again, its bytes, and the pin by which it travels.
type Sent<'py> = (Option<&'static str>, Bound<'py, PyBytes>, Option<u128>);
/// A pickle, and the buffers beside it.
type Parts<'py> = (Bound<'py, PyAny>, Bound<'py, PyList>);

/// The link of the slot that this process is.
static SLOT: OnceLock<Objects> = OnceLock::new();

/// The objects that this process reaches if it is a slot.
pub fn of_slot() -> Option<io::Result<Objects>> {
    let runtime = slot::runtime()?;
    if let Some(open) = SLOT.get() {
        return Some(Ok(open.clone()));
    }
    let opened = runtime.reach_store().and_then(|(link, client)| Objects::open(link, client, false));
    Some(opened.map(|opened| SLOT.get_or_init(|| opened).clone()))
}

pub fn of_session(py: Python<'_>, session: &Session) -> PyResult<Store> {
    match of_slot().unwrap_or_else(|| session.objects()) {
        Ok(objects) => Ok(Store { objects }),
        Err(error) => Err(out_of_reach(py, Some(session), error)),
    }
}

/// Why the store of objects is out of reach, as users know it. What the system said is its cause.
fn out_of_reach(py: Python<'_>, session: Option<&Session>, error: io::Error) -> PyErr {
    let made = match session.filter(|session| session.is_closed()) {
        Some(session) => room::closed(py, session),
        None => {
            let made = py.import(intern!(py, "paceline.errors")).and_then(|errors| {
                let options = PyDict::new(py);
                options.set_item("hint", OUT_OF_REACH_HINT)?;
                let message = format!("the store of objects cannot be reached: {error}");
                errors.getattr(intern!(py, "ConnectionFailed"))?.call((message,), Some(&options))
            });
            made.map_or_else(|error| error, PyErr::from_value)
        }
    };
    made.set_cause(py, Some(error.into()));
    made
}

const OUT_OF_REACH_HINT: &str = "the cluster, or the node that this is on, has ended or is about to: see paceline status, and connect again";

/// Nobody will claim these, which a result of this session's has kept.
pub fn unpin(session: &Session, pins: &[PinId]) {
    if let Ok(objects) = of_slot().unwrap_or_else(|| session.objects()) {
        pins.iter().for_each(|pin| objects.unpin(*pin));
    }
}

pub fn random() -> PyResult<u128> {
    let mut bytes = [0; 16];
    fill_random(&mut bytes)?;
    Ok(u128::from_le_bytes(bytes))
}

fn packed<'py>(py: Python<'py>, reference: &Reference) -> Bound<'py, PyBytes> {
    let mut bytes = [0; 32];
    bytes[..16].copy_from_slice(&reference.object.0.to_le_bytes());
    bytes[16..24].copy_from_slice(&reference.owner.0.to_le_bytes());
    bytes[24..].copy_from_slice(&reference.home.0.to_le_bytes());
    PyBytes::new(py, &bytes)
}

fn unpacked(bytes: &[u8]) -> PyResult<Reference> {
    let wrong = || PyValueError::new_err(format!("a reference has 32 bytes, and not {}", bytes.len()));
    let bytes = <[u8; 32]>::try_from(bytes).map_err(|_| wrong())?;
    let (object, rest) = bytes.split_first_chunk::<16>().expect("it is longer");
    let (owner, home) = rest.split_first_chunk::<8>().expect("it is longer");
    Ok(Reference {
        object: ObjectId(u128::from_le_bytes(*object)),
        owner: ClientId(u64::from_le_bytes(*owner)),
        home: NodeId(u64::from_le_bytes(home.try_into().expect("the rest is as long"))),
    })
}

/// Wait for an answer. None: for as long as it takes.
pub fn answer(py: Python<'_>, asked: &Asked, timeout: Option<Duration>) -> PyResult<Answer> {
    wait_for(py, asked, timeout).and_then(|answer| checked(py, answer, None))
}

/// The same of a question about this object.
fn answer_of(
    py: Python<'_>,
    asked: &Asked,
    reference: Reference,
    timeout: Option<Duration>,
) -> PyResult<Answer> {
    wait_for_object(py, asked, timeout).and_then(|answer| checked(py, answer, Some(reference)))
}

/// Whether there is room for an object.
enum Room {
    Given,
    /// Its owner could not know of it.
    Unlinked,
    /// It is here.
    Taken,
}

fn room(py: Python<'_>, asked: &Asked) -> PyResult<Room> {
    match wait_for(py, asked, None)? {
        Answer::Missing(Missing::Unlinked) => Ok(Room::Unlinked),
        Answer::Held => Ok(Room::Taken),
        answer => checked(py, answer, None).map(|_| Room::Given),
    }
}

/// A task that waits for an object leaves its CPUs to others meanwhile: it may be made by one of them.
struct Waits(Option<(&'static Runtime, Option<Wait>)>);

impl Waits {
    fn more(&mut self) {
        let Some(runtime) = slot::runtime() else { return };
        self.0.get_or_insert_with(|| (runtime, runtime.block()));
        if runtime.is_too_deep() {
            runtime.wait_anyway();
        }
    }
}

impl Drop for Waits {
    fn drop(&mut self) {
        if let Some((runtime, Some(wait))) = self.0.take() {
            runtime.unblock(wait);
        }
    }
}

fn wait_for(py: Python<'_>, asked: &Asked, timeout: Option<Duration>) -> PyResult<Answer> {
    wait_while(py, asked, timeout, || {})
}

fn wait_for_object(py: Python<'_>, asked: &Asked, timeout: Option<Duration>) -> PyResult<Answer> {
    let mut waits = Waits(None);
    wait_while(py, asked, timeout, || waits.more())
}

fn wait_while(
    py: Python<'_>,
    asked: &Asked,
    timeout: Option<Duration>,
    mut meanwhile: impl FnMut(),
) -> PyResult<Answer> {
    let until = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
    loop {
        let slice = until.map_or(SLICE, |until| until.saturating_duration_since(Instant::now()).min(SLICE));
        if let Some(answer) = crate::ending::detach(py, || asked.wait(slice)) {
            return Ok(answer);
        }
        py.check_signals()?;
        meanwhile();
        if until.is_some_and(|until| until <= Instant::now()) {
            return Err(PyTimeoutError::new_err("the object is not there yet"));
        }
    }
}

fn checked(py: Python<'_>, answer: Answer, of: Option<Reference>) -> PyResult<Answer> {
    let (name, arguments) = match answer {
        Answer::Full(why) => ("StoreFull", (why.size, why.used, why.limit, why.disk).into_pyobject(py)?),
        Answer::Missing(Missing::OwnerLost) => ("OwnerLost", PyTuple::empty(py)),
        Answer::Missing(Missing::Unlinked) => ("ObjectLost", (UNLINKED,).into_pyobject(py)?),
        Answer::Missing(why) => match of {
            None => ("ObjectLost", PyTuple::empty(py)),
            Some(reference) => ("ObjectLost", (lost(reference, &why),).into_pyobject(py)?),
        },
        Answer::Broken => ("ClusterClosed", PyTuple::empty(py)),
        Answer::Refused(why) => ("LimitReached", (why,).into_pyobject(py)?),
        answer => return Ok(answer),
    };
    let made =
        py.import(intern!(py, "paceline.errors")).and_then(|errors| errors.getattr(name)?.call1(arguments));
    Err(made.map_or_else(|error| error, PyErr::from_value))
}

fn lost(Reference { object, home, .. }: Reference, why: &Missing) -> String {
    let name = object.0.swap_bytes() >> 96;
    let made = match home {
        NodeId(0) => "by the program itself".into(),
        home => format!("on the node of number {home}"),
    };
    let why = match why {
        Missing::Lost | Missing::OwnerLost | Missing::Unlinked => {
            "nobody knows how to make it again: that is known of results of tasks that the program itself has submitted with keep=True"
        }
        Missing::Forgotten => {
            "how it was made is forgotten, for there was too much to remember: PACELINE_REMEMBER says how much may be"
        }
        Missing::TooOften => "it was made again three times, and lost each time",
        Missing::NotAgain => "its task may not be run again, for it has retries=0",
        Missing::NoInput => "what its task was given is gone, too, and cannot be made again",
        Missing::Failed(why) => &format!("its task failed when it was run again: {why}"),
    };
    format!("object {name:08x} is lost: it was made {made}, no node has its value any more, and {why}")
}

#[pymethods]
impl Store {
    /// The one of the slot that this process is, if it is one.
    #[staticmethod]
    fn of_slot(py: Python<'_>) -> PyResult<Option<Store>> {
        let objects = self::of_slot().transpose().map_err(|error| out_of_reach(py, None, error))?;
        Ok(objects.map(|objects| Store { objects }))
    }

    /// None: nobody would know of it here.
    fn put(&self, value: &Bound<'_, PyAny>, wait: f64) -> PyResult<Option<HeldReference>> {
        match self.put_as(value, wait, ObjectId(random()?))? {
            Ok(held) => Ok(Some(HeldReference { held: Arc::new(held) })),
            Err(_) => Ok(None),
        }
    }

    /// Keep a value as the object that it was before it was lost. Its owner knows of it when this returns.
    fn put_again(&self, value: &Bound<'_, PyAny>, wait: f64, object: u128) -> PyResult<()> {
        let py = value.py();
        match self.put_as(value, wait, ObjectId(object))? {
            Ok(held) => {
                // Its owner answers this after it has heard of the object. Nobody has such a pin: a slot that dies here
                // leaves nothing behind.
                let reference = held.reference();
                let (_again, asked) = self.objects.claim(PinId(random()?), reference);
                answer_of(py, &asked, reference, None).map(drop)
            }
            Err(Room::Taken) => Ok(()),
            Err(_) => checked(py, Answer::Missing(Missing::Unlinked), None).map(drop),
        }
    }

    /// The value of a reference.
    fn get<'py>(
        &self,
        py: Python<'py>,
        reference: &[u8],
        timeout: Option<f64>,
    ) -> PyResult<Bound<'py, PyAny>> {
        load(py, self.content(py, reference, timeout)?)
    }

    /// The same as it was pickled, with the buffers beside it.
    fn parts<'py>(&self, py: Python<'py>, reference: &[u8]) -> PyResult<Parts<'py>> {
        parts(py, self.content(py, reference, None)?)
    }

    /// One more reference, to what something else keeps meanwhile.
    fn hold(&self, py: Python<'_>, reference: &[u8]) -> PyResult<HeldReference> {
        self.check_own(py)?;
        let reference = unpacked(reference)?;
        let (held, asked) = self.objects.hold(reference);
        asked.iter().try_for_each(|asked| answer_of(py, asked, reference, None).map(drop))?;
        Ok(HeldReference { held: Arc::new(held) })
    }

    /// The reference that has come by this pin.
    fn claim(&self, py: Python<'_>, reference: &[u8], pin: u128) -> PyResult<HeldReference> {
        self.check_own(py)?;
        let reference = unpacked(reference)?;
        let (held, asked) = self.objects.claim(PinId(pin), reference);
        answer_of(py, &asked, reference, None)?;
        Ok(HeldReference { held: Arc::new(held) })
    }
}

impl HeldReference {
    /// Its object was made like this.
    pub fn remember(&self, maker: Maker) {
        self.held.objects().remember(self.held.reference().object, maker);
    }
}

#[pymethods]
impl HeldReference {
    /// Its bytes.
    #[getter]
    fn reference<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        packed(py, &self.held.reference())
    }

    /// The store that it is held by.
    #[getter]
    fn objects(&self) -> Store {
        Store { objects: self.held.objects() }
    }

    /// It is being pickled: how it is read again, its bytes, and the pin by which it travels. Nothing of how if its value
    /// is to go along.
    fn send<'py>(&self, py: Python<'py>) -> PyResult<Sent<'py>> {
        let Some((travel, pin)) = references::note(&self.held)? else {
            return Ok((None, packed(py, &self.held.reference()), None));
        };
        let how = match travel {
            Travel::Arguments => "argument",
            Travel::Result => "arrived",
            Travel::Object | Travel::Elsewhere => "kept",
        };
        Ok((Some(how), packed(py, &self.held.reference()), pin.map(|pin| pin.0)))
    }
}

/// The pickle of a value, and the buffers that go beside it.
fn pickle<'py>(value: &Bound<'py, PyAny>) -> PyResult<(Bound<'py, PyBytes>, Vec<PyBuffer<u8>>)> {
    let py = value.py();
    let module = py.import(intern!(py, "paceline._objects"))?;
    let made = module.getattr(intern!(py, "encoded"))?.call1((value,))?;
    let (pickled, buffers): (Bound<'py, PyBytes>, Vec<Bound<'py, PyAny>>) = made.extract()?;
    let buffers = buffers.iter().map(PyBuffer::get).collect::<PyResult<_>>()?;
    Ok((pickled, buffers))
}

/// Where everything is in an object.
struct Layout {
    header: Vec<u8>,
    places: Vec<usize>,
    size: usize,
}

impl Layout {
    fn of(pickled: usize, buffers: &[PyBuffer<u8>]) -> Layout {
        let mut header = Vec::with_capacity(16 + 8 * buffers.len());
        header.extend((pickled as u64).to_le_bytes());
        header.extend((buffers.len() as u64).to_le_bytes());
        let mut size = 16 + 8 * buffers.len() + pickled;
        let mut places = Vec::with_capacity(buffers.len());
        for buffer in buffers {
            header.extend((buffer.len_bytes() as u64).to_le_bytes());
            size = size.next_multiple_of(ALIGNED);
            places.push(size);
            size += buffer.len_bytes();
        }
        Layout { header, places, size }
    }

    fn write(&self, pickled: &[u8], buffers: &[PyBuffer<u8>], out: &mut impl Out) -> io::Result<()> {
        out.at(0, &self.header)?;
        out.at(self.header.len(), pickled)?;
        for (buffer, &place) in buffers.iter().zip(&self.places) {
            // SAFETY: it is contiguous, as `encoded` makes them, and held until this returns. Another thread that writes
            // to it meanwhile makes the value one that it never had, as it would anywhere.
            let bytes = unsafe {
                std::slice::from_raw_parts(buffer.buf_ptr().cast::<u8>().cast_const(), buffer.len_bytes())
            };
            out.at(place, bytes)?;
        }
        Ok(())
    }
}

trait Out {
    fn at(&mut self, place: usize, bytes: &[u8]) -> io::Result<()>;
}

impl Out for Vec<u8> {
    fn at(&mut self, place: usize, bytes: &[u8]) -> io::Result<()> {
        self.resize(place, 0);
        self.extend_from_slice(bytes);
        Ok(())
    }
}

impl Out for Filling {
    fn at(&mut self, place: usize, bytes: &[u8]) -> io::Result<()> {
        self.skip_to(place as u64);
        self.write(bytes)
    }
}

/// A map of an object's bytes, as something with a buffer.
#[pyclass(frozen, module = "paceline._native")]
pub struct Mapped {
    mapping: Mapping,
    /// Its memory counts as in use until this is gone.
    _content: Arc<Content>,
}

#[pymethods]
impl Mapped {
    /// # Safety
    ///
    /// Called by the interpreter, with a view that it owns.
    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        let mapping = &slf.get().mapping;
        let (start, size) = (mapping.start().cast(), mapping.size() as ffi::Py_ssize_t);
        // SAFETY: the view is the interpreter's to be filled, and keeps us, and so the map, for as long as it is used.
        let filled = unsafe { ffi::PyBuffer_FillInfo(view, slf.as_ptr(), start, size, 0, flags) };
        if filled == 0 { Ok(()) } else { Err(PyErr::fetch(slf.py())) }
    }
}

impl Store {
    /// As of a session.
    fn check_own(&self, py: Python<'_>) -> PyResult<()> {
        if self.objects.is_foreign() { Err(session::forked(py)) } else { Ok(()) }
    }

    /// Keep a value under this name; or why not.
    fn put_as(&self, value: &Bound<'_, PyAny>, wait: f64, object: ObjectId) -> PyResult<Result<Held, Room>> {
        crate::ending::stays();
        let py = value.py();
        self.check_own(py)?;
        let mark = references::mark();
        let pickled = references::travelling(Travel::Object, || pickle(value));
        let inside: Vec<Reference> =
            references::since(mark).into_iter().map(|found| found.held.reference()).collect();
        let (pickled, buffers) = pickled?;
        limits::within("references of an object", inside.len(), limits::MOST_REFERENCES)
            .map_err(|error| PyValueError::new_err(error.to_string()))?;
        let layout = Layout::of(pickled.as_bytes().len(), &buffers);
        let wait = Duration::try_from_secs_f64(wait.max(0.0)).unwrap_or(Duration::MAX);
        if layout.size <= SMALL {
            let mut bytes = Vec::with_capacity(layout.size);
            layout.write(pickled.as_bytes(), &buffers, &mut bytes)?;
            return match room(py, &self.objects.put_small(object, bytes, inside, wait))? {
                Room::Given => Ok(Ok(self.objects.put_done(object))),
                other => Ok(Err(other)),
            };
        }
        let asked = self.objects.reserve(object, layout.size as u64, wait);
        match room(py, &asked) {
            Ok(Room::Given) => {}
            Ok(other) => return Ok(Err(other)),
            Err(error) => {
                self.objects.abandon(object);
                return Err(error);
            }
        }
        let pickled = pickled.as_bytes();
        let filled = crate::ending::detach(py, || {
            let mut filling = Filling::new(layout.size as u64)?;
            layout.write(pickled, &buffers, &mut filling)?;
            filling.seal()
        });
        match filled {
            Ok(memory) => Ok(Ok(self.objects.put(object, memory, inside))),
            Err(error) => {
                self.objects.abandon(object);
                Err(error.into())
            }
        }
    }

    fn content(&self, py: Python<'_>, reference: &[u8], timeout: Option<f64>) -> PyResult<Arc<Content>> {
        self.check_own(py)?;
        let reference = unpacked(reference)?;
        match self.objects.get(reference) {
            Ok(content) => Ok(content),
            Err(asked) => match answer_of(py, &asked, reference, crate::waiting::timeout(timeout))? {
                Answer::Content(content) => Ok(content),
                _ => Err(PyValueError::new_err("the store did not answer what it was asked")),
            },
        }
    }
}

/// The value that an object is.
fn load(py: Python<'_>, content: Arc<Content>) -> PyResult<Bound<'_, PyAny>> {
    crate::ending::stays();
    let module = py.import(intern!(py, "paceline._objects"))?;
    module.getattr(intern!(py, "decoded"))?.call1(parts(py, content)?)
}

/// The pickle of an object, and its buffers.
fn parts(py: Python<'_>, content: Arc<Content>) -> PyResult<Parts<'_>> {
    let whole = match content.map() {
        Some(mapping) => {
            let mapped = Mapped { mapping: mapping?, _content: content };
            Bound::new(py, mapped)?.into_any()
        }
        None => PyByteArray::new(py, content.small().unwrap_or_default()).into_any(),
    };
    let view = PyMemoryView::from(&whole)?;
    let number = |place: usize| -> PyResult<usize> {
        let bytes = view.get_item(PySlice::new(py, place as isize, place as isize + 8, 1))?;
        let bytes: [u8; 8] = bytes.call_method0(intern!(py, "tobytes"))?.extract()?;
        Ok(u64::from_le_bytes(bytes) as usize)
    };
    let part = |place: usize, length: usize| {
        view.get_item(PySlice::new(py, place as isize, (place + length) as isize, 1))
    };
    let (length, count) = (number(0)?, number(8)?);
    let mut place = 16 + 8 * count;
    let pickled = part(place, length)?;
    place += length;
    let buffers = PyList::empty(py);
    for index in 0..count {
        let length = number(16 + 8 * index)?;
        place = place.next_multiple_of(ALIGNED);
        buffers.append(part(place, length)?)?;
        place += length;
    }
    Ok((pickled, buffers))
}
