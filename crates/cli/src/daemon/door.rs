//! Where a daemon listens. On this machine: an abstract unix socket, for this user only.

use std::io;
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener as StdListener, UnixStream};
use tokio::net::UnixListener;

/// An abstract name that nobody can guess.
pub fn unix_name() -> io::Result<String> {
    let random = super::random().map_err(|failure| io::Error::other(failure.message))?;
    Ok(format!("paceline-{:032x}", u128::from_le_bytes(random)))
}

pub fn bind(name: &str) -> io::Result<UnixListener> {
    let listener = StdListener::bind_addr(&SocketAddr::from_abstract_name(name)?)?;
    listener.set_nonblocking(true)?;
    UnixListener::from_std(listener)
}

/// Serve everybody of this user.
pub async fn serve(listener: UnixListener, serve: impl Fn(OwnedFd)) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let Ok(stream) = stream.into_std() else { continue };
                let socket = OwnedFd::from(stream);
                if is_own(&socket) {
                    serve(socket);
                } else {
                    tracing::warn!("another user came to the door");
                }
            }
            Err(error) => {
                tracing::error!(%error, "nobody can come in");
                tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            }
        }
    }
}

fn is_own(socket: &OwnedFd) -> bool {
    rustix::net::sockopt::socket_peercred(socket).is_ok_and(|peer| peer.uid == rustix::process::geteuid())
}

pub fn dial(name: &str) -> io::Result<OwnedFd> {
    let stream = UnixStream::connect_addr(&SocketAddr::from_abstract_name(name)?)?;
    stream.set_nonblocking(true)?;
    let socket = OwnedFd::from(stream);
    if is_own(&socket) { Ok(socket) } else { Err(io::ErrorKind::PermissionDenied.into()) }
}
