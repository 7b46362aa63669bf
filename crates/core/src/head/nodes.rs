//! What nodes say, and what happens when they fall silent.

use super::detached::Gone;
use super::devices::Books;
use super::{BEATS, Departed, Effect, Head, LeaseState, Node, NodeLink, Report};
use crate::time::Tick;
use paceline_proto::control::{HeadToClient, HeadToNode, Met, NodeToHead, Placement};
use paceline_proto::{Death, Facts, Incarnation, LeaseId, NodeId, Resources, SlotId};
use std::collections::{BTreeMap, BTreeSet};

impl Head {
    pub(super) fn on_node(&mut self, now: Tick, from: NodeId, message: NodeToHead, out: &mut Vec<Effect>) {
        if let NodeToHead::Join { incarnation, .. } = message
            && self.is_outrun(from, incarnation)
        {
            // What the later start has is there all the same (FE-2).
            return self.send_away(from, out);
        }
        if let Some(NodeLink::Up { heard }) = self.nodes.get_mut(&from).map(|node| &mut node.link) {
            *heard = now;
        }
        match message {
            NodeToHead::Join { node, incarnation, name, total, leases, met, addresses, facts } => {
                if node == from && self.outranks(met, out) {
                    let fresh = Node::new(incarnation, name, total, facts, now);
                    self.on_join(now, fresh, node, &leases, met, out);
                    self.on_addresses(node, addresses, out);
                }
            }
            NodeToHead::Placed { lease, slot } => self.on_placed(now, from, lease, slot, out),
            NodeToHead::Ended { lease, death } => {
                if death.is_some() && !self.is_news_of_work(from, lease) {
                    self.tell_node(from, HeadToNode::Heard { lease }, out);
                }
                self.strike_from_report(from, lease);
                self.on_ended(now, from, lease, death, out);
                self.fences_on_ended(from, lease);
            }
            NodeToHead::Output { client, slot, stream, text } => {
                self.tell_client(client, HeadToClient::Output { slot, stream, text }, out);
            }
            NodeToHead::ProgramFailed { program, why } => self.on_program_failed(program, &why, out),
            NodeToHead::Heartbeat { beat } => {
                self.tell_node(from, HeadToNode::Heartbeat { beat }, out);
                // A node beats only to the head that it obeys.
                self.on_obeyed(now, from, out);
            }
            NodeToHead::Blocked { lease, blocked, full } => {
                self.on_blocked(from, lease, blocked);
                self.on_full(from, full);
            }
            // The shell takes it.
            NodeToHead::Answer { .. } => {}
            NodeToHead::Leaving => self.on_drain(from, out),
        }
    }

    fn on_join(
        &mut self,
        now: Tick,
        fresh: Node,
        id: NodeId,
        placed: &[Placement],
        met: Option<Met>,
        out: &mut Vec<Effect>,
    ) {
        let known =
            self.nodes.get(&id).map(|node| (node.incarnation, matches!(node.link, NodeLink::Up { .. })));
        let repeated = known == Some((fresh.incarnation, true));
        if known.is_some_and(|(before, _)| before < fresh.incarnation) {
            // A later start of the node: what the one before had is gone for certain.
            self.lose_node(now, id, Gone::Dead, out);
        }
        self.departed.remove(&id);
        self.learn_names(fresh.facts.resources.clone());
        let node = self.nodes.entry(id).or_insert_with(|| {
            self.total.add(&fresh.total);
            self.room.know(id, &fresh);
            fresh
        });
        node.link = NodeLink::Up { heard: now };
        self.note_room(id);
        self.no_later_than(now + self.config.heartbeat * self.config.beats);
        self.tell_node(id, self.welcome_node(), out);
        // Repeated on a link that is up: its list of leases is old by now (HD-5).
        if !repeated {
            self.reconcile_node(now, id, placed, met, out);
            // One more node makes nothing impossible; the first one may show that something is, and one that is smaller
            // than it was.
            if self.nodes.len() == 1 || known.is_some() {
                self.judge_all(now, out);
            }
            self.dirty = true;
            self.tell_again(id, out);
        }
    }

