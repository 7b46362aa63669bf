//! How many leases to hold: as many as there is work for, and none for long without.
//!
//! * DM-1: the client never holds more than `max_leases`, all shapes together, beside those of groups, which come as a
//!   whole. Whoever wants more than there is room for waits until another shape has given some back.
//! * DM-2: where that bounds it, each shape that has work gets its part; one that has nothing takes from the one that has
//!   most.

use super::lease::Lease;
use super::queue::Queue;
use super::shapes::ShapeKey;
use super::{Client, Effect, LeaseKey};
use crate::Tick;
use paceline_proto::control::ClientToHead;
use paceline_proto::{LeaseId, Resources, Shape};
use std::time::Duration;

/// Longer than it takes to get calls back from a slot.
const ASKING_TAKES: Duration = Duration::from_millis(20);

impl<Ticket: Clone> Client<Ticket> {
    /// Tell the head when more leases of a shape could be used than it knows. Asks in powers of two, so that a million
    /// submissions cost twenty messages.
    pub(super) fn demand_changed(&mut self, shape: ShapeKey, out: &mut Vec<Effect<Ticket>>) {
        let queue = &self.shapes[shape];
        let tasks = u32::try_from(queue.len() + queue.in_flight).unwrap_or(u32::MAX);
        if tasks <= queue.wanted || queue.bounded || queue.group.is_some() {
            return;
        }
        let goal = tasks.checked_next_power_of_two().unwrap_or(u32::MAX);
        let mut most = self.most_leases(shape);
        if most < goal && most < self.part() {
            self.make_room(shape, out);
            most = self.most_leases(shape);
        }
        let queue = &mut self.shapes[shape];
        queue.bounded = most < tasks;
        let count = goal.min(most);
        if count > queue.wanted {
            queue.wanted = count;
            let shape = *self.shapes.shape(shape);
            out.push(Effect::ToHead(ClientToHead::Want { shape, count }));
        }
    }

    /// How many leases of this shape there may be beside those of others (DM-1).
    fn most_leases(&self, shape: ShapeKey) -> u32 {
        let others = self.shapes.iter().filter(|(other, _, queue)| *other != shape && queue.group.is_none());
        let others: u32 = others.map(|(_, _, queue)| queue.claim()).sum();
        self.config.max_leases.saturating_sub(others)
    }

    /// What each of the shapes that have work may have, if they all want more (DM-2).
    fn part(&self) -> u32 {
        let working = self.shapes.iter().filter(|(_, _, queue)| queue.group.is_none() && queue.has_work());
        (self.config.max_leases / (working.count() as u32).max(1)).max(1)
    }

    /// Shapes that have more than their part give some back, when what runs there is through. If none has, the largest
    /// gives one to a shape that has nothing at all.
    fn make_room(&mut self, shape: ShapeKey, out: &mut Vec<Effect<Ticket>>) {
        let part = self.part();
        let plain = |(other, _, queue): &(ShapeKey, &Shape, &Queue)| *other != shape && queue.group.is_none();
        let claims = self.shapes.iter().filter(plain).map(|(other, _, queue)| (queue.claim(), other));
        let claims: Vec<(u32, ShapeKey)> = claims.filter(|(claim, _)| *claim > 0).collect();
        let mut rich: Vec<(ShapeKey, u32)> =
            claims.iter().filter(|(claim, _)| *claim > part).map(|(_, other)| (*other, part)).collect();
        if rich.is_empty() && self.shapes[shape].claim() == 0 {
            // Only one that has had the use of what it gives.
            let stays =
                |other: &ShapeKey| self.shapes[*other].leases.iter().any(|key| !self.leases[key.0].recalled);
            let largest = claims.iter().filter(|(_, other)| stays(other)).max();
            rich.extend(largest.map(|&(claim, other)| (other, claim - 1)));
        }
        for (other, left) in rich {
            self.reduce(other, left, out);
        }
    }

    /// No more than so many leases of this shape are wanted; those beyond go back after what they run.
    fn reduce(&mut self, shape: ShapeKey, left: u32, out: &mut Vec<Effect<Ticket>>) {
        self.turns += 1;
        let queue = &mut self.shapes[shape];
        queue.turn = self.turns;
        if queue.wanted > left {
            (queue.wanted, queue.bounded) = (left, true);
            let shape = *self.shapes.shape(shape);
            out.push(Effect::ToHead(ClientToHead::Want { shape, count: left }));
        }
        let staying = |key: &&LeaseKey| !self.leases[key.0].recalled;
        let mut staying: Vec<LeaseKey> = self.shapes[shape].leases.iter().filter(staying).copied().collect();
        // Those that have nothing to do first.
        staying.sort_by_key(|key| !self.leases[key.0].is_idle());
        let surplus = staying.len().saturating_sub(left as usize);
        for key in staying.into_iter().take(surplus) {
            self.leases[key.0].recalled = true;
            self.ask_back_waiting(key, out);
            if self.leases[key.0].is_idle() && !self.is_expected(key) {
                self.release(key, out);
            }
        }
    }

