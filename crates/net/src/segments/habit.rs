//! What becomes of large buffers that arrive: whether they are mostly overwritten.
//!
//! A page of a copy-on-write mapping that is written costs several times as much as one of a plain copy into large pages.
//! So it is looked at, when a large range is returned, whether its pages were written. After one that was, those that come
//! next are copied as they are taken. That a copy was written to shows if it holds something else afterwards; if a number of
//! them do not, one is mapped again, to see.

use super::store::Store;
use crate::kept::Kept;
use rustix::fd::AsFd;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// Only of these is it worth to know: smaller ones have no large pages.
pub(super) const WORTH: usize = 4 << 20;

/// Pages that are looked at.
const SAMPLES: usize = 8;
/// After so many copies of which nobody knows whether they were written to, one is mapped.
const DOUBT: u32 = 15;

/// What the kernel says of a page.
const PRESENT_OR_SWAPPED: u64 = 0b11 << 62;
const OF_A_FILE: u64 = 1 << 61;

#[derive(Default)]
pub(super) struct Habit {
    /// What was mapped last was overwritten.
    overwrites: AtomicBool,
    /// Copies since the last of which it is known.
    copied: AtomicU32,
    pages: OnceLock<Option<Kept>>,
}

impl Habit {
    /// Whether a buffer of this length is better copied at once.
    pub fn copies(&self, length: usize) -> bool {
        length >= WORTH
            && self.overwrites.load(Ordering::Relaxed)
            && self.copied.fetch_add(1, Ordering::Relaxed) < DOUBT
    }

    /// A copy was overwritten.
    pub fn confirm(&self) {
        self.copied.store(0, Ordering::Relaxed);
    }

    /// A mapped range is about to be returned.
    pub fn learn(&self, begin: *const u8, length: usize) {
        if length < WORTH {
            return;
        }
        let step = length / SAMPLES;
        let written = (0..SAMPLES).filter(|sample| self.is_written(begin as usize + sample * step)).count();
        self.overwrites.store(written > SAMPLES / 2, Ordering::Relaxed);
        self.copied.store(0, Ordering::Relaxed);
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

/// Some words of a buffer.
pub(super) struct Sampled([u64; SAMPLES]);

impl Sampled {
    /// Of a buffer of at least [`WORTH`].
    pub fn of(bytes: &[u8]) -> Sampled {
        let step = bytes.len() / SAMPLES;
        Sampled(std::array::from_fn(|sample| {
            // Neither the first nor the last of a piece: those are the likeliest to be written alone.
            let begin = sample * step + step / 2;
            bytes[begin..begin + 8].try_into().map_or(0, u64::from_ne_bytes)
        }))
    }

    /// Whether most of them are others now.
    pub fn were_overwritten(&self, bytes: &[u8]) -> bool {
        let now = Sampled::of(bytes);
        self.0.iter().zip(&now.0).filter(|(before, now)| before != now).count() > SAMPLES / 2
    }
}

/// The habit of this process.
pub(super) fn habit() -> &'static Habit {
    &Store::current().habit
}
