//! The protocol version: one number, raised whenever bytes change meaning.

/// Peers with different numbers refuse each other with both numbers in the message.
pub const PROTOCOL: u8 = 1;
