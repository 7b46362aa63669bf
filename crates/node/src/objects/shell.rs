//! The event loop: what links say in, the core's effects out.

use super::links::{Passes, Peer};
use super::{Going, News, Way, Whereabouts};
use paceline_core::Tick;
use paceline_core::objects::{Effect, Event, LinkId, Status, Store};
use paceline_net::kept::Kept;
use paceline_net::scratch::{self, Scratch};
use paceline_net::{alarm, clock, sealed};
use paceline_proto::objects::{FromStore, Missing, Source, ToStore};
use paceline_proto::{NodeId, ObjectId};
use rustix::fd::{AsFd, OwnedFd};
use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

/// Bytes written to disk at once.
const PIECE: usize = 1 << 20;

/// The bytes of an object.
enum Content {
    Small(Vec<u8>),
    Memory(Kept),
    File(Scratch),
}

impl Content {
    /// A descriptor of its own for somebody. Few bytes have none.
    fn file(&self) -> io::Result<OwnedFd> {
        match self {
            Content::Small(_) => Err(io::ErrorKind::Unsupported.into()),
            Content::Memory(memory) => Ok(rustix::io::fcntl_dupfd_cloexec(memory.as_fd(), 0)?),
            Content::File(file) => file.read_only(),
        }
    }
}

pub(super) struct Shell {
    core: Store,
    pub(super) node: NodeId,
    pub(super) links: BTreeMap<LinkId, Peer>,
    /// What reads each link.
    pub(super) readers: BTreeMap<LinkId, AbortHandle>,
    pub(super) opened: u64,
    contents: BTreeMap<ObjectId, Content>,
    /// The memory that came with the message at hand.
    came: Option<OwnedFd>,
    /// Memory of objects that owners on this machine have lent, until there is room for it.
    lent: BTreeMap<ObjectId, OwnedFd>,
    pub(super) news: mpsc::WeakUnboundedSender<News>,
    wake: Option<u64>,
    status: Arc<Mutex<Status>>,
    pub(super) passes: Passes,
    pub(super) whereabouts: Whereabouts,
}

impl Shell {
    pub(super) fn new(
        core: Store,
        node: NodeId,
        news: mpsc::WeakUnboundedSender<News>,
        status: Arc<Mutex<Status>>,
        passes: Passes,
    ) -> Shell {
        Shell {
            core,
            node,
            links: BTreeMap::new(),
            readers: BTreeMap::new(),
            opened: 0,
            contents: BTreeMap::new(),
            came: None,
            lent: BTreeMap::new(),
            news,
            wake: None,
            status,
            passes,
            whereabouts: Whereabouts::default(),
        }
    }

    pub(super) async fn run(mut self, mut news: mpsc::UnboundedReceiver<News>) {
        loop {
            tokio::select! {
                biased;
                news = news.recv() => match news {
                    Some(news) => self.on_news(news),
                    None => return,
                },
                () = alarm::reached(self.wake) => {
                    self.wake = None;
                    self.step(Event::Tick);
                }
            }
            *self.status.lock().unwrap_or_else(PoisonError::into_inner) = self.core.status();
        }
    }

    fn on_news(&mut self, news: News) {
        match news {
            News::Link(connection, place) => self.on_link(connection, place),
            News::Node(connection, node) => self.on_node(connection, node),
            News::Owner(connection, client, place) => self.on_owner(connection, client, place),
            News::From(link, message, descriptors, _permit) => self.on_message(link, message, descriptors),
            News::FromOwner(link, message, descriptors, _permit) => {
                self.on_owner_says(link, message, descriptors);
            }
            News::Gone(link) => self.drop_link(link),
            News::Spilled(object, Ok(file)) => {
                if self.contents.contains_key(&object) {
                    self.contents.insert(object, Content::File(file));
                }
                self.step(Event::Spilled(object, Ok(())));
            }
            News::Spilled(object, Err(error)) => {
                tracing::warn!(%error, "an object could not be written to disk");
                self.step(Event::Spilled(object, Err(error.to_string())));
            }
            News::Fetched(object, Ok(memory)) => self.on_fetched(object, memory),
            News::Fetched(object, Err(error)) => {
                tracing::warn!(%error, ?object, "an object could not be fetched");
                self.step(Event::Fetched(object, false));
            }
            News::Unsent(link, object) => self.say(link, &FromStore::Unsent { object }, Vec::new()),
            News::Expected(object, size, answer) => {
                let _ = answer
                    .send(self.core.size_of(object) == Some(size) && !self.contents.contains_key(&object));
            }
            News::Open(object, answer) => drop(answer.send(self.open(object))),
        }
    }