    fn reconcile_node(
        &mut self,
        now: Tick,
        id: NodeId,
        placed: &[Placement],
        met: Option<Met>,
        out: &mut Vec<Effect>,
    ) {
        let foreign: Vec<&Placement> =
            placed.iter().filter(|placement| !self.leases.contains_key(&placement.lease)).collect();
        let earlier = |placement: &&Placement| placement.epoch < self.config.epoch;
        let earlier: BTreeSet<LeaseId> = placed.iter().filter(earlier).map(|it| it.lease).collect();
        let blocked: Vec<(LeaseId, bool)> = placed.iter().map(|it| (it.lease, it.blocked)).collect();
        let placed: BTreeMap<LeaseId, SlotId> = placed.iter().map(|it| (it.lease, it.slot)).collect();
        let believed = self.nodes[&id].leases.clone();
        for lease in believed {
            match (self.leases[&lease].state, placed.get(&lease)) {
                (LeaseState::Placing, Some(&slot)) => self.on_placed(now, id, lease, slot, out),
                (LeaseState::Held { .. } | LeaseState::Recalled { .. }, Some(_)) => {
                    if earlier.contains(&lease) {
                        self.tell_holder_confirmed(lease, out);
                    }
                }
                (LeaseState::Unclaimed { .. }, Some(_)) => {}
                (LeaseState::Broken | LeaseState::Ending, Some(_)) => {
                    self.tell_node(id, HeadToNode::End { lease }, out)
                }
                (_, None) => self.on_ended(now, id, lease, Some(Death::of_lost_node()), out),
            }
        }
        for placement in foreign {
            self.adopt(now, id, placement, met, out);
        }
        let found = placed.keys().filter_map(|lease| self.leases.get(lease)?.exclusive).collect();
        let report = Report { placed, found };
        self.nodes.get_mut(&id).expect("it has just joined").unconfirmed_report = Some(report);
        if self.is_this(met) {
            self.on_obeyed(now, id, out);
        }
        blocked.into_iter().for_each(|(lease, blocked)| self.on_blocked(id, lease, blocked));
        self.admit_again(id, out);
        self.relay_again(id, out);
        self.look_at_actors();
    }

    /// The node obeys this head, and no earlier one any more: what it has reported holds (FE-5).
    fn on_obeyed(&mut self, now: Tick, id: NodeId, out: &mut Vec<Effect>) {
        let report = self.nodes.get_mut(&id).and_then(|node| node.unconfirmed_report.take());
        if let Some(Report { placed, found }) = report {
            found.into_iter().for_each(|exclusive| self.fences_on_found(exclusive));
            self.on_works_reported(now, id, &placed, out);
            self.fences_on_report(id, &placed);
            self.refuse_claims(id, &placed, out);
            self.look_at_actors();
        }
    }

    /// What the node has reported has ended. Its report does not hold yet, but this does: what is over stays over (FE-5).
    fn strike_from_report(&mut self, node: NodeId, lease: LeaseId) {
        if let Some(report) = self.nodes.get_mut(&node).and_then(|node| node.unconfirmed_report.as_mut()) {
            report.placed.remove(&lease);
        }
    }

    fn on_placed(&mut self, now: Tick, node: NodeId, id: LeaseId, slot: SlotId, out: &mut Vec<Effect>) {
        if self.on_guest_placed(node, id, out) {
            return;
        }
        match self.leases.get_mut(&id).filter(|lease| lease.node == node) {
            // A lease given up while the node was out of reach.
            None => self.tell_node(node, HeadToNode::End { lease: id }, out),
            Some(lease) if lease.state == LeaseState::Placing => {
                lease.state = LeaseState::Held { slot, since: now };
                let (client, shape, exclusive) = (lease.client, lease.shape, lease.exclusive);
                self.note_held(id);
                self.on_work_placed(client, id, slot);
                let secret = self.secret_of(id);
                let incarnation = self.nodes[&node].incarnation;
                let lease = id;
                let granted =
                    HeadToClient::Granted { lease, node, slot, shape, incarnation, secret, exclusive };
                self.tell_where(client, node, out);
                self.tell_client(client, granted, out);
                self.recall_if_leaving(id, out);
                // One that waits may now ask for this lease back.
                self.dirty = true;
            }
            Some(_) => {}
        }
    }

    fn on_ended(
        &mut self,
        now: Tick,
        node: NodeId,
        id: LeaseId,
        death: Option<Death>,
        out: &mut Vec<Effect>,
    ) {
        if self.on_guest_ended(node, id, death.as_ref(), out) {
            return;
        }
        let Some(lease) = self.leases.get(&id).filter(|lease| lease.node == node) else { return };
        let (client, state) = (lease.client, lease.state);
        self.unrelay(id, out);
        self.finish(id);
        self.on_host_ended(id, death.as_ref(), out);
        match &death {
            Some(death) => self.end_under(id, death, out),
            None => self.place_below(id),
        }
        match state {
            LeaseState::Held { .. } | LeaseState::Recalled { .. } | LeaseState::Broken => {
                let death = death.clone().unwrap_or_else(Death::of_lost_node);
                self.tell_client(client, HeadToClient::Ended { lease: id, death }, out);
            }
            LeaseState::Placing | LeaseState::Ending | LeaseState::Unclaimed { .. } => {}
        }
        self.on_work_over(now, client, id, death.as_ref(), out);
    }

