//! Which ranges of shared memory are free, and who still looks at the others.
//!
//! A process that sends large buffers copies them into ranges of its **segments**, which are files in memory, and lends
//! the ranges to whoever is at the other end of a link. Owns: which ranges there are, who holds them, which segments a
//! link knows, when a segment is made and given up. Does not own: the memory itself, messages, time.
//!
//! * SG-1: ranges do not overlap, and ranges and free room together are all there is of a segment.
//! * SG-2: a range is given out again only after its writer and every link that it was lent to have returned it.
//! * SG-3: what a link held when it ended, or returned as **retired**, is never written again: somebody who cannot be
//!   asked, such as a forked child, may still look at it. Its segment takes nothing new and goes once nobody of ours
//!   uses it; whoever has it mapped keeps the memory.
//! * SG-4: a range is lent to a link at most once at a time: who has got it twice would see its own writes.
//! * SG-5: a link knows at most [`MOST_KNOWN`] segments, and only of those can it be lent something.
//! * SG-6: a segment that nobody has used for [`KEEP`] is given up.
//! * SG-7: a segment has ranges of one [`Use`] only, so that small buffers never stand in the way of large ones.

mod borrow;
#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;

pub use borrow::{Borrowed, Wrong};

use crate::Tick;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Ranges begin and end where pages do.
pub const PAGE: u64 = 4096;

/// A link knows at most so many segments.
pub const MOST_KNOWN: usize = 64;

/// A segment is given up after so long without use.
pub const KEEP: Duration = Duration::from_secs(10);

/// The first segment has this size, each further one twice as much, up to the largest; one buffer may need more.
const FIRST: u64 = 64 << 20;
const LARGEST: u64 = 1 << 30;

/// The same for small buffers.
const FIRST_SMALL: u64 = 4 << 20;

/// What a segment is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Use {
    Small,
    Large,
}

/// A segment, by a number that is never used again.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SegmentId(pub u32);

/// A link, by a number that is never used again.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct LinkId(pub u64);

/// Where a range begins.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Spot {
    pub segment: SegmentId,
    pub offset: u64,
}

/// What the shell is to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effect {
    /// Nobody here uses the segment any more: give its memory up.
    Drop(SegmentId),
    /// Tell the link's other end that this segment is gone.
    Forget(LinkId, SegmentId),
}

/// How a range may be lent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lent {
    /// The other end knows the segment.
    Known,
    /// It must be given the segment first.
    New,
}

/// All segments of one writer.
#[derive(Default)]
pub struct Arena {
    segments: BTreeMap<SegmentId, Segment>,
    links: BTreeMap<LinkId, Link>,
    made: u32,
}

struct Segment {
    size: u64,
    usage: Use,
    /// Free room by its offset; neighbours are joined.
    free: BTreeMap<u64, u64>,
    ranges: BTreeMap<u64, Range>,
    /// It takes nothing new (SG-3).
    closing: bool,
    used: Tick,
}

struct Range {
    length: u64,
    /// Its writer may still send it.
    own: bool,
    lent: Vec<LinkId>,
}

#[derive(Default)]
struct Link {
    known: BTreeSet<SegmentId>,
    held: BTreeSet<Spot>,
}

impl Arena {
    /// Room for so many bytes in the segments that there are. It is the caller's until [`Arena::release`].
    pub fn place(&mut self, now: Tick, length: u64, usage: Use) -> Option<Spot> {
        let length = whole_pages(length);
        let fits = |segment: &Segment| !segment.closing && segment.usage == usage;
        // The oldest first: what is not needed any more is then idle, and can go (SG-6).
        for (id, segment) in self.segments.iter_mut().filter(|(_, segment)| fits(segment)) {
            // The lowest first: it is the likeliest to have been written before, so that its pages are there.
            let Some((&offset, &room)) = segment.free.iter().find(|(_, room)| **room >= length) else {
                continue;
            };
            segment.free.remove(&offset);
            if room > length {
                segment.free.insert(offset + length, room - length);
            }
            segment.ranges.insert(offset, Range { length, own: true, lent: Vec::new() });
            segment.used = now;
            return Some(Spot { segment: *id, offset });
        }
        None
    }

