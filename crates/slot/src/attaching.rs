//! A new data connection for the slot's lease: as it is, or sealed first if it comes from another machine.
//!
//! * AT-1: the connection that was opened last serves, of those that have proved the lease's secret: one that only knows
//!   the lease's name takes nothing away.
//! * AT-2: sealing takes a thread of its own, for a moment: neither user code nor the companion waits for it.

use crate::runtime::{LinkInUse, Shared, State};
use paceline_net::secure::{Secured, answer_data};
use paceline_net::signals;
use paceline_proto::{LeaseId, LeaseSecret};
use rustix::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long the other side may take to prove what it knows.
pub(crate) const LIMIT: Duration = Duration::from_secs(5);
/// So many may try at once.
const MOST: usize = 16;
pub(crate) const STACK: usize = 1 << 20;

/// Connections in the order they came.
#[derive(Default)]
pub(crate) struct Attaching {
    came: u64,
    /// The last one that serves, or is void together with all before it.
    settled: u64,
    sealing: usize,
}

impl Attaching {
    /// One more came. Its number.
    pub(crate) fn next(&mut self) -> u64 {
        self.came += 1;
        self.came
    }

    /// This one serves from now on, unless a later one does.
    pub(crate) fn settle(&mut self, number: u64) -> bool {
        let latest = number > self.settled;
        if latest {
            self.settled = number;
        }
        latest
    }

    pub(crate) fn may_seal(&self) -> bool {
        self.sealing < MOST
    }

    pub(crate) fn seals(&mut self) {
        self.sealing += 1;
    }

    pub(crate) fn sealed(&mut self) {
        self.sealing -= 1;
    }

    /// The lease is over, and with it whatever was opened for it.
    pub(crate) fn forget(&mut self) {
        self.settled = self.came;
    }
}

/// A connection came for this lease.
pub(crate) fn on_attach(
    shared: &Arc<Shared>,
    state: &mut State,
    lease: LeaseId,
    connection: OwnedFd,
    secret: Option<LeaseSecret>,
) {
    state.attaching.came += 1;
    let number = state.attaching.came;
    let Some(secret) = secret else { return serve(shared, state, lease, number, connection.into()) };
    if state.attaching.sealing >= MOST {
        return;
    }
    let shared = shared.clone();
    let thread = std::thread::Builder::new().name("paceline-seal".into()).stack_size(STACK);
    let started = thread.spawn(move || {
        signals::block_all();
        let sealed = answer_data(connection, &secret, Instant::now() + LIMIT);
        let mut state = shared.state.lock();
        state.attaching.sealing -= 1;
        if let Ok(sealed) = sealed
            && number > state.attaching.settled
        {
            serve(&shared, &mut state, lease, number, sealed);
            drop(state);
            shared.main_wake.wake();
            shared.companion_wake.wake();
        }
    });
    state.attaching.sealing += usize::from(started.is_ok());
}

fn serve(shared: &Arc<Shared>, state: &mut State, lease: LeaseId, number: u64, connection: Secured) {
    if state.core.lease() != Some(lease) && !state.busy {
        shared.page.reset();
    }
    if state.core.lease() != Some(lease) {
        state.overlap.forget();
    }
    state.attaching.settled = number;
    state.core.attach(lease);
    state.link = Some(LinkInUse::new(connection, shared));
    state.detaching = None;
}
