//! Locks on files, which the kernel ends with whoever holds them.
//!
//! Owns: taking a lock and looking at it. They are the kernel's locks of open files, since those alone can be looked at
//! without being taken.
//!
//! * LF-1: looking at a lock never keeps anybody from taking it.

use rustix::fd::{AsFd, AsRawFd};
use std::io;

/// Takes the lock on a file, which must be open for writing. False: somebody else has it.
pub fn try_lock(file: impl AsFd) -> io::Result<bool> {
    match control(file, libc::F_OFD_SETLK) {
        Ok(_) => Ok(true),
        Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Returns whether somebody else has the lock on a file.
pub fn is_locked(file: impl AsFd) -> io::Result<bool> {
    control(file, libc::F_OFD_GETLK).map(|found| libc::c_int::from(found.l_type) != libc::F_UNLCK)
}

fn control(file: impl AsFd, command: libc::c_int) -> io::Result<libc::flock> {
    // SAFETY: plain memory, for which zeros are fine: the whole file, and no process.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = libc::F_WRLCK as libc::c_short;
    lock.l_whence = libc::SEEK_SET as libc::c_short;
    loop {
        // SAFETY: the descriptor is open for as long as it is borrowed, and the kernel reads and writes `lock` alone.
        let done = unsafe { libc::fcntl(file.as_fd().as_raw_fd(), command, &raw mut lock) };
        if done != -1 {
            return Ok(lock);
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}
