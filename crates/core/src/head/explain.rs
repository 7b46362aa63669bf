//! Why work waits.

use super::{Head, Node, NodeLink};
use paceline_proto::placement::Rule;
use paceline_proto::resources::bytes;
use paceline_proto::{ClientId, Resources, Shape};

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
                    why: self.why(id, shape),
                });
            }
        }
        found
    }

    pub(super) fn why(&self, client: ClientId, shape: Shape) -> String {
        if let Some(why) = self.why_fenced(client, shape) {
            return why;
        }
        let (needs, rule) = (shape.needs, self.rule(client, shape));
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
        let allowed = |node: &Node| rule.is_none_or(|rule| rule.allows(&node.name, &node.facts.labels));
        let full: Vec<String> = (fitting.iter())
            .filter(|(_, node)| allowed(node))
            .map(|(_, node)| format!("{} has {}", node.name, self.what_is_free(node, needs)))
            .collect();
        let members: u32 = rule.map_or(0, |rule| rule.gang.iter().map(|member| member.count).sum());
        match (full.is_empty(), members) {
            (true, _) => format!("no node that is here has {}", rule.map(Rule::wishes).unwrap_or_default()),
            (false, 0) => format!("the nodes that could hold it are in use: {}", full.join(", ")),
            (false, members) => {
                format!("its {members} members do not fit together yet: {}", full.join(", "))
            }
        }
    }

    /// What a node has left of what is short there, in words.
    fn what_is_free(&self, node: &Node, needs: Resources) -> String {
        let (free, total) = (node.free(), node.total);
        let amount = |units: u64| units as f64 / 10_000.0;
        let mut parts = Vec::new();
        if needs.cpu_units() > free.cpu_units() {
            parts.push(format!("{} of {} CPUs", amount(free.cpu_units()), amount(total.cpu_units())));
        }
        if needs.gpu_units() > free.gpu_units() {
            parts.push(format!("{} of {} GPUs", amount(free.gpu_units()), amount(total.gpu_units())));
        }
        if needs.memory() > free.memory() {
            parts.push(format!("{} of {} of memory", bytes(free.memory()), bytes(total.memory())));
        }
        for (name, needed) in needs.custom() {
            let (left, all) = (free.custom_units(name), total.custom_units(name));
            if needed > left {
                let name = self.names.get(&name).map_or("of a resource", String::as_str);
                parts.push(format!("{} of {} {name}", amount(left), amount(all)));
            }
        }
        match parts.is_empty() {
            // Others come first, or its GPUs are free in parts only.
            true => "room, which is kept for others or in parts".into(),
            false => format!("{} free", parts.join(" and ")),
        }
    }
}
