//! What the head says, and what happens without it.

use super::config::BEATS;
use super::{Effect, HeadLink, Node, Phase, State, Use};
use crate::time::Tick;
use paceline_proto::control::{HeadToNode, Met, NodeToHead, Placement, Timing};
use paceline_proto::{Death, LeaseId, LeaseSecret, Resources, SlotId};
use std::time::Duration;

/// How long a node waits for the first word of a head that it has reached.
const UNWELCOMED: Duration = Duration::from_secs(10);

impl Node {
    pub(super) fn on_head(&mut self, now: Tick, message: HeadToNode, out: &mut Vec<Effect>) {
        if let HeadToNode::Welcome { cluster, epoch, timing } = message {
            return self.on_welcome(now, Met { cluster, epoch }, timing, out);
        }
        if !matches!(self.head, HeadLink::Up { obeyed: true, .. }) {
            return;
        }
        match message {
            HeadToNode::Welcome { .. } => {}
            HeadToNode::Program { program, start } => self.on_program(now, program, start),
            HeadToNode::Place { lease, client, shape, holder, secret, devices, once, exclusive } => {
                let epoch = self.met.map(|met| met.epoch).unwrap_or_default();
                let ends_at = None;
                let wanted =
                    Use { lease, client, shape, holder, epoch, secret, devices, once, exclusive, ends_at };
                self.on_lease(now, wanted, out);
            }
            HeadToNode::Run { lease, holder, shape, devices, name, start } => {
                let epoch = self.met.map(|met| met.epoch).unwrap_or_default();
                let secret = LeaseSecret::default();
                let (client, once, exclusive, ends_at) = (holder, true, None, None);
                let wanted =
                    Use { lease, client, shape, holder, epoch, secret, devices, once, exclusive, ends_at };
                self.on_run(now, wanted, name, start, out);
            }
            HeadToNode::End { lease } => self.on_end(now, lease, out),
            HeadToNode::Bye => self.on_close(now, out),
            HeadToNode::Relay { lease, addresses } => drop(self.relays.insert(lease, addresses)),
            // Whoever answers has read what was said when the beat was sent.
            HeadToNode::Heartbeat { beat } => {
                self.fresh = self.fresh.max(Some(Tick(beat).min(now)));
                self.on_sign(Tick(beat).min(now));
            }
            HeadToNode::Heard { lease } => {
                self.ends.retain(|(placement, _)| placement.lease != lease);
                self.guest_ends.retain(|(guest, _)| *guest != lease);
            }
            // The shell answers.
            HeadToNode::Ask { .. } => {}
            HeadToNode::TooDeep { lease } => self.on_tangled(now, lease, out),
            HeadToNode::Admit { lease, host, secret, again } => {
                self.on_admit(lease, host, secret, again, out)
            }
            HeadToNode::HolderConfirmed { lease } => self.on_holder_confirmed(lease),
        }
    }

    pub(super) fn on_head_up(&mut self, now: Tick, out: &mut Vec<Effect>) {
        // The head gives up what is not in the list, and decides anew.
        self.pending.clear();
        self.relays.clear();
        self.opened = now;
        if self.met.is_none() {
            // A head that dies before its first answer is missed from here on.
            self.fresh = self.fresh.or(Some(now));
        }
        self.head = HeadLink::Up { since: now, next_beat: now + self.timing.heartbeat, obeyed: false };
        let held = self.slots.iter().filter_map(|(&slot, entry)| {
            Some(Placement { blocked: entry.blocked.is_some(), ..placement(entry.state.lease()?, slot) })
        });
        // An end that was not told is told after the list: until then the lease counts as there.
        let ends = self.ends.iter().map(|(placement, _)| *placement);
        let leases = held.chain(ends).collect();
        out.push(Effect::ToHead(NodeToHead::Join {
            node: self.config.node,
            incarnation: self.config.incarnation,
            name: self.config.name.clone(),
            total: self.config.total,
            leases,
            addresses: self.config.addresses.clone(),
            facts: self.config.facts.clone(),
            met: self.met,
        }));
        self.say_guest_ends(out);
        for (placement, death) in &self.ends {
            out.push(Effect::ToHead(NodeToHead::Ended { lease: placement.lease, death: death.clone() }));
        }
        // Only how a slot died is lost with a link; that a lease is over the next list shows.
        self.ends.retain(|(_, death)| death.is_some());
        self.say_leaving(out);
    }

