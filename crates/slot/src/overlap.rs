//! Calls that go on beside each other: begun on the main thread in order, ended on any thread in any order.
//!
//! Owns: when a deferred call has had its time, and who is told that one is to stop.
//!
//! * OV-1: a call is deferred before anything else gets to know it, so its answer can never come too early.
//! * OV-2: an answer is sent at once, by the thread that gives it; whoever serves the link writes what it did not take.
//! * OV-3: a deferred call that is to stop is named to [`Runtime::next_stop`] once, and again if it could not be stopped
//!   then; if it goes on all the same, the slot ends, and the page says for which call.
//! * OV-4: what an earlier lease left behind is not answered, and its slot serves no other.

use crate::companion;
use crate::guests::Caller;
use crate::interrupts::{GRACE, Interrupt, TELL_AGAIN_AFTER, Why};
use crate::nesting;
use crate::runtime::{Runtime, SERVE_AFTER, Shared, State};
use paceline_net::clock;
use paceline_proto::data::{Reply, Status};
use paceline_proto::{Bytes, LeaseId, Seq};
use rustix::process::{Signal, getpid, kill_process};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// A call that goes on beside others, by name.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Deferred {
    caller: Caller,
    call: Seq,
}

impl Deferred {
    /// A number that no other has in this slot, as long as its lease lasts.
    pub fn number(self) -> u64 {
        u64::from(self.caller.guest) << 48 | self.call.0
    }
}

/// What is known of deferred calls beyond their numbers.
#[derive(Default)]
pub(crate) struct Overlap {
    calls: BTreeMap<Deferred, GoingOn>,
    stops: VecDeque<Deferred>,
    /// How many threads of theirs wait for other tasks.
    pub waits: usize,
}

struct GoingOn {
    /// How long the main thread was with it.
    took: Duration,
    deadline: Option<u64>,
    interrupt: Option<Interrupt>,
}

impl Overlap {
    /// A call is to stop. False: no deferred call has this number.
    pub fn interrupt(&mut self, interrupt: Interrupt) -> bool {
        let named = Deferred { caller: interrupt.caller, call: interrupt.call };
        let Some(going_on) = self.calls.get_mut(&named) else { return false };
        match &mut going_on.interrupt {
            Some(earlier) => earlier.ends_at = earlier.ends_at.min(interrupt.ends_at),
            none => *none = Some(interrupt),
        }
        true
    }

    /// When the first of them has had its time.
    fn first_deadline(&self) -> Option<u64> {
        self.calls.values().filter_map(|going_on| going_on.deadline).min()
    }

    pub fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    /// A guest is gone: what goes on for it is answered to nobody.
    pub fn forget_of(&mut self, lease: LeaseId) {
        self.calls.retain(|deferred, _| deferred.caller.lease != lease);
    }

    /// The lease is over. Says whether something of it goes on.
    pub fn forget(&mut self) -> bool {
        self.stops.clear();
        self.waits = 0;
        !std::mem::take(&mut self.calls).is_empty()
    }
}

impl Runtime {
    /// The call that [`Runtime::advance`] gave last goes on elsewhere: the main thread may claim the next one. None: its
    /// lease is over, and nobody waits for it.
    pub fn defer(&self, call: Seq) -> Option<Deferred> {
        let now = clock::now();
        let mut guard = self.shared.state.lock();
        let state = &mut *guard;
        let took = Duration::from_nanos(now.saturating_sub(state.began));
        let interrupt = state.interrupt.take().filter(|interrupt| state.concerns_running(interrupt));
        let deadline = state.deadline.take();
        state.busy = false;
        self.shared.end_on_page(state, call);
        if state.blocked > 0 {
            nesting::goes_on(&self.shared, state);
        }
        if let Some(lease) = state.detaching.take() {
            companion::say_detached(&self.shared, lease);
        }
        let caller = state.caller?;
        let deferred = Deferred { caller, call };
        if !state.core_of(caller)?.defer(call) {
            return None;
        }
        // Whoever goes on with it is told, though the main thread was.
        let interrupt = interrupt.map(|interrupt| Interrupt { signalled: false, ..interrupt });
        state.overlap.calls.insert(deferred, GoingOn { took, deadline, interrupt });
        if deadline.is_some() {
            self.shared.page.limit_beside(state.overlap.first_deadline());
        }
        let due = now + SERVE_AFTER.as_nanos() as u64;
        let due = deadline.map_or(due, |deadline| deadline.min(due));
        companion::set_timer(&self.shared, state, now, due);
        Some(deferred)
    }

