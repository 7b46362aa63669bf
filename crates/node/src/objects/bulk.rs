//! The bytes of objects over store links: brought to a node by the client that owns them, and fetched from a node.
//!
//! * BK-1: bytes go straight from the memory of an object into that of its copy, in chunks.
//! * BK-2: links that have done their work are used again. One that broke meanwhile is opened anew, once.
//! * BK-3: a store takes only what it has made room for.

use super::News;
use paceline_net::sealed::Filling;
use paceline_net::secure;
use paceline_net::store::{Client, Error, Incoming, Outgoing, Thing};
use paceline_proto::objects::Source;
use paceline_proto::store::{Failure, Name, Space};
use paceline_proto::{Address, LeaseId, LeaseSecret, ObjectId};
use parking_lot::Mutex;
use rustix::io::{Errno, pread};
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::sync::mpsc as sync;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

/// How long a link may take to be opened.
const PATIENCE: Duration = Duration::from_secs(5);
/// So many links to one node are kept for the next object.
const MOST_IDLE: usize = 2;

/// The way to the store of a node.
pub(crate) struct Way {
    addresses: Vec<Address>,
    relayed: bool,
    lease: LeaseId,
    secret: LeaseSecret,
    idle: Mutex<Vec<Client>>,
}

impl Way {
    pub(super) fn new(addresses: Vec<Address>, relayed: bool, lease: LeaseId, secret: LeaseSecret) -> Way {
        Way { addresses, relayed, lease, secret, idle: Mutex::default() }
    }

    /// For other nodes.
    pub(super) fn source(&self) -> Option<Source> {
        let far = self.addresses.iter().filter(|address| !address.is_unix());
        let addresses: Vec<Address> = far.cloned().collect();
        let reachable = !self.relayed && !addresses.is_empty();
        reachable.then_some(Source::Node { addresses, lease: self.lease, secret: self.secret })
    }

    /// Bring these bytes there.
    pub(super) fn push(&self, object: ObjectId, file: &OwnedFd, size: u64) -> io::Result<()> {
        self.over(|link| {
            let bytes = Reading { file: file.try_clone()?, at: 0 };
            let thing = Thing { name: name_of(object), length: size, bytes: Box::new(bytes) };
            link.put(Space::Objects, std::iter::once(Ok(thing)))
        })
    }

    /// Fetch so many bytes from there.
    pub(super) fn pull(&self, object: ObjectId, size: u64) -> io::Result<OwnedFd> {
        self.over(|link| {
            let mut into = Into(Filling::new(size)?);
            let total = link.get(Space::Objects, name_of(object), 0, size, &mut into)?;
            if total != size {
                return Err(Error::Link(io::Error::new(
                    io::ErrorKind::InvalidData,
                    "it has another size there",
                )));
            }
            Ok(into.0.seal()?)
        })
    }

    fn over<T>(&self, work: impl Fn(&mut Client) -> Result<T, Error>) -> io::Result<T> {
        let idle = self.idle.lock().pop();
        if let Some(mut link) = idle
            && link.is_open()
        {
            match work(&mut link) {
                // BK-2
                Err(Error::Link(error)) => tracing::debug!(%error, "a link to a store broke"),
                done => return self.done(link, done),
            }
        }
        let deadline = Instant::now() + PATIENCE;
        let opened = secure::dial_store(&self.addresses, self.relayed, self.lease, self.secret, deadline)?;
        let mut link = Client::new(opened);
        let done = work(&mut link);
        self.done(link, done)
    }

    fn done<T>(&self, link: Client, done: Result<T, Error>) -> io::Result<T> {
        match done {
            Err(Error::Link(error)) => Err(error),
            done => {
                let mut idle = self.idle.lock();
                if idle.len() < MOST_IDLE {
                    idle.push(link);
                }
                done.map_err(io::Error::other)
            }
        }
    }
}

fn name_of(object: ObjectId) -> Name {
    let mut name = [0; 32];
    name[..16].copy_from_slice(&object.0.to_le_bytes());
    Name(name)
}

fn object_of(name: Name) -> ObjectId {
    let (object, _) = name.0.split_first_chunk::<16>().expect("a name is longer");
    ObjectId(u128::from_le_bytes(*object))
}

/// Reads a file from its beginning, whoever else reads it.
struct Reading {
    file: OwnedFd,
    at: u64,
}

impl Read for Reading {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let count = pread(&self.file, into, self.at)?;
        self.at += count as u64;
        Ok(count)
    }
}

struct Into(Filling);

impl Write for Into {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes).map(|()| bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The objects of a node, for those who bring or fetch bytes over links of their own.
#[derive(Clone)]
pub(crate) struct Shelf {
    pub(super) news: mpsc::WeakUnboundedSender<News>,
}

impl Shelf {
    fn ask<T>(&self, question: impl FnOnce(sync::Sender<T>) -> News) -> Option<T> {
        let (answer, answers) = sync::channel();
        self.news.upgrade()?.send(question(answer)).ok()?;
        answers.recv().ok()
    }

    /// Take so many bytes, if there is room for them (BK-3).
    pub(crate) fn take(&self, name: Name, length: u64) -> Result<Box<dyn Incoming>, Failure> {
        let object = object_of(name);
        if self.ask(|answer| News::Expected(object, length, answer)) != Some(true) {
            return Err(Failure::Other { text: "nobody asked for this object".into() });
        }
        let filling = Filling::new(length).map_err(|error| failed(&error))?;
        Ok(Box::new(Coming { object, filling, news: self.news.clone() }))
    }

    pub(crate) fn open(&self, name: Name) -> Result<Box<dyn Outgoing>, Failure> {
        let object = object_of(name);
        match self.ask(|answer| News::Open(object, answer)) {
            Some(Some(found)) => Ok(Box::new(found)),
            _ => Err(Failure::Missing),
        }
    }
}

fn failed(error: &io::Error) -> Failure {
    Failure::System { text: format!("an object cannot be taken: {error}") }
}

struct Coming {
    object: ObjectId,
    filling: Filling,
    news: mpsc::WeakUnboundedSender<News>,
}

impl Incoming for Coming {
    fn write(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.filling.write(bytes).map_err(|error| failed(&error))
    }

    fn finish(self: Box<Self>) -> Result<(), Failure> {
        let memory = self.filling.seal().map_err(|error| failed(&error))?;
        if let Some(news) = self.news.upgrade() {
            let _ = news.send(News::Fetched(self.object, Ok(memory)));
        }
        Ok(())
    }
}

/// The bytes of an object on their way to somebody.
pub(crate) enum Going {
    Small(Vec<u8>),
    File(OwnedFd, u64),
}

impl Outgoing for Going {
    fn total(&self) -> u64 {
        match self {
            Going::Small(bytes) => bytes.len() as u64,
            Going::File(_, size) => *size,
        }
    }

    fn read_at(&mut self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        match self {
            Going::Small(bytes) => {
                let start = usize::try_from(offset).unwrap_or(usize::MAX);
                let part = bytes.get(start..).and_then(|rest| rest.get(..into.len()));
                into.copy_from_slice(part.ok_or(io::ErrorKind::UnexpectedEof)?);
                Ok(())
            }
            Going::File(file, _) => read_exact_at(file, offset, into),
        }
    }
}

fn read_exact_at(file: &OwnedFd, mut offset: u64, mut into: &mut [u8]) -> io::Result<()> {
    while !into.is_empty() {
        match pread(file, &mut *into, offset) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => {
                offset += count as u64;
                into = &mut into[count..];
            }
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}
