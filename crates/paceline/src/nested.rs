//! A session inside a slot: the tasks it submits belong to the task that runs there.
//!
//! * NS-1: what is submitted counts as the task's: it is told under which lease before.
//! * NS-2: while anybody here waits for tasks, the slot's CPUs are theirs; for callbacks and awaited futures, as long as
//!   any task is pending.
//! * NS-3: a slot that may not leave its CPUs to others runs what it waits for itself, as far as nobody else has begun it.

use crate::embedded::Status;
use crate::files::Files;
use crate::host::{Host, Opened};
use crate::routes::Routes;
use crate::session::{Guarded, Shared};
use paceline_core::client::Here;
use paceline_proto::{LeaseId, Resources};
use paceline_slot::{Runtime, Wait};
use parking_lot::Mutex;

pub(crate) struct Nested {
    runtime: Runtime,
    /// To slots of nodes that are somewhere, unlike the one in the process of an embedded cluster.
    routes: Routes,
}

impl Nested {
    pub(crate) fn new(runtime: Runtime, files: Option<Files>) -> Nested {
        Nested { runtime, routes: Routes::new(files, None) }
    }
}

impl Host for Nested {
    fn open(&mut self, lease: LeaseId) -> Opened {
        if self.routes.knows(lease) { self.routes.open(lease) } else { self.runtime.connect(lease).into() }
    }

    fn is_distributed(&self, lease: LeaseId) -> bool {
        self.routes.knows(lease)
    }

    /// The node passes the link on to the head, wherever that is.
    fn reach_head(&mut self) -> Option<Opened> {
        Some(self.runtime.reach_head().into())
    }

    fn routes(&mut self) -> Option<&mut Routes> {
        Some(&mut self.routes)
    }

    fn outlives_us(&self) -> bool {
        true
    }

    /// A slot knows nothing of the others.
    fn status(&self) -> Status {
        Status::default()
    }

    fn close(&self) {}

    fn shutdown(&mut self) {}
}

/// What a session knows of the slot it lives in.
pub(crate) struct Nest {
    runtime: Runtime,
    under: Mutex<Option<LeaseId>>,
    /// Somebody waits to be called back.
    callbacks: Mutex<Option<Wait>>,
}

/// As long as this lives, a thread of the task waits for others.
pub struct Blocked<'a>(&'a Runtime, Option<Wait>);

impl Drop for Blocked<'_> {
    fn drop(&mut self) {
        if let Some(wait) = self.1 {
            self.0.unblock(wait);
        }
    }
}

impl Nest {
    pub(crate) fn new(runtime: Runtime) -> Nest {
        Nest { runtime, under: Mutex::default(), callbacks: Mutex::default() }
    }

    pub(crate) fn block(&self) -> Blocked<'_> {
        Blocked(&self.runtime, self.runtime.block())
    }

    fn has(&self) -> Resources {
        self.runtime.needs().unwrap_or_default()
    }
}

impl Shared {
    /// Something is about to be submitted: say for whom, if that has changed (NS-1).
    pub(crate) fn announce(&self, state: &mut Guarded) {
        let Some(nest) = &self.nest else { return };
        let lease = nest.runtime.lease();
        let mut under = nest.under.lock();
        if let Some(lease) = lease.filter(|_| *under != lease) {
            *under = Some(lease);
            state.inner.act(|core, effects| core.work_under(lease, effects));
        }
    }

    /// Somebody waits to be called back (NS-2).
    pub(crate) fn hold_for_callbacks(&self) {
        if let Some(nest) = &self.nest {
            let wait = nest.runtime.block();
            if let Some(before) = std::mem::replace(&mut *nest.callbacks.lock(), wait) {
                nest.runtime.unblock(before);
            }
        }
    }

    /// Tasks may have ended: if they all have, nobody waits to be called back any more.
    pub(crate) fn release_callbacks(&self, state: &Guarded) {
        if let Some(nest) = &self.nest
            && state.inner.core.pending() == 0
            && let Some(wait) = nest.callbacks.lock().take()
        {
            nest.runtime.unblock(wait);
        }
    }

    /// A task to run in this very thread, if it has to be (NS-3).
    pub(crate) fn take_here(&self, state: &mut Guarded) -> Option<Here<crate::Ticket>> {
        let nest = self.nest.as_ref().filter(|nest| nest.runtime.is_too_deep())?;
        let has = nest.has();
        let here = state.inner.act(|core, effects| core.take_here(&has, effects));
        if here.is_none() {
            nest.runtime.wait_anyway();
        }
        here
    }
}
