//! A process that goes on when another is gone, though it was stopped.
//!
//! A stopped process reads nothing, so the end of a link tells it nothing. But the kernel sends a signal to whoever has asked
//! for one when the last writer of a pipe is gone, and SIGCONT lets a stopped process go on and changes nothing for one that
//! runs.

use crate::kept::Kept;
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::pipe::{PipeFlags, pipe_with};
use std::io;

/// Which signal to send; Linux has this number for it on all machines, and `libc` has none.
const F_SETSIG: libc::c_int = 10;

/// The end that one process keeps for as long as it lives, and the one that it hands to the other. Nothing is ever written.
pub fn pair() -> io::Result<(Kept, OwnedFd)> {
    let (reader, writer) = pipe_with(PipeFlags::CLOEXEC)?;
    Ok((Kept::new(writer), reader))
}

/// Let this process go on, if it is stopped then, when nobody has the other end any more. For as long as `end` is open.
pub fn go_on_at_the_end_of(end: &OwnedFd) -> io::Result<()> {
    let number = end.as_raw_fd();
    let set = |command, value: libc::c_int| {
        // SAFETY: these commands take a number and touch no memory of ours.
        match unsafe { libc::fcntl(number, command, value) } {
            -1 => Err(io::Error::last_os_error()),
            before => Ok(before),
        }
    };
    set(libc::F_SETOWN, rustix::process::getpid().as_raw_nonzero().get())?;
    set(F_SETSIG, libc::SIGCONT)?;
    let flags = set(libc::F_GETFL, 0)?;
    set(libc::F_SETFL, flags | libc::O_ASYNC).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reap;
    use rustix::process::{Pid, Signal, kill_process};
    use std::time::{Duration, Instant};

    #[test]
    fn stopped_process_goes_on_when_the_other_end_is_gone() {
        let (ours, theirs) = pair().unwrap();
        // SAFETY: the child only makes system calls.
        let child = match unsafe { libc::fork() } {
            -1 => panic!("no fork"),
            0 => {
                // SAFETY: the descriptor is its own copy, which nobody else uses in this process.
                unsafe { libc::close(ours.as_raw_fd()) };
                let set = go_on_at_the_end_of(&theirs).is_ok();
                // SAFETY: neither touches memory.
                unsafe {
                    libc::raise(libc::SIGSTOP);
                    libc::_exit(if set { 7 } else { 1 })
                }
            }
            pid => Pid::from_raw(pid).unwrap(),
        };
        let until = Instant::now() + Duration::from_secs(10);
        while !reap::stands_still(child) {
            assert!(Instant::now() < until, "it does not stop");
            std::thread::sleep(Duration::from_millis(5));
        }
        drop(ours);
        let mut status = 0;
        loop {
            // SAFETY: the status is plain memory that the call fills.
            let ended = unsafe { libc::waitpid(child.as_raw_nonzero().get(), &mut status, libc::WNOHANG) };
            if ended != 0 {
                break;
            }
            if Instant::now() > until {
                let _ = kill_process(child, Signal::KILL);
                panic!("it stands still");
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(libc::WIFEXITED(status));
        assert_eq!(libc::WEXITSTATUS(status), 7);
    }
}
