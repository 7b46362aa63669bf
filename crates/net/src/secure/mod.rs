//! Connections to peers that must prove who they are: headers, TLS, proofs, introductions.
//!
//! Owns: everything between an address and a connection that can be trusted. Does not own: what is said then
//! ([`crate::control`] and [`crate::link`] do, and speak through TLS where there is any).
//!
//! On one machine the kernel names the user at the other end of a unix socket; that is all it takes. Between machines a
//! connection is sealed by TLS 1.3 with throw-away certificates, and then both sides prove that they know the same
//! secret by a code over keying material of this very TLS session, so that whoever sits in between and has a session with
//! each of them can pass nothing on.
//!
//! * SE-1: nothing whose length a stranger chooses is decoded, nor room made for it, before the stranger has proved who it
//!   is.
//! * SE-2: nothing of TLS is initialised before the first connection that needs it.

mod admission;
mod dial;
mod error;
mod greet;
mod introduction;
pub(crate) mod keys;
mod listen;
mod password;
mod proof;
mod session;
mod talk;
pub(crate) mod tls;
mod unproved;

pub use dial::{Dialed, answer_data, dial, dial_async, dial_data, dial_objects, dial_relayed, dial_store};
pub use error::Error;
pub use introduction::{Introduction, Role};
pub use keys::{Credential, Key, Keys, NoKey, TOKEN_LIVES, Token, read_private};
pub use listen::{Accepted, Door, Listener, Serves, unix_name};
pub use password::{MIN_PASSWORD_CHARS, Password, Record as PasswordRecord};
pub use tls::Tls;
pub use unproved::{UnprovedLink, UnprovedLinks};

use rustix::fd::OwnedFd;
use std::net::SocketAddr;

/// A connection that has been through whatever it takes to trust its peer.
#[derive(Debug)]
pub struct Secured {
    /// It does not block.
    pub socket: OwnedFd,
    /// What seals it, if its way is not safe by itself.
    pub tls: Option<Box<Tls>>,
    pub peer: PeerInfo,
}

/// How we know who is at the other end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PeerInfo {
    /// We made both ends.
    Own,
    /// The kernel says so.
    Unix { uid: u32, pid: u32 },
    /// It has proved that it knows a secret.
    Tls { address: SocketAddr },
}

/// Socket pairs of our own: trusted as they are.
impl From<OwnedFd> for Secured {
    fn from(socket: OwnedFd) -> Secured {
        Secured { socket, tls: None, peer: PeerInfo::Own }
    }
}
