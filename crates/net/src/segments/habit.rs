//! What becomes of large buffers that arrive: whether they are mostly overwritten.
//!
//! A page of a copy-on-write mapping that is written costs several times as much as one of a plain copy into large pages,
//! or into memory that is used again. So it is looked at, when a range is returned, whether its pages were written. After one
//! that was, those that come next are copied as they are taken. That a large copy was written to shows if it holds something
//! else afterwards; if a number of them do not, one is mapped again, to see. Each user of buffers, such as a function, has
//! habits of its own.

use super::LARGE;
use super::pages::Pages;
use parking_lot::Mutex;
use std::cell::Cell;
use std::collections::HashMap;
use std::sync::OnceLock;

/// Copies from here on are made of large pages.
pub(super) const WORTH: usize = 4 << 20;

/// Whether copying is worth while: where there are neither large pages nor a heap with memory to use again it is not.
fn is_worth_copying(length: usize) -> bool {
    !(LARGE..WORTH).contains(&length)
}

/// Pages that are looked at.
const SAMPLES: usize = 8;
/// After so many copies of which nobody knows whether they were written to, one is mapped.
const DOUBT: u32 = 15;

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
    pages: OnceLock<Option<Pages>>,
}

impl Habits {
    /// Whether a buffer of this length is better copied at once.
    pub fn copies(&self, user: User, length: usize) -> bool {
        if !is_worth_copying(length) {
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

    /// A mapped range is about to be returned. Says whether anything of it was written, or may have been.
    pub fn learn(&self, user: User, begin: *const u8, length: usize) -> bool {
        let Some(pages) = self.pages.get_or_init(Pages::open) else { return true };
        let written = pages.is_written(begin, length);
        if is_worth_copying(length) {
            let mostly = written && (length < WORTH || is_mostly_written(pages, begin, length));
            let mut overwrite = self.overwrite.lock();
            if !mostly {
                overwrite.remove(&user);
            } else if overwrite.len() < USERS || overwrite.contains_key(&user) {
                overwrite.insert(user, 0);
            }
        }
        written
    }
}

fn is_mostly_written(pages: &Pages, begin: *const u8, length: usize) -> bool {
    let samples = (0..SAMPLES).map(|sample| begin.wrapping_add(sample * (length / SAMPLES)));
    samples.filter(|sample| pages.is_written(*sample, 1)).count() > SAMPLES / 2
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
        assert!(habits.learn(writes, memory.as_ptr(), WORTH));
        assert!(habits.copies(writes, WORTH) && !habits.copies(reads, WORTH));
        assert!(!habits.copies(writes, WORTH - 1) && !habits.copies(writes, LARGE));
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
