//! Which pages of a mapping the process has written: the kernel tells.
//!
//! * PG-1: that a page was not written is said only if the kernel was seen to tell the two apart.

use super::memory::{Read, Written};
use crate::kept::Kept;
use rustix::fd::AsFd;
use std::io;
use std::mem::MaybeUninit;

/// What the kernel says of a page.
const PRESENT_OR_SWAPPED: u64 = 0b11 << 62;
const OF_A_FILE: u64 = 1 << 61;

/// Pages that are asked for at a time.
const AT_ONCE: usize = 512;

/// The kernel's table of this process's pages.
pub(super) struct Pages {
    table: Kept,
    page: usize,
}

impl Pages {
    /// None: the kernel does not tell.
    pub fn open() -> Option<Pages> {
        let table = Kept::new(std::fs::File::open("/proc/self/pagemap").ok()?.into());
        let pages = Pages { table, page: rustix::param::page_size() };
        pages.are_told_apart().ok().filter(|told| *told)?;
        Some(pages)
    }

    /// PG-1
    fn are_told_apart(&self) -> io::Result<bool> {
        let segment = Written::make(4 * self.page)?;
        let read = Read::open(segment.as_fd().try_clone_to_owned()?, 4 * self.page as u64)?;
        let begin = read.at(0, 4 * self.page);
        let before = self.is_written(begin, 4 * self.page);
        // SAFETY: inside of a mapping of our own.
        unsafe { std::ptr::read_volatile(begin.add(self.page)) };
        let looked_at = self.is_written(begin, 4 * self.page);
        // SAFETY: as above.
        unsafe { std::ptr::write_volatile(begin.add(2 * self.page), 1) };
        let all = self.is_written(begin, 4 * self.page);
        let other = self.is_written(begin, 2 * self.page);
        Ok(!before && !looked_at && all && !other)
    }

    /// Whether any page from here on is there and the process's own, not the file's. So it is said, too, if nobody knows.
    pub fn is_written(&self, begin: *const u8, length: usize) -> bool {
        let first = begin as usize / self.page;
        let mut left = (begin as usize + length).div_ceil(self.page) - first;
        let mut room = [MaybeUninit::uninit(); AT_ONCE * 8];
        let mut place = first as u64 * 8;
        while left > 0 {
            let length = left.min(AT_ONCE) * 8;
            let asked = match rustix::io::pread(self.table.as_fd(), &mut room[..length], place) {
                Ok((entries, [])) => entries,
                _ => return true,
            };
            let own = |entry: &[u8]| {
                let entry = entry.try_into().map_or(0, u64::from_ne_bytes);
                entry & PRESENT_OR_SWAPPED != 0 && entry & OF_A_FILE == 0
            };
            if asked.chunks_exact(8).any(own) {
                return true;
            }
            left -= asked.len() / 8;
            place += asked.len() as u64;
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_is_noticed_wherever_it_is() {
        let Some(pages) = Pages::open() else { return };
        let size = 2 * AT_ONCE * pages.page;
        let segment = Written::make(size).unwrap();
        let read = Read::open(segment.as_fd().try_clone_to_owned().unwrap(), size as u64).unwrap();
        let begin = read.at(0, size);
        assert!(!pages.is_written(begin, size));
        for page in [0, AT_ONCE - 1, AT_ONCE, 2 * AT_ONCE - 1] {
            // SAFETY: inside of it.
            unsafe { begin.add(page * pages.page + 17).write_volatile(1) };
            assert!(pages.is_written(begin, size));
            assert!(pages.is_written(unsafe { begin.add(page * pages.page) }, 1));
            read.renew(page * pages.page, pages.page).unwrap();
            assert!(!pages.is_written(begin, size));
        }
    }
}
