//! Tasks that wait for each other: each keeps what the others' children need, and none of them would ever go on.
//!
//! A task that waits gives back its CPUs, and nothing else. So tasks that hold GPUs, memory or custom resources and wait
//! for children which need the same can come to a standstill, across families or within one, though each request could be
//! met by itself. Nobody but the head knows all who wait. So can a task on a node that is to leave, which takes nothing new,
//! if no other node is large enough for its child.
//!
//! * TA-1: a lease is tangled if its task waits, nothing it waits for runs, and nothing it waits for could be placed even
//!   if all that is not tangled were over.
//! * TA-2: a tangled task whose child needs no more than the task has is told to run it itself.
//! * TA-3: if none of them can, the request of one is refused, and the reason names who waits for what.
//! * TA-4: what is only so for a moment, because a message is late, is left alone.

use super::{Client, Effect, Head, LeaseState, Node, NodeLink};
use crate::time::Tick;
use paceline_proto::control::{HeadToClient, HeadToNode};
use paceline_proto::{ClientId, LeaseId, NodeId, Resources, Shape};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// How often it is looked for, while there is something that may be tangled.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// A lease that is tangled for so long runs itself what it waits for, if it can.
const RUNS_ITSELF_AFTER: Duration = Duration::from_millis(100);

/// And if nobody can, one is refused after this.
const REFUSED_AFTER: Duration = Duration::from_secs(1);

impl Head {
    /// Let those go on that only wait for each other.
    pub(super) fn untangle(&mut self, now: Tick, out: &mut Vec<Effect>) {
        // CPUs are given back by whoever waits, so requests for them alone are tangled only where nothing new may come.
        let more =
            |needs: &Resources| needs.without_cpus() != Resources::default() || !self.leaving.is_empty();
        if !self.queue.classes().any(|class| class.nested && (more(&class.needs) || class.family.is_some())) {
            self.tangled.clear();
            return;
        }
        if now < self.look_for_tangles {
            return self.look_at(self.look_for_tangles);
        }
        self.look_for_tangles = now + LOOK_EVERY;
        self.look_at(self.look_for_tangles);
        let tangle = self.tangle();
        self.tangled.retain(|lease, _| tangle.contains(lease));
        for &lease in &tangle {
            self.tangled.entry(lease).or_insert(now);
        }
        let since = |after: Duration| {
            let long = self.tangled.iter().filter(move |(_, since)| **since + after <= now);
            long.map(|(&lease, _)| lease).filter(|lease| self.is_last(*lease))
        };
        let able: Vec<LeaseId> =
            since(RUNS_ITSELF_AFTER).filter(|lease| self.can_run_itself(*lease)).collect();
        let depth =
            |lease: &LeaseId| self.clients.get(&self.leases[lease].client).map_or(0, |client| client.depth);
        let refused = since(REFUSED_AFTER).max_by_key(depth).filter(|_| able.is_empty());
        for lease in able {
            // Said again if it is not heeded: it may be lost on its way.
            self.tangled.insert(lease, now);
            self.tell_node(self.leases[&lease].node, HeadToNode::TooDeep { lease }, out);
        }
        refused.into_iter().for_each(|lease| self.refuse_tangled(lease, out));
    }

    /// TA-1: all that may be tangled, less what will go on, until nothing changes.
    fn tangle(&self) -> BTreeSet<LeaseId> {
        let waits = |lease: &LeaseId| {
            let here = |node: &NodeId| matches!(self.nodes[node].link, NodeLink::Up { .. });
            let held = |state| matches!(state, LeaseState::Held { .. } | LeaseState::Recalled { .. });
            self.leases.get(lease).is_some_and(|it| it.blocked && held(it.state) && here(&it.node))
        };
        let mut tangle: BTreeSet<LeaseId> =
            self.slots.iter().map(|(lease, _)| *lease).filter(waits).collect();
        loop {
            let free: Vec<LeaseId> =
                tangle.iter().copied().filter(|lease| self.goes_on(*lease, &tangle)).collect();
            if free.is_empty() {
                return tangle;
            }
            tangle.retain(|lease| !free.contains(lease));
        }
    }

    /// Whether something may happen to what the task of this lease waits for. What is not known of may.
    fn goes_on(&self, lease: LeaseId, tangle: &BTreeSet<LeaseId>) -> bool {
        self.slots_under(lease).into_iter().any(|id| {
            let client = &self.clients[&id];
            let mut leases = client.leases.values().flatten();
            !client.is_up()
                || client.orphan
                || client.unmet().next().is_none() && client.leases.is_empty()
                || leases.any(|lease| !tangle.contains(lease))
                || client.unmet().any(|(shape, _)| self.fits_beside(id, shape, tangle))
        })
    }

