//! What daemons write about themselves.

use serde::{Deserialize, Serialize};

/// A head.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Head {
    pub name: String,
    /// The cluster's id, in hexadecimal.
    pub cluster: String,
    /// Which start of the cluster's head it is.
    #[serde(default)]
    pub epoch: u64,
    /// Where others reach it: `host:port`. None: only from this machine.
    pub address: Option<String>,
    /// Its abstract unix socket.
    pub unix: String,
    pub pid: u32,
    /// The machine it is on, as [`machine`] names it.
    pub machine: String,
    pub version: String,
    /// Seconds since 1970.
    pub started: u64,
    /// When it ended in order, though its cluster was not stopped: seconds since 1970. None: it lives, or was killed.
    #[serde(default)]
    pub ended: Option<u64>,
}

/// A node.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Node {
    pub name: String,
    /// Its number in the cluster, in hexadecimal; kept from one start to the next.
    pub node: String,
    /// How often it has been started.
    pub incarnation: u64,
    /// The cluster's id, in hexadecimal.
    pub cluster: String,
    /// Where its head is.
    pub head: Option<String>,
    /// Where clients reach it.
    pub address: Option<String>,
    pub unix: String,
    pub pid: u32,
    pub machine: String,
    pub started: u64,
    /// The directory that it was written to: a copy of the record is none of that node's.
    #[serde(default)]
    pub directory: String,
}

/// Names this machine, this start of it, and this network: who has the same name can be reached over abstract sockets.
pub fn machine() -> String {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let network = std::fs::read_link("/proc/self/ns/net").unwrap_or_default();
    let network: String = network.to_string_lossy().chars().filter(char::is_ascii_digit).collect();
    format!("{}-{network}", boot.trim())
}
