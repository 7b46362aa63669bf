//! Programs beside the clients' own: each has a zygote of its own, started when a lease needs it.
//!
//! * PR-1: leases wait for a program's zygote for a bounded time; then the head hears why there is none.
//! * PR-2: slots of a program that die one after the other without having done anything are its fault, and end in the
//!   same way: nobody is kept waiting by a program that cannot work.
//! * PR-3: the head hears that a program failed before it hears that the leases ended, or it would place them again.
//! * PR-4: no slot of another program is kept ready: only leases and what is warm after them count.

use super::devices::Held;
use super::places::PATIENCE;
use super::{Effect, HeadLink, Node, Phase, Slot, State};
use crate::time::Tick;
use paceline_proto::control::NodeToHead;
use paceline_proto::{Death, ProgramId, SlotId, Start, StartError};
use std::time::Duration;

/// Places are for the clients' own program.
const NO_PLACE: usize = usize::MAX;

pub(super) struct Program {
    start: Start,
    state: ProgramState,
    /// Since when there is neither a slot of it nor a lease that waits for one.
    idle_since: Tick,
    /// How often in a row nothing came of a slot.
    failures: u32,
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum ProgramState {
    Absent,
    Starting { until: Tick },
    Up { since: Tick },
}

impl Node {
    pub(super) fn on_program(&mut self, now: Tick, program: ProgramId, start: Start) {
        if !program.is_own() {
            let fresh = || Program { start, state: ProgramState::Absent, idle_since: now, failures: 0 };
            self.programs.entry(program).or_insert_with(fresh);
        }
    }

    pub(super) fn knows_program(&self, program: ProgramId) -> bool {
        program.is_own() || self.programs.contains_key(&program)
    }

    pub(super) fn program_is_up(&self, program: ProgramId) -> bool {
        self.programs.get(&program).is_some_and(|entry| matches!(entry.state, ProgramState::Up { .. }))
    }

    pub(super) fn on_program_up(&mut self, now: Tick, program: ProgramId) {
        if let Some(entry) = self.programs.get_mut(&program)
            && matches!(entry.state, ProgramState::Starting { .. })
        {
            entry.state = ProgramState::Up { since: now };
            self.quiet_since = now;
        }
    }

    pub(super) fn on_program_down(
        &mut self,
        now: Tick,
        program: ProgramId,
        why: StartError,
        out: &mut Vec<Effect>,
    ) {
        self.forget_stopped_zygote(program);
        let Some(entry) = self.programs.get_mut(&program) else { return };
        let before = std::mem::replace(&mut entry.state, ProgramState::Absent);
        match before {
            ProgramState::Absent => {}
            ProgramState::Starting { .. } => self.fail_program(program, why, out),
            ProgramState::Up { .. } => {
                self.quiet_since = now;
                self.end_slots_of(program, out);
                self.note_failure(program, why, out);
            }
        }
    }

    /// Start the zygotes that leases wait for.
    pub(super) fn start_programs(&mut self, now: Tick, out: &mut Vec<Effect>) {
        let until = now + self.config.start_limit;
        for (&program, entry) in &mut self.programs {
            let wanted = self.pending.iter().any(|lease| lease.shape.program == program);
            if wanted && entry.state == ProgramState::Absent {
                entry.state = ProgramState::Starting { until };
                out.push(Effect::StartProgram { program, start: entry.start.clone() });
            }
        }
    }

    /// A slot of another program, if it can be forked now.
    pub(super) fn fork_of(&mut self, now: Tick, program: ProgramId, out: &mut Vec<Effect>) -> Option<SlotId> {
        self.program_is_up(program).then(|| self.fork_at(now, program, NO_PLACE, out))
    }

    pub(super) fn fork_at(
        &mut self,
        now: Tick,
        program: ProgramId,
        place: usize,
        out: &mut Vec<Effect>,
    ) -> SlotId {
        self.forked += 1;
        let id = SlotId(self.forked);
        let state = State::Generic;
        let slot = Slot {
            program,
            place,
            forked_at: now,
            pid: None,
            ready: false,
            served: false,
            client: None,
            held: Held::default(),
            blocked: None,
            exceeded: false,
            stopped: None,
            way: None,
            guest_calls: Vec::new(),
            state,
        };
        self.slots.insert(id, slot);
        out.push(Effect::Fork { slot: id, program });
        id
    }