    /// Who is at the other end. An earlier start than the one obeyed last is no head any more (ND-10).
    fn on_welcome(&mut self, now: Tick, met: Met, timing: Timing, out: &mut Vec<Effect>) {
        let timing = timing.bounded();
        let HeadLink::Up { since, next_beat, obeyed } = &mut self.head else { return };
        let since = *since;
        if self.met.is_some_and(|last| last.cluster == met.cluster && last.epoch > met.epoch) {
            return self.drop_head(out);
        }
        let known = std::mem::replace(obeyed, true);
        *next_beat = now + timing.heartbeat;
        if !known {
            // It tells the head that this node obeys it.
            out.push(Effect::ToHead(NodeToHead::Heartbeat { beat: now.0 }));
        }
        if self.met != Some(met) {
            self.freeze_exclusive_deadlines();
        }
        self.met = Some(met);
        if self.timing != timing {
            // ND-12.
            self.timing = timing;
            self.alarm.set_heartbeat(timing.heartbeat);
            self.deadlines_changed = true;
        }
        // It answers what opened the link.
        self.fresh = self.fresh.max(Some(since));
        self.on_sign(self.opened);
    }

    pub(super) fn on_head_down(&mut self) {
        self.pending.clear();
        if matches!(self.head, HeadLink::Up { .. }) {
            self.head = if self.fresh.is_some() { HeadLink::Down } else { HeadLink::Lost };
        }
    }

    fn drop_head(&mut self, out: &mut Vec<Effect>) {
        self.on_head_down();
        out.push(Effect::DropHead);
    }

    pub(super) fn head_on_time(&mut self, now: Tick, out: &mut Vec<Effect>) {
        if self.fresh.is_some_and(|fresh| fresh + self.head_lost() <= now) {
            self.fresh = None;
            self.on_head_lost(now, out);
        }
        if self.silent_at().is_some_and(|at| at <= now) {
            return self.drop_head(out);
        }
        if let HeadLink::Up { next_beat, obeyed: true, .. } = &mut self.head
            && *next_beat <= now
        {
            *next_beat = now + self.timing.heartbeat;
            out.push(Effect::ToHead(NodeToHead::Heartbeat { beat: now.0 }));
        }
    }

    /// When something is to be done about the head.
    pub(super) fn head_next(&self) -> Option<Tick> {
        let beat = match self.head {
            HeadLink::Up { next_beat, obeyed: true, .. } => Some(next_beat),
            HeadLink::Up { obeyed: false, .. } | HeadLink::Down | HeadLink::Lost => None,
        };
        let lost = self.fresh.map(|fresh| fresh + self.head_lost());
        beat.into_iter().chain(lost).chain(self.silent_at()).min()
    }

    /// When the link that is up counts as dead.
    fn silent_at(&self) -> Option<Tick> {
        let HeadLink::Up { since, .. } = self.head else { return None };
        Some(self.fresh.map_or(since, |fresh| fresh.max(since)) + self.timing.heartbeat * self.config.beats)
    }

    pub(super) fn head_lost(&self) -> Duration {
        let least = self.timing.heartbeat * (BEATS + 1);
        let usual = self.timing.ends_within();
        // One that has never been welcomed has nothing to keep. The head may have been stopped before it could say so.
        if self.met.is_none() { usual.min(UNWELCOMED.max(least)) } else { usual }
    }

