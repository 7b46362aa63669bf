//! Who the two sides of a control link are, told once each has proved that it may speak.
//!
//! Maps with names, so that a side may say more than the other understands.

use paceline_proto::control::Timing;
use paceline_proto::version::PROTOCOL;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The most bytes an introduction may have.
pub(crate) const LONGEST: usize = 16 << 10;

/// What one is in a cluster.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    Head,
    Node,
    Client,
    /// Code that runs in a slot, whose link its node passes on.
    Slot,
}

/// Who somebody is.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Introduction {
    pub role: Role,
    /// What people call it.
    #[serde(default)]
    pub name: String,
    /// The version of paceline.
    #[serde(default)]
    pub paceline: String,
    /// The version of Python, where there is any.
    #[serde(default)]
    pub python: Option<[u8; 3]>,
    /// Of a head: how long silence may last in its cluster, until it says so again in its welcome.
    #[serde(default)]
    pub timing: Option<Timing>,
}

impl Introduction {
    pub fn new(role: Role, name: impl Into<String>, python: Option<[u8; 3]>) -> Introduction {
        let paceline = env!("CARGO_PKG_VERSION").into();
        Introduction { role, name: name.into(), paceline, python, timing: None }
    }

    /// Why we cannot work with them: functions pickled by one version of Python mean nothing to another.
    pub fn refuses(&self, them: &Introduction) -> Option<String> {
        let (ours, theirs) = (self.python?, them.python?);
        (ours[..2] != theirs[..2]).then(|| {
            format!(
                "{them} has Python {}, {self} has Python {}: install the same Python major.minor version on both",
                dotted(&theirs),
                dotted(&ours)
            )
        })
    }

    /// What they should know all the same.
    pub fn warns(&self, them: &Introduction) -> Option<String> {
        let python = match (self.python, them.python) {
            (Some(ours), Some(theirs)) if ours != theirs => {
                Some(format!("{them} has Python {}, {self} has {}", dotted(&theirs), dotted(&ours)))
            }
            _ => None,
        };
        let paceline = (self.paceline != them.paceline)
            .then(|| format!("{them} has paceline {}, {self} has {}", them.paceline, self.paceline));
        match (python, paceline) {
            (Some(python), Some(paceline)) => Some(format!("{python}; {paceline}")),
            (python, paceline) => python.or(paceline),
        }
    }
}

impl fmt::Display for Introduction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let role = match self.role {
            Role::Head => "head",
            Role::Node => "node",
            Role::Client => "client",
            Role::Slot => "slot",
        };
        if self.name.is_empty() { write!(f, "the {role}") } else { write!(f, "{role} {}", self.name) }
    }
}

fn dotted(version: &[u8; 3]) -> String {
    format!("{}.{}.{}", version[0], version[1], version[2])
}

/// What the listening side says to an introduction.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Reply {
    pub me: Introduction,
    /// Why not; none: welcome.
    #[serde(default)]
    pub refused: Option<String>,
    #[serde(default)]
    pub warning: Option<String>,
    /// The cluster's key, for one that came without it.
    #[serde(default, with = "serde_bytes")]
    pub key: Option<Vec<u8>>,
    pub protocol: u8,
}

impl Reply {
    pub(crate) fn to(me: &Introduction, them: &Introduction, key: Option<&[u8; 32]>) -> Reply {
        let refused = me.refuses(them);
        let key = key.filter(|_| refused.is_none()).map(|key| key.to_vec());
        let warning = me.warns(them).filter(|_| refused.is_none());
        Reply { me: me.clone(), refused, warning, key, protocol: PROTOCOL }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_that_matter_refuse_and_others_warn() {
        let of = |role, name: &str, python| Introduction::new(role, name, python);
        let head = of(Role::Head, "alpha", Some([3, 11, 4]));
        assert_eq!(head.refuses(&of(Role::Client, "", Some([3, 11, 9]))), None);
        assert_eq!(head.refuses(&of(Role::Client, "", None)), None);
        let text = head.refuses(&of(Role::Node, "beta", Some([3, 13, 0]))).unwrap();
        assert!(text.contains("node beta has Python 3.13.0, head alpha has Python 3.11.4"), "{text}");
        let text = head.warns(&of(Role::Client, "nightly", Some([3, 11, 9]))).unwrap();
        assert_eq!(text, "client nightly has Python 3.11.9, head alpha has 3.11.4");
        assert_eq!(head.warns(&head), None);
    }

    #[test]
    fn more_than_is_understood_does_no_harm() {
        #[derive(Serialize)]
        struct Later {
            role: &'static str,
            name: &'static str,
            hats: u32,
        }
        let bytes = rmp_serde::to_vec_named(&Later { role: "node", name: "x", hats: 3 }).unwrap();
        let read: Introduction = rmp_serde::from_slice(&bytes).unwrap();
        assert_eq!((read.role, read.name.as_str(), read.python), (Role::Node, "x", None));
    }
}