    fn on_fetched(&mut self, object: ObjectId, memory: OwnedFd) {
        // OS-1
        let size = sealed::sealed_size(&memory).ok();
        let here = size.is_some() && size == self.core.size_of(object);
        self.came = Some(memory);
        self.step(Event::Fetched(object, here));
        self.came = None;
    }

    pub(super) fn drop_link(&mut self, link: LinkId) {
        // Whoever is still there finds its link closed, and its place is free.
        self.readers.remove(&link).into_iter().for_each(|reader| reader.abort());
        if let Some(Peer::Owner { pass, .. }) = self.links.remove(&link) {
            self.passes.remove(pass);
        }
        self.step(Event::LinkDown(link));
    }

    fn on_message(&mut self, link: LinkId, message: ToStore, descriptors: Vec<OwnedFd>) {
        self.came = descriptors.into_iter().next();
        if let (ToStore::Put { object, .. }, Some(memory)) = (&message, &self.came) {
            // OS-1
            let size = sealed::sealed_size(memory).ok();
            if size.is_none() || size != self.core.size_of(*object) {
                tracing::warn!(?object, "memory came that is not as it was said to be");
                return self.drop_link(link);
            }
        }
        let way = match message {
            ToStore::Node { lease, secret, .. } => Some((lease, secret)),
            _ => None,
        };
        self.step(Event::From(link, message));
        self.came = None;
        if let Some((lease, secret)) = way {
            self.on_way(link, lease, secret);
        }
    }

    fn on_owner_says(&mut self, link: LinkId, message: FromStore, descriptors: Vec<OwnedFd>) {
        if let (FromStore::Memory { object, .. }, Some(memory)) = (&message, descriptors.into_iter().next()) {
            self.lent.insert(*object, memory);
        }
        if let FromStore::Welcome { .. } = message {
            return self.on_welcome(link);
        }
        self.step(Event::FromOwner(link, message));
    }

    pub(super) fn step(&mut self, event: Event) {
        let mut effects = Vec::new();
        self.core.handle(Tick(clock::now()), event, &mut effects);
        for effect in effects {
            self.perform(effect);
        }
    }

    fn perform(&mut self, effect: Effect) {
        match effect {
            Effect::To(link, message) => self.say(link, &message, Vec::new()),
            Effect::ToOwner(link, message) => {
                if let ToStore::LetGo { object } = &message {
                    self.lent.remove(object);
                }
                if let Some(Peer::Owner { sender, .. }) = self.links.get(&link) {
                    sender.send(&message, Vec::new());
                }
            }
            Effect::Keep(object) => {
                let memory = self.came.take().expect("nothing is kept before its memory is here");
                self.contents.insert(object, Content::Memory(Kept::new(memory)));
            }
            Effect::KeepSmall(object, bytes) => drop(self.contents.insert(object, Content::Small(bytes))),
            Effect::Hand(link, number, object, size) => self.hand(link, number, object, size),
            Effect::Spill(object) => self.spill(object),
            Effect::Offer { link, number, object, size, source } => {
                let from = match self.links.get(&source) {
                    Some(Peer::Node { way: Some(way), .. }) => way.source(),
                    _ => None,
                };
                let from = from.unwrap_or(Source::Here);
                self.say(link, &FromStore::Offered { number, object, size, from }, Vec::new());
            }
            Effect::Fetch { object, size, link, from } => self.fetch(object, size, link, from),
            Effect::Send(link, object) => self.send(link, object),
            Effect::Whereabouts { object, size, nodes } => self.whereabouts.set(object, size, nodes),
            Effect::Discard(object) => drop(self.contents.remove(&object)),
            Effect::WakeAt(at) => self.wake = Some(at.0),
        }
    }

    fn say(&self, link: LinkId, message: &FromStore, descriptors: Vec<OwnedFd>) {
        if let Some(sender) = self.links.get(&link).and_then(Peer::sender) {
            sender.send(message, descriptors);
        }
    }

