//! One end of a data link: a non-blocking socket, what has been read of it and what is still to be written.
//!
//! * LK-1: no call blocks. Whoever must wait polls both directions, so two large messages that cross never stall.
//! * LK-2: a half-read frame belongs to the link, so an interrupted reader loses nothing.
//! * LK-3: bytes go out in the order they were queued.
//! * LK-4: a link without TLS pays nothing for those that have it.
//! * LK-5: payloads with parts outside of them are translated here: what is named over the link are ranges of segments if
//!   the other end is on this machine, else the bytes follow the frame. Without such payloads this costs nothing.

use crate::kept::Kept;
use crate::secure::tls::Got;
use crate::secure::{Secured, Tls};
use crate::segments::{self, Exchange, Kick, Outgoing, Told};
use crate::spin;
use bytes::{BufMut, Bytes};
use paceline_proto::data::Parcel;
use paceline_proto::frame::{self, Decoder, Frame, INLINE, Segment};
use paceline_proto::lending::{self, Lending};
use paceline_proto::parts::is_parted;
use rustix::fd::{AsFd, BorrowedFd};
use rustix::io::Errno;
use rustix::mm::{Advice, madvise};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, Shutdown, recv, send, shutdown, sockopt};
use smallvec::SmallVec;
use std::collections::VecDeque;
use std::ffi::c_void;
use std::io;
use std::mem::MaybeUninit;
use std::sync::Arc;

/// A buffer that has grown beyond this is given back once it is empty.
const KEEP_BUFFER: usize = 1 << 20;

/// Room for a frame of so many bytes is made of large pages.
const LONG: usize = 4 << 20;

/// What a frame's body has beside a payload, at most.
const READ_ALONG: usize = 4096;

/// Have the kernel make this memory of large pages, where it can: one at a time takes longer than to fill them.
pub(crate) fn large_pages(room: &mut [MaybeUninit<u8>]) {
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
    /// The other end is on this machine.
    near: bool,
    /// What goes out between the bytes of `out`, and where: it is before the byte of that place.
    beside: VecDeque<(usize, Outgoing)>,
    /// Memory that the two ends lend each other, once they do.
    exchange: Option<Box<Exchange>>,
    kick: Option<Kick>,
    /// Nothing more is to be read: this end could not take what was sent.
    unusable: bool,
    /// The other end was told to name no memory.
    plain: bool,
    /// The other end is closed, and what is sent goes nowhere.
    refused: bool,
}

impl Link {
    pub fn new(connection: impl Into<Secured>) -> Link {
        let Secured { socket, tls, .. } = connection.into();
        let near = tls.is_none() && sockopt::socket_domain(&socket) == Ok(AddressFamily::UNIX);
        let mut link = Link {
            socket: Arc::new(Kept::new(socket)),
            tls,
            decoder: Decoder::default(),
            out: Vec::new(),
            sent: 0,
            peer_cpu: u16::MAX,
            told: 0,
            near,
            beside: VecDeque::new(),
            exchange: None,
            kick: None,
            unusable: false,
            plain: near && segments::given_up(),
            refused: false,
        };
        if link.plain {
            let _ = Lending::Plain.encode(&mut link.out);
        }
        link
    }

    /// Have this called when something is to be said over the link that nobody waits for.
    pub fn on_something_to_say(&mut self, kick: Kick) {
        if self.near {
            segments::prepare();
        }
        self.kick = Some(kick);
    }

