//! The end of a child, and the most memory it ever had.

use paceline_proto::DeathCause;
use rustix::fd::AsFd;
use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};

/// What a child that has ended left behind with the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reaped {
    pub cause: DeathCause,
    /// The most bytes that it, or one of its own children, had in memory.
    pub peak: u64,
}

/// A child that has ended and is not reaped yet: its number is still its own.
pub fn first_dead() -> Option<Pid> {
    // SAFETY: the structure is plain memory that the call fills; zeroes say that no child has ended.
    let pid = unsafe {
        let mut info: libc::siginfo_t = std::mem::zeroed();
        let options = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
        if libc::waitid(libc::P_ALL, 0, &mut info, options) != 0 {
            return None;
        }
        info.si_pid()
    };
    Pid::from_raw(pid)
}

/// A child that was stopped, and by which signal; or none, if it was let go on. Each time it is said once.
pub fn next_stopped() -> Option<(Pid, Option<i32>)> {
    // SAFETY: the structure is plain memory that the call fills; zeroes say that nothing is new.
    let (pid, code, status) = unsafe {
        let mut info: libc::siginfo_t = std::mem::zeroed();
        let options = libc::WSTOPPED | libc::WCONTINUED | libc::WNOHANG;
        if libc::waitid(libc::P_ALL, 0, &mut info, options) != 0 {
            return None;
        }
        (info.si_pid(), info.si_code, info.si_status())
    };
    Some((Pid::from_raw(pid)?, (code == libc::CLD_STOPPED).then_some(status)))
}

/// Whether this process, which may be anybody's, was stopped by a signal. One that is traced does not count.
pub fn stands_still(process: Pid) -> bool {
    let Ok(stat) = std::fs::read_to_string(format!("/proc/{}/stat", process.as_raw_nonzero())) else {
        return false;
    };
    // The name stands in brackets, and may have some itself.
    stat.rsplit_once(')').is_some_and(|(_, rest)| rest.trim_start().starts_with('T'))
}

/// Reap this child if it has ended.
pub fn reap(child: Pid) -> Option<Reaped> {
    let mut status = 0;
    // SAFETY: both are plain memory that the call fills.
    let (ended, usage) = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        let ended = libc::wait4(child.as_raw_nonzero().get(), &mut status, libc::WNOHANG, &mut usage);
        (ended, usage)
    };
    // The kernel counts in units of 1024.
    (ended > 0).then(|| {
        let cause = if libc::WIFSIGNALED(status) {
            DeathCause::Signal(libc::WTERMSIG(status))
        } else {
            DeathCause::Exit(libc::WEXITSTATUS(status))
        };
        Reaped { cause, peak: usage.ru_maxrss.unsigned_abs() * 1024 }
    })
}

/// Take a process that has ended off the list of the dead, if it is on ours: one that inherits orphans, as the first in
/// a container does, has it there. By its descriptor, because its number may be another's by now.
pub fn reap_inherited(process: impl AsFd) {
    let _ = waitid(WaitId::PidFd(process.as_fd()), WaitIdOptions::EXITED | WaitIdOptions::NOHANG);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_stop_is_told_once_and_so_is_its_end() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let pid = Pid::from_child(&child);
        // Other tests have children, too.
        let next = || loop {
            match next_stopped() {
                Some((stopped, signal)) if stopped == pid => return signal,
                _ => std::thread::yield_now(),
            }
        };
        rustix::process::kill_process(pid, rustix::process::Signal::STOP).unwrap();
        assert_eq!(next(), Some(libc::SIGSTOP));
        rustix::process::kill_process(pid, rustix::process::Signal::CONT).unwrap();
        assert_eq!(next(), None);
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn a_child_is_reaped_once() {
        #[expect(clippy::zombie_processes, reason = "reaping it another way is what is tested")]
        let child = Command::new("true").spawn().unwrap();
        let pid = Pid::from_child(&child);
        let reaped = loop {
            if let Some(reaped) = reap(pid) {
                break reaped;
            }
            std::thread::yield_now();
        };
        assert_eq!(reaped.cause, DeathCause::Exit(0));
        assert!(reaped.peak > 100 << 10, "{} bytes", reaped.peak);
        assert_eq!(reap(pid), None);
    }
}
