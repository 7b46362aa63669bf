//! The store link: bytes by name, to a node and from it.
//!
//! Whoever holds a lease on a node opens one, to bring what its code needs and to fetch what others left. Requests are
//! numbered by the side that asks. The bytes of one thing come in chunks, and chunks of several may come in turn.
//!
//! * ST-1: a chunk has [`CHUNK`] bytes at most, so nothing waits long for anything else.

use crate::data::{from_postcard, postcard_frame, take};
use crate::error::Error;
use crate::frame::{self, Frame};
use crate::ids::ClientId;
use crate::limits::check_store;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use std::fmt;
use zerocopy::little_endian::U64;

/// The most bytes of a chunk.
pub const CHUNK: usize = 256 << 10;
/// The longest body a frame of this link has: a question that names many things.
pub const LONGEST: usize = 4 << 20;
/// As many names as one question has at most.
pub const MOST_NAMES: usize = 64 << 10;

const TO_STORE: u8 = 80;
const FROM_STORE: u8 = 81;
const CHUNK_KIND: u8 = 82;

/// What bytes are known by: of files, their blake3 hash.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Name(pub [u8; 32]);

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// Which of a node's shelves.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub enum Space {
    /// Files, by the hash of what is in them.
    Files,
    /// Objects, by the names that their owners gave them.
    Objects,
}

/// To a node's store.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum ToStore {
    /// Which of these are not there?
    Lacks { number: u64, space: Space, names: Vec<Name> },
    /// So many bytes of this name follow, in chunks of this number.
    Put { number: u64, space: Space, name: Name, length: u64 },
    /// Send these bytes of what has this name; all from the offset on if it has no more.
    Get { number: u64, space: Space, name: Name, offset: u64, length: u64 },
    /// Lay the files of this [`Manifest`], all of which are there, out in the directory of the client.
    Unpack { number: u64, manifest: Name },
    /// The client is going: its directory may go, too.
    Bye,
}

/// From a node's store.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum FromStore {
    /// The places of those names that are not there.
    Lacking { number: u64, places: Vec<u32> },
    /// All its bytes are there.
    Stored { number: u64 },
    /// So many bytes follow, in chunks of this number, of so many in all.
    Sending { number: u64, length: u64, total: u64 },
    /// The files are in this directory.
    Unpacked { number: u64, directory: String },
    /// It could not be done.
    Failed { number: u64, why: Failure },
}

/// Why a store did not do what it was asked.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Failure {
    /// There is no such thing.
    Missing,
    /// What came under a name is not what the name says.
    Other { text: String },
    /// The disk, or what may be used of it, is full.
    Full { text: String },
    /// The system would not.
    System { text: String },
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Missing => f.write_str("it is not there"),
            Failure::Other { text } | Failure::Full { text } | Failure::System { text } => f.write_str(text),
        }
    }
}

/// What a client's directory is to hold. Sent under the hash of its bytes.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Manifest {
    /// Relative, with `/` between names, in order.
    pub files: Vec<File>,
    /// Folders that would not be there otherwise.
    pub folders: Vec<String>,
    /// What slots should know, as lines under a word each.
    pub notes: Vec<(String, Vec<String>)>,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct File {
    pub path: String,
    pub name: Name,
    pub length: u64,
    pub executable: bool,
}

impl Manifest {
    pub fn to_bytes(&self) -> Vec<u8> {
        postcard::to_stdvec(self).expect("a manifest has nothing that cannot be written")
    }

    pub fn from_bytes(bytes: &[u8]) -> Result<Manifest, Error> {
        from_postcard(bytes, "manifest")
    }
}

/// Whether this stays below the directory it is joined to, whatever it is.
pub fn is_inside(path: &str) -> bool {
    !path.is_empty() && path.split('/').all(|name| !matches!(name, "" | "." | "..") && !name.contains('\0'))
}

/// Where a node has the directory of a client, below its own.
pub fn directory_of(base: &str, client: ClientId) -> String {
    format!("{base}/clients/{:016x}", client.0)
}

