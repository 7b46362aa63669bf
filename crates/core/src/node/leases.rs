//! Which slot a lease gets, and how it is taken away again.

use super::devices::Held;
use super::{Effect, Node, State, Use};
use crate::time::Tick;
use paceline_proto::control::{NodeToHead, NodeToSlot};
use paceline_proto::{Address, ClientId, LeaseId, LeaseSecret, Resources, SlotId, Way, store};

/// Whose a lease is, for one who wants to bring something.
#[derive(Clone, PartialEq, Debug)]
pub enum StoreOf<'a> {
    Here {
        client: ClientId,
        secret: LeaseSecret,
    },
    /// It is on another node, and comes by way of this one.
    There(&'a [Address]),
    Nobody,
}

impl Node {
    /// Give every lease that waits its slot, as long as there are slots.
    pub(super) fn place_pending(&mut self, now: Tick, out: &mut Vec<Effect>) {
        for wanted in std::mem::take(&mut self.pending) {
            match self.slot_for(now, &wanted, out) {
                Some(slot) => self.lease(slot, wanted, out),
                // Its program is not up, or its GPUs are not free yet. That is no reason for others to wait.
                None => self.pending.push_back(wanted),
            }
        }
    }

    /// A warm one, else a ready one, else one that is being forked, else a new one.
    fn slot_for(&mut self, now: Tick, wanted: &Use, out: &mut Vec<Effect>) -> Option<SlotId> {
        let program = wanted.shape.program;
        // Only a process that has these GPUs already need not wait for them.
        let free = self.devices_are_free(wanted);
        let rank = |slot: &super::Slot| match slot.state {
            _ if slot.program != program => None,
            State::Warm { needs, .. }
                if slot.client == Some(wanted.client)
                    && (needs, slot.held.devices) == (wanted.shape.needs, wanted.devices) =>
            {
                Some(0)
            }
            State::Generic if free && slot.ready => Some(1),
            State::Generic if free => Some(2),
            _ => None,
        };
        let ranked = self.slots.iter().filter_map(|(&id, slot)| Some((rank(slot)?, id)));
        if let Some((_, id)) = ranked.min() {
            return Some(id);
        }
        match program.is_own() {
            _ if !free => {
                self.free_devices(now, wanted, out);
                None
            }
            true => self.fork(now, out),
            false => self.fork_of(now, program, out),
        }
    }

    fn lease(&mut self, id: SlotId, wanted: Use, out: &mut Vec<Effect>) {
        let devices = self.ids_of(wanted.devices);
        let slot = self.slots.get_mut(&id).expect("chosen among the slots");
        slot.state = State::Leased(wanted);
        self.deadlines_changed = true;
        slot.blocked = None;
        slot.way = None;
        if slot.client.is_none() {
            slot.client = Some(wanted.client);
            slot.held = Held::by(&wanted);
            let total = self.config.total;
            let (needs, own) = (wanted.shape.needs, wanted.shape.program.is_clients());
            let bind = {
                let files = self.config.files.as_deref();
                let files = files.map(|base| store::directory_of(base, wanted.client));
                NodeToSlot::Bind { client: wanted.client, needs, total, own, devices, files }
            };
            if needs.memory() > 0 {
                out.push(Effect::Confine { slot: id, limit: needs.memory() });
            }
            out.push(Effect::ToSlot { slot: id, message: bind, connection: None });
        }
        self.begin_work(id, wanted.lease, out);
        out.push(Effect::ToHead(NodeToHead::Placed { lease: wanted.lease, slot: id }));
    }

    pub(super) fn on_connection(
        &mut self,
        now: Tick,
        connection: u64,
        lease: LeaseId,
        way: Way,
        out: &mut Vec<Effect>,
    ) {
        self.quiet_since = now;
        if self.on_guest_connection(connection, lease, way.is_sealed(), out) {
            return;
        }
        let found = self.slots.iter_mut().find_map(|(&id, slot)| match slot.state {
            // Nobody has anything to say to work.
            State::Leased(held) if held.lease == lease && !self.works.contains_key(&lease) => {
                Some((id, slot, held.secret))
            }
            _ => None,
        });
        match found {
            Some((id, slot, secret)) => {
                slot.way = Some(way);
                let message = NodeToSlot::Attach { lease, secret: way.is_sealed().then_some(secret) };
                out.push(Effect::ToSlot { slot: id, message, connection: Some(connection) });
            }
            None => match self.relays.get(&lease).cloned() {
                Some(addresses) => out.push(Effect::Relay { connection, lease, addresses }),
                None => out.push(Effect::Refuse { connection }),
            },
        }
    }

