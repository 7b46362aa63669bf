//! Signals and the threads of ours that must never see one.

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

/// A thread of this process that can be interrupted.
pub struct Thread {
    process: libc::pid_t,
    thread: libc::pid_t,
}

impl Thread {
    /// The calling thread.
    pub fn current() -> Thread {
        // SAFETY: neither call touches memory.
        unsafe { Thread { process: libc::getpid(), thread: libc::gettid() } }
    }

    /// Whether it is the calling thread.
    pub fn is_current(&self) -> bool {
        // SAFETY: it touches no memory.
        self.thread == unsafe { libc::gettid() }
    }

    /// Send it the signal of Ctrl-C.
    pub fn interrupt(&self) {
        // SAFETY: the kernel checks both numbers; a thread that is gone gets nothing.
        unsafe { libc::syscall(libc::SYS_tgkill, self.process, self.thread, libc::SIGINT) };
    }
}

/// End this process at once, without running anything that was left for its end.
pub fn leave(code: i32) -> ! {
    // SAFETY: it does not return, and nobody's destructors matter any more.
    unsafe { libc::_exit(code) }
}
