//! The ways to the slots of leases that are on other machines, or at least in other processes.
//!
//! * RT-1: who goes by way of another node tries the direct way again, one lease of a node after the other until one gets
//!   through, and then all of them.
//! * RT-2: of a node that is to pass a lease's connections on and does not, for whatever reason, the head is told, which names
//!   another way or the same again.
//!
//! Owns: where nodes are, what opens each lease, and the threads that dial. Used by clients of a cluster at an address,
//! whether they are programs or slots.

use crate::dialer::Dialer;
use crate::files::{Files, WayIn};
use crate::host::Opened;
use crate::owner::Owner;
use crate::session::Shared;
use paceline_net::secure::{self, Secured};
use paceline_proto::control::HeadToClient;
use paceline_proto::{Address, LeaseId, LeaseSecret, NodeId, Way};
use std::collections::HashMap;
use std::io;
use std::sync::Weak;
use std::time::{Duration, Instant};

/// How long one attempt at a data connection may take; then another way is looked for.
const PATIENCE: Duration = Duration::from_secs(3);

/// How often the direct way is tried again.
const AGAIN: Duration = Duration::from_secs(10);

/// Whether the short ways of one machine are left out, as if every peer were far away.
pub(crate) fn is_local_off() -> bool {
    std::env::var_os("PACELINE_LOCAL").is_some_and(|value| value == "off")
}

pub(crate) struct Routes {
    dialer: Dialer,
    session: Weak<Shared>,
    nodes: HashMap<NodeId, Vec<Address>>,
    leases: HashMap<LeaseId, Route>,
    /// Nodes that were out of reach: when the direct way is tried next, and whether it was open the last time (RT-1).
    detours: HashMap<NodeId, (Instant, bool)>,
    /// What slots on other machines need before anything runs there.
    files: Option<Files>,
    /// The store of objects that those slots reach by way of their nodes.
    owner: Option<Owner>,
}

struct Route {
    node: NodeId,
    secret: LeaseSecret,
    /// Where another node passes connections on, if the node itself was out of reach.
    via: Option<Vec<Address>>,
}

impl Routes {
    pub(crate) fn new(files: Option<Files>, owner: Option<Owner>) -> Routes {
        Routes {
            files,
            owner,
            dialer: Dialer::new(),
            session: Weak::new(),
            nodes: HashMap::new(),
            leases: HashMap::new(),
            detours: HashMap::new(),
        }
    }

    pub(crate) fn deliver_to(&mut self, session: Weak<Shared>) {
        self.session = session;
    }

    pub(crate) fn on_head(&mut self, message: &HeadToClient) {
        match message {
            HeadToClient::NodeAt { node, addresses, .. } => {
                let far = is_local_off();
                let usable = addresses.iter().filter(|address| !(far && address.is_unix()));
                self.nodes.insert(*node, usable.cloned().collect());
            }
            HeadToClient::Via { lease, addresses, .. } => {
                if let Some(route) = self.leases.get_mut(lease) {
                    let usable = addresses.iter().filter(|address| !address.is_unix());
                    route.via = Some(usable.cloned().collect());
                    self.detours.insert(route.node, (Instant::now() + AGAIN, false));
                }
            }
            _ => {}
        }
    }

    pub(crate) fn on_granted(&mut self, lease: LeaseId, node: NodeId, secret: LeaseSecret) {
        self.leases.insert(lease, Route { node, secret, via: None });
    }

    pub(crate) fn forget(&mut self, lease: LeaseId) {
        self.leases.remove(&lease);
    }

    /// Whether it is known where the lease's node is. In a cluster inside of one process it is nowhere.
    pub(crate) fn knows(&self, lease: LeaseId) -> bool {
        self.leases.get(&lease).is_some_and(|route| self.nodes.contains_key(&route.node))
    }

