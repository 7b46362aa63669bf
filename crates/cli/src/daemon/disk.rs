//! The thread of a daemon that writes and reads its logs, so that nobody else waits for their disk.
//!
//! Owns: what is to be done with log files, in order. Does not own: the files, nor what is said when something is lost,
//! which are [`super::log`]'s.
//!
//! * DK-1: nobody waits for the disk longer than they said; who only writes does not wait at all.
//! * DK-2: at most [`MAX_QUEUED_BYTES`] wait. What is more is refused, and whoever wanted it counts it.

use paceline_net::signals;
use std::collections::VecDeque;
use std::sync::mpsc::sync_channel;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// So many bytes wait for the disk.
pub const MAX_QUEUED_BYTES: usize = 4 << 20;
/// What one piece of work costs beside its bytes.
const COST: usize = 128;
/// How long somebody waits for what is in a log.
const READ_TIMEOUT: Duration = Duration::from_secs(1);

type Job = Box<dyn FnOnce() + Send>;

/// That of this process.
static DISK: Disk = Disk::new();

struct Disk {
    state: Mutex<State>,
    wake: Condvar,
    progress: Condvar,
}

struct State {
    jobs: VecDeque<(usize, Job)>,
    bytes: usize,
    queued: u64,
    done: u64,
    runs: bool,
}

/// Has the thread do this, which is about so many bytes. False: too much waits already (DK-2).
pub fn submit(bytes: usize, job: impl FnOnce() + Send + 'static) -> bool {
    DISK.submit(bytes, Box::new(job))
}

/// Has the thread find something out, after all that it has to do, and waits for it. None: the disk does not answer.
pub fn ask<T: Send + 'static>(job: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let (answer, answered) = sync_channel(1);
    submit(0, move || drop(answer.try_send(job())));
    answered.recv_timeout(READ_TIMEOUT).ok()
}

/// Waits until all that was submitted is done, or for so long. Returns whether it is.
pub fn flush(within: Duration) -> bool {
    DISK.flush(within)
}

impl Disk {
    const fn new() -> Disk {
        let state = State { jobs: VecDeque::new(), bytes: 0, queued: 0, done: 0, runs: false };
        Disk { state: Mutex::new(state), wake: Condvar::new(), progress: Condvar::new() }
    }

    fn submit(&'static self, bytes: usize, job: Job) -> bool {
        let mut state = self.lock();
        if state.bytes + bytes + COST > MAX_QUEUED_BYTES {
            return false;
        }
        if !state.runs {
            let thread = std::thread::Builder::new().name("paceline-log".into()).stack_size(256 << 10);
            state.runs = thread.spawn(|| self.run()).is_ok();
            if !state.runs {
                return false;
            }
        }
        state.bytes += bytes + COST;
        state.queued += 1;
        state.jobs.push_back((bytes + COST, job));
        self.wake.notify_one();
        true
    }

    fn flush(&self, within: Duration) -> bool {
        let until = Instant::now() + within;
        let mut state = self.lock();
        let goal = state.queued;
        while state.done < goal {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            state = self.progress.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self) {
        signals::block_all();
        loop {
            let mut state = self.lock();
            let (bytes, job) = loop {
                match state.jobs.pop_front() {
                    Some(job) => break job,
                    None => state = self.wake.wait(state).unwrap_or_else(PoisonError::into_inner),
                }
            };
            drop(state);
            job();
            let mut state = self.lock();
            // What is being written counts until it is.
            state.bytes -= bytes;
            state.done += 1;
            self.progress.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hanging_disk_refuses_what_has_no_room_and_delays_nobody() {
        static HANGING: Disk = Disk::new();
        let (release, released) = sync_channel::<()>(0);
        let wait = move || {
            let _ = released.recv();
        };
        assert!(HANGING.submit(0, Box::new(wait)));
        let line = MAX_QUEUED_BYTES / 100;
        let taken = (0..200).filter(|_| HANGING.submit(line, Box::new(|| ()))).count();
        assert!((90..100).contains(&taken), "DK-2: {taken}");
        assert!(!HANGING.flush(Duration::from_millis(20)), "DK-1");
        drop(release);
        assert!(HANGING.flush(Duration::from_secs(20)));
        assert!(HANGING.submit(line, Box::new(|| ())), "there is room again");
    }
}
