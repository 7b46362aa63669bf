//! What the head says, and what happens without it.

use super::{Effect, HeadLink, Node, Phase, State, Use};
use crate::time::Tick;
use paceline_proto::control::{HeadToNode, NodeToHead, Placement};
use paceline_proto::{Death, LeaseId, SlotId};

impl Node {
    pub(super) fn on_head(&mut self, now: Tick, message: HeadToNode, out: &mut Vec<Effect>) {
        match message {
            HeadToNode::Welcome { .. } => {}
            HeadToNode::Program { program, start } => self.on_program(now, program, start),
            HeadToNode::Place { lease, client, shape, devices } => {
                self.on_place(now, Use { lease, client, shape, devices }, out)
            }
            HeadToNode::End { lease } => self.on_end(now, lease, out),
            HeadToNode::Bye => self.on_close(now, out),
            // The shell answers.
            HeadToNode::Ask { .. } => {}
        }
    }

    pub(super) fn on_head_up(&mut self, now: Tick, out: &mut Vec<Effect>) {
        // The head gives up what is not in the list, and decides anew.
        self.pending.clear();
        self.head = HeadLink::Up { next_beat: now + self.config.heartbeat };
        let held = self.slots.iter().filter_map(|(&slot, entry)| {
            Some(Placement { blocked: entry.blocked, ..placement(entry.state.lease()?, slot) })
        });
        // An end that was not told is told after the list: until then the lease counts as there.
        let unreported = self.unreported.iter().map(|(placement, _)| *placement);
        let leases = held.chain(unreported).collect();
        out.push(Effect::ToHead(NodeToHead::Join {
            node: self.config.node,
            incarnation: self.config.incarnation,
            name: self.config.name.clone(),
            total: self.config.total,
            leases,
            facts: self.config.facts.clone(),
        }));
        for (placement, death) in self.unreported.drain(..) {
            out.push(Effect::ToHead(NodeToHead::Ended { lease: placement.lease, death }));
        }
        self.say_leaving(out);
    }

    pub(super) fn on_head_down(&mut self, now: Tick) {
        self.pending.clear();
        if matches!(self.head, HeadLink::Up { .. }) {
            self.head = HeadLink::Down { until: now + self.config.head_lost };
        }
    }

    pub(super) fn head_on_time(&mut self, now: Tick, out: &mut Vec<Effect>) {
        match &mut self.head {
            HeadLink::Up { next_beat } if *next_beat <= now => {
                *next_beat = now + self.config.heartbeat;
                out.push(Effect::ToHead(NodeToHead::Heartbeat));
            }
            HeadLink::Down { until } if *until <= now => {
                self.head = HeadLink::Lost;
                self.on_head_lost(out);
            }
            HeadLink::Up { .. } | HeadLink::Down { .. } | HeadLink::Lost => {}
        }
    }

    /// The head grants these leases to nobody before this time is over, and to others after it: they end.
    fn on_head_lost(&mut self, out: &mut Vec<Effect>) {
        self.unreported.clear();
        for id in self.slots.keys().copied().collect::<Vec<_>>() {
            let slot = self.slots.get_mut(&id).expect("listed just now");
            match slot.state {
                State::Leased(_) | State::Detaching { .. } | State::Warm { .. } => {
                    slot.state = State::Ending { lease: None, kill_at: None };
                    self.kill(id, out);
                }
                State::Ending { kill_at, .. } => slot.state = State::Ending { lease: None, kill_at },
                State::Generic => {}
            }
        }
    }

    fn on_place(&mut self, now: Tick, wanted: Use, out: &mut Vec<Effect>) {
        let known =
            self.slots.iter().find(|(_, slot)| slot.state.lease().is_some_and(|it| it.lease == wanted.lease));
        match known {
            Some((&slot, entry)) => {
                if matches!(entry.state, State::Leased(_)) {
                    out.push(Effect::ToHead(NodeToHead::Placed { lease: wanted.lease, slot }));
                }
            }
            None if self.phase != Phase::Open
                || !self.knows_program(wanted.shape.program)
                || !self.has_devices(wanted.devices) =>
            {
                out.push(Effect::ToHead(NodeToHead::Ended { lease: wanted.lease, death: None }));
            }
            None => {
                if !self.pending.iter().any(|pending| pending.lease == wanted.lease) {
                    self.pending.push_back(wanted);
                }
                self.quiet_since = now;
            }
        }
    }

    fn on_end(&mut self, now: Tick, lease: LeaseId, out: &mut Vec<Effect>) {
        self.quiet_since = now;
        self.pending.retain(|pending| pending.lease != lease);
        let slot = self.slots.iter().find(|(_, slot)| slot.state.lease().is_some_and(|it| it.lease == lease));
        match slot.map(|(&id, slot)| (id, slot.state)) {
            Some((id, State::Leased(_))) => self.detach(now, id, out),
            Some(_) => {}
            None => out.push(Effect::ToHead(NodeToHead::Ended { lease, death: None })),
        }
    }

    /// Tell the head that a lease is over, now or when it can be reached again (ND-3).
    pub(super) fn report(&mut self, lease: Use, slot: SlotId, death: Option<Death>, out: &mut Vec<Effect>) {
        match self.head {
            HeadLink::Up { .. } => {
                out.push(Effect::ToHead(NodeToHead::Ended { lease: lease.lease, death }));
            }
            HeadLink::Down { .. } => self.unreported.push((placement(lease, slot), death)),
            HeadLink::Lost => {}
        }
    }
}

fn placement(lease: Use, slot: SlotId) -> Placement {
    let Use { lease, client, shape, devices } = lease;
    Placement { lease, client, slot, shape, blocked: false, devices }
}
