//! What lets somebody in: the cluster's key, tokens for one join, a password.
//!
//! * KY-1: no secret shows up in what is printed for debugging, and its memory is cleared when it goes.
//! * KY-2: a key is read only from a file that nobody but its owner can read, and whose owner we are.
//! * KY-3: a token lets one in within [`TOKEN_LIVES`], or as many as want to if it was made so.
//! * KY-4: a key file is whole whenever it is there: who is killed, or loses power, as it writes one leaves none.

use super::password::{Password, Record};
use parking_lot::Mutex;
use rustix::fs::{Mode, OFlags, fstat, open};
use rustix::process::geteuid;
use std::fmt;
use std::io::{self, Read};
use std::path::Path;
use std::str::FromStr;
use std::time::{Duration, Instant};
use zeroize::{Zeroize, ZeroizeOnDrop};

/// For how long a token for one join is good.
pub const TOKEN_LIVES: Duration = Duration::from_secs(600);
/// How the text of a token begins.
const TOKEN: &str = "pl1-";
/// No more tokens than this are open at once; the oldest go.
const MOST_TOKENS: usize = 1024;

/// The cluster's key: whoever has it runs code as the nodes' user.
#[derive(Clone, PartialEq, Eq, Zeroize, ZeroizeOnDrop)]
pub struct Key([u8; 32]);

impl Key {
    pub fn random() -> io::Result<Key> {
        random().map(Key)
    }

    pub fn from_bytes(bytes: [u8; 32]) -> Key {
        Key(bytes)
    }

    pub fn bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// As people and files have it.
    pub fn text(&self) -> String {
        hex(&self.0)
    }

    /// The key in this file (KY-2).
    pub fn read(path: &Path) -> io::Result<Key> {
        let mut text = read_private(path)?;
        let key = text.trim().parse();
        text.zeroize();
        key.map_err(|error: NoKey| wrong(format!("{}: {error}", path.display())))
    }

    /// Writes the key into a file that only we can read, as a whole (KY-4).
    pub fn write(&self, path: &Path) -> io::Result<()> {
        let mut text = format!("{}\n", self.text());
        let written = crate::file::replace(path, text.as_bytes());
        text.zeroize();
        written
    }

    /// Makes a key and writes it, or reads the one that somebody else has written there meanwhile.
    pub fn create(path: &Path) -> io::Result<Key> {
        let key = Key::random()?;
        let mut text = format!("{}\n", key.text());
        let written = crate::file::create(path, text.as_bytes());
        text.zeroize();
        if written? { Ok(key) } else { Key::read(path) }
    }
}

/// The text of a file that nobody but we can read: a key, a password.
pub fn read_private(path: &Path) -> io::Result<String> {
    let name = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let file = open(path, flags, Mode::empty()).map_err(|error| name(error.into()))?;
    let status = fstat(&file).map_err(|error| name(error.into()))?;
    if status.st_uid != geteuid().as_raw() {
        return Err(wrong(format!("{}: belongs to another user, so it is not used", path.display())));
    }
    if status.st_mode & 0o077 != 0 {
        let mode = status.st_mode & 0o777;
        let hint = format!("hint: chmod 600 {}", path.display());
        return Err(wrong(format!("{}: others may use it too (mode {mode:o}); {hint}", path.display())));
    }
    let mut text = String::new();
    std::fs::File::from(file).take(4096).read_to_string(&mut text).map_err(name)?;
    Ok(text)
}

fn wrong(text: String) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, text)
}

/// Why a text is no key, or no token.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NoKey {
    #[error("not a key: a key is 64 hexadecimal digits")]
    Key,
    #[error("not a token: a token begins with pl1- and has 48 hexadecimal digits")]
    Token,
}

impl FromStr for Key {
    type Err = NoKey;

    fn from_str(text: &str) -> Result<Key, NoKey> {
        unhex(text).map(Key).ok_or(NoKey::Key)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(..)")
    }
}

/// Lets one in once, instead of the key.
#[derive(Clone, PartialEq, Eq, Zeroize, ZeroizeOnDrop)]
pub struct Token {
    pub(crate) id: [u8; 8],
    pub(crate) secret: [u8; 16],
}

impl Token {
    fn random() -> io::Result<Token> {
        Ok(Token { id: random()?, secret: random()? })
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{TOKEN}{}{}", hex(&self.id), hex(&self.secret))
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Token({}, ..)", hex(&self.id))
    }
}

impl FromStr for Token {
    type Err = NoKey;

    fn from_str(text: &str) -> Result<Token, NoKey> {
        let bytes: [u8; 24] = text.strip_prefix(TOKEN).and_then(unhex).ok_or(NoKey::Token)?;
        let (id, secret) = bytes.split_first_chunk::<8>().expect("it is longer");
        Ok(Token { id: *id, secret: secret.try_into().expect("the rest is as long") })
    }
}

/// What one shows to be let in.
#[derive(Clone, Debug)]
pub enum Credential {
    Key(Key),
    Token(Token),
    Password(Password),
}

