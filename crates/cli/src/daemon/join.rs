//! Reaching a head that is elsewhere: the first time, and again whenever the link has ended.
//!
//! * JO-1: a head that cannot be reached at first is said to be so within a second.
//! * JO-2: later it is looked for again and again, ever more slowly, until the node gives up, which its core decides.

use super::plan::Credentials;
use crate::failure::{Code, Failure, failed, usage};
use paceline_net::secure::{self, Credential, Dialed, Error, Introduction, Key, Password, Role, Token};
use paceline_node::Handle;
use paceline_proto::Address;
use paceline_registry::Home;
use std::net::{TcpStream, ToSocketAddrs};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// How long a connection may take to come about at first.
const KNOCK: Duration = Duration::from_millis(900);
/// How long a head that took the connection may take for the rest.
const TALK: Duration = Duration::from_secs(8);
/// Between two attempts to find it again.
const SOONEST: Duration = Duration::from_millis(50);
const LATEST: Duration = Duration::from_secs(2);

/// What it takes to reach the head.
#[derive(Clone)]
pub struct Dial {
    pub address: Address,
    pub credential: Option<Credential>,
    pub me: Introduction,
}

impl Dial {
    pub async fn again(&self) -> Result<Dialed, Error> {
        secure::dial_async(vec![self.address.clone()], self.credential.clone(), self.me.clone(), TALK).await
    }

    /// On behalf of a slot here, which is a client with the rights of one.
    pub async fn as_slot(&self) -> Result<Dialed, Error> {
        let me = Introduction { role: Role::Slot, ..self.me.clone() };
        secure::dial_async(vec![self.address.clone()], self.credential.clone(), me, TALK).await
    }
}

/// Uses a token up for the cluster's key, which takes its place among the credentials. False: there is no token.
pub fn redeem(credentials: &mut Credentials, address: &Address, name: &str) -> Result<bool, Failure> {
    let Some(text) = credentials.token.take() else { return Ok(false) };
    let token: Token = text.parse().map_err(|error| usage(format!("the token cannot be read: {error}")))?;
    let credential = Some(Credential::Token(token));
    // It comes as nobody in particular: only the key is wanted of this connection.
    let me = Introduction::new(Role::Client, name, None);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let dialed = runtime.block_on(async {
        knock(address).await?;
        let dialing = secure::dial_async(vec![address.clone()], credential, me, TALK).await;
        dialing.map_err(|error| failure(&error))
    })?;
    let key = dialed.key.ok_or_else(|| failed(format!("{address} took the token, but gave no key")))?;
    *credentials = Credentials { key: Some(key.text()), ..Credentials::default() };
    Ok(true)
}

/// Reach the head for the first time (JO-1).
pub async fn first(dial: &mut Dial) -> Result<Dialed, Failure> {
    knock(&dial.address).await?;
    let dialed = dial.again().await.map_err(|error| failure(&error))?;
    if let Some(key) = &dialed.key {
        // A token is good for once; from now on it is the key.
        dial.credential = Some(Credential::Key(key.clone()));
    }
    Ok(dialed)
}

/// Whether anybody listens there at all.
async fn knock(address: &Address) -> Result<(), Failure> {
    let Address::Tcp { host, port } = address.clone() else { return Ok(()) };
    let name = address.to_string();
    let knocking = tokio::task::spawn_blocking(move || {
        let until = Instant::now() + KNOCK;
        let mut last = "there is no such host".to_owned();
        for found in (host.as_str(), port).to_socket_addrs().map_err(|error| error.to_string())? {
            let left = until.saturating_duration_since(Instant::now()).max(Duration::from_millis(10));
            match TcpStream::connect_timeout(&found, left) {
                Ok(_) => return Ok(()),
                Err(error) => last = error.to_string(),
            }
        }
        Err(last)
    });
    let limited = tokio::time::timeout(KNOCK + Duration::from_millis(50), knocking).await;
    match limited {
        Ok(Ok(Ok(()))) => Ok(()),
        Ok(Ok(Err(why))) => Err(unreachable(&name, &why)),
        Ok(Err(_)) | Err(_) => Err(unreachable(&name, "no answer")),
    }
}

fn unreachable(address: &str, why: &str) -> Failure {
    let text = format!("no head answers at {address}: {why}");
    Failure::new(Code::Unreachable, text)
        .hint("is it running there (paceline status), bound to that address (--bind), and may this machine reach that port?")
}

/// Keep the node's link to the head: whenever it has ended, find the head again (JO-2).
pub async fn keep(dial: Dial, node: Handle, ended: Arc<Notify>, headless: Arc<AtomicBool>) {
    loop {
        ended.notified().await;
        tracing::warn!(address = %dial.address, "the head is out of reach");
        let mut pause = SOONEST;
        loop {
            match dial.again().await {
                Ok(dialed) => {
                    tracing::info!(address = %dial.address, "the head is back");
                    headless.store(false, Ordering::Relaxed);
                    node.join(dialed.secured);
                    break;
                }
                Err(error) => tracing::debug!(%error, "the head is still out of reach"),
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LATEST);
        }
    }
}

/// What opens the head at this address: what was given, or a key that this machine has of it.
pub fn credential(
    given: &Credentials,
    home: &Home,
    address: &Address,
) -> Result<Option<Credential>, Failure> {
    if let Some(token) = &given.token {
        let token: Token =
            token.parse().map_err(|error| usage(format!("the token cannot be read: {error}")))?;
        return Ok(Some(Credential::Token(token)));
    }
    if let Some(path) = &given.key_file {
        return read_key(path).map(|key| Some(Credential::Key(key)));
    }
    if let Some(text) = &given.key {
        return key_of(text).map(|key| Some(Credential::Key(key)));
    }
    if let Some(password) = &given.password {
        return Ok(Some(Credential::Password(Password::new(password.clone()))));
    }
    match home.key_of(&address.to_string()) {
        Some(path) => read_key(&path).map(|key| Some(Credential::Key(key))),
        None => Ok(None),
    }
}

/// The key that `PACELINE_KEY` is, or names the file of.
pub fn key_of(text: &str) -> Result<Key, Failure> {
    if text.contains('/') {
        return read_key(Path::new(text));
    }
    text.parse().map_err(|error| usage(format!("PACELINE_KEY cannot be read: {error}")))
}

pub fn read_key(path: &Path) -> Result<Key, Failure> {
    Key::read(path).map_err(|error| failed(format!("the key in {} cannot be used: {error}", path.display())))
}

/// Why a connection could not be had, for people and scripts.
pub fn failure(error: &Error) -> Failure {
    let code = match error.code() {
        "unreachable" | "closed" | "broken" | "busy" => Code::Unreachable,
        "silent" => Code::TimedOut,
        _ => Code::Refused,
    };
    let text = error.to_string();
    match text.split_once("\nhint: ") {
        Some((message, hint)) => Failure::new(code, message).hint(hint),
        None => Failure::new(code, text),
    }
}
