//! What both ends of a data link on one machine say of shared memory. The links themselves hear it; nobody above does.

use crate::data::{from_postcard, postcard_frame};
use crate::error::Error;
use crate::frame::Frame;
use serde::{Deserialize, Serialize};

/// The kind of frame that carries it.
pub const KIND: u8 = 96;

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Lending {
    /// Ranges of this segment will be named. Its descriptor comes with the first byte of the frame.
    Segment { segment: u32, size: u64 },
    /// No range of this segment will be named again.
    Gone { segment: u32 },
    /// Nobody here looks at these ranges any more.
    Returned(Vec<Returned>),
    /// Name no ranges over this link: there is no room for them here.
    Plain,
    /// There is room again: name ranges as before.
    Again,
}

/// A range that is given back.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Returned {
    pub segment: u32,
    pub offset: u64,
    /// Somebody who cannot be asked may still look at it.
    pub retired: bool,
}

impl Lending {
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), Error> {
        postcard_frame(KIND, self, out)
    }

    pub fn decode(frame: &Frame) -> Result<Lending, Error> {
        match frame.kind {
            KIND => from_postcard(&frame.body, "lending"),
            found => Err(Error::Kind { found }),
        }
    }
}
