//! Where something listens: text that people write and copy, and what it means.
//!
//! * AD-1: what an address displays as is parsed to the same address.
//! * AD-2: nothing is looked up here; a host name is only as good as it reads.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::Ipv6Addr;
use std::str::FromStr;

/// How the text of a unix address begins.
const UNIX: &str = "unix:";
/// The longest host name there can be, and the longest name of an abstract socket.
const LONGEST_HOST: usize = 253;
const LONGEST_NAME: usize = 107;

/// Where a head or a node listens.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub enum Address {
    /// An abstract unix socket: a name, no file. It means something on one machine only.
    Unix(String),
    /// A host name or an IP address (of version 6 without brackets), and a port.
    Tcp { host: String, port: u16 },
}

/// How a link came about, for people to see.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub enum Way {
    /// A unix socket: both ends are on one machine and of one user.
    Unix,
    /// TCP, sealed by TLS.
    Tls,
    /// The same, by way of another node, which sees sealed bytes only.
    Relayed,
}

impl Way {
    pub fn name(self) -> &'static str {
        match self {
            Way::Unix => "unix",
            Way::Tls => "tcp+tls",
            Way::Relayed => "relayed",
        }
    }

    /// Whether the two ends prove the lease's secret to each other.
    pub fn is_sealed(self) -> bool {
        self != Way::Unix
    }
}

/// Why a text is no address.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("not an address: {text:?} {why}; write HOST:PORT, for instance 10.0.0.5:7077 or [fe80::1]:7077")]
pub struct NoAddress {
    text: String,
    why: &'static str,
}

impl Address {
    pub fn tcp(host: impl Into<String>, port: u16) -> Address {
        Address::Tcp { host: host.into(), port }
    }

    /// Whether it can be reached from this machine only because it is this machine.
    pub fn is_unix(&self) -> bool {
        matches!(self, Address::Unix(_))
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Unix(name) => write!(f, "{UNIX}{name}"),
            Address::Tcp { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Address::Tcp { host, port } => write!(f, "{host}:{port}"),
        }
    }
}

impl FromStr for Address {
    type Err = NoAddress;

    fn from_str(text: &str) -> Result<Address, NoAddress> {
        let refuse = |why| NoAddress { text: text.chars().take(300).collect(), why };
        if let Some(name) = text.strip_prefix(UNIX) {
            let fits =
                (1..=LONGEST_NAME).contains(&name.len()) && name.bytes().all(|byte| byte.is_ascii_graphic());
            return if fits { Ok(Address::Unix(name.into())) } else { Err(refuse("has no socket's name")) };
        }
        let (host, port) = text.rsplit_once(':').ok_or_else(|| refuse("has no port"))?;
        let host = match host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            Some(six) => version_six(six).ok_or_else(|| refuse("has no IPv6 address in its brackets"))?,
            None if host.contains(':') => return Err(refuse("needs brackets around its IPv6 address")),
            None if is_host(host) => host,
            None => return Err(refuse("has no host's name")),
        };
        let port = port.parse().ok().filter(|port| *port > 0 && text.is_ascii());
        let port = port.ok_or_else(|| refuse("has no port between 1 and 65535"))?;
        Ok(Address::Tcp { host: host.into(), port })
    }
}

/// An IPv6 address, perhaps with the interface it is on.
fn version_six(text: &str) -> Option<&str> {
    let (address, zone) = text.split_once('%').map_or((text, None), |(address, zone)| (address, Some(zone)));
    let zone_is_good =
        zone.is_none_or(|zone| !zone.is_empty() && zone.bytes().all(|b| b.is_ascii_alphanumeric()));
    (address.parse::<Ipv6Addr>().is_ok() && zone_is_good).then_some(text)
}

fn is_host(text: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
    (1..=LONGEST_HOST).contains(&text.len()) && text.bytes().all(fits) && !text.starts_with('-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_is_understood() {
        for text in
            ["head:7077", "10.0.0.5:1", "[fe80::1%eth0]:65535", "[::]:7077", "a-b.c_d:80", "unix:paceline-77"]
        {
            let address: Address = text.parse().unwrap();
            assert_eq!(address.to_string(), text, "AD-1");
        }
        assert_eq!("[::1]:5".parse(), Ok(Address::tcp("::1", 5)));
    }

    #[test]
    fn nonsense_is_refused_and_says_why() {
        let refused = [
            ("", "no port"),
            ("head", "no port"),
            ("head:", "no port between"),
            ("head:0", "no port between"),
            ("head:65536", "no port between"),
            ("head:-1", "no port between"),
            (":7077", "no host's name"),
            ("-x:7077", "no host's name"),
            ("http://head:7077", "brackets"),
            ("a b:7077", "no host's name"),
            ("fe80::1:7077", "brackets"),
            ("[fe80::g]:7077", "no IPv6"),
            ("unix:", "no socket's name"),
        ];
        for (text, why) in refused {
            let error = text.parse::<Address>().unwrap_err().to_string();
            assert!(error.contains(why) && error.contains("HOST:PORT"), "{text}: {error}");
        }
    }
}
