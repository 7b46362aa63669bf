//! Bytes and descriptors over a unix socket, into memory that need not be initialised.

use rustix::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use rustix::io::Errno;
use std::mem::MaybeUninit;

/// What came at once.
pub(crate) struct Came {
    pub count: usize,
    /// A descriptor was among it.
    pub descriptor: Option<OwnedFd>,
    /// One was, and there is no room for it in this process.
    pub lost: bool,
    /// More than one was, and no peer of ours sends more. They are closed.
    pub excess: bool,
}

/// Room for the message about one descriptor, aligned as the kernel wants it; that is room for two.
#[repr(C, align(8))]
struct Control([u8; 24]);

const ONE: usize = size_of::<libc::c_int>();

/// Receive without waiting.
pub(crate) fn receive(socket: impl AsFd, into: &mut [MaybeUninit<u8>]) -> Result<Came, Errno> {
    let mut control = Control([0; 24]);
    let mut piece = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: into.len() };
    // SAFETY: plain memory, for which zeros are fine.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut piece;
    message.msg_iovlen = 1;
    message.msg_control = (&raw mut control).cast();
    message.msg_controllen = size_of::<Control>();
    let flags = libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC;
    // SAFETY: the kernel writes into what the message names, and that is ours for as long.
    let count = unsafe { libc::recvmsg(socket.as_fd().as_raw_fd(), &raw mut message, flags) };
    if count < 0 {
        return Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO));
    }
    let mut came = Came { count: count as usize, descriptor: None, lost: false, excess: false };
    if message.msg_controllen > 0 || message.msg_flags & libc::MSG_CTRUNC != 0 {
        came.lost = message.msg_flags & libc::MSG_CTRUNC != 0;
        // SAFETY: the kernel has filled the message; the header is read within what it says is there, and the descriptors
        // in it are new ones of this process that nobody else knows of.
        unsafe {
            let header = libc::CMSG_FIRSTHDR(&raw const message);
            if !header.is_null()
                && (*header).cmsg_level == libc::SOL_SOCKET
                && (*header).cmsg_type == libc::SCM_RIGHTS
            {
                let length = ((*header).cmsg_len).min(size_of::<Control>());
                let count = length.saturating_sub(libc::CMSG_LEN(0) as usize) / ONE;
                let numbers = libc::CMSG_DATA(header).cast::<libc::c_int>();
                for place in 0..count {
                    let descriptor = OwnedFd::from_raw_fd(numbers.add(place).read_unaligned());
                    came.excess |= place > 0;
                    came.descriptor.get_or_insert(descriptor);
                }
            }
        }
    }
    Ok(came)
}

/// Send without waiting, with a descriptor at the first byte.
pub(crate) fn send(socket: impl AsFd, bytes: &[u8], descriptor: BorrowedFd<'_>) -> Result<usize, Errno> {
    let sent = crate::fds::send_with_fds(socket, bytes, &[descriptor]);
    sent.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_and_descriptors_come_together() {
        let (left, right) = crate::fds::pair().unwrap();
        rustix::net::send(&left, b"before", rustix::net::SendFlags::empty()).unwrap();
        assert_eq!(send(&left, b"with", left.as_fd()).unwrap(), 4);
        rustix::net::send(&left, b"after", rustix::net::SendFlags::empty()).unwrap();
        let mut room = [MaybeUninit::uninit(); 64];
        let (mut counts, mut descriptors) = (Vec::new(), 0);
        while let Ok(came) = receive(&right, &mut room) {
            counts.push(came.count);
            descriptors += usize::from(came.descriptor.is_some());
            assert!(!came.lost && !came.excess);
        }
        assert_eq!((counts.iter().sum::<usize>(), descriptors), (15, 1));
    }

    #[test]
    fn descriptors_beyond_the_first_are_closed_and_told() {
        for count in 2..12 {
            let (left, right) = crate::fds::pair().unwrap();
            let (read, write) = rustix::pipe::pipe().unwrap();
            crate::fds::send_many(&left, b"x", &vec![write.as_fd(); count]);
            drop(write);
            let mut room = [MaybeUninit::uninit(); 64];
            let came = receive(&right, &mut room).unwrap();
            assert!(came.excess && came.descriptor.is_some(), "{count}");
            assert_eq!(came.lost, count > 2, "{count}");
            drop(came);
            let mut sources = [rustix::event::PollFd::new(&read, rustix::event::PollFlags::empty())];
            crate::poll::wait(&mut sources, Some(std::time::Duration::ZERO)).unwrap();
            assert!(sources[0].revents().contains(rustix::event::PollFlags::HUP), "{count}: none stays open");
        }
    }
}
