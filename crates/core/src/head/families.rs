//! Slots that are clients, too, and tasks that wait for them (HD-7).

use super::{Effect, Family, Head, Lease, LeaseState, Node};
use paceline_proto::{ClientId, Death, DeathCause, LeaseId, NodeId, Resources};

impl Head {
    /// The client says which of our leases it has. It works for whoever that lease is for, one task deeper.
    pub(super) fn on_under(&mut self, id: ClientId, lease: LeaseId) {
        let Some(client) = self.clients.get_mut(&id) else { return };
        (client.under, client.orphan) = (Some(lease), true);
        let held = |lease: &&Lease| lease.state.is_somebodys() && lease.client != id;
        let parent = self.leases.get(&lease).filter(held).map(|lease| &self.clients[&lease.client]);
        // One whose own place is not known yet has none to give.
        let parent = parent.filter(|parent| !parent.orphan);
        if let Some((root, depth)) =
            parent.map(|parent| (parent.root, parent.depth + 1)).filter(|it| it.0 != id)
        {
            self.leave_family(id);
            let client = self.clients.get_mut(&id).expect("seen above");
            (client.root, client.depth, client.orphan) = (root, depth, false);
            self.join_family(id);
            let own: Vec<LeaseId> = self.clients[&id].leases.values().flatten().copied().collect();
            own.into_iter().for_each(|lease| self.place_under(lease));
        }
        self.note_hunger(id);
        self.dirty = true;
    }

    /// Its lease is known again, so a slot that is a client has its place in the family again (HD-8).
    pub(super) fn place_under(&mut self, lease: LeaseId) {
        let under = self.clients.iter().filter(|(_, client)| client.under == Some(lease));
        for id in under.map(|(&id, _)| id).collect::<Vec<_>>() {
            self.on_under(id, lease);
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
        let under = self.clients.iter().filter(|(_, client)| client.under == Some(lease));
        for id in under.map(|(&id, _)| id).collect::<Vec<_>>() {
            if death.cause == DeathCause::NodeLost && self.clients[&id].is_up() {
                self.clients.entry(id).and_modify(|client| client.orphan = true);
                self.note_hunger(id);
            } else {
                self.forget_client(id, out);
            }
        }
    }

    /// Enter the lease into the books of its node and its family.
    pub(super) fn count(&mut self, id: LeaseId) {
        let Lease { client, node, shape, devices, state, .. } = self.leases[&id];
        let needs = self.leases[&id].needs();
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
            });
        }
    }

    /// Take it out of them again. To be done before anything about it changes.
    pub(super) fn uncount(&mut self, id: LeaseId) {
        let Lease { client, node, shape, devices, state, .. } = self.leases[&id];
        let needs = self.leases[&id].needs();
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
            });
        }
    }

    fn change_family(&mut self, client: ClientId, change: impl FnOnce(&mut Family)) {
        let root = self.clients[&client].root;
        change(self.families.entry(root).or_default());
        self.drop_if_empty(root);
    }

    /// What the client's leases need, and whether they are to be given back.
    fn own_part(&self, id: ClientId) -> Vec<(Resources, bool)> {
        let leases = self.clients[&id].leases.values().flatten().map(|lease| &self.leases[lease]);
        leases.map(|lease| (lease.needs(), lease.state.leaves_family())).collect()
    }

    fn leave_family(&mut self, id: ClientId) {
        let own = self.own_part(id);
        self.change_family(id, |family| {
            for (needs, recalled) in own {
                family.used.remove(&needs);
                if !recalled {
                    family.keeps.remove(&needs);
                }
            }
        });
    }

    fn join_family(&mut self, id: ClientId) {
        let own = self.own_part(id);
        self.change_family(id, |family| {
            for (needs, recalled) in own {
                family.used.add(&needs);
                if !recalled {
                    family.keeps.add(&needs);
                }
            }
        });
    }

    fn drop_if_empty(&mut self, root: ClientId) {
        if self.families.get(&root) == Some(&Family::default()) {
            self.families.remove(&root);
        }
    }

    pub(super) fn family(&self, client: ClientId) -> Family {
        self.families.get(&self.clients[&client].root).cloned().unwrap_or_default()
    }
}

impl Lease {
    /// What it takes from its node and from its family's share.
    pub(super) fn needs(&self) -> Resources {
        if self.blocked { self.shape.needs.without_cpus() } else { self.shape.needs }
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
