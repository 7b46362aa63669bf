//! What can be wrong with bytes from a peer.

use crate::version::PROTOCOL;

/// A refusal of received bytes. The connection they came from must be closed: its framing can no longer be trusted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("not a paceline frame: magic {found:#06x}")]
    Magic { found: u16 },
    #[error("protocol version {found}, ours is {PROTOCOL}: install the same paceline version on both sides")]
    Version { found: u8 },
    #[error("unknown message kind: {found}")]
    Kind { found: u8 },
    #[error("frame too large: {length} bytes, the limit is {limit}")]
    TooLarge { length: u64, limit: u64 },
    #[error("{field} too long: {length}, the limit is {limit}")]
    TooLong { field: &'static str, length: u64, limit: u64 },
    #[error("malformed {what}")]
    Malformed { what: &'static str },
}

impl Error {
    /// A stable name for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Error::Magic { .. } => "frame-magic",
            Error::Version { .. } => "protocol-version",
            Error::Kind { .. } => "frame-kind",
            Error::TooLarge { .. } => "frame-too-large",
            Error::TooLong { .. } => "field-too-long",
            Error::Malformed { .. } => "frame-malformed",
        }
    }
}
