//! Results with references in them that nobody decodes: their pins are let go of with their bytes.
//!
//! * UN-1: the bytes of such a result are dropped once, however they end: read, with a future that nobody asks, or after
//!   their task was cancelled. Then its pins go; those that were claimed are not known any more, and nothing happens.
//! * UN-2: the store is told by the callback thread, for bytes may be dropped under any lock.

use crate::session::{Session, Shared};
use paceline_core::client::Outcome;
use paceline_proto::{Bytes, PinId, pins};
use std::sync::{OnceLock, Weak};

/// How the store of a session hears that nobody will claim these.
pub type Unpin = fn(&Session, &[PinId]);

static UNPIN: OnceLock<Unpin> = OnceLock::new();

/// References travel in results of this program.
pub fn on_unclaimed(unpin: Unpin) {
    let _ = UNPIN.set(unpin);
}

struct Pinned {
    bytes: Bytes,
    session: Weak<Shared>,
}

impl AsRef<[u8]> for Pinned {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        let Some((shared, unpin)) = self.session.upgrade().zip(UNPIN.get()) else { return };
        if shared.closed() {
            return;
        }
        let (pins, session) = (pins::of(&self.bytes), self.session.clone());
        shared.notifier.push(Box::new(move || {
            if let Some(shared) = session.upgrade() {
                unpin(&Session { shared }, &pins);
            }
        }));
    }
}

/// The outcome of a task, whose pins go with it.
#[inline]
pub(crate) fn pinned(outcome: Outcome, session: &Weak<Shared>) -> Outcome {
    match outcome {
        Outcome::Value(bytes) if pins::has(&bytes) => {
            Outcome::Value(Bytes::from_owner(Pinned { bytes, session: session.clone() }))
        }
        outcome => outcome,
    }
}
