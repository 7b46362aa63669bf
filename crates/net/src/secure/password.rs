//! Passwords, by OPAQUE: neither what travels nor what the head keeps lets anybody try passwords by themselves.
//!
//! * PW-1: every message has a fixed size.
//! * PW-2: an exchange is good for the TLS session it took place in, and for no other.

use opaque_ke::argon2::Argon2;
use opaque_ke::{
    CipherSuite, ClientLogin, ClientLoginFinishParameters, ClientRegistration,
    ClientRegistrationFinishParameters, CredentialFinalization, CredentialRequest, CredentialResponse,
    Identifiers, Ristretto255, ServerLogin, ServerLoginParameters, ServerRegistration, ServerSetup, TripleDh,
};
use rand_core::OsRng;
use std::fmt;
use zeroize::Zeroizing;

/// The fewest characters a cluster's password may have.
pub const MIN_PASSWORD_CHARS: usize = 8;

/// There is one account: the cluster's.
const ACCOUNT: &[u8] = b"paceline";

/// Sizes of the three messages (PW-1).
pub(crate) const FIRST: usize = 96;
pub(crate) const SECOND: usize = 320;
pub(crate) const THIRD: usize = 64;

struct Suite;

impl CipherSuite for Suite {
    type OprfCs = Ristretto255;
    type KeyExchange = TripleDh<Ristretto255, sha2::Sha512>;
    type Ksf = Argon2<'static>;
}

/// A password as its user knows it.
#[derive(Clone)]
pub struct Password(Zeroizing<String>);

impl Password {
    pub fn new(text: String) -> Password {
        Password(Zeroizing::new(text))
    }

    /// Returns whether a cluster may have this password.
    pub fn is_long_enough(&self) -> bool {
        self.0.chars().count() >= MIN_PASSWORD_CHARS
    }

    /// What a head needs to know it by. Takes as long as a wrong guess is to cost.
    pub fn register(&self) -> Record {
        let setup = ServerSetup::<Suite>::new(&mut OsRng);
        let made = self.try_register(&setup).expect("both sides are our own");
        Record { setup, registration: made }
    }

    fn try_register(
        &self,
        setup: &ServerSetup<Suite>,
    ) -> Result<ServerRegistration<Suite>, opaque_ke::errors::ProtocolError> {
        let started = ClientRegistration::<Suite>::start(&mut OsRng, self.0.as_bytes())?;
        let answer = ServerRegistration::<Suite>::start(setup, started.message, ACCOUNT)?;
        let parameters = ClientRegistrationFinishParameters::default();
        let finished = started.state.finish(&mut OsRng, self.0.as_bytes(), answer.message, parameters)?;
        Ok(ServerRegistration::finish(finished.message))
    }
}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Password(..)")
    }
}

/// What a head keeps of a password.
#[derive(Clone)]
pub struct Record {
    setup: ServerSetup<Suite>,
    registration: ServerRegistration<Suite>,
}

impl Record {
    pub fn to_bytes(&self) -> Vec<u8> {
        [&self.setup.serialize()[..], &self.registration.serialize()[..]].concat()
    }

    /// None: these bytes are no record.
    pub fn from_bytes(bytes: &[u8]) -> Option<Record> {
        let length = ServerSetup::<Suite>::new(&mut OsRng).serialize().len();
        let (setup, registration) = bytes.split_at_checked(length)?;
        let setup = ServerSetup::deserialize(setup).ok()?;
        Some(Record { setup, registration: ServerRegistration::deserialize(registration).ok()? })
    }
}

impl fmt::Debug for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Record(..)")
    }
}

/// The side that knows the password, until the answer is there.
pub(crate) struct Asking<'a> {
    password: &'a Password,
    state: ClientLogin<Suite>,
}

/// Begin.
pub(crate) fn ask(password: &Password) -> Option<(Asking<'_>, [u8; FIRST])> {
    let started = ClientLogin::<Suite>::start(&mut OsRng, password.0.as_bytes()).ok()?;
    let message = started.message.serialize().as_slice().try_into().ok()?;
    Some((Asking { password, state: started.state }, message))
}

impl Asking<'_> {
    /// None: the password is wrong, or the other side does not know it.
    pub(crate) fn finish(self, session: &[u8; 32], answer: &[u8; SECOND]) -> Option<[u8; THIRD]> {
        let answer = CredentialResponse::<Suite>::deserialize(answer).ok()?;
        let parameters = ClientLoginFinishParameters::new(Some(session), Identifiers::default(), None);
        let finished = self.state.finish(&mut OsRng, self.password.0.as_bytes(), answer, parameters).ok()?;
        finished.message.serialize().as_slice().try_into().ok()
    }
}

/// The head's side, until the last message is there.
pub(crate) struct Answering(ServerLogin<Suite>);

pub(crate) fn answer(
    record: &Record,
    session: &[u8; 32],
    first: &[u8; FIRST],
) -> Option<(Answering, [u8; SECOND])> {
    let request = CredentialRequest::<Suite>::deserialize(first).ok()?;
    let known = Some(record.registration.clone());
    let parameters = parameters(session);
    let started = ServerLogin::start(&mut OsRng, &record.setup, known, request, ACCOUNT, parameters).ok()?;
    let message = started.message.serialize().as_slice().try_into().ok()?;
    Some((Answering(started.state), message))
}

impl Answering {
    /// Whether the other side knows the password.
    pub(crate) fn finish(self, session: &[u8; 32], last: &[u8; THIRD]) -> bool {
        CredentialFinalization::<Suite>::deserialize(last)
            .is_ok_and(|last| self.0.finish(last, parameters(session)).is_ok())
    }
}

fn parameters(session: &[u8; 32]) -> ServerLoginParameters<'_, 'static> {
    ServerLoginParameters { context: Some(session), identifiers: Identifiers::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exchange(record: &Record, password: &str, here: [u8; 32], there: [u8; 32]) -> bool {
        let password = Password::new(password.into());
        let (asking, first) = ask(&password).unwrap();
        let (answering, second) = answer(record, &there, &first).unwrap();
        asking.finish(&here, &second).is_some_and(|third| answering.finish(&there, &third))
    }

    #[test]
    fn the_right_password_in_one_session_only() {
        let record = Password::new("correct horse".into()).register();
        let kept = Record::from_bytes(&record.to_bytes()).unwrap();
        assert!(exchange(&kept, "correct horse", [1; 32], [1; 32]), "PW-1");
        assert!(!exchange(&kept, "correct house", [1; 32], [1; 32]));
        assert!(!exchange(&kept, "correct horse", [1; 32], [2; 32]), "PW-2");
        assert!(Record::from_bytes(b"nonsense").is_none());
    }
}
