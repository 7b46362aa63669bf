//! Slots that are clients, too, and tasks that wait for them (HD-7).
//!
//! * FM-1 (no cycles): of clients that have a place none works for itself, through however many others. A slot whose
//!   word would close a cycle has no place until that changes: a task returned without waiting for its child, and a
//!   child of that child runs in its slot.

use super::{Effect, Family, Head, Lease, LeaseState, Node};
use paceline_proto::{ClientId, Death, DeathCause, LeaseId, NodeId, Resources, Sum};
use std::collections::BTreeSet;

/// Tasks that lie deeper than this below their root count as this deep.
pub(super) const MAX_NESTING_DEPTH: u32 = 1 << 16;

impl Head {
    /// The client says which of our leases it has. It works for whoever that lease is for, one task deeper.
    pub(super) fn on_under(&mut self, id: ClientId, lease: LeaseId) {
        let Some(client) = self.clients.get_mut(&id) else { return };
        if let Some(before) = client.under.replace(lease) {
            self.slots.remove(&(before, id));
        }
        self.slots.insert((lease, id));
        self.place_slots(vec![id]);
        self.dirty = true;
    }

    /// Its lease is known again, so a slot that is a client has its place in the family again (HD-8).
    pub(super) fn place_under(&mut self, lease: LeaseId) {
        let slots = self.slots_under(lease);
        if !slots.is_empty() {
            self.place_slots(slots);
            self.dirty = true;
        }
    }

    /// Gives these slots and all that work for them their places. What slots say of themselves need not be true, so
    /// nothing here recurses, and each slot is placed once.
    fn place_slots(&mut self, mut pending: Vec<ClientId>) {
        let mut placed = BTreeSet::new();
        while let Some(id) = pending.pop() {
            if placed.insert(id) && self.place_slot(id) {
                pending.extend(self.slots_of(id));
            }
        }
    }

    /// Gives one slot its place, one task deeper than its parent. Returns whether there is one for it.
    fn place_slot(&mut self, id: ClientId) -> bool {
        let Some(client) = self.clients.get_mut(&id) else { return false };
        client.orphan = true;
        // One whose own place is not known yet has none to give.
        let parent = self.parent_of(id).map(|parent| (parent, &self.clients[&parent]));
        let parent = parent.filter(|(_, parent)| !parent.orphan && parent.root != id);
        let place = parent.map(|(it, parent)| (it, parent.root, (parent.depth + 1).min(MAX_NESTING_DEPTH)));
        let place = place.filter(|(parent, ..)| !self.works_for(*parent, id));
        if let Some((_, root, depth)) = place {
            let leases: Vec<LeaseId> = self.clients[&id].leases.values().flatten().copied().collect();
            leases.iter().for_each(|&lease| self.uncount(lease));
            let client = self.clients.get_mut(&id).expect("seen above");
            (client.root, client.depth, client.orphan) = (root, depth, false);
            leases.iter().for_each(|&lease| self.count(lease));
        }
        self.note_hunger(id);
        place.is_some()
    }

    /// Returns the client that holds the lease under which this one works.
    pub(super) fn parent_of(&self, id: ClientId) -> Option<ClientId> {
        let lease = self.leases.get(&self.clients.get(&id)?.under?)?;
        (lease.state.is_somebodys() && lease.client != id).then_some(lease.client)
    }

    /// Returns whether a client works, at whatever depth, for this ancestor. Clients that have a place form no cycle,
    /// so the walk ends.
    fn works_for(&self, id: ClientId, ancestor: ClientId) -> bool {
        let next = |id: &ClientId| self.parent_of(*id).filter(|_| !self.clients[id].orphan);
        std::iter::successors(Some(id), next).take(self.clients.len() + 1).any(|it| it == ancestor)
    }

    /// Returns the slots that work under leases of this client.
    fn slots_of(&self, id: ClientId) -> Vec<ClientId> {
        let leases = self.clients.get(&id).into_iter().flat_map(|client| client.leases.values().flatten());
        leases.flat_map(|&lease| self.slots_under(lease)).collect()
    }

    /// A lease is over without a death: slots that worked under it are nobody's descendants any more, so others that
    /// could not work for them without a cycle now can.
    pub(super) fn place_below(&mut self, lease: LeaseId) {
        let below: Vec<ClientId> =
            self.slots_under(lease).into_iter().flat_map(|slot| self.slots_of(slot)).collect();
        if !below.is_empty() {
            self.place_slots(below);
        }
    }

    /// The task under this lease waits for others, or goes on.
    pub(super) fn on_blocked(&mut self, node: NodeId, id: LeaseId, blocked: bool) {
        let Some(lease) = self.leases.get(&id).filter(|lease| lease.node == node) else { return };
        if lease.blocked == blocked || lease.state == LeaseState::Placing {
            return;
        }
        self.uncount(id);
        self.leases.get_mut(&id).expect("seen above").blocked = blocked;
        self.count(id);
        self.dirty = true;
    }

