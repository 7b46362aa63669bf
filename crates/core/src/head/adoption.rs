//! Leases of an earlier start of the head, which this one learns of from those who have them (HD-8).
//!
//! A node names the leases that live on it, a client those that it holds, and either may come first. Until both have, a
//! lease is half known: on its node it counts, for its client it goes on. A claim ends in one of two ways: the lease is the
//! client's again, or the client hears that it is over.

use super::{BEATS, Claim, Effect, Head, Lease, LeaseState};
use crate::time::Tick;
use paceline_proto::control::{HeadToClient, HeadToNode, Held, Met, Placement};
use paceline_proto::{ClientId, Death, LeaseId, NodeId, SlotId};
use std::collections::BTreeMap;
use std::time::Duration;

/// A node pauses for up to two seconds between two attempts to reach its head, however short the heartbeat is.
const MIN_REPORT_WAIT: Duration = Duration::from_secs(3);

impl Head {
    /// A node has a lease that this head does not know. It counts until the node says that it is over (HD-3).
    pub(super) fn adopt(
        &mut self,
        now: Tick,
        id: NodeId,
        placement: &Placement,
        met: Option<Met>,
        out: &mut Vec<Effect>,
    ) {
        let &Placement { lease, slot, shape, blocked, holder, epoch, devices, exclusive, .. } = placement;
        if self.leases.contains_key(&lease) {
            // It is on the list twice.
            return;
        }
        self.end_false_guest(lease, out);
        let node = self.nodes.get_mut(&id).expect("the node has just joined");
        // One that needs what the node does not have is none of ours.
        if node.leases.len() >= self.config.max_leases || !shape.needs.fits_in(&node.total) {
            return self.tell_node(id, HeadToNode::End { lease }, out);
        }
        node.leases.insert(lease);
        let is_old = epoch < self.config.epoch;
        let earlier = is_old && self.is_earlier(met);
        let ours = is_old && met.is_some_and(|met| met.cluster == self.config.cluster);
        // The node may have met this head already and come back with it: whoever claims it has it still. What is under it
        // may be work's, which no client can claim.
        let is_right = |claim: &Claim| claim.held.node == id && ours && holder.work().is_none();
        let (claim, refused) = match self.take_claim(lease) {
            Some(claim) if is_right(&claim) => (Some(claim), None),
            claim => (None, claim),
        };
        if let Some(claim) = refused {
            let death = Death::of_lost_node();
            self.tell_client(claim.client, HeadToClient::Ended { lease, death }, out);
        }
        let client = claim.as_ref().map_or(holder, |claim| claim.client);
        // One that is here and did not name it has given it back, or was never told of it.
        let abandoned = claim.is_none() && (self.clients.contains_key(&holder) || holder.work().is_some());
        let work = self.on_work_found(id, placement);
        let state = match claim {
            _ if work == Some(true) => LeaseState::Held { slot, since: now },
            Some(Claim { broken: true, .. }) => LeaseState::Broken,
            Some(_) => LeaseState::Held { slot, since: now },
            None if earlier && !abandoned => {
                let until = now + self.config.client_lost;
                self.no_later_than(until);
                LeaseState::Unclaimed { slot, until }
            }
            // Given up while the node was out of reach, or of a cluster that is no more.
            None => LeaseState::Ending,
        };
        self.leases.insert(
            lease,
            Lease {
                client,
                node: id,
                shape,
                devices,
                blocked,
                firm: work.is_some(),
                exclusive,
                state,
                via: None,
            },
        );
        self.add_copy(exclusive);
        self.holders.insert((client, lease));
        if state.is_somebodys() {
            self.hand_over(lease);
            self.tell_holder_confirmed(lease, out);
        }
        self.count(lease);
        self.place_under(lease);
        self.note_hunger(client);
        if matches!(state, LeaseState::Ending | LeaseState::Broken) {
            self.tell_node(id, HeadToNode::End { lease }, out);
        }
    }

