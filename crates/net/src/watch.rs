//! Descriptors watched by tokio.

use crate::kept::Kept;
use rustix::fd::OwnedFd;
use std::io;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// A watched descriptor. It is closed in forked children.
pub type Watched = AsyncFd<Kept>;

/// A descriptor one waits on in both directions. Call it inside a tokio runtime.
pub fn both_ways(descriptor: OwnedFd) -> io::Result<Watched> {
    register(descriptor, Interest::READABLE | Interest::WRITABLE)
}

/// A descriptor one only reads from, or waits on: a pipe's end, a process. Call it inside a tokio runtime.
pub fn to_read(descriptor: OwnedFd) -> io::Result<Watched> {
    register(descriptor, Interest::READABLE)
}

fn register(descriptor: OwnedFd, interest: Interest) -> io::Result<Watched> {
    // SAFETY: a `Kept` names the same open descriptor for all of its life, and nothing replaces it in there.
    Ok(unsafe { AsyncFd::register_with_interest(Kept::new(descriptor), interest) }?)
}
