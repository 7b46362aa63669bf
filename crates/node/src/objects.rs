//! The shell of the node's store: links to processes, memory, and files for what goes to disk.
//!
//! Owns: the bytes of objects. Does not own: who may have them, and for how long ([`paceline_core::objects`] decides).
//!
//! * OS-1: memory is taken only sealed, and of the size that was reserved; files are handed out only to be read.
//! * OS-2: nothing has a name: when the node is gone, so is everything that nobody has mapped.
//! * OS-3: writing to disk keeps nobody else waiting.

use paceline_core::Tick;
use paceline_core::objects::{Effect, Event, LinkId, Status, Store};
use paceline_net::control::{self, Receiver, Sender};
use paceline_net::kept::Kept;
use paceline_net::scratch::{self, Scratch};
use paceline_net::secure::Secured;
use paceline_net::{alarm, clock, sealed};
use paceline_proto::objects::{FromStore, Missing, ToStore};
use paceline_proto::{NodeId, ObjectId};
use rustix::fd::{AsFd, OwnedFd};
use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::mpsc;

/// The setting that says how many bytes objects may have in memory.
pub const MEMORY: &str = "PACELINE_OBJECT_MEMORY";

/// Of the memory that this process may use, so much is for objects.
const SHARE: f64 = 0.3;
/// Bytes written to disk at once.
const PIECE: usize = 1 << 20;

/// How much memory is for objects if nobody says otherwise.
pub fn default_limit(memory: u64) -> u64 {
    (memory as f64 * SHARE) as u64
}

/// Reaches the store, which starts when it is first needed.
pub(crate) struct Objects {
    node: NodeId,
    limit: u64,
    news: Option<mpsc::UnboundedSender<News>>,
    status: Arc<Mutex<Status>>,
}

enum News {
    Link(Secured),
    From(LinkId, ToStore, Vec<OwnedFd>),
    Gone(LinkId),
    Spilled(ObjectId, io::Result<Scratch>),
}

impl Objects {
    pub(crate) fn new(node: NodeId, limit: u64) -> Objects {
        let status = Arc::new(Mutex::new(Status { limit, ..Status::default() }));
        Objects { node, limit, news: None, status }
    }

    /// A process is at the other end.
    pub(crate) fn on_link(&mut self, connection: Secured) {
        let news = self.news.get_or_insert_with(|| {
            let (sender, receiver) = mpsc::unbounded_channel();
            let shell = Shell {
                core: Store::new(self.node, self.limit),
                links: BTreeMap::new(),
                opened: 0,
                contents: BTreeMap::new(),
                came: None,
                // Not kept alive by itself.
                news: sender.downgrade(),
                wake: None,
                status: self.status.clone(),
            };
            tokio::spawn(shell.run(receiver));
            sender
        });
        let _ = news.send(News::Link(connection));
    }

    pub(crate) fn status(&self) -> Status {
        *self.status.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The bytes of an object.
enum Content {
    Small(Vec<u8>),
    Memory(Kept),
    File(Scratch),
}

struct Shell {
    core: Store,
    links: BTreeMap<LinkId, Sender<FromStore>>,
    opened: u64,
    contents: BTreeMap<ObjectId, Content>,
    /// The memory that came with the message at hand.
    came: Option<OwnedFd>,
    news: mpsc::WeakUnboundedSender<News>,
    wake: Option<u64>,
    status: Arc<Mutex<Status>>,
}

impl Shell {
    async fn run(mut self, mut news: mpsc::UnboundedReceiver<News>) {
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
            News::Link(connection) => self.on_link(connection),
            News::From(link, message, descriptors) => self.on_message(link, message, descriptors),
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
        }
    }

    fn on_link(&mut self, connection: Secured) {
        let Some(news) = self.news.upgrade() else { return };
        match control::channel(connection) {
            Ok((sender, receiver)) => {
                self.opened += 1;
                let link = LinkId(self.opened);
                self.links.insert(link, sender);
                tokio::spawn(listen(link, receiver, news.downgrade()));
                self.step(Event::LinkUp(link));
            }
            Err(error) => tracing::error!(%error, "the link to a process could not be watched"),
        }
    }

    fn drop_link(&mut self, link: LinkId) {
        self.links.remove(&link);
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
        self.step(Event::From(link, message));
        self.came = None;
    }

    fn step(&mut self, event: Event) {
        let mut effects = Vec::new();
        self.core.handle(Tick(clock::now()), event, &mut effects);
        for effect in effects {
            self.perform(effect);
        }
    }

    fn perform(&mut self, effect: Effect) {
        match effect {
            Effect::To(link, message) => self.say(link, &message, Vec::new()),
            Effect::Keep(object) => {
                let memory = self.came.take().expect("no `Put` comes without its memory");
                self.contents.insert(object, Content::Memory(Kept::new(memory)));
            }
            Effect::KeepSmall(object, bytes) => drop(self.contents.insert(object, Content::Small(bytes))),
            Effect::Hand(link, number, object, size) => self.hand(link, number, object, size),
            Effect::Spill(object) => self.spill(object),
            Effect::Discard(object) => drop(self.contents.remove(&object)),
            Effect::WakeAt(at) => self.wake = Some(at.0),
        }
    }

    fn say(&self, link: LinkId, message: &FromStore, descriptors: Vec<OwnedFd>) {
        if let Some(sender) = self.links.get(&link) {
            sender.send(message, descriptors);
        }
    }

    fn hand(&self, link: LinkId, number: u64, object: ObjectId, size: u64) {
        let file = match self.contents.get(&object) {
            Some(Content::Small(bytes)) => {
                return self.say(link, &FromStore::Small { number, bytes: bytes.clone() }, Vec::new());
            }
            Some(Content::Memory(memory)) => {
                rustix::io::fcntl_dupfd_cloexec(memory.as_fd(), 0).map_err(Into::into)
            }
            Some(Content::File(file)) => file.read_only(),
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

async fn listen(link: LinkId, mut receiver: Receiver<ToStore>, news: mpsc::WeakUnboundedSender<News>) {
    while let Ok(Some((message, descriptors))) = receiver.next().await {
        let Some(news) = news.upgrade() else { return };
        if news.send(News::From(link, message, descriptors)).is_err() {
            return;
        }
    }
    if let Some(news) = news.upgrade() {
        let _ = news.send(News::Gone(link));
    }
}
