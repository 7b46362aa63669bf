//! The link to the head: whose word counts, how long it may be silent, and what is to be done without it.
//!
//! * HL-1: without the head for `head_lost`, what waits for it ends with a word that says so. Leases that work go on;
//!   one whose link is down is abandoned, because nobody is left to say what became of it: its calls end in the same way,
//!   or as those of a node that is lost if it is of a group or a pool, which has others.
//! * HL-2: a data link that is down for three heartbeats is given up for good: the head ends the lease, and its calls go
//!   elsewhere only when the head says that it is over. With no word from the head for as long, the node counts as lost:
//!   what may run again runs elsewhere at once, and a head that comes back ends what is left there.
//! * HL-4: a head that refuses the link says why, and what waits for it ends with that word, and nothing else does.
//! * HL-5: how long silence may last is what the head that was believed last says, unless this client is told otherwise.
//! * HL-3: an earlier start of the head than the one believed last is no head any more.
//! * HL-6: on each link the head hears that it is obeyed once its welcome was heard there, and not before: until then this
//!   client may go back to an earlier start.

use super::lease::{Lease, LinkState};
use super::shapes::ShapeKey;
use super::{Charge, Client, Config, Effect, LeaseKey, Outcome};
use crate::Tick;
use crate::alarm::Alarm;
use paceline_proto::control::{ClientToHead, HeadToClient, Held, Met, Timing};
use paceline_proto::limits;
use paceline_proto::parts::carried;
use paceline_proto::{Death, DeathCause, LeaseId, OutOfMemory};
use std::collections::BTreeSet;
use std::time::Duration;

/// How long silence may last, in heartbeats.
const BEATS: u32 = 3;

pub(super) struct HeadLink {
    up: bool,
    /// The head has said on this link who it is (HL-6).
    welcomed: bool,
    /// Since when the link is up.
    since: Tick,
    /// When the head last said something.
    heard: Tick,
    next_beat: Tick,
    /// It was away for so long that what waited for it has ended.
    lost: bool,
    /// The head that was believed last.
    met: Option<Met>,
    alarm: Alarm,
    /// Leases whose link is down, and since when.
    down: BTreeSet<(Tick, LeaseKey)>,
}

impl HeadLink {
    pub fn new(config: &Config) -> HeadLink {
        HeadLink {
            up: false,
            welcomed: false,
            since: Tick::ZERO,
            heard: Tick::ZERO,
            next_beat: Tick::ZERO,
            lost: false,
            met: None,
            alarm: Alarm::new(config.heartbeat),
            down: BTreeSet::new(),
        }
    }

    pub fn forget_links(&mut self) {
        self.down.clear();
    }

    /// There was a head, and there is none now.
    pub fn is_away(&self) -> bool {
        !self.up && self.heard != Tick::ZERO
    }

    pub fn is_up(&self) -> bool {
        self.up
    }

    pub fn is_lost(&self) -> bool {
        self.lost
    }
}

impl<Ticket: Clone> Client<Ticket> {
    pub(super) fn on_head_up(&mut self, now: Tick, out: &mut Vec<Effect<Ticket>>) {
        if self.head.heard == Tick::ZERO {
            self.head.heard = now;
        }
        (self.head.up, self.head.welcomed, self.head.since) = (true, false, now);
        self.head.next_beat = now + self.config.heartbeat;
        let own = self.leases.iter().filter(|(key, _)| !self.is_guest(LeaseKey(*key)));
        let mut leases: Vec<Held> = own.map(|(_, lease)| self.as_held(lease)).collect();
        leases.sort_unstable();
        let (client, mut name, met, under) = (self.id, self.name.clone(), self.head.met, self.under);
        limits::clip(&mut name, limits::LONGEST_NAME);
        let beats = !self.config.heartbeat.is_zero();
        out.push(Effect::ToHead(ClientToHead::Hello { client, name, leases, met, under, beats }));
        // Before anything that it could be granted for.
        out.extend(self.lost_leases().map(|lease| Effect::ToHead(ClientToHead::Lost { lease })));
        self.say_owners(out);
        self.say_programs(out);
        self.say_sharing(out);
        self.say_actors(out);
        for (key, shape, queue) in self.shapes.iter() {
            let held = |node| {
                let keys = queue.leases.iter().filter(|key| self.leases[key.0].node == node);
                keys.count() as u32
            };
            let nodes = queue.apart.told(held);
            if !nodes.is_empty() {
                out.push(Effect::ToHead(ClientToHead::Near { shape: *shape, nodes }));
            }
            if queue.wanted > 0 {
                let (shape, count, exclusive) = (*shape, queue.wanted, self.exclusive_of(key));
                out.push(Effect::ToHead(ClientToHead::Want { shape, count, exclusive }));
            }
        }
        for (_, lease) in self.leases.iter().filter(|(_, lease)| lease.broken) {
            out.push(Effect::ToHead(ClientToHead::Broken { lease: lease.id }));
        }
        self.pools_want(out);
        out.push(Effect::ToHead(ClientToHead::Synced));
        self.head_settled(now, out);
    }