    /// Whether there would be room for this if only the tangled leases were left.
    fn fits_beside(&self, client: ClientId, shape: Shape, tangle: &BTreeSet<LeaseId>) -> bool {
        let fits = |(id, node): (&NodeId, &Node)| {
            self.could_hold(*id, client, shape)
                && match node.link {
                    // It comes back, or is given up for lost before long.
                    NodeLink::Down { .. } => true,
                    NodeLink::Up { .. } => {
                        !self.leaving.contains(id) && self.has_room_beside(node, client, shape, tangle)
                    }
                }
        };
        self.is_gang(client, shape)
            || self.nodes.iter().any(fits)
            || self
                .departed
                .values()
                .any(|departed| departed.node.could_hold(shape.needs, self.rule(client, shape)))
    }

    fn has_room_beside(
        &self,
        node: &Node,
        client: ClientId,
        shape: Shape,
        tangle: &BTreeSet<LeaseId>,
    ) -> bool {
        let rule = self.rule(client, shape);
        let root = self.clients[&client].root;
        let (mut kept, mut books) = (Resources::default(), node.devices.clone());
        for id in &node.leases {
            let lease = &self.leases[id];
            if !tangle.contains(id) {
                books.give_back(&lease.shape.needs, lease.devices);
                continue;
            }
            let related = self.clients.get(&lease.client).is_some_and(|holder| holder.root == root);
            let alone = rule.is_some_and(|rule| rule.one_per_node);
            if alone && related && lease.shape.placement == shape.placement {
                return false;
            }
            kept = kept.plus(&lease.needs());
        }
        shape.needs.fits_in(&node.total.less(&kept))
            && books.find(&shape.needs, rule.map_or(0, |rule| rule.gpu_memory)).is_some()
    }

    /// Whether it is at the end of its chain: the one that it waits for has nothing at all.
    fn is_last(&self, lease: LeaseId) -> bool {
        self.slots_under(lease).iter().all(|id| self.clients[id].leases.is_empty())
    }

    fn can_run_itself(&self, lease: LeaseId) -> bool {
        let has = self.leases[&lease].shape.needs;
        let fits = |(shape, _): (Shape, super::Want)| shape.program.is_own() && shape.needs.fits_in(&has);
        self.slots_under(lease).iter().any(|id| self.clients[id].unmet().any(fits))
    }

    /// Whether a task may run in the middle of the one that waits for it, if nothing else is left (TA-2).
    pub(super) fn may_run_in_parent(&self, client: &Client, shape: Shape) -> bool {
        let under = client.under.and_then(|lease| self.leases.get(&lease));
        shape.program.is_own() && under.is_some_and(|lease| shape.needs.fits_in(&lease.shape.needs))
    }

    /// TA-3.
    fn refuse_tangled(&mut self, lease: LeaseId, out: &mut Vec<Effect>) {
        let mut held: BTreeMap<NodeId, Resources> = BTreeMap::new();
        for lease in self.tangled.keys().map(|id| &self.leases[id]) {
            let sum = held.entry(lease.node).or_default();
            *sum = sum.plus(&lease.needs());
        }
        let beside = self.largest(&held);
        for id in self.slots_under(lease) {
            let shapes: Vec<Shape> = self.clients[&id].unmet().map(|(shape, _)| shape).collect();
            for shape in shapes {
                let why = self.who_waits_for_whom(shape);
                // There may be enough of it, but in pieces of several GPUs.
                let largest = if shape.needs.fits_in(&beside) { Resources::default() } else { beside };
                self.forget_want(id, shape);
                self.note_hunger(id);
                self.tell_client(id, HeadToClient::Unplaceable { shape, largest, why }, out);
            }
        }
        self.tangled.remove(&lease);
    }

    fn who_waits_for_whom(&self, shape: Shape) -> String {
        if shape.needs.without_cpus() == Resources::default() {
            return format!(
                "{} would be free only on nodes that are to leave, and do not as long as a task there waits for it",
                shape.needs.named(&self.names)
            );
        }
        let mut holders: BTreeMap<(&str, String), usize> = BTreeMap::new();
        for lease in self.tangled.keys().map(|id| &self.leases[id]) {
            let root = self.clients.get(&lease.client).map_or(lease.client, |client| client.root);
            let whose = self.clients.get(&root).map_or("a client that is gone", |client| &client.name);
            let needs = lease.shape.needs.without_cpus().named(&self.names);
            *holders.entry((whose, needs)).or_default() += 1;
        }
        let held = holders.iter().take(4).map(|((whose, needs), count)| {
            let tasks = if *count == 1 { "a task".to_owned() } else { format!("{count} tasks") };
            format!("{tasks} of {whose} with {needs}")
        });
        let held: Vec<String> = held.collect();
        format!(
            "{} is held by tasks that wait for each other's tasks, and none can go on: {}",
            shape.needs.without_cpus().named(&self.names),
            held.join(", ")
        )
    }
}
