//! The clear header that opens a data connection: which lease it is for.
//!
//! It is all a node reads before it hands the connection to a slot, and it has a fixed size, so a stranger cannot make
//! a node allocate anything.

use crate::error::Error;
use crate::ids::LeaseId;
use crate::version::PROTOCOL;

const MAGIC: [u8; 2] = *b"PO";

/// Bytes of the header.
pub const LENGTH: usize = 20;

/// The header that opens a data connection for `lease`.
pub fn encode(lease: LeaseId) -> [u8; LENGTH] {
    let mut bytes = [0; LENGTH];
    bytes[..2].copy_from_slice(&MAGIC);
    bytes[2] = PROTOCOL;
    bytes[4..].copy_from_slice(&lease.0.to_le_bytes());
    bytes
}

/// Which lease a received header names.
pub fn decode(bytes: &[u8; LENGTH]) -> Result<LeaseId, Error> {
    if bytes[..2] != MAGIC {
        return Err(Error::Magic { found: u16::from_le_bytes([bytes[0], bytes[1]]) });
    }
    if bytes[2] != PROTOCOL {
        return Err(Error::Version { found: bytes[2] });
    }
    let (_, lease) = bytes.split_last_chunk::<16>().expect("the header is longer than a lease id");
    Ok(LeaseId(u128::from_le_bytes(*lease)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_bytes() {
        let bytes = encode(LeaseId(0x0102));
        assert_eq!(bytes, [b'P', b'O', 1, 0, 2, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(decode(&bytes), Ok(LeaseId(0x0102)));
    }

    #[test]
    fn strangers_are_refused() {
        assert!(matches!(decode(b"GET / HTTP/1.1\r\nHost"), Err(Error::Magic { .. })));
        let mut newer = encode(LeaseId(1));
        newer[2] = PROTOCOL + 1;
        assert_eq!(decode(&newer), Err(Error::Version { found: PROTOCOL + 1 }));
    }
}
