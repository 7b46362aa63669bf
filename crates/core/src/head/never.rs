//! Requests that no node can ever hold: who waits for one is told at once, and what is missing.
//!
//! * NV-1: judged by the nodes that are here and by those that were here until lately.
//! * NV-2: with no node, and for a while after the head's start, nothing is impossible.

use super::{Departed, Effect, Head};
use crate::time::Tick;
use paceline_proto::control::HeadToClient;
use paceline_proto::placement::Rule;
use paceline_proto::resources::bytes;
use paceline_proto::{ClientId, Resources, Shape};

impl Head {
    /// Refuse what no node could ever hold.
    pub(super) fn judge(&mut self, now: Tick, id: ClientId, shape: Shape, out: &mut Vec<Effect>) {
        let settling = self.settled_at.is_none_or(|at| now < at);
        if settling || self.nodes.is_empty() || self.is_possible(id, shape) {
            return;
        }
        let largest = self.totals().max().unwrap_or_default();
        let why = self.what_is_missing(id, shape);
        if let Some(client) = self.clients.get_mut(&id) {
            client.wants.remove(&shape);
        }
        self.note_hunger(id);
        self.tell_client(id, HeadToClient::Unplaceable { shape, largest, why }, out);
    }

    pub(super) fn judge_all(&mut self, now: Tick, out: &mut Vec<Effect>) {
        let wants: Vec<(ClientId, Shape)> = (self.clients.iter())
            .flat_map(|(&id, client)| client.wants.keys().map(move |&shape| (id, shape)))
            .collect();
        wants.into_iter().for_each(|(id, shape)| self.judge(now, id, shape, out));
    }

    fn is_possible(&self, id: ClientId, shape: Shape) -> bool {
        let rule = self.rule(id, shape);
        if rule.is_some_and(|rule| !rule.gang.is_empty()) && self.departed.is_empty() {
            return self.could_hold_gang(id, shape);
        }
        self.nodes.values().any(|node| node.could_hold(shape.needs, rule))
            || self.departed.values().any(|departed| departed.could_hold(shape.needs, rule))
    }

    fn totals(&self) -> impl Iterator<Item = Resources> {
        let departed = self.departed.values().map(|departed| departed.node.total);
        self.nodes.values().map(|node| node.total).chain(departed)
    }

    /// In words: which resource is short, and how much the largest node has of it; or which labels nobody has.
    fn what_is_missing(&self, id: ClientId, shape: Shape) -> String {
        let rule = self.rule(id, shape);
        let needs = shape.needs.named(&self.names);
        let allowed: Vec<&super::Node> = self
            .nodes
            .values()
            .filter(|node| rule.is_none_or(|rule| rule.allows(&node.name, &node.facts.labels)))
            .collect();
        if let Some(rule) = rule.filter(|_| allowed.is_empty()) {
            return format!("no node has {}", rule.wishes());
        }
        let of = match rule.map(Rule::wishes).filter(|wishes| !wishes.is_empty()) {
            Some(wishes) => format!("node with {wishes}"),
            None => "node".to_owned(),
        };
        let most =
            |amount: fn(&Resources) -> u64| allowed.iter().map(|node| amount(&node.total)).max().unwrap_or(0);
        let (cpus, gpus, memory) =
            (most(Resources::cpu_units), most(Resources::gpu_units), most(Resources::memory));
        let short = |units: u64| units as f64 / 10_000.0;
        let mut missing = Vec::new();
        if shape.needs.cpu_units() > cpus {
            missing.push(format!("no {of} has more than {} CPUs", short(cpus)));
        }
        if shape.needs.gpu_units() > gpus {
            missing.push(match gpus {
                0 => format!("no {of} has a GPU"),
                _ => format!("no {of} has more than {} GPUs", short(gpus)),
            });
        }
        if shape.needs.memory() > memory {
            missing.push(format!("no {of} has more than {} of memory", bytes(memory)));
        }
        for (name, amount) in shape.needs.custom() {
            let has = allowed.iter().map(|node| node.total.custom_units(name)).max().unwrap_or(0);
            let name = self.names.get(&name).map_or("of that resource", String::as_str);
            match has {
                _ if amount <= has => {}
                0 => missing.push(format!("no {of} has any {name}")),
                _ => missing.push(format!("no {of} has more than {} {name}", short(has))),
            }
        }
        if let Some(rule) = rule.filter(|rule| missing.is_empty() && rule.gpu_memory > 0) {
            missing.push(format!("no {of} has enough GPUs with {}", bytes(rule.gpu_memory)));
        }
        if let Some(rule) = rule.filter(|rule| missing.is_empty() && !rule.gang.is_empty()) {
            let count: u32 = rule.gang.iter().map(|member| member.count).sum();
            missing.push(format!("all nodes together cannot hold the {count} members of the group at once"));
        }
        if missing.is_empty() {
            // Each is there, but on different nodes.
            let largest = allowed.iter().map(|node| node.total).max().unwrap_or_default();
            missing
                .push(format!("no {of} has all of {needs}, the largest has {}", largest.named(&self.names)));
        }
        missing.join("; ")
    }
}

impl Departed {
    fn could_hold(&self, needs: Resources, rule: Option<&Rule>) -> bool {
        self.node.could_hold(needs, rule)
    }
}
