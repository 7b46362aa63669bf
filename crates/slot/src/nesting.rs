//! A slot whose task submits tasks itself: how it reaches the head and other slots, and what it gives up while it waits.
//!
//! * NE-1: a call that waits for others has told its client that it runs, and given back every call behind it.
//! * NE-2: between the first wait and the end of the last, its CPUs are others'; the node hears of both. With calls that
//!   go on beside each other, one that waits is enough: what it waits for may need those very CPUs.
//! * NE-3: one that may not wait, for too many do, runs what nobody has begun. Once nothing is left of that, it waits.

use crate::companion;
use crate::guests::Caller;
use crate::runtime::{Runtime, Shared, State};
use paceline_net::{clock, fds};
use paceline_proto::control::SlotToNode;
use paceline_proto::{ClientId, LeaseId, Resources, Seq, open};
use rustix::fd::OwnedFd;
use std::io;
use std::sync::Arc;

impl Runtime {
    /// The lease that a call runs under.
    pub fn lease(&self) -> Option<LeaseId> {
        let state = self.shared.state.lock();
        // Between its calls, too, an object may have threads that submit.
        state.core.lease().filter(|_| state.busy || state.core.keeps() || !state.overlap.is_empty())
    }

    /// Whether the client's calls are for this slot alone: what lives here goes on between them.
    pub fn keeps(&self) -> bool {
        self.shared.state.lock().core.keeps()
    }

    /// What the node has, of which this slot has [`Runtime::needs`].
    pub fn total(&self) -> Option<Resources> {
        self.shared.state.lock().total
    }

    /// Whether the client it belongs to runs the same program: only then are its own functions known there, too.
    pub fn is_own(&self) -> bool {
        self.shared.state.lock().own
    }

    /// Whether others than its client call what it is.
    pub fn has_guests(&self) -> bool {
        !self.shared.state.lock().guests.is_empty()
    }

    /// A link to the head, to be its client.
    pub fn reach_head(&self) -> io::Result<OwnedFd> {
        let (ours, theirs) = fds::pair()?;
        companion::hand_over(&self.shared, &SlotToNode::Nest, theirs)?;
        Ok(ours)
    }

    /// A link to the node's store, and the client on whose account objects are made here.
    pub fn reach_store(&self) -> io::Result<(OwnedFd, ClientId)> {
        let client = self.shared.state.lock().client.unwrap_or_default();
        let (ours, theirs) = fds::pair()?;
        companion::hand_over(&self.shared, &SlotToNode::Objects, theirs)?;
        Ok((ours, client))
    }

    /// A data connection for a lease.
    pub fn connect(&self, lease: LeaseId) -> io::Result<OwnedFd> {
        let (ours, theirs) = fds::pair()?;
        // A fresh socket takes so few bytes at once.
        rustix::io::write(&ours, &open::encode(lease))?;
        companion::hand_over(&self.shared, &SlotToNode::Connect, theirs)?;
        Ok(ours)
    }

    /// A thread of the call that runs waits for other tasks. None: no call runs.
    pub fn block(&self) -> Option<Wait> {
        let mut state = self.shared.state.lock();
        let lease = state.core.lease()?;
        if !state.overlap.is_empty() && !self.shared.main.is_current() {
            state.overlap.waits += 1;
            changed(&self.shared, &mut state);
            return Some(Wait { lease, call: None });
        }
        let call = state.running().filter(|_| state.busy)?;
        let wait = Wait { lease, call: Some(call) };
        state.blocked += 1;
        if state.blocked > 1 {
            return Some(wait);
        }
        state.announce_running();
        state.core.block();
        state.flush(clock::now());
        // Calls that are on their way here go back, too.
        if !std::mem::replace(&mut state.companion_serves, true) {
            self.shared.companion_wake.wake();
        }
        changed(&self.shared, &mut state);
        Some(wait)
    }

    /// It goes on. Means nothing if the call has ended meanwhile.
    pub fn unblock(&self, wait: Wait) {
        let mut state = self.shared.state.lock();
        if wait.call.is_none() {
            if state.core.lease() == Some(wait.lease) && state.overlap.waits > 0 {
                state.overlap.waits -= 1;
                changed(&self.shared, &mut state);
            }
            return;
        }
        let same = state.core.lease() == Some(wait.lease) && state.running() == wait.call;
        if same && state.blocked > 0 {
            state.blocked -= 1;
            if state.blocked == 0 {
                goes_on(&self.shared, &mut state);
            }
        }
    }

    /// The call that waits has nothing to run by itself: it leaves its CPUs to others all the same.
    pub fn wait_anyway(&self) {
        let mut state = self.shared.state.lock();
        if std::mem::take(&mut state.too_deep)
            && let Some(lease) = state.core.lease()
        {
            companion::say(&self.shared, &SlotToNode::Waits { lease });
        }
    }

    /// Whether the call that waits may not leave its CPUs to others.
    pub fn is_too_deep(&self) -> bool {
        self.shared.state.lock().too_deep
    }

    /// Have this called when that turns out.
    pub fn on_too_deep(&self, call: Arc<dyn Fn() + Send + Sync>) {
        self.shared.state.lock().on_too_deep = Some(call);
    }
}

/// A wait for other tasks, on behalf of the call that runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Wait {
    lease: LeaseId,
    /// None: one of those that go on beside it.
    call: Option<(Caller, Seq)>,
}

/// Nobody waits any more on behalf of the call that runs, or it ends.
pub(crate) fn goes_on(shared: &Shared, state: &mut State) {
    state.blocked = 0;
    state.core.unblock();
    changed(shared, state);
}

/// Tell the node whether something waits, if that is news.
pub(crate) fn changed(shared: &Shared, state: &mut State) {
    let blocked = state.blocked > 0 || state.overlap.waits > 0;
    if std::mem::replace(&mut state.told_blocked, blocked) == blocked {
        return;
    }
    state.too_deep &= blocked;
    if let Some(lease) = state.core.lease() {
        companion::say(shared, &SlotToNode::Blocked { lease, blocked });
    }
}

/// The node says that too many wait already.
pub(crate) fn on_too_deep(state: &mut State, lease: LeaseId) -> Option<Arc<dyn Fn() + Send + Sync>> {
    let waits = state.told_blocked && state.core.lease() == Some(lease);
    state.too_deep |= waits;
    state.on_too_deep.clone().filter(|_| waits)
}
