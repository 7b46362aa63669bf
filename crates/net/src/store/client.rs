//! The side that asks.

use super::SILENCE;
use super::wire::Wire;
use crate::secure::Secured;
use paceline_proto::store::{CHUNK, Failure, FromStore, MOST_NAMES, Name, Said, Space, ToStore};
use std::io::{self, Read, Write};
use std::time::Duration;

/// How long a node may take to lay files out.
const UNPACKING: Duration = Duration::from_secs(600);

/// What came of a request.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The link is of no use any more.
    #[error("the link to the node's store broke: {0}")]
    Link(#[from] io::Error),
    /// The node would not, or could not.
    #[error("{0}")]
    Refused(Failure),
}

impl Error {
    fn unexpected() -> Error {
        Error::Link(io::Error::new(io::ErrorKind::InvalidData, "the store answered something else"))
    }
}

/// Something to be sent.
pub struct Thing {
    pub name: Name,
    pub length: u64,
    pub bytes: Box<dyn Read>,
}

/// An open link. After an [`Error::Link`] it is of no use any more.
pub struct Client {
    wire: Wire,
    number: u64,
}

impl Client {
    pub fn new(connection: Secured) -> Client {
        Client { wire: Wire::new(connection), number: 0 }
    }

    /// Which of these are not there: their places.
    pub fn lacks(&mut self, space: Space, names: &[Name]) -> Result<Vec<usize>, Error> {
        let mut lacking = Vec::new();
        for (part, names) in names.chunks(MOST_NAMES).enumerate() {
            let number = self.next_number();
            self.wire.say(&ToStore::Lacks { number, space, names: names.to_vec() })?;
            match self.answer(SILENCE)? {
                FromStore::Lacking { number: of, places } if of == number => {
                    lacking.extend(places.into_iter().map(|place| part * MOST_NAMES + place as usize));
                }
                other => return Err(refused(other)),
            }
        }
        Ok(lacking)
    }

    /// Send all of these. One that is shorter than it says is filled up, and so is refused for what it is.
    pub fn put(
        &mut self,
        space: Space,
        things: impl Iterator<Item = Result<Thing, Failure>>,
    ) -> Result<(), Error> {
        let mut buffer = vec![0; CHUNK];
        let mut open = 0u64;
        for thing in things {
            let Thing { name, length, mut bytes } = match thing {
                Ok(thing) => thing,
                Err(why) => {
                    self.settle(open)?;
                    return Err(Error::Refused(why));
                }
            };
            let number = self.next_number();
            self.wire.say(&ToStore::Put { number, space, name, length })?;
            open += 1;
            let mut left = length;
            while left > 0 {
                let part = &mut buffer[..left.min(CHUNK as u64) as usize];
                fill(&mut bytes, part);
                self.wire.say_chunk(number, part)?;
                left -= part.len() as u64;
            }
            // What went wrong with the first is heard before the last is read.
            while let Some(said) = self.wire.try_next()? {
                open -= 1;
                if let Err(error) = stored(said) {
                    self.settle(open)?;
                    return Err(error);
                }
            }
        }
        self.settle(open)
    }

    /// Hear what became of so many that were sent. The first that went wrong counts.
    fn settle(&mut self, open: u64) -> Result<(), Error> {
        self.wire.flush()?;
        let mut result = Ok(());
        for _ in 0..open {
            result = result.and(stored(self.wire.next(Some(SILENCE))?));
        }
        result
    }

    /// Fetch these bytes. Gives how many there are in all of it.
    pub fn get(
        &mut self,
        space: Space,
        name: Name,
        offset: u64,
        length: u64,
        into: &mut dyn Write,
    ) -> Result<u64, Error> {
        let number = self.next_number();
        self.wire.say(&ToStore::Get { number, space, name, offset, length })?;
        let (mut left, total) = match self.answer(SILENCE)? {
            FromStore::Sending { number: of, length, total } if of == number => (length, total),
            other => return Err(refused(other)),
        };
        while left > 0 {
            match self.wire.next::<FromStore>(Some(SILENCE))? {
                Said::Chunk { number: of, bytes } if of == number && bytes.len() as u64 <= left => {
                    into.write_all(&bytes)?;
                    left -= bytes.len() as u64;
                }
                Said::Message(other) => return Err(refused(other)),
                Said::Chunk { .. } => return Err(Error::unexpected()),
            }
        }
        Ok(total)
    }

    /// Have the files of a manifest laid out. Gives the directory.
    pub fn unpack(&mut self, manifest: Name) -> Result<String, Error> {
        let number = self.next_number();
        self.wire.say(&ToStore::Unpack { number, manifest })?;
        match self.answer(UNPACKING)? {
            FromStore::Unpacked { number: of, directory } if of == number => Ok(directory),
            other => Err(refused(other)),
        }
    }

    /// Whether the node has not ended the link.
    pub fn is_open(&mut self) -> bool {
        matches!(self.wire.try_next::<FromStore>(), Ok(None))
    }

    /// Nothing of this client is needed there any more.
    pub fn bye(mut self) {
        let _ = self.wire.say(&ToStore::Bye).and_then(|()| self.wire.flush());
    }

    fn next_number(&mut self) -> u64 {
        self.number += 1;
        self.number
    }

    fn answer(&mut self, limit: Duration) -> Result<FromStore, Error> {
        self.wire.flush()?;
        match self.wire.next(Some(limit))? {
            Said::Message(message) => Ok(message),
            Said::Chunk { .. } => Err(Error::unexpected()),
        }
    }
}

fn refused(answer: FromStore) -> Error {
    match answer {
        FromStore::Failed { why, .. } => Error::Refused(why),
        _ => Error::unexpected(),
    }
}

fn stored(said: Said<FromStore>) -> Result<(), Error> {
    match said {
        Said::Message(FromStore::Stored { .. }) => Ok(()),
        Said::Message(other) => Err(refused(other)),
        Said::Chunk { .. } => Err(Error::unexpected()),
    }
}

fn fill(bytes: &mut dyn Read, part: &mut [u8]) {
    let mut length = 0;
    while length < part.len() {
        match bytes.read(&mut part[length..]) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Ok(0) | Err(_) => return part[length..].fill(0),
            Ok(count) => length += count,
        }
    }
}
