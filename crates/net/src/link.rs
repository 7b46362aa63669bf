//! One end of a data link: a non-blocking socket, what has been read of it and what is still to be written.
//!
//! * LK-1: no call blocks. Whoever must wait polls both directions, so two large messages that cross never stall.
//! * LK-2: a half-read frame belongs to the link, so an interrupted reader loses nothing.
//! * LK-3: bytes go out in the order they were queued.
//! * LK-4: a link without TLS pays nothing for those that have it.

use crate::kept::Kept;
use crate::secure::tls::Got;
use crate::secure::{Secured, Tls};
use crate::spin;
use bytes::BufMut;
use paceline_proto::frame::{self, Decoder, Frame};
use rustix::fd::{AsFd, BorrowedFd};
use rustix::io::Errno;
use rustix::mm::{Advice, madvise};
use rustix::net::{RecvFlags, SendFlags, recv, send};
use std::ffi::c_void;
use std::io;
use std::mem::MaybeUninit;
use std::sync::Arc;

/// A buffer that has grown beyond this is given back once it is empty.
const KEEP_BUFFER: usize = 1 << 20;

/// Room for a frame of so many bytes is made of large pages.
const LONG: usize = 4 << 20;

/// Have the kernel make this memory of large pages, where it can: one at a time takes longer than to fill them.
fn large_pages(room: &mut [MaybeUninit<u8>]) {
    let page = rustix::param::page_size();
    let begin = (room.as_ptr() as usize).next_multiple_of(page);
    let end = (room.as_ptr() as usize + room.len()) / page * page;
    if begin < end {
        // SAFETY: whole pages of a buffer that is ours; the advice changes nothing of what is in them.
        let _ = unsafe { madvise(begin as *mut c_void, end - begin, Advice::LinuxHugepage) };
    }
}

/// What one look at the socket gave.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Received {
    /// Some bytes, and for now that was all.
    All,
    /// Some bytes; there may be more.
    More,
    /// Nothing for now.
    Nothing,
    /// The peer closed its end.
    Closed,
}

pub struct Link {
    socket: Arc<Kept>,
    tls: Option<Box<Tls>>,
    decoder: Decoder,
    out: Vec<u8>,
    sent: usize,
    peer_cpu: u16,
    /// How large the room for received bytes was when the kernel was last told what to make it of.
    told: usize,
}

impl Link {
    pub fn new(connection: impl Into<Secured>) -> Link {
        let Secured { socket, tls, .. } = connection.into();
        Link {
            socket: Arc::new(Kept::new(socket)),
            tls,
            decoder: Decoder::default(),
            out: Vec::new(),
            sent: 0,
            peer_cpu: u16::MAX,
            told: 0,
        }
    }

    /// The socket, for a thread that waits on it while others use the link.
    pub fn socket(&self) -> Arc<Kept> {
        self.socket.clone()
    }

    /// The CPU the peer last sent from.
    pub fn peer_cpu(&self) -> u16 {
        self.peer_cpu
    }

    /// Read once what is there.
    pub fn receive(&mut self) -> io::Result<Received> {
        let room = self.decoder.room();
        if room.capacity() >= LONG && room.capacity() != self.told {
            self.told = room.capacity();
            large_pages(room.spare_capacity_mut());
        }
        if let Some(tls) = &mut self.tls {
            return Ok(match tls.receive(&self.socket, room)? {
                Got::Bytes { more: true } => Received::More,
                Got::Bytes { more: false } => Received::All,
                Got::Nothing => Received::Nothing,
                Got::Closed | Got::Reset => Received::Closed,
            });
        }
        let spare = room.spare_capacity_mut();
        let wanted = spare.len();
        match recv(&self.socket, spare, RecvFlags::DONTWAIT) {
            Ok((_, 0)) if wanted > 0 => Ok(Received::Closed),
            Ok((_, count)) => {
                // SAFETY: the kernel has just filled `count` bytes of the spare capacity.
                unsafe { room.advance_mut(count) };
                Ok(if count < wanted { Received::All } else { Received::More })
            }
            Err(Errno::AGAIN | Errno::INTR) => Ok(Received::Nothing),
            Err(Errno::CONNRESET | Errno::PIPE) => Ok(Received::Closed),
            Err(error) => Err(error.into()),
        }
    }

    /// The next whole frame among what was read.
    pub fn next_frame(&mut self) -> Result<Option<Frame>, paceline_proto::Error> {
        let frame = self.decoder.next_frame()?;
        if let Some(frame) = &frame {
            self.peer_cpu = frame.cpu;
        }
        Ok(frame)
    }

