//! Why work waits.

use super::{Head, NodeLink};
use paceline_proto::{ClientId, Resources};

/// One request that has less than it wants, and why.
#[derive(Clone, Debug, PartialEq)]
pub struct Waits {
    pub client: ClientId,
    pub name: String,
    pub needs: Resources,
    pub has: usize,
    pub wants: usize,
    pub why: String,
}

impl Head {
    /// Everything that waits, in the order of clients.
    pub fn waits(&self) -> Vec<Waits> {
        let mut found = Vec::new();
        for (&id, client) in &self.clients {
            for (shape, want) in client.unmet() {
                found.push(Waits {
                    client: id,
                    name: client.name.clone(),
                    needs: shape.needs,
                    has: client.count(shape),
                    wants: want.count as usize,
                    why: self.why(shape.needs),
                });
            }
        }
        found
    }

    fn why(&self, needs: Resources) -> String {
        let up = || {
            let here = self.nodes.iter().filter(|(_, node)| matches!(node.link, NodeLink::Up { .. }));
            here.filter(|(id, _)| !self.leaving.contains(id))
        };
        if self.closing.is_some() {
            return "the cluster is ending".into();
        }
        if up().next().is_none() {
            return match self.nodes.len() {
                0 => "there is no node".into(),
                away => format!("no node can be reached, {away} are away or leaving"),
            };
        }
        let fitting: Vec<_> = up().filter(|(_, node)| needs.fits_in(&node.total)).collect();
        if fitting.is_empty() {
            let largest = up().map(|(_, node)| node.total).max().unwrap_or_default();
            return format!("no node that is here has {needs}, the largest has {largest}");
        }
        let full = fitting
            .iter()
            .map(|(_, node)| format!("{} has {} of {} free", node.name, node.free(), node.total));
        format!("the nodes that could hold it are in use: {}", full.collect::<Vec<_>>().join(", "))
    }
}
