//! Opening connections: to a head, and to a slot by way of its node.
//!
//! * DI-1: all addresses are tried at once, but only one at a time is spoken to: a slot serves the connection that was
//!   opened last, so a second one that nobody uses would take it away from the first.
//! * DI-2: nothing takes longer than the deadline; while there are other addresses, one that is silent is left for them.
//! * DI-3: an address of this machine's own comes first.

use super::error::Error;
use super::introduction::{Introduction, Reply, Role};
use super::keys::{Credential, Key};
use super::proof::{self, Failure, Method, Proved, Verdict};
use super::talk::{Talk, Waiting, at_once};
use super::{PeerInfo, Secured, greet, session};
use crate::poll;
use paceline_proto::open::{ANSWER, Answer, Header, Kind};
use paceline_proto::{Address, LeaseId, LeaseSecret, Way};
use rustix::event::{PollFd, PollFlags};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with, sockopt};
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::time::{Duration, Instant};

/// How long one address is listened to while there are others.
const PATIENCE: Duration = Duration::from_secs(1);

/// A connection to a head.
#[derive(Debug)]
pub struct Dialed {
    pub secured: Secured,
    /// Who it is.
    pub peer: Introduction,
    /// Which of its addresses answered.
    pub address: Address,
    /// The cluster's key, for one that came with a token or a password.
    pub key: Option<Key>,
    /// What its user should know: versions that differ but will do.
    pub warning: Option<String>,
}

/// Open a control link to the head at one of these addresses.
pub fn dial(
    addresses: &[Address],
    credential: Option<&Credential>,
    me: &Introduction,
    deadline: Instant,
) -> Result<Dialed, Error> {
    reach(addresses, deadline, |socket, address, until| {
        at_once(greet_head(socket, address, credential, me, until))
    })
}

/// The same, for tasks of a tokio runtime.
pub async fn dial_async(
    addresses: Vec<Address>,
    credential: Option<Credential>,
    me: Introduction,
    within: Duration,
) -> Result<Dialed, Error> {
    let deadline = Instant::now() + within;
    let dialing = move || dial(&addresses, credential.as_ref(), &me, deadline);
    tokio::task::spawn_blocking(dialing).await.unwrap_or_else(|error| {
        Err(Error::Broken { address: "the head".into(), doing: "dialing", error: io::Error::other(error) })
    })
}

/// Open the data connection of a lease at its node.
pub fn dial_data(
    addresses: &[Address],
    lease: LeaseId,
    secret: LeaseSecret,
    deadline: Instant,
) -> Result<(Secured, Way), Error> {
    reach(addresses, deadline, |socket, address, until| {
        let sealed = matches!(address, Found::Tcp { .. });
        let way = if sealed { Way::Tls } else { Way::Unix };
        let talk = greet_slot(socket, address, lease, &secret, sealed, until);
        at_once(talk).map(|secured| (secured, way))
    })
}

/// Open a connection to the store of the node that has this lease. By way of another node it is sealed, whatever the way
/// to that one is.
pub fn dial_store(
    addresses: &[Address],
    relayed: bool,
    lease: LeaseId,
    secret: LeaseSecret,
    deadline: Instant,
) -> Result<Secured, Error> {
    dial_beside(Kind::Store, addresses, relayed, lease, secret, deadline)
}

/// The same between that store and the one of a client.
pub fn dial_objects(
    addresses: &[Address],
    relayed: bool,
    lease: LeaseId,
    secret: LeaseSecret,
    deadline: Instant,
) -> Result<Secured, Error> {
    dial_beside(Kind::Objects, addresses, relayed, lease, secret, deadline)
}

fn dial_beside(
    kind: Kind,
    addresses: &[Address],
    relayed: bool,
    lease: LeaseId,
    secret: LeaseSecret,
    deadline: Instant,
) -> Result<Secured, Error> {
    let header = Header { kind, id: lease.0 };
    reach(addresses, deadline, |socket, address, until| {
        let sealed = relayed || matches!(address, Found::Tcp { .. });
        at_once(greet_node(socket, address, header, &secret, sealed, until))
    })
}

/// The same by way of another node, which passes on sealed bytes, whatever the way to it is.
pub fn dial_relayed(
    addresses: &[Address],
    lease: LeaseId,
    secret: LeaseSecret,
    deadline: Instant,
) -> Result<(Secured, Way), Error> {
    reach(addresses, deadline, |socket, address, until| {
        at_once(greet_slot(socket, address, lease, &secret, true, until))
            .map(|secured| (secured, Way::Relayed))
    })
}

