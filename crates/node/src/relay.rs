//! Passing data connections on to another node, for a client that cannot reach it.
//!
//! * RL-1: they are sealed between their ends; nothing here could read them.
//! * RL-2: what one side does not take holds up the other, and nothing else.
//! * RL-3: a connection counts as unproved for [`UNPROVED_TIME`]: by then the other node has ended one that proved nothing,
//!   and this one ends with it.

use paceline_net::secure::UnprovedLink;
use paceline_proto::open::{Header, Kind};
use paceline_proto::{Address, LeaseId};
use std::io;
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream as StdUnixStream};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, copy, split};
use tokio::net::{TcpStream, UnixStream};

/// How long one address of the other node is tried.
const PATIENCE: Duration = Duration::from_secs(2);

/// How long the other node may be silent, a few times over, before the connection ends.
const HEARTBEAT: Duration = Duration::from_secs(2);

/// How long a connection counts as unproved: longer than the other node waits for a proof.
const UNPROVED_TIME: Duration = Duration::from_secs(6);

/// Pass a data connection on to the node at these addresses.
pub(crate) fn pass_on(
    client: OwnedFd,
    kind: Kind,
    lease: LeaseId,
    addresses: Vec<Address>,
    place: UnprovedLink,
) {
    tokio::spawn(async move {
        if let Err(error) = pass_bytes_on(client, kind, lease, &addresses, place).await {
            tracing::warn!(%error, ?addresses, "a data connection could not be passed on");
        }
    });
}

async fn pass_bytes_on(
    client: OwnedFd,
    kind: Kind,
    lease: LeaseId,
    addresses: &[Address],
    place: UnprovedLink,
) -> io::Result<()> {
    let client = TcpStream::from_std(std::net::TcpStream::from(client))?;
    let mut node = reach(addresses).await?;
    node.write_all(&Header { kind, id: lease.0 }.encode()).await?;
    let mut passing = std::pin::pin!(pass_both_ways(client, node));
    match tokio::time::timeout(UNPROVED_TIME, &mut passing).await {
        Ok(passed) => passed,
        Err(_elapsed) => {
            drop(place);
            passing.await
        }
    }
}

/// Pass bytes on until the node's side has ended: a client that is silent must not keep the connection (RL-3).
async fn pass_both_ways(client: TcpStream, node: Box<dyn Stream>) -> io::Result<()> {
    let (mut client_reads, mut client_writes) = split(client);
    let (mut node_reads, mut node_writes) = split(node);
    let up = async {
        copy(&mut client_reads, &mut node_writes).await?;
        node_writes.shutdown().await?;
        std::future::pending::<io::Result<()>>().await
    };
    let down = async {
        copy(&mut node_reads, &mut client_writes).await?;
        client_writes.shutdown().await
    };
    tokio::select! {
        ended = up => ended,
        ended = down => ended,
    }
}

/// Whatever bytes go through both ways.
trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Stream for T {}

async fn reach(addresses: &[Address]) -> io::Result<Box<dyn Stream>> {
    let mut last = io::Error::new(io::ErrorKind::AddrNotAvailable, "it has no address");
    for address in addresses {
        match tokio::time::timeout(PATIENCE, connect(address)).await {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(error)) => last = error,
            Err(_elapsed) => last = io::ErrorKind::TimedOut.into(),
        }
    }
    Err(last)
}

async fn connect(address: &Address) -> io::Result<Box<dyn Stream>> {
    match address {
        Address::Tcp { host, port } => {
            let stream = TcpStream::connect((host.as_str(), *port)).await?;
            stream.set_nodelay(true)?;
            paceline_net::tcp::notice_silence(&stream, HEARTBEAT)?;
            Ok(Box::new(stream))
        }
        // Another node of this machine.
        Address::Unix(name) => {
            let stream = StdUnixStream::connect_addr(&SocketAddr::from_abstract_name(name)?)?;
            stream.set_nonblocking(true)?;
            Ok(Box::new(UnixStream::from_std(stream)?))
        }
    }
}
