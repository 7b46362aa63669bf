//! Forking a process that has one thread.

use std::io;

/// On which side of a fork one is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Forked {
    Child,
    /// The child's process id.
    Parent(u32),
}

/// Fork. Refused while this process has more than one thread: the others would be missing in the child, and whatever
/// they had locked would stay locked there.
pub fn fork() -> io::Result<Forked> {
    let threads = std::fs::read_dir("/proc/self/task")?.count();
    if threads != 1 {
        return Err(io::Error::other(format!("{threads} threads run, and only one may when a slot is forked")));
    }
    // SAFETY: the calling thread is the only one, so the child has all there was and may go on with any of it. No
    // other thread can start meanwhile, for there is none to start it.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(Forked::Child),
        pid => Ok(Forked::Parent(pid.unsigned_abs())),
    }
}

/// Have the signal of Ctrl-C interrupt waiting system calls, and do nothing else. Programs started from here get its
/// usual meaning back, unlike with an ignored signal.
pub fn hear_interrupts() {
    extern "C" fn heard(_signal: libc::c_int) {}
    let handler: extern "C" fn(libc::c_int) = heard;
    // SAFETY: the action is plain memory that is filled before it is used; the handler touches nothing.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as libc::sighandler_t;
        libc::sigemptyset(&mut action.sa_mask);
        libc::sigaction(libc::SIGINT, &action, std::ptr::null_mut());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_with_threads_is_not_forked() {
        // The harness has its own thread beside this one.
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let other = std::thread::spawn(move || drop(ended.recv()));
        assert!(fork().is_err());
        drop(end);
        other.join().unwrap();
    }
}
