//! What requests wait for, in words for people.
//!
//! * WT-1: a request that has got nothing for five seconds is told once what it waits for.

use super::{Effect, Head};
use crate::time::Tick;
use paceline_proto::control::HeadToClient;
use paceline_proto::{ClientId, Shape};
use std::collections::BTreeMap;
use std::time::Duration;

/// A request is told after this what it waits for.
const TELL_AFTER: Duration = Duration::from_secs(5);

/// Why one request waits.
#[derive(Clone, Debug, PartialEq)]
pub struct Waiting {
    pub client: ClientId,
    pub name: String,
    /// What it needs, for people.
    pub needs: String,
    pub wanted: u32,
    pub has: usize,
    pub since: Tick,
    /// How many families come before its own.
    pub before: usize,
    pub why: String,
}

impl Head {
    pub(super) fn note_wait(&mut self, now: Tick, client: ClientId, shape: Shape) {
        self.notices.insert((now + TELL_AFTER, client, shape));
        self.look_at(now + TELL_AFTER);
    }

    /// WT-1.
    pub(super) fn tell_waits(&mut self, now: Tick, out: &mut Vec<Effect>) {
        while let Some(&(at, client, shape)) = self.notices.first() {
            if at > now {
                return self.look_at(at);
            }
            self.notices.pop_first();
            let entry = self.clients.get(&client);
            let waits =
                entry.is_some_and(|entry| entry.wants.contains_key(&shape) && entry.count(shape) == 0);
            if waits {
                let why = self.what_it_waits_for(client, shape);
                self.tell_client(client, HeadToClient::Waits { shape, why }, out);
                // Which tasks wait for it may have become known since it was asked for (NV-3).
                self.judge(now, client, shape, out);
            }
        }
    }

    /// Everything that waits, in the order of clients.
    pub fn waiting(&self) -> Vec<Waiting> {
        let clients = self.clients.iter();
        let unmet = clients.flat_map(|(&id, client)| client.unmet().map(move |it| (id, client, it)));
        unmet
            .map(|(id, client, (shape, want))| Waiting {
                client: id,
                name: client.name.clone(),
                needs: shape.needs.named(&self.names),
                wanted: want.count,
                has: client.count(shape),
                since: want.since,
                before: self.before(id),
                why: self.what_it_waits_for(id, shape),
            })
            .collect()
    }

    /// How many families come before this client's.
    fn before(&self, id: ClientId) -> usize {
        let rank = self.rank(self.clients[&id].root);
        self.queue.families().filter(|(_, other, _)| *other < rank).count()
    }

    pub(super) fn what_it_waits_for(&self, id: ClientId, shape: Shape) -> String {
        if let Some(why) = self.why_fenced(id, shape) {
            return why;
        }
        let needs = shape.needs.named(&self.names);
        if self.nodes.is_empty() {
            return format!("{needs} on a node, and no node is here");
        }
        let could: Vec<_> =
            self.nodes.keys().filter(|node| self.could_hold(**node, id, shape)).copied().collect();
        if could.is_empty() {
            return format!("{needs} on a node that is not here at the moment");
        }
        let free = could.iter().map(|node| self.nodes[node].free()).max().unwrap_or_default();
        let leaving = could.iter().filter(|node| !self.takes_leases(**node)).count();
        let mut holders: BTreeMap<ClientId, usize> = BTreeMap::new();
        for lease in could.iter().flat_map(|node| &self.nodes[node].leases) {
            *holders.entry(self.leases[lease].client).or_default() += 1;
        }
        let mut holders: Vec<(usize, ClientId)> =
            holders.into_iter().map(|(id, count)| (count, id)).collect();
        holders.sort_by(|a, b| b.cmp(a));
        let named = holders.iter().take(3).map(|&(count, holder)| {
            let name = self.clients.get(&holder).map_or("a client that is gone", |client| &client.name);
            let slots = if count == 1 { "1 slot is".to_owned() } else { format!("{count} slots are") };
            if holder == id { format!("{slots} its own") } else { format!("{slots} {name}'s") }
        });
        let named: Vec<String> = named.collect();
        let mut text = format!(
            "{needs}: of {} that could hold it, the roomiest has {} free",
            if could.len() == 1 { "1 node".to_owned() } else { format!("{} nodes", could.len()) },
            free.named(&self.names)
        );
        if leaving > 0 {
            text += &format!(", {leaving} take nothing new");
        }
        if !named.is_empty() {
            text += &format!("; {}", named.join(", "));
        }
        text
    }
}
