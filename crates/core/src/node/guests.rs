//! Guests: other clients than the one a slot is leased to, which call the actor in it.
//!
//! The head says who may; the node takes their data connections and hands them to the slot, each with a number, which is
//! its place on the page that tells which of the guest's calls ran.
//!
//! * GU-1: a guest is of one slot that is leased, and has a number there that no other guest of the slot has.
//! * GU-2: a slot that has guests ends with its lease, and its guests with it: what their calls found there is nobody
//!   else's. The head hears how each of them stood before it hears of the lease's end.
//! * GU-3: the end of a guest alone changes nothing for the slot.
//! * GU-4 (no inherited calls): a guest's calls are those that the page has under its lease. Its place there may still be
//!   an earlier guest's, of the same number, when the slot dies before it has heard of the new one.

use super::{Effect, HeadLink, Node, State};
use paceline_proto::control::{NodeToHead, NodeToSlot};
use paceline_proto::{Death, LeaseId, LeaseSecret, Seq, SlotId};
use std::collections::BTreeSet;

/// The most guests of one slot: as many as a page has room for.
pub const MOST_GUESTS: u32 = 2000;

pub(super) struct Guest {
    host: LeaseId,
    slot: SlotId,
    number: u32,
    secret: LeaseSecret,
}

/// What the page says of one guest's calls.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GuestCalls {
    pub lease: LeaseId,
    pub running: Option<Seq>,
    pub finished: Seq,
}

impl Node {
    pub(super) fn on_admit(
        &mut self,
        lease: LeaseId,
        host: LeaseId,
        secret: LeaseSecret,
        again: bool,
        out: &mut Vec<Effect>,
    ) {
        if self.guest_ends.iter().any(|(ended, _)| *ended == lease) {
            return;
        }
        if let Some(guest) = self.guests.get(&lease) {
            let slot = guest.slot;
            return out.push(Effect::ToHead(NodeToHead::Placed { lease, slot }));
        }
        let hosts = |state: State| matches!(state, State::Leased(held) if held.lease == host);
        let found = self.slots.iter().find(|(_, slot)| hosts(slot.state)).map(|(&slot, _)| slot);
        let number = found.and_then(|slot| self.free_number(slot));
        match (found, number) {
            (Some(slot), Some(number)) if !again && !self.works.contains_key(&host) => {
                self.guests.insert(lease, Guest { host, slot, number, secret });
                out.push(Effect::ToHead(NodeToHead::Placed { lease, slot }));
            }
            _ => out.push(Effect::ToHead(NodeToHead::Ended { lease, death: None })),
        }
    }

    fn free_number(&self, slot: SlotId) -> Option<u32> {
        let taken: BTreeSet<u32> =
            self.guests.values().filter(|guest| guest.slot == slot).map(|guest| guest.number).collect();
        (1..=MOST_GUESTS).find(|number| !taken.contains(number))
    }

    /// Somebody opened a data connection for this lease. True if it is a guest's.
    pub(super) fn on_guest_connection(
        &mut self,
        connection: u64,
        lease: LeaseId,
        sealed: bool,
        out: &mut Vec<Effect>,
    ) -> bool {
        let Some(&Guest { slot, number, secret, .. }) = self.guests.get(&lease) else { return false };
        let message = NodeToSlot::Guest { lease, number, secret: sealed.then_some(secret) };
        match matches!(self.slots[&slot].state, State::Leased(_)) {
            true => out.push(Effect::ToSlot { slot, message, connection: Some(connection) }),
            false => out.push(Effect::Refuse { connection }),
        }
        true
    }

    /// The guest is not to call any more. True if it was one.
    pub(super) fn end_guest(&mut self, lease: LeaseId, out: &mut Vec<Effect>) -> bool {
        let Some(guest) = self.guests.remove(&lease) else { return false };
        let message = NodeToSlot::Detach { lease };
        out.push(Effect::ToSlot { slot: guest.slot, message, connection: None });
        true
    }

    pub(super) fn has_guests(&self, slot: SlotId) -> bool {
        self.guests.values().any(|guest| guest.slot == slot)
    }

    /// What the page says of the calls of a slot's guests; comes before its end.
    pub(super) fn on_guest_calls(&mut self, slot: SlotId, calls: Vec<GuestCalls>) {
        if let Some(slot) = self.slots.get_mut(&slot) {
            slot.guest_calls = calls;
        }
    }

    /// The slot is gone, and with it its guests (GU-2).
    pub(super) fn end_guests(
        &mut self,
        id: SlotId,
        calls: &[GuestCalls],
        death: Option<&Death>,
        out: &mut Vec<Effect>,
    ) {
        let here: Vec<LeaseId> =
            self.guests.iter().filter(|(_, guest)| guest.slot == id).map(|(&lease, _)| lease).collect();
        for lease in here {
            self.guests.remove(&lease);
            let calls = calls.iter().find(|calls| calls.lease == lease);
            let (running, finished) = calls.map_or((None, Seq(0)), |calls| (calls.running, calls.finished));
            let death = death.map_or_else(Death::of_lost_node, Death::clone);
            let death = Death { running, finished, ..death };
            if matches!(self.head, HeadLink::Up { .. }) {
                out.push(Effect::ToHead(NodeToHead::Ended { lease, death: Some(death.clone()) }));
            }
            if self.head != HeadLink::Lost {
                self.guest_ends.push((lease, death));
            }
        }
    }

    /// Say again how guests ended of which the head may not have heard.
    pub(super) fn say_guest_ends(&self, out: &mut Vec<Effect>) {
        for (lease, death) in &self.guest_ends {
            out.push(Effect::ToHead(NodeToHead::Ended { lease: *lease, death: Some(death.clone()) }));
        }
    }

    pub(super) fn check_guests(&self) -> Result<(), String> {
        let mut numbers = BTreeSet::new();
        for (lease, guest) in &self.guests {
            let held = self.slots.get(&guest.slot).and_then(|slot| slot.state.lease());
            if held.is_none_or(|held| held.lease != guest.host) {
                return Err(format!("GU-1: {lease:?} is a guest of {:?}, which is over", guest.host));
            }
            if !numbers.insert((guest.slot, guest.number)) {
                return Err(format!("GU-1: two guests of {:?} have the number {}", guest.slot, guest.number));
            }
        }
        Ok(())
    }
}
