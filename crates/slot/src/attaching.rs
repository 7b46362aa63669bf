//! A new data connection for the slot's lease: as it is, or sealed first if it comes from another machine.
//!
//! * AT-1: the connection that was opened last serves, of those that have proved the lease's secret: one that only knows
//!   the lease's name takes nothing away.
//! * AT-2: sealing takes a thread of its own, for a moment: neither user code nor the companion waits for it. Those that
//!   have proved nothing are few, and make room for each other (`UN-1`, `UN-2`).

use crate::runtime::{LinkInUse, Shared, State};
use paceline_net::secure::{Secured, UnprovedLinks, answer_data};
use paceline_net::signals;
use paceline_proto::{LeaseId, LeaseSecret};
use rustix::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long the other side may take to prove what it knows.
pub(crate) const LIMIT: Duration = Duration::from_secs(5);
pub(crate) const STACK: usize = 1 << 20;

/// Connections in the order they came.
#[derive(Default)]
pub(crate) struct Attaching {
    came: u64,
    /// The last one that serves, or is void together with all before it.
    settled: u64,
    /// Of the slot's own lease and of its guests'.
    pub(crate) unproved: UnprovedLinks,
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
    let Ok(place) = state.attaching.unproved.admit(&connection, lease) else { return };
    let shared = shared.clone();
    let thread = std::thread::Builder::new().name("paceline-seal".into()).stack_size(STACK);
    let _ = thread.spawn(move || {
        signals::block_all();
        let sealed = answer_data(connection, &secret, Instant::now() + LIMIT);
        drop(place);
        let mut state = shared.state.lock();
        if let Ok(sealed) = sealed
            && number > state.attaching.settled
        {
            serve(&shared, &mut state, lease, number, sealed);
            drop(state);
            shared.main_wake.wake();
            shared.companion_wake.wake();
        }
    });
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