    /// A client names a lease that is not on its list.
    pub(super) fn on_claim(
        &mut self,
        now: Tick,
        id: ClientId,
        held: Held,
        met: Option<Met>,
        out: &mut Vec<Effect>,
    ) {
        let Held { lease, node, incarnation, shape, exclusive } = held;
        let state = self.leases.get(&lease).map(|lease| lease.state);
        let claimed = self.claims.get(&lease).map(|claim| claim.client);
        if claimed == Some(id) {
            return;
        }
        if let Some(LeaseState::Unclaimed { slot, .. }) = state {
            self.uncount(lease);
            let entry = self.leases.get_mut(&lease).expect("seen above");
            self.holders.remove(&(entry.client, lease));
            self.holders.insert((id, lease));
            (entry.client, entry.state) = (id, LeaseState::Held { slot, since: now });
            self.hand_over(lease);
            self.tell_holder_confirmed(lease, out);
            self.count(lease);
            self.place_under(lease);
        } else if state.is_none()
            && claimed.is_none()
            && self.clients[&id].claimed.values().sum::<usize>() < self.config.max_claimed_leases
            && self.is_earlier(met)
            && !self.has_confirmed_report(node, incarnation)
        {
            // Whoever claimed it first has it.
            let until = now + (self.config.heartbeat * BEATS).max(MIN_REPORT_WAIT);
            self.no_later_than(until);
            let claim = Claim { client: id, held, said: now, until, broken: false };
            if self.claims.insert(lease, claim).is_none() {
                self.add_copy(exclusive);
            }
            let client = self.clients.get_mut(&id).expect("it has said hello");
            *client.claimed.entry(shape).or_default() += 1;
            self.note_hunger(id);
        } else {
            self.tell_client(id, HeadToClient::Ended { lease, death: Death::of_lost_node() }, out);
        }
    }

    /// Leases of an earlier start whose holder has come back without them.
    pub(super) fn end_unnamed(&mut self, id: ClientId, out: &mut Vec<Effect>) {
        let unclaimed = |lease: &LeaseId| matches!(self.leases[lease].state, LeaseState::Unclaimed { .. });
        let leases: Vec<LeaseId> = self.leases_of(id).filter(unclaimed).collect();
        leases.into_iter().for_each(|lease| self.end(lease, out));
    }

    /// Whether a lease of an earlier start waits for its holder to come back.
    pub(super) fn expects_holders(&self) -> bool {
        self.leases.values().any(|lease| matches!(lease.state, LeaseState::Unclaimed { .. }))
    }

    /// The node has reported: what was claimed on it and is not there is over.
    pub(super) fn refuse_claims(
        &mut self,
        node: NodeId,
        placed: &BTreeMap<LeaseId, SlotId>,
        out: &mut Vec<Effect>,
    ) {
        let incarnation = self.nodes[&node].incarnation;
        let is_refused = |claim: &Claim| claim.held.node == node && claim.held.incarnation <= incarnation;
        let there = |claim: &&Claim| is_refused(claim) && placed.contains_key(&claim.held.lease);
        for claim in
            self.claims.values().filter(there).map(|claim| (claim.held, claim.said)).collect::<Vec<_>>()
        {
            // The head does not want it, and the node is still to end it.
            self.fence_lost(claim.0, claim.1);
        }
        self.refuse(is_refused, out);
    }

    pub(super) fn give_up_claims(&mut self, now: Tick, out: &mut Vec<Effect>) {
        let late = self.claims.values().filter(|claim| claim.until <= now);
        for (held, said) in late.map(|claim| (claim.held, claim.said)).collect::<Vec<_>>() {
            // What is there may live on, and nobody knows (FE-3).
            self.fence_lost(held, said);
            self.on_host_ended(held.lease, Some(&Death::of_lost_node()), out);
        }
        self.refuse(|claim| claim.until <= now, out);
        let overdue: Vec<LeaseId> = (self.leases.iter())
            .filter(|(_, lease)| matches!(lease.state, LeaseState::Unclaimed { until, .. } if until <= now))
            .map(|(&id, _)| id)
            .collect();
        overdue.into_iter().for_each(|lease| self.end(lease, out));
        let unclaimed = self.leases.values().filter_map(|lease| match lease.state {
            LeaseState::Unclaimed { until, .. } => Some(until),
            _ => None,
        });
        let next = unclaimed.chain(self.claims.values().map(|claim| claim.until)).min();
        next.into_iter().for_each(|at| self.no_later_than(at));
    }

