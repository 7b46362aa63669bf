//! A cluster at an address: its head and nodes are processes of their own, here or on other machines.
//!
//! * RM-1: programs of the same user on the head's machine find its local socket and its key by its address alone.
//! * RM-2: connecting ends within [`PATIENCE`], one way or the other, and says what was tried.
//! * RM-3: the way to the head is looked for anew each time: a head that was started again has another local socket.

use crate::embedded::Status;
use crate::files::Files;
use crate::host::{Host, Opened};
use crate::owner::Owner;
use crate::routes::{Routes, is_local_off};
pub use paceline_net::secure::Password;

use paceline_net::secure::{self, Credential, Dialed, Introduction, Key, Role};
use paceline_node::Whereabouts;
use paceline_proto::{Address, LeaseId};
use paceline_registry::{Home, Place, machine};
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long connecting may take in all.
const PATIENCE: Duration = Duration::from_secs(8);

/// So many descriptors are enough for every data link that a client may have.
const DESCRIPTORS: u64 = 4096;

/// Means whatever cluster of this user runs on this machine.
const AUTO: &str = "auto";

/// What lets a program in.
#[derive(Clone, Debug, Default)]
pub enum Credentials {
    /// What there is: the variables `PACELINE_KEY` (a key or its file) and `PACELINE_PASSWORD`, else the key of the cluster
    /// if this user has it on this machine.
    #[default]
    Found,
    KeyFile(PathBuf),
    Password(Password),
}

/// Where a cluster is, and who wants in.
#[derive(Clone, Debug)]
pub struct Target {
    place: Where,
    credentials: Credentials,
    me: Introduction,
}

#[derive(Clone, PartialEq, Debug)]
enum Where {
    At(Address),
    /// The one that runs on this machine.
    Here,
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Address(#[from] paceline_proto::address::NoAddress),
    #[error(
        "no cluster of yours runs on this machine\nhint: start one with `paceline start`, or connect to a host:port"
    )]
    NoneHere,
    #[error("several clusters run on this machine: {names}\nhint: connect to one of them by its host:port")]
    SeveralHere { names: String },
    #[error("the key cannot be read: {0}")]
    Key(io::Error),
    #[error("cannot connect to {address}: {error}")]
    Dial { address: String, error: secure::Error },
    #[error("cannot connect: {0}")]
    System(#[from] io::Error),
}

impl Target {
    /// Reads the address and nothing else.
    pub fn new(
        address: &str,
        credentials: Credentials,
        name: impl Into<String>,
        python: Option<[u8; 3]>,
    ) -> Result<Target, Error> {
        let place = if address == AUTO { Where::Here } else { Where::At(address.parse()?) };
        Ok(Target { place, credentials, me: Introduction::new(Role::Client, name, python) })
    }

    /// The address as text.
    pub fn address(&self) -> String {
        match &self.place {
            Where::At(address) => address.to_string(),
            Where::Here => AUTO.into(),
        }
    }

    pub(crate) fn name(&self) -> &str {
        &self.me.name
    }

    pub(crate) fn dial(&self) -> Result<Dialed, Error> {
        let (addresses, place) = self.look_around()?;
        let credential = self.credential(place)?;
        let deadline = Instant::now() + PATIENCE;
        secure::dial(&addresses, credential.as_ref(), &self.me, deadline)
            .map_err(|error| Error::Dial { address: self.address(), error })
    }

    /// Where the head is, as far as this machine knows (RM-1).
    fn look_around(&self) -> Result<(Vec<Address>, Option<Place>), Error> {
        let home = Home::find().ok();
        let places = home.map_or_else(Vec::new, |home| home.clusters());
        let here = machine();
        let socket = |place: &Place| {
            let head = place.head().filter(|head| head.machine == here && !is_local_off())?;
            Some(Address::Unix(head.unix))
        };
        match &self.place {
            Where::Here => {
                let mut running: Vec<_> =
                    places.into_iter().filter_map(|place| Some((socket(&place)?, place))).collect();
                match running.len() {
                    0 => Err(Error::NoneHere),
                    1 => Ok(running.pop().map(|(socket, place)| (vec![socket], Some(place))).expect("one")),
                    _ => {
                        let names: Vec<&str> = running.iter().map(|(_, place)| place.name()).collect();
                        Err(Error::SeveralHere { names: names.join(", ") })
                    }
                }
            }
            Where::At(address) => {
                let place = places.into_iter().find(|place| is_of(place, address));
                let socket = place.as_ref().and_then(socket);
                Ok((socket.into_iter().chain([address.clone()]).collect(), place))
            }
        }
    }

