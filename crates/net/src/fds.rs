//! Pairs of sockets, and descriptors passed over them. Everything opened here closes on exec.

use bytes::{BufMut, BytesMut};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;

/// At most this many descriptors travel with one message.
pub const MAX_DESCRIPTORS: usize = 8;

/// Two connected, non-blocking stream sockets.
pub fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None)?)
}

/// Send bytes with descriptors attached to the first of them. Returns how many bytes went.
pub fn send_with_fds(socket: impl AsFd, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<usize> {
    assert!(descriptors.len() <= MAX_DESCRIPTORS, "too many descriptors for one message");
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() {
        ancillary.push(SendAncillaryMessage::ScmRights(descriptors));
    }
    // Whoever shares the socket may have made it a blocking one.
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    Ok(sendmsg(socket, &[IoSlice::new(bytes)], &mut ancillary, flags)?)
}

/// Receives bytes into the end of `buffer`, and whatever descriptors came with them. Zero bytes: the peer is gone.
///
/// Fails if some of the descriptors could not be taken: which messages the others belong to is not known then.
pub fn receive_with_fds(
    socket: impl AsFd,
    buffer: &mut BytesMut,
    descriptors: &mut Vec<OwnedFd>,
) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut chunk = [0; 4096];
    let message = recvmsg(
        socket,
        &mut [IoSliceMut::new(&mut chunk)],
        &mut ancillary,
        RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT,
    )?;
    if message.flags.contains(ReturnFlags::CTRUNC) {
        // Those that did arrive close with `ancillary`.
        let text = "descriptors were lost: too many came at once, or too many files are open";
        return Err(io::Error::new(io::ErrorKind::InvalidData, text));
    }
    for received in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(list) = received {
            descriptors.extend(list);
        }
    }
    buffer.put_slice(&chunk[..message.bytes]);
    Ok(message.bytes)
}

/// Sends bytes with more descriptors than any message of ours has.
#[cfg(test)]
pub(crate) fn send_many(socket: impl AsFd, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(128))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    assert!(ancillary.push(SendAncillaryMessage::ScmRights(descriptors)));
    sendmsg(socket, &[IoSlice::new(bytes)], &mut ancillary, SendFlags::NOSIGNAL).unwrap();
}