    /// Slots that died with this lease are clients no more. One whose node is only out of reach may live, but what it
    /// wants is for a task that is given up; what it has it gives back when its node has heard of that.
    pub(super) fn end_under(&mut self, lease: LeaseId, death: &Death, out: &mut Vec<Effect>) {
        for id in self.slots_under(lease) {
            if death.cause == DeathCause::NodeLost && self.clients[&id].is_up() {
                self.clients.entry(id).and_modify(|client| client.orphan = true);
                self.note_hunger(id);
            } else {
                self.forget_client(id, out);
            }
        }
    }

    pub(super) fn slots_under(&self, lease: LeaseId) -> Vec<ClientId> {
        let slots = self.slots.range((lease, ClientId(0))..=(lease, ClientId(u64::MAX)));
        slots.map(|&(_, id)| id).collect()
    }

    /// The leases of this client that its nodes have not seen the end of.
    pub(super) fn leases_of(&self, client: ClientId) -> impl Iterator<Item = LeaseId> {
        let leases = self.holders.range((client, LeaseId(0))..=(client, LeaseId(u128::MAX)));
        leases.map(|&(_, lease)| lease)
    }

    /// Enter the lease into the books of its node and its family.
    pub(super) fn count(&mut self, id: LeaseId) {
        let Lease { client, node, shape, devices, state, .. } = self.leases[&id];
        let (needs, since) = (self.leases[&id].needs(), self.leases[&id].held_since());
        let depth = self.clients.get(&client).map_or(0, |client| client.depth);
        self.change_node(node, |node| {
            node.devices.take(&shape.needs, devices);
            node.used = node.used.plus(&needs);
            if state.is_returning() {
                node.returning = node.returning.plus(&needs);
            }
        });
        if state.is_somebodys() {
            self.change_family(client, |family| {
                family.used.add(&needs);
                if !state.leaves_family() {
                    family.keeps.add(&needs);
                }
                if let Some(since) = since {
                    family.held.entry((depth, needs)).or_default().insert((since, id));
                }
            });
        }
        if state.is_returning() && needs != Resources::default() && !self.owed.contains_key(&id) {
            self.loose.insert(id);
        }
    }

    /// Take it out of them again. To be done before anything about it changes.
    pub(super) fn uncount(&mut self, id: LeaseId) {
        let Lease { client, node, shape, devices, state, .. } = self.leases[&id];
        let (needs, since) = (self.leases[&id].needs(), self.leases[&id].held_since());
        let depth = self.clients.get(&client).map_or(0, |client| client.depth);
        let counted = "what is taken out was entered";
        self.change_node(node, |node| {
            node.devices.give_back(&shape.needs, devices);
            node.used = node.used.minus(&needs).expect(counted);
            if state.is_returning() {
                node.returning = node.returning.minus(&needs).expect(counted);
            }
        });
        if state.is_somebodys() {
            self.change_family(client, |family| {
                family.used.remove(&needs);
                if !state.leaves_family() {
                    family.keeps.remove(&needs);
                }
                if let Some(since) = since {
                    let held = family.held.get_mut(&(depth, needs)).expect(counted);
                    held.remove(&(since, id));
                    if held.is_empty() {
                        family.held.remove(&(depth, needs));
                    }
                }
            });
        }
        self.loose.remove(&id);
    }

    /// The lease is held from now on, so it may be asked back.
    pub(super) fn note_held(&mut self, id: LeaseId) {
        let lease = &self.leases[&id];
        let (client, needs) = (lease.client, lease.needs());
        let Some(since) = lease.held_since() else { return };
        let depth = self.clients[&client].depth;
        self.change_family(client, |family| {
            family.held.entry((depth, needs)).or_default().insert((since, id));
        });
    }

    fn change_family(&mut self, client: ClientId, change: impl FnOnce(&mut Family)) {
        let root = self.clients[&client].root;
        change(self.families.entry(root).or_default());
        self.drop_if_empty(root);
        if self.families.get(&root).is_some_and(|family| family.used != Sum::default()) {
            self.starving.remove(&root);
        }
        self.rank_family(root);
    }

    pub(super) fn drop_if_empty(&mut self, root: ClientId) {
        if self.families.get(&root) == Some(&Family::default()) {
            self.families.remove(&root);
        }
    }
}

impl Lease {
    /// What it takes from its node and from its family's share.
    pub(super) fn needs(&self) -> Resources {
        if self.blocked { self.shape.needs.without_cpus() } else { self.shape.needs }
    }
}

impl Lease {
    /// The slot that its client has.
    pub(super) fn slot(&self) -> Option<paceline_proto::SlotId> {
        match self.state {
            LeaseState::Held { slot, .. } | LeaseState::Recalled { slot } => Some(slot),
            _ => None,
        }
    }
}

impl LeaseState {
    pub(super) fn is_returning(self) -> bool {
        matches!(self, LeaseState::Recalled { .. } | LeaseState::Broken | LeaseState::Ending)
    }

    /// Whether it is on the list of a client.
    pub(super) fn is_somebodys(self) -> bool {
        !matches!(self, LeaseState::Ending | LeaseState::Unclaimed { .. })
    }

    /// Whether its client was asked to give it back, or will lose it without being asked.
    pub(super) fn leaves_family(self) -> bool {
        matches!(self, LeaseState::Recalled { .. } | LeaseState::Broken)
    }
}

impl Node {
    /// What a new lease may take.
    pub(super) fn free(&self) -> Resources {
        self.total.less(&self.used)
    }
}