    fn credential(&self, place: Option<Place>) -> Result<Option<Credential>, Error> {
        let read = |path: &std::path::Path| Key::read(path).map(Credential::Key).map_err(Error::Key);
        match &self.credentials {
            Credentials::KeyFile(path) => read(path).map(Some),
            Credentials::Password(password) => Ok(Some(Credential::Password(password.clone()))),
            Credentials::Found => {
                if let Some(text) = variable("PACELINE_KEY") {
                    return match text.trim().parse() {
                        Ok(key) => Ok(Some(Credential::Key(key))),
                        Err(_) => read(text.as_ref()).map(Some),
                    };
                }
                if let Some(text) = variable("PACELINE_PASSWORD") {
                    return Ok(Some(Credential::Password(Password::new(text))));
                }
                // Without one, the head may still know us by our user.
                let file = place.map(|place| place.key_file()).filter(|file| file.exists());
                file.map(|file| read(&file)).transpose()
            }
        }
    }
}

/// Whether this is the cluster at this address: its head's record says so, or that of a node that joined it from here.
fn is_of(place: &Place, address: &Address) -> bool {
    let same = |known: Option<String>| known.is_some_and(|known| is_same(&known, address));
    place.head().is_some_and(|head| same(head.address))
        || place.nodes().into_iter().any(|node| same(node.head))
}

fn is_same(known: &str, address: &Address) -> bool {
    let plain = |text: String| text.replace("localhost:", "127.0.0.1:").replace("[::1]:", "127.0.0.1:");
    plain(known.to_owned()) == plain(address.to_string())
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// As many descriptors as a client may need, if the system lets us.
pub(crate) fn raise_descriptor_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let wanted = limit.maximum.map_or(DESCRIPTORS, |most| most.min(DESCRIPTORS));
    if limit.current.is_some_and(|current| current < wanted) {
        let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum: limit.maximum });
    }
}

/// The host of a session there.
pub(crate) struct Remote {
    target: Arc<Target>,
    routes: Routes,
    owner: Owner,
}

impl Remote {
    pub(crate) fn new(target: Target, files: Option<Files>) -> Remote {
        let owner = Owner::default();
        Remote { target: Arc::new(target), routes: Routes::new(files, Some(owner.clone())), owner }
    }
}

impl Host for Remote {
    fn open(&mut self, lease: LeaseId) -> Opened {
        self.routes.open(lease)
    }

    fn is_distributed(&self, _lease: LeaseId) -> bool {
        true
    }

    fn reach_head(&mut self) -> Option<Opened> {
        let target = self.target.clone();
        let dial = move || target.dial().map(|dialed| dialed.secured).map_err(io::Error::other);
        Some(self.routes.reach_head(dial))
    }

    fn routes(&mut self) -> Option<&mut Routes> {
        Some(&mut self.routes)
    }

    fn loses_nodes(&self) -> bool {
        true
    }

    fn reach_store(&mut self) -> Option<io::Result<OwnedFd>> {
        Some(self.owner.reach())
    }

    fn whereabouts(&self) -> Option<Whereabouts> {
        Some(self.owner.whereabouts())
    }

    fn outlives_us(&self) -> bool {
        true
    }

    /// The head is asked instead.
    fn status(&self) -> Status {
        Status::default()
    }

    fn close(&self) {}

    fn shutdown(&mut self) {
        self.routes.close();
        self.owner.close();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nonsense_is_refused_before_anything_is_opened() {
        for text in ["", "host", "host:0", "http://host:7077", "a b:7077"] {
            let target = Target::new(text, Credentials::Found, "test", None);
            assert!(matches!(target, Err(Error::Address(_))), "{text}");
        }
        let target = Target::new("[::1]:7077", Credentials::Found, "test", None).unwrap();
        assert_eq!(target.address(), "[::1]:7077");
    }

    #[test]
    fn this_machine_has_several_names() {
        let address = "localhost:7077".parse().unwrap();
        assert!(is_same("127.0.0.1:7077", &address));
        assert!(!is_same("127.0.0.1:7078", &address));
        assert!(!is_same("10.0.0.1:7077", &address));
    }
}
