//! Tasks that wait for others, and what they leave to them (ND-7).
//!
//! A task that waits keeps its slot but not its CPUs, so there are more slots than CPUs while tasks are nested. Those
//! that are through stay warm as long as as many may be needed again soon.
//!
//! When many wait already, the next one is told to get on by itself: it runs what it waits for in its own slot. One whose
//! tasks all run elsewhere cannot. It must leave its CPUs to others like the rest, or they may be what its tasks need.

use super::{Blocked, Effect, HeadLink, Node, Slot, State};
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
        let full = self.is_full();
        let Some(slot) = self.slots.get(&id).filter(|slot| slot.holds(lease)) else { return };
        if slot.blocked.is_some() == blocked {
            return;
        }
        self.quiet_since = now;
        if blocked && full {
            let message = NodeToSlot::TooDeep { lease };
            out.push(Effect::ToSlot { slot: id, message, connection: None });
            return;
        }
        self.set_blocked(now, id, lease, blocked.then_some(Blocked::InTurn), out);
    }

    /// It was told to get on by itself, and has nothing to run.
    pub(super) fn on_waits(&mut self, now: Tick, id: SlotId, lease: LeaseId, out: &mut Vec<Effect>) {
        if self.slots.get(&id).is_some_and(|slot| slot.holds(lease) && slot.blocked.is_none()) {
            self.quiet_since = now;
            self.set_blocked(now, id, lease, Some(Blocked::OutOfTurn), out);
        }
    }

    fn set_blocked(
        &mut self,
        now: Tick,
        id: SlotId,
        lease: LeaseId,
        blocked: Option<Blocked>,
        out: &mut Vec<Effect>,
    ) {
        let slot = self.slots.get_mut(&id).expect("the caller has seen it");
        slot.blocked = blocked;
        self.left_at_most = self.left_at_most.at_least(&self.left());
        self.left_until = now + self.config.warm;
        // A head that is out of reach hears of it when the link is back, by the list of leases.
        if matches!(self.head, HeadLink::Up { .. }) {
            let (blocked, full) = (blocked.is_some(), self.is_full());
            out.push(Effect::ToHead(NodeToHead::Blocked { lease, blocked, full }));
        }
    }

    /// A task waits for what nobody else can run: it has its CPUs back, and is to run it itself.
    pub(super) fn on_tangled(&mut self, now: Tick, lease: LeaseId, out: &mut Vec<Effect>) {
        let waits = |slot: &Slot| slot.blocked.is_some() && slot.holds(lease);
        if let Some(id) = self.slots.iter().find(|(_, slot)| waits(slot)).map(|(&id, _)| id) {
            self.set_blocked(now, id, lease, None, out);
            let message = NodeToSlot::TooDeep { lease };
            out.push(Effect::ToSlot { slot: id, message, connection: None });
        }
    }

    /// Whether the next one that waits has to get on by itself. Some places are left for those that cannot: as many tasks
    /// as the node runs at a time may have begun others elsewhere before it was full.
    fn is_full(&self) -> bool {
        let most = self.config.max_blocked;
        let runs = Resources::cpus(1).times_in(&self.config.total) as usize;
        self.slots.values().filter(|slot| slot.blocked.is_some()).count() >= most - runs.min(most / 2)
    }

    /// What tasks that wait leave to others now.
    fn left(&self) -> Resources {
        let needs =
            self.slots.values().filter(|slot| slot.blocked.is_some()).filter_map(|slot| match slot.state {
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
        if self.slots.values().any(|slot| slot.blocked.is_some()) { 0 } else { self.config.spares as usize }
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
    fn holds(&self, lease: LeaseId) -> bool {
        matches!(self.state, State::Leased(held) if held.lease == lease)
    }

    /// What it takes from the node: no CPUs while its task waits.
    pub(super) fn takes(&self) -> Resources {
        match self.state {
            State::Leased(lease) | State::Detaching { lease, .. } if self.blocked.is_some() => {
                lease.shape.needs.without_cpus()
            }
            State::Leased(lease) | State::Detaching { lease, .. } => lease.shape.needs,
            State::Warm { needs, .. } => needs,
            State::Generic | State::Ending { .. } => Resources::default(),
        }
    }
}
