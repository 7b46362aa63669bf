//! Tasks that wait for others, and what they leave to them (ND-7).
//!
//! A task that waits keeps its slot but not its CPUs, so there are more slots than CPUs while tasks are nested. Those
//! that are through stay warm as long as as many may be needed again soon.

use super::{Effect, HeadLink, Node, Slot, State};
use crate::time::Tick;
use paceline_proto::control::{NodeToHead, NodeToSlot};
use paceline_proto::{LeaseId, Resources, SlotId};

impl Node {
    pub(super) fn on_blocked(
        &mut self,
        now: Tick,
        id: SlotId,
        lease: LeaseId,
        blocked: bool,
        out: &mut Vec<Effect>,
    ) {
        let waiting = self.slots.values().filter(|slot| slot.blocked).count();
        let Some(slot) = self.slots.get_mut(&id) else { return };
        let held = matches!(slot.state, State::Leased(held) if held.lease == lease);
        if !held || slot.blocked == blocked {
            return;
        }
        self.quiet_since = now;
        if blocked && waiting >= self.config.max_blocked {
            let message = NodeToSlot::TooDeep { lease };
            out.push(Effect::ToSlot { slot: id, message, connection: None });
            return;
        }
        slot.blocked = blocked;
        self.left_at_most = self.left_at_most.at_least(&self.left());
        self.left_until = now + self.config.warm;
        // A head that is out of reach hears of it when the link is back, by the list of leases.
        if matches!(self.head, HeadLink::Up { .. }) {
            out.push(Effect::ToHead(NodeToHead::Blocked { lease, blocked }));
        }
    }

    /// A task waits for what nobody else can run: it has its CPUs back, and is to run it itself.
    pub(super) fn on_tangled(&mut self, now: Tick, lease: LeaseId, out: &mut Vec<Effect>) {
        let held = |slot: &Slot| matches!(slot.state, State::Leased(held) if held.lease == lease);
        let found = self.slots.iter().find(|(_, slot)| slot.blocked && held(slot)).map(|(&id, _)| id);
        if let Some(id) = found {
            self.on_blocked(now, id, lease, false, out);
            let message = NodeToSlot::TooDeep { lease };
            out.push(Effect::ToSlot { slot: id, message, connection: None });
        }
    }

    /// What tasks that wait leave to others now.
    fn left(&self) -> Resources {
        let needs = self.slots.values().filter(|slot| slot.blocked).filter_map(|slot| match slot.state {
            State::Leased(lease) | State::Detaching { lease, .. } => Some(lease.shape.needs.only_cpus()),
            State::Generic | State::Warm { .. } | State::Ending { .. } => None,
        });
        needs.fold(Resources::default(), |sum, each| sum.plus(&each))
    }

    pub(super) fn blocked_on_time(&mut self, now: Tick) {
        if self.left_until <= now {
            self.left_at_most = self.left();
            self.left_until = now + self.config.warm;
        }
    }

    /// When fewer warm slots will do.
    pub(super) fn blocked_until(&self, now: Tick) -> Option<Tick> {
        (self.left_at_most != self.left()).then_some(self.left_until).filter(|until| *until > now)
    }

    /// How many spares to keep: none while there are more slots than CPUs anyway.
    pub(super) fn spares(&self) -> usize {
        if self.slots.values().any(|slot| slot.blocked) { 0 } else { self.config.spares as usize }
    }

    /// What leased and warm slots may need together, those included whose tasks wait (ND-6).
    pub(super) fn most(&self) -> Resources {
        self.config.total.plus(&self.left_at_most)
    }

    /// What leased and warm slots need together, those included whose tasks wait.
    pub(super) fn kept(&self) -> Resources {
        self.taken().plus(&self.left())
    }
}

impl Slot {
    /// What it takes from the node: no CPUs while its task waits.
    pub(super) fn takes(&self) -> Resources {
        match self.state {
            State::Leased(lease) | State::Detaching { lease, .. } if self.blocked => {
                lease.shape.needs.without_cpus()
            }
            State::Leased(lease) | State::Detaching { lease, .. } => lease.shape.needs,
            State::Warm { needs, .. } => needs,
            State::Generic | State::Ending { .. } => Resources::default(),
        }
    }
}
