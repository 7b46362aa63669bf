//! How the two sides of a TLS session prove that they know the same secret.
//!
//! The dialing side speaks first: which kind of secret, and a code over keying material of the session. The other side
//! answers with its own code, over other keying material, or with why not. A password is not proved by a code but by
//! OPAQUE, bound to the session all the same.
//!
//! ```text
//! | method u8 | 0 x 7 | id 8 bytes | code 32 bytes |      proof
//! | verdict u8 | 0 x 7 | code 32 bytes |                 answer
//! ```
//!
//! * PR-1: every message has a fixed size (SE-1), and a code is good for one side of one session.
//! * PR-2: only a proof makes a [`Proved`], without which nothing of variable length is read.
//! * PR-3: who shows a head a wrong key or token waits for [`PENALTY`] to hear of it. Passwords can be guessed, so admission
//!   control decides when an exchange begins (`GU-1` to `GU-4`).

use super::admission::Pending;
use super::keys;
use super::keys::{Credential, Keys, Unusable};
use super::password::{self, Password};
use super::talk::{Socket, Talk};
use aws_lc_rs::hmac;
use std::io;
use std::time::Duration;

const PROOF: usize = 48;
const ANSWER: usize = 40;

/// How long a failed proof takes.
pub(crate) const PENALTY: Duration = Duration::from_secs(1);

const DIALER: &[u8] = b"EXPORTER-paceline-dialer";
const LISTENER: &[u8] = b"EXPORTER-paceline-listener";

/// The peer is who it says it is, by a secret or by the kernel's word.
#[derive(Debug)]
pub(crate) struct Proved(());

impl Proved {
    /// The kernel has named the user at the other end of a unix socket, and it is ours.
    pub(crate) fn by_the_kernel(socket: impl rustix::fd::AsFd) -> Result<(Proved, u32, u32), Failure> {
        let peer = rustix::net::sockopt::socket_peercred(socket).map_err(io::Error::from)?;
        let (ours, theirs) = (rustix::process::geteuid().as_raw(), peer.uid.as_raw());
        if ours != theirs {
            return Err(Failure::OtherUser { theirs, ours });
        }
        Ok((Proved(()), theirs, peer.pid.as_raw_nonzero().get() as u32))
    }
}

/// What a listening side knows of a peer that has proved who it is.
#[derive(Debug)]
pub(crate) struct Proof {
    pub proved: Proved,
    /// None: by the kernel's word.
    pub method: Option<Method>,
    /// The short name of the token it came with, for people.
    pub token: Option<String>,
}

/// Which kind of secret.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Method {
    Key = 1,
    Token = 2,
    Password = 3,
    Lease = 4,
}

impl Method {
    fn of(byte: u8) -> io::Result<Method> {
        match byte {
            1 => Ok(Method::Key),
            2 => Ok(Method::Token),
            3 => Ok(Method::Password),
            4 => Ok(Method::Lease),
            _ => Err(io::Error::new(io::ErrorKind::InvalidData, "an unknown kind of proof")),
        }
    }
}

/// What the listening side makes of a proof.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
    Good = 0,
    Wrong = 1,
    /// There is no such token, or no password at all.
    Unknown = 2,
    /// Too many passwords were tried: the answer says when to try again.
    Later = 3,
}

/// Why there is no proof.
#[derive(Debug)]
pub(crate) enum Failure {
    Io(io::Error),
    /// Ours was not taken.
    Refused(Method, Verdict),
    /// Ours was not looked at; try again after this long.
    Delayed(Duration),
    /// Theirs was wrong.
    Impostor,
    OtherUser {
        theirs: u32,
        ours: u32,
    },
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        Failure::Io(error)
    }
}

fn code<S: Socket>(talk: &Talk<S>, label: &[u8], method: Method, secret: &[u8]) -> io::Result<[u8; 32]> {
    let session = talk.export(label)?;
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret);
    let mut context = hmac::Context::with_key(&key);
    context.update(&[method as u8]);
    context.update(&session);
    Ok(context.sign().as_ref().try_into().expect("the code has 32 bytes"))
}

fn is_same(one: &[u8; 32], other: &[u8]) -> bool {
    aws_lc_rs::constant_time::verify_slices_are_equal(one, other).is_ok()
}

/// Prove what we know, and see that they know it too.
pub(crate) async fn show<S: Socket>(talk: &mut Talk<S>, credential: &Credential) -> Result<Proved, Failure> {
    match credential {
        Credential::Key(key) => show_secret(talk, Method::Key, [0; 8], key.bytes()).await,
        Credential::Token(token) => show_secret(talk, Method::Token, token.id, &token.secret).await,
        Credential::Password(password) => show_password(talk, password).await,
    }
}