    fn hand(&self, link: LinkId, number: u64, object: ObjectId, size: u64) {
        let content = self.contents.get(&object);
        let far = match self.links.get(&link) {
            // Files on disk are not sealed, and nobody takes them for memory.
            Some(Peer::Node { near, .. }) => !near || matches!(content, Some(Content::File(_))),
            _ => false,
        };
        let file = match content {
            Some(Content::Small(bytes)) => {
                return self.say(link, &FromStore::Small { number, bytes: bytes.clone() }, Vec::new());
            }
            Some(_) if far => {
                let from = Source::Here;
                return self.say(link, &FromStore::Offered { number, object, size, from }, Vec::new());
            }
            Some(content) => content.file(),
            None => Err(io::ErrorKind::NotFound.into()),
        };
        match file {
            Ok(file) => self.say(link, &FromStore::Memory { number, object, size }, vec![file]),
            Err(error) => {
                tracing::error!(%error, ?object, "the bytes of an object cannot be handed on");
                self.say(link, &FromStore::Missing { number, why: Missing::Lost }, Vec::new());
            }
        }
    }

    fn open(&self, object: ObjectId) -> Option<Going> {
        let size = self.core.size_of(object)?;
        match self.contents.get(&object)? {
            Content::Small(bytes) => Some(Going::Small(bytes.clone())),
            content => content.file().ok().map(|file| Going::File(file, size)),
        }
    }

    /// Bring the bytes of an object here, in another thread (OS-3).
    fn fetch(&mut self, object: ObjectId, size: u64, link: LinkId, from: Source) {
        let way = match (self.links.get(&link), from) {
            (_, Source::Node { addresses, lease, secret }) => {
                Some(Arc::new(Way::new(addresses, false, lease, secret)))
            }
            (Some(Peer::Node { way, .. }), Source::Here) => way.clone(),
            (Some(Peer::Owner { sender, .. }), Source::Here) => {
                match (self.lent.remove(&object), self.news.upgrade()) {
                    (Some(memory), Some(news)) => drop(news.send(News::Fetched(object, Ok(memory)))),
                    _ => sender.send(&ToStore::Send { object }, Vec::new()),
                }
                return;
            }
            _ => None,
        };
        let news = self.news.clone();
        tokio::task::spawn_blocking(move || {
            let none = || io::Error::from(io::ErrorKind::NotConnected);
            let fetched = way.ok_or_else(none).and_then(|way| way.pull(object, size));
            if let Some(news) = news.upgrade() {
                let _ = news.send(News::Fetched(object, fetched));
            }
        });
    }

    /// Bring the bytes of an object to a node, in another thread (OS-3).
    fn send(&mut self, link: LinkId, object: ObjectId) {
        let way = match self.links.get(&link) {
            Some(Peer::Node { way, .. }) => way.clone(),
            _ => None,
        };
        let file = self.contents.get(&object).and_then(|content| content.file().ok());
        let (Some(way), Some(file), Some(size)) = (way, file, self.core.size_of(object)) else {
            return self.say(link, &FromStore::Unsent { object }, Vec::new());
        };
        let news = self.news.clone();
        tokio::task::spawn_blocking(move || {
            let Err(error) = way.push(object, &file, size) else { return };
            tracing::warn!(%error, ?object, "an object could not be sent to a node");
            if let Some(news) = news.upgrade() {
                let _ = news.send(News::Unsent(link, object));
            }
        });
    }

    /// Write it to disk, in another thread (OS-3).
    fn spill(&mut self, object: ObjectId) {
        let size = self.core.size_of(object).unwrap_or_default();
        let memory = match self.contents.get(&object) {
            Some(Content::Memory(memory)) => rustix::io::fcntl_dupfd_cloexec(memory.as_fd(), 0),
            _ => Err(rustix::io::Errno::NOENT),
        };
        let news = self.news.clone();
        tokio::task::spawn_blocking(move || {
            let written = memory.map_err(io::Error::from).and_then(|memory| write(memory, size));
            if let Some(news) = news.upgrade() {
                let _ = news.send(News::Spilled(object, written));
            }
        });
    }
}

fn write(memory: OwnedFd, size: u64) -> io::Result<Scratch> {
    let tmpdir = std::env::var_os("TMPDIR");
    let file = Scratch::create(&scratch::directory(tmpdir.as_deref()))?;
    let mut piece = vec![0; PIECE];
    let mut at = 0;
    while at < size {
        let length = usize::try_from(size - at).unwrap_or(PIECE).min(PIECE);
        let count = rustix::io::pread(&memory, &mut piece[..length], at)?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        file.write_at(&piece[..count], at)?;
        at += count as u64;
    }
    Ok(file)
}