    pub(super) fn on_node_down(&mut self, now: Tick, id: NodeId, out: &mut Vec<Effect>) {
        if self.on_dismissed_gone(now, id, out) {
            return;
        }
        let until = now + self.config.heartbeat * BEATS;
        let Some(node) = self.nodes.get_mut(&id) else { return };
        if matches!(node.link, NodeLink::Up { .. }) {
            node.link = NodeLink::Down { until, heard: now };
            self.note_room(id);
            self.no_later_than(until);
        }
    }

    /// Nothing is waited for that only its process could do: what may run again does so at once. Whether its slots are gone,
    /// too, nobody has said, so what must exist once waits as for a node that is silent (FE-1).
    pub(super) fn on_node_died(&mut self, now: Tick, id: NodeId, out: &mut Vec<Effect>) {
        self.on_node_down(now, id, out);
        let Some(node) = self.nodes.get(&id) else { return };
        let NodeLink::Down { heard, .. } = node.link else { return };
        self.depart(now, id, heard, out);
    }

    /// The node counts as lost, and is remembered for a while.
    fn depart(&mut self, now: Tick, id: NodeId, heard: Tick, out: &mut Vec<Effect>) {
        let node = self.lose_node(now, id, Gone::Silent { heard }, out);
        let until = now + self.config.head_lost;
        self.departed.insert(id, Departed { node, until });
        self.no_later_than(until);
    }

    pub(super) fn give_up_nodes(&mut self, now: Tick, out: &mut Vec<Effect>) {
        self.departed.retain(|_, departed| departed.until > now);
        let silence = self.config.heartbeat * self.config.beats;
        let mut lost = Vec::new();
        let mut next: Option<Tick> = self.departed.values().map(|departed| departed.until).min();
        for (&id, node) in &self.nodes {
            let (until, up, heard) = match node.link {
                NodeLink::Up { heard } => (heard + silence, true, heard),
                NodeLink::Down { until, heard } => (until, false, heard),
            };
            if until <= now {
                lost.push((id, up, heard));
            } else {
                next = Some(next.map_or(until, |next| next.min(until)));
            }
        }
        next.into_iter().for_each(|at| self.no_later_than(at));
        for (id, up, heard) in lost {
            self.depart(now, id, heard, out);
            if up {
                out.push(Effect::DropNode(id));
            }
        }
    }

    /// The node is gone, and with it whatever ran there. Returns what it was.
    pub(super) fn lose_node(&mut self, now: Tick, id: NodeId, gone: Gone, out: &mut Vec<Effect>) -> Node {
        let leases: Vec<LeaseId> = self.nodes[&id].leases.iter().copied().collect();
        leases.iter().for_each(|&lease| self.on_work_lost(now, lease, gone, out));
        self.know_dead(gone == Gone::Dead);
        for lease in leases {
            if let Gone::Silent { heard } = gone {
                self.fence(now, lease, heard);
            }
            self.on_ended(now, id, lease, Some(Death::of_lost_node()), out);
        }
        self.lose_guests(id, out);
        self.know_dead(false);
        let node = self.nodes.remove(&id).expect("the node is known");
        self.room.remove(id, &node);
        self.room.forget(id, &node);
        self.grown.remove(&id);
        self.leaving.remove(&id);
        self.total.remove(&node.total);
        self.dirty = true;
        node
    }

    /// List the node among those that take leases, by what is free on it now, or not at all while it is out of reach.
    pub(super) fn note_room(&mut self, id: NodeId) {
        let node = &self.nodes[&id];
        match node.link {
            NodeLink::Up { .. } if !self.leaving.contains(&id) => {
                self.room.add(id, node);
                self.grown.insert(id);
            }
            NodeLink::Up { .. } | NodeLink::Down { .. } => self.room.remove(id, node),
        };
    }
}

impl Node {
    fn new(incarnation: Incarnation, name: String, total: Resources, facts: Facts, now: Tick) -> Node {
        Node {
            incarnation,
            name,
            total,
            devices: Books::new(&total, &facts),
            facts,
            addresses: Vec::new(),
            used: Resources::default(),
            returning: Resources::default(),
            leases: BTreeSet::new(),
            link: NodeLink::Up { heard: now },
            dismissed: false,
            full: false,
            unconfirmed_report: None,
        }
    }
}