    /// A lease as the head is to know it.
    pub(super) fn as_held(&self, lease: &Lease) -> Held {
        let &Lease { node, incarnation, exclusive, .. } = lease;
        Held { lease: lease.id, node, incarnation, shape: *self.shapes.shape(lease.shape), exclusive }
    }

    pub(super) fn on_head_down(&mut self, now: Tick, out: &mut Vec<Effect<Ticket>>) {
        self.head.up = false;
        self.head_settled(now, out);
    }

    /// Something came from the head. Says whether it is one (HL-3).
    pub(super) fn on_heard(
        &mut self,
        now: Tick,
        message: &HeadToClient,
        out: &mut Vec<Effect<Ticket>>,
    ) -> bool {
        if let HeadToClient::Welcome { cluster, epoch, timing } = *message {
            if self.head.met.is_some_and(|met| met.cluster == cluster && met.epoch > epoch) {
                self.drop_head(out);
                return false;
            }
            self.head.met = Some(Met { cluster, epoch });
            if self.head.up && !std::mem::replace(&mut self.head.welcomed, true) {
                out.push(Effect::ToHead(ClientToHead::Welcomed));
            }
            self.take_over(now, timing, out);
        }
        self.head.heard = now;
        if std::mem::take(&mut self.head.lost) {
            self.groups_want(out);
            self.pools_want(out);
        }
        true
    }

    /// HL-5.
    fn take_over(&mut self, now: Tick, timing: Timing, out: &mut Vec<Effect<Ticket>>) {
        if self.config.heartbeat.is_zero() {
            return;
        }
        let Timing { heartbeat, head_lost } = timing.bounded();
        self.config.heartbeat = self.config.own_heartbeat.unwrap_or(heartbeat);
        self.config.head_lost = self.config.own_head_lost.unwrap_or(head_lost);
        self.head.alarm.set_heartbeat(self.config.heartbeat);
        self.head.next_beat = self.head.next_beat.min(now + self.config.heartbeat);
        self.head_settled(now, out);
    }

    /// Returns how often this client says that it is there; never if that is nothing.
    pub fn heartbeat(&self) -> Duration {
        self.config.heartbeat
    }

    /// This client is a slot, and works for the task that runs under this lease.
    pub fn work_under(&mut self, lease: LeaseId, out: &mut Vec<Effect<Ticket>>) {
        self.under = Some(lease);
        out.push(Effect::ToHead(ClientToHead::Under { lease }));
    }

    /// The link of this lease is being opened.
    pub(super) fn note_down(&mut self, now: Tick, key: LeaseKey, out: &mut Vec<Effect<Ticket>>) {
        let lease = &mut self.leases[key.0];
        if self.config.heartbeat.is_zero() || lease.down_since.is_some() || lease.broken {
            return;
        }
        lease.down_since = Some(now);
        self.head.down.insert((now, key));
        self.head_settled(now, out);
    }

    /// It is up, or nobody asks any more.
    pub(super) fn note_up(&mut self, key: LeaseKey) {
        if let Some(since) = self.leases[key.0].down_since.take() {
            self.head.down.remove(&(since, key));
        }
    }

    pub(super) fn head_on_time(&mut self, now: Tick, out: &mut Vec<Effect<Ticket>>) {
        if self.config.heartbeat.is_zero() {
            return;
        }
        let gap = self.head.alarm.on_step(now);
        if gap > Duration::ZERO {
            self.on_gap(gap);
        }
        if !self.head.lost && self.head.heard != Tick::ZERO && self.lost_at() <= now {
            self.head.lost = true;
            if self.head.up {
                // It may still answer on this link, and would take what was wanted there for what is wanted now.
                self.drop_head(out);
            }
        }
        if self.head.up && self.silent_at() <= now {
            self.drop_head(out);
        }
        if self.head.up && self.head.next_beat <= now {
            self.head.next_beat = now + self.config.heartbeat;
            out.push(Effect::ToHead(ClientToHead::Heartbeat { beat: now.0 }));
        }
        self.give_up_links(now, out);
        self.abandon_broken(now, out);
        if self.head.lost {
            self.go_on_alone(out);
        }
        self.head_settled(now, out);
    }

    /// Should the head still hear us, it does not take the end of this link for our own.
    fn drop_head(&mut self, out: &mut Vec<Effect<Ticket>>) {
        self.head.up = false;
        out.push(Effect::ToHead(ClientToHead::Reopening));
        out.push(Effect::DropHead);
    }

    /// The whole process stood still, so nobody could be heard: silence does not count.
    fn on_gap(&mut self, gap: Duration) {
        self.head.since = self.head.since + gap;
        if self.head.heard != Tick::ZERO {
            self.head.heard = self.head.heard + gap;
        }
        let down = std::mem::take(&mut self.head.down);
        self.head.down = down.into_iter().map(|(since, key)| (since + gap, key)).collect();
        for &(since, key) in &self.head.down {
            self.leases[key.0].down_since = Some(since);
        }
    }

