//! Which leases are asked back for those that wait. Nothing that runs is ended for it.
//!
//! * RC-1: a lease is recalled when its holder has, even without it, no less than the one that waits will have with it.
//!   Such a step never has to be taken back.
//! * RC-2: one that has nothing at all of what it asks for is served in turns: the oldest lease of those who have most,
//!   once it was held for a while.
//! * RC-3: nothing is recalled while enough is on its way back already. What is on its way is promised to one request.
//! * RC-4: within a family a deeper task takes from a shallower one at once, and never the other way round: the
//!   shallower one cannot end before it.
//! * RC-5: a higher priority takes from a lower one at once, and never the other way round.
//!
//! Those who have most are looked at first, so that a request that may take nothing is through after a glance. Only one
//! that needs several leases of one node at once looks at nodes, and in a large cluster at a few of them at a time.

use super::lineup::{Class, Turn};
use super::waiting::Richness;
use super::{Client, Effect, Head, Lease};
use crate::time::Tick;
use paceline_proto::{ClientId, LeaseId, NodeId, Resources, Shape, Sum};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// A task that submits others is about to wait for them, and leaves them its own CPUs; what it says of that takes
/// another way. Before this has passed nothing is taken from anybody.
const ABOUT_TO_WAIT: Duration = Duration::from_millis(2);

/// So many families, leases or nodes are looked at for one request at a time.
const GLANCE: usize = 64;

/// In a cluster with more nodes than that, nodes are searched again after this.
const SEARCH_EVERY: Duration = Duration::from_millis(20);

/// One that waits, and what decides whom it may take from.
struct Waiter {
    client: ClientId,
    root: ClientId,
    depth: u32,
    priority: i32,
    shape: Shape,
    needs: Resources,
    /// Its share once it has what it asks for.
    share: u64,
    /// The largest share of all, if this one has nothing and may be served in turns.
    turns: Option<u64>,
}

/// What a request can expect.
enum Plan {
    Recall(Vec<LeaseId>),
    Later(Tick),
    Nothing,
}

/// Whether a lease may be taken for a waiter; the lower, the sooner.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Claim {
    /// By RC-4: from the shallowest.
    Depth(u32, Tick),
    /// By RC-5: from the lowest.
    Priority(i32, Tick),
    /// By RC-1: from whoever has most.
    Share(Reverse<u64>, Tick),
    /// By RC-2, from then on.
    Turn(Tick),
}

impl Head {
    pub(super) fn recall_for(&mut self, now: Tick, out: &mut Vec<Effect>) {
        let mut stuck = BTreeSet::new();
        while let Some((class, turn)) = self.calling.first(&stuck) {
            if self.recall_one(now, class, &turn, out) {
                continue;
            }
            stuck.insert(class);
            // Who has more than the first of its class can take no more than it, but from its own family.
            if class.nested {
                let deeper = self.calling.turns(&class).filter(|it| **it != turn);
                for turn in deeper.copied().take(GLANCE).collect::<Vec<_>>() {
                    self.recall_one(now, class, &turn, out);
                }
            }
        }
    }

    /// See to it that room for one more lease is on its way. Says whether it is.
    fn recall_one(&mut self, now: Tick, class: Class, turn: &Turn, out: &mut Vec<Effect>) -> bool {
        let (client, shape) = (turn.line.client, turn.line.shape);
        if let Some(lease) = self.loose_for(client, shape) {
            self.promise(client, shape, lease);
            return true;
        }
        match self.plan(now, class, client, shape) {
            Plan::Recall(leases) => {
                for &lease in &leases {
                    self.recall(lease, out);
                    self.loose.remove(&lease);
                    self.owed.insert(lease, None);
                }
                let last = *leases.last().expect("a plan names leases");
                self.promise(client, shape, last);
                true
            }
            Plan::Later(at) => {
                self.look_at(at);
                false
            }
            Plan::Nothing => false,
        }
    }

    /// A lease on its way back that is promised to nobody and makes room for this request (RC-3).
    fn loose_for(&self, client: ClientId, shape: Shape) -> Option<LeaseId> {
        let mut loose = self.loose.iter().take(GLANCE).copied();
        loose.find(|lease| self.makes_room(*lease, client, shape, shape.needs))
    }

    /// Whether there is room for this on the lease's node once the lease is over.
    fn makes_room(&self, id: LeaseId, client: ClientId, shape: Shape, needs: Resources) -> bool {
        let lease = &self.leases[&id];
        let node = &self.nodes[&lease.node];
        self.takes_leases(lease.node)
            && needs.fits_in(&node.free().plus(&lease.needs()))
            && self.could_hold(lease.node, client, shape)
            && self.has_devices(lease.node, client, shape, &needs, &[id])
    }

