//! Requests that no node can ever hold: who waits for one is told at once, and what is missing.
//!
//! * NV-1: judged by the nodes that are here and by those that were here until lately.
//! * NV-2: with no node, and for a while after the head's start, nothing is impossible.
//! * NV-3: what tasks keep while they wait for others (all but CPUs) is not there for those they wait for, unless the task
//!   that waits can run them itself.

use super::{Departed, Effect, Head};
use crate::time::Tick;
use paceline_proto::control::HeadToClient;
use paceline_proto::placement::Rule;
use paceline_proto::resources::bytes;
use paceline_proto::{ClientId, NodeId, Resources, Shape};
use std::collections::BTreeMap;

impl Head {
    /// Refuse what no node could ever hold.
    pub(super) fn judge(&mut self, now: Tick, id: ClientId, shape: Shape, out: &mut Vec<Effect>) {
        let settling = self.settled_at.is_none_or(|at| now < at);
        // Work waits for a node that can hold it: it was accepted when there was one.
        if settling || self.nodes.is_empty() || self.is_work(id) || self.is_possible(id, shape) {
            return;
        }
        let held = self.held_above(id);
        let free = self.could_ever_hold(id, shape, &BTreeMap::new());
        // It runs in the middle of the task that waits for it, once that does (TA-2).
        if free && self.may_run_in_parent(&self.clients[&id], shape) {
            return;
        }
        let largest = self.largest(&held);
        let why = match free {
            true => format!("{} is held by the tasks that wait for it", self.held_in_words(&held)),
            false => self.what_is_missing(id, shape),
        };
        self.forget_want(id, shape);
        self.note_hunger(id);
        self.tell_client(id, HeadToClient::Unplaceable { shape, largest, why }, out);
    }

    pub(super) fn judge_all(&mut self, now: Tick, out: &mut Vec<Effect>) {
        let wants: Vec<(ClientId, Shape)> = (self.clients.iter())
            .flat_map(|(&id, client)| client.wants.keys().map(move |&shape| (id, shape)))
            .collect();
        wants.into_iter().for_each(|(id, shape)| self.judge(now, id, shape, out));
    }

    /// Whether a node can hold this that is here or was here lately, or why none can (NV-2).
    pub(super) fn could_ever_run(&self, now: Tick, needs: Resources) -> Result<(), String> {
        let settling = self.settled_at.is_none_or(|at| now < at);
        let (nobody, shape) = (ClientId(0), Shape::of(needs));
        match settling || self.nodes.is_empty() || self.could_ever_hold(nobody, shape, &BTreeMap::new()) {
            true => Ok(()),
            false => Err(self.what_is_missing(nobody, shape)),
        }
    }

    fn is_possible(&self, id: ClientId, shape: Shape) -> bool {
        self.could_ever_hold(id, shape, &self.held_above(id))
    }

    /// Whether any node could, if it had all it has but what is `held` for as long as this waits.
    fn could_ever_hold(&self, id: ClientId, shape: Shape, held: &BTreeMap<NodeId, Resources>) -> bool {
        let rule = self.rule(id, shape);
        if rule.is_some_and(|rule| !rule.gang.is_empty()) && self.departed.is_empty() {
            return self.could_hold_gang(id, shape);
        }
        let left = |id: &NodeId, total: &Resources| match held.get(id) {
            Some(held) => total.less(held),
            None => *total,
        };
        let mut nodes = self.nodes.iter();
        nodes.any(|(id, node)| {
            node.could_hold(shape.needs, rule) && shape.needs.fits_in(&left(id, &node.total))
        }) || self.departed.values().any(|departed| departed.could_hold(shape.needs, rule))
    }

    /// What the tasks that wait for this client's task keep while they do, by node: all but CPUs.
    fn held_above(&self, id: ClientId) -> BTreeMap<NodeId, Resources> {
        let mut held = BTreeMap::new();
        let mut client = &self.clients[&id];
        // Families have no circles, but what others say of themselves is not believed.
        for _ in 0..=client.depth {
            let Some(lease) = client.under.and_then(|under| self.leases.get(&under)) else { break };
            let sum: &mut Resources = held.entry(lease.node).or_default();
            *sum = sum.plus(&lease.shape.needs.without_cpus());
            match self.clients.get(&lease.client) {
                Some(parent) => client = parent,
                None => break,
            }
        }
        held
    }

    fn held_in_words(&self, held: &BTreeMap<NodeId, Resources>) -> String {
        let all = held.values().fold(Resources::default(), |sum, each| sum.plus(each));
        all.named(&self.names)
    }

    /// The most that any node has, or had, besides what is held.
    pub(super) fn largest(&self, held: &BTreeMap<NodeId, Resources>) -> Resources {
        let here = self.nodes.iter().map(|(id, node)| match held.get(id) {
            Some(held) => node.total.less(held),
            None => node.total,
        });
        here.chain(self.departed.values().map(|departed| departed.node.total)).max().unwrap_or_default()
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