    /// Links that were down for too long (HL-2).
    fn give_up_links(&mut self, now: Tick, out: &mut Vec<Effect<Ticket>>) {
        while let Some(&(since, key)) = self.head.down.first() {
            if since + self.silence() > now {
                break;
            }
            self.note_up(key);
            let lease = &mut self.leases[key.0];
            lease.broken = true;
            out.push(Effect::ToHead(ClientToHead::Broken { lease: lease.id }));
        }
    }

    /// Neither the slots nor the head can be reached, so nobody will say what became of these leases (HL-2).
    fn abandon_broken(&mut self, now: Tick, out: &mut Vec<Effect<Ticket>>) {
        if self.head.up || self.head.lost || self.silent_at() > now {
            return;
        }
        let broken = self.leases.iter().filter(|(_, lease)| lease.broken && lease.link != LinkState::Up);
        for (lease, node) in broken.map(|(_, lease)| (lease.id, lease.node)).collect::<Vec<_>>() {
            out.push(Effect::Abandoned { lease, node });
            self.on_ended(now, lease, &Death::of_lost_node(), out);
        }
    }

    /// What waits for the head ends, and so does what only the head could tell the end of (HL-1).
    fn go_on_alone(&mut self, out: &mut Vec<Effect<Ticket>>) {
        let broken = self.leases.iter().filter(|(_, lease)| lease.broken && lease.link != LinkState::Up);
        for key in broken.map(|(key, _)| LeaseKey(key)).collect::<Vec<_>>() {
            // It went with its group, when another member was found to be broken.
            if !self.leases.contains(key.0) {
                continue;
            }
            let mut lease = self.leases.remove(key.0);
            self.lease_keys.remove(&lease.id);
            self.slots.remove(&lease.home());
            let queue = &mut self.shapes[lease.shape];
            queue.forget_lease(key, &lease);
            let calls = lease.take_in_flight();
            queue.in_flight -= calls.len();
            out.push(Effect::Abandoned { lease: lease.id, node: lease.node });
            out.push(Effect::Close { key });
            let (cause, out_of_memory) = (DeathCause::NodeLost, OutOfMemory::No);
            let charge = Charge { slot: lease.slot, node: lease.node, cause, out_of_memory };
            if queue.is_pool() {
                self.on_pool_slot_ended(&lease, &calls, &Death::of_lost_node(), charge, out);
                continue;
            }
            if let Some(group) = queue.group {
                self.on_member_ended(group, lease.shape, calls, charge, out);
                continue;
            }
            calls.into_iter().for_each(|call| self.finish_unplaced(call.task, self.head_lost(), out));
            self.end_visit_if_idle(lease.shape, out);
        }
        for shape in self.shapes.keys() {
            if !self.goes_on_alone(shape) {
                self.end_waiting(shape, out);
            }
        }
    }

    /// The head closes this link, because of a limit: what waits for it ends with the reason (HL-4). Another link is tried in
    /// a while, for what is submitted then.
    pub(super) fn on_refused(&mut self, why: &str, out: &mut Vec<Effect<Ticket>>) {
        for shape in self.shapes.keys() {
            if !self.goes_on_alone(shape) {
                self.end_waiting_with(shape, &Outcome::Refused { why: why.into() }, out);
            }
        }
    }

    /// Nothing of this shape waits for a head that is away for good.
    pub(super) fn end_waiting(&mut self, shape: ShapeKey, out: &mut Vec<Effect<Ticket>>) {
        self.end_waiting_with(shape, &self.head_lost(), out);
    }

    fn end_waiting_with(&mut self, shape: ShapeKey, how: &Outcome, out: &mut Vec<Effect<Ticket>>) {
        // A link may be open on which the head has not answered yet, and hears what was wanted.
        self.want_nothing(shape, out);
        for key in self.shapes[shape].drain() {
            self.waiting.remove(carried(&self.tasks[key.0].payload));
            self.finish_unplaced(key, how.clone(), out);
        }
        self.end_visit_if_idle(shape, out);
    }

    fn head_lost(&self) -> Outcome {
        Outcome::HeadLost { after: self.config.head_lost }
    }

    fn silence(&self) -> Duration {
        self.config.heartbeat * BEATS
    }

    fn silent_at(&self) -> Tick {
        self.head.heard.max(self.head.since) + self.silence()
    }

    fn lost_at(&self) -> Tick {
        self.head.heard + self.config.head_lost
    }

    /// Ask to be woken when something is to be done about the head, and once a heartbeat at least.
    fn head_settled(&mut self, now: Tick, out: &mut Vec<Effect<Ticket>>) {
        if self.config.heartbeat.is_zero() || self.closed {
            return;
        }
        let beat = self.head.up.then(|| self.head.next_beat.min(self.silent_at()));
        let lost = (!self.head.lost && self.head.heard != Tick::ZERO).then(|| self.lost_at());
        let links = self.head.down.first().map(|(since, _)| *since + self.silence());
        let next = beat.into_iter().chain(lost).chain(links).min().unwrap_or(now + self.config.heartbeat);
        let _ = self.head.alarm.on_settled(now, Some(next));
        self.wake_at(next.min(now + self.config.heartbeat), out);
    }
}
