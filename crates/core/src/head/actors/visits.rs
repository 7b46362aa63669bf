//! Those who call an actor that is not theirs, and the guest lease that each of them has (AC-1, AC-3, AC-4).

use super::super::{BEATS, Effect, Head, NodeLink};
use super::{Actor, CALLED_ACTOR, Guest, Visit, has_most};
use crate::time::Tick;
use paceline_proto::control::{Gone, HeadToClient, HeadToNode};
use paceline_proto::{ActorId, ClientId, Death, LeaseId, NodeId, SlotId};

impl Head {
    pub(in crate::head) fn on_visit(
        &mut self,
        now: Tick,
        from: ClientId,
        id: ActorId,
        stay: bool,
        held: Option<LeaseId>,
        out: &mut Vec<Effect>,
    ) {
        self.actors.unnamed.on_visited(from, id);
        if !stay {
            return self.end_visit(id, from, out);
        }
        if !self.clients.get(&from).is_some_and(|client| client.is_up()) {
            return;
        }
        if let Some(why) = self.actors.gone.get(&id).filter(|_| !self.actors.all.contains_key(&id)) {
            let why = why.clone();
            if let Some(lease) = held {
                self.tell_client(from, HeadToClient::Ended { lease, death: Death::of_lost_node() }, out);
            }
            return self.tell_client(from, HeadToClient::ActorGone { actor: id, why }, out);
        }
        let most = self.config.max_called_actors;
        if !self.actors.visitors.contains(&(from, id)) && has_most(&self.actors.visitors, from, most) {
            let why =
                format!("this client calls {most} actors of others already (max_called_actors of the head)");
            return self.tell_client(from, HeadToClient::ActorGone { actor: id, why: why.into() }, out);
        }
        if !self.actors.visitors.contains(&(from, id)) {
            if let Some(why) = self.refuse_bytes(from, CALLED_ACTOR) {
                return self.tell_client(from, HeadToClient::ActorGone { actor: id, why: why.into() }, out);
            }
            self.actors.visitors.insert((from, id));
            self.charge(from, CALLED_ACTOR);
        }
        let until = now + self.config.heartbeat * BEATS;
        let actor = self.actors.all.entry(id).or_insert_with(Actor::unknown);
        if !actor.is_known() && actor.unknown_until.is_none() {
            // Its owner may not have come back yet, or its word may be on its way.
            actor.unknown_until = Some(until);
            self.no_later_than(until);
        }
        let actor = self.actors.all.get_mut(&id).expect("it is there by now");
        let visit = actor.visits.entry(from).or_default();
        visit.told_away = false;
        match &visit.guest {
            None => visit.held = held,
            Some(guest) if held == Some(guest.lease) => {}
            Some(guest) => {
                let (guest, was_told) = (guest.lease, guest.placed || guest.again);
                if let Some(lease) = held {
                    self.tell_client(from, HeadToClient::Ended { lease, death: Death::of_lost_node() }, out);
                }
                if was_told {
                    // The grant was lost with a link, or the client gave it up while the link was down: AC-7.
                    self.on_guest_broken(from, guest, out);
                }
            }
        }
        self.actors.dirty.insert(id);
    }

    fn tell_visiting(
        &mut self,
        client: ClientId,
        actor: ActorId,
        lease: LeaseId,
        node: NodeId,
        slot: SlotId,
        out: &mut Vec<Effect>,
    ) {
        let secret = self.secret_of(lease);
        self.tell_where(client, node, out);
        self.tell_client(client, HeadToClient::Visiting { actor, lease, node, slot, secret }, out);
    }

    pub(super) fn end_visit(&mut self, id: ActorId, from: ClientId, out: &mut Vec<Effect>) {
        let Some(actor) = self.actors.all.get_mut(&id) else { return };
        let Some(visit) = actor.visits.remove(&from) else { return };
        if self.actors.visitors.remove(&(from, id)) {
            self.uncharge(from, CALLED_ACTOR);
        }
        if let Some(guest) = visit.guest {
            self.actors.strike_guest(&guest);
            self.end_guest(&guest, out);
        }
        self.actors.dirty.insert(id);
    }

    /// The actor is gone: who visits it is told, but not before it knows what became of its calls (AC-4).
    pub(super) fn see_off_visitors(&mut self, id: ActorId, why: &Gone, out: &mut Vec<Effect>) {
        let actor = self.actors.all.get_mut(&id).expect("seen by the caller");
        let free: Vec<(ClientId, Option<LeaseId>)> = (actor.visits.iter())
            .filter(|(_, visit)| visit.guest.is_none())
            .map(|(&client, visit)| (client, visit.held))
            .collect();
        for (client, _) in &free {
            actor.visits.remove(client);
            self.actors.visitors.remove(&(*client, id));
        }
        for (client, _) in &free {
            self.uncharge(*client, CALLED_ACTOR);
        }
        for (client, held) in free {
            if let Some(lease) = held {
                self.tell_client(client, HeadToClient::Ended { lease, death: Death::of_lost_node() }, out);
            }
            self.tell_client(client, HeadToClient::ActorGone { actor: id, why: why.clone() }, out);
        }
    }

