//! The shell around [`paceline_core::admission::unproved`]: closes connections that have to make room.

use super::dial::peer_address;
use crate::kept::Kept;
use paceline_core::admission::Source;
use paceline_core::admission::unproved::{Arrival, LIMITS, Limits, Unproved};
use paceline_proto::LeaseId;
use parking_lot::Mutex;
use rustix::fd::OwnedFd;
use rustix::net::{Shutdown, shutdown};
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

/// Holds the connections that name a lease and have not proved its secret yet. Cheap to clone.
#[derive(Clone)]
pub struct UnprovedLinks {
    state: Arc<Mutex<State>>,
}

struct State {
    core: Unproved,
    /// Forked children must not keep them.
    sockets: BTreeMap<u64, Kept>,
}

/// Stands for one connection's place. Drop it when the secret is proved, or the connection and its thread are over.
pub struct UnprovedLink {
    state: Arc<Mutex<State>>,
    number: u64,
}

impl Default for UnprovedLinks {
    fn default() -> UnprovedLinks {
        UnprovedLinks::new(LIMITS)
    }
}

impl UnprovedLinks {
    pub fn new(limits: Limits) -> UnprovedLinks {
        let state = State { core: Unproved::new(limits), sockets: BTreeMap::new() };
        UnprovedLinks { state: Arc::new(Mutex::new(state)) }
    }

    /// Gives a connection for this lease a place, and ends the one that has to make room: whoever reads it sees its end.
    pub fn admit(&self, socket: &OwnedFd, lease: LeaseId) -> io::Result<UnprovedLink> {
        let watched = Kept::new(socket.try_clone()?);
        let source = Source::from(peer_address(socket).ip());
        let mut state = self.state.lock();
        let Some(Arrival { number, evicted }) = state.core.arrive(lease, source) else {
            return Err(io::Error::other("its source has too many that proved nothing"));
        };
        if let Some(socket) = evicted.and_then(|evicted| state.sockets.remove(&evicted)) {
            let _ = shutdown(&socket, Shutdown::Both);
        }
        state.sockets.insert(number, watched);
        Ok(UnprovedLink { state: self.state.clone(), number })
    }
}

impl Drop for UnprovedLink {
    fn drop(&mut self) {
        let mut state = self.state.lock();
        state.core.remove(self.number);
        state.sockets.remove(&self.number);
    }
}
