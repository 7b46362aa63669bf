//! Waiting for outcomes: the thread that asks reads the links itself.
//!
//! One thread at a time leads: it waits for the links, reads them, and hands in what came, for everybody. Others wait
//! until what they asked for is there, or until the leader leaves and one of them takes its place. While nobody waits,
//! the reactor thread does it, but only after a moment: a caller that submits and then asks gets there first, and
//! nobody else is woken.
//!
//! * PU-1: while tasks are pending, somebody leads, or the reactor will within [`TAKE_OVER`].
//! * PU-2: a leader that leaves wakes one that waits.
//! * PU-3: while memory is lent over a link, the reactor reads it now and then, though no task is pending.

use crate::aside::Excess;
use crate::cell::{Cell, Ticket, Waiter};
use crate::nested::Nest;
use crate::session::{Guarded, Shared};
use crate::state::{State, tick};
use paceline_core::Tick;
use paceline_core::client::{Here, LeaseKey};
use paceline_net::kept::Kept;
use paceline_net::spin::{self, Looked};
use parking_lot::MutexGuard;
use rustix::event::epoll;
use rustix::event::{Timespec, epoll::Event};
use rustix::io::Errno;
use std::mem::MaybeUninit;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long the reactor leaves the links to callers before it reads them itself.
pub(crate) const TAKE_OVER: Duration = Duration::from_micros(200);

/// A thread that submits reads the links after so many tasks.
const SUBMITTED: usize = 64;

/// Tasks expected to take longer than this are not worth waiting for awake.
const SPIN_WORTH: Duration = Duration::from_micros(50);

/// The epoll key of the descriptor that ends a leader's wait.
pub(crate) const LEADER_WAKE: u64 = u64::MAX;

/// How a wait ended.
pub enum Waited {
    Satisfied,
    TimedOut,
    /// A signal came; the caller may want to look.
    Interrupted,
    /// Inside a slot: run this first, for nobody else will. Hand its outcome to `Session::finish_here`.
    Here(Box<Here<Ticket>>),
}

/// Who leads, and who would.
#[derive(Default)]
pub(crate) struct Leadership {
    pub led: bool,
    /// The reactor reads the links.
    pub reactor_reads: bool,
    /// The reactor's timer will make it look whether it should.
    pub reactor_looks: bool,
    /// When somebody last read the links.
    pub last_read: Tick,
    /// Tasks submitted since.
    submitted: usize,
    followers: Vec<Arc<Waiter>>,
}

impl Shared {
    /// Wait until the waiter is satisfied, for at most `timeout`. `focus` is the one task that is waited for, if any.
    pub(crate) fn wait(&self, waiter: &Arc<Waiter>, focus: Option<&Cell>, timeout: Duration) -> Waited {
        if waiter.is_satisfied() {
            return Waited::Satisfied;
        }
        let _blocked = self.nest.as_ref().map(Nest::block);
        let until = Instant::now() + timeout;
        loop {
            let mut state = self.state.lock();
            if waiter.is_satisfied() {
                return Waited::Satisfied;
            }
            if let Some(here) = self.take_here(&mut state) {
                return Waited::Here(Box::new(here));
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Waited::TimedOut;
            }
            if self.closed() {
                return Waited::Interrupted;
            }
            let leadership = &mut state.leadership;
            if leadership.led {
                leadership.followers.push(waiter.clone());
                drop(state);
                waiter.park(left);
                let mut state = self.state.lock();
                state.leadership.followers.retain(|other| !Arc::ptr_eq(other, waiter));
                continue;
            }
            leadership.led = true;
            if std::mem::take(&mut leadership.reactor_reads) {
                self.reactor_wake.wake();
            }
            let result = self.lead(state, waiter, focus, until);
            if let Some(result) = result {
                return result;
            }
        }
    }

