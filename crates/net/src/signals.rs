//! Signals and the threads of ours that must never see one.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};

/// Block every signal in the calling thread, so that the user's main thread gets them all.
pub fn block_all() {
    // SAFETY: both sets are plain memory that the calls fill; a mask only concerns the calling thread.
    unsafe {
        let mut all = std::mem::zeroed();
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, std::ptr::null_mut());
    }
}

/// Let every signal through again in the calling thread.
pub fn unblock_all() {
    // SAFETY: as above.
    unsafe {
        let mut none = std::mem::zeroed();
        libc::sigemptyset(&mut none);
        libc::pthread_sigmask(libc::SIG_SETMASK, &none, std::ptr::null_mut());
    }
}

/// Ignore Ctrl-C in this process, or have it end the process again.
pub fn ignore_interrupt(ignore: bool) {
    let action = if ignore { libc::SIG_IGN } else { libc::SIG_DFL };
    // SAFETY: neither disposition runs any code.
    unsafe { libc::signal(libc::SIGINT, action) };
}

/// Becomes readable when a child of this process has ended.
pub struct ChildSignals(OwnedFd);

impl ChildSignals {
    /// From now on the calling thread gets `SIGCHLD` only through this descriptor.
    pub fn new() -> io::Result<ChildSignals> {
        // SAFETY: the set is plain memory; the descriptor is new and ours.
        unsafe {
            let mut set = std::mem::zeroed();
            libc::sigemptyset(&mut set);
            libc::sigaddset(&mut set, libc::SIGCHLD);
            libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
            match libc::signalfd(-1, &set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) {
                -1 => Err(io::Error::last_os_error()),
                descriptor => Ok(ChildSignals(OwnedFd::from_raw_fd(descriptor))),
            }
        }
    }

    pub fn clear(&self) {
        let mut info = [0u8; size_of::<libc::signalfd_siginfo>()];
        while matches!(rustix::io::read(&self.0, &mut info), Ok(count) if count > 0) {}
    }
}

impl AsFd for ChildSignals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
