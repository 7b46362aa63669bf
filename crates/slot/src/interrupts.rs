//! Calls that are to stop: why, what became of them, and when their slot ends if they do not.
//!
//! Owns: what is noted of such a call. The companion tells the main thread by the signal of Ctrl-C, and ends the process
//! when the call has had its grace.
//!
//! * ST-1: a call that cannot be stopped where it is (an import must not be left halfway) is told again until it can; its
//!   grace counts from when it was first to stop.

use crate::companion;
use crate::guests::Caller;
use crate::overlap::Overlap;
use crate::runtime::Runtime;
use paceline_net::clock;
use paceline_proto::Seq;
use paceline_proto::data::Status;
use std::time::Duration;

/// A call that was told to stop has this long to do so; then the slot ends.
pub(crate) const GRACE: Duration = Duration::from_secs(2);
/// Who could not stop where it was is told again after this long.
pub(crate) const TELL_AGAIN_AFTER: Duration = Duration::from_millis(10);

/// A call that is to stop.
#[derive(Clone, Copy)]
pub(crate) struct Interrupt {
    pub caller: Caller,
    pub call: Seq,
    pub why: Why,
    /// When this process ends if it has not.
    pub ends_at: u64,
    /// The main thread was told.
    pub signalled: bool,
}

impl Interrupt {
    /// Its caller has no more use for it.
    pub fn cancel(caller: Caller, call: Seq) -> Interrupt {
        let ends_at = clock::now() + GRACE.as_nanos() as u64;
        Interrupt { caller, call, why: Why::Cancelled, ends_at, signalled: false }
    }

    /// It is to end now. The companion sees to it as soon as it has the lock.
    pub fn kill(caller: Caller, call: Seq) -> Interrupt {
        Interrupt { ends_at: clock::now(), signalled: true, ..Interrupt::cancel(caller, call) }
    }

    /// Note it for the call that goes on, or for the one that runs.
    pub fn put(self, overlap: &mut Overlap, running: &mut Option<Interrupt>) {
        if !overlap.interrupt(self) && (running.is_none() || self.signalled) {
            *running = Some(self);
        }
    }
}

/// Why a call is to stop.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Why {
    Cancelled,
    TimedOut,
}

impl Why {
    /// How a call has ended that was told to stop, and ended like this.
    pub fn status_for(self, status: Status) -> Status {
        match self {
            Why::TimedOut => Status::TimedOut,
            // What its exception was about nobody wants to know any more, even if that cannot be said.
            Why::Cancelled if matches!(status, Status::Raised | Status::Unsendable) => Status::Cancelled,
            Why::Cancelled => status,
        }
    }
}

impl Runtime {
    /// Whether the call that runs was told to stop. To be asked when the signal of Ctrl-C has come: it may have come
    /// too late, and then it means nothing.
    pub fn is_interrupted(&self) -> bool {
        let state = self.shared.state.lock();
        state.interrupt.is_some_and(|interrupt| state.concerns_running(&interrupt))
    }

    /// The call that runs was told to stop and cannot be stopped where it is: it is told again soon (ST-1).
    pub fn hold_interrupt(&self) {
        let mut state = self.shared.state.lock();
        if let Some(interrupt) = &mut state.interrupt {
            interrupt.signalled = false;
            let now = clock::now();
            let again = now + TELL_AGAIN_AFTER.as_nanos() as u64;
            companion::set_timer(&self.shared, &mut state, now, again);
        }
    }
}