    /// The head grants these leases to nobody before this time is over, and to others after it: they end.
    fn on_head_lost(&mut self, now: Tick, out: &mut Vec<Effect>) {
        // How work ended is told to whichever head comes: what it is not told of it takes for never begun (DT-7).
        self.ends.retain(|(placement, death)| death.is_some() && placement.holder.work().is_some());
        self.guest_ends.clear();
        if self.head == HeadLink::Down {
            self.head = HeadLink::Lost;
        }
        for id in self.slots.keys().copied().collect::<Vec<_>>() {
            match self.slots[&id].state {
                State::Leased(_) | State::Detaching { .. } | State::Warm { .. } => self.kill(id, out),
                State::Ending { .. } | State::Generic => {}
            }
        }
        if self.config.ends_without_head {
            self.has_lost_head |= self.phase == Phase::Open;
            self.on_close(now, out);
        }
    }

    pub(super) fn on_place(&mut self, now: Tick, wanted: Use, out: &mut Vec<Effect>) {
        let known =
            self.slots.iter().find(|(_, slot)| slot.state.lease().is_some_and(|it| it.lease == wanted.lease));
        match known {
            Some((&slot, entry)) => {
                if matches!(entry.state, State::Leased(_)) {
                    out.push(Effect::ToHead(NodeToHead::Placed { lease: wanted.lease, slot }));
                }
            }
            None if self.ends.iter().any(|(placement, _)| placement.lease == wanted.lease) => {}
            None if self.phase != Phase::Open
                || !self.knows_program(wanted.shape.program)
                || !self.has_devices(wanted.devices)
                || !self.has_room(&wanted) =>
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

    /// Whether the lease fits beside all the others (ND-9). The head sees to it; but it may not know that a task has gone
    /// on that waited.
    fn has_room(&self, wanted: &Use) -> bool {
        let needs = wanted.shape.needs;
        let pending = self.pending.iter().filter(|pending| pending.lease != wanted.lease);
        let sum = pending.fold(self.leased().plus(&needs), |sum, pending| sum.plus(&pending.shape.needs));
        needs == Resources::default() || sum.fits_in(&self.config.total)
    }

    fn on_end(&mut self, now: Tick, lease: LeaseId, out: &mut Vec<Effect>) {
        self.quiet_since = now;
        if self.relays.remove(&lease).is_some() {
            // It was another node's, which is told as well.
            return;
        }
        if self.end_guest(lease, out) {
            return;
        }
        self.pending.retain(|pending| pending.lease != lease);
        let slot = self.slots.iter().find(|(_, slot)| slot.state.lease().is_some_and(|it| it.lease == lease));
        match slot.map(|(&id, slot)| (id, slot.state)) {
            Some((id, State::Leased(_))) if self.end_work(now, id, out) => {}
            // Its end is told when its process is gone: until then it exists.
            Some((id, State::Leased(it))) if it.exclusive.is_some() || self.has_guests(id) => {
                self.leave(now, id, out);
            }
            Some((id, State::Leased(_))) => self.detach(now, id, out),
            Some(_) => {}
            None => out.push(Effect::ToHead(NodeToHead::Ended { lease, death: None })),
        }
    }

    /// Tell the head that a lease is over, now or when it can be reached again (ND-3).
    pub(super) fn report(&mut self, lease: Use, slot: SlotId, death: Option<Death>, out: &mut Vec<Effect>) {
        let up = matches!(self.head, HeadLink::Up { .. });
        if up {
            out.push(Effect::ToHead(NodeToHead::Ended { lease: lease.lease, death: death.clone() }));
        }
        let lasts = self.head != HeadLink::Lost || lease.holder.work().is_some();
        if death.is_some() && lasts || self.head == HeadLink::Down {
            self.ends.push((placement(lease, slot), death));
        }
    }
}

fn placement(lease: Use, slot: SlotId) -> Placement {
    let Use { lease, client, shape, holder, epoch, devices, exclusive, .. } = lease;
    Placement { lease, client, slot, shape, blocked: false, holder, epoch, devices, exclusive }
}
