//! Nodes that are to go, and the end of the cluster.
//!
//! * LV-1: a node that leaves gets no further lease, and the clients of those it has are asked to give them back.
//! * LV-2: it is told to go when it has no lease left, and counts as gone, for good, when its link is.
//! * LV-4: tasks that wait for others hold up nobody for ever: when there is no node left on which what they wait for
//!   could run, theirs goes as it is.
//! * LV-3: a cluster that closes grants nothing; every node, also one that comes back meanwhile, is told to go.

use super::detached::Gone;
use super::{Effect, Head, LeaseState, Node, NodeLink};
use crate::time::Tick;
use paceline_proto::control::{HeadToClient, HeadToNode};
use paceline_proto::{ClientId, LeaseId, NodeId};

impl Head {
    /// Let this node finish what it runs and go. Said again, it changes nothing.
    pub(super) fn on_drain(&mut self, id: NodeId, out: &mut Vec<Effect>) {
        if !self.nodes.contains_key(&id) || !self.leaving.insert(id) {
            return;
        }
        self.note_room(id);
        for lease in self.nodes[&id].leases.iter().copied().collect::<Vec<_>>() {
            self.recall_if_leaving(lease, out);
        }
    }

    /// LV-1, also for leases that had been on their way when the node was told.
    pub(super) fn recall_if_leaving(&mut self, id: LeaseId, out: &mut Vec<Effect>) {
        let lease = &self.leases[&id];
        if self.leaving.contains(&lease.node) && matches!(lease.state, LeaseState::Held { .. }) {
            self.recall(id, out);
        }
    }

    /// LV-2. Called at the end of each step.
    pub(super) fn dismiss(&mut self, out: &mut Vec<Effect>) {
        if self.leaving.is_empty() {
            return;
        }
        let stuck = self.is_stuck();
        let over = |node: &Node| (node.leases.is_empty() || stuck) && !node.dismissed;
        let idle = self.leaving.iter().filter(|id| self.nodes.get(id).is_some_and(over));
        let idle: Vec<NodeId> = idle.copied().collect();
        for id in idle {
            self.say_goodbye(id, out);
        }
    }

    /// Whether everything that runs waits for something that can run nowhere (LV-4).
    fn is_stuck(&self) -> bool {
        let takes = |(id, node): (&NodeId, &Node)| {
            matches!(node.link, NodeLink::Up { .. }) && !self.leaving.contains(id)
        };
        !self.nodes.iter().any(takes)
            && !self.leases.is_empty()
            && self.leases.values().all(|lease| lease.blocked)
    }

    fn say_goodbye(&mut self, id: NodeId, out: &mut Vec<Effect>) {
        let node = self.nodes.get_mut(&id).expect("only nodes that are here are told to go");
        if matches!(node.link, NodeLink::Up { .. }) {
            node.dismissed = true;
            out.push(Effect::ToNode(id, HeadToNode::Bye));
        }
    }

    /// A node that was told to go comes back, over another link: what it was told was lost.
    pub(super) fn tell_again(&mut self, id: NodeId, out: &mut Vec<Effect>) {
        if self.closing.is_some() {
            self.leaving.insert(id);
            self.note_room(id);
        }
        if self.closing.is_some() || self.nodes[&id].dismissed {
            self.say_goodbye(id, out);
        }
    }

    /// The link of a node is gone that was told to go. Says whether it was such a node.
    pub(super) fn on_dismissed_gone(&mut self, now: Tick, id: NodeId, out: &mut Vec<Effect>) -> bool {
        let gone = self.nodes.get(&id).is_some_and(|node| node.dismissed);
        if gone {
            // It was told to go; whether it has, nobody knows for certain.
            self.lose_node(now, id, Gone::Silent { heard: now }, out);
            self.judge_all(now, out);
        }
        gone
    }

    /// LV-3.
    pub(super) fn on_close(&mut self, by: String, out: &mut Vec<Effect>) {
        if self.closing.is_some() {
            return;
        }
        self.forget_works(out);
        self.closing = Some(by);
        let clients: Vec<ClientId> = self.clients.keys().copied().collect();
        clients.into_iter().for_each(|client| self.tell_of_the_end(client, out));
        for id in self.nodes.keys().copied().collect::<Vec<_>>() {
            self.leaving.insert(id);
            self.note_room(id);
            self.say_goodbye(id, out);
        }
    }

    /// If the cluster is ending, the client hears of it, also one that comes back meanwhile.
    pub(super) fn tell_of_the_end(&self, client: ClientId, out: &mut Vec<Effect>) {
        if let Some(by) = &self.closing {
            self.tell_client(client, HeadToClient::Bye { by: by.clone() }, out);
        }
    }

    /// The nodes that are here, by name or number as people know them.
    pub fn nodes_named(&self, name: &str) -> Vec<NodeId> {
        let number = paceline_proto::question::node_name;
        let found = self.nodes.iter().filter(|(id, node)| node.name == name || number(**id) == name);
        found.map(|(&id, _)| id).collect()
    }
}
