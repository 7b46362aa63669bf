//! Descriptors watched by tokio.

use rustix::fd::OwnedFd;
use std::io;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// A descriptor one waits on in both directions. Call it inside a tokio runtime.
pub fn both_ways(descriptor: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    register(descriptor, Interest::READABLE | Interest::WRITABLE)
}

/// A descriptor one only reads from, or waits on: a pipe's end, a process. Call it inside a tokio runtime.
pub fn to_read(descriptor: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    register(descriptor, Interest::READABLE)
}

fn register(descriptor: OwnedFd, interest: Interest) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an `OwnedFd` names the same open descriptor for all of its life, and nothing replaces it in there.
    Ok(unsafe { AsyncFd::register_with_interest(descriptor, interest) }?)
}
