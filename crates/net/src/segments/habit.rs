//! What becomes of large buffers that arrive: whether they are mostly overwritten.
//!
//! A page of a copy-on-write mapping that is written costs several times as much as one of a plain copy into large pages.
//! So it is looked at, when a large range is returned, whether its pages were written. After one that was, those that come
//! next are copied as they are taken. That a copy was written to shows if it holds something else afterwards; if a number of
//! them do not, one is mapped again, to see. Each user of buffers, such as a function, has habits of its own.

use crate::kept::Kept;
use parking_lot::Mutex;
use rustix::fd::AsFd;
use std::cell::Cell;
use std::collections::HashMap;
use std::sync::OnceLock;

/// Only of these is it worth to know: smaller ones have no large pages.
pub(super) const WORTH: usize = 4 << 20;

/// Pages that are looked at.
const SAMPLES: usize = 8;
/// After so many copies of which nobody knows whether they were written to, one is mapped.
const DOUBT: u32 = 15;

/// What the kernel says of a page.
const PRESENT_OR_SWAPPED: u64 = 0b11 << 62;
const OF_A_FILE: u64 = 1 << 61;

/// Of more users than this nothing is remembered.
const USERS: usize = 1024;

thread_local!(static USER: Cell<User> = const { Cell::new(User(0)) });

/// Who uses buffers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct User(pub u64);

impl User {
    /// What this thread takes from now on is for this user.
    pub fn takes(self) {
        USER.set(self);
    }

    pub(super) fn current() -> User {
        USER.get()
    }
}

#[derive(Default)]
pub(super) struct Habits {
    /// Those who have overwritten what was mapped last, and how many copies they got since it was known that they do.
    overwrite: Mutex<HashMap<User, u32>>,
    pages: OnceLock<Option<Kept>>,
}

impl Habits {
    /// Whether a buffer of this length is better copied at once.
    pub fn copies(&self, user: User, length: usize) -> bool {
        if length < WORTH {
            return false;
        }
        let mut overwrite = self.overwrite.lock();
        let Some(copied) = overwrite.get_mut(&user) else { return false };
        *copied += 1;
        *copied <= DOUBT
    }

    /// A copy was overwritten.
    pub fn confirm(&self, user: User) {
        if let Some(copied) = self.overwrite.lock().get_mut(&user) {
            *copied = 0;
        }
    }

    /// A mapped range is about to be returned.
    pub fn learn(&self, user: User, begin: *const u8, length: usize) {
        if length < WORTH {
            return;
        }
        let step = length / SAMPLES;
        let written = (0..SAMPLES).filter(|sample| self.is_written(begin as usize + sample * step)).count();
        let mut overwrite = self.overwrite.lock();
        if written <= SAMPLES / 2 {
            overwrite.remove(&user);
        } else if overwrite.len() < USERS || overwrite.contains_key(&user) {
            overwrite.insert(user, 0);
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_user_has_habits_of_its_own() {
        let habits = Habits::default();
        let (reads, writes) = (User(1), User(2));
        let mut memory = vec![0_u8; WORTH];
        memory.fill(1);
        for user in [reads, writes] {
            assert!(!habits.copies(user, WORTH));
        }
        habits.learn(writes, memory.as_ptr(), WORTH);
        assert!(habits.copies(writes, WORTH) && !habits.copies(reads, WORTH));
        assert!(!habits.copies(writes, WORTH - 1));
        let sampled = Sampled::of(&memory);
        assert!(!sampled.were_overwritten(&memory));
        memory.fill(2);
        assert!(sampled.were_overwritten(&memory));
        for _ in 0..3 * DOUBT {
            assert!(habits.copies(writes, WORTH));
            habits.confirm(writes);
        }
        assert_eq!((0..2 * DOUBT).filter(|_| habits.copies(writes, WORTH)).count(), DOUBT as usize);
    }
}
