//! Work that the head owns: slots that have become somebody's program.
//!
//! Owns: what they are called. Does not own: their slots and leases, which are as any others.
//!
//! * WK-1: without a sign of the head for `head_lost`, work ends as all does that must exist once
//!   ([`super::exclusive`]).
//! * WK-2: what comes from the head later than that is not begun.
//! * WK-3: work that is to end is asked to, and killed if it has not after a while.

use super::{Effect, Node, State, Use};
use crate::time::Tick;
use paceline_proto::control::{NodeToSlot, Stream};
use paceline_proto::{LeaseId, SlotId};

pub(super) struct Errand {
    name: String,
    /// Until its slot has it.
    start: Option<Vec<u8>>,
}

impl Node {
    pub(super) fn on_run(
        &mut self,
        now: Tick,
        wanted: Use,
        name: String,
        start: Vec<u8>,
        out: &mut Vec<Effect>,
    ) {
        if !self.config.has_own_head && self.sign.is_none_or(|sign| sign + self.head_lost() <= now) {
            // WK-2.
            return self.refuse_late(wanted.lease, out);
        }
        self.on_place(now, wanted, out);
        if self.pending.iter().any(|pending| pending.lease == wanted.lease) {
            let errand = Errand { name, start: Some(start) };
            self.works.entry(wanted.lease).or_insert(errand);
        }
    }

    pub(super) fn is_work(&self, lease: LeaseId) -> bool {
        self.works.contains_key(&lease)
    }

    /// Its lease has this slot: let it become what it is to be.
    pub(super) fn begin_work(&mut self, id: SlotId, lease: LeaseId, out: &mut Vec<Effect>) {
        let Some(start) = self.works.get_mut(&lease).and_then(|errand| errand.start.take()) else { return };
        // However soon it ends, that is no fault of its place.
        self.slots.entry(id).and_modify(|slot| slot.served = true);
        let message = NodeToSlot::Become { start, variables: self.config.variables.clone() };
        out.push(Effect::ToSlot { slot: id, message, connection: None });
    }

    /// WK-3. True if the lease is of work.
    pub(super) fn end_work(&mut self, now: Tick, id: SlotId, out: &mut Vec<Effect>) -> bool {
        let until = now + self.config.work_grace;
        let slot = self.slots.get_mut(&id).expect("only known slots end");
        let State::Leased(lease) = slot.state else { return false };
        if !self.works.contains_key(&lease.lease) {
            return false;
        }
        slot.state = State::Detaching { lease, until };
        out.push(Effect::Terminate { slot: id });
        true
    }

    /// What it is called, if this slot is work.
    pub(super) fn work_in(&self, id: SlotId) -> Option<&str> {
        let lease = self.slots.get(&id)?.state.lease()?;
        self.works.get(&lease.lease).map(|errand| errand.name.as_str())
    }

    pub(super) fn on_work_output(
        &self,
        id: SlotId,
        stream: Stream,
        text: &[u8],
        out: &mut Vec<Effect>,
    ) -> bool {
        let name = self.work_in(id).map(str::to_owned);
        let known = name.is_some();
        out.extend(name.map(|name| Effect::Printed { name, stream, text: text.to_vec() }));
        known
    }

    /// Forget what is over.
    pub(super) fn tidy_works(&mut self) {
        if !self.works.is_empty() {
            let (slots, pending) = (&self.slots, &self.pending);
            self.works.retain(|lease, _| {
                pending.iter().any(|it| it.lease == *lease)
                    || slots.values().any(|slot| slot.state.lease().is_some_and(|it| it.lease == *lease))
            });
        }
    }

    pub(super) fn check_works(&self) -> Result<(), String> {
        let late = self.works.iter().find(|(lease, errand)| {
            let slot =
                self.slots.values().find(|slot| slot.state.lease().is_some_and(|it| it.lease == **lease));
            errand.start.is_none() && slot.is_none()
        });
        let gone = late.map(|(lease, errand)| format!("WK-1: {} under {lease:?} has no slot", errand.name));
        gone.map_or(Ok(()), Err)
    }
}
