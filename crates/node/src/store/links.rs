//! Links to the store, each with a thread of its own that waits for it.

use super::cache::{Coming, Leaving};
use super::{Shared, unpack};
use crate::objects::Shelf;
use crate::places::{LinkPlace, NoPlace};
use paceline_net::secure::{Secured, UnprovedLink, answer_data};
use paceline_net::store::{Incoming, Outgoing, Shelves, serve as serve_link};
use paceline_proto::store::{Failure, Name, Space};
use paceline_proto::{ClientId, LeaseSecret};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long the other side may take to prove what it knows.
const LIMIT: Duration = Duration::from_secs(5);
/// So many may be open at once.
const MOST: usize = 1024;
const STACK: usize = 1 << 20;

pub(super) fn serve(
    shared: Arc<Shared>,
    connection: OwnedFd,
    (client, proof): (ClientId, Option<(LeaseSecret, UnprovedLink)>),
    shelf: Shelf,
    take_place: impl FnOnce() -> Result<LinkPlace, NoPlace> + Send + 'static,
    closed: impl FnOnce() + Send + 'static,
) {
    let thread = std::thread::Builder::new().name("paceline-store".into()).stack_size(STACK);
    let started = thread.spawn(move || {
        let ended = answer(connection, proof).and_then(|secured| {
            let _place = take_place().map_err(io::Error::other)?;
            let Some(number) = begin(&shared, &secured, client)? else { return Ok(()) };
            let mut shelves = OfClient { shared: shared.clone(), client, shelf };
            let going = serve_link(secured, &mut shelves);
            end(&shared, number, client, matches!(going, Ok(true)));
            going.map(drop)
        });
        if let Err(error) = ended {
            tracing::info!(%error, %client, "a link to the store ended");
        }
        closed();
    });
    if let Err(error) = started {
        tracing::warn!(%error, "a link to the store could not be served");
    }
}

/// Have the other side prove that it knows the secret, if it has to. It gives its place among the unproved back then.
pub(crate) fn answer(connection: OwnedFd, proof: Option<(LeaseSecret, UnprovedLink)>) -> io::Result<Secured> {
    match proof {
        Some((secret, _place)) => answer_data(connection, &secret, Instant::now() + LIMIT),
        None => Ok(connection.into()),
    }
}

/// The link's number; none if there are too many.
fn begin(shared: &Shared, secured: &Secured, client: ClientId) -> io::Result<Option<u64>> {
    let mut state = shared.state.lock();
    if state.closed || state.links.len() >= MOST {
        return Ok(None);
    }
    state.opened += 1;
    let number = state.opened;
    state.links.insert(number, secured.socket.try_clone()?);
    let known = state.clients.entry(client).or_default();
    known.links += 1;
    known.going = false;
    Ok(Some(number))
}

fn end(shared: &Shared, number: u64, client: ClientId, going: bool) {
    let mut state = shared.state.lock();
    state.links.remove(&number);
    if let Some(known) = state.clients.get_mut(&client) {
        known.links -= 1;
        known.going |= going;
        known.alone_since = Some(Instant::now());
    }
}

struct OfClient {
    shared: Arc<Shared>,
    client: ClientId,
    shelf: Shelf,
}

impl Shelves for OfClient {
    fn lacks(&mut self, space: Space, names: &[Name]) -> Vec<u32> {
        let mut state = self.shared.state.lock();
        let places = 0..names.len() as u32;
        match space {
            Space::Files => places.filter(|&place| !state.cache.has(&names[place as usize])).collect(),
            Space::Objects => places.collect(),
        }
    }

    fn take(&mut self, space: Space, name: Name, length: u64) -> Result<Box<dyn Incoming>, Failure> {
        match space {
            Space::Files => match Coming::begin(&self.shared, self.client, name, length) {
                Ok(coming) => Ok(Box::new(coming)),
                Err(why) => {
                    unpack::refused(&self.shared, self.client, &why);
                    Err(why)
                }
            },
            Space::Objects => self.shelf.take(name, length),
        }
    }

    fn open(&mut self, space: Space, name: Name) -> Result<Box<dyn Outgoing>, Failure> {
        match space {
            Space::Files => Ok(Box::new(Leaving::open(&self.shared, name)?)),
            Space::Objects => self.shelf.open(name),
        }
    }

    fn unpack(&mut self, manifest: Name) -> Result<String, Failure> {
        unpack::unpack(&self.shared, self.client, manifest)
    }
}
