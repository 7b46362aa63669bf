//! References in what travels: found while it is pickled, and kept for as long as the bytes are.
//!
//! * RE-1: what is found in arguments is held by the bytes of the call, and so until the call has an outcome.
//! * RE-2: what is found in a result is pinned before the result is sent.
//! * RE-3: a reference that is pickled by anybody else is held for as long as this process lives: nobody knows where it
//!   goes.

use crate::objects;
use bytes::Bytes;
use paceline::objects::Held;
use paceline_proto::PinId;
use pyo3::prelude::*;
use std::cell::{Cell, RefCell};
use std::sync::Arc;

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

thread_local! {
    static TRAVEL: Cell<Travel> = const { Cell::new(Travel::Elsewhere) };
    static FOUND: RefCell<Vec<Found>> = const { RefCell::new(Vec::new()) };
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

/// How many were found so far.
pub fn mark() -> usize {
    FOUND.with_borrow(Vec::len)
}

/// Those that were found since then, which are nobody's any more.
pub fn since(mark: usize) -> Vec<Found> {
    FOUND.with_borrow_mut(|found| found.split_off(mark.min(found.len())))
}

/// A reference is being pickled: what for.
pub fn note(held: &Arc<Held>) -> PyResult<(Travel, Option<PinId>)> {
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
    Ok((travel, pin))
}

/// Pin what was found since then, for it travels in a result (RE-2).
pub fn pin_since(py: Python<'_>, mark: usize) -> PyResult<()> {
    if self::mark() <= mark {
        return Ok(());
    }
    let found = since(mark);
    let asked: Vec<_> = found.iter().filter_map(|found| Some(found.held.pin(found.pin?))).collect();
    asked.iter().try_for_each(|asked| objects::answer(py, asked, None).map(drop))
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

pub fn carry(bytes: Bytes, found: Vec<Found>) -> Bytes {
    Bytes::from_owner(Carried { bytes, _found: found })
}
