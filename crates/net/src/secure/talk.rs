//! What is said over a new connection until it can be trusted, for both sides, with and without a runtime.
//!
//! * TK-1: what is not sealed is read to the byte: whatever follows is somebody else's to read.
//! * TK-2: a conversation waits for its socket and for nothing else, and no longer than it may.

use super::tls::{Got, Tls};
use super::{PeerInfo, Secured};
use crate::poll;
use crate::watch::Watched;
use bytes::{Buf, BytesMut};
use rustix::event::{PollFd, PollFlags};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::net::{RecvFlags, SendFlags, recv, send};
use rustls::Connection;
use std::io;
use std::time::Instant;
use tokio::io::unix::AsyncFd;

/// A socket one can wait for.
pub(crate) trait Socket {
    fn descriptor(&self) -> BorrowedFd<'_>;
    fn readable(&self) -> impl Future<Output = io::Result<()>> + Send;
    fn writable(&self) -> impl Future<Output = io::Result<()>> + Send;
    fn into_descriptor(self) -> OwnedFd;
}

/// One whose thread waits with it, until then at the latest. Its futures never have to be polled again.
pub(crate) struct Waiting {
    pub socket: OwnedFd,
    pub until: Instant,
}

impl Waiting {
    fn wait(&self, interest: PollFlags) -> io::Result<()> {
        loop {
            let left = self.until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            if poll::wait(&mut [PollFd::new(&self.socket, interest)], Some(left))? {
                return Ok(());
            }
        }
    }
}

impl Socket for Waiting {
    fn descriptor(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    async fn readable(&self) -> io::Result<()> {
        self.wait(PollFlags::IN)
    }

    async fn writable(&self) -> io::Result<()> {
        self.wait(PollFlags::OUT)
    }

    fn into_descriptor(self) -> OwnedFd {
        self.socket
    }
}

/// Run a conversation over such a socket.
pub(crate) fn at_once<T>(conversation: impl Future<Output = T>) -> T {
    let mut conversation = std::pin::pin!(conversation);
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    match conversation.as_mut().poll(&mut context) {
        std::task::Poll::Ready(result) => result,
        std::task::Poll::Pending => unreachable!("the thread itself waits for this socket"),
    }
}

/// One that tokio watches.
impl Socket for Watched {
    fn descriptor(&self) -> BorrowedFd<'_> {
        self.get_ref().as_fd()
    }

    async fn readable(&self) -> io::Result<()> {
        // Whoever calls this has just been told to wait, so what was known is stale; news since then is kept.
        AsyncFd::readable(self).await.map(|mut ready| ready.clear_ready())
    }

    async fn writable(&self) -> io::Result<()> {
        AsyncFd::writable(self).await.map(|mut ready| ready.clear_ready())
    }

    fn into_descriptor(self) -> OwnedFd {
        self.into_inner().into_inner()
    }
}

/// Both directions of a new connection.
pub(crate) struct Talk<S> {
    socket: S,
    tls: Option<Box<Tls>>,
    received: BytesMut,
}

impl<S: Socket> Talk<S> {
    pub(crate) fn new(socket: S) -> Talk<S> {
        Talk { socket, tls: None, received: BytesMut::new() }
    }

    pub(crate) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.descriptor()
    }

    /// Send these bytes, sealed if there is TLS.
    pub(crate) async fn send(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        if self.tls.is_none() {
            return self.send_clear(bytes).await;
        }
        while !bytes.is_empty() {
            let sealed = self.tls.as_mut().map_or(Ok(0), |tls| tls.seal(bytes))?;
            bytes = &bytes[sealed..];
            self.flush().await?;
        }
        Ok(())
    }

    async fn send_clear(&self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            match send(self.socket.descriptor(), bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
                Ok(count) => bytes = &bytes[count..],
                Err(rustix::io::Errno::AGAIN) => self.socket.writable().await?,
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    async fn flush(&mut self) -> io::Result<()> {
        while let Some(tls) = &mut self.tls {
            if tls.flush(self.socket.descriptor())? {
                break;
            }
            self.socket.writable().await?;
        }
        Ok(())
    }

    /// Receive exactly so many bytes.
    pub(crate) async fn receive<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let mut bytes = [0; N];
        self.receive_into(&mut bytes).await?;
        Ok(bytes)
    }

    /// The same of what is said in the clear, also if TLS has begun.
    pub(crate) async fn receive_plain<const N: usize>(&self) -> io::Result<[u8; N]> {
        let mut bytes = [0; N];
        self.receive_clear(&mut bytes).await?;
        Ok(bytes)
    }

    pub(crate) async fn receive_into(&mut self, bytes: &mut [u8]) -> io::Result<()> {
        if self.tls.is_none() {
            return self.receive_clear(bytes).await;
        }
        while self.received.len() < bytes.len() {
            self.fill().await?;
        }
        self.received.copy_to_slice(bytes);
        Ok(())
    }

    async fn receive_clear(&self, mut bytes: &mut [u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            match recv(self.socket.descriptor(), &mut *bytes, RecvFlags::DONTWAIT) {
                Ok((0, _)) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok((count, _)) => bytes = &mut bytes[count..],
                Err(rustix::io::Errno::AGAIN) => self.socket.readable().await?,
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// The first byte that comes, which stays where it is.
    pub(crate) async fn peek(&self) -> io::Result<u8> {
        let mut byte = [0];
        loop {
            match recv(self.socket.descriptor(), &mut byte[..], RecvFlags::DONTWAIT | RecvFlags::PEEK) {
                Ok((0, _)) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(_) => return Ok(byte[0]),
                Err(rustix::io::Errno::AGAIN) => self.socket.readable().await?,
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    async fn fill(&mut self) -> io::Result<()> {
        let Some(tls) = &mut self.tls else { return Ok(()) };
        match tls.receive(self.socket.descriptor(), |bytes| self.received.extend_from_slice(bytes))? {
            Got::Bytes { .. } => Ok(()),
            Got::Nothing => self.socket.readable().await,
            Got::Closed | Got::Reset => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    /// Begin TLS, as far as one side can.
    pub(crate) async fn begin(&mut self, connection: Connection) -> io::Result<()> {
        self.tls = Some(Box::new(Tls::new(connection)));
        self.flush().await
    }

    /// Finish the handshake.
    pub(crate) async fn handshake(&mut self) -> io::Result<()> {
        loop {
            self.flush().await?;
            if !self.tls.as_ref().is_some_and(|tls| tls.is_handshaking()) {
                return Ok(());
            }
            self.fill().await?;
        }
    }

    /// Keying material of the session.
    pub(crate) fn export(&self, label: &[u8]) -> io::Result<[u8; 32]> {
        let tls = self.tls.as_ref().ok_or(io::ErrorKind::NotConnected)?;
        tls.export(label)
    }

    pub(crate) fn into_descriptor(self) -> OwnedFd {
        self.socket.into_descriptor()
    }

    /// The connection, to be used from now on. A peer that has spoken out of turn is none.
    pub(crate) fn into_secured(self, peer: PeerInfo) -> io::Result<Secured> {
        if !self.received.is_empty() {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the peer spoke out of turn"));
        }
        Ok(Secured { socket: self.socket.into_descriptor(), tls: self.tls, peer })
    }
}