    pub(crate) fn open(&self, lease: LeaseId) -> Opened {
        let Some(route) = self.leases.get(&lease) else {
            return Opened::Failed(io::ErrorKind::NotFound.into());
        };
        let relayed = route.via.is_some();
        let Some(addresses) = route.via.clone().or_else(|| self.nodes.get(&route.node).cloned()) else {
            return Opened::Failed(io::Error::new(
                io::ErrorKind::AddrNotAvailable,
                "the head has not said where the node is",
            ));
        };
        let (node, secret, session, files) =
            (route.node, route.secret, self.session.clone(), self.files.clone());
        let owner = self.owner.clone();
        let job = move || {
            let deadline = Instant::now() + PATIENCE;
            let result = dial(&addresses, relayed, lease, secret, deadline).and_then(|(secured, way)| {
                let way_in = WayIn { addresses, relayed, lease, secret };
                if let Some(owner) = owner {
                    owner.meet(node, &way_in);
                }
                if let Some(files) = files.filter(|_| way.is_sealed()) {
                    files.bring(node, way_in)?;
                }
                Ok(secured)
            });
            if let Some(session) = session.upgrade() {
                session.on_dialed(lease, result);
            }
        };
        self.dialer.dial(Box::new(job)).map_or_else(Opened::Failed, |()| Opened::Later)
    }

    /// If the lease goes by way of another node, see whether it has to (RT-1).
    pub(crate) fn retry_direct(&mut self, lease: LeaseId) {
        let Some(route) = self.leases.get(&lease).filter(|route| route.via.is_some()) else { return };
        let Some(addresses) = self.nodes.get(&route.node).cloned() else { return };
        let now = Instant::now();
        let (due, open) = self.detours.entry(route.node).or_insert((now, false));
        if !*open && *due > now {
            return;
        }
        *due = now + AGAIN;
        let (secret, session) = (route.secret, self.session.clone());
        let job = move || {
            let result = secure::dial_data(&addresses, lease, secret, Instant::now() + PATIENCE);
            if let Some(session) = session.upgrade() {
                session.on_direct(lease, result.ok().map(|(secured, _)| secured));
            }
        };
        let _ = self.dialer.dial(Box::new(job));
    }

    /// How that went.
    pub(crate) fn on_direct(&mut self, lease: LeaseId, open: bool) {
        let Some(route) = self.leases.get_mut(&lease) else { return };
        if let Some(detour) = self.detours.get_mut(&route.node) {
            detour.1 = open;
        }
        if open {
            route.via = None;
        }
    }

    /// Have another link to the head opened by this.
    pub(crate) fn reach_head(&self, dial: impl FnOnce() -> io::Result<Secured> + Send + 'static) -> Opened {
        let session = self.session.clone();
        let job = move || {
            let result = dial();
            if let Some(session) = session.upgrade() {
                session.on_head_dialed(result);
            }
        };
        self.dialer.dial_first(Box::new(job)).map_or_else(Opened::Failed, |()| Opened::Later)
    }

    pub(crate) fn close(&self) {
        self.dialer.close();
    }
}

/// Opens a data connection. Another node that knows nothing of the lease has forgotten what it is to pass on, with its head
/// link, and a head that has started since does not know that it was to: so it counts as out of reach (RT-2).
fn dial(
    addresses: &[Address],
    relayed: bool,
    lease: LeaseId,
    secret: LeaseSecret,
    deadline: Instant,
) -> io::Result<(Secured, Way)> {
    let dial = if relayed { secure::dial_relayed } else { secure::dial_data };
    dial(addresses, lease, secret, deadline).map_err(|error| match error {
        secure::Error::Lease { .. } if relayed => io::Error::new(io::ErrorKind::ConnectionRefused, error),
        error => error.into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use paceline_proto::open;
    use std::io::{Read, Write};
    use std::net::TcpListener;

    /// Dial a node that knows nothing of the lease.
    fn dial_stranger(relayed: bool) -> io::Error {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = Address::tcp("127.0.0.1", listener.local_addr().unwrap().port());
        let node = std::thread::spawn(move || {
            let (mut connection, _) = listener.accept().unwrap();
            connection.read_exact(&mut [0; open::LENGTH]).unwrap();
            connection.write_all(&open::Answer::Lease.encode()).unwrap();
            // Until the other side has ended it.
            let _ = connection.read_to_end(&mut Vec::new());
        });
        let deadline = Instant::now() + PATIENCE;
        let dialed = dial(&[address], relayed, LeaseId(7), LeaseSecret::default(), deadline);
        let error = dialed.expect_err("it is refused");
        node.join().unwrap();
        error
    }

    #[test]
    fn node_that_has_forgotten_what_it_passes_on_is_out_of_reach() {
        let error = dial_stranger(true);
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused, "RT-2: {error}");
        assert!(error.to_string().contains("no such lease"), "{error}");
        let error = dial_stranger(false);
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied, "the lease is over: {error}");
    }
}
