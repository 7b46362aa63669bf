//! Which leases are asked back for those that wait. Nothing that runs is ended for it.
//!
//! * RC-1: a lease is recalled when its holder has, even without it, no less than the one that waits will have with it.
//!   Such a step never has to be taken back.
//! * RC-2: one that has nothing at all of what it asks for is served in turns: the oldest lease of those who have most,
//!   once it was held for a while.
//! * RC-4: within a family a deeper task takes from a shallower one at once, and never the other way round: the
//!   shallower one cannot end before it.
//! * RC-3: nothing is recalled while enough is on its way back already.

use super::{Client, Effect, Head, Lease, LeaseState};
use crate::time::Tick;
use paceline_proto::{ClientId, LeaseId, NodeId, Resources, Shape, Sum};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// A task that submits others is about to wait for them, and leaves them its own CPUs; what it says of that takes
/// another way. Before this has passed nothing is taken from anybody.
const ABOUT_TO_WAIT: Duration = Duration::from_millis(2);

/// What was promised in this round, out of what is on its way back.
#[derive(Default)]
struct Promises {
    /// The largest share any family keeps.
    richest: u64,
    by_node: BTreeMap<NodeId, Resources>,
    /// By the root of the family.
    to_family: BTreeMap<ClientId, Resources>,
    leases: BTreeMap<(ClientId, Shape), usize>,
}

/// One that waits, and what decides whom it may take from.
struct Waiter {
    client: ClientId,
    root: ClientId,
    depth: u32,
    shape: Shape,
    /// Its share once it has what it asks for.
    share: u64,
    /// The largest share of all, if this one has nothing and may be served in turns.
    turns: Option<u64>,
}

/// What a request can expect.
enum Plan {
    Recall(NodeId, Vec<LeaseId>),
    Later(Tick),
    Nothing,
}

/// Whether a lease may be taken for a waiter; the lower, the sooner.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Claim {
    /// By RC-4: from the shallowest.
    Depth(u32, Tick),
    /// By RC-1: from whoever has most.
    Share(Reverse<u64>, Tick),
    /// By RC-2, from then on.
    Turn(Tick),
}

impl Head {
    pub(super) fn recall_for(&mut self, now: Tick, stuck: &[(ClientId, Shape)], out: &mut Vec<Effect>) {
        let mut promises = Promises { richest: self.richest(), ..Promises::default() };
        let mut waiting: Vec<_> =
            stuck.iter().filter(|(_, shape)| shape.needs != Resources::default()).collect();
        // One each in turn, as they will be granted.
        while !waiting.is_empty() {
            waiting.retain(|&&(client, shape)| {
                let want = self.clients[&client].wants[&shape].count as usize;
                let will_have = self.clients[&client].count(shape) + promises.count(client, shape);
                will_have < want && self.recall_one(now, client, shape, &mut promises, out)
            });
        }
    }

    /// See to it that room for one more lease is on its way. Says whether it is.
    fn recall_one(
        &mut self,
        now: Tick,
        client: ClientId,
        shape: Shape,
        promises: &mut Promises,
        out: &mut Vec<Effect>,
    ) -> bool {
        if let Some(node) = self.soon_free(shape.needs, promises) {
            promises.add(node, client, self.clients[&client].root, shape);
            return true;
        }
        match self.plan(now, client, shape, promises) {
            Plan::Recall(node, leases) => {
                leases.into_iter().for_each(|lease| self.recall(lease, out));
                promises.richest = self.richest();
                promises.add(node, client, self.clients[&client].root, shape);
                true
            }
            Plan::Later(at) => {
                self.no_later_than(at);
                false
            }
            Plan::Nothing => false,
        }
    }

    fn richest(&self) -> u64 {
        self.clients.keys().map(|&id| self.share_of(id)).max().unwrap_or(0)
    }

    /// The share a client's family will have when it gave back what it was asked for.
    fn share_of(&self, id: ClientId) -> u64 {
        self.keeps(id).dominant_share(&self.total)
    }

    fn keeps(&self, id: ClientId) -> Sum {
        self.family(id).keeps
    }

    /// What the node will have when everything on its way back is there, less what that is promised to.
    fn expected(&self, id: NodeId, promises: &Promises) -> Resources {
        let node = &self.nodes[&id];
        let promised = promises.by_node.get(&id).copied().unwrap_or_default();
        let staying = node.used.minus(&node.returning).expect("what returns is used");
        node.total.less(&staying).less(&promised)
    }