/// Answer the dialing side of a data or store connection whose header was read: the slot's or the node's part.
pub fn answer_data(socket: OwnedFd, secret: &LeaseSecret, deadline: Instant) -> io::Result<Secured> {
    let address = peer_address(&socket);
    let mut talk = Talk::new(Waiting { socket, until: deadline });
    at_once(async {
        talk.begin(session::server()?).await?;
        talk.handshake().await?;
        match proof::check_lease(&mut talk, &secret.0).await {
            Ok(_proved) => talk.into_secured(PeerInfo::Tls { address }),
            Err(Failure::Io(error)) => Err(error),
            Err(_) => {
                Err(io::Error::new(io::ErrorKind::PermissionDenied, "the lease's secret was not proved"))
            }
        }
    })
}

/// Where a connection has been made to.
#[derive(Clone, Debug)]
enum Found {
    Unix { name: String },
    Tcp { given: Address, at: SocketAddr },
}

impl Found {
    fn address(&self) -> Address {
        match self {
            Found::Unix { name } => Address::Unix(name.clone()),
            Found::Tcp { given, .. } => given.clone(),
        }
    }

    /// As people know it.
    fn name(&self) -> String {
        match self {
            Found::Unix { name } => format!("unix:{name}"),
            Found::Tcp { given, at } if given.to_string() == at.to_string() => at.to_string(),
            Found::Tcp { given, at } => format!("{given} ({at})"),
        }
    }
}

/// Try all addresses, and talk over the connections that come about, one after the other (DI-1).
fn reach<T>(
    addresses: &[Address],
    deadline: Instant,
    mut talk: impl FnMut(OwnedFd, &Found, Instant) -> Result<T, Error>,
) -> Result<T, Error> {
    let mut tried = Vec::new();
    let mut worst: Option<Error> = None;
    let mut squatted: Option<Error> = None;
    let names = addresses.iter().filter_map(|address| match address {
        Address::Unix(name) => Some(name),
        Address::Tcp { .. } => None,
    });
    for name in names {
        let found = Found::Unix { name: name.clone() };
        match connect_unix(name) {
            Err(error) => tried.push(format!("{}: {error}", found.name())),
            Ok(socket) => match talk(socket, &found, deadline) {
                // Whoever knows an abstract name can take it, on another machine or once its owner is gone: that must not
                // keep us from the owner's port.
                Err(error @ Error::OtherUser { .. }) => squatted = Some(error),
                Err(error) if !error.is_passing() => return Err(error),
                Err(error) => worst = Some(error),
                talked => return talked,
            },
        }
    }
    let mut connecting = Connecting::start(addresses, deadline, &mut tried);
    while let Some((socket, found)) = connecting.next(deadline, &mut tried) {
        let alone = connecting.is_empty();
        let until = if alone { deadline } else { deadline.min(Instant::now() + PATIENCE) };
        match talk(socket, &found, until) {
            Ok(talked) => return Ok(talked),
            // What one says for good outweighs the silence of others.
            Err(error) if worst.as_ref().is_none_or(Error::is_passing) => worst = Some(error),
            Err(_) => {}
        }
    }
    Err(worst.or(squatted).unwrap_or_else(|| Error::Unreachable {
        tried: if tried.is_empty() { "it has no address".into() } else { tried.join(", ") },
    }))
}

fn connect_unix(name: &str) -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    connect(&socket, &SocketAddrUnix::new_abstract_name(name.as_bytes())?)?;
    Ok(socket)
}

/// Connections that are being made.
struct Connecting {
    sockets: Vec<(OwnedFd, Found)>,
}

impl Connecting {
    fn start(addresses: &[Address], deadline: Instant, tried: &mut Vec<String>) -> Connecting {
        let mut sockets = Vec::new();
        for given in addresses {
            let Address::Tcp { host, port } = given else { continue };
            match resolve(host, *port, deadline) {
                Ok(found) => {
                    for at in found {
                        match begin_connect(at) {
                            Ok(socket) => sockets.push((socket, Found::Tcp { given: given.clone(), at })),
                            Err(error) => tried.push(format!("{given}: {error}")),
                        }
                    }
                }
                Err(error) => tried.push(format!("{given}: {error}")),
            }
        }
        Connecting { sockets }
    }

    fn is_empty(&self) -> bool {
        self.sockets.is_empty()
    }

