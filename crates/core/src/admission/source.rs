//! Sources of connections, as far as shares and delays are concerned.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Names where a connection comes from: one address of IPv4, one /64 of IPv6, which is what one machine has.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Source {
    /// A process of this machine.
    Unix,
    V4([u8; 4]),
    V6([u8; 8]),
}

impl From<IpAddr> for Source {
    fn from(address: IpAddr) -> Source {
        match address.to_canonical() {
            IpAddr::V4(address) => Source::V4(address.octets()),
            IpAddr::V6(address) => {
                let octets = address.octets();
                Source::V6(*octets.first_chunk().expect("it is longer"))
            }
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Unix => f.write_str("this machine"),
            Source::V4(octets) => write!(f, "{}", Ipv4Addr::from(*octets)),
            Source::V6(prefix) => {
                let mut octets = [0; 16];
                octets[..8].copy_from_slice(prefix);
                write!(f, "{}/64", Ipv6Addr::from(octets))
            }
        }
    }
}
