//! The port of a head or a node: who is at the door, and who may come in.
//!
//! * LI-1: whoever has proved nothing has a place as long as admission control lets it (`AD-1` to `AD-6`).
//! * LI-2: nothing of variable length is read of a stranger (SE-1).
//! * LI-3: on a unix socket only our own user is let in.
//! * LI-4: all of this, TLS and proofs included, happens on a thread of the port's own: the thread that asks for those
//!   who have come in never works for strangers.

use super::admission::{Admissions, Pending};
use super::dial::prepare_tcp;
use super::introduction::{Introduction, Reply, Role};
use super::keys::Keys;
use super::proof::{self, Failure, Method, Proof, Proved};
use super::talk::{Socket, Talk};
use super::{PeerInfo, Secured, greet, keys, session};
use crate::signals;
use crate::watch::{self, Watched};
use paceline_core::admission::{CONNECTION_TIMEOUT, Source};
use paceline_proto::open::{self, Answer, Header, Kind};
use paceline_proto::{Address, LeaseId, Way};
use rustix::fd::OwnedFd;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as UnixAddress, UnixListener};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;

/// Bounds those who have come in and wait to be taken by whoever owns the port.
const MAX_ACCEPTED: usize = 64;
/// Pauses after the kernel had no connection to give, for want of descriptors most likely.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// Bounds the connections that the kernel keeps for us: a storm must not fill its queue before we look.
const BACKLOG: i32 = 4096;

/// Whose port it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Serves {
    /// Clients and nodes come to a head.
    Head,
    /// Data connections come to a node.
    Node,
}

/// Who is let in, and by whom.
#[derive(Clone, Debug)]
pub struct Door {
    pub me: Introduction,
    /// A node's door has none: leases open it.
    pub keys: Option<Arc<Keys>>,
    pub serves: Serves,
}

/// Somebody has come in.
#[derive(Debug)]
pub enum Accepted {
    /// A client or a node, to be handed to the head.
    Peer { secured: Secured, introduction: Introduction },
    /// A data connection, to be handed to the node. What follows its header is still to be read.
    Data { socket: OwnedFd, lease: LeaseId, way: Way },
    /// The same, for the node's store.
    Store { socket: OwnedFd, lease: LeaseId, way: Way },
    /// The same, between the node's store and that of a client.
    Objects { socket: OwnedFd, lease: LeaseId, way: Way },
}

/// A new name for an abstract unix socket, which nobody can guess.
pub fn unix_name() -> io::Result<Address> {
    Ok(Address::Unix(format!("paceline-{}", keys::hex(&keys::random::<16>()?))))
}