    /// Whether the node will have the GPUs for this when what returns and these leases are over.
    fn has_devices(
        &self,
        id: NodeId,
        client: ClientId,
        shape: Shape,
        needs: &Resources,
        over: &[LeaseId],
    ) -> bool {
        if needs.gpu_units() == 0 {
            return true;
        }
        let mut books = self.nodes[&id].devices.clone();
        for lease in &self.nodes[&id].leases {
            let entry = &self.leases[lease];
            if entry.state.is_returning() || over.contains(lease) {
                books.give_back(&entry.shape.needs, entry.devices);
            }
        }
        books.find(needs, self.rule(client, shape).map_or(0, |rule| rule.gpu_memory)).is_some()
    }

    fn waiter(&self, client: ClientId, shape: Shape, needs: Resources) -> Waiter {
        let Client { root, depth, .. } = self.clients[&client];
        let family = self.families.get(&root);
        let expects = family.map_or_else(Sum::default, |family| family.expects());
        let promised = self.promised.get(&(client, shape)).copied().unwrap_or(0);
        let nothing = self.clients[&client].count(shape) + promised == 0;
        // Who starves comes first until something is on its way.
        let own = self.clients.get(&root).map_or(0, |client| client.priority);
        let priority = if expects == Sum::default() { self.priority(root) } else { own };
        Waiter {
            client,
            root,
            depth,
            priority,
            shape,
            needs,
            share: self.weighted(root, &expects.plus(&needs)),
            turns: nothing.then(|| self.rich.last().map_or(0, |rich| rich.1)),
        }
    }

    fn plan(&mut self, now: Tick, class: Class, client: ClientId, shape: Shape) -> Plan {
        if self.is_gang(client, shape) {
            return self.plan_gang(now, class, client, shape);
        }
        let waiter = self.waiter(client, shape, shape.needs);
        let Some(&(Reverse(lowest), richest, ..)) = self.rich.last() else { return Plan::Nothing };
        let nothing_to_take = waiter.turns.is_none()
            && (waiter.priority < lowest || waiter.priority == lowest && richest < waiter.share);
        if waiter.depth == 0 && nothing_to_take {
            return Plan::Nothing;
        }
        let patient = self.clients[&client].wants[&shape].since + ABOUT_TO_WAIT;
        if waiter.depth > 0 && patient > now {
            return Plan::Later(patient);
        }
        let mut some = false;
        match self.plan_one(now, &waiter, &mut some) {
            // Who may take nothing may not take several.
            Plan::Nothing if some => self.plan_several(now, class, &waiter),
            plan => plan,
        }
    }

    /// One lease that makes room, of those who are to give first. `some`: one may be taken, whether or not it helps.
    fn plan_one(&self, now: Tick, waiter: &Waiter, some: &mut bool) -> Plan {
        let own = (waiter.depth > 0).then_some(waiter.root);
        let rich = self.rich.iter().rev().take_while(|rich| self.may_give(waiter, rich));
        let rich = rich.map(|rich| rich.3).filter(|root| Some(*root) != own);
        for root in own.into_iter().chain(rich).take(GLANCE) {
            match self.claim_of_family(waiter, root, some) {
                Some((Claim::Turn(from), _)) if from > now => return Plan::Later(from),
                Some((_, lease)) => return Plan::Recall(vec![lease]),
                None => {}
            }
        }
        Plan::Nothing
    }

    /// Whether a family that has so much may have something to give; if not, none that has less may.
    fn may_give(&self, waiter: &Waiter, &(Reverse(priority), share, ..): &Richness) -> bool {
        let richest = waiter.turns.is_some_and(|richest| share >= richest);
        priority < waiter.priority || priority == waiter.priority && (share >= waiter.share || richest)
    }

    /// The lease of this family that is the first to go for one that waits.
    fn claim_of_family(&self, waiter: &Waiter, root: ClientId, some: &mut bool) -> Option<(Claim, LeaseId)> {
        let mine = self.clients[&waiter.client].under;
        let held = self.families.get(&root).map(|family| &family.held);
        let alike = held.into_iter().flatten().filter_map(|(_, leases)| {
            let mut leases = leases.iter().map(|&(_, id)| id).filter(|id| Some(*id) != mine);
            let first = leases.next()?;
            // What may be taken is the same for all of them, but for how long they are held.
            self.claim(waiter, first, &BTreeMap::new())?;
            *some = true;
            let mut few = std::iter::once(first).chain(leases).take(8);
            let room = few.find(|id| self.makes_room(*id, waiter.client, waiter.shape, waiter.needs))?;
            Some((self.claim(waiter, room, &BTreeMap::new())?, room))
        });
        alike.min()
    }