/// Prove a lease's secret.
pub(crate) async fn show_lease<S: Socket>(talk: &mut Talk<S>, secret: &[u8; 32]) -> Result<Proved, Failure> {
    show_secret(talk, Method::Lease, [0; 8], secret).await
}

async fn show_secret<S: Socket>(
    talk: &mut Talk<S>,
    method: Method,
    id: [u8; 8],
    secret: &[u8],
) -> Result<Proved, Failure> {
    let mut proof = [0; PROOF];
    proof[0] = method as u8;
    proof[8..16].copy_from_slice(&id);
    proof[16..].copy_from_slice(&code(talk, DIALER, method, secret)?);
    talk.send(&proof).await?;
    let answer = hear(talk, method).await?;
    if !is_same(&code(talk, LISTENER, method, secret)?, &answer[8..]) {
        return Err(Failure::Impostor);
    }
    Ok(Proved(()))
}

async fn show_password<S: Socket>(talk: &mut Talk<S>, password: &Password) -> Result<Proved, Failure> {
    let session = talk.export(DIALER)?;
    let (asking, first) = password::ask(password).ok_or(Failure::Impostor)?;
    let mut proof = [0; PROOF];
    proof[0] = Method::Password as u8;
    talk.send(&proof).await?;
    talk.send(&first).await?;
    hear(talk, Method::Password).await?;
    let second = talk.receive().await?;
    let Some(third) = asking.finish(&session, &second) else {
        return Err(Failure::Refused(Method::Password, Verdict::Wrong));
    };
    talk.send(&third).await?;
    hear(talk, Method::Password).await?;
    Ok(Proved(()))
}

async fn hear<S: Socket>(talk: &mut Talk<S>, method: Method) -> Result<[u8; ANSWER], Failure> {
    let answer: [u8; ANSWER] = talk.receive().await?;
    match answer[0] {
        0 => Ok(answer),
        1 => Err(Failure::Refused(method, Verdict::Wrong)),
        3 => {
            let millis = u32::from_le_bytes(*answer[8..].first_chunk().expect("it is longer"));
            Err(Failure::Delayed(Duration::from_millis(millis.into())))
        }
        _ => Err(Failure::Refused(method, Verdict::Unknown)),
    }
}

async fn say<S: Socket>(talk: &mut Talk<S>, verdict: Verdict, code: [u8; 32]) -> io::Result<()> {
    let mut answer = [0; ANSWER];
    answer[0] = verdict as u8;
    answer[8..].copy_from_slice(&code);
    talk.send(&answer).await
}

/// Hear a proof, and prove in turn that we know the secret. One that is wrong hears of it late (PR-3).
pub(crate) async fn check<S: Socket>(
    talk: &mut Talk<S>,
    keys: &Keys,
    pending: &Pending,
) -> Result<Proof, Failure> {
    let proof: [u8; PROOF] = talk.receive().await?;
    let method = Method::of(proof[0])?;
    let (id, theirs) = proof[8..].split_first_chunk::<8>().expect("it is longer");
    let code_of = |secret: &[u8]| code(talk, DIALER, method, secret);
    let secret = match method {
        Method::Key => {
            let same = is_same(&code_of(keys.key().bytes())?, theirs);
            if same { Ok(keys.key().bytes().to_vec()) } else { Err(Verdict::Wrong) }
        }
        Method::Token => keys
            .redeem(id, |secret| code_of(secret).is_ok_and(|code| is_same(&code, theirs)))
            .map(|token| token.secret.to_vec())
            .map_err(|why| if why == Unusable::Wrong { Verdict::Wrong } else { Verdict::Unknown }),
        Method::Password => return check_password(talk, keys, pending).await,
        // Nobody has a lease at this port.
        Method::Lease => Err(Verdict::Unknown),
    };
    match secret {
        Ok(secret) => {
            let secret = zeroize::Zeroizing::new(secret);
            let code = code(talk, LISTENER, method, &secret)?;
            say(talk, Verdict::Good, code).await?;
            let token = (method == Method::Token).then(|| keys::hex(&id[..4]));
            Ok(Proof { proved: Proved(()), method: Some(method), token })
        }
        Err(verdict) => Err(refuse(talk, method, verdict).await),
    }
}

