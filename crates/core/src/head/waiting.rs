//! Keeping the lineups true: who waits, how much each family has, and from whom could be taken.
//!
//! * WA-1: `queue` lists every request that could use another lease; `calling` those of them for which not enough is on
//!   its way.
//! * WA-2: `rich` lists every family that holds a lease which may be asked back.

use super::lineup::{Class, Line, Rank};
use super::{Family, Head, Lease, LeaseState};
use crate::time::Tick;
use paceline_proto::{ClientId, LeaseId, Resources, Shape, Sum};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::Duration;

/// Whoever has nothing for so long comes first, whatever the priorities are.
const STARVES_AFTER: Duration = Duration::from_secs(5);

/// How often all who wait are looked at for that.
const LOOK_FOR_STARVING: Duration = Duration::from_millis(100);

/// What is listed for one client, by shape; the flag says whether it calls.
pub(super) type Listed = BTreeMap<Shape, (ClientId, Class, Line, bool)>;

/// Those who have most, the poorest first. Among equals whoever has held a lease for longest comes last.
pub(super) type Richness = (Reverse<i32>, u64, Reverse<Tick>, ClientId);

impl Head {
    /// A client's wants, leases or family have changed: list it anew (WA-1).
    pub(super) fn note_hunger(&mut self, id: ClientId) {
        self.note_kept(id);
        self.note_held_back(id);
        let fresh = self.lines_of(id);
        let before = self.listed.get(&id).cloned().unwrap_or_default();
        if fresh == before {
            return;
        }
        for (shape, (root, class, line, calls)) in &before {
            if fresh.get(shape) != before.get(shape) {
                self.queue.take(*root, *class, line);
                if *calls {
                    self.calling.take(*root, *class, line);
                }
            }
        }
        for (shape, &(root, class, line, calls)) in &fresh {
            if fresh.get(shape) != before.get(shape) {
                self.queue.put(root, self.rank(root), class, line);
                if calls {
                    self.calling.put(root, self.calling_rank(root), class, line);
                }
            }
        }
        if fresh.is_empty() {
            self.listed.remove(&id);
        } else {
            self.listed.insert(id, fresh);
        }
    }

    pub(super) fn lines_of(&self, id: ClientId) -> Listed {
        let Some(client) = self.clients.get(&id).filter(|_| !self.held_back.contains(&id)) else {
            return Listed::new();
        };
        let unmet = client.unmet().filter(|(shape, _)| self.may_ask(id, *shape));
        let lines = unmet.map(|(shape, want)| {
            let has = self.fraction(&shape.needs) * client.count(shape) as u64;
            let line = Line { depth: Reverse(client.depth), has, order: want.order, client: id, shape };
            let missing = want.count as usize - client.count(shape);
            let promised = self.promised.get(&(id, shape)).copied().unwrap_or(0);
            let calls = shape.needs != Resources::default() && missing > promised;
            (shape, (client.root, self.class(id, shape), line, calls))
        });
        lines.collect()
    }

    pub(super) fn class(&self, id: ClientId, shape: Shape) -> Class {
        let own = self.rule(id, shape).is_some_and(|rule| rule.one_per_node || !rule.gang.is_empty());
        let family = own.then(|| self.clients[&id].root);
        let nested = self.clients[&id].depth > 0;
        Class { needs: shape.needs, placement: shape.placement, family, nested }
    }

    /// A family has more or less than before.
    pub(super) fn rank_family(&mut self, root: ClientId) {
        let (rank, calling) = (self.rank(root), self.calling_rank(root));
        self.queue.set_rank(root, rank);
        self.calling.set_rank(root, calling);
        let rich = self.richness(root);
        let before = match rich {
            Some(rich) => self.riches.insert(root, rich),
            None => self.riches.remove(&root),
        };
        if before != rich {
            if let Some(before) = before {
                self.rich.remove(&before);
            }
            self.rich.extend(rich);
        }
    }

    pub(super) fn rank(&self, root: ClientId) -> Rank {
        let share = self.families.get(&root).map_or(0, |family| self.weighted(root, &family.used));
        Rank { priority: Reverse(self.priority(root)), share }
    }

    pub(super) fn calling_rank(&self, root: ClientId) -> Rank {
        let share = self.families.get(&root).map_or(0, |family| self.weighted(root, &family.expects()));
        Rank { priority: Reverse(self.priority(root)), share }
    }

    pub(super) fn richness(&self, root: ClientId) -> Option<Richness> {
        let family = self.families.get(&root)?;
        let oldest =
            family.held.values().filter_map(|leases| leases.first()).map(|(since, _)| *since).min()?;
        let share = self.weighted(root, &family.keeps);
        Some((Reverse(self.priority(root)), share, Reverse(oldest), root))
    }