    /// Several leases of one node that make room together.
    fn plan_several(&mut self, now: Tick, class: Class, waiter: &Waiter) -> Plan {
        let known = self.known.entry(class).or_default();
        let large = self.nodes.len() > GLANCE;
        if large && known.look_again > now {
            let at = known.look_again;
            return Plan::Later(at);
        }
        known.look_again = now + SEARCH_EVERY;
        let mut later: Option<Tick> = large.then_some(now + SEARCH_EVERY);
        for id in self.room.roomiest().take(GLANCE) {
            if !self.could_hold(id, waiter.client, waiter.shape) {
                continue;
            }
            match self.plan_on(now, id, waiter) {
                Plan::Later(at) => later = Some(later.map_or(at, |later| later.min(at))),
                Plan::Nothing => {}
                plan @ Plan::Recall(..) => return plan,
            }
        }
        later.map_or(Plan::Nothing, Plan::Later)
    }

    /// Room for a gang on the nodes that are kept for it.
    fn plan_gang(&self, now: Tick, class: Class, client: ClientId, shape: Shape) -> Plan {
        let mut all = Vec::new();
        let mut later: Option<Tick> = None;
        for (&node, &needs) in self.known.get(&class).map(|known| &known.gang).into_iter().flatten() {
            let waiter = Waiter { needs, ..self.waiter(client, shape, needs) };
            if !self.takes_leases(node) || needs.fits_in(&self.expected(node)) {
                continue;
            }
            match self.plan_on(now, node, &waiter) {
                Plan::Recall(leases) => all.extend(leases),
                Plan::Later(at) => later = Some(later.map_or(at, |later| later.min(at))),
                Plan::Nothing => {}
            }
        }
        match (all.is_empty(), later) {
            (false, _) => Plan::Recall(all),
            (true, Some(at)) => Plan::Later(at),
            (true, None) => Plan::Nothing,
        }
    }

    /// What the node will have when everything on its way back is there.
    fn expected(&self, id: NodeId) -> Resources {
        let node = &self.nodes[&id];
        let staying = node.used.minus(&node.returning).expect("what returns is used");
        node.total.less(&staying)
    }

    /// Which leases of this node would make room, if enough of them may be taken.
    fn plan_on(&self, now: Tick, id: NodeId, waiter: &Waiter) -> Plan {
        let mut room = self.expected(id);
        let mut picked = Vec::new();
        let mut taken: BTreeMap<ClientId, Resources> = BTreeMap::new();
        let mut ready = now;
        while !waiter.needs.fits_in(&room)
            || !self.has_devices(id, waiter.client, waiter.shape, &waiter.needs, &picked)
        {
            let claims = (self.nodes[&id].leases.iter())
                .filter(|lease| !picked.contains(*lease))
                .filter_map(|lease| Some((self.claim(waiter, *lease, &taken)?, *lease)));
            let Some((claim, lease)) = claims.min() else { return Plan::Nothing };
            if let Claim::Turn(from) = claim {
                ready = ready.max(from);
            }
            let Lease { client, shape, .. } = self.leases[&lease];
            picked.push(lease);
            room = room.plus(&shape.needs);
            let gone = taken.entry(self.clients[&client].root).or_default();
            *gone = gone.plus(&shape.needs);
        }
        match picked.is_empty() {
            true => Plan::Nothing,
            false if ready > now => Plan::Later(ready),
            false => Plan::Recall(picked),
        }
    }

    fn claim(&self, waiter: &Waiter, id: LeaseId, taken: &BTreeMap<ClientId, Resources>) -> Option<Claim> {
        let lease = &self.leases[&id];
        let since = lease.held_since()?;
        // Its own task's lease cannot come back before it has what it waits for.
        if self.clients[&waiter.client].under == Some(id) {
            return None;
        }
        let Client { root, depth, .. } = self.clients[&lease.client];
        let related = root == waiter.root;
        if related && depth != waiter.depth {
            return (depth < waiter.depth).then_some(Claim::Depth(depth, since));
        }
        let priority = self.priority(root);
        if priority != waiter.priority {
            return (priority < waiter.priority).then_some(Claim::Priority(priority, since));
        }
        let keeps = &self.families.get(&root)?.keeps;
        let share = self.weighted(root, keeps);
        let gone = taken.get(&root).copied().unwrap_or_default().plus(&lease.shape.needs);
        let mut left = keeps.clone();
        left.remove(&gone);
        if !related && self.weighted(root, &left) >= waiter.share {
            return Some(Claim::Share(Reverse(share), since));
        }
        let richest = waiter.turns?;
        // A family that has most itself takes turns among its own.
        let mine =
            self.families.get(&waiter.root).map_or(0, |family| self.weighted(waiter.root, &family.keeps));
        let fair = share == richest && (mine != richest || related);
        fair.then(|| Claim::Turn(since + self.config.quantum))
    }
}
