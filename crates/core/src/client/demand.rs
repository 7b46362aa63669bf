//! How many leases to hold: as many as there is work for, and none for long without.

use super::lease::Lease;
use super::shapes::ShapeKey;
use super::{Client, Effect, LeaseKey};
use crate::Tick;
use paceline_proto::control::ClientToHead;
use paceline_proto::{LeaseId, NodeId, Resources, Shape};
use std::collections::BTreeMap;
use std::time::Duration;

/// Longer than it takes to get calls back from a slot.
const ASKING_TAKES: Duration = Duration::from_millis(20);

impl<Ticket: Clone> Client<Ticket> {
    /// Tell the head when more leases of a shape could be used than it knows. Asks in powers of two, so that a million
    /// submissions cost twenty messages.
    pub(super) fn demand_changed(&mut self, shape: ShapeKey, out: &mut Vec<Effect<Ticket>>) {
        let most = self.config.max_leases;
        let queue = &mut self.shapes[shape];
        if let Some(group) = queue.group {
            return self.group_demand(group, out);
        }
        if queue.guest {
            return;
        }
        if queue.is_pool() {
            return self.pool_demand(shape, out);
        }
        let tasks = u32::try_from(queue.len() + queue.in_flight).unwrap_or(u32::MAX).min(most);
        let needed = if queue.apart.is_empty() { 0 } else { self.near_demand(shape, out).min(most) };
        let queue = &mut self.shapes[shape];
        if tasks.max(needed) > queue.wanted {
            let tasks = tasks.checked_next_power_of_two().unwrap_or(most);
            queue.wanted = tasks.max(needed).max(queue.wanted).min(most);
            let count = queue.wanted;
            let shape = *self.shapes.shape(shape);
            out.push(Effect::ToHead(ClientToHead::Want { shape, count, exclusive: None }));
        }
    }

    /// Withdraws the request for leases of this shape. The head is told although it has refused them: it may have heard of
    /// another wish for them since, which was on its way meanwhile.
    pub(super) fn want_nothing(&mut self, key: ShapeKey, out: &mut Vec<Effect<Ticket>>) {
        if std::mem::take(&mut self.shapes[key].wanted) > 0 {
            let shape = *self.shapes.shape(key);
            out.push(Effect::ToHead(ClientToHead::Want { shape, count: 0, exclusive: None }));
        }
    }

    /// Tell the head on which nodes leases are of most use, and say how many are needed so that there is one on each.
    fn near_demand(&mut self, shape: ShapeKey, out: &mut Vec<Effect<Ticket>>) -> u32 {
        let queue = &mut self.shapes[shape];
        let mut held: BTreeMap<NodeId, u32> = BTreeMap::new();
        for key in &queue.leases {
            *held.entry(self.leases[key.0].node).or_default() += 1;
        }
        let count = |node: NodeId| held.get(&node).copied().unwrap_or(0);
        let without = queue.apart.without(count);
        // Those that are idle were granted elsewhere: where they are wanted there may be no room.
        let more = if queue.idle.len() <= without { without } else { 0 };
        let needed = u32::try_from(queue.leases.len() + more).unwrap_or(u32::MAX);
        if let Some(nodes) = queue.apart.news(count) {
            let shape = *self.shapes.shape(shape);
            out.push(Effect::ToHead(ClientToHead::Near { shape, nodes }));
        }
        needed
    }

    /// A lease may have become idle: see that it is given back in time.
    pub(super) fn idle_changed(&mut self, now: Tick, key: LeaseKey, out: &mut Vec<Effect<Ticket>>) {
        let Some(lease) = self.leases.get(key.0) else { return };
        if !lease.is_idle() || self.shapes[lease.shape].is_kept() {
            return;
        }
        let keep = self.keep_idle(lease.shape);
        let unused = !self.asks_back(lease.shape) && (keep.is_zero() || self.waits_for_room(lease.shape));
        let in_the_way = lease.recalled || unused && !self.may_be_used(key);
        if in_the_way && !self.is_expected(key) && !self.is_needed_alone(key) {
            self.release(key, out);
        } else {
            self.wake_at(now + keep, out);
        }
    }

    /// How long an idle lease of this shape is kept.
    fn keep_idle(&self, shape: ShapeKey) -> Duration {
        let keep = self.config.keep_idle;
        if self.asks_back(shape) { keep.max(ASKING_TAKES) } else { keep }
    }

    /// Calls of this shape wait in slots behind others, and will be asked back for a lease that is idle. Were it given
    /// back before they are here, it would be granted again at once, for ever.
    fn asks_back(&self, shape: ShapeKey) -> bool {
        let queue = &self.shapes[shape];
        queue.in_flight > queue.busy
    }

    /// Tasks wait for the lease's link to open. Were it given back before it did anything, a client far from the head
    /// would get one lease after the other and no task done.
    fn is_expected(&self, key: LeaseKey) -> bool {
        let lease = &self.leases[key.0];
        lease.is_opening() && self.shapes[lease.shape].len() > 0
    }