    /// Everybody who waits to visit is let in, if the actor has a place.
    pub(super) fn let_in(&mut self, id: ActorId, out: &mut Vec<Effect>) {
        let actor = &self.actors.all[&id];
        let Some(host) = actor.host else { return self.keep_waiting(id, out) };
        let Some(lease) = self.leases.get(&host) else {
            if !self.claims.contains_key(&host) {
                // It ended before its owner said that the actor lives there, or its owner has not heard yet.
                self.on_host_ended(host, None, out);
                self.keep_waiting(id, out);
            }
            return;
        };
        let up = self.nodes.get(&lease.node).is_some_and(|node| matches!(node.link, NodeLink::Up { .. }));
        let (node, slot) = (lease.node, lease.slot());
        let Some(slot) = slot.filter(|_| up && Some(lease.client) == actor.owner) else { return };
        let waits = |visit: &Visit| visit.guest.is_none() && visit.refused != Some(host);
        let waiting = actor.visits.iter().filter(|(_, visit)| waits(visit)).map(|(&client, _)| client);
        for client in waiting.collect::<Vec<_>>() {
            let fresh = self.next_lease();
            let held = self.visit_mut(id, client).held.take();
            let again = held.is_some_and(|held| !self.is_on_books(held));
            if let Some(lease) = held.filter(|_| !again) {
                // It is somebody's already. Whoever else names it does not have it.
                self.tell_client(client, HeadToClient::Ended { lease, death: Death::of_lost_node() }, out);
            }
            let lease = held.filter(|_| again).unwrap_or(fresh);
            let visit = self.visit_mut(id, client);
            visit.told_away = false;
            visit.guest = Some(Guest { lease, node, host, slot, placed: false, again, via: None });
            self.actors.guests.insert(lease, (id, client));
            self.actors.guests_by_host.insert((host, lease));
            let secret = self.secret_of(lease);
            let message = HeadToNode::Admit { lease, host, secret, again };
            self.tell_node(node, message, out);
        }
    }

    /// The actor has no place: those who come from an earlier one hear that it is over, and all if nobody knows what
    /// became of it.
    fn keep_waiting(&mut self, id: ActorId, out: &mut Vec<Effect>) {
        let actor = self.actors.all.get_mut(&id).expect("seen by the caller");
        let away = actor.away;
        let mut news = Vec::new();
        for (&client, visit) in &mut actor.visits {
            if let Some(lease) = visit.held.take() {
                news.push((client, HeadToClient::Ended { lease, death: Death::of_lost_node() }));
            }
            if away && visit.guest.is_none() && !std::mem::replace(&mut visit.told_away, true) {
                let why =
                    "its node is silent, and it is rebuilt only when that is known to have ended".into();
                news.push((client, HeadToClient::ActorAway { actor: id, why }));
            }
        }
        news.into_iter().for_each(|(client, message)| self.tell_client(client, message, out));
    }

    /// The node has admitted the guest. True if it is one.
    pub(in crate::head) fn on_guest_placed(
        &mut self,
        node: NodeId,
        lease: LeaseId,
        out: &mut Vec<Effect>,
    ) -> bool {
        let Some(&(actor, client)) = self.actors.guests.get(&lease) else { return false };
        let guest = self.guest_mut(actor, client);
        if guest.node == node && !std::mem::replace(&mut guest.placed, true) {
            let (slot, again) = (guest.slot, guest.again);
            match again {
                true => self.tell_where(client, node, out),
                false => self.tell_visiting(client, actor, lease, node, slot, out),
            }
        }
        true
    }

    fn visit_mut(&mut self, actor: ActorId, client: ClientId) -> &mut Visit {
        let actor = self.actors.all.get_mut(&actor).expect("AC-1: a guest visits an actor");
        actor.visits.get_mut(&client).expect("AC-1: a guest has its visit")
    }

    pub(super) fn guest_mut(&mut self, actor: ActorId, client: ClientId) -> &mut Guest {
        self.visit_mut(actor, client).guest.as_mut().expect("AC-1: a visit has its guest")
    }

    /// Returns whether this is a lease that the head knows, of whatever kind.
    fn is_on_books(&self, lease: LeaseId) -> bool {
        self.leases.contains_key(&lease) || self.actors.guests.contains_key(&lease)
    }

    /// A node has this lease. A client that named it as its guest lease never had it.
    pub(in crate::head) fn end_false_guest(&mut self, lease: LeaseId, out: &mut Vec<Effect>) {
        if let Some(&(actor, client)) = self.actors.guests.get(&lease) {
            let node = self.guest_mut(actor, client).node;
            self.on_guest_ended(node, lease, None, out);
        }
    }

