//! Threads that open connections, for what must not wait for them.
//!
//! * DI-1: threads are started when there is something to open, [`MOST`] at most, and leave when there has been nothing
//!   for [`KEEP`].
//! * DI-2: what was asked for is opened in that order; the head comes first, for nothing goes on without it.

use paceline_net::signals;
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// As many connections are opened at the same time.
const MOST: usize = 16;

/// How long a thread without anything to do stays.
const KEEP: Duration = Duration::from_secs(5);

/// Handshakes need some.
const STACK: usize = 1 << 20;

/// Opens one connection and delivers it.
pub(crate) type Job = Box<dyn FnOnce() + Send>;

/// Hands jobs to threads. Those that run when it goes come to their end, the others do not run.
pub(crate) struct Dialer {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    wake: Condvar,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    threads: usize,
    idle: usize,
    closed: bool,
}

impl Dialer {
    pub(crate) fn new() -> Dialer {
        Dialer { shared: Arc::default() }
    }

    pub(crate) fn dial(&self, job: Job) -> std::io::Result<()> {
        self.push(|jobs| jobs.push_back(job))
    }

    pub(crate) fn dial_first(&self, job: Job) -> std::io::Result<()> {
        self.push(|jobs| jobs.push_front(job))
    }

    fn push(&self, push: impl FnOnce(&mut VecDeque<Job>)) -> std::io::Result<()> {
        let mut state = self.shared.state.lock();
        if state.closed {
            return Ok(());
        }
        if state.idle < state.jobs.len() + 1 && state.threads < MOST {
            let shared = self.shared.clone();
            let thread = std::thread::Builder::new().name("paceline-dialer".into()).stack_size(STACK);
            match thread.spawn(move || shared.run()) {
                Ok(_) => state.threads += 1,
                // Another one will come to it.
                Err(_) if state.threads > 0 => {}
                Err(error) => return Err(error),
            }
        }
        push(&mut state.jobs);
        self.shared.wake.notify_one();
        Ok(())
    }

    /// Nothing more is opened.
    pub(crate) fn close(&self) {
        let mut state = self.shared.state.lock();
        state.closed = true;
        state.jobs.clear();
        self.shared.wake.notify_all();
    }
}

impl Drop for Dialer {
    fn drop(&mut self) {
        self.close();
    }
}

impl Shared {
    fn run(&self) {
        signals::block_all();
        let mut state = self.state.lock();
        loop {
            if let Some(job) = state.jobs.pop_front() {
                drop(state);
                job();
                state = self.state.lock();
                continue;
            }
            state.idle += 1;
            let over = state.closed || self.wake.wait_for(&mut state, KEEP).timed_out();
            state.idle -= 1;
            if over && state.jobs.is_empty() {
                state.threads -= 1;
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    const LIMIT: Duration = Duration::from_secs(10);

    #[test]
    fn jobs_run_side_by_side_but_not_all_at_once() {
        let dialer = Dialer::new();
        let (begun, begins) = mpsc::channel();
        let gate = Arc::new((Mutex::new(false), Condvar::new()));
        for number in 0..2 * MOST {
            let (begun, gate) = (begun.clone(), gate.clone());
            let job = move || {
                begun.send(number).unwrap();
                let mut open = gate.0.lock();
                while !*open {
                    gate.1.wait(&mut open);
                }
            };
            dialer.dial(Box::new(job)).unwrap();
        }
        for _ in 0..MOST {
            begins.recv_timeout(LIMIT).expect("it runs");
        }
        assert_eq!(dialer.shared.state.lock().threads, MOST, "DI-1");
        assert!(begins.try_recv().is_err());
        *gate.0.lock() = true;
        gate.1.notify_all();
        for _ in 0..MOST {
            begins.recv_timeout(LIMIT).expect("it runs in turn");
        }
    }

    #[test]
    fn nothing_runs_after_the_end() {
        let dialer = Dialer::new();
        dialer.close();
        let (ran, runs) = mpsc::channel::<()>();
        dialer.dial(Box::new(move || ran.send(()).unwrap())).unwrap();
        drop(dialer);
        assert!(runs.recv_timeout(LIMIT).is_err(), "the job is dropped");
    }
}