    /// Tasks wait for another node, and it takes them if they wait too long.
    fn may_be_used(&self, key: LeaseKey) -> bool {
        let lease = &self.leases[key.0];
        !self.shapes[lease.shape].apart.is_empty() && lease.usable() && !lease.recalled
    }

    /// There is no head that could grant another, and calls of this shape may come back from a slot that is lost.
    fn is_needed_alone(&self, key: LeaseKey) -> bool {
        let lease = &self.leases[key.0];
        let alone = !self.config.heartbeat.is_zero() && self.head.is_away();
        alone && !lease.broken && self.shapes[lease.shape].in_flight > 0
    }

    /// Whether tasks of another shape wait for what a lease of this one takes.
    fn waits_for_room(&self, shape: ShapeKey) -> bool {
        let mut others = self.shapes.crowded.iter().filter(|other| **other != shape);
        self.shapes.shape(shape).needs != Resources::default()
            && others.any(|other| self.shapes[*other].is_hungry())
    }

    /// Leases of other shapes that are idle make room, the one that was idle for longest first.
    pub(super) fn on_crowded(&mut self, crowded: Shape, out: &mut Vec<Effect<Ticket>>) {
        let Some(shape) = self.shapes.find(&crowded).filter(|key| self.shapes[*key].is_hungry()) else {
            return;
        };
        self.shapes.crowded.insert(shape);
        let queue = &self.shapes[shape];
        let together = queue.group.is_some() || queue.is_pool();
        let waiting = if together { u64::from(queue.wanted) } else { queue.len() as u64 };
        let mut freed = Resources::default();
        let mut idle: Vec<(Tick, LeaseKey)> = (self.leases.iter())
            .filter(|(_, lease)| {
                lease.is_idle() && lease.shape != shape && !self.shapes[lease.shape].is_kept()
            })
            .map(|(key, lease)| (lease.idle_since, LeaseKey(key)))
            .collect();
        idle.sort_unstable();
        for (_, key) in idle {
            let needs = self.shapes.shape(self.leases[key.0].shape).needs;
            if freed != Resources::default() && crowded.needs.times_in(&freed) >= waiting {
                break;
            }
            let used = self.is_expected(key) || self.asks_back(self.leases[key.0].shape);
            if needs != Resources::default() && !used {
                freed = freed.plus(&needs);
                self.release(key, out);
            }
        }
    }

    pub(super) fn on_recall(&mut self, now: Tick, lease: LeaseId, out: &mut Vec<Effect<Ticket>>) {
        let Some(key) = self.lease_keys.get(&lease).copied() else { return };
        if self.shapes[self.leases[key.0].shape].group.is_some() {
            return self.on_member_recalled(key, out);
        }
        if self.shapes[self.leases[key.0].shape].is_pool() {
            return self.on_pool_recall(now, key, out);
        }
        self.leases[key.0].recalled = true;
        self.ask_back_waiting(key, out);
        self.idle_changed(now, key, out);
    }

    pub(super) fn release_idle(&mut self, now: Tick, out: &mut Vec<Effect<Ticket>>) {
        let mut earliest: Option<Tick> = None;
        for key in self.leases.iter().map(|(key, _)| LeaseKey(key)).collect::<Vec<_>>() {
            let lease = &self.leases[key.0];
            let alone = self.is_needed_alone(key) || self.shapes[lease.shape].is_kept();
            if !lease.is_idle() || self.is_expected(key) || self.may_be_used(key) || alone {
                continue;
            }
            let until = lease.idle_since + self.keep_idle(lease.shape);
            if until <= now {
                self.release(key, out);
            } else {
                earliest = Some(earliest.map_or(until, |at| at.min(until)));
            }
        }
        if let Some(at) = earliest {
            self.wake_at(at, out);
        }
    }

    /// Give a lease back. Less is wanted from now on, or the head would grant it again at once.
    fn release(&mut self, key: LeaseKey, out: &mut Vec<Effect<Ticket>>) {
        let lease = self.forget_lease(key);
        let queue = &mut self.shapes[lease.shape];
        let count = (queue.leases.len() as u32).max((queue.len() + queue.in_flight) as u32);
        queue.wanted = count.min(self.config.max_leases);
        let count = queue.wanted;
        let shape = *self.shapes.shape(lease.shape);
        out.push(Effect::ToHead(ClientToHead::Want { shape, count, exclusive: None }));
        out.push(Effect::ToHead(ClientToHead::Release { lease: lease.id }));
        out.push(Effect::Close { key });
    }

    /// Strike a lease off that is given back. What is in flight on it is the caller's.
    pub(super) fn forget_lease(&mut self, key: LeaseKey) -> Lease {
        self.note_up(key);
        let lease = self.leases.remove(key.0);
        self.lease_keys.remove(&lease.id);
        if lease.is_unconfirmed() {
            self.slots.remove(&lease.home());
        }
        self.shapes[lease.shape].forget_lease(key, &lease);
        lease
    }
}
