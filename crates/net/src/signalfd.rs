//! Signals as something to read.
//!
//! A process that waits in one place for messages and for signals blocks the signals and reads them from a descriptor,
//! so that none interrupts it and none is missed.

use rustix::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};
use std::io;

/// Signals of this thread, blocked and readable.
pub struct Signals {
    descriptor: OwnedFd,
    before: libc::sigset_t,
}

impl Signals {
    /// Block these signals in the calling thread; from now on they are read.
    pub fn catch(signals: &[i32]) -> io::Result<Signals> {
        // SAFETY: the sets are plain memory that the calls initialise; the descriptor is new, so nobody else owns it.
        unsafe {
            let mut set = std::mem::zeroed();
            libc::sigemptyset(&mut set);
            for &signal in signals {
                libc::sigaddset(&mut set, signal);
            }
            let mut before = std::mem::zeroed();
            libc::pthread_sigmask(libc::SIG_BLOCK, &set, &mut before);
            match libc::signalfd(-1, &set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) {
                -1 => Err(io::Error::last_os_error()),
                descriptor => Ok(Signals { descriptor: OwnedFd::from_raw_fd(descriptor), before }),
            }
        }
    }

    /// The next signal that has come, if any.
    pub fn next(&self) -> Option<i32> {
        let mut record = [0; size_of::<libc::signalfd_siginfo>()];
        match rustix::io::read(&self.descriptor, &mut record) {
            // The number is the record's first field.
            Ok(length) if length == record.len() => {
                Some(i32::from_ne_bytes([record[0], record[1], record[2], record[3]]))
            }
            _ => None,
        }
    }

    /// Let the calling thread get its signals as before.
    pub fn release(self) {
        // SAFETY: `before` was filled by the kernel; a mask only concerns the calling thread.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.before, std::ptr::null_mut()) };
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_is_read_instead_of_delivered() {
        let signals = Signals::catch(&[libc::SIGUSR2]).unwrap();
        assert_eq!(signals.next(), None);
        // SAFETY: the signal is blocked in this thread, so it only becomes pending.
        unsafe { libc::raise(libc::SIGUSR2) };
        assert_eq!(signals.next(), Some(libc::SIGUSR2));
        assert_eq!(signals.next(), None);
        signals.release();
    }
}
