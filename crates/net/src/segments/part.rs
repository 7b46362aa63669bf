//! Large buffers that belong to a payload without being in it.

use super::blocks::Block;
use super::copy;
use super::habit::{Sampled, User, WORTH};
use super::heap::Heap;
use super::memory::Written;
use super::store::Store;
use super::wire::Range;
use paceline_core::segments::Spot;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// One such buffer.
pub struct Part {
    memory: Memory,
    /// Somebody has it to write in.
    taken: AtomicBool,
}

enum Memory {
    /// In a segment of ours, to be lent.
    Own(Own),
    /// Lent to us.
    Lent(Range, usize),
    /// Our own.
    Heap(Heap),
    /// A copy of what was lent to us.
    Copied(Copied),
}

impl Part {
    fn new(memory: Memory) -> Part {
        Part { memory, taken: AtomicBool::new(false) }
    }

    /// A copy of these bytes: in a segment if there can be one.
    pub fn copy_of(bytes: &[u8]) -> Part {
        match Store::current().place(bytes.len()) {
            Some(own) => {
                // SAFETY: the range is as long, and ours alone until it is lent.
                unsafe { copy::past_caches(bytes, own.begin()) };
                Part::new(Memory::Own(own))
            }
            None => Part::heap(Heap::copy_of(bytes)),
        }
    }

    pub(super) fn heap(bytes: impl Into<Heap>) -> Part {
        Part::new(Memory::Heap(bytes.into()))
    }

    pub(super) fn lent(range: Range, length: usize) -> Part {
        Part::new(Memory::Lent(range, length))
    }

    pub(super) fn own(&self) -> Option<&Own> {
        match &self.memory {
            Memory::Own(own) => Some(own),
            _ => None,
        }
    }

    pub fn len(&self) -> usize {
        match &self.memory {
            Memory::Own(own) => own.length,
            Memory::Lent(_, length) => *length,
            Memory::Heap(heap) => heap.len(),
            Memory::Copied(copied) => copied.length,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The same in memory of our own.
    fn copy(&self) -> Arc<Part> {
        let bytes = self.bytes();
        let block = if bytes.len() >= WORTH { Block::new(bytes.len()) } else { None };
        Arc::new(match block {
            Some(block) => {
                // SAFETY: as much memory, which is ours alone.
                unsafe { copy::past_caches(bytes, block.begin()) };
                let (length, sampled, user) = (bytes.len(), Sampled::of(bytes), User::current());
                Part::new(Memory::Copied(Copied { block, length, sampled, user }))
            }
            None => Part::heap(Heap::copy_of(bytes)),
        })
    }

    fn begin(&self) -> *mut u8 {
        match &self.memory {
            Memory::Own(own) => own.begin(),
            Memory::Lent(range, _) => range.begin(),
            Memory::Heap(heap) => heap.begin(),
            Memory::Copied(copied) => copied.block.begin(),
        }
    }

    /// What is in it.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: as much memory as it says, which lives as long as this does. What is in a segment of ours is written by
        // nobody as long as we have it; what somebody has taken to write in is not asked for here.
        unsafe { std::slice::from_raw_parts(self.begin(), self.len()) }
    }
}

/// A range of a segment of this process, to be sent any number of times.
pub(super) struct Own {
    pub store: &'static Store,
    pub memory: Arc<Written>,
    pub spot: Spot,
    pub length: usize,
}

impl Own {
    fn begin(&self) -> *mut u8 {
        self.memory.at(self.spot.offset as usize, self.length)
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        if self.store.is_current() {
            self.store.release(self.spot);
        }
    }
}

struct Copied {
    block: Block,
    length: usize,
    sampled: Sampled,
    user: User,
}

impl Drop for Copied {
    fn drop(&mut self) {
        // SAFETY: as much memory, which nobody looks at any more.
        let bytes = unsafe { std::slice::from_raw_parts(self.block.begin(), self.length) };
        if self.sampled.were_overwritten(bytes) {
            self.block.store().habits.confirm(self.user);
        }
    }
}

/// A buffer to read and write, which nobody else sees.
pub struct View {
    part: Arc<Part>,
}

impl View {
    /// The part itself for who asks first. Others get a copy, and so does who asks for what may be sent again.
    pub fn of(part: &Arc<Part>) -> View {
        let first = part.own().is_none() && !part.taken.swap(true, Ordering::SeqCst);
        match &part.memory {
            Memory::Lent(range, _) if first => {
                if !range.is_better_mapped() {
                    return View { part: part.copy() };
                }
                range.touch();
                View { part: part.clone() }
            }
            _ if first => View { part: part.clone() },
            _ => View { part: part.copy() },
        }
    }

    pub fn begin(&self) -> *mut u8 {
        self.part.begin()
    }

    pub fn len(&self) -> usize {
        self.part.len()
    }

    pub fn is_empty(&self) -> bool {
        self.part.is_empty()
    }
}