    /// The next that is made.
    fn next(&mut self, deadline: Instant, tried: &mut Vec<String>) -> Option<(OwnedFd, Found)> {
        while !self.sockets.is_empty() {
            let left = deadline.saturating_duration_since(Instant::now());
            let mut waits: Vec<_> =
                self.sockets.iter().map(|(socket, _)| PollFd::new(socket, PollFlags::OUT)).collect();
            let waited = poll::wait(&mut waits, Some(left));
            let ready = waits.iter().position(|wait| !wait.revents().is_empty());
            drop(waits);
            match ready {
                Some(place) => {
                    let (socket, found) = self.sockets.remove(place);
                    match sockopt::socket_error(&socket) {
                        Ok(Ok(())) => return Some((socket, found)),
                        Ok(Err(error)) | Err(error) => {
                            tried.push(format!("{}: {}", found.name(), io::Error::from(error)));
                        }
                    }
                }
                None if left.is_zero() || waited.is_err() => {
                    tried.extend(
                        self.sockets.drain(..).map(|(_, found)| format!("{}: no answer", found.name())),
                    );
                }
                None => {}
            }
        }
        None
    }
}

/// What a host's name stands for. Looking a name up may take longer than anybody wants to wait.
fn resolve(host: &str, port: u16, deadline: Instant) -> io::Result<Vec<SocketAddr>> {
    if let Ok(address) = host.parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(address, port)]);
    }
    let (found, finds) = std::sync::mpsc::sync_channel(1);
    let host = host.to_string();
    std::thread::Builder::new().name("paceline-lookup".into()).spawn(move || {
        let all = (host.as_str(), port).to_socket_addrs().map(|all| all.take(8).collect());
        let _ = found.send(all);
    })?;
    let left = deadline.saturating_duration_since(Instant::now());
    finds.recv_timeout(left).unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

fn begin_connect(at: SocketAddr) -> io::Result<OwnedFd> {
    let family = if at.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(family, SocketType::STREAM, flags, None)?;
    prepare_tcp(&socket)?;
    match connect(&socket, &at) {
        Ok(()) | Err(Errno::INPROGRESS) => Ok(socket),
        Err(error) => Err(error.into()),
    }
}

/// Nothing waits for more to travel with; and a machine that went without a word is noticed in the end.
pub(crate) fn prepare_tcp(socket: impl rustix::fd::AsFd) -> io::Result<()> {
    sockopt::set_tcp_nodelay(&socket, true)?;
    sockopt::set_socket_keepalive(&socket, true)?;
    sockopt::set_tcp_keepidle(&socket, Duration::from_secs(10))?;
    sockopt::set_tcp_keepintvl(&socket, Duration::from_secs(5))?;
    Ok(sockopt::set_tcp_keepcnt(&socket, 4)?)
}

pub(crate) fn peer_address(socket: impl rustix::fd::AsFd) -> SocketAddr {
    let found =
        rustix::net::getpeername(&socket).ok().flatten().and_then(|peer| SocketAddr::try_from(peer).ok());
    found.unwrap_or_else(|| SocketAddr::from(([0, 0, 0, 0], 0)))
}

/// Say whom we are to a head, and hear who it is.
async fn greet_head(
    socket: OwnedFd,
    found: &Found,
    credential: Option<&Credential>,
    me: &Introduction,
    until: Instant,
) -> Result<Dialed, Error> {
    let kind = if me.role == Role::Node { Kind::Node } else { Kind::Client };
    let header = Header { kind, id: 0 };
    let mut talk = Talk::new(Waiting { socket, until });
    let (proved, peer) = match found {
        Found::Unix { .. } => {
            let (proved, uid, pid) =
                Proved::by_the_kernel(talk.socket()).map_err(|why| failed(found, why))?;
            talk.send(&header.encode()).await.map_err(|error| broken(found, "saying what for", error))?;
            hear_answer(&mut talk, found).await?;
            (proved, PeerInfo::Unix { uid, pid })
        }
        Found::Tcp { at, .. } => {
            let address = found.name();
            let credential = credential.ok_or(Error::NoCredential { address })?;
            seal(&mut talk, found, &header).await?;
            let proved = proof::show(&mut talk, credential).await.map_err(|why| failed(found, why))?;
            (proved, PeerInfo::Tls { address: *at })
        }
    };
    let wrong = |error| broken(found, "introducing ourselves", error);
    greet::tell(&mut talk, me).await.map_err(wrong)?;
    let reply: Reply = greet::hear(&mut talk, &proved).await.map_err(wrong)?;
    if let Some(text) = reply.refused {
        return Err(Error::Refused { address: found.name(), text });
    }
    let key = reply.key.and_then(|key| <[u8; 32]>::try_from(key.as_slice()).ok()).map(Key::from_bytes);
    let secured = talk.into_secured(peer).map_err(wrong)?;
    Ok(Dialed { secured, peer: reply.me, address: found.address(), key, warning: reply.warning })
}

