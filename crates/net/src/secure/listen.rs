//! The port of a head or a node: who is at the door, and who may come in.
//!
//! * LI-1: no more than [`MOST`] strangers are at the door, each for [`LIMIT`] at most. One more, and the one that has
//!   stood there longest has to go: whoever means it is through in a moment.
//! * LI-2: nothing of variable length is read of a stranger (SE-1).
//! * LI-3: on a unix socket only our own user is let in.

use super::dial::{peer_address, prepare_tcp};
use super::introduction::{Introduction, Reply, Role};
use super::keys::Keys;
use super::proof::{self, Failure, Method, Proved};
use super::talk::{Socket, Talk};
use super::{PeerInfo, Secured, greet, keys, session};
use crate::watch::{self, Watched};
use paceline_proto::open::{self, Answer, Header, Kind};
use paceline_proto::{Address, LeaseId, Way};
use parking_lot::Mutex;
use rustix::fd::OwnedFd;
use std::collections::BTreeMap;
use std::io;
use std::net::TcpListener;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as UnixAddress, UnixListener};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinSet};

/// How long one may stand at the door.
pub const LIMIT: Duration = Duration::from_secs(5);
/// And how many.
pub const MOST: usize = 256;
/// How many wait to be taken in by whoever owns the port.
const INSIDE: usize = 64;
/// The pause after the kernel had no connection to give, for want of descriptors most likely.
const PAUSE: Duration = Duration::from_millis(50);

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
    inside: mpsc::Receiver<Accepted>,
    _listening: JoinSet<()>,
}

impl Listener {
    /// Listen at all of these addresses; port 0 is a free one. Call it inside a tokio runtime.
    pub fn bind(addresses: &[Address], door: Door) -> io::Result<Listener> {
        let (sender, inside) = mpsc::channel(INSIDE);
        let hall = Arc::new(Hall { door, strangers: Mutex::default(), inside: sender });
        let mut listening = JoinSet::new();
        let mut bound = Vec::new();
        for address in addresses {
            let named = |error: io::Error| io::Error::new(error.kind(), format!("{address}: {error}"));
            match address {
                Address::Unix(name) => {
                    let socket =
                        UnixListener::bind_addr(&UnixAddress::from_abstract_name(name)?).map_err(named)?;
                    socket.set_nonblocking(true)?;
                    let socket = watch::to_read(OwnedFd::from(socket))?;
                    listening.spawn(listen(socket, hall.clone(), true));
                    bound.push(address.clone());
                }
                Address::Tcp { host, port } => {
                    let socket = TcpListener::bind((host.as_str(), *port)).map_err(named)?;
                    socket.set_nonblocking(true)?;
                    let port = socket.local_addr()?.port();
                    let socket = watch::to_read(OwnedFd::from(socket))?;
                    listening.spawn(listen(socket, hall.clone(), false));
                    bound.push(Address::Tcp { host: host.clone(), port });
                }
            }
        }
        Ok(Listener { addresses: bound, inside, _listening: listening })
    }

    /// Where it listens, with the ports there are.
    pub fn addresses(&self) -> &[Address] {
        &self.addresses
    }

    /// The next one that has come in. May be cancelled without losing anybody.
    pub async fn accept(&mut self) -> Accepted {
        match self.inside.recv().await {
            Some(accepted) => accepted,
            None => std::future::pending().await,
        }
    }
}

struct Hall {
    door: Door,
    strangers: Mutex<Strangers>,
    inside: mpsc::Sender<Accepted>,
}

/// Those at the door, in the order they came.
#[derive(Default)]
struct Strangers {
    came: u64,
    standing: BTreeMap<u64, AbortHandle>,
}

impl Drop for Hall {
    fn drop(&mut self) {
        for (_, stranger) in std::mem::take(&mut self.strangers.lock().standing) {
            stranger.abort();
        }
    }
}

async fn listen(listener: Watched, hall: Arc<Hall>, unix: bool) {
    loop {
        let Ok(mut ready) = listener.readable().await else { return };
        let accepting = ready.try_io(|listener| {
            let flags = rustix::net::SocketFlags::CLOEXEC | rustix::net::SocketFlags::NONBLOCK;
            Ok(rustix::net::accept_with(listener.get_ref(), flags)?)
        });
        match accepting {
            Ok(Ok(socket)) => admit(&hall, socket, unix),
            Ok(Err(error)) if error.kind() == io::ErrorKind::ConnectionAborted => {}
            Ok(Err(error)) => {
                tracing::warn!(%error, "a connection could not be taken");
                tokio::time::sleep(PAUSE).await;
            }
            Err(_would_block) => {}
        }
    }
}

/// Let one more stand at the door (LI-1).
fn admit(hall: &Arc<Hall>, socket: OwnedFd, unix: bool) {
    let mut strangers = hall.strangers.lock();
    while strangers.standing.len() >= MOST {
        let Some((_, longest)) = strangers.standing.pop_first() else { break };
        longest.abort();
    }
    strangers.came += 1;
    let number = strangers.came;
    // Only one that is let in holds on to the hall: it closes with the port, whoever still stands at the door.
    let weak = Arc::downgrade(hall);
    let door = hall.door.clone();
    let inside = hall.inside.clone();
    let task = tokio::spawn(async move {
        let came_in = tokio::time::timeout(LIMIT, see(socket, &door, unix)).await;
        if let Some(hall) = weak.upgrade() {
            hall.strangers.lock().standing.remove(&number);
        }
        match came_in {
            Ok(Ok(accepted)) => drop(inside.send(accepted).await),
            Ok(Err(failure)) => tracing::info!(?failure, "a stranger was not let in"),
            Err(_elapsed) => tracing::info!("a stranger did not say what it wants"),
        }
    });
    strangers.standing.insert(number, task.abort_handle());
}

/// See who it is.
async fn see(socket: OwnedFd, door: &Door, unix: bool) -> Result<Accepted, Failure> {
    let address = peer_address(&socket);
    if !unix {
        prepare_tcp(&socket)?;
    }
    let mut talk = Talk::new(watch::both_ways(socket)?);
    // The kernel's word comes before theirs (LI-3).
    let known = if unix { Some(Proved::by_the_kernel(talk.socket())?) } else { None };
    let bytes: [u8; open::LENGTH] = talk.receive().await?;
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
            let (proved, peer, method) = match known {
                Some((proved, uid, pid)) => {
                    talk.send(&Answer::Good.encode()).await?;
                    (proved, PeerInfo::Unix { uid, pid }, None)
                }
                None => {
                    talk.begin(session::server()?).await?;
                    talk.handshake().await?;
                    let (proved, method) = proof::check(&mut talk, keys).await?;
                    (proved, PeerInfo::Tls { address }, Some(method))
                }
            };
            introduce(talk, door, keys, header.kind, &proved, peer, method).await
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
    proved: &Proved,
    peer: PeerInfo,
    method: Option<Method>,
) -> Result<Accepted, Failure> {
    let introduction: Introduction = greet::hear(&mut talk, proved).await?;
    let comes_for = if kind == Kind::Node { Role::Node } else { Role::Client };
    if introduction.role != comes_for || !greet::is_plausible(&introduction) {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "an introduction that makes no sense").into());
    }
    let lacks_key = matches!(method, Some(Method::Token | Method::Password));
    let reply = Reply::to(&door.me, &introduction, lacks_key.then(|| keys.key().bytes()));
    greet::tell(&mut talk, &reply).await?;
    if let Some(text) = reply.refused {
        tracing::warn!(%text, "refused");
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, text).into());
    }
    Ok(Accepted::Peer { secured: talk.into_secured(peer)?, introduction })
}