    /// A slot of another program is gone that was not asked to go, and whose last call was not to blame.
    pub(super) fn on_program_slot_died(
        &mut self,
        program: ProgramId,
        forked_at: Tick,
        death: &Death,
        out: &mut Vec<Effect>,
    ) {
        let Some(entry) = self.programs.get(&program) else { return };
        if !matches!(entry.state, ProgramState::Up { since } if since <= forked_at) {
            // It died with its zygote, whose death has been noted.
            return;
        }
        if death.finished.0 > 0 {
            self.programs.entry(program).and_modify(|entry| entry.failures = 0);
            return;
        }
        let why = StartError::SlotsDie { cause: death.cause, words: String::new() };
        self.note_failure(program, why, out);
    }

    /// A slot of this program can take work, so there is nothing wrong with it.
    pub(super) fn on_program_slot_works(&mut self, program: ProgramId) {
        self.programs.entry(program).and_modify(|entry| entry.failures = 0);
    }

    fn note_failure(&mut self, program: ProgramId, why: StartError, out: &mut Vec<Effect>) {
        let Some(entry) = self.programs.get_mut(&program) else { return };
        entry.failures += 1;
        if entry.failures >= PATIENCE {
            self.fail_program(program, why, out);
        }
    }

    /// Tell who waits for this program that nothing comes of it (PR-1, PR-3).
    fn fail_program(&mut self, program: ProgramId, why: StartError, out: &mut Vec<Effect>) {
        self.programs.entry(program).and_modify(|entry| entry.failures = 0);
        if !matches!(self.head, HeadLink::Up { .. }) {
            return;
        }
        out.push(Effect::ToHead(NodeToHead::ProgramFailed { program, why }));
        let waiting = self.pending.iter().filter(|lease| lease.shape.program == program);
        let ended = waiting.map(|lease| NodeToHead::Ended { lease: lease.lease, death: None });
        out.extend(ended.map(Effect::ToHead));
        self.pending.retain(|lease| lease.shape.program != program);
    }

    pub(super) fn programs_on_time(&mut self, now: Tick, out: &mut Vec<Effect>) {
        for program in self.programs.keys().copied().collect::<Vec<_>>() {
            let in_use = self.in_use(program);
            let entry = self.programs.get_mut(&program).expect("listed just now");
            if in_use {
                entry.idle_since = now;
            }
            match entry.state {
                ProgramState::Starting { until } if until <= now => {
                    entry.state = ProgramState::Absent;
                    let after = self.config.start_limit;
                    self.fail_program(program, StartError::Silent { after, words: String::new() }, out);
                    out.push(Effect::EndProgram { program });
                }
                _ if entry.idle_since + self.config.program_idle <= now => {
                    if entry.state != ProgramState::Absent {
                        out.push(Effect::EndProgram { program });
                    }
                    self.programs.remove(&program);
                }
                ProgramState::Starting { .. } | ProgramState::Up { .. } | ProgramState::Absent => {}
            }
        }
    }

    pub(super) fn programs_on_gap(&mut self, gap: Duration) {
        for entry in self.programs.values_mut() {
            entry.idle_since = entry.idle_since + gap;
            if let ProgramState::Starting { until } = &mut entry.state {
                *until = *until + gap;
            }
        }
    }

    pub(super) fn programs_next(&self) -> Option<Tick> {
        if self.phase != Phase::Open {
            return None;
        }
        let next = self.programs.iter().map(|(&program, entry)| match entry.state {
            ProgramState::Starting { until } => Some(until),
            // What ends its use is a step of its own.
            _ if self.in_use(program) => None,
            _ => Some(entry.idle_since + self.config.program_idle),
        });
        next.flatten().min()
    }

    fn in_use(&self, program: ProgramId) -> bool {
        self.slots.values().any(|slot| slot.program == program)
            || self.pending.iter().any(|lease| lease.shape.program == program)
    }
}
