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
