//! Private memory for copies of large buffers, used again: to have new pages made takes longer than to fill them.
//!
//! * BL-1: at most [`MOST`] bytes are kept without use, and not for longer than [`KEEP`].
//! * BL-2: in a forked child, what is its parent's is given up, never kept.

use super::memory::Anonymous;
use super::store::Store;
use crate::clock;
use paceline_core::segments::KEEP;
use parking_lot::Mutex;

/// So many bytes are kept without use.
const MOST: usize = 256 << 20;

/// Sizes are multiples of this, which is a large page where there are such.
const UNIT: usize = 2 << 20;

#[derive(Default)]
pub(super) struct Blocks {
    free: Mutex<Vec<Free>>,
}

struct Free {
    memory: Anonymous,
    since: u64,
}

impl Blocks {
    /// Memory for so many bytes, with anything in it. None: there is none to be had.
    pub fn take(&self, length: usize) -> Option<Anonymous> {
        let size = length.checked_next_multiple_of(UNIT)?;
        let fits = |free: &Free| (size..=2 * size).contains(&free.memory.size());
        let mut free = self.free.lock();
        if let Some(place) = free.iter().rposition(fits) {
            return Some(free.swap_remove(place).memory);
        }
        drop(free);
        Anonymous::make(size).ok()
    }

    /// Take it back. Says whether it is kept.
    pub fn give(&self, memory: Anonymous) -> bool {
        let mut free = self.free.lock();
        let kept = free.iter().map(|free| free.memory.size()).sum::<usize>();
        let keeps = kept + memory.size() <= MOST;
        if keeps {
            free.push(Free { memory, since: clock::now() });
        }
        keeps
    }

    /// Give up what was not used for long (BL-1). Says whether there is anything left.
    pub fn trim(&self) -> bool {
        let now = clock::now();
        let old = |free: &mut Free| now.saturating_sub(free.since) >= KEEP.as_nanos() as u64;
        let mut free = self.free.lock();
        let over: Vec<Free> = free.extract_if(.., old).collect();
        let left = !free.is_empty();
        drop(free);
        // Unmapping takes a while.
        drop(over);
        left
    }
}

/// A block in use.
pub(super) struct Block {
    memory: Option<Anonymous>,
    store: &'static Store,
}

impl Block {
    pub fn new(length: usize) -> Option<Block> {
        let store = Store::current();
        store.blocks.take(length).map(|memory| Block { memory: Some(memory), store })
    }

    pub fn store(&self) -> &'static Store {
        self.store
    }

    pub fn begin(&self) -> *mut u8 {
        self.memory.as_ref().map_or(std::ptr::null_mut(), |memory| memory.begin())
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        if let Some(memory) = self.memory.take()
            && self.store.is_current()
            && self.store.blocks.give(memory)
        {
            self.store.keeper.trim();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_given_back_is_used_again() {
        let blocks = Blocks::default();
        let one = blocks.take(UNIT + 1).unwrap();
        assert_eq!(one.size(), 2 * UNIT);
        let place = one.begin();
        assert!(blocks.give(one));
        let other = blocks.take(8 * UNIT).unwrap();
        assert_ne!(other.begin(), place);
        let again = blocks.take(2 * UNIT).unwrap();
        assert_eq!(again.begin(), place);
        assert!(blocks.give(again) && blocks.trim());
        assert!(!blocks.give(blocks.take(MOST).unwrap()), "BL-1");
    }
}
