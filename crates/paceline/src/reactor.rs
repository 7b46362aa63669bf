//! The reactor thread: the head's messages, the machine's clock, and the links while nobody else reads them.

use crate::aside::Excess;
use crate::pump::{LEADER_WAKE, TAKE_OVER, wait_for_links};
use crate::session::{Guarded, Shared};
use crate::state::tick;
use paceline_core::client::{Event, LeaseKey};
use paceline_net::{poll, signals};
use rustix::event::{PollFd, PollFlags};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Duration;

/// When so many tasks ended in one round, more are on their way and nobody waits for them: let them gather instead of
/// being woken for each batch while the submitting thread and the slots could use the CPU.
const MANY: usize = 16;
const REST: Duration = Duration::from_micros(100);

pub(crate) fn start(shared: Arc<Shared>) -> io::Result<JoinHandle<()>> {
    std::thread::Builder::new().name("paceline-reactor".into()).stack_size(512 << 10).spawn(move || {
        signals::block_all();
        shared.react();
    })
}

impl Shared {
    fn react(&self) {
        let mut ready = Vec::new();
        let mut rest = None;
        while !self.closed() {
            let (reads, control, excess) = {
                let mut state = self.state.lock();
                // A leader sees to it itself.
                let excess = if state.leadership.led { Excess::default() } else { state.inner.take_excess() };
                let control = state.inner.control.as_ref().map(|link| (link.socket(), link.pending() > 0));
                (state.leadership.reactor_reads, control, excess)
            };
            self.set_aside(excess);
            let mut waits =
                vec![PollFd::new(&self.timer, PollFlags::IN), PollFd::new(&self.reactor_wake, PollFlags::IN)];
            let reads = reads && rest.is_none();
            if reads {
                waits.push(PollFd::new(&self.links_epoll, PollFlags::IN));
            }
            if let Some((socket, writes)) = &control {
                let interest = if *writes { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
                waits.push(PollFd::new(socket, interest));
            }
            let _ = poll::wait(&mut waits, rest.take());
            let is_ready: Vec<bool> = waits.iter().map(|fd| !fd.revents().is_empty()).collect();
            drop(waits);
            if is_ready[1] {
                self.reactor_wake.clear();
            }
            if control.is_some() && is_ready.last() == Some(&true) && !self.on_control() {
                return;
            }
            if is_ready[0] {
                self.timer.clear();
                self.on_timer();
            }
            if reads && is_ready[2] && self.on_links(&mut ready) >= MANY {
                rest = Some(REST);
            }
        }
    }

    fn on_control(&self) -> bool {
        let mut state = self.state.lock();
        let alive = state.inner.on_control() || state.inner.on_head_down();
        self.gone.store(state.inner.gone, Ordering::SeqCst);
        state.inner.flush_all();
        // What the head said may have ended a task that the leader waits for.
        if state.leadership.led {
            self.leader_wake.wake();
        }
        self.release_callbacks(&state);
        // A new lease may have got something to do that nobody waits for.
        self.watch_links(&mut state);
        self.arm_for_tick(&mut state);
        alive
    }

    fn on_timer(&self) {
        let mut state = self.state.lock();
        state.armed = None;
        state.inner.flush_all();
        let now = tick();
        if state.inner.wake_at.is_some_and(|at| at <= now) {
            state.inner.wake_at = None;
            state.inner.handle(Event::Tick);
            if state.leadership.led {
                self.leader_wake.wake();
            }
        }
        state.inner.see_to_connections(now);
        if std::mem::take(&mut state.leadership.reactor_looks) && !state.leadership.led {
            if now.since(state.leadership.last_read) < TAKE_OVER {
                state.leadership.reactor_looks = true;
            } else {
                state.leadership.reactor_reads = state.inner.core.pending() > 0;
            }
        }
        self.watch_links(&mut state);
        self.arm_for_tick(&mut state);
    }

    /// Read the links. Says how many tasks ended.
    fn on_links(&self, ready: &mut Vec<u64>) -> usize {
        let _ = wait_for_links(&self.links_epoll, Duration::ZERO, ready);
        let mut state = self.state.lock();
        if !state.leadership.reactor_reads {
            ready.clear();
            return 0;
        }
        let before = state.inner.ended;
        for key in ready.drain(..) {
            if key == LEADER_WAKE {
                self.leader_wake.clear();
            } else {
                state.inner.on_ready(LeaseKey(key as usize));
            }
        }
        state.inner.flush_all();
        if state.inner.core.pending() == 0 {
            state.leadership.reactor_reads = false;
        }
        self.release_callbacks(&state);
        self.arm_for_tick(&mut state);
        state.inner.ended - before
    }

    /// Set the timer for the machine's next tick.
    pub(crate) fn arm_for_tick(&self, state: &mut Guarded) {
        if let Some(at) = state.inner.wake_at {
            self.arm(state, at.since(tick()).max(Duration::from_micros(1)));
        }
        if let Some(at) = state.inner.connecting.due {
            self.arm(state, at.since(tick()).max(Duration::from_micros(1)));
        }
        if state.leadership.reactor_looks {
            self.arm(state, TAKE_OVER);
        }
    }

    /// Have the timer fire after `after`, unless it will fire earlier.
    pub(crate) fn arm(&self, state: &mut Guarded, after: Duration) {
        let at = tick() + after;
        if state.armed.is_none_or(|armed| at < armed) {
            state.armed = Some(at);
            self.timer.arm(after);
        }
    }
}