    /// Lead until satisfied. The lock is released while waiting.
    fn lead<'a>(
        &'a self,
        mut state: MutexGuard<'a, Guarded>,
        waiter: &Arc<Waiter>,
        focus: Option<&Cell>,
        until: Instant,
    ) -> Option<Waited> {
        let mut ready = Vec::with_capacity(16);
        let mut may_spin = focus.is_some();
        let result = loop {
            state.inner.flush_all();
            if waiter.is_satisfied() {
                break Waited::Satisfied;
            }
            if let Some(here) = self.take_here(&mut state) {
                break Waited::Here(Box::new(here));
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break Waited::TimedOut;
            }
            self.arm_for_tick(&mut state);
            let excess = state.inner.take_excess();
            let spot = if may_spin { focus.and_then(|cell| spin_spot(&mut state.inner, cell)) } else { None };
            drop(state);
            may_spin = false;
            self.set_aside(excess);
            if let Some((key, socket, limit)) = spot {
                let looked = spin::until_readable(&socket, limit);
                state = self.state.lock();
                state.inner.learn_spin(key, looked);
                if looked == Looked::Found {
                    state.inner.on_ready(key);
                    may_spin = true;
                    continue;
                }
                drop(state);
            }
            let interrupted = wait_for_links(&self.links_epoll, left, &mut ready) == Err(Errno::INTR);
            state = self.state.lock();
            state.leadership.last_read = tick();
            for key in ready.drain(..) {
                if key == LEADER_WAKE {
                    self.leader_wake.clear();
                } else {
                    state.inner.on_ready(LeaseKey(key as usize));
                }
            }
            if waiter.is_satisfied() {
                break Waited::Satisfied;
            }
            if interrupted || self.closed() {
                break Waited::Interrupted;
            }
        };
        state.inner.flush_all();
        self.release_callbacks(&state);
        if state.inner.connecting.due.is_some() {
            self.arm_for_tick(&mut state);
        }
        state.leadership.led = false;
        if let Some(next) = state.leadership.followers.pop() {
            drop(state);
            next.unpark();
        } else {
            self.watch_links(&mut state);
        }
        Some(result)
    }

    /// Write to disk what is too much for memory. The lock must not be held.
    pub(crate) fn set_aside(&self, excess: Excess) {
        if excess.is_empty() {
            return;
        }
        if let Some(warning) = self.aside.write(excess) {
            let warn = self.warn.clone();
            self.notifier.push(Box::new(move || warn(&warning)));
        }
    }

    /// A task was submitted by a thread that does not wait for it. One that submits many reads the links itself now and
    /// then: if the reactor did, the two would be in each other's way.
    pub(crate) fn after_submit(&self, state: &mut Guarded) {
        state.leadership.submitted += 1;
        // What must go to disk goes there before more is read, and that is the reactor's then.
        let is_due = state.leadership.submitted >= SUBMITTED && !state.inner.has_excess();
        if !is_due || state.leadership.led {
            return self.watch_links(state);
        }
        state.leadership.submitted = 0;
        state.leadership.last_read = tick();
        state.leadership.reactor_reads = false;
        let mut ready = Vec::with_capacity(16);
        let _ = wait_for_links(&self.links_epoll, Duration::ZERO, &mut ready);
        for key in ready.into_iter().filter(|key| *key != LEADER_WAKE) {
            state.inner.on_ready(LeaseKey(key as usize));
        }
        self.watch_links(state);
    }

    /// Says what is due of lent memory over an idle link, and has the reactor read it: without pending tasks nobody does,
    /// and what the slot says of memory would stay there, and the memory with it (PU-3).
    pub(crate) fn say_and_read(&self, key: LeaseKey) {
        let mut state = self.state.lock();
        state.inner.say_what_is_due(key);
        let leadership = &mut state.leadership;
        if !leadership.led && !leadership.reactor_reads && !leadership.reactor_looks {
            leadership.reactor_reads = true;
            self.reactor_wake.wake();
        }
    }

    /// Nobody leads: have the reactor look in a moment whether it should (PU-1).
    pub(crate) fn watch_links(&self, state: &mut Guarded) {
        if state.inner.connecting.due.is_some() {
            self.arm_for_tick(state);
        }
        let leadership = &mut state.leadership;
        if leadership.led || leadership.reactor_reads || leadership.reactor_looks {
            return;
        }
        if state.inner.core.pending() > 0 || state.inner.has_unsent() || state.inner.has_excess() {
            leadership.reactor_looks = true;
            self.arm(state, TAKE_OVER);
        }
    }
}

/// Where the answer to the focused task will come from, if it is worth waiting for awake.
fn spin_spot(state: &mut State, cell: &Cell) -> Option<(LeaseKey, Arc<Kept>, Duration)> {
    let (key, id) = cell.key();
    let (lease, expected) = state.core.location(key, id)?;
    if expected.is_some_and(|expected| expected > SPIN_WORTH) {
        return None;
    }
    state.spin_socket(lease).map(|(socket, limit)| (lease, socket, limit))
}

/// Wait until links are ready and collect their keys.
pub(crate) fn wait_for_links(epoll: &Kept, timeout: Duration, ready: &mut Vec<u64>) -> Result<(), Errno> {
    let timeout = Timespec { tv_sec: timeout.as_secs() as i64, tv_nsec: i64::from(timeout.subsec_nanos()) };
    let mut events = [MaybeUninit::<Event>::uninit(); 64];
    let (events, _) = epoll::wait(epoll, &mut events, Some(&timeout))?;
    ready.extend(events.iter().map(|event| event.data.u64()));
    Ok(())
}