/// Reach the slot that has this lease.
async fn greet_slot(
    socket: OwnedFd,
    found: &Found,
    lease: LeaseId,
    secret: &LeaseSecret,
    sealed: bool,
    until: Instant,
) -> Result<Secured, Error> {
    let header = Header { kind: Kind::Data, id: lease.0 };
    greet_node(socket, found, header, secret, sealed, until).await
}

/// Reach what a node has under a lease.
async fn greet_node(
    socket: OwnedFd,
    found: &Found,
    header: Header,
    secret: &LeaseSecret,
    sealed: bool,
    until: Instant,
) -> Result<Secured, Error> {
    let mut talk = Talk::new(Waiting { socket, until });
    let peer = match found {
        Found::Unix { .. } => {
            let (_proved, uid, pid) =
                Proved::by_the_kernel(talk.socket()).map_err(|why| failed(found, why))?;
            PeerInfo::Unix { uid, pid }
        }
        Found::Tcp { at, .. } => PeerInfo::Tls { address: *at },
    };
    if sealed {
        seal(&mut talk, found, &header).await?;
        proof::show_lease(&mut talk, &secret.0).await.map_err(|why| failed(found, why))?;
    } else {
        talk.send(&header.encode()).await.map_err(|error| broken(found, "saying what for", error))?;
    }
    talk.into_secured(peer).map_err(|error| broken(found, "reaching the slot", error))
}

/// Say what for, and have TLS from then on.
async fn seal(talk: &mut Talk<Waiting>, found: &Found, header: &Header) -> Result<(), Error> {
    let wrong = |error| broken(found, "agreeing on keys", error);
    talk.send(&header.encode()).await.map_err(wrong)?;
    talk.begin(session::client().map_err(wrong)?).await.map_err(wrong)?;
    // A refusal is said in the clear.
    let first = talk.peek().await.map_err(|error| broken(found, "waiting for its first word", error))?;
    if Answer::begins(first) {
        return hear_answer(talk, found).await;
    }
    // Neither an answer nor a record of TLS.
    if !(20..=23).contains(&first) {
        return Err(Error::Stranger { address: found.name() });
    }
    talk.handshake().await.map_err(wrong)
}

/// What is said of our header in the clear.
async fn hear_answer(talk: &mut Talk<Waiting>, found: &Found) -> Result<(), Error> {
    let bytes: [u8; ANSWER] =
        talk.receive_plain().await.map_err(|error| broken(found, "waiting for its first word", error))?;
    let address = found.name();
    Err(match Answer::decode(&bytes) {
        Ok(Answer::Good) => return Ok(()),
        Ok(Answer::Version) | Err(paceline_proto::Error::Version { .. }) => {
            Error::Version { address, theirs: bytes[2] }
        }
        Ok(Answer::Lease) => Error::Lease { address },
        Ok(Answer::Kind) => Error::Kind { address },
        Ok(Answer::Busy) => Error::Busy { address },
        Err(_) => Error::Stranger { address },
    })
}

fn failed(found: &Found, why: Failure) -> Error {
    let address = found.name();
    match why {
        Failure::Io(error) => broken(found, "proving who we are", error),
        Failure::OtherUser { theirs, ours } => Error::OtherUser { address, theirs, ours },
        Failure::Delayed(delay) => {
            Error::PasswordDelayed { address, seconds: delay.as_millis().div_ceil(1000) as u64 }
        }
        Failure::Impostor => Error::Impostor { address },
        Failure::Refused(Method::Key, _) => Error::WrongKey { address },
        Failure::Refused(Method::Token, _) => Error::Token { address },
        Failure::Refused(Method::Lease, _) => Error::Lease { address },
        Failure::Refused(Method::Password, Verdict::Unknown) => Error::NoPassword { address },
        Failure::Refused(Method::Password, _) => Error::WrongPassword { address },
    }
}

fn broken(found: &Found, doing: &'static str, error: io::Error) -> Error {
    let address = found.name();
    match error.kind() {
        io::ErrorKind::TimedOut => Error::Silent { address, doing },
        io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => {
            Error::Closed { address, doing }
        }
        _ => Error::Broken { address, doing, error },
    }
}
