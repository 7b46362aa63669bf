//! Waiting: wake-ups from other threads, timers, and readiness of descriptors.

use crate::kept::Kept;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fd::{AsFd, BorrowedFd};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime,
};
use std::io;
use std::time::Duration;

/// Wakes a thread that waits for this descriptor to become readable.
pub struct Wake(Kept);

impl Wake {
    pub fn new() -> io::Result<Wake> {
        Ok(Wake(Kept::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?)))
    }

    pub fn wake(&self) {
        // The only failure is a full counter, and then the reader is awake already.
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }

    pub fn clear(&self) {
        let _ = rustix::io::read(&self.0, &mut [0u8; 8]);
    }
}

impl AsFd for Wake {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// A timer that makes its descriptor readable. Arming it wakes nobody: the kernel's own timer does, when it is time.
pub struct Timer(Kept);

impl Timer {
    pub fn new() -> io::Result<Timer> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        Ok(Timer(Kept::new(timerfd_create(TimerfdClockId::Boottime, flags)?)))
    }

    /// Fire once, `after` from now; a later call replaces an earlier one.
    pub fn arm(&self, after: Duration) {
        // Zero would disarm.
        let after = after.max(Duration::from_nanos(1));
        self.set(timespec(after));
    }

    pub fn disarm(&self) {
        self.set(timespec(Duration::ZERO));
    }

    pub fn clear(&self) {
        let _ = rustix::io::read(&self.0, &mut [0u8; 8]);
    }

    fn set(&self, value: Timespec) {
        let spec = Itimerspec { it_interval: timespec(Duration::ZERO), it_value: value };
        timerfd_settime(&self.0, TimerfdTimerFlags::empty(), &spec).expect("a timer takes any duration");
    }
}

impl AsFd for Timer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

fn timespec(span: Duration) -> Timespec {
    Timespec { tv_sec: span.as_secs() as i64, tv_nsec: i64::from(span.subsec_nanos()) }
}

/// Wait until one of the descriptors is ready, a signal comes, or the time is over. Says whether any is ready.
///
/// An error means that one of them is not open: somebody has closed what was not theirs, and waiting again would
/// return at once for ever.
pub fn wait(descriptors: &mut [PollFd<'_>], timeout: Option<Duration>) -> io::Result<bool> {
    match poll(descriptors, timeout.map(timespec).as_ref()) {
        Ok(_) if descriptors.iter().any(|fd| fd.revents().contains(PollFlags::NVAL)) => {
            Err(rustix::io::Errno::BADF.into())
        }
        Ok(ready) => Ok(ready > 0),
        Err(rustix::io::Errno::INTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Whether the descriptor has something to read, now.
pub fn readable(descriptor: impl AsFd) -> bool {
    let mut one = [PollFd::from_borrowed_fd(descriptor.as_fd(), PollFlags::IN)];
    matches!(wait(&mut one, Some(Duration::ZERO)), Ok(true))
}
