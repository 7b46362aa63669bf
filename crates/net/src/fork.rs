//! Forking a process that has one thread, and what user code's own forks bring.

use std::io;
use std::sync::OnceLock;

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
        return Err(io::Error::other(format!(
            "{threads} threads run, and only one may when a slot is forked"
        )));
    }
    // SAFETY: the calling thread is the only one, so the child has all there was and may go on with any of it. No
    // other thread can start meanwhile, for there is none to start it.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(Forked::Child),
        pid => Ok(Forked::Parent(pid.unsigned_abs())),
    }
}

/// What to call in the children of this process.
static IN_CHILDREN: OnceLock<fn()> = OnceLock::new();

/// Have this called in every child that this process forks from now on, before anything else there. It may only do what
/// is allowed in the child of a process with threads. One for a process: later ones are not heard.
pub fn call_in_children(call: fn()) {
    extern "C" fn in_child() {
        if let Some(call) = IN_CHILDREN.get() {
            call();
        }
    }
    if IN_CHILDREN.set(call).is_ok() {
        // SAFETY: the function lives as long as the process. Failing is for want of memory, and then there are other
        // worries.
        unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
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

/// Set a variable of the environment, in a process in which no code but ours has run yet.
pub fn set_variable(name: &str, value: &str) {
    // SAFETY: threads that read the environment meanwhile could see it half changed. The only other thread of a slot that
    // has run no user code is its companion, which never reads it.
    unsafe { std::env::set_var(name, value) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_with_threads_is_not_forked() {
        // The harness has its own thread beside this one.
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let other = std::thread::spawn(move || ended.recv().is_err());
        assert!(fork().is_err());
        drop(end);
        assert!(other.join().unwrap());
    }
}