    /// Leases have gone, so others may be asked for.
    pub(super) fn use_room(&mut self, out: &mut Vec<Effect<Ticket>>) {
        while std::mem::take(&mut self.gone) {
            let mut bounded: Vec<ShapeKey> =
                self.shapes.keys().filter(|shape| self.shapes[*shape].bounded).collect();
            // Whoever gave something comes after those who did not.
            bounded.sort_by_key(|shape| self.shapes[*shape].turn);
            for shape in bounded {
                self.shapes[shape].bounded = false;
                self.demand_changed(shape, out);
            }
        }
    }

    /// A lease may have become idle: see that it is given back in time.
    pub(super) fn idle_changed(&mut self, now: Tick, key: LeaseKey, out: &mut Vec<Effect<Ticket>>) {
        let Some(lease) = self.leases.get(key.0) else { return };
        if !lease.is_idle() || self.shapes[lease.shape].group.is_some() {
            return;
        }
        let keep = self.keep_idle(lease.shape);
        let unused = !self.asks_back(lease.shape) && (keep.is_zero() || self.waits_for_room(lease.shape));
        let in_the_way = lease.recalled || unused;
        if in_the_way && !self.is_expected(key) {
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

    /// Whether tasks of another shape wait for what a lease of this one takes.
    fn waits_for_room(&self, shape: ShapeKey) -> bool {
        let mut others = self.shapes.iter().filter(|(other, ..)| *other != shape);
        self.shapes.shape(shape).needs != Resources::default()
            && others.any(|(_, _, queue)| queue.crowded && queue.is_hungry())
    }

    /// Leases of other shapes that are idle make room, the one that was idle for longest first.
    pub(super) fn on_crowded(&mut self, crowded: Shape, out: &mut Vec<Effect<Ticket>>) {
        let Some(shape) = self.shapes.find(&crowded).filter(|key| self.shapes[*key].is_hungry()) else {
            return;
        };
        let queue = &mut self.shapes[shape];
        queue.crowded = true;
        let waiting = if queue.group.is_some() { u64::from(queue.wanted) } else { queue.len() as u64 };
        let mut freed = Resources::default();
        let mut idle: Vec<(Tick, LeaseKey)> = (self.leases.iter())
            .filter(|(_, lease)| {
                lease.is_idle() && lease.shape != shape && self.shapes[lease.shape].group.is_none()
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
        self.leases[key.0].recalled = true;
        self.ask_back_waiting(key, out);
        self.idle_changed(now, key, out);
    }

    pub(super) fn release_idle(&mut self, now: Tick, out: &mut Vec<Effect<Ticket>>) {
        let mut earliest: Option<Tick> = None;
        for key in self.leases.iter().map(|(key, _)| LeaseKey(key)).collect::<Vec<_>>() {
            let lease = &self.leases[key.0];
            if !lease.is_idle() || self.is_expected(key) || self.shapes[lease.shape].group.is_some() {
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
        let queue = &self.shapes[lease.shape];
        let count = (queue.leases.len() as u32).max((queue.len() + queue.in_flight) as u32);
        // One that had to give some does not ask for them here.
        let most = if queue.bounded { queue.wanted } else { self.most_leases(lease.shape) };
        let count = count.min(most);
        let queue = &mut self.shapes[lease.shape];
        queue.wanted = count;
        let shape = *self.shapes.shape(lease.shape);
        out.push(Effect::ToHead(ClientToHead::Want { shape, count }));
        out.push(Effect::ToHead(ClientToHead::Release { lease: lease.id }));
        out.push(Effect::Close { key });
    }

    /// Strike a lease off that is given back. What is in flight on it is the caller's.
    pub(super) fn forget_lease(&mut self, key: LeaseKey) -> Lease {
        self.note_up(key);
        let lease = self.leases.remove(key.0);
        self.lease_keys.remove(&lease.id);
        if lease.is_unconfirmed() {
            self.slots.remove(&(lease.node, lease.slot));
        }
        self.shapes[lease.shape].forget_lease(key, &lease);
        self.gone = true;
        lease
    }
}
