//! Frames of the store link over a socket that does not block, for a thread that waits.

use super::SILENCE;
use crate::kept::Kept;
use crate::poll;
use crate::secure::Secured;
use crate::secure::tls::{Got, Tls};
use paceline_proto::frame::Decoder;
use paceline_proto::store::{LONGEST, Message, Said, encode_chunk};
use rustix::event::{PollFd, PollFlags};
use rustix::fd::AsFd;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use std::io;
use std::time::Duration;

/// Bytes that are gathered before they are sent.
const ENOUGH: usize = 1 << 20;
/// What is read at once.
const AT_ONCE: usize = 256 << 10;
/// More than this is not read while we cannot write.
const AHEAD: usize = 32 << 20;

pub(super) struct Wire {
    /// Forked children do not have it: its end is the end of this process.
    socket: Kept,
    tls: Option<Box<Tls>>,
    decoder: Decoder,
    out: Vec<u8>,
    /// How many of `out` are gone.
    sent: usize,
    ended: bool,
}

impl Wire {
    pub(super) fn new(connection: Secured) -> Wire {
        Wire {
            socket: Kept::new(connection.socket),
            tls: connection.tls,
            decoder: Decoder::with_limit(LONGEST),
            out: Vec::new(),
            sent: 0,
            ended: false,
        }
    }

    /// Say something, with the next flush.
    pub(super) fn say<M: Message>(&mut self, message: &M) -> io::Result<()> {
        paceline_proto::store::encode(message, &mut self.out).map_err(wrong)?;
        self.flush_if_many()
    }

    pub(super) fn say_chunk(&mut self, number: u64, bytes: &[u8]) -> io::Result<()> {
        encode_chunk(number, bytes, &mut self.out).map_err(wrong)?;
        self.flush_if_many()
    }

    fn flush_if_many(&mut self) -> io::Result<()> {
        if self.out.len() >= ENOUGH { self.flush() } else { Ok(()) }
    }

    /// Send everything that was said (SL-2, SL-3).
    pub(super) fn flush(&mut self) -> io::Result<()> {
        while !self.write_some()? {
            let room = self.decoder.room().len() < AHEAD && !self.ended;
            let interest = if room { PollFlags::OUT | PollFlags::IN } else { PollFlags::OUT };
            let ready = self.wait(interest, Some(SILENCE))?.ok_or(io::ErrorKind::TimedOut)?;
            if room && ready.intersects(PollFlags::IN) {
                self.read_some()?;
            }
        }
        self.out.clear();
        self.sent = 0;
        // One that is large once is not kept.
        self.out.shrink_to(2 * ENOUGH);
        Ok(())
    }

    /// Whether everything went.
    fn write_some(&mut self) -> io::Result<bool> {
        loop {
            let left = &self.out[self.sent..];
            match &mut self.tls {
                Some(tls) => {
                    self.sent += if left.is_empty() { 0 } else { tls.seal(left)? };
                    if !tls.flush(&self.socket)? {
                        return Ok(false);
                    }
                    if self.sent == self.out.len() {
                        return Ok(true);
                    }
                }
                None if left.is_empty() => return Ok(true),
                None => match send(&self.socket, left, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
                    Ok(count) => self.sent += count,
                    Err(Errno::AGAIN) => return Ok(false),
                    Err(Errno::INTR) => {}
                    Err(error) => return Err(error.into()),
                },
            }
        }
    }

    /// Take what is there, without waiting.
    fn read_some(&mut self) -> io::Result<()> {
        let room = self.decoder.room();
        match &mut self.tls {
            Some(tls) => match tls.receive(&self.socket, |bytes| room.extend_from_slice(bytes))? {
                Got::Bytes { .. } | Got::Nothing => {}
                Got::Closed | Got::Reset => self.ended = true,
            },
            None => {
                let before = room.len();
                room.resize(before + AT_ONCE, 0);
                let count = recv(&self.socket, &mut room[before..], RecvFlags::DONTWAIT);
                room.truncate(before + count.as_ref().map_or(0, |(count, _)| *count));
                match count {
                    Ok((0, _)) | Err(Errno::CONNRESET | Errno::PIPE) => self.ended = true,
                    Ok(_) | Err(Errno::AGAIN | Errno::INTR) => {}
                    Err(error) => return Err(error.into()),
                }
            }
        }
        Ok(())
    }

    /// What has been said next, if it is here. None: nothing yet.
    pub(super) fn try_next<M: Message>(&mut self) -> io::Result<Option<Said<M>>> {
        if let Some(said) = self.cut()? {
            return Ok(Some(said));
        }
        if !self.ended {
            self.read_some()?;
        }
        match self.cut()? {
            None if self.ended => Err(io::ErrorKind::UnexpectedEof.into()),
            found => Ok(found),
        }
    }

    /// The same, once it is here. Without a limit one may be silent for ever.
    pub(super) fn next<M: Message>(&mut self, limit: Option<Duration>) -> io::Result<Said<M>> {
        loop {
            if let Some(said) = self.try_next()? {
                return Ok(said);
            }
            self.wait(PollFlags::IN, limit)?.ok_or(io::ErrorKind::TimedOut)?;
        }
    }

    fn cut<M: Message>(&mut self) -> io::Result<Option<Said<M>>> {
        match self.decoder.next_frame() {
            Ok(Some(frame)) => Said::decode(frame).map(Some).map_err(wrong),
            Ok(None) => Ok(None),
            Err(error) => Err(wrong(error)),
        }
    }

    /// None: the time is over.
    fn wait(&self, interest: PollFlags, limit: Option<Duration>) -> io::Result<Option<PollFlags>> {
        loop {
            let mut waits = [PollFd::from_borrowed_fd(self.socket.as_fd(), interest)];
            if poll::wait(&mut waits, limit)? {
                return Ok(Some(waits[0].revents()));
            }
            if limit.is_some() {
                return Ok(None);
            }
        }
    }
}

fn wrong(error: paceline_proto::Error) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}