    /// A part of everything, in terms of the family's weight.
    pub(super) fn weighted(&self, root: ClientId, used: &Sum) -> u64 {
        let weight = self.clients.get(&root).map_or(1, |client| client.weight.max(1));
        used.dominant_share(&self.scale) / u64::from(weight)
    }

    pub(super) fn priority(&self, root: ClientId) -> i32 {
        match self.starving.contains(&root) {
            true => i32::MAX,
            false => self.clients.get(&root).map_or(0, |client| client.priority),
        }
    }

    /// The share of everything that this is.
    pub(super) fn fraction(&self, needs: &Resources) -> u64 {
        Sum::default().plus(needs).dominant_share(&self.scale)
    }

    /// Shares are measured by what the cluster had when that last changed by much: else each node that comes would move
    /// everybody.
    pub(super) fn rescale(&mut self) {
        if !self.total.is_far_from(&self.scale) {
            return;
        }
        self.scale = self.total.clone();
        let roots: Vec<ClientId> = self.families.keys().copied().collect();
        roots.into_iter().for_each(|root| self.rank_family(root));
        let waiting: Vec<ClientId> = self.listed.keys().copied().collect();
        waiting.into_iter().for_each(|id| self.note_hunger(id));
    }

    /// Strict priorities would let somebody wait for ever: who has nothing at all for a while comes first.
    pub(super) fn note_starving(&mut self, now: Tick) {
        let rich = || self.rich.first().map(|rich| rich.0);
        let highest = self.queue.highest().into_iter().chain(rich()).min();
        // Among equals nobody starves. It looks at all who wait, so it does so now and then: who asks meanwhile is not
        // starving by the time it looks again.
        if self.queue.lowest() == highest {
            return;
        }
        if now < self.look_for_starving {
            return self.look_at(self.look_for_starving);
        }
        let mut next = None;
        let mut starving = Vec::new();
        for (root, rank, line) in self.queue.families() {
            let nothing = !self.families.contains_key(&root);
            if Some(rank.priority) == highest || !nothing {
                continue;
            }
            let Some(want) = self.clients.get(&line.client).and_then(|it| it.wants.get(&line.shape)) else {
                continue;
            };
            let at = want.since + STARVES_AFTER;
            if at <= now {
                starving.push(root);
            } else {
                next = Some(next.map_or(at, |next: Tick| next.min(at)));
            }
        }
        next.into_iter().for_each(|at| self.look_at(at));
        self.look_for_starving = next.into_iter().chain([now + LOOK_FOR_STARVING]).min().unwrap_or(now);
        for root in starving {
            self.starving.insert(root);
            self.rank_family(root);
        }
    }

    /// Something is on its way for this request when that lease is over.
    pub(super) fn promise(&mut self, client: ClientId, shape: Shape, lease: LeaseId) {
        let root = self.clients[&client].root;
        self.loose.remove(&lease);
        self.owed.insert(lease, Some((root, client, shape)));
        *self.promised.entry((client, shape)).or_default() += 1;
        self.change_promised(root, |promised| promised.add(&shape.needs));
        self.note_hunger(client);
    }

    /// That lease is over.
    pub(super) fn keep_promise(&mut self, lease: LeaseId) {
        self.loose.remove(&lease);
        let Some(Some((root, client, shape))) = self.owed.remove(&lease) else { return };
        let count = self.promised.get_mut(&(client, shape)).expect("what is owed was promised");
        *count -= 1;
        if *count == 0 {
            self.promised.remove(&(client, shape));
        }
        self.change_promised(root, |promised| promised.remove(&shape.needs));
        self.note_hunger(client);
    }

    fn change_promised(&mut self, root: ClientId, change: impl FnOnce(&mut Sum)) {
        change(&mut self.families.entry(root).or_default().promised);
        self.drop_if_empty(root);
        self.rank_family(root);
    }
}

impl Family {
    /// What they will have: less what they give back, more what is on its way to them.
    pub(super) fn expects(&self) -> Sum {
        let mut sum = self.keeps.clone();
        sum.add_all(&self.promised);
        sum
    }
}

impl Lease {
    /// Since when it is held, if it may be asked back.
    pub(super) fn held_since(&self) -> Option<Tick> {
        match self.state {
            LeaseState::Held { since, .. }
                if !self.blocked && !self.firm && self.needs() != Resources::default() =>
            {
                Some(since)
            }
            _ => None,
        }
    }
}
