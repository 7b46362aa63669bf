//! One TLS session over a socket that does not block.
//!
//! * TL-1: no more than [`AHEAD`] sealed bytes wait for a socket that takes none.
//! * TL-2: a session that waits for nothing has no buffers of its own but for part of a record: what is received passes
//!   through the thread's own.

use rustix::fd::AsFd;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, recv, send, sendmsg};
use rustls::Connection;
use std::cell::RefCell;
use std::io::{self, BufRead, IoSlice, Write};

/// Bytes that are sealed ahead of what the socket takes.
const AHEAD: usize = 256 << 10;
/// What is taken from the socket at once: no more than stays in the caches until it is opened and in its place.
const AT_ONCE: usize = 256 << 10;

thread_local! {
    static RECEIVED: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// A session. What it seals and opens belongs to one socket, in order.
pub struct Tls {
    connection: Connection,
}

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Tls")
    }
}

/// What one look at the socket gave.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Got {
    /// So many bytes of the socket. There may be nothing in them yet that can be opened.
    Bytes {
        more: bool,
    },
    Nothing,
    Closed,
    Reset,
}

impl Tls {
    pub(crate) fn new(mut connection: Connection) -> Tls {
        connection.set_buffer_limit(Some(AHEAD));
        Tls { connection }
    }

    pub(crate) fn is_handshaking(&self) -> bool {
        self.connection.is_handshaking()
    }

    /// Keying material of this session that nobody else can have.
    pub(crate) fn export(&self, label: &[u8]) -> io::Result<[u8; 32]> {
        self.connection.export_keying_material([0; 32], label, None).map_err(io::Error::other)
    }

    /// Seal these bytes, as many as may be sealed ahead. Says how many.
    pub(crate) fn seal(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.connection.writer().write(bytes)
    }

    /// Whether sealed bytes wait for the socket.
    pub(crate) fn wants_write(&self) -> bool {
        self.connection.wants_write()
    }

    /// Send what is sealed. Says whether everything went. A closed peer takes everything.
    pub(crate) fn flush(&mut self, socket: impl AsFd) -> io::Result<bool> {
        let mut socket = Sending(socket);
        while self.connection.wants_write() {
            match self.connection.write_tls(&mut socket) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// Take what has arrived, and hand on what can be opened of it.
    pub(crate) fn receive(&mut self, socket: impl AsFd, mut into: impl FnMut(&[u8])) -> io::Result<Got> {
        RECEIVED.with_borrow_mut(|buffer| {
            if buffer.is_empty() {
                // Pages of it that nothing is ever received into are never made.
                *buffer = vec![0; AT_ONCE];
            }
            let count = loop {
                match recv(&socket, &mut buffer[..], RecvFlags::DONTWAIT) {
                    Ok((0, _)) => return Ok(Got::Closed),
                    Ok((count, _)) => break count,
                    Err(Errno::AGAIN) => return Ok(Got::Nothing),
                    Err(Errno::INTR) => {}
                    Err(Errno::CONNRESET | Errno::PIPE) => return Ok(Got::Reset),
                    Err(error) => return Err(error.into()),
                }
            };
            let mut received = &buffer[..count];
            while !received.is_empty() {
                self.connection.read_tls(&mut received)?;
                if self.open(&mut into)? {
                    return Ok(Got::Closed);
                }
            }
            Ok(Got::Bytes { more: count == buffer.len() })
        })
    }

    /// Hand on what can be opened. Says whether the peer has said that this was all.
    fn open(&mut self, into: &mut impl FnMut(&[u8])) -> io::Result<bool> {
        let state = self.connection.process_new_packets().map_err(io::Error::other)?;
        let mut left = state.plaintext_bytes_to_read();
        let mut reader = self.connection.reader();
        while left > 0 {
            let chunk = reader.fill_buf()?;
            let count = chunk.len();
            into(chunk);
            reader.consume(count);
            left -= count;
        }
        Ok(state.peer_has_closed())
    }
}

/// Gives what is sealed to the socket.
struct Sending<S>(S);

impl<S: AsFd> Write for Sending<S> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            match send(&self.0, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
                Ok(count) => return Ok(count),
                Err(Errno::INTR) => {}
                // Its end is told by reading, after what it still had to say.
                Err(Errno::PIPE | Errno::CONNRESET) => return Ok(bytes.len()),
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn write_vectored(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        loop {
            match sendmsg(&self.0, parts, &mut SendAncillaryBuffer::default(), flags) {
                Ok(count) => return Ok(count),
                Err(Errno::INTR) => {}
                Err(Errno::PIPE | Errno::CONNRESET) => return Ok(parts.iter().map(|part| part.len()).sum()),
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
