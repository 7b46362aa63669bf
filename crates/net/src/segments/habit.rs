//! What becomes of large buffers that arrive: whether they are mostly overwritten.
//!
//! A page of a copy-on-write mapping that is written costs several times as much as one of a plain copy into large pages.
//! So it is looked at, when a large range is returned, whether its pages were written. Where that is the habit, those that
//! come next are copied as they are taken; now and then one is not, to see whether it still is.

use super::store::Store;
use crate::kept::Kept;
use rustix::fd::AsFd;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// Only of these is it worth to know: smaller ones have no large pages.
pub(super) const WORTH: usize = 4 << 20;

/// Pages that are looked at.
const SAMPLES: usize = 8;
/// So many in a row make a habit, and as many unmake it.
const HABIT: u32 = 2;
/// Of so many that are copied one is not.
const DOUBT: u32 = 16;

/// What the kernel says of a page.
const PRESENT_OR_SWAPPED: u64 = 0b11 << 62;
const OF_A_FILE: u64 = 1 << 61;

#[derive(Default)]
pub(super) struct Habit {
    overwritten: AtomicU32,
    copied: AtomicU32,
    pages: OnceLock<Option<Kept>>,
}

impl Habit {
    /// Whether a buffer of this length is better copied at once.
    pub fn copies(&self, length: usize) -> bool {
        length >= WORTH
            && self.overwritten.load(Ordering::Relaxed) >= HABIT
            && self.copied.fetch_add(1, Ordering::Relaxed) % DOUBT != DOUBT - 1
    }

    /// A mapped range is about to be returned.
    pub fn learn(&self, begin: *const u8, length: usize) {
        if length < WORTH {
            return;
        }
        let step = length / SAMPLES;
        let written = (0..SAMPLES).filter(|sample| self.is_written(begin as usize + sample * step)).count();
        let before = self.overwritten.load(Ordering::Relaxed);
        let after =
            if written > SAMPLES / 2 { (before + 1).min(2 * HABIT) } else { before.saturating_sub(1) };
        self.overwritten.store(after, Ordering::Relaxed);
    }

    /// Whether the page at this address is there and the process's own, not the segment's.
    fn is_written(&self, address: usize) -> bool {
        let open = || std::fs::File::open("/proc/self/pagemap").ok().map(|file| Kept::new(file.into()));
        let Some(pages) = self.pages.get_or_init(open) else { return false };
        let mut entry = [0; 8];
        let place = (address / rustix::param::page_size() * 8) as u64;
        if rustix::io::pread(pages.as_fd(), &mut entry, place) != Ok(8) {
            return false;
        }
        let entry = u64::from_le_bytes(entry);
        let (is_there, is_of_a_file) = ((entry & PRESENT_OR_SWAPPED) != 0, (entry & OF_A_FILE) != 0);
        is_there && !is_of_a_file
    }
}

/// The habit of this process.
pub(super) fn habit() -> &'static Habit {
    &Store::current().habit
}
