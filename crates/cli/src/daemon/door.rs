//! Where a daemon listens, and what it tells others about it.
//!
//! * DO-1: what is told can be reached: never the address that means every interface, and nothing of this machine alone
//!   to another.

use super::plan::Listen;
use crate::failure::{Code, Failure, failed};
use paceline_net::secure::{Door, Listener, unix_name};
use paceline_proto::Address;
use paceline_proto::limits::MOST_ADDRESSES;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;

/// A door that is open.
pub struct Open {
    pub listener: Listener,
    /// The abstract unix socket.
    pub unix: String,
    pub port: u16,
}

/// Listen on a unix socket of our own and on the port that was asked for.
pub fn open(listen: &Listen, door: Door, flag: &str) -> Result<Open, Failure> {
    let host = host(&listen.bind);
    let at = |port| Address::Tcp { host: host.clone(), port };
    // A name of its own for each attempt: the socket of one that failed may close a moment later.
    let bind = |port| -> io::Result<(Listener, Address)> {
        let unix = unix_name()?;
        Ok((Listener::bind(&[unix.clone(), at(port)], door.clone())?, unix))
    };
    let bound = match bind(listen.port) {
        Err(error) if listen.any_port && error.kind() == io::ErrorKind::AddrInUse => bind(0),
        bound => bound,
    };
    let (listener, unix) = bound.map_err(|error| refused(&error, &at(listen.port), flag))?;
    let Address::Unix(name) = unix else { unreachable!("that is what it makes") };
    let port = listener.addresses().iter().find_map(|address| match address {
        Address::Tcp { port, .. } => Some(*port),
        Address::Unix(_) => None,
    });
    Ok(Open { listener, unix: name, port: port.unwrap_or(listen.port) })
}

fn refused(error: &io::Error, address: &Address, flag: &str) -> Failure {
    match error.kind() {
        io::ErrorKind::AddrInUse => {
            Failure::new(Code::InUse, format!("{address} is in use already")).hint(format!(
                "choose another port with {flag}, or 0 for any free one; paceline status shows your clusters"
            ))
        }
        io::ErrorKind::AddrNotAvailable => failed(format!("{address} is no address of this machine"))
            .hint("--bind takes one of its own, or 0.0.0.0"),
        io::ErrorKind::PermissionDenied => {
            failed(format!("{address} may not be listened on")).hint("ports below 1024 are for root")
        }
        _ => failed(format!("{address} cannot be listened on: {error}")),
    }
}

/// Without the brackets of IPv6.
pub fn host(text: &str) -> String {
    text.trim_start_matches('[').trim_end_matches(']').to_owned()
}

/// Where others reach a door, best first (DO-1). `seen` is our address on a link that works already.
pub fn told(listen: &Listen, port: u16, seen: Option<IpAddr>) -> Vec<Address> {
    let tcp = |host: String| Address::Tcp { host, port };
    if let Some(host) = &listen.advertise {
        // It may come with a port of its own, as one that a router maps does.
        return vec![host.parse().unwrap_or_else(|_| tcp(self::host(host)))];
    }
    let bound = host(&listen.bind);
    if !bound.parse::<IpAddr>().is_ok_and(|bound| bound.is_unspecified()) {
        return vec![tcp(bound)];
    }
    let mut found: Vec<IpAddr> = seen.filter(|seen| !seen.is_loopback()).into_iter().collect();
    for address in own_addresses() {
        if !found.contains(&address) {
            found.push(address);
        }
    }
    if found.is_empty() {
        found.push(IpAddr::from([127, 0, 0, 1]));
    }
    // Some machines have thousands. The first ones are the likeliest.
    found.truncate(MOST_ADDRESSES);
    found.into_iter().map(|address| tcp(address.to_string())).collect()
}

/// What this machine can be reached at from others, IPv4 first.
fn own_addresses() -> Vec<IpAddr> {
    let interfaces = if_addrs::get_if_addrs().unwrap_or_default();
    let mut found: Vec<IpAddr> = interfaces
        .into_iter()
        .filter(|each| !each.is_loopback() && !each.is_link_local())
        .map(|each| each.ip())
        .collect();
    found.sort_by_key(|address| (address.is_ipv6(), *address));
    found
}

/// Our own address on this connection, if it goes over a network.
pub fn own_end(socket: impl AsFd) -> Option<IpAddr> {
    let address = rustix::net::getsockname(socket).ok()?;
    SocketAddr::try_from(address).ok().map(|address| match address.ip() {
        IpAddr::V6(six) => six.to_ipv4_mapped().map_or(IpAddr::V6(six), IpAddr::V4),
        four => four,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listen(bind: &str, advertise: Option<&str>) -> Listen {
        Listen {
            bind: bind.into(),
            port: 0,
            any_port: false,
            advertise: advertise.map(Into::into),
            bind_is_default: false,
        }
    }

    #[test]
    fn what_is_told_can_be_reached() {
        let text = |addresses: Vec<Address>| addresses.iter().map(Address::to_string).collect::<Vec<_>>();
        assert_eq!(text(told(&listen("127.0.0.1", None), 7, None)), ["127.0.0.1:7"]);
        assert_eq!(text(told(&listen("[::1]", None), 7, None)), ["[::1]:7"]);
        assert_eq!(text(told(&listen("0.0.0.0", Some("gate")), 7, None)), ["gate:7"]);
        assert_eq!(text(told(&listen("0.0.0.0", Some("gate:99")), 7, None)), ["gate:99"]);
        let seen = Some(IpAddr::from([10, 9, 8, 7]));
        let all = text(told(&listen("0.0.0.0", None), 7, seen));
        assert_eq!(all[0], "10.9.8.7:7", "the one that works comes first");
        assert!(all.iter().all(|address| !address.starts_with("0.0.0.0")), "DO-1");
        let all = text(told(&listen("[::]", None), 7, Some(IpAddr::from([127, 0, 0, 1]))));
        assert!(!all.is_empty() && !all.iter().any(|address| address.starts_with("[::]")), "DO-1");
    }
}
