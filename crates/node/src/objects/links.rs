//! The links of a store: to processes, to the stores of nodes, and to the stores of owners.

use super::shell::Shell;
use super::{News, NodeAt, Way};
use crate::places::LinkPlace;
use paceline_core::objects::{Event, LinkId};
use paceline_net::control::{self, Carries, Receiver, Sender};
use paceline_net::secure::Secured;
use paceline_proto::objects::{FromStore, ToStore};
use paceline_proto::{ClientId, LeaseId, LeaseSecret};
use rustix::fd::OwnedFd;
use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

/// Who is at the other end.
pub(super) enum Peer {
    Process(Sender<FromStore>),
    /// A node's store. `near`: it is on this machine, and takes memory.
    Node {
        sender: Sender<FromStore>,
        near: bool,
        at: NodeAt,
        way: Option<Arc<Way>>,
    },
    /// The store of a client, whose own links come by this pass.
    Owner {
        sender: Sender<ToStore>,
        pass: LeaseId,
        client: ClientId,
        /// What is said first.
        hello: Option<ToStore>,
    },
}

impl Peer {
    pub(super) fn sender(&self) -> Option<&Sender<FromStore>> {
        match self {
            Peer::Process(sender) | Peer::Node { sender, .. } => Some(sender),
            Peer::Owner { .. } => None,
        }
    }
}

/// What lets those in who bring and fetch bytes, and for whom.
#[derive(Clone, Default)]
pub(super) struct Passes {
    given: Arc<Mutex<BTreeMap<LeaseId, (ClientId, LeaseSecret)>>>,
}

impl Passes {
    pub(super) fn find(&self, lease: LeaseId) -> Option<(ClientId, LeaseSecret)> {
        self.given.lock().unwrap_or_else(PoisonError::into_inner).get(&lease).copied()
    }

    pub(super) fn remove(&self, lease: LeaseId) {
        self.given.lock().unwrap_or_else(PoisonError::into_inner).remove(&lease);
    }

    fn make(&self, client: ClientId) -> io::Result<(LeaseId, LeaseSecret)> {
        let mut random = [0; 48];
        rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty())?;
        let (lease, secret) = random.split_first_chunk::<16>().expect("it is longer");
        let lease = LeaseId(u128::from_le_bytes(*lease));
        let secret = LeaseSecret(secret.try_into().expect("the rest is as long"));
        self.given.lock().unwrap_or_else(PoisonError::into_inner).insert(lease, (client, secret));
        Ok((lease, secret))
    }
}

impl Shell {
    fn next_link(&mut self) -> LinkId {
        self.opened += 1;
        LinkId(self.opened)
    }

    pub(super) fn on_link(&mut self, connection: Secured, place: Option<LinkPlace>) {
        match control::channel(connection) {
            Ok((sender, receiver)) => {
                let flow = Some(sender.clone());
                self.install(Peer::Process(sender), receiver, flow, place);
            }
            Err(error) => tracing::error!(%error, "the link to a process could not be watched"),
        }
    }

    /// The store of a node, which says first how bytes get there.
    pub(super) fn on_node(&mut self, connection: Secured, at: NodeAt) {
        let near = connection.tls.is_none();
        match control::channel(connection) {
            Ok((sender, receiver)) => {
                self.install(Peer::Node { sender, near, at, way: None }, receiver, None, None);
            }
            Err(error) => tracing::error!(%error, "the link to a node's store could not be watched"),
        }
    }

    /// An owner's store speaks first: until then the other side may still be busy with who we are.
    pub(super) fn on_welcome(&mut self, link: LinkId) {
        let Some(Peer::Owner { sender, client, hello, .. }) = self.links.get_mut(&link) else { return };
        let client = *client;
        if let Some(hello) = hello.take() {
            sender.send(&hello, Vec::new());
            self.step(Event::OwnerUp(link, client));
        }
    }

    fn install(
        &mut self,
        peer: Peer,
        receiver: Receiver<ToStore>,
        flow: Option<Sender<FromStore>>,
        place: Option<LinkPlace>,
    ) {
        let link = self.next_link();
        self.links.insert(link, peer);
        let reader = tokio::spawn(listen(link, receiver, flow, place, self.news.clone(), News::From));
        self.readers.insert(link, reader.abort_handle());
        self.step(Event::LinkUp(link));
    }

    /// The node at this link has said how bytes get there.
    pub(super) fn on_way(&mut self, link: LinkId, lease: LeaseId, secret: LeaseSecret) {
        let Some(Peer::Node { at, way, near, .. }) = self.links.get_mut(&link) else { return };
        // Another node passes on only what is for a lease that it was told of.
        let (lease, secret) = at.relayed.unwrap_or((lease, secret));
        *way = Some(Arc::new(Way::new(at.addresses.clone(), at.relayed.is_some(), lease, secret)));
        let serves = way.as_ref().is_some_and(|way| way.source().is_some());
        let (near, ready) = (*near, at.ready.clone());
        self.step(Event::Reached { link, near, serves });
        let _ = ready.send(());
    }

    pub(super) fn on_owner(&mut self, connection: Secured, client: ClientId, place: Option<LinkPlace>) {
        let opened = self.passes.make(client).and_then(|pass| Ok((control::channel(connection)?, pass)));
        match opened {
            Ok(((sender, receiver), (lease, secret))) => {
                let link = self.next_link();
                let hello = ToStore::Node { owner: client, node: self.node, lease, secret };
                self.links.insert(link, Peer::Owner { sender, pass: lease, client, hello: Some(hello) });
                let flow = None::<Sender<ToStore>>;
                let reader =
                    tokio::spawn(listen(link, receiver, flow, place, self.news.clone(), News::FromOwner));
                self.readers.insert(link, reader.abort_handle());
            }
            Err(error) => tracing::error!(%error, "the link to a client's store could not be watched"),
        }
    }
}

/// So many messages of one link may wait to be handled, and so many bytes for one that does not read (OS-5).
const MAX_WAITING_MESSAGES: usize = 64;
const MAX_QUEUED_BYTES: usize = 1 << 20;

async fn listen<M: Carries, Out: Carries>(
    link: LinkId,
    mut receiver: Receiver<M>,
    flow: Option<Sender<Out>>,
    _place: Option<LinkPlace>,
    news: mpsc::WeakUnboundedSender<News>,
    tell: fn(LinkId, M, Vec<OwnedFd>, OwnedSemaphorePermit) -> News,
) {
    let waiting = Arc::new(Semaphore::new(MAX_WAITING_MESSAGES));
    loop {
        let (message, descriptors) = match receiver.next().await {
            Ok(Some(received)) => received,
            Ok(None) => break,
            Err(error) => {
                tracing::warn!(?link, %error, "a link to the store broke");
                break;
            }
        };
        if let Some(flow) = &flow {
            flow.drained_to(MAX_QUEUED_BYTES).await;
        }
        let Ok(permit) = waiting.clone().acquire_owned().await else { return };
        let Some(news) = news.upgrade() else { return };
        if news.send(tell(link, message, descriptors, permit)).is_err() {
            return;
        }
    }
    if let Some(news) = news.upgrade() {
        let _ = news.send(News::Gone(link));
    }
}