/// What a head lets in.
#[derive(Debug)]
pub struct Keys {
    key: Key,
    password: Option<Record>,
    tokens: Mutex<Vec<Open>>,
}

/// A token that was issued.
#[derive(Debug)]
struct Open {
    token: Token,
    /// None: as often as one wants.
    until: Option<Instant>,
}

/// What became of a token.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Unusable {
    /// There is none with this id: it was used, its time is over, or it never was.
    Unknown,
    Wrong,
}

impl Keys {
    pub fn new(key: Key, password: Option<Record>) -> Keys {
        Keys { key, password, tokens: Mutex::default() }
    }

    pub fn key(&self) -> &Key {
        &self.key
    }

    pub(crate) fn password(&self) -> Option<&Record> {
        self.password.as_ref()
    }

    /// A new token for one join, or for many.
    pub fn issue(&self, reusable: bool) -> io::Result<Token> {
        let token = Token::random()?;
        let now = Instant::now();
        let mut tokens = self.tokens.lock();
        tokens.retain(|open| open.until.is_none_or(|until| until > now));
        if tokens.len() >= MOST_TOKENS {
            tokens.remove(0);
        }
        let until = (!reusable).then_some(now + TOKEN_LIVES);
        tokens.push(Open { token: token.clone(), until });
        Ok(token)
    }

    /// Use the token of this id if `check` is content with its secret (KY-3).
    pub(crate) fn redeem(
        &self,
        id: &[u8; 8],
        check: impl FnOnce(&[u8; 16]) -> bool,
    ) -> Result<Token, Unusable> {
        let mut tokens = self.tokens.lock();
        let now = Instant::now();
        tokens.retain(|open| open.until.is_none_or(|until| until > now));
        let place = tokens.iter().position(|open| open.token.id == *id).ok_or(Unusable::Unknown)?;
        if !check(&tokens[place].token.secret) {
            return Err(Unusable::Wrong);
        }
        let token = tokens[place].token.clone();
        if tokens[place].until.is_some() {
            tokens.remove(place);
        }
        Ok(token)
    }
}

pub(crate) fn random<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    let filled = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
    if filled == N { Ok(bytes) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    if text.len() != 2 * N || !text.is_ascii() {
        return None;
    }
    for (byte, pair) in bytes.iter_mut().zip(text.as_bytes().chunks(2)) {
        let pair = std::str::from_utf8(pair).ok()?;
        *byte = u8::from_str_radix(pair, 16).ok().filter(|_| !pair.starts_with('+'))?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn what_is_written_is_read() {
        let key = Key::random().unwrap();
        assert_eq!(key.text().parse(), Ok(key.clone()));
        assert_eq!(format!("{key:?}"), "Key(..)", "KY-1");
        let token = Token::random().unwrap();
        assert_eq!(token.to_string().parse(), Ok(token.clone()));
        assert!(!format!("{token:?}").contains(&hex(&token.secret)), "KY-1");
        for text in ["", "pl1-", "+1", &"0".repeat(63), &"+f".repeat(32), &"ß".repeat(32)] {
            assert_eq!(text.parse::<Key>(), Err(NoKey::Key));
            assert_eq!(text.parse::<Token>(), Err(NoKey::Token));
        }
    }

    #[test]
    fn a_key_file_is_its_owners_alone() {
        let path = std::env::temp_dir().join(format!("paceline-key-{}", std::process::id()));
        let key = Key::random().unwrap();
        std::fs::write(&path, "old").unwrap();
        let old = std::fs::File::open(&path).unwrap();
        key.write(&path).unwrap();
        let mut kept = String::new();
        (&old).read_to_string(&mut kept).unwrap();
        assert_eq!(kept, "old", "KY-4: who has the old one open never sees half of the new one");
        assert_eq!(Key::create(&path).unwrap(), key, "KY-4: who comes second reads what is there");
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600, "KY-2");
        assert_eq!(Key::read(&path).unwrap(), key);
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
        let error = Key::read(&path).unwrap_err().to_string();
        assert!(error.contains("640") && error.contains("chmod 600"), "KY-2: {error}");
        std::fs::remove_file(&path).unwrap();
        assert!(Key::read(&path).unwrap_err().to_string().contains("paceline-key-"));
    }

    #[test]
    fn a_token_is_good_once_or_as_often_as_it_was_made_for() {
        let keys = Keys::new(Key::random().unwrap(), None);
        let once = keys.issue(false).unwrap();
        assert_eq!(keys.redeem(&once.id, |_| false), Err(Unusable::Wrong));
        assert!(keys.redeem(&once.id, |secret| *secret == once.secret).is_ok());
        assert_eq!(keys.redeem(&once.id, |_| true), Err(Unusable::Unknown), "KY-3");
        let often = keys.issue(true).unwrap();
        for _ in 0..3 {
            assert!(keys.redeem(&often.id, |secret| *secret == often.secret).is_ok(), "KY-3");
        }
    }
}
