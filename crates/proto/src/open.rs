//! The clear header that opens a connection, and the clear answer to one that is refused.
//!
//! The header is all that anybody reads of a stranger, and both have a fixed size, so a stranger cannot make a head or a
//! node allocate anything. Their layout, unlike anything else, is the same in every version: so peers of different
//! versions can name each other.
//!
//! ```text
//! | magic "PO" | version u8 | kind u8 | id 16 bytes |           opens
//! | magic "PO" | version u8 | reason u8 | 0 u32 |               answers
//! ```

use crate::error::Error;
use crate::ids::LeaseId;
use crate::version::PROTOCOL;

const MAGIC: [u8; 2] = *b"PO";

/// Bytes of the header.
pub const LENGTH: usize = 20;
/// Bytes of the answer.
pub const ANSWER: usize = 8;

/// What a connection is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Calls under a lease, to a slot of the node that is asked.
    Data = 0,
    /// A client's link to the head.
    Client = 1,
    /// A node's link to the head.
    Node = 2,
    /// Calls under a lease, by way of another node.
    Relayed = 3,
    /// Bytes by name, to and from the store of the node that has this lease.
    Store = 4,
    /// Between the store of the node that has this lease and that of the client whose lease it is.
    Objects = 5,
}

/// What opens a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    pub kind: Kind,
    /// The lease of a data or store connection.
    pub id: u128,
}

impl Header {
    pub fn encode(&self) -> [u8; LENGTH] {
        let mut bytes = [0; LENGTH];
        bytes[..2].copy_from_slice(&MAGIC);
        bytes[2] = PROTOCOL;
        bytes[3] = self.kind as u8;
        bytes[4..].copy_from_slice(&self.id.to_le_bytes());
        bytes
    }

    pub fn decode(bytes: &[u8; LENGTH]) -> Result<Header, Error> {
        check([bytes[0], bytes[1]], bytes[2])?;
        let kind = match bytes[3] {
            0 => Kind::Data,
            1 => Kind::Client,
            2 => Kind::Node,
            3 => Kind::Relayed,
            4 => Kind::Store,
            5 => Kind::Objects,
            found => return Err(Error::Kind { found }),
        };
        let (_, id) = bytes.split_last_chunk::<16>().expect("the header is longer than an id");
        Ok(Header { kind, id: u128::from_le_bytes(*id) })
    }

    /// The lease that a data connection is for.
    pub fn lease(&self) -> Option<LeaseId> {
        match self.kind {
            Kind::Data | Kind::Relayed => Some(LeaseId(self.id)),
            Kind::Client | Kind::Node | Kind::Store | Kind::Objects => None,
        }
    }
}

/// The header that opens a data connection for `lease`.
pub fn encode(lease: LeaseId) -> [u8; LENGTH] {
    Header { kind: Kind::Data, id: lease.0 }.encode()
}

/// What a head or a node says of a header before anything else is said.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answer {
    /// Go on.
    Good = 0,
    /// Our version is not yours.
    Version = 1,
    /// There is no such lease here, or no longer.
    Lease = 2,
    /// This port is not for that: a head's was asked what is a node's, or the other way round.
    Kind = 3,
    /// Too many strangers are at the door.
    Busy = 4,
}

impl Answer {
    pub fn encode(self) -> [u8; ANSWER] {
        [MAGIC[0], MAGIC[1], PROTOCOL, self as u8, 0, 0, 0, 0]
    }

    /// What a received answer says. One of another version is that version's error, whatever its reason.
    pub fn decode(bytes: &[u8; ANSWER]) -> Result<Answer, Error> {
        check([bytes[0], bytes[1]], bytes[2])?;
        match bytes[3] {
            0 => Ok(Answer::Good),
            1 => Ok(Answer::Version),
            2 => Ok(Answer::Lease),
            3 => Ok(Answer::Kind),
            4 => Ok(Answer::Busy),
            _ => Err(Error::Malformed { what: "answer" }),
        }
    }

    /// Whether these bytes begin an answer, and not a TLS record.
    pub fn begins(byte: u8) -> bool {
        byte == MAGIC[0]
    }
}

fn check(magic: [u8; 2], version: u8) -> Result<(), Error> {
    if magic != MAGIC {
        return Err(Error::Magic { found: u16::from_le_bytes(magic) });
    }
    if version != PROTOCOL { Err(Error::Version { found: version }) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_bytes() {
        let bytes = encode(LeaseId(0x0102));
        assert_eq!(bytes, [b'P', b'O', 1, 0, 2, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(Header::decode(&bytes).unwrap().lease(), Some(LeaseId(0x0102)));
        assert_eq!(Answer::Lease.encode(), [b'P', b'O', 1, 2, 0, 0, 0, 0]);
    }

    #[test]
    fn what_is_written_is_read() {
        for kind in [Kind::Data, Kind::Client, Kind::Node, Kind::Relayed, Kind::Store, Kind::Objects] {
            let header = Header { kind, id: u128::MAX - 7 };
            assert_eq!(Header::decode(&header.encode()), Ok(header));
        }
        for answer in [Answer::Good, Answer::Version, Answer::Lease, Answer::Kind, Answer::Busy] {
            assert_eq!(Answer::decode(&answer.encode()), Ok(answer));
        }
    }

    #[test]
    fn strangers_are_refused() {
        assert!(matches!(Header::decode(b"GET / HTTP/1.1\r\nHost"), Err(Error::Magic { .. })));
        let mut newer = encode(LeaseId(1));
        newer[2] = PROTOCOL + 1;
        assert_eq!(Header::decode(&newer), Err(Error::Version { found: PROTOCOL + 1 }));
        let mut other = encode(LeaseId(1));
        other[3] = 99;
        assert_eq!(Header::decode(&other), Err(Error::Kind { found: 99 }));
        assert!(Answer::decode(b"HTTP/1.1").is_err());
    }
}
