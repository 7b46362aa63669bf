//! What must exist once: actors, and work of the head's. It may go on without a sign of the head for so long only.
//!
//! * EX-1: without a sign of the head for long enough, what must exist once ends. A sign is an answer to something this
//!   node sent, counted from when that was sent, by a clock that nothing moves: not even a process that stood still gets
//!   more time, for the head does not know that it did.
//! * EX-2: what comes from the head later than that is not begun, nor is what still waits for a slot by then; and the head
//!   hears of it, for the link may be as good as ever.
//! * EX-3: the zygotes know the time, too, and kill what is there if this process stands still when it comes.
//! * EX-4: when a later head is obeyed, the deadlines of actors stay where the earlier one's last sign put them, until the later
//!   head confirms that the holder of the lease obeys it, too. Until then the holder may obey the earlier head, which
//!   gives it another slot when it has heard nothing of this node for long enough.
//!
//! Where the head is a part of this process nothing of this is needed: neither goes on without the other.

use super::{Effect, HeadLink, Node, State, Use};
use crate::time::Tick;
use paceline_proto::control::NodeToHead;
use paceline_proto::{LeaseId, SlotId};
use std::collections::{BTreeMap, VecDeque};

impl Node {
    /// A lease that is not of work.
    pub(super) fn on_lease(&mut self, now: Tick, wanted: Use, out: &mut Vec<Effect>) {
        if self.is_over(now, &wanted) {
            return self.refuse_late(wanted.lease, out);
        }
        self.on_place(now, wanted, out);
    }

    /// EX-2. The head may be as late as the lease, and still count on it.
    pub(super) fn refuse_late(&self, lease: LeaseId, out: &mut Vec<Effect>) {
        out.push(Effect::ToHead(NodeToHead::Ended { lease, death: None }));
    }

    /// The head has answered what was sent then.
    pub(super) fn on_sign(&mut self, sent: Tick) {
        self.deadlines_changed |= self.sign < Some(sent);
        self.sign = self.sign.max(Some(sent));
    }

    /// When what is under this lease has to have ended, as things stand; nothing if it may go on.
    fn ends_at(&self, lease: &Use) -> Option<Tick> {
        let once = lease.exclusive.is_some() || self.is_work(lease.lease);
        let by_sign = || self.sign.map_or(Tick::ZERO, |sign| sign + self.head_lost());
        let ends_at = || lease.ends_at.map_or_else(by_sign, |at| at.min(by_sign()));
        (once && !self.config.has_own_head).then(ends_at)
    }

    /// Another head is obeyed from now on (EX-4).
    pub(super) fn freeze_exclusive_deadlines(&mut self) {
        let ends_at: Vec<(SlotId, Option<Tick>)> = (self.slots.iter())
            .filter_map(|(&id, slot)| Some((id, slot.state.lease()?)))
            .filter(|(_, lease)| lease.exclusive.is_some())
            .map(|(id, lease)| (id, self.ends_at(&lease)))
            .collect();
        for (id, at) in ends_at {
            let slot = self.slots.get_mut(&id).expect("just listed");
            slot.state.lease_mut().expect("just listed").ends_at = at;
        }
    }

    /// The holder of the lease obeys the head that is obeyed here (EX-4).
    pub(super) fn on_holder_confirmed(&mut self, lease: LeaseId) {
        let epoch = self.met.map(|met| met.epoch).unwrap_or_default();
        let mut held = self.slots.values_mut().filter_map(|slot| slot.state.lease_mut());
        if let Some(held) = held.find(|held| held.lease == lease) {
            (held.epoch, held.ends_at) = (epoch, None);
            self.deadlines_changed = true;
        }
    }

    fn is_over(&self, now: Tick, lease: &Use) -> bool {
        self.ends_at(lease).is_some_and(|at| at <= now)
    }

    /// EX-1.
    pub(super) fn exclusive_on_time(&mut self, now: Tick, out: &mut Vec<Effect>) {
        if self.exclusive_next().is_none_or(|at| now < at) {
            return;
        }
        if self.pending.iter().any(|pending| self.is_over(now, pending)) {
            let pending = std::mem::take(&mut self.pending);
            let (over, waiting) = pending.into_iter().partition(|pending| self.is_over(now, pending));
            self.pending = waiting;
            let over: VecDeque<Use> = over;
            over.into_iter().for_each(|pending| self.refuse_late(pending.lease, out));
        }
        let over = self.exclusive_slots().filter(|(_, at)| *at <= now).map(|(slot, _)| slot);
        for slot in over.collect::<Vec<_>>() {
            self.kill(slot, out);
        }
    }

    pub(super) fn exclusive_next(&self) -> Option<Tick> {
        let pending = self.pending.iter().filter_map(|pending| self.ends_at(pending));
        self.exclusive_slots().map(|(_, at)| at).chain(pending).min()
    }

    /// Slots that are something that must exist once, and when they have to have ended; those that were killed apart.
    fn exclusive_slots(&self) -> impl Iterator<Item = (SlotId, Tick)> {
        self.slots.iter().filter_map(|(&id, slot)| match slot.state {
            State::Ending { kill_at: None, .. } => None,
            state => Some((id, self.ends_at(&state.lease()?)?)),
        })
    }

    /// EX-3.
    pub(super) fn tell_zygotes(&mut self, out: &mut Vec<Effect>) {
        if std::mem::take(&mut self.deadlines_changed) {
            let slots: BTreeMap<SlotId, Tick> = self.exclusive_slots().collect();
            let told = std::mem::replace(&mut self.kill_at, slots);
            let news = self.kill_at.iter().filter(|(slot, at)| told.get(slot) != Some(at));
            let slots: Vec<(SlotId, Tick)> = news.map(|(slot, at)| (*slot, *at)).collect();
            if !slots.is_empty() {
                out.push(Effect::KillAt { slots });
            }
        }
    }

    pub(super) fn check_exclusive(&self) -> Result<(), String> {
        let lost = self.head == HeadLink::Lost;
        let waits = |it: &&Use| it.exclusive.is_some() || self.is_work(it.lease);
        let late: Option<LeaseId> = self.pending.iter().find(waits).map(|it| it.lease);
        late.filter(|_| lost).map_or(Ok(()), |lease| Err(format!("EX-2: {lease:?} waits without a head")))
    }
}
