//! Tasks whose results are kept on nodes, as they were submitted: what is lost with a node is made again by running them
//! again.
//!
//! Owns: the bytes of the calls. Does not own: when one runs again, and for how long it is known
//! ([`paceline_core::objects`] decides).
//!
//! * MA-1: a call is kept as the bytes that were submitted, without the references in it: what it was made from is not kept
//!   for its sake.
//! * MA-2: what it makes again has the name that it had.

use crate::objects::Objects;
use crate::session::{Payload, Session, Shared, Submission};
use paceline_core::client::Outcome;
use paceline_proto::{Bytes, ObjectId, TaskId, parts};
use std::sync::{Arc, Weak};

/// First byte of a call that makes an object again. The object follows, then which of the items of the call it was made
/// from (none: [`u64::MAX`]), then the call itself.
pub const AGAIN: u8 = 5;

/// Why a task made nothing, in words.
pub type Told = Arc<dyn Fn(&Session, TaskId, Outcome) -> Option<String> + Send + Sync>;

/// A task that has made an object, and can make it again.
pub struct Maker {
    session: Weak<Shared>,
    submission: Submission,
    payload: Bytes,
    item: Option<(u64, u64)>,
    pub(crate) inputs: Vec<ObjectId>,
    told: Told,
}

impl Maker {
    /// `payload` is the call without the references in it, which are to `inputs`. If it is a call for several items, the
    /// object was made from one of them: which, of how many.
    pub fn new(
        session: &Session,
        submission: Submission,
        payload: Bytes,
        item: Option<(u64, u64)>,
        inputs: Vec<ObjectId>,
        told: Told,
    ) -> Maker {
        Maker { session: Arc::downgrade(&session.shared), submission, payload, item, inputs, told }
    }

    pub(crate) fn bytes(&self) -> u64 {
        // What was made from the other items keeps the same bytes.
        let call = parts::carried(&self.payload) as u64 / self.item.map_or(1, |(_, of)| of.max(1));
        call + (size_of::<Maker>() + self.inputs.len() * size_of::<ObjectId>()) as u64
    }

    pub(crate) fn may_run_again(&self) -> bool {
        self.submission.retries > 0
    }

    /// Make the object again, and say how that went.
    pub(crate) fn run(self: Arc<Self>, object: ObjectId, objects: Objects) {
        let Some(session) = self.session.upgrade().map(|shared| Session { shared }) else { return };
        let bytes = again(&self.payload, object, self.item.map(|(item, _)| item));
        let payload = Payload { bytes, near: session.near(self.inputs.iter().copied()) };
        let submission = self.submission;
        let cell = session.later();
        let (outcome, of) = (cell.clone(), Arc::downgrade(&session.shared));
        let ended = Box::new(move || {
            // Of a cluster that is closed nobody hears anything but that.
            let Some(session) = of.upgrade().map(|shared| Session { shared }) else { return };
            if session.is_closed() {
                return;
            }
            let failed = match outcome.outcome() {
                Some(Outcome::Value(_)) => None,
                ended => {
                    let told = ended.and_then(|ended| (self.told)(&session, outcome.task(), ended));
                    Some(told.unwrap_or_else(|| "it made nothing".into()))
                }
            };
            objects.ran(object, failed);
        });
        // It was made for this alone, and nothing has ended it yet.
        let _ = cell.on_done(ended);
        if session.submit_later(&submission, payload, &cell) {
            session.expect_callback();
        } else {
            session.end_later(&cell);
        }
    }
}

/// The call that makes an object again (MA-2).
fn again(payload: &Bytes, object: ObjectId, item: Option<u64>) -> Bytes {
    let inner = parts::inner(payload);
    let mut call = Vec::with_capacity(1 + 16 + 8 + inner.len());
    call.push(AGAIN);
    call.extend_from_slice(&object.0.to_le_bytes());
    call.extend_from_slice(&item.unwrap_or(u64::MAX).to_le_bytes());
    call.extend_from_slice(inner);
    match parts::Parted::read(payload) {
        None => call.into(),
        Some(parted) => {
            let bytes = parts::Parted { inner: &call, ..parted }.write();
            Bytes::from_owner(WithParts { bytes, _parts: payload.clone() })
        }
    }
}

/// Bytes that name parts which others keep.
struct WithParts {
    bytes: Vec<u8>,
    _parts: Bytes,
}

impl AsRef<[u8]> for WithParts {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}
