//! The arguments of a call, and where what they refer to is.

use super::Session;
use paceline_core::client::Near;
use paceline_proto::{Bytes, ObjectId};

/// The arguments of a call.
#[derive(Clone, Debug)]
pub struct Payload {
    pub bytes: Bytes,
    /// Where the call had better run.
    pub near: Option<Near>,
}

impl From<Bytes> for Payload {
    #[inline]
    fn from(bytes: Bytes) -> Payload {
        Payload { bytes, near: None }
    }
}

impl Session {
    /// Where a task had better run that needs these objects.
    pub fn near(&self, objects: impl Iterator<Item = ObjectId>) -> Option<Near> {
        let places = self.shared.whereabouts.as_ref()?.of(objects);
        Near::to(places.iter().map(|(size, nodes)| (*size, nodes.as_slice())))
    }
}
