//! Why a connection could not be had. Each text names both sides, where there are two, and what to do.

use paceline_proto::version::PROTOCOL;
use std::io;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("nobody answers: {tried}\nhint: is it running there, and may this machine reach that port?")]
    Unreachable { tried: String },
    #[error(
        "{address} took the connection but did not answer in time ({doing})\nhint: is it a head or a node of paceline, and is its machine alive?"
    )]
    Silent { address: String, doing: &'static str },
    #[error("{address} closed the connection ({doing})\nhint: what it has logged says why")]
    Closed { address: String, doing: &'static str },
    #[error(
        "{address} is not a head or a node of paceline\nhint: something else listens there; `paceline status` on its machine shows the right port"
    )]
    Stranger { address: String },
    #[error(
        "{address} speaks protocol version {theirs}, this side speaks {PROTOCOL}: install the same paceline version on both\nhint: `pip show paceline` tells which one a machine has"
    )]
    Version { address: String, theirs: u8 },
    #[error(
        "{address} is not for this: that is the port of a node where one of a head was wanted, or the other way round\nhint: programs and machines that join want the head's, 7077 unless `paceline start --port` said otherwise"
    )]
    Kind { address: String },
    #[error("{address} has too many strangers at its door\nhint: try again")]
    Busy { address: String },
    #[error("there is no such lease at {address}, or no longer")]
    Lease { address: String },
    #[error(
        "{address} wants to know who we are\nhint: give its key file (or PACELINE_KEY), its password (or PACELINE_PASSWORD), or a token of `paceline start`"
    )]
    NoCredential { address: String },
    #[error(
        "{address} does not take our key: it is another cluster's\nhint: use the key file of the cluster that runs there"
    )]
    WrongKey { address: String },
    #[error(
        "{address} has our key refused, but has not proved that it knows it either: it is not the cluster we look for\nhint: is the address right, and did the cluster that was there end?"
    )]
    Impostor { address: String },
    #[error(
        "{address} does not take our token: a token is good for one join within ten minutes\nhint: get another one with `paceline token` there"
    )]
    Token { address: String },
    #[error(
        "{address} does not take our password\nhint: it is the one in the file that `paceline start --password-file` was given"
    )]
    WrongPassword { address: String },
    #[error(
        "{address} takes no password from this machine for now: try again in {seconds} s\nhint: wrong ones came from here, or from many places at once; a key file or a token works meanwhile"
    )]
    PasswordDelayed { address: String, seconds: u64 },
    #[error("{address} has no password\nhint: use its key file or a token")]
    NoPassword { address: String },
    #[error("{address} refuses: {text}")]
    Refused { address: String, text: String },
    #[error(
        "{address} is another user's (uid {theirs}, ours is {ours})\nhint: a cluster is for one user; start one of your own under another --name and --port"
    )]
    OtherUser { address: String, theirs: u32, ours: u32 },
    #[error("{address}: {error} ({doing})")]
    Broken { address: String, doing: &'static str, error: io::Error },
}

impl Error {
    /// A stable name for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Error::Unreachable { .. } => "unreachable",
            Error::Silent { .. } => "silent",
            Error::Closed { .. } => "closed",
            Error::Stranger { .. } => "not-paceline",
            Error::Version { .. } => "protocol-version",
            Error::Kind { .. } => "wrong-port",
            Error::Busy { .. } => "busy",
            Error::Lease { .. } => "no-lease",
            Error::NoCredential { .. } => "no-credential",
            Error::WrongKey { .. } => "wrong-key",
            Error::Impostor { .. } => "impostor",
            Error::Token { .. } => "token",
            Error::WrongPassword { .. } => "wrong-password",
            Error::PasswordDelayed { .. } => "password-delayed",
            Error::NoPassword { .. } => "no-password",
            Error::Refused { .. } => "refused",
            Error::OtherUser { .. } => "other-user",
            Error::Broken { .. } => "broken",
        }
    }

    /// Whether another address, or another try, may do better.
    pub fn is_passing(&self) -> bool {
        matches!(
            self,
            Error::Unreachable { .. }
                | Error::Silent { .. }
                | Error::Closed { .. }
                | Error::Busy { .. }
                | Error::Broken { .. }
        )
    }
}

impl From<Error> for io::Error {
    fn from(error: Error) -> io::Error {
        let kind = match &error {
            Error::Unreachable { .. } => io::ErrorKind::ConnectionRefused,
            Error::Silent { .. } => io::ErrorKind::TimedOut,
            Error::Closed { .. } | Error::Broken { .. } => io::ErrorKind::ConnectionAborted,
            Error::Busy { .. } => io::ErrorKind::ResourceBusy,
            _ => io::ErrorKind::PermissionDenied,
        };
        io::Error::new(kind, error)
    }
}