    /// The guest lease is over: the slot died, or its node does not know it. True if it is one.
    pub(in crate::head) fn on_guest_ended(
        &mut self,
        node: NodeId,
        lease: LeaseId,
        death: Option<&Death>,
        out: &mut Vec<Effect>,
    ) -> bool {
        let Some(&(id, client)) = self.actors.guests.get(&lease) else { return false };
        if self.guest_mut(id, client).node != node {
            return true;
        }
        let visit = self.visit_mut(id, client);
        let guest = visit.guest.take().expect("AC-1: a visit has its guest");
        if death.is_some() || !guest.placed && !guest.again {
            // Whatever hosted the actor there does so no more, and the word of that is on its way.
            visit.refused = Some(guest.host);
        }
        self.actors.strike_guest(&guest);
        if let Some(via) = guest.via {
            self.tell_node(via, HeadToNode::End { lease }, out);
        }
        if guest.placed || guest.again {
            let death = death.cloned().unwrap_or_else(Death::of_lost_node);
            self.tell_client(client, HeadToClient::Ended { lease, death }, out);
        }
        self.actors.dirty.insert(id);
        true
    }

    /// The client says that it cannot reach the slot any more: it gets another guest lease, if that helps. True if it is
    /// one. Its calls may have run.
    pub(in crate::head) fn on_guest_broken(
        &mut self,
        from: ClientId,
        lease: LeaseId,
        out: &mut Vec<Effect>,
    ) -> bool {
        let Some(&(id, client)) = self.actors.guests.get(&lease) else { return false };
        if client == from {
            let node = self.guest_mut(id, client).node;
            self.tell_node(node, HeadToNode::End { lease }, out);
            self.on_guest_ended(node, lease, None, out);
        }
        true
    }

    /// The client opens no connection to the slot: another node may pass it on. True if it is a guest's.
    pub(in crate::head) fn on_guest_unreachable(
        &mut self,
        from: ClientId,
        lease: LeaseId,
        out: &mut Vec<Effect>,
    ) -> bool {
        let Some(&(id, client)) = self.actors.guests.get(&lease) else { return false };
        if client != from {
            return true;
        }
        let guest = self.guest_mut(id, client);
        let (target, before) = (guest.node, guest.via.take());
        if let Some(before) = before {
            self.tell_node(before, HeadToNode::End { lease }, out);
        }
        let addresses = self.nodes.get(&target).map(|node| node.addresses.clone()).unwrap_or_default();
        match self.next_relay(target, before).filter(|_| !addresses.is_empty()) {
            Some(via) => {
                self.guest_mut(id, client).via = Some(via);
                let there = self.nodes[&via].addresses.clone();
                self.tell_node(via, HeadToNode::Relay { lease, addresses }, out);
                self.tell_client(from, HeadToClient::Via { lease, node: via, addresses: there }, out);
            }
            None => {
                self.on_guest_broken(from, lease, out);
            }
        }
        true
    }

    /// Returns the guest leases whose connections this node passes on, each with the node that it is on.
    pub(in crate::head) fn guests_via(&self, via: NodeId) -> impl Iterator<Item = (LeaseId, NodeId)> {
        let visits = self.actors.all.values().flat_map(|actor| actor.visits.values());
        let guests = visits.filter_map(|visit| visit.guest.as_ref());
        guests.filter(move |guest| guest.via == Some(via)).map(|guest| (guest.lease, guest.node))
    }

    /// The guest lease is over on the books: its node lets it go, and who passes its connections on.
    fn end_guest(&self, guest: &Guest, out: &mut Vec<Effect>) {
        for node in guest.via.into_iter().chain([guest.node]) {
            self.tell_node(node, HeadToNode::End { lease: guest.lease }, out);
        }
    }

    /// The node is gone, and with it whatever guests were left there.
    pub(in crate::head) fn lose_guests(&mut self, node: NodeId, out: &mut Vec<Effect>) {
        let visits = self.actors.all.values().flat_map(|actor| actor.visits.values());
        let guests = visits.filter_map(|visit| visit.guest.as_ref()).filter(|guest| guest.node == node);
        let lost: Vec<LeaseId> = guests.map(|guest| guest.lease).collect();
        let death = Death::of_lost_node();
        for lease in lost {
            self.on_guest_ended(node, lease, Some(&death), out);
        }
    }

    /// What was said to this node of guests may have been lost with its link.
    pub(in crate::head) fn admit_again(&self, node: NodeId, out: &mut Vec<Effect>) {
        let visits = self.actors.all.values().flat_map(|actor| actor.visits.values());
        let guests = visits.filter_map(|visit| visit.guest.as_ref());
        for guest in guests.filter(|guest| guest.node == node && !guest.placed) {
            self.tell_node(node, self.admit(guest), out);
        }
    }

    fn admit(&self, guest: &Guest) -> HeadToNode {
        let &Guest { lease, host, again, .. } = guest;
        HeadToNode::Admit { lease, host, secret: self.secret_of(lease), again }
    }
}
