//! The life of a slot: forked, ready, leaving, dead.

use super::places::YOUNG;
use super::{Effect, Node, State, Use, Zygote};
use crate::time::Tick;
use paceline_proto::control::{NodeToHead, NodeToSlot, SlotToNode, Stream};
use paceline_proto::{Death, ProgramId, Seq, SlotId};

impl Node {
    pub(super) fn on_forked(&mut self, now: Tick, id: SlotId, pid: u32, out: &mut Vec<Effect>) {
        let Some(slot) = self.slots.get_mut(&id) else { return };
        self.quiet_since = now;
        let news = slot.pid.replace(pid).is_none();
        if news && matches!(slot.state, State::Ending { kill_at: None, .. }) {
            out.push(Effect::Kill { slot: id });
        }
    }

    pub(super) fn on_slot(&mut self, now: Tick, id: SlotId, message: SlotToNode, out: &mut Vec<Effect>) {
        match message {
            SlotToNode::Ready { slot, pid } => {
                // It says so once; later it runs code of the user's, which may lie.
                if slot == id && self.slots.get(&id).is_some_and(|slot| !slot.ready) {
                    self.on_forked(now, id, pid, out);
                    self.slots.entry(id).and_modify(|slot| slot.ready = true);
                }
            }
            SlotToNode::Detached { lease } => {
                self.quiet_since = now;
                if let Some(program) = self.slots.get(&id).map(|slot| slot.program) {
                    self.on_program_slot_works(program);
                }
                self.on_detached(now, id, lease, out);
            }
            SlotToNode::Blocked { lease, blocked } => self.on_blocked(now, id, lease, blocked, out),
            SlotToNode::Waits { lease } => self.on_waits(now, id, lease, out),
            // The shell sees to the descriptors that came along.
            SlotToNode::Nest | SlotToNode::Connect | SlotToNode::Objects => {}
        }
    }

    pub(super) fn on_output(&mut self, id: SlotId, stream: Stream, text: Vec<u8>, out: &mut Vec<Effect>) {
        if self.on_work_output(id, stream, &text, out) {
            return;
        }
        match self.slots.get(&id).and_then(|slot| slot.client) {
            Some(client) if matches!(self.head, super::HeadLink::Up { .. }) => {
                out.push(Effect::ToHead(NodeToHead::Output { client, slot: id, stream, text }));
            }
            _ => out.push(Effect::Stray { slot: id, text }),
        }
    }

    pub(super) fn on_exited(&mut self, now: Tick, id: SlotId, death: Death, out: &mut Vec<Effect>) {
        let Some(slot) = self.slots.get(&id) else { return };
        self.quiet_since = now;
        let (program, place, forked_at) = (slot.program, slot.place, slot.forked_at);
        let lived = now.since(forked_at);
        // A slot that got as far as running a call shows that its place is fit: whatever ended it then came from that
        // call or from outside, and both are charged to the call.
        let served = death.running.is_some() || death.finished > Seq(0) || slot.served;
        // A death that was asked for is nobody's.
        let by_itself = !matches!(slot.state, State::Ending { .. });
        if !program.is_own() {
            self.forget(id, Some(death.clone()), out);
            if by_itself && !served && lived < YOUNG {
                self.on_program_slot_died(program, forked_at, &death, out);
            }
            return;
        }
        if lived >= YOUNG || served {
            self.places.remove(&place);
        } else if by_itself {
            self.places.entry(place).or_default().on_death(now, lived);
        }
        self.forget(id, Some(death), out);
    }

    /// The slot is gone. Its lease, if it has one, is over; `death` is told only where the head did not ask for the end.
    pub(super) fn forget(&mut self, id: SlotId, death: Option<Death>, out: &mut Vec<Effect>) {
        let slot = self.slots.remove(&id).expect("only known slots are forgotten");
        self.short_of_memory.take_if(|ended| *ended == id);
        self.end_guests(id, &slot.guest_calls, death.as_ref(), out);
        match slot.state {
            State::Leased(lease) => self.report(lease, id, death, out),
            State::Detaching { lease, .. } | State::Ending { lease: Some(lease), .. } => {
                // The head is told of every end of work until it says that it heard: what no node knows was never begun (DT-7).
                let death = lease.holder.work().map(|_| Death::of_lost_node());
                self.report(lease, id, death, out);
            }
            State::Generic | State::Warm { .. } | State::Ending { lease: None, .. } => {}
        }
        out.push(Effect::ForgetSlot { slot: id });
    }