    fn refuse(&mut self, is_one: impl Fn(&Claim) -> bool, out: &mut Vec<Effect>) {
        let refused: Vec<(LeaseId, ClientId)> = (self.claims.iter())
            .filter(|(_, claim)| is_one(claim))
            .map(|(&lease, claim)| (lease, claim.client))
            .collect();
        for (lease, client) in refused {
            self.take_claim(lease);
            self.tell_client(client, HeadToClient::Ended { lease, death: Death::of_lost_node() }, out);
        }
    }

    pub(super) fn drop_claims(&mut self, is_one: impl Fn(&LeaseId, &Claim) -> bool) {
        let dropped = self.claims.iter().filter(|(lease, claim)| is_one(lease, claim));
        for (held, said) in dropped.map(|(_, claim)| (claim.held, claim.said)).collect::<Vec<_>>() {
            // Its node has not heard of that, and may have it still.
            self.fence_lost(held, said);
            self.take_claim(held.lease);
        }
    }

    /// The lease is known by now, or is over: its client may want another instead.
    fn take_claim(&mut self, lease: LeaseId) -> Option<Claim> {
        let claim = self.claims.remove(&lease)?;
        self.drop_copy(claim.held.exclusive);
        if let Some(client) = self.clients.get_mut(&claim.client)
            && let Some(count) = client.claimed.get_mut(&claim.held.shape)
        {
            *count -= 1;
            if *count == 0 {
                client.claimed.remove(&claim.held.shape);
            }
            self.note_hunger(claim.client);
            self.dirty = true;
        }
        Some(claim)
    }

    /// Tells the node that the holder of an actor's lease, which an earlier start of the head placed, obeys this head, if it
    /// does (FE-8). From now on this head's heartbeats keep the actor alive: no earlier head can give its holder another slot
    /// any more.
    pub(super) fn tell_holder_confirmed(&self, id: LeaseId, out: &mut Vec<Effect>) {
        let Lease { client, node, exclusive, .. } = self.leases[&id];
        if exclusive.is_some() && self.clients.get(&client).is_some_and(|client| client.obeys) {
            self.tell_node(node, HeadToNode::HolderConfirmed { lease: id }, out);
        }
    }

    /// The client has heard this head's welcome: what it has named counts for good (FE-8).
    pub(super) fn on_client_obeys(&mut self, id: ClientId, out: &mut Vec<Effect>) {
        let Some(client) = self.clients.get_mut(&id).filter(|client| client.is_up() && !client.obeys) else {
            return;
        };
        client.obeys = true;
        let leases: Vec<LeaseId> = client.leases.values().flatten().copied().collect();
        leases.into_iter().for_each(|lease| self.tell_holder_confirmed(lease, out));
    }

    /// Put the lease on its client's list.
    fn hand_over(&mut self, id: LeaseId) {
        let Lease { client, shape, .. } = self.leases[&id];
        let holder = self.clients.get_mut(&client).expect("leases are handed to clients that are here");
        holder.leases.entry(shape).or_default().insert(id);
        self.note_member(id);
        self.note_hunger(client);
    }

    /// Whether a peer has met this very head already.
    pub(super) fn is_this(&self, met: Option<Met>) -> bool {
        met.is_some_and(|met| met.cluster == self.config.cluster && met.epoch == self.config.epoch)
    }

    /// Whether a peer comes from an earlier start of this very cluster.
    pub(super) fn is_earlier(&self, met: Option<Met>) -> bool {
        met.is_some_and(|met| met.cluster == self.config.cluster && met.epoch < self.config.epoch)
    }
}