/// A port that is listened to. It closes with this.
pub struct Listener {
    addresses: Vec<Address>,
    accepted: mpsc::Receiver<Accepted>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Listener {
    /// Listens at all of these addresses; port 0 is a free one.
    pub fn bind(addresses: &[Address], door: Door) -> io::Result<Listener> {
        let mut sockets = Vec::new();
        let mut bound = Vec::new();
        for address in addresses {
            let named = |error: io::Error| io::Error::new(error.kind(), format!("{address}: {error}"));
            match address {
                Address::Unix(name) => {
                    let socket =
                        UnixListener::bind_addr(&UnixAddress::from_abstract_name(name)?).map_err(named)?;
                    socket.set_nonblocking(true)?;
                    sockets.push((OwnedFd::from(socket), true));
                    bound.push(address.clone());
                }
                Address::Tcp { host, port } => {
                    let socket = TcpListener::bind((host.as_str(), *port)).map_err(named)?;
                    rustix::net::listen(&socket, BACKLOG)?;
                    socket.set_nonblocking(true)?;
                    let port = socket.local_addr()?.port();
                    sockets.push((OwnedFd::from(socket), false));
                    bound.push(Address::Tcp { host: host.clone(), port });
                }
            }
        }
        let (sender, accepted) = mpsc::channel(MAX_ACCEPTED);
        let (stop, stopped) = oneshot::channel();
        let (started, starts) = std::sync::mpsc::sync_channel(1);
        let port = Arc::new(Port { door, admissions: Arc::default(), accepted: sender });
        let thread = std::thread::Builder::new().name("paceline-port".into()).spawn(move || {
            // They are for the threads that the process had before.
            signals::block_all();
            // Made here: a runtime must not be dropped inside another one, should this fail.
            match tokio::runtime::Builder::new_current_thread().enable_all().build() {
                Ok(runtime) => {
                    let _ = started.send(Ok(()));
                    runtime.block_on(serve(port, sockets, stopped));
                }
                Err(error) => drop(started.send(Err(error))),
            }
        })?;
        starts.recv().unwrap_or_else(|_| Err(io::ErrorKind::BrokenPipe.into()))?;
        Ok(Listener { addresses: bound, accepted, stop: Some(stop), thread: Some(thread) })
    }

    /// Where it listens, with the ports there are.
    pub fn addresses(&self) -> &[Address] {
        &self.addresses
    }

    /// The next one that has come in. May be cancelled without losing anybody.
    pub async fn accept(&mut self) -> Accepted {
        match self.accepted.recv().await {
            Some(accepted) => accepted,
            None => std::future::pending().await,
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        drop(self.stop.take());
        self.accepted.close();
        if let Some(thread) = self.thread.take() {
            // It waits for nothing but us, so that its sockets are closed when this returns.
            let _ = thread.join();
        }
    }
}

struct Port {
    door: Door,
    admissions: Arc<Admissions>,
    accepted: mpsc::Sender<Accepted>,
}

/// Runs the port's thread until the listener is gone.
async fn serve(port: Arc<Port>, sockets: Vec<(OwnedFd, bool)>, stopped: oneshot::Receiver<()>) {
    let mut listening = JoinSet::new();
    for (socket, unix) in sockets {
        match watch::to_read(socket) {
            Ok(socket) => drop(listening.spawn(listen(socket, port.clone(), unix))),
            Err(error) => tracing::error!(%error, "a port could not be watched"),
        }
    }
    tokio::select! {
        _ = stopped => {}
        () = port.admissions.keep_time() => {}
    }
}

async fn listen(listener: Watched, port: Arc<Port>, unix: bool) {
    loop {
        let Ok(mut ready) = listener.readable().await else { return };
        let accepting = ready.try_io(|listener| {
            let flags = rustix::net::SocketFlags::CLOEXEC | rustix::net::SocketFlags::NONBLOCK;
            Ok(rustix::net::acceptfrom_with(listener.get_ref(), flags)?)
        });
        match accepting {
            Ok(Ok((socket, peer))) => {
                let address = peer.and_then(|peer| SocketAddr::try_from(peer).ok());
                admit(&port, socket, address.filter(|_| !unix), unix);
            }
            Ok(Err(error)) if error.kind() == io::ErrorKind::ConnectionAborted => {}
            Ok(Err(error)) => {
                tracing::warn!(%error, "a connection could not be taken");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
            Err(_would_block) => {}
        }
    }
}

/// Gives one more connection a place (LI-1).
fn admit(port: &Arc<Port>, socket: OwnedFd, address: Option<SocketAddr>, unix: bool) {
    let known = if unix {
        // The kernel's word comes before theirs (LI-3).
        match Proved::by_the_kernel(&socket) {
            Ok(known) => Some(known),
            Err(failure) => return port.admissions.log_refusal(Source::Unix, &failure),
        }
    } else {
        None
    };
    let address = address.unwrap_or_else(|| SocketAddr::from(([0, 0, 0, 0], 0)));
    let source = if unix { Source::Unix } else { Source::from(address.ip()) };
    let own = port.clone();
    port.admissions.arrive(source, |pending| async move {
        match see(socket, &own.door, known, address, &pending).await {
            // Until it is taken, it has its place.
            Ok(accepted) => drop(own.accepted.send(accepted).await),
            Err(failure) => own.admissions.log_refusal(source, &failure),
        }
    });
}

/// See who it is.
async fn see(
    socket: OwnedFd,
    door: &Door,
    known: Option<(Proved, u32, u32)>,
    address: SocketAddr,
    pending: &Pending,
) -> Result<Accepted, Failure> {
    let unix = known.is_some();
    let mut talk = Talk::new(watch::both_ways(socket)?);
    let bytes: [u8; open::LENGTH] = talk.receive().await?;
    if !unix {
        prepare_tcp(talk.socket())?;
    }
    let header = match Header::decode(&bytes) {
        Ok(header) => header,
        Err(error) => {
            // One that speaks something else altogether does not understand the answer either.
            if !matches!(error, paceline_proto::Error::Magic { .. }) {
                talk.send(&Answer::Version.encode()).await?;
            }
            return Err(io::Error::new(io::ErrorKind::InvalidData, error).into());
        }
    };
    match (header.kind, door.serves, &door.keys) {
        (Kind::Data | Kind::Relayed, Serves::Node, _) => {
            let way = match (unix, header.kind) {
                (true, Kind::Data) => Way::Unix,
                (false, Kind::Data) => Way::Tls,
                _ => Way::Relayed,
            };
            Ok(Accepted::Data { socket: talk.into_descriptor(), lease: LeaseId(header.id), way })
        }
        (Kind::Store, Serves::Node, _) => {
            let way = if unix { Way::Unix } else { Way::Tls };
            Ok(Accepted::Store { socket: talk.into_descriptor(), lease: LeaseId(header.id), way })
        }
        (Kind::Objects, Serves::Node, _) => {
            let way = if unix { Way::Unix } else { Way::Tls };
            Ok(Accepted::Objects { socket: talk.into_descriptor(), lease: LeaseId(header.id), way })
        }
        (Kind::Client | Kind::Node, Serves::Head, Some(keys)) => {
            let (proof, peer) = match known {
                Some((proved, uid, pid)) => {
                    talk.send(&Answer::Good.encode()).await?;
                    (Proof { proved, method: None, token: None }, PeerInfo::Unix { uid, pid })
                }
                None => {
                    pending.handshake_turn().await;
                    talk.begin(session::server()?).await?;
                    talk.handshake().await?;
                    (proof::check(&mut talk, keys, pending).await?, PeerInfo::Tls { address })
                }
            };
            pending.authenticated();
            let introducing = introduce(talk, door, keys, header.kind, &proof, peer);
            match tokio::time::timeout(CONNECTION_TIMEOUT, introducing).await {
                Ok(introduced) => introduced,
                Err(_elapsed) => Err(io::Error::from(io::ErrorKind::TimedOut).into()),
            }
        }
        _ => {
            talk.send(&Answer::Kind.encode()).await?;
            Err(io::Error::new(io::ErrorKind::InvalidData, "this port is not for that").into())
        }
    }
}

async fn introduce<S: Socket>(
    mut talk: Talk<S>,
    door: &Door,
    keys: &Keys,
    kind: Kind,
    proof: &Proof,
    peer: PeerInfo,
) -> Result<Accepted, Failure> {
    let introduction: Introduction = greet::hear(&mut talk, &proof.proved).await?;
    let comes_for: &[Role] = if kind == Kind::Node { &[Role::Node] } else { &[Role::Client, Role::Slot] };
    if !comes_for.contains(&introduction.role) || !greet::is_plausible(&introduction) {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "an introduction that makes no sense").into());
    }
    if let (Some(token), PeerInfo::Tls { address }) = (&proof.token, peer) {
        let (role, name) = (introduction.role, &introduction.name);
        tracing::info!(token, %address, ?role, name, "token redeemed");
    }
    let lacks_key = matches!(proof.method, Some(Method::Token | Method::Password));
    let reply = Reply::to(&door.me, &introduction, lacks_key.then(|| keys.key().bytes()));
    greet::tell(&mut talk, &reply).await?;
    if let Some(text) = reply.refused {
        tracing::warn!(%text, "refused");
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, text).into());
    }
    Ok(Accepted::Peer { secured: talk.into_secured(peer)?, introduction })
}
