//! The side that answers.

use super::wire::Wire;
use crate::secure::Secured;
use paceline_proto::store::{CHUNK, Failure, FromStore, Name, Said, Space, ToStore};
use std::collections::{HashMap, VecDeque};
use std::io;

/// Where things are kept, for one link.
pub trait Shelves {
    /// The places of those that are not here.
    fn lacks(&mut self, space: Space, names: &[Name]) -> Vec<u32>;
    /// So many bytes are to be kept under this name.
    fn take(&mut self, space: Space, name: Name, length: u64) -> Result<Box<dyn Incoming>, Failure>;
    fn open(&mut self, space: Space, name: Name) -> Result<Box<dyn Outgoing>, Failure>;
    /// Lay the files of a manifest out for whoever has opened the link. Gives the directory.
    fn unpack(&mut self, manifest: Name) -> Result<String, Failure>;
}

/// Something that comes in pieces.
pub trait Incoming {
    fn write(&mut self, bytes: &[u8]) -> Result<(), Failure>;
    /// All of it is here.
    fn finish(self: Box<Self>) -> Result<(), Failure>;
}

/// Something that goes in pieces.
pub trait Outgoing {
    fn total(&self) -> u64;
    /// Fill this with what there is at the offset.
    fn read_at(&mut self, offset: u64, into: &mut [u8]) -> io::Result<()>;
}

/// Answer until the other side has no more to ask. Says whether it is going for good.
pub fn serve(connection: Secured, shelves: &mut dyn Shelves) -> io::Result<bool> {
    Serving { wire: Wire::new(connection), shelves, coming: HashMap::new(), going: VecDeque::new() }.run()
}

struct Serving<'a> {
    wire: Wire,
    shelves: &'a mut dyn Shelves,
    /// What is on its way here, and how much of it is missing. None: it could not be taken (SL-1).
    coming: HashMap<u64, (u64, Option<Box<dyn Incoming>>)>,
    going: VecDeque<Going>,
}

struct Going {
    number: u64,
    what: Box<dyn Outgoing>,
    offset: u64,
    left: u64,
}

impl Serving<'_> {
    fn run(mut self) -> io::Result<bool> {
        loop {
            let said = match self.wire.try_next() {
                Ok(said) => said,
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(false),
                Err(error) => return Err(error),
            };
            let said = match said {
                Some(said) => said,
                None if self.going.is_empty() => {
                    self.wire.flush()?;
                    match self.wire.next(None) {
                        Ok(said) => said,
                        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(false),
                        Err(error) => return Err(error),
                    }
                }
                None => {
                    self.send_some()?;
                    continue;
                }
            };
            match said {
                Said::Message(ToStore::Bye) => return Ok(true),
                Said::Message(message) => self.on_message(message)?,
                Said::Chunk { number, bytes } => self.on_chunk(number, &bytes)?,
            }
        }
    }

    fn on_message(&mut self, message: ToStore) -> io::Result<()> {
        match message {
            ToStore::Lacks { number, space, names } => {
                let places = self.shelves.lacks(space, &names);
                self.wire.say(&FromStore::Lacking { number, places })
            }
            ToStore::Put { number, space, name, length } => {
                let taken = self.shelves.take(space, name, length);
                let taken = self.or_failed(number, taken)?;
                self.coming.insert(number, (length, taken));
                self.finish_if_whole(number)
            }
            ToStore::Get { number, space, name, offset, length } => {
                let opened = self.shelves.open(space, name);
                let Some(what) = self.or_failed(number, opened)? else { return Ok(()) };
                let total = what.total();
                let left = length.min(total.saturating_sub(offset));
                self.wire.say(&FromStore::Sending { number, length: left, total })?;
                if left > 0 {
                    self.going.push_back(Going { number, what, offset, left });
                }
                Ok(())
            }
            ToStore::Unpack { number, manifest } => {
                let unpacked = self.shelves.unpack(manifest);
                match self.or_failed(number, unpacked)? {
                    Some(directory) => self.wire.say(&FromStore::Unpacked { number, directory }),
                    None => Ok(()),
                }
            }
            ToStore::Bye => Ok(()),
        }
    }

    fn on_chunk(&mut self, number: u64, bytes: &[u8]) -> io::Result<()> {
        let Some((left, incoming)) = self.coming.get_mut(&number) else {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a chunk of nothing that was announced"));
        };
        let Some(rest) = left.checked_sub(bytes.len() as u64) else {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "more than was announced"));
        };
        *left = rest;
        if let Some(Err(why)) = incoming.as_mut().map(|incoming| incoming.write(bytes)) {
            *incoming = None;
            self.wire.say(&FromStore::Failed { number, why })?;
        }
        self.finish_if_whole(number)
    }

    fn finish_if_whole(&mut self, number: u64) -> io::Result<()> {
        if self.coming.get(&number).is_none_or(|(left, _)| *left > 0) {
            return Ok(());
        }
        let Some((_, Some(incoming))) = self.coming.remove(&number) else { return Ok(()) };
        let finished = incoming.finish();
        if self.or_failed(number, finished)?.is_some() {
            self.wire.say(&FromStore::Stored { number })?;
        }
        Ok(())
    }

    /// Send the next chunk of what is asked for, in turn.
    fn send_some(&mut self) -> io::Result<()> {
        let Some(mut going) = self.going.pop_front() else { return Ok(()) };
        let mut chunk = vec![0; going.left.min(CHUNK as u64) as usize];
        if let Err(error) = going.what.read_at(going.offset, &mut chunk) {
            let why = Failure::System { text: format!("it could not be read: {error}") };
            return self.wire.say(&FromStore::Failed { number: going.number, why });
        }
        self.wire.say_chunk(going.number, &chunk)?;
        going.offset += chunk.len() as u64;
        going.left -= chunk.len() as u64;
        if going.left > 0 {
            self.going.push_back(going);
        }
        Ok(())
    }

    fn or_failed<T>(&mut self, number: u64, result: Result<T, Failure>) -> io::Result<Option<T>> {
        match result {
            Ok(value) => Ok(Some(value)),
            Err(why) => self.wire.say(&FromStore::Failed { number, why }).map(|()| None),
        }
    }
}
