//! On which nodes leases of a shape may be, and together with which others.

use crate::ids::ProgramId;
use crate::resources::Resources;
use serde::{Deserialize, Serialize};

/// Which nodes a shape wants. Declared once under an id, as programs are; the default is [`Rule::default`].
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug, Serialize, Deserialize)]
pub struct Rule {
    pub order: Order,
    /// No two leases of this rule and one client on the same node.
    pub one_per_node: bool,
    /// Nodes that have all of these.
    pub labels: Vec<(String, String)>,
    /// Nodes of these names; if there are none, of any.
    pub nodes: Vec<String>,
    /// No node of these names.
    pub not_nodes: Vec<String>,
    /// Only GPUs that have so many bytes for new work.
    pub gpu_memory: u64,
    /// All of these leases or none. Whoever has them keeps them.
    pub gang: Vec<Member>,
    /// Keeps rules apart that say the same: each gang is one of its own.
    pub nonce: u64,
    /// Whoever has one of these leases keeps it, and its slot ends with it: what it holds is nobody else's.
    pub kept: bool,
}

/// Which of the nodes that have room comes first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug, Serialize, Deserialize)]
pub enum Order {
    /// The one with most room.
    #[default]
    Spread,
    /// The one with least room that is enough.
    Pack,
}

/// A part of a gang: so many leases of this.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct Member {
    pub needs: Resources,
    pub program: ProgramId,
    pub count: u32,
}

/// What a node is like, beside what it has.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct Facts {
    pub labels: Vec<(String, String)>,
    /// Its GPUs in the order of their numbers. Empty: as many as it has, of unknown memory.
    pub devices: Vec<Device>,
    /// What its custom resources are called.
    pub resources: Vec<String>,
}

/// One GPU.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Device {
    /// Bytes that are there for new work.
    pub memory: u64,
}

impl Rule {
    /// Whether such leases are never asked back for others, and their slots serve nobody else afterwards.
    pub fn is_firm(&self) -> bool {
        self.kept || !self.gang.is_empty()
    }

    /// Whether a node of this name with these labels will do.
    pub fn allows(&self, name: &str, labels: &[(String, String)]) -> bool {
        self.labels.iter().all(|label| labels.contains(label))
            && (self.nodes.is_empty() || self.nodes.iter().any(|it| it == name))
            && self.not_nodes.iter().all(|it| it != name)
    }

    /// What a node must be, in words for people; empty if any will do.
    pub fn wishes(&self) -> String {
        let mut parts: Vec<String> =
            self.labels.iter().map(|(name, value)| format!("the label {name}={value}")).collect();
        if !self.nodes.is_empty() {
            parts.push(format!("one of the names {}", self.nodes.join(", ")));
        }
        if !self.not_nodes.is_empty() {
            parts.push(format!("none of the names {}", self.not_nodes.join(", ")));
        }
        parts.join(" and ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn label(name: &str, value: &str) -> (String, String) {
        (name.to_owned(), value.to_owned())
    }

    #[test]
    fn nodes_are_chosen_by_label_and_name() {
        let labels = [label("disk", "ssd"), label("zone", "b")];
        let rule = Rule { labels: vec![label("zone", "b")], ..Rule::default() };
        assert!(rule.allows("x", &labels) && !rule.allows("x", &labels[..1]));
        let rule = Rule { nodes: vec!["x".into(), "y".into()], not_nodes: vec!["y".into()], ..rule };
        assert!(rule.allows("x", &labels) && !rule.allows("y", &labels) && !rule.allows("z", &labels));
        assert_eq!(rule.wishes(), "the label zone=b and one of the names x, y and none of the names y");
        assert!(Rule::default().allows("any", &[]));
    }
}