    pub(super) fn slots_on_time(&mut self, now: Tick, out: &mut Vec<Effect>) {
        for id in self.slots.keys().copied().collect::<Vec<_>>() {
            match self.slots[&id].state {
                State::Detaching { until, .. } if until <= now => self.kill(id, out),
                State::Warm { until, .. } if until <= now => self.leave(now, id, out),
                State::Ending { kill_at: Some(at), .. } if at <= now => self.kill(id, out),
                _ => {}
            }
        }
    }

    /// Ask the slot to go, and see to it.
    pub(super) fn leave(&mut self, now: Tick, id: SlotId, out: &mut Vec<Effect>) {
        let kill_at = Some(now + self.config.grace);
        let is_work = self.work_in(id).is_some();
        let slot = self.slots.get_mut(&id).expect("only known slots leave");
        if matches!(slot.state, State::Ending { .. }) {
            return;
        }
        slot.state = State::Ending { lease: slot.state.lease(), kill_at };
        out.push(match is_work {
            true => Effect::Terminate { slot: id },
            false => Effect::ToSlot { slot: id, message: NodeToSlot::Exit, connection: None },
        });
    }

    /// Kill the slot's group now, or as soon as it has one.
    pub(super) fn kill(&mut self, id: SlotId, out: &mut Vec<Effect>) {
        let slot = self.slots.get_mut(&id).expect("only known slots are killed");
        slot.state = State::Ending { lease: slot.state.lease(), kill_at: None };
        if slot.pid.is_some() {
            out.push(Effect::Kill { slot: id });
        }
    }

    pub(super) fn on_zygote_up(&mut self, now: Tick) {
        if let Zygote::Starting { since } = self.zygote {
            self.zygote = Zygote::Up { since };
            self.quiet_since = now;
        }
    }

    /// Slots end with their zygote; what it had not forked yet never will be.
    pub(super) fn on_zygote_died(&mut self, now: Tick, out: &mut Vec<Effect>) {
        let (Zygote::Starting { since } | Zygote::Up { since }) = self.zygote else { return };
        self.forget_stopped_zygote(ProgramId::OWN);
        self.zygote_backoff.on_death(now, now.since(since));
        self.zygote = Zygote::Absent { not_before: self.zygote_backoff.until() };
        self.end_slots_of(ProgramId::OWN, out);
    }

    /// The program's zygote is gone (ND-7).
    pub(super) fn end_slots_of(&mut self, program: ProgramId, out: &mut Vec<Effect>) {
        let ours = self.slots.iter().filter(|(_, slot)| slot.program == program);
        for id in ours.map(|(&id, _)| id).collect::<Vec<_>>() {
            let slot = self.slots.get_mut(&id).expect("listed just now");
            if slot.pid.is_none() {
                let death = never_born();
                self.forget(id, Some(death), out);
                continue;
            }
            out.push(Effect::Kill { slot: id });
            match slot.state {
                // They stay what they are, so that their leases end with what their page says.
                State::Leased(_) | State::Detaching { .. } => {}
                State::Generic | State::Warm { .. } => {
                    slot.state = State::Ending { lease: None, kill_at: None }
                }
                State::Ending { lease, .. } => slot.state = State::Ending { lease, kill_at: None },
            }
        }
    }
}

impl State {
    /// The lease that is not over yet.
    pub(super) fn lease(&self) -> Option<Use> {
        match *self {
            State::Leased(lease)
            | State::Detaching { lease, .. }
            | State::Ending { lease: Some(lease), .. } => Some(lease),
            State::Generic | State::Warm { .. } | State::Ending { lease: None, .. } => None,
        }
    }

    pub(super) fn lease_mut(&mut self) -> Option<&mut Use> {
        match self {
            State::Leased(lease)
            | State::Detaching { lease, .. }
            | State::Ending { lease: Some(lease), .. } => Some(lease),
            State::Generic | State::Warm { .. } | State::Ending { lease: None, .. } => None,
        }
    }
}

/// What is said of a slot whose zygote died before it was forked.
fn never_born() -> Death {
    Death {
        cause: paceline_proto::DeathCause::Signal(9),
        out_of_memory: paceline_proto::OutOfMemory::No,
        running: None,
        finished: paceline_proto::Seq(0),
    }
}
