//! Data connections, until it is known which lease they are for.
//!
//! * OP-1: a connection that does not say so within [`LIMIT`] is closed, and no more than [`MOST`] may keep us waiting.

use crate::news::{Desk, News};
use crate::places::LinkPlace;
use paceline_net::watch;
use paceline_proto::{LeaseId, Way, open};
use rustix::net::{RecvFlags, SendFlags, recv, send};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;

const LIMIT: Duration = Duration::from_secs(5);
const MOST: usize = 256;

pub(crate) struct Openings {
    waiting: Arc<Semaphore>,
    desk: Desk,
}

impl Openings {
    pub(crate) fn new(desk: Desk) -> Openings {
        Openings { waiting: Arc::new(Semaphore::new(MOST)), desk }
    }

    /// Read the header of a new connection: at once if it is there, which it is on one machine.
    pub(crate) fn on_offer(&self, connection: OwnedFd, link_place: Option<LinkPlace>) {
        let mut header = Header::default();
        match header.read(&connection) {
            Ok(lease) => drop(self.desk.tell(News::Opened(connection, lease))),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                let Ok(place) = self.waiting.clone().try_acquire_owned() else { return };
                let desk = self.desk.clone();
                tokio::spawn(async move {
                    let reading = tokio::time::timeout(LIMIT, read_rest(connection, header));
                    match reading.await {
                        Ok(Ok(news)) => drop(desk.tell(news)),
                        Ok(Err(error)) => note_refused(&error),
                        Err(_elapsed) => note_refused(&io::ErrorKind::TimedOut.into()),
                    }
                    drop((place, link_place));
                });
            }
            Err(error) => note_refused(&error),
        }
    }
}

/// There is no such lease. One that waits for an answer gets it; on a socket of our own its end says as much.
pub(crate) fn refuse_lease((connection, way): (OwnedFd, Way)) {
    refuse(connection, way, open::Answer::Lease);
}

/// Closes a connection for this reason, which is told where an answer is waited for.
pub(crate) fn refuse(connection: OwnedFd, way: Way, answer: open::Answer) {
    if way.is_sealed() {
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        let _ = send(&connection, &answer.encode(), flags);
    }
}

fn note_refused(error: &io::Error) {
    tracing::warn!(%error, "a data connection did not say what it is for");
}

async fn read_rest(connection: OwnedFd, mut header: Header) -> io::Result<News> {
    // A duplicate is watched, so that the connection itself goes to the slot unwatched.
    let watched = watch::to_read(connection.try_clone()?)?;
    loop {
        let mut ready = watched.readable().await?;
        if let Ok(result) = ready.try_io(|connection| header.read(connection)) {
            return Ok(News::Opened(connection, result?));
        }
    }
}

/// A header as far as it has come.
#[derive(Default)]
struct Header {
    bytes: [u8; open::LENGTH],
    length: usize,
}

impl Header {
    fn read(&mut self, connection: impl std::os::fd::AsFd) -> io::Result<LeaseId> {
        while self.length < open::LENGTH {
            // A slot that offers the connection shares it, and may have made it a blocking one.
            let (length, _) = recv(&connection, &mut self.bytes[self.length..], RecvFlags::DONTWAIT)?;
            match length {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                length => self.length += length,
            }
        }
        let wrong = |error| io::Error::new(io::ErrorKind::InvalidData, error);
        let header = open::Header::decode(&self.bytes).map_err(wrong)?;
        header.lease().ok_or_else(|| wrong(paceline_proto::Error::Kind { found: header.kind as u8 }))
    }
}