    /// How large a segment to make for a buffer that found no room.
    pub fn next_size(&self, length: u64, usage: Use) -> u64 {
        let open = |segment: &&Segment| !segment.closing && segment.usage == usage;
        let open = self.segments.values().filter(open).count().min(8);
        let first = match usage {
            Use::Small => FIRST_SMALL,
            Use::Large => FIRST,
        };
        whole_pages(length).max((first << open).min(LARGEST))
    }

    /// A segment was made.
    pub fn add(&mut self, now: Tick, size: u64, usage: Use) -> SegmentId {
        let id = SegmentId(self.made);
        self.made += 1;
        let free = BTreeMap::from([(0, size)]);
        let ranges = BTreeMap::new();
        let segment = Segment { size, usage, free, ranges, closing: false, used: now };
        self.segments.insert(id, segment);
        id
    }

    /// A link that can be lent something.
    pub fn open(&mut self, link: LinkId) {
        self.links.insert(link, Link::default());
    }

    /// Lend a range to a link. None: it must travel in another way.
    pub fn lend(&mut self, spot: Spot, link: LinkId) -> Option<Lent> {
        let range = self.segments.get_mut(&spot.segment)?.ranges.get_mut(&spot.offset)?;
        let to = self.links.get_mut(&link)?;
        let known = to.known.contains(&spot.segment);
        // SG-5
        if !known && to.known.len() >= MOST_KNOWN || range.lent.contains(&link) {
            return None;
        }
        range.lent.push(link);
        if !known {
            to.known.insert(spot.segment);
        }
        to.held.insert(spot);
        Some(if known { Lent::Known } else { Lent::New })
    }

    /// The writer will not send the range again.
    pub fn release(&mut self, now: Tick, spot: Spot, out: &mut Vec<Effect>) {
        if let Some(range) = self.range(spot) {
            range.own = false;
            self.settle(now, spot, out);
        }
    }

    /// The other end of a link returns a range. False: it never had it.
    pub fn give_back(
        &mut self,
        now: Tick,
        link: LinkId,
        spot: Spot,
        retired: bool,
        out: &mut Vec<Effect>,
    ) -> bool {
        let Some(to) = self.links.get_mut(&link) else { return false };
        if !to.held.remove(&spot) {
            return false;
        }
        self.take_from(now, link, spot, retired, out);
        true
    }

    /// A link has ended: what it held is nobody's to write any more (SG-3).
    pub fn end(&mut self, now: Tick, link: LinkId, out: &mut Vec<Effect>) {
        let Some(to) = self.links.remove(&link) else { return };
        for spot in to.held {
            self.take_from(now, link, spot, true, out);
        }
    }

    /// Give up what was not used for long (SG-6). Says whether there is anything to look at again.
    pub fn trim(&mut self, now: Tick, out: &mut Vec<Effect>) -> bool {
        let idle = |segment: &Segment| segment.ranges.is_empty() && now.since(segment.used) >= KEEP;
        let over: Vec<SegmentId> =
            self.segments.iter().filter(|(_, segment)| idle(segment)).map(|(id, _)| *id).collect();
        over.into_iter().for_each(|id| self.drop_segment(id, out));
        !self.segments.is_empty()
    }

    /// Returns the links whose other end holds a range of ours, and has to be heard before it can be used again.
    pub fn lent_to(&self) -> impl Iterator<Item = LinkId> {
        self.links.iter().filter(|(_, link)| !link.held.is_empty()).map(|(id, _)| *id)
    }

    fn range(&mut self, spot: Spot) -> Option<&mut Range> {
        self.segments.get_mut(&spot.segment)?.ranges.get_mut(&spot.offset)
    }

