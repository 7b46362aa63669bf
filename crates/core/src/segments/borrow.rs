//! What a link's other end has lent to this process.
//!
//! * BO-1: a range lies inside of a segment that is known, and overlaps nothing that is still held.
//! * BO-2: a process that has forked since it got a range returns it as retired: the child may still look at it.

use super::{MOST_KNOWN, PAGE, SegmentId, Spot};
use std::collections::BTreeMap;

/// The other end has said something that cannot be.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Wrong {
    #[error("a link may know {MOST_KNOWN} segments, and was told of one more")]
    TooMany,
    #[error("{0:?} is known already")]
    Known(SegmentId),
    #[error("{0:?} is not known")]
    Unknown(SegmentId),
    #[error("{0:?} is outside of its segment, or not free to be lent")]
    Range(Spot),
}

#[derive(Default)]
pub struct Borrowed {
    segments: BTreeMap<SegmentId, Segment>,
}

struct Segment {
    size: u64,
    /// What is held, by its offset: how long it is, and how often this process had forked.
    held: BTreeMap<u64, (u64, u64)>,
}

impl Borrowed {
    pub fn on_segment(&mut self, id: SegmentId, size: u64) -> Result<(), Wrong> {
        if self.segments.len() >= MOST_KNOWN {
            return Err(Wrong::TooMany);
        }
        if self.segments.contains_key(&id) {
            return Err(Wrong::Known(id));
        }
        self.segments.insert(id, Segment { size, held: BTreeMap::new() });
        Ok(())
    }

    /// The other end has given the segment up. Says whether it was known.
    pub fn on_gone(&mut self, id: SegmentId) -> bool {
        self.segments.remove(&id).is_some()
    }

    /// A range came; this process has forked so often.
    pub fn on_range(&mut self, spot: Spot, length: u64, forks: u64) -> Result<(), Wrong> {
        let segment = self.segments.get_mut(&spot.segment).ok_or(Wrong::Unknown(spot.segment))?;
        let end = spot.offset.checked_add(length).filter(|end| *end <= segment.size);
        let end = end.filter(|_| length > 0 && spot.offset.is_multiple_of(PAGE)).ok_or(Wrong::Range(spot))?;
        let before = segment.held.range(..end).next_back();
        if before.is_some_and(|(offset, (length, _))| offset + length.next_multiple_of(PAGE) > spot.offset) {
            return Err(Wrong::Range(spot));
        }
        segment.held.insert(spot.offset, (length, forks));
        Ok(())
    }

    /// Nobody here looks at the range any more. Says whether it must be retired; none: nobody asks for it.
    pub fn give_back(&mut self, spot: Spot, forks: u64) -> Option<bool> {
        let (_, since) = self.segments.get_mut(&spot.segment)?.held.remove(&spot.offset)?;
        Some(since != forks)
    }
}