    /// A deferred call has ended. From any thread, and sent at once.
    pub fn answer(&self, deferred: Deferred, status: Status, payload: Bytes) {
        let now = clock::now();
        let mut guard = self.shared.state.lock();
        let state = &mut *guard;
        if state.core_of(deferred.caller).is_none() {
            return;
        }
        let Some(going_on) = state.overlap.calls.remove(&deferred) else { return };
        if going_on.deadline.is_some() {
            self.shared.page.limit_beside(state.overlap.first_deadline());
        }
        let status = going_on.interrupt.map_or(status, |interrupt| interrupt.why.status_for(status));
        let was_full = !state.can_claim();
        if let Some(core) = state.core_of(deferred.caller) {
            core.answer(Reply { seq: deferred.call, status, took: going_on.took, payload });
        }
        if state.overlap.is_empty() && state.overlap.waits > 0 {
            state.overlap.waits = 0;
            nesting::changed(&self.shared, state);
        }
        state.flush(now);
        // Main is in no call and sleeps: it may have a call to claim again, or bytes to write on.
        if !state.busy && (state.wants_to_write() || was_full && state.can_claim()) {
            self.shared.main_wake.wake();
        } else if state.wants_to_write() && !std::mem::replace(&mut state.companion_serves, true) {
            self.shared.companion_wake.wake();
        }
    }

    /// So many calls may be deferred at a time.
    pub fn allow_deferred(&self, most: usize) {
        self.shared.state.lock().core.allow_deferred(most);
    }

    /// A deferred call was to stop, and cannot be stopped where it is: it is named again soon.
    pub fn hold_stop(&self, number: u64) {
        let mut guard = self.shared.state.lock();
        let state = &mut *guard;
        let named = state.overlap.calls.iter_mut().find(|(deferred, _)| deferred.number() == number);
        if let Some(interrupt) = named.and_then(|(_, going_on)| going_on.interrupt.as_mut()) {
            interrupt.signalled = false;
            let now = clock::now();
            companion::set_timer(&self.shared, state, now, now + TELL_AGAIN_AFTER.as_nanos() as u64);
        }
    }

    /// Block until a deferred call is to stop. Call it without any lock of the language runtime.
    pub fn next_stop(&self) -> Deferred {
        let mut state = self.shared.state.lock();
        loop {
            if let Some(deferred) = state.overlap.stops.pop_front() {
                return deferred;
            }
            self.shared.stops.wait(&mut state);
        }
    }
}

/// Look after the calls that go on: tell the client of them, and stop those that are to. Says when to look again.
pub(crate) fn see_to(shared: &Shared, state: &mut State, now: u64) -> Option<u64> {
    state.announce_deferred();
    let mut due = None;
    let mut told = false;
    let Overlap { calls, stops, .. } = &mut state.overlap;
    for (&deferred, going_on) in calls {
        let Deferred { caller, call } = deferred;
        if going_on.interrupt.is_none() && going_on.deadline.is_some_and(|deadline| now >= deadline) {
            let ends_at = now + GRACE.as_nanos() as u64;
            let interrupt = Interrupt { caller, call, why: Why::TimedOut, ends_at, signalled: false };
            going_on.interrupt = Some(interrupt);
        }
        if let Some(interrupt) = &mut going_on.interrupt {
            if now >= interrupt.ends_at {
                if interrupt.why == Why::TimedOut {
                    shared.give_up_on_page(caller, call);
                }
                let _ = kill_process(getpid(), Signal::KILL);
            }
            if !std::mem::replace(&mut interrupt.signalled, true) {
                stops.push_back(deferred);
                told = true;
            }
        }
        let next = going_on.interrupt.map(|interrupt| interrupt.ends_at).or(going_on.deadline);
        due = due.into_iter().chain(next).min();
    }
    if told {
        shared.stops.notify_all();
    }
    due
}