    fn take_from(&mut self, now: Tick, link: LinkId, spot: Spot, retired: bool, out: &mut Vec<Effect>) {
        if let Some(range) = self.range(spot) {
            range.lent.retain(|other| *other != link);
        }
        if let Some(segment) = self.segments.get_mut(&spot.segment) {
            segment.closing |= retired;
        }
        self.settle(now, spot, out);
    }

    /// The range is free if nobody holds it any more.
    fn settle(&mut self, now: Tick, spot: Spot, out: &mut Vec<Effect>) {
        let Some(segment) = self.segments.get_mut(&spot.segment) else { return };
        let held = |range: &Range| range.own || !range.lent.is_empty();
        let Some(range) = segment.ranges.get(&spot.offset).filter(|range| !held(range)) else { return };
        let (mut begin, mut end) = (spot.offset, spot.offset + range.length);
        segment.ranges.remove(&spot.offset);
        segment.used = now;
        if let Some((&before, &room)) = segment.free.range(..begin).next_back()
            && before + room == begin
        {
            segment.free.remove(&before);
            begin = before;
        }
        if let Some(room) = segment.free.remove(&end) {
            end += room;
        }
        segment.free.insert(begin, end - begin);
        if segment.closing && segment.ranges.is_empty() {
            self.drop_segment(spot.segment, out);
        }
    }

    fn drop_segment(&mut self, id: SegmentId, out: &mut Vec<Effect>) {
        self.segments.remove(&id);
        out.push(Effect::Drop(id));
        for (link, to) in &mut self.links {
            if to.known.remove(&id) {
                out.push(Effect::Forget(*link, id));
            }
        }
    }

    /// How many bytes the segments have together.
    pub fn size(&self) -> u64 {
        self.segments.values().map(|segment| segment.size).sum()
    }

    /// The first broken invariant, if any.
    pub fn check(&self) -> Result<(), String> {
        for (id, segment) in &self.segments {
            let ranges = segment.ranges.iter().map(|(offset, range)| (*offset, range.length, true));
            let free = segment.free.iter().map(|(offset, room)| (*offset, *room, false));
            let mut all: Vec<_> = ranges.chain(free).collect();
            all.sort_unstable();
            let mut end = 0;
            let mut was_free = false;
            for (offset, length, taken) in all {
                if offset != end || length == 0 || length % PAGE != 0 {
                    return Err(format!("SG-1: {id:?} has a gap or an overlap at {end}"));
                }
                if was_free && !taken {
                    return Err(format!("SG-1: free room of {id:?} is not joined at {offset}"));
                }
                (end, was_free) = (end + length, !taken);
            }
            if end != segment.size {
                return Err(format!("SG-1: {id:?} has {} bytes, and {end} are known", segment.size));
            }
            for (offset, range) in &segment.ranges {
                let spot = Spot { segment: *id, offset: *offset };
                if !range.own && range.lent.is_empty() {
                    return Err(format!("SG-2: nobody holds {spot:?}, and it is not free"));
                }
                if let Some(link) = range.lent.iter().find(|link| !self.holds(**link, spot)) {
                    return Err(format!("SG-4: {link:?} does not know that it holds {spot:?}"));
                }
            }
            if segment.closing && segment.ranges.is_empty() {
                return Err(format!("SG-3: {id:?} is of no more use, and still there"));
            }
        }
        for (id, link) in &self.links {
            if link.known.len() > MOST_KNOWN {
                return Err(format!("SG-5: {id:?} knows {} segments", link.known.len()));
            }
            for spot in &link.held {
                let segment = self.segments.get(&spot.segment);
                let range = segment.and_then(|segment| segment.ranges.get(&spot.offset));
                if !range.is_some_and(|range| range.lent.contains(id)) || !link.known.contains(&spot.segment)
                {
                    return Err(format!("SG-4: {id:?} holds {spot:?}, which was not lent to it"));
                }
            }
        }
        Ok(())
    }

    fn holds(&self, link: LinkId, spot: Spot) -> bool {
        self.links.get(&link).is_some_and(|to| to.held.contains(&spot))
    }
}

fn whole_pages(length: u64) -> u64 {
    length.max(1).next_multiple_of(PAGE)
}
