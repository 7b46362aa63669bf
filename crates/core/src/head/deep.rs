//! Requests of tasks that will have to run them themselves.
//!
//! On a node where as many tasks wait for others as may, the next one that waits is told to get on by itself. What it has
//! asked for by then must not have been granted: it would wait for that all the same, for one slot more, and so would the
//! task in that slot.
//!
//! * DP-1: a slot on such a node is granted nothing before its task waits; but if it asks for longer than [`PATIENCE`], it
//!   will not wait, only look from time to time, and is served like everybody.

use super::Head;
use crate::time::Tick;
use paceline_proto::{ClientId, NodeId};
use std::time::Duration;

/// Who has asked for this long without waiting is not about to.
const PATIENCE: Duration = Duration::from_secs(1);

impl Head {
    /// The node says whether the next task that waits has to get on by itself.
    pub(super) fn on_full(&mut self, id: NodeId, full: bool) {
        let Some(node) = self.nodes.get_mut(&id) else { return };
        let before = std::mem::replace(&mut node.full, full);
        if full || before {
            let leases = self.nodes[&id].leases.iter();
            for client in leases.flat_map(|&lease| self.slots_under(lease)).collect::<Vec<_>>() {
                self.note_hunger(client);
            }
            self.dirty = true;
        }
    }

    /// What a client asks for, or what is known of its task, has changed.
    pub(super) fn note_held_back(&mut self, id: ClientId) {
        let asks = self.clients.get(&id).is_some_and(|client| client.unmet().next().is_some());
        if asks && self.is_held_back(id) {
            self.held_back.insert(id);
        } else {
            self.held_back.remove(&id);
        }
        if !asks && let Some(client) = self.clients.get_mut(&id) {
            client.polls = false;
        }
    }

    /// Whether a client gets nothing for the moment.
    pub(super) fn is_held_back(&self, id: ClientId) -> bool {
        let client = &self.clients[&id];
        let lease = client.under.and_then(|lease| self.leases.get(&lease));
        lease.is_some_and(|lease| !client.polls && !lease.blocked && self.nodes[&lease.node].full)
    }

    /// Those who have been held back for long enough are so no more.
    pub(super) fn let_go_on(&mut self, now: Tick) {
        for id in self.held_back.iter().copied().collect::<Vec<_>>() {
            let Some(since) = self.clients[&id].unmet().map(|(_, want)| want.since).min() else { continue };
            if since + PATIENCE > now {
                self.look_at(since + PATIENCE);
                continue;
            }
            self.clients.entry(id).and_modify(|client| client.polls = true);
            self.note_hunger(id);
        }
    }
}