    fn soon_free(&self, needs: Resources, promises: &Promises) -> Option<NodeId> {
        let mut nodes = self.room.iter().rev().map(|&(_, Reverse(id))| id);
        nodes.find(|&id| needs.fits_in(&self.expected(id, promises)))
    }

    fn plan(&self, now: Tick, client: ClientId, shape: Shape, promises: &Promises) -> Plan {
        let Client { root, depth, .. } = self.clients[&client];
        let promised = promises.to_family.get(&root).copied().unwrap_or_default();
        let richest = promises.richest;
        let nothing = self.clients[&client].count(shape) + promises.count(client, shape) == 0;
        let waiter = Waiter {
            client,
            root,
            depth,
            shape,
            share: self.keeps(client).plus(&promised).plus(&shape.needs).dominant_share(&self.total),
            turns: nothing.then_some(richest),
        };
        if waiter.turns.is_none() && richest < waiter.share && depth == 0 {
            return Plan::Nothing;
        }
        let patient = self.clients[&client].wants[&shape].since + ABOUT_TO_WAIT;
        if depth > 0 && patient > now {
            return Plan::Later(patient);
        }
        let mut later: Option<Tick> = None;
        for &(_, Reverse(id)) in self.room.iter().rev() {
            if !self.could_hold(id, client, shape) {
                continue;
            }
            match self.plan_on(now, id, &waiter, self.expected(id, promises)) {
                Plan::Later(at) => later = Some(later.map_or(at, |later| later.min(at))),
                Plan::Nothing => {}
                plan @ Plan::Recall(..) => return plan,
            }
        }
        later.map_or(Plan::Nothing, Plan::Later)
    }

    /// Which leases of this node would make room, if enough of them may be taken.
    fn plan_on(&self, now: Tick, id: NodeId, waiter: &Waiter, mut room: Resources) -> Plan {
        let mut picked = BTreeSet::new();
        let mut taken: BTreeMap<ClientId, Resources> = BTreeMap::new();
        let mut ready = now;
        while !waiter.shape.needs.fits_in(&room) {
            let claims = (self.nodes[&id].leases.iter())
                .filter(|lease| !picked.contains(*lease))
                // Its own task's lease cannot come back before it has what it waits for.
                .filter(|lease| self.clients[&waiter.client].under != Some(**lease))
                .filter_map(|lease| Some((self.claim(waiter, &self.leases[lease], &taken)?, *lease)));
            let Some((claim, lease)) = claims.min() else { return Plan::Nothing };
            if let Claim::Turn(from) = claim {
                ready = ready.max(from);
            }
            let Lease { client, shape, .. } = self.leases[&lease];
            picked.insert(lease);
            room = room.plus(&shape.needs);
            add(&mut taken, self.clients[&client].root, shape.needs);
        }
        if ready > now { Plan::Later(ready) } else { Plan::Recall(id, picked.into_iter().collect()) }
    }

    fn claim(&self, waiter: &Waiter, lease: &Lease, taken: &BTreeMap<ClientId, Resources>) -> Option<Claim> {
        let LeaseState::Held { since, .. } = lease.state else { return None };
        if lease.needs() == Resources::default() {
            return None;
        }
        let Client { root, depth, .. } = self.clients[&lease.client];
        let related = root == waiter.root;
        if related && depth != waiter.depth {
            return (depth < waiter.depth).then_some(Claim::Depth(depth, since));
        }
        let share = self.share_of(lease.client);
        let gone = taken.get(&root).copied().unwrap_or_default().plus(&lease.shape.needs);
        let mut left = self.keeps(lease.client);
        left.remove(&gone);
        let left = left.dominant_share(&self.total);
        if !related && left >= waiter.share {
            return Some(Claim::Share(Reverse(share), since));
        }
        let richest = waiter.turns?;
        // A family that has most itself takes turns among its own.
        let own = self.share_of(waiter.client) == richest;
        let fair = share == richest && (!own || related);
        fair.then(|| Claim::Turn(since + self.config.quantum))
    }
}

impl Promises {
    fn add(&mut self, node: NodeId, client: ClientId, root: ClientId, shape: Shape) {
        add(&mut self.by_node, node, shape.needs);
        add(&mut self.to_family, root, shape.needs);
        *self.leases.entry((client, shape)).or_default() += 1;
    }

    fn count(&self, client: ClientId, shape: Shape) -> usize {
        self.leases.get(&(client, shape)).copied().unwrap_or(0)
    }
}

fn add<K: Ord>(sums: &mut BTreeMap<K, Resources>, key: K, needs: Resources) {
    let sum = sums.entry(key).or_default();
    *sum = sum.plus(&needs);
}