    /// Who may bring something to this node's store under this lease.
    pub fn store_of(&self, lease: LeaseId) -> StoreOf<'_> {
        let mut held = self.slots.values().filter_map(|slot| slot.state.lease());
        match held.find(|held| held.lease == lease && !self.works.contains_key(&lease)) {
            Some(held) => StoreOf::Here { client: held.client, secret: held.secret },
            None => self.relays.get(&lease).map_or(StoreOf::Nobody, |addresses| StoreOf::There(addresses)),
        }
    }

    /// Returns the client that a slot belongs to.
    pub fn client_of(&self, slot: SlotId) -> Option<ClientId> {
        self.slots.get(&slot)?.client
    }

    /// Whether anything of this client runs or may, and whether any process is bound to it.
    pub fn serves(&self, client: ClientId) -> (bool, bool) {
        let of_client = |slot: &&super::Slot| slot.client == Some(client);
        let waits = self.pending.iter().any(|wanted| wanted.client == client);
        let busy = self.slots.values().filter(of_client).any(|slot| slot.state.lease().is_some());
        (waits || busy, waits || self.slots.values().any(|slot| of_client(&slot)))
    }

    pub(super) fn detach(&mut self, now: Tick, id: SlotId, out: &mut Vec<Effect>) {
        let until = now + self.config.grace;
        let slot = self.slots.get_mut(&id).expect("only known slots detach");
        let State::Leased(lease) = slot.state else { panic!("only leased slots detach") };
        slot.state = State::Detaching { lease, until };
        let message = NodeToSlot::Detach { lease: lease.lease };
        out.push(Effect::ToSlot { slot: id, message, connection: None });
    }

    pub(super) fn on_detached(&mut self, now: Tick, id: SlotId, lease: LeaseId, out: &mut Vec<Effect>) {
        let until = now + self.config.warm;
        let Some(slot) = self.slots.get_mut(&id) else { return };
        match slot.state {
            State::Detaching { lease: held, .. } if held.lease == lease => {
                slot.state = State::Warm { needs: held.shape.needs, until };
                slot.blocked = None;
                slot.served = true;
                self.report(held, id, None, out);
                if held.once {
                    self.leave(now, id, out);
                }
            }
            _ => {}
        }
    }

    /// Nobody will use what is warm for this client.
    pub(super) fn on_client_left(&mut self, now: Tick, client: ClientId, out: &mut Vec<Effect>) {
        let warm =
            |slot: &super::Slot| slot.client == Some(client) && matches!(slot.state, State::Warm { .. });
        let slots = self.slots.iter().filter(|(_, slot)| warm(slot)).map(|(&id, _)| id);
        for id in slots.collect::<Vec<_>>() {
            self.leave(now, id, out);
        }
    }

    /// Warm slots beyond what the node has go first, the one that would cool first before the others (ND-6).
    pub(super) fn cool_surplus(&mut self, now: Tick, out: &mut Vec<Effect>) {
        while !self.kept().fits_in(&self.most()) {
            let warm = self.slots.iter().filter_map(|(&id, slot)| match slot.state {
                State::Warm { until, needs, .. } if needs != Resources::default() => Some((until, id)),
                _ => None,
            });
            let Some((_, id)) = warm.min() else { break };
            self.leave(now, id, out);
        }
    }

    /// What the leases that have slots need together, but for those whose tasks wait.
    pub(super) fn leased(&self) -> Resources {
        let slots = self.slots.values().filter(|slot| slot.blocked.is_none());
        let needs = slots.filter_map(|slot| slot.state.lease()).map(|lease| lease.shape.needs);
        needs.fold(Resources::default(), |sum, needs| sum.plus(&needs))
    }

    /// What leased and warm slots need together, but for those whose tasks wait.
    pub(super) fn taken(&self) -> Resources {
        self.slots.values().fold(Resources::default(), |sum, slot| sum.plus(&slot.takes()))
    }
}
