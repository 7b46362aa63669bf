//! References in what travels: found while it is pickled, and kept for as long as the bytes are.
//!
//! * RE-1: what is found in arguments is held by the bytes of the call, and so until the call has an outcome.
//! * RE-2: what is found in a result is pinned before the result is sent.
//! * RE-3: a reference that is pickled by anybody else is held for as long as this process lives: nobody knows where it
//!   goes.
//! * RE-4: where the receiver may be out of reach of the owner's store, references take their values along.

use crate::{objects, slot};
use bytes::Bytes;
use paceline::objects::Held;
use paceline::{Payload, Session};
use paceline_proto::{ObjectId, PinId};
use pyo3::prelude::*;
use std::cell::{Cell, RefCell};
use std::sync::{Arc, OnceLock};

/// What a value is pickled for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Travel {
    /// Something that we know nothing of.
    Elsewhere,
    /// The arguments of a call, where references arrive as what they refer to.
    Arguments,
    /// What a function returned.
    Result,
    /// An object.
    Object,
}

/// A reference that was found.
pub struct Found {
    pub held: Arc<Held>,
    /// By which it travels.
    pub pin: Option<PinId>,
}

/// Set in slots of clusters at an address, where nobody knows which nodes the calls of a task go to: a node that has no link
/// with the owner could not get what they refer to.
const BY_VALUE: &str = "PACELINE_OBJECTS_BY_VALUE";

thread_local! {
    static VISITS: Cell<bool> = const { Cell::new(false) };
    static TRAVEL: Cell<Travel> = const { Cell::new(Travel::Elsewhere) };
    /// What the last bytes were before references were put to them, and to what, if somebody wants to know.
    static NOTED: RefCell<Option<Option<Plain>>> = const { RefCell::new(None) };
    static FOUND: RefCell<Vec<Found>> = const { RefCell::new(Vec::new()) };
    /// What the bytes at this address refer to, which were built last of all that refer to something.
    static OBJECTS: RefCell<(usize, Vec<ObjectId>)> = const { RefCell::new((0, Vec::new())) };
}

/// What this thread pickles just now.
#[pyfunction]
pub fn travels() -> Option<&'static str> {
    match TRAVEL.get() {
        Travel::Elsewhere => None,
        Travel::Arguments => Some("arguments"),
        Travel::Result => Some("result"),
        Travel::Object => Some("object"),
    }
}

/// What is pickled meanwhile, in this thread, is for this.
pub fn travelling<T>(travel: Travel, pickle: impl FnOnce() -> T) -> T {
    struct Before(Travel);
    impl Drop for Before {
        fn drop(&mut self) {
            TRAVEL.set(self.0);
        }
    }
    let _before = Before(TRAVEL.replace(travel));
    pickle()
}

/// The arguments of a call to somebody else's actor, whose node may know nothing of this program.
pub fn visiting<T>(pickle: impl FnOnce() -> T) -> T {
    struct Before(bool);
    impl Drop for Before {
        fn drop(&mut self) {
            VISITS.set(self.0);
        }
    }
    let _before = Before(VISITS.replace(true));
    pickle()
}

/// Whether references take their values along in what this thread pickles just now (RE-4).
fn carries() -> bool {
    static IN_CLUSTER: OnceLock<bool> = OnceLock::new();
    let in_cluster =
        || *IN_CLUSTER.get_or_init(|| std::env::var_os(BY_VALUE).is_some_and(|value| value == "yes"));
    match (TRAVEL.get(), slot::runtime()) {
        (Travel::Arguments, None) => VISITS.get(),
        (Travel::Arguments, Some(_)) => in_cluster(),
        (Travel::Result, Some(runtime)) => in_cluster() && runtime.has_guests(),
        _ => false,
    }
}

/// How many were found so far.
pub fn mark() -> usize {
    FOUND.with_borrow(Vec::len)
}

/// Those that were found since then, which are nobody's any more.
pub fn since(mark: usize) -> Vec<Found> {
    FOUND.with_borrow_mut(|found| found.split_off(mark.min(found.len())))
}

/// A reference is being pickled: what for.
///
/// None: its value goes along, and nothing needs to be kept.
pub fn note(held: &Arc<Held>) -> PyResult<Option<(Travel, Option<PinId>)>> {
    if carries() {
        return Ok(None);
    }
    let travel = TRAVEL.get();
    let pin = match travel {
        Travel::Result => Some(PinId(objects::random()?)),
        _ => None,
    };
    match travel {
        // RE-3
        Travel::Elsewhere => std::mem::forget(held.clone()),
        _ => FOUND.with_borrow_mut(|found| found.push(Found { held: held.clone(), pin })),
    }
    Ok(Some((travel, pin)))
}

/// Pin what was found since then, for it travels in a result (RE-2). The pins are named behind it, for those who never read it.
pub fn pin_since(py: Python<'_>, mark: usize) -> PyResult<Vec<PinId>> {
    if self::mark() <= mark {
        return Ok(Vec::new());
    }
    let found = since(mark);
    let asked: Vec<_> = found.iter().filter_map(|found| Some(found.held.pin(found.pin?))).collect();
    asked.iter().try_for_each(|asked| objects::answer(py, asked, None).map(drop))?;
    Ok(found.iter().filter_map(|found| found.pin).collect())
}

/// Bytes that are being built: what is found in them is not mixed with what was found before.
pub struct Build(Vec<Found>);

impl Build {
    pub fn begin() -> Build {
        Build(FOUND.take())
    }

    /// What was found, if anything was.
    pub fn found(&self) -> Vec<Found> {
        FOUND.take()
    }
}

impl Drop for Build {
    fn drop(&mut self) {
        FOUND.set(std::mem::take(&mut self.0));
    }
}

/// Bytes with the references in them (RE-1).
struct Carried {
    bytes: Bytes,
    _found: Vec<Found>,
}

impl AsRef<[u8]> for Carried {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// The bytes of a call without what keeps the objects that it refers to.
pub struct Plain {
    pub bytes: Bytes,
    pub inputs: Vec<ObjectId>,
}

/// Build the bytes of a call, and have them without their references, too.
pub fn noting(build: impl FnOnce() -> PyResult<Bytes>) -> PyResult<(Bytes, Plain)> {
    let before = NOTED.replace(Some(None));
    let built = build();
    let noted = NOTED.replace(before).flatten();
    let built = built?;
    // Building may have run user code that built something else.
    let plain = noted.filter(|plain| plain.bytes.as_ptr() == built.as_ptr());
    let plain = plain.unwrap_or_else(|| Plain { bytes: built.clone(), inputs: Vec::new() });
    Ok((built, plain))
}

pub fn carry(bytes: Bytes, found: Vec<Found>) -> Bytes {
    let objects: Vec<ObjectId> = found.iter().map(|found| found.held.reference().object).collect();
    NOTED.with_borrow_mut(|noted| {
        if let Some(place) = noted {
            *place = Some(Plain { bytes: bytes.clone(), inputs: objects.clone() });
        }
    });
    let carried = Bytes::from_owner(Carried { bytes, _found: found });
    OBJECTS.set((carried.as_ptr() as usize, objects));
    carried
}

/// The arguments of a call that was just pickled in this thread, with where it had better run, if they refer to objects.
#[inline]
pub fn placed(session: &Session, bytes: Bytes) -> Payload {
    if OBJECTS.with_borrow(|(at, _)| *at != bytes.as_ptr() as usize) {
        return bytes.into();
    }
    let (_, objects) = OBJECTS.take();
    let near = session.near(objects.into_iter());
    Payload { bytes, near }
}