async fn check_password<S: Socket>(
    talk: &mut Talk<S>,
    keys: &Keys,
    pending: &Pending,
) -> Result<Proof, Failure> {
    let first = talk.receive().await?;
    let session = talk.export(DIALER)?;
    let Some(record) = keys.password() else {
        return Err(refuse(talk, Method::Password, Verdict::Unknown).await);
    };
    // Whoever hears the next message can see whether its guess was right, so the wait is before it, and every exchange
    // that is not brought to a good end counts as a failed one.
    if let Err(denied) = pending.guess_turn().await {
        let mut code = [0; 32];
        let millis = u32::try_from(denied.retry_in.as_millis()).unwrap_or(u32::MAX);
        code[..4].copy_from_slice(&millis.to_le_bytes());
        say(talk, Verdict::Later, code).await?;
        return Err(Failure::Delayed(denied.retry_in));
    }
    // No penalty on top: an exchange that lasts keeps others waiting.
    let Some((answering, second)) = password::answer(record, &session, &first) else {
        say(talk, Verdict::Wrong, [0; 32]).await?;
        return Err(Failure::Refused(Method::Password, Verdict::Wrong));
    };
    say(talk, Verdict::Good, [0; 32]).await?;
    talk.send(&second).await?;
    let third = talk.receive().await?;
    if !answering.finish(&session, &third) {
        say(talk, Verdict::Wrong, [0; 32]).await?;
        return Err(Failure::Refused(Method::Password, Verdict::Wrong));
    }
    // Before it is told, so that a peer which goes on at once finds its failures forgiven.
    pending.authenticated();
    say(talk, Verdict::Good, [0; 32]).await?;
    Ok(Proof { proved: Proved(()), method: Some(Method::Password), token: None })
}

async fn refuse<S: Socket>(talk: &mut Talk<S>, method: Method, verdict: Verdict) -> Failure {
    tokio::time::sleep(PENALTY).await;
    let _ = say(talk, verdict, [0; 32]).await;
    Failure::Refused(method, verdict)
}

/// Hear the proof of a lease's secret, and prove it in turn. Nobody guesses that: there is no penalty.
pub(crate) async fn check_lease<S: Socket>(talk: &mut Talk<S>, secret: &[u8; 32]) -> Result<Proved, Failure> {
    let proof: [u8; PROOF] = talk.receive().await?;
    let good =
        proof[0] == Method::Lease as u8 && is_same(&code(talk, DIALER, Method::Lease, secret)?, &proof[16..]);
    if !good {
        say(talk, Verdict::Wrong, [0; 32]).await?;
        return Err(Failure::Refused(Method::Lease, Verdict::Wrong));
    }
    let code = code(talk, LISTENER, Method::Lease, secret)?;
    say(talk, Verdict::Good, code).await?;
    Ok(Proved(()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fds;
    use crate::secure::session;
    use crate::secure::talk::{Waiting, at_once};
    use rustix::fd::OwnedFd;
    use std::time::Instant;

    const SECRET: [u8; 32] = [5; 32];

    /// One side of a session.
    fn talk(socket: OwnedFd, listens: bool) -> Talk<Waiting> {
        let mut talk = Talk::new(Waiting { socket, until: Instant::now() + Duration::from_secs(10) });
        let connection = if listens { session::server() } else { session::client() };
        at_once(async {
            talk.begin(connection.unwrap()).await.unwrap();
            talk.handshake().await.unwrap();
        });
        talk
    }

    fn dialer() -> (OwnedFd, std::thread::JoinHandle<Result<Proved, Failure>>) {
        let (near, far) = fds::pair().unwrap();
        let dialing = std::thread::spawn(move || at_once(show_lease(&mut talk(near, false), &SECRET)));
        (far, dialing)
    }

    #[test]
    fn one_that_takes_any_proof_is_an_impostor() {
        let (far, dialing) = dialer();
        at_once(async {
            let mut talk = talk(far, true);
            let proof: [u8; PROOF] = talk.receive().await.unwrap();
            // What it was told it can say, but that is not the code of its side.
            let code = proof[16..].try_into().unwrap();
            say(&mut talk, Verdict::Good, code).await.unwrap();
        });
        assert!(matches!(dialing.join().unwrap(), Err(Failure::Impostor)), "PR-1");
    }

    #[test]
    fn a_proof_is_worth_nothing_in_another_session() {
        let (far, dialing) = dialer();
        let (near, head) = fds::pair().unwrap();
        let listening = std::thread::spawn(move || at_once(check_lease(&mut talk(head, true), &SECRET)));
        // One in between has a session with each, and passes on what they say.
        let (mut there, mut here) = (talk(far, true), talk(near, false));
        at_once(async {
            let proof: [u8; PROOF] = there.receive().await.unwrap();
            here.send(&proof).await.unwrap();
            let answer: [u8; ANSWER] = here.receive().await.unwrap();
            there.send(&answer).await.unwrap();
        });
        let refused = |proof| matches!(proof, Err(Failure::Refused(Method::Lease, Verdict::Wrong)));
        assert!(refused(listening.join().unwrap()) && refused(dialing.join().unwrap()), "PR-1");
    }
}
