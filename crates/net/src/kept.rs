//! Descriptors that a forked child must not keep.
//!
//! A program may fork at any moment, also while another thread of ours opens or closes something. What the child
//! inherits would keep links open whose end means that this process is gone. So the numbers of such descriptors are
//! noted where a child can find them without a lock.
//!
//! * KP-1: a number is noted after its descriptor is opened and struck out before it is closed, so that a child never
//!   closes what is not ours.

use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU64, Ordering};

/// Numbers beyond this are not noted; few programs may open so many.
const MOST: usize = 1 << 16;

static NOTED: [AtomicU64; MOST / 64] = [const { AtomicU64::new(0) }; MOST / 64];

/// A descriptor that is closed in forked children.
#[derive(Debug)]
pub struct Kept(OwnedFd);

impl Kept {
    pub fn new(descriptor: OwnedFd) -> Kept {
        note(descriptor.as_raw_fd(), |word, bit| word.fetch_or(bit, Ordering::SeqCst));
        Kept(descriptor)
    }

    /// The descriptor, which a forked child keeps from now on.
    pub fn into_inner(self) -> OwnedFd {
        note(self.0.as_raw_fd(), |word, bit| word.fetch_and(!bit, Ordering::SeqCst));
        let kept = std::mem::ManuallyDrop::new(self);
        // SAFETY: what is read here is never used or dropped through `kept` again.
        unsafe { std::ptr::read(&kept.0) }
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        note(self.0.as_raw_fd(), |word, bit| word.fetch_and(!bit, Ordering::SeqCst));
    }
}

impl AsFd for Kept {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AsRawFd for Kept {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

fn note(number: RawFd, change: impl FnOnce(&AtomicU64, u64) -> u64) {
    let number = number as usize;
    if let Some(word) = NOTED.get(number / 64) {
        change(word, 1 << (number % 64));
    }
}

/// In a forked child, before it does anything else: close what the parent keeps. Whatever holds these descriptors there
/// must never be used or dropped here.
pub fn close_in_child() {
    for (index, word) in NOTED.iter().enumerate() {
        let mut bits = word.swap(0, Ordering::SeqCst);
        while bits != 0 {
            let number = (index * 64) as RawFd + bits.trailing_zeros() as RawFd;
            // SAFETY: noted numbers are descriptors of ours (KP-1), whose owners live in threads that this child has not,
            // or were given up by whoever calls this.
            unsafe { libc::close(number) };
            bits &= bits - 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_noted(number: RawFd) -> bool {
        NOTED[number as usize / 64].load(Ordering::SeqCst) & (1 << (number % 64)) != 0
    }

    #[test]
    fn numbers_are_noted_while_they_are_kept() {
        let (one, _other) = crate::fds::pair().unwrap();
        let number = one.as_raw_fd();
        let kept = Kept::new(one);
        assert!(is_noted(number));
        drop(kept);
        assert!(!is_noted(number), "KP-1");
    }

    #[test]
    fn a_child_closes_them() {
        let (one, other) = crate::fds::pair().unwrap();
        let kept = Kept::new(one);
        // SAFETY: the child only calls what is allowed between fork and exit.
        let child = unsafe { libc::fork() };
        if child == 0 {
            close_in_child();
            let again = rustix::io::fcntl_getfd(&kept).is_err() && rustix::io::fcntl_getfd(&other).is_ok();
            // SAFETY: ends the child without running anything of the parent's.
            unsafe { libc::_exit(if again { 0 } else { 1 }) };
        }
        let mut status = -1;
        // SAFETY: waits for the child made above.
        unsafe { libc::waitpid(child, &mut status, 0) };
        assert_eq!(status, 0);
    }
}
