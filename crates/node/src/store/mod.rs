//! What clients bring to this machine: their files, by content, and a directory of each client where they are laid out.
//!
//! Owns: one directory of this node below the one for temporary files, the links of those who bring something, and when
//! the directory of a client goes. Does not own: who may open such a link (the core knows the leases).
//!
//! * SR-1: only the node's user may look inside.
//! * SR-2: what is kept under a hash has that hash, and nobody else writes to it: clients get copies.
//! * SR-3: the directory of a client goes with the client: at once if it says so, else when none of its links is left
//!   and nothing of it runs. The whole goes with the node, and that of a node that was killed when another one starts.
//! * SR-4: a disk that is full is said to be so to whoever brought something; the node goes on.

mod cache;
mod folder;
mod left;
mod links;
mod unpack;

pub(crate) use links::answer;

use crate::objects::Shelf;
use crate::places::{LinkPlace, NoPlace};
use cache::Cache;
use left::{Going, Left};
use paceline_net::secure::UnprovedLink;
use paceline_proto::store::{Failure, directory_of};
use paceline_proto::{ClientId, LeaseSecret};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use unpack::Tree;

/// How long a client may be without a link, if nothing of it runs, before its directory goes.
const ORPHANED: Duration = Duration::from_secs(3);

/// The store of one node. Nothing is on disk before somebody brings something.
#[derive(Clone)]
pub struct Store {
    shared: Arc<Shared>,
}

struct Shared {
    /// Where it is, once it is.
    base: PathBuf,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Taken as long as the directory is there.
    lock: Option<OwnedFd>,
    cache: Cache,
    clients: BTreeMap<ClientId, Client>,
    /// Directories of clients that have gone, while processes of theirs are still there.
    going: Vec<Going>,
    left: Vec<Left>,
    /// Links that are open, to be shut when the node ends.
    links: BTreeMap<u64, OwnedFd>,
    /// Numbers that were given, to links and to directories.
    opened: u64,
    closed: bool,
}

/// What is known of one client.
#[derive(Default)]
struct Client {
    links: usize,
    /// It has said that it goes.
    going: bool,
    alone_since: Option<Instant>,
    tree: Arc<Mutex<Tree>>,
}

impl Store {
    /// A store with a directory of its own, which is made when it is needed. Removes those of nodes that were killed.
    pub fn new() -> io::Result<Store> {
        let parent = std::env::temp_dir();
        folder::remove_stale(&parent);
        paceline_net::private::remove_stale(&parent);
        let base = folder::name_in(&parent)?;
        Ok(Store { shared: Arc::new(Shared { base, state: Mutex::default() }) })
    }

    /// Where it is, or will be.
    pub fn base(&self) -> &Path {
        &self.shared.base
    }

    /// Somebody who works for this client has opened a link.
    pub(crate) fn serve(
        &self,
        connection: OwnedFd,
        client: ClientId,
        proof: Option<(LeaseSecret, UnprovedLink)>,
        shelf: Shelf,
        take_place: impl FnOnce() -> Result<LinkPlace, NoPlace> + Send + 'static,
        closed: impl FnOnce() + Send + 'static,
    ) {
        let (shared, wish) = (self.shared.clone(), (client, proof));
        links::serve(shared, connection, wish, shelf, take_place, closed);
    }

    /// Whether some client has no link any more, so that [`Store::tidy`] should be called now and then.
    pub(crate) fn has_orphans(&self) -> bool {
        let state = self.shared.state.lock();
        !state.going.is_empty() || state.clients.values().any(|client| client.links == 0)
    }

    /// Remove the directories of clients that are gone (SR-3). `runs` says whether anything of a client runs, and whether
    /// it has any process at all. Gives those that have said that they go: they need nothing here any more.
    pub(crate) fn tidy(&self, runs: impl Fn(ClientId) -> (bool, bool)) -> Vec<ClientId> {
        let now = Instant::now();
        let mut gone = Vec::new();
        let mut state = self.shared.state.lock();
        state.clients.retain(|&id, client| {
            let (busy, there) = runs(id);
            let Some(since) = client.alone_since.filter(|_| client.links == 0) else { return true };
            let over = if client.going { !busy } else { !there && now.duration_since(since) >= ORPHANED };
            if over {
                gone.push((id, client.going, client.tree.clone()));
            }
            !over
        });
        let left = gone.iter().filter(|(_, going, _)| *going).map(|(id, _, _)| *id).collect();
        for (client, _, tree) in gone {
            // Out of the way before anybody can come back to it.
            let path = self.shared.set_aside(client, &mut state);
            state.going.extend(path.map(|path| Going { client, path, tree }));
        }
        let (still, over): (Vec<_>, Vec<_>) =
            std::mem::take(&mut state.going).into_iter().partition(|going| runs(going.client).1);
        state.going = still;
        drop(state);
        if !over.is_empty() {
            let shared = self.shared.clone();
            let tidy = move || over.into_iter().for_each(|going| left::keep(&shared, going));
            let _ = std::thread::Builder::new().name("paceline-tidy".into()).spawn(tidy);
        }
        left
    }

    /// Nothing more is taken, and all that was is removed, and what slots have left that died with their zygote.
    pub fn close(&self) {
        let mut state = self.shared.state.lock();
        state.closed = true;
        for link in std::mem::take(&mut state.links).values() {
            let _ = rustix::net::shutdown(link, rustix::net::Shutdown::Both);
        }
        if let Some(lock) = state.lock.take() {
            folder::remove(&self.shared.base);
            drop(lock);
        }
        if let Some(parent) = self.shared.base.parent() {
            paceline_net::private::remove_stale(parent);
        }
    }
}

impl Shared {
    /// The directory is there, and ours.
    fn make(&self, state: &mut State) -> Result<(), Failure> {
        if state.closed {
            return Err(Failure::System { text: "the node is going".into() });
        }
        if state.lock.is_none() {
            let lock = folder::create(&self.base).map_err(|error| unable(&self.base, &error))?;
            state.lock = Some(lock);
        }
        Ok(())
    }

    fn cache(&self) -> PathBuf {
        self.base.join("cache")
    }

    fn of_client(&self, client: ClientId) -> PathBuf {
        directory_of(&self.base.to_string_lossy(), client).into()
    }

    fn set_aside(&self, client: ClientId, state: &mut State) -> Option<PathBuf> {
        state.opened += 1;
        let aside = self.base.join("gone").join(state.opened.to_string());
        std::fs::rename(self.of_client(client), &aside).ok().map(|()| aside)
    }
}

/// What the system would not do, in words for people.
fn unable(path: &Path, error: &io::Error) -> Failure {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let full = matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded);
    let text = format!("{} on {}: {error}", path.display(), host.trim());
    if full { Failure::Full { text } } else { Failure::System { text } }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn store_closed_removes_directories_of_slots_whose_zygote_was_killed() {
        let store = Store::new().unwrap();
        let left = paceline_net::private::unguessable(&std::env::temp_dir(), "paceline-slot-").unwrap();
        std::fs::create_dir(&left).unwrap();
        store.close();
        assert!(!left.exists());
    }
}