    /// Where to append frames to be sent.
    pub fn out(&mut self) -> &mut Vec<u8> {
        &mut self.out
    }

    /// A frame of about this length is next: if it is a long one, its room is made of large pages, too.
    pub fn make_room(&mut self, length: usize) {
        if length >= LONG {
            self.out.reserve(length + frame::HEADER);
            large_pages(self.out.spare_capacity_mut());
        }
    }

    /// How many bytes wait to be sent.
    pub fn pending(&self) -> usize {
        let sealed = self.tls.as_ref().is_some_and(|tls| tls.wants_write());
        self.out.len() - self.sent + usize::from(sealed)
    }

    /// Send what the socket takes. Says whether everything went. A closed peer takes everything: its end is told by
    /// reading, after what it still had to say.
    pub fn flush(&mut self) -> io::Result<bool> {
        if self.sent == 0 {
            frame::stamp_cpu(&mut self.out, spin::current_cpu());
        }
        if self.tls.is_some() {
            return self.flush_sealed();
        }
        while self.sent < self.out.len() {
            match send(&self.socket, &self.out[self.sent..], SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
                Ok(count) => self.sent += count,
                Err(Errno::AGAIN) => return Ok(false),
                Err(Errno::INTR) => {}
                Err(Errno::PIPE | Errno::CONNRESET) => break,
                Err(error) => return Err(error.into()),
            }
        }
        self.all_sent();
        Ok(true)
    }

    /// Seal and send what the socket takes, ahead of which only so much is sealed.
    #[inline(never)]
    fn flush_sealed(&mut self) -> io::Result<bool> {
        let Some(tls) = &mut self.tls else { return Ok(true) };
        loop {
            self.sent += tls.seal(&self.out[self.sent..])?;
            if !tls.flush(&self.socket)? {
                return Ok(false);
            }
            if self.sent == self.out.len() {
                self.all_sent();
                return Ok(true);
            }
        }
    }

    fn all_sent(&mut self) {
        self.sent = 0;
        self.out.clear();
        if self.out.capacity() > KEEP_BUFFER {
            self.out = Vec::new();
        }
    }
}

impl AsFd for Link {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fds::pair;
    use crate::poll::wait;
    use rustix::event::{PollFd, PollFlags};
    use rustix::net::sockopt::{set_socket_recv_buffer_size, set_socket_send_buffer_size};
    use std::time::Duration;

    const LARGE: usize = 32 << 20;

    fn send_and_receive_large(mut link: Link) -> usize {
        frame::encode(1, &[], link.out(), |out| out.resize(out.len() + LARGE, 7)).unwrap();
        loop {
            let done = link.flush().unwrap();
            while link.receive().unwrap() == Received::More {}
            if let Some(frame) = link.next_frame().unwrap() {
                while !link.flush().unwrap() {
                    let mut one = [PollFd::new(&link.socket, PollFlags::OUT)];
                    wait(&mut one, None).unwrap();
                }
                return frame.body.len();
            }
            let interest = if done { PollFlags::IN } else { PollFlags::IN | PollFlags::OUT };
            let mut one = [PollFd::new(&link.socket, interest)];
            assert!(wait(&mut one, Some(Duration::from_secs(10))).unwrap(), "the link stalled");
        }
    }

    #[test]
    fn two_large_messages_that_cross_never_stall() {
        let (left, right) = pair().unwrap();
        for socket in [&left, &right] {
            set_socket_send_buffer_size(socket, 64 << 10).unwrap();
            set_socket_recv_buffer_size(socket, 64 << 10).unwrap();
        }
        let other = std::thread::spawn(move || send_and_receive_large(Link::new(right)));
        assert_eq!(send_and_receive_large(Link::new(left)), LARGE, "LK-1");
        assert_eq!(other.join().unwrap(), LARGE);
    }

    #[test]
    fn a_frame_in_pieces_stays_with_the_link() {
        let (left, right) = pair().unwrap();
        let mut link = Link::new(right);
        let mut bytes = Vec::new();
        frame::encode(3, &[], &mut bytes, |out| out.extend_from_slice(b"body")).unwrap();
        for byte in &bytes {
            assert_eq!(link.next_frame().unwrap(), None);
            send(&left, &[*byte], SendFlags::empty()).unwrap();
            assert_eq!(link.receive().unwrap(), Received::All, "LK-2");
        }
        assert_eq!(link.next_frame().unwrap().unwrap().body, &b"body"[..]);
        drop(left);
        assert_eq!(link.receive().unwrap(), Received::Closed);
    }
}
