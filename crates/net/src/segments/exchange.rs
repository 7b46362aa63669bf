//! One link's part in it: what it lends, what it is lent, and what both ends say of that.

use super::memory::{Read, Written};
use super::part::Part;
use super::store::{Store, parted};
use super::wire::{Kick, Wire};
use bytes::Bytes;
use paceline_core::segments::{Lent, LinkId, SegmentId, Spot};
use paceline_proto::Error;
use paceline_proto::frame::{INLINE, Segment};
use paceline_proto::lending::Lending;
use paceline_proto::parts;
use rustix::fd::{AsFd, OwnedFd};
use smallvec::SmallVec;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Descriptors that may have come before the messages that name them are read: as many as a link lends at most.
const MAX_UNNAMED_DESCRIPTORS: usize = 64;

const WRONG: Error = Error::Malformed { what: "segment" };

/// One end of a link that can lend and be lent memory.
pub(crate) struct Exchange {
    store: &'static Store,
    link: LinkId,
    wire: Arc<Wire>,
    /// The other end takes segments.
    lends: bool,
    /// Descriptors that have come and were not named yet.
    came: VecDeque<OwnedFd>,
}

/// What goes out beside the bytes of frames.
pub(crate) enum Outgoing {
    /// A segment's descriptor, with the next byte.
    Descriptor(Arc<dyn AsFd + Send + Sync>),
    /// The bytes of a part, of which some have gone.
    Body(Arc<Part>, usize),
}

/// What came of a message.
pub(crate) enum Told {
    Fine,
    /// There is no room here for what the other end sends.
    NoRoom(&'static str),
}

impl Exchange {
    pub fn new(kick: Option<Kick>) -> Exchange {
        let store = Store::current();
        let wire = Arc::new(Wire::new(store, kick));
        let link = store.open_link(&wire);
        Exchange { store, link, wire, lends: true, came: VecDeque::new() }
    }

    /// Lend a part. None: it cannot be lent. With it, the segment if the other end does not know it yet.
    pub fn lend(&mut self, part: &Part) -> Option<(Segment, Option<(Lending, Outgoing)>)> {
        let own = part.own().filter(|own| self.lends && std::ptr::eq(own.store, self.store))?;
        let lent = self.store.lend(own.spot, self.link)?;
        let Spot { segment, offset } = own.spot;
        let entry = Segment { segment: segment.0, flags: 0, offset, length: own.length as u64 };
        let first = (lent == Lent::New).then(|| {
            let memory: Arc<Written> = own.memory.clone();
            let size = memory.size() as u64;
            (Lending::Segment { segment: segment.0, size }, Outgoing::Descriptor(memory))
        });
        Some((entry, first))
    }

    /// A descriptor has come. False: too many have that nobody has named, so it is closed.
    #[must_use]
    pub fn on_descriptor(&mut self, descriptor: OwnedFd) -> bool {
        let expected = self.came.len() < MAX_UNNAMED_DESCRIPTORS;
        if expected {
            self.came.push_back(descriptor);
        }
        expected
    }

    pub fn on_lending(&mut self, message: Lending) -> Result<Told, Error> {
        match message {
            Lending::Segment { segment, size } => {
                let Some(descriptor) = self.came.pop_front() else {
                    return Ok(Told::NoRoom("there are too many open files"));
                };
                let map = match Read::open(descriptor, size) {
                    Ok(map) => map,
                    Err(error) if error.kind() == std::io::ErrorKind::InvalidData => return Err(WRONG),
                    Err(_) => return Ok(Told::NoRoom("there is no room for another mapping of memory")),
                };
                self.wire.on_segment(SegmentId(segment), size, map).map_err(|_| WRONG)?;
            }
            Lending::Gone { segment } => {
                if !self.wire.on_gone(SegmentId(segment)) {
                    return Err(WRONG);
                }
            }
            Lending::Returned(ranges) => {
                for range in ranges {
                    let spot = Spot { segment: SegmentId(range.segment), offset: range.offset };
                    if !self.store.give_back(self.link, spot, range.retired) {
                        return Err(WRONG);
                    }
                }
            }
            Lending::Plain => self.lends = false,
            Lending::Again => self.lends = true,
        }
        Ok(Told::Fine)
    }

    /// Whether something is to be said.
    pub fn is_pending(&self) -> bool {
        self.wire.pending.load(Ordering::Relaxed)
    }

    /// Append what is to be said.
    pub fn say(&self, out: &mut Vec<u8>) {
        self.wire.say(out);
    }

    fn range(&self, entry: &Segment) -> Result<Part, Error> {
        let spot = Spot { segment: SegmentId(entry.segment), offset: entry.offset };
        let range = self.wire.on_range(spot, entry.length).map_err(|_| WRONG)?;
        Ok(Part::lent(range, entry.length as usize))
    }

    /// The payload that a frame with these segments has brought, as one of this process.
    pub fn adopt(
        exchange: Option<&Exchange>,
        payload: &Bytes,
        entries: &[Segment],
        inline: Vec<Vec<u8>>,
    ) -> Result<Bytes, Error> {
        let (_, lengths, inner) = parts::split(payload).ok_or(WRONG)?;
        if !lengths.eq(entries.iter().map(|entry| entry.length)) {
            return Err(WRONG);
        }
        let mut inline = inline.into_iter();
        let mut parts = SmallVec::<[Part; 1]>::with_capacity(entries.len());
        for entry in entries {
            parts.push(match entry.flags & INLINE {
                0 => exchange.ok_or(WRONG)?.range(entry)?,
                _ => Part::heap(inline.next().ok_or(WRONG)?),
            });
        }
        Ok(parted(inner, parts))
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        if self.store.is_current() {
            self.wire.close();
            self.store.end_link(self.link);
        }
    }
}
