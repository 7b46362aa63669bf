//! Passing connections on: data connections to another node for a client that cannot reach it, and links of slots to a
//! head that is elsewhere.
//!
//! * RL-1: data connections are sealed between their ends; nothing here could read them.
//! * RL-2: what one side does not take holds up the other, and nothing else.

use crate::requests::Uplink;
use paceline_net::control;
use paceline_net::secure::Secured;
use paceline_proto::control::{ClientToHead, HeadToClient};
use paceline_proto::open::{Header, Kind};
use paceline_proto::{Address, LeaseId};
use std::io;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

/// How long one address of the other node is tried.
const PATIENCE: Duration = Duration::from_secs(2);

/// No more than this waits for a side that does not read.
const ENOUGH: usize = 256 << 10;

/// A connection to the head that is being opened.
pub type Dialing = Pin<Box<dyn Future<Output = io::Result<Secured>> + Send>>;

/// An [`Uplink`] to a head that is reached by connections of their own, one for each slot that is a client.
pub fn uplink(dial: impl Fn() -> Dialing + Send + Sync + 'static) -> Uplink {
    Arc::new(move |link| {
        let dialing = dial();
        tokio::spawn(async move {
            let head = match dialing.await {
                Ok(head) => head,
                // The slot sees the end of its link and asks again.
                Err(error) => return tracing::warn!(%error, "a slot's link to the head could not be opened"),
            };
            if let Err(error) = pass_link_on(link, head).await {
                tracing::debug!(%error, "a slot's link to the head broke");
            }
        });
    })
}

/// Message by message, because the two links need not be of one kind.
async fn pass_link_on(slot: OwnedFd, head: Secured) -> io::Result<()> {
    let (to_slot, mut from_slot) = control::channel::<HeadToClient, ClientToHead>(slot)?;
    let (to_head, mut from_head) = control::channel::<ClientToHead, HeadToClient>(head)?;
    let up = async {
        while let Some((message, _)) = from_slot.next().await? {
            to_head.send(&message, Vec::new());
            to_head.drained_to(ENOUGH).await;
        }
        io::Result::Ok(())
    };
    let down = async {
        while let Some((message, _)) = from_head.next().await? {
            to_slot.send(&message, Vec::new());
            to_slot.drained_to(ENOUGH).await;
        }
        io::Result::Ok(())
    };
    let ended = tokio::select! {
        ended = up => ended,
        ended = down => ended,
    };
    // The last words of either side.
    let _ =
        tokio::time::timeout(PATIENCE, async { tokio::join!(to_head.drained_to(0), to_slot.drained_to(0)) })
            .await;
    ended
}

/// Pass a data connection on to the node at these addresses.
pub(crate) fn pass_on(client: OwnedFd, lease: LeaseId, addresses: Vec<Address>) {
    tokio::spawn(async move {
        if let Err(error) = pass_bytes_on(client, lease, &addresses).await {
            tracing::warn!(%error, ?addresses, "a data connection could not be passed on");
        }
    });
}

async fn pass_bytes_on(client: OwnedFd, lease: LeaseId, addresses: &[Address]) -> io::Result<()> {
    let mut client = TcpStream::from_std(std::net::TcpStream::from(client))?;
    let mut node = reach(addresses).await?;
    node.set_nodelay(true)?;
    node.write_all(&Header { kind: Kind::Relayed, id: lease.0 }.encode()).await?;
    tokio::io::copy_bidirectional(&mut client, &mut node).await?;
    Ok(())
}

async fn reach(addresses: &[Address]) -> io::Result<TcpStream> {
    let mut last = io::Error::new(io::ErrorKind::AddrNotAvailable, "it has no address");
    for address in addresses {
        let Address::Tcp { host, port } = address else { continue };
        match tokio::time::timeout(PATIENCE, TcpStream::connect((host.as_str(), *port))).await {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(error)) => last = error,
            Err(_elapsed) => last = io::ErrorKind::TimedOut.into(),
        }
    }
    Err(last)
}