/// A message of one direction of the link.
pub trait Message: Serialize + for<'a> Deserialize<'a> {
    const KIND: u8;

    /// Returns the first part that is too long.
    fn check(&self) -> Result<(), Error> {
        Ok(())
    }
}

impl Message for ToStore {
    const KIND: u8 = TO_STORE;

    fn check(&self) -> Result<(), Error> {
        check_store(self)
    }
}

impl Message for FromStore {
    const KIND: u8 = FROM_STORE;
}

/// Append a message as one frame.
pub fn encode<M: Message>(message: &M, out: &mut Vec<u8>) -> Result<(), Error> {
    postcard_frame(M::KIND, message, out)
}

/// What a frame of this link is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Said<M> {
    Message(M),
    /// The next bytes of what has this number.
    Chunk {
        number: u64,
        bytes: Bytes,
    },
}

impl<M: Message> Said<M> {
    pub fn decode(frame: Frame) -> Result<Said<M>, Error> {
        let mut body = frame.body;
        match frame.kind {
            CHUNK_KIND => {
                let number = take::<U64>(&mut body, "chunk")?.get();
                if body.len() > CHUNK {
                    return Err(Error::TooLarge { length: body.len() as u64, limit: CHUNK as u64 });
                }
                Ok(Said::Chunk { number, bytes: body })
            }
            kind if kind == M::KIND => {
                let message: M = from_postcard(&body, "store message")?;
                message.check()?;
                Ok(Said::Message(message))
            }
            found => Err(Error::Kind { found }),
        }
    }
}

/// Append a chunk as one frame.
pub fn encode_chunk(number: u64, bytes: &[u8], out: &mut Vec<u8>) -> Result<(), Error> {
    frame::encode(CHUNK_KIND, &[], out, |out| {
        out.extend_from_slice(&number.to_le_bytes());
        out.extend_from_slice(bytes);
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::Decoder;

    fn read<M: Message>(bytes: &[u8]) -> Result<Said<M>, Error> {
        let mut decoder = Decoder::default();
        decoder.feed(bytes);
        Said::decode(decoder.next_frame().unwrap().unwrap())
    }

    #[test]
    fn what_is_written_is_read() {
        let mut out = Vec::new();
        let put = ToStore::Put { number: 7, space: Space::Files, name: Name([3; 32]), length: 9 };
        encode(&put, &mut out).unwrap();
        assert_eq!(read(&out), Ok(Said::Message(put)));
        out.clear();
        encode_chunk(7, b"nine byte", &mut out).unwrap();
        assert_eq!(
            read::<FromStore>(&out),
            Ok(Said::Chunk { number: 7, bytes: Bytes::from_static(b"nine byte") })
        );
        assert!(read::<ToStore>(&out).is_ok(), "chunks go both ways");
        out.clear();
        encode_chunk(7, &vec![0; CHUNK + 1], &mut out).unwrap();
        assert!(matches!(read::<ToStore>(&out), Err(Error::TooLarge { .. })), "ST-1");
    }

    #[test]
    fn a_question_names_so_many_things() {
        let lacks =
            |length| ToStore::Lacks { number: 1, space: Space::Files, names: vec![Name([0; 32]); length] };
        for (length, fits) in [(MOST_NAMES, true), (MOST_NAMES + 1, false)] {
            let mut out = Vec::new();
            encode(&lacks(length), &mut out).unwrap();
            let refused = matches!(read::<ToStore>(&out), Err(Error::TooLong { field: "names", .. }));
            assert_eq!(refused, !fits, "LM-1: {length}");
        }
    }

    #[test]
    fn nothing_climbs_out_of_its_directory() {
        for path in ["a", "a/b.py", "a b/.hidden", "home/you/x"] {
            assert!(is_inside(path), "{path}");
        }
        for path in ["", "/a", "a//b", "../a", "a/../../b", "a/.", "./a", "a/", "a\0b"] {
            assert!(!is_inside(path), "{path}");
        }
    }
}