    fn exchange(&mut self) -> &mut Exchange {
        let kick = &self.kick;
        self.exchange.get_or_insert_with(|| Box::new(Exchange::new(kick.clone())))
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
        if self.unusable {
            return Ok(Received::Closed);
        }
        if self.tls.is_none() && self.decoder.place().is_some() {
            return self.receive_in_place();
        }
        let room = self.decoder.room();
        if room.capacity() >= LONG && room.capacity() != self.told {
            self.told = room.capacity();
            large_pages(room.spare_capacity_mut());
        }
        if let Some(tls) = &mut self.tls {
            // Some of it has come with the frame already.
            if let Some((place, missing)) = self.decoder.place()
                && missing >= LONG
                && place.len() < LONG
            {
                large_pages(place.spare_capacity_mut());
            }
            return Ok(match tls.receive(&self.socket, |bytes| self.decoder.feed(bytes))? {
                Got::Bytes { more: true } => Received::More,
                Got::Bytes { more: false } => Received::All,
                Got::Nothing => Received::Nothing,
                Got::Closed | Got::Reset => Received::Closed,
            });
        }
        if self.near {
            return self.receive_near();
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

    /// Descriptors may come with the bytes.
    fn receive_near(&mut self) -> io::Result<Received> {
        let room = self.decoder.room();
        let spare = room.spare_capacity_mut();
        let wanted = spare.len();
        match segments::receive(&self.socket, spare) {
            Ok(came) if came.count == 0 && wanted > 0 => Ok(Received::Closed),
            Ok(came) => {
                // SAFETY: the kernel has just filled so many bytes of the spare capacity.
                unsafe { room.advance_mut(came.count) };
                // The kernel stops at a descriptor, whatever is behind it.
                let more = came.count == wanted || came.descriptor.is_some() || came.lost;
                if let Some(descriptor) = came.descriptor
                    && (came.excess || !self.exchange().on_descriptor(descriptor))
                {
                    let text = "descriptors came that no message needs";
                    return Err(io::Error::new(io::ErrorKind::InvalidData, text));
                }
                Ok(if more { Received::More } else { Received::All })
            }
            Err(error) => without_bytes(error),
        }
    }

    /// What comes next belongs to a part of a payload, and goes straight there.
    #[inline(never)]
    fn receive_in_place(&mut self) -> io::Result<Received> {
        let Some((place, missing)) = self.decoder.place() else { return Ok(Received::Nothing) };
        if place.is_empty() && missing >= LONG {
            large_pages(place.spare_capacity_mut());
        }
        let spare = &mut place.spare_capacity_mut()[..missing];
        match recv(&self.socket, spare, RecvFlags::DONTWAIT) {
            Ok((_, 0)) => Ok(Received::Closed),
            Ok((_, count)) => {
                // SAFETY: the kernel has just filled so many bytes of the spare capacity.
                unsafe { place.set_len(place.len() + count) };
                self.decoder.placed(count);
                Ok(Received::More)
            }
            Err(error) => without_bytes(error),
        }
    }

    /// The next whole frame among what was read.
    pub fn next_frame(&mut self) -> Result<Option<Frame>, paceline_proto::Error> {
        while let Some(frame) = self.decoder.next_frame()? {
            if frame.kind != lending::KIND {
                self.peer_cpu = frame.cpu;
                return Ok(Some(frame));
            }
            self.on_lending(&frame)?;
            if self.unusable {
                return Ok(None);
            }
        }
        Ok(None)
    }

    /// The next message, with payloads as they are in this process (LK-5).
    pub fn next_message<M: Parcel>(&mut self) -> Result<Option<M>, paceline_proto::Error> {
        let Some(mut frame) = self.next_frame()? else { return Ok(None) };
        let (entries, inline) = (std::mem::take(&mut frame.segments), std::mem::take(&mut frame.inline));
        let mut message = M::decode(frame)?;
        if !entries.is_empty() || message.any_payload(|payload| is_parted(payload)) {
            self.adopt(&mut message, &entries, inline)?;
        }
        Ok(Some(message))
    }

    #[inline(never)]
    fn adopt<M: Parcel>(
        &mut self,
        message: &mut M,
        entries: &[Segment],
        inline: Vec<Vec<u8>>,
    ) -> Result<(), paceline_proto::Error> {
        if self.plain && !segments::given_up() {
            // It goes out with the next message.
            self.plain = false;
            Lending::Again.encode(&mut self.out)?;
        }
        let mut payloads = message.payloads();
        let (Some(payload), None) = (payloads.next(), payloads.next()) else {
            return Err(paceline_proto::Error::Malformed { what: "parts" });
        };
        *payload = Exchange::adopt(self.exchange.as_deref(), payload, entries, inline)?;
        Ok(())
    }

    fn on_lending(&mut self, frame: &Frame) -> Result<(), paceline_proto::Error> {
        if !self.near {
            return Err(paceline_proto::Error::Kind { found: frame.kind });
        }
        if let Told::NoRoom(why) = self.exchange().on_lending(Lending::decode(frame)?)? {
            // What was sent cannot be read, so it is as if it had not come: over another link, which begins by saying
            // that segments are of no use here, it is sent again.
            segments::give_up(why);
            self.unusable = true;
            let _ = shutdown(&self.socket, Shutdown::Both);
        }
        Ok(())
    }

    /// Append a message (LK-5). One whose frame would be too long is refused.
    pub fn put<M: Parcel>(&mut self, message: &M) -> Result<(), paceline_proto::Error> {
        if !message.any_payload(|payload| is_parted(payload)) {
            return message.encode_with(&[], &mut self.out);
        }
        self.put_parted(message)
    }

    #[inline(never)]
    fn put_parted<M: Parcel>(&mut self, message: &M) -> Result<(), paceline_proto::Error> {
        // All or nothing: one that alone is too long is refused before others have gone.
        if message.any_payload(|payload| payload.len() > frame::MAX_BODY - READ_ALONG) {
            let (length, limit) = (frame::MAX_BODY as u64, (frame::MAX_BODY - READ_ALONG) as u64);
            return Err(paceline_proto::Error::TooLarge { length, limit });
        }
        if let Some(payload) = message.only_payload() {
            return self.put_one(message, payload);
        }
        message.apart().iter().try_for_each(|(one, payload)| self.put_one(one, payload))
    }

    fn put_one<M: Parcel>(&mut self, message: &M, payload: &Bytes) -> Result<(), paceline_proto::Error> {
        let Some(parts) = segments::parts_of(payload) else {
            return message.encode_with(&[], &mut self.out);
        };
        self.say_what_is_due();
        let mut entries = SmallVec::<[Segment; 2]>::new();
        let mut bodies = Vec::new();
        for part in parts.iter() {
            let lent = if self.near { self.exchange().lend(part) } else { None };
            let Some((entry, first)) = lent else {
                let length = part.len() as u64;
                entries.push(Segment { segment: 0, flags: INLINE, offset: 0, length });
                bodies.push(part.clone());
                continue;
            };
            if let Some((announced, descriptor)) = first {
                self.beside.push_back((self.out.len(), descriptor));
                announced.encode(&mut self.out)?;
            }
            entries.push(entry);
        }
        let begin = self.out.len();
        message.encode_with(&entries, &mut self.out)?;
        // It need not be the first that is sent.
        frame::stamp_cpu(&mut self.out[begin..], spin::current_cpu());
        let end = self.out.len();
        self.beside.extend(bodies.into_iter().map(|part| (end, Outgoing::Body(part, 0))));
        Ok(())
    }

    /// Append what is to be said of memory that was lent.
    fn say_what_is_due(&mut self) {
        let Some(exchange) = &self.exchange else { return };
        if exchange.is_pending() {
            exchange.say(&mut self.out);
        }
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

    /// Returns whether what is sent from now on goes nowhere for certain, as far as can be known before it is tried.
    pub fn refuses(&self) -> bool {
        self.refused || self.tls.is_some() && has_closed(&self.socket)
    }

    /// Returns whether all that was flushed last has gone nowhere. On one machine that is known at once.
    pub fn has_refused(&self) -> bool {
        self.refused
    }

    /// How many bytes wait to be sent.
    pub fn pending(&self) -> usize {
        let sealed = self.tls.as_ref().is_some_and(|tls| tls.wants_write());
        let due = self.exchange.as_ref().is_some_and(|exchange| exchange.is_pending());
        self.out.len() - self.sent + self.beside.len() + usize::from(sealed) + usize::from(due)
    }

    /// Send what the socket takes. Says whether everything went. A closed peer takes everything: its end is told by
    /// reading, after what it still had to say.
    pub fn flush(&mut self) -> io::Result<bool> {
        if self.exchange.is_some() {
            self.say_what_is_due();
        }
        if self.sent == 0 {
            frame::stamp_cpu(&mut self.out, spin::current_cpu());
        }
        if !self.beside.is_empty() && !self.flush_beside()? {
            return Ok(false);
        }
        if self.tls.is_some() {
            return self.flush_sealed();
        }
        while self.sent < self.out.len() {
            match send(&self.socket, &self.out[self.sent..], SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
                Ok(count) => self.sent += count,
                Err(Errno::AGAIN) => return Ok(false),
                Err(Errno::INTR) => {}
                Err(Errno::PIPE | Errno::CONNRESET) => {
                    self.refused |= self.sent == 0;
                    break;
                }
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

    /// Send what has something beside it, up to where there is none any more.
    #[inline(never)]
    fn flush_beside(&mut self) -> io::Result<bool> {
        loop {
            // A descriptor goes with the bytes up to the next thing beside them.
            let end = self.beside.get(1).map_or(self.out.len(), |(next, _)| *next);
            let Some((at, outgoing)) = self.beside.front_mut() else { return Ok(true) };
            if self.sent < *at {
                let piece = &self.out[self.sent..*at];
                match send_piece(&self.socket, self.tls.as_deref_mut(), piece)? {
                    Some(count) => self.sent += count,
                    None => return Ok(false),
                }
                continue;
            }
            match outgoing {
                Outgoing::Body(part, done) => {
                    let bytes = &part.bytes()[*done..];
                    match send_piece(&self.socket, self.tls.as_deref_mut(), bytes)? {
                        Some(count) => *done += count,
                        None => return Ok(false),
                    }
                    if *done < part.len() {
                        continue;
                    }
                }
                Outgoing::Descriptor(memory) => {
                    let piece = &self.out[self.sent..end];
                    match segments::send(&self.socket, piece, (**memory).as_fd()) {
                        Ok(count) => self.sent += count,
                        Err(Errno::AGAIN) => return Ok(false),
                        Err(Errno::INTR) => continue,
                        Err(Errno::PIPE | Errno::CONNRESET) => self.sent = end,
                        Err(error) => return Err(error.into()),
                    }
                }
            }
            self.beside.pop_front();
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

/// Returns whether the other end was closed, and all that it said was read.
fn has_closed(socket: &Kept) -> bool {
    let mut byte = [0u8; 1];
    matches!(recv(socket, &mut byte[..], RecvFlags::DONTWAIT | RecvFlags::PEEK), Ok((_, 0)))
}

/// Send some of these bytes, sealed if need be. None: the socket takes no more for now. A closed peer takes everything.
fn send_piece(socket: &Kept, tls: Option<&mut Tls>, bytes: &[u8]) -> io::Result<Option<usize>> {
    if let Some(tls) = tls {
        let count = tls.seal(bytes)?;
        let all = tls.flush(socket)?;
        return Ok((count > 0 || all).then_some(count));
    }
    loop {
        match send(socket, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
            Ok(count) => return Ok(Some(count)),
            Err(Errno::AGAIN) => return Ok(None),
            Err(Errno::INTR) => {}
            Err(Errno::PIPE | Errno::CONNRESET) => return Ok(Some(bytes.len())),
            Err(error) => return Err(error.into()),
        }
    }
}

/// What a look at the socket gave that gave no bytes.
fn without_bytes(error: Errno) -> io::Result<Received> {
    match error {
        Errno::AGAIN | Errno::INTR => Ok(Received::Nothing),
        Errno::CONNRESET | Errno::PIPE => Ok(Received::Closed),
        error => Err(error.into()),
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
