//! How many slots there should be, and when the next may be forked.
//!
//! * PL-1: a place whose slots die young three times in a row, before any of them has run a call, is filled again ever
//!   more slowly. A slot that has run one and dies, of that or by a hand from outside, is replaced at once: there the
//!   limits are those of the calls.
//! * PL-2: the slots for the CPUs are forked at once; spares when all others are ready and nothing has happened for a
//!   while.

use super::{Effect, Node, State, Zygote};
use crate::time::Tick;
use paceline_proto::{ProgramId, Resources, SlotId};
use std::time::Duration;

/// Dying sooner than this after the start is dying young.
pub(super) const YOUNG: Duration = Duration::from_secs(10);
/// So many in a row are taken for bad luck.
pub(super) const PATIENCE: u32 = 3;
const FIRST_DELAY: Duration = Duration::from_millis(250);
const LONGEST_DELAY: Duration = Duration::from_secs(30);

/// How often in a row something died young, and until when it is left alone for it.
#[derive(Default)]
pub(super) struct Backoff {
    deaths: u32,
    until: Tick,
}

impl Backoff {
    pub(super) fn on_death(&mut self, now: Tick, lived: Duration) {
        self.deaths = if lived < YOUNG { self.deaths + 1 } else { 0 };
        self.until = match self.deaths.checked_sub(PATIENCE) {
            None => now,
            Some(more) => now + LONGEST_DELAY.min(FIRST_DELAY * 2u32.saturating_pow(more.min(16))),
        };
    }

    pub(super) fn until(&self) -> Tick {
        self.until
    }

    pub(super) fn deaths(&self) -> u32 {
        self.deaths
    }
}

impl Node {
    pub(super) fn start_zygote(&mut self, now: Tick, out: &mut Vec<Effect>) {
        if matches!(self.zygote, Zygote::Absent { not_before } if not_before <= now) {
            self.zygote = Zygote::Starting { since: now };
            out.push(Effect::StartZygote);
        }
    }

    /// Fork what is missing (ND-5).
    pub(super) fn fill(&mut self, now: Tick, out: &mut Vec<Effect>) {
        let generic = self.generic();
        let target = self.places() + if self.is_quiet(now) { self.spares() } else { 0 };
        for _ in generic..target {
            if self.fork(now, out).is_none() {
                break;
            }
        }
    }

    /// Ask for a new slot in the first place that is free, unless there is no zygote or the place backs off.
    pub(super) fn fork(&mut self, now: Tick, out: &mut Vec<Effect>) -> Option<SlotId> {
        let place = self.free_place();
        if !matches!(self.zygote, Zygote::Up { .. }) || self.backs_off(place).is_some_and(|until| until > now)
        {
            return None;
        }
        Some(self.fork_at(now, ProgramId::OWN, place, out))
    }

    /// When something could be forked that now must wait.
    pub(super) fn next_fork(&self, now: Tick) -> Option<Tick> {
        if self.phase != super::Phase::Open {
            return None;
        }
        match self.zygote {
            Zygote::Absent { not_before } => return Some(not_before),
            Zygote::Starting { .. } => return None,
            Zygote::Up { .. } => {}
        }
        let mut waiting = self.pending.iter().filter(|lease| self.devices_are_free(lease));
        let own = waiting.any(|lease| lease.shape.program.is_own());
        let short = own || self.generic() < self.places();
        let place = self.backs_off(self.free_place()).filter(|until| *until > now);
        if short {
            return place;
        }
        let spares_missing = self.generic() < self.places() + self.spares();
        let quiet_at = (spares_missing && self.all_ready()).then_some(self.quiet_since + self.config.quiet);
        quiet_at.map(|at| place.map_or(at, |until| until.max(at)))
    }

    /// CPUs that are neither leased nor warm.
    pub(super) fn places(&self) -> usize {
        let free = self.config.total.minus(&self.taken()).unwrap_or_default();
        if free == Resources::default() { 0 } else { Resources::cpus(1).times_in(&free) as usize }
    }

    pub(super) fn generic(&self) -> usize {
        self.slots.values().filter(|slot| slot.state == State::Generic).count()
    }

    fn is_quiet(&self, now: Tick) -> bool {
        self.quiet_since + self.config.quiet <= now && self.all_ready()
    }

    fn all_ready(&self) -> bool {
        self.slots.values().all(|slot| slot.ready || matches!(slot.state, State::Ending { .. }))
    }

    fn free_place(&self) -> usize {
        // Of the first so many places one is free: there are fewer slots.
        let mut used = vec![false; self.slots.len() + 1];
        for slot in self.slots.values().filter(|slot| !matches!(slot.state, State::Ending { .. })) {
            if let Some(place) = used.get_mut(slot.place) {
                *place = true;
            }
        }
        used.iter().position(|used| !used).expect("there are more places than slots")
    }

    fn backs_off(&self, place: usize) -> Option<Tick> {
        self.places.get(&place).map(Backoff::until)
    }
}
