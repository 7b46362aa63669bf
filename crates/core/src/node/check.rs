//! The invariants, spelled out.

use super::devices::Held;
use super::places::PATIENCE;
use super::{Blocked, HeadLink, Node, Phase, State, Zygote};
use paceline_proto::Resources;
use std::collections::BTreeSet;

macro_rules! ensure {
    ($condition:expr, $($message:tt)+) => {
        if !$condition {
            return Err(format!($($message)+));
        }
    };
}

impl Node {
    /// The first broken invariant, if any.
    pub fn check(&self) -> Result<(), String> {
        self.check_leases()?;
        self.check_slots()?;
        self.check_devices()?;
        self.check_works()?;
        self.check_exclusive()?;
        self.check_guests()?;
        let ended = self.short_of_memory.filter(|slot| !self.slots.contains_key(slot));
        ensure!(ended.is_none(), "MM-1: {ended:?} is gone and still waited for");
        self.check_numbers()
    }

    fn check_leases(&self) -> Result<(), String> {
        let placed = self.slots.values().filter_map(|slot| slot.state.lease()).map(|lease| lease.lease);
        let pending = self.pending.iter().map(|lease| lease.lease);
        let over = self.ends.iter().map(|(placement, _)| placement.lease);
        let mut seen = BTreeSet::new();
        for lease in placed.chain(pending).chain(over) {
            ensure!(seen.insert(lease), "ND-1: {lease:?} is there twice");
        }
        let reachable = matches!(self.head, HeadLink::Up { .. });
        let kept = self.ends.iter().any(|(_, death)| death.is_none());
        ensure!(!reachable || !kept, "ND-3: an end is kept from the head");
        ensure!(reachable || self.pending.is_empty(), "a lease waits that the head has given up");
        Ok(())
    }

    fn check_slots(&self) -> Result<(), String> {
        for (id, slot) in &self.slots {
            if let Some(lease) = slot.state.lease() {
                ensure!(slot.client == Some(lease.client), "ND-2: {id:?} of {:?} has {lease:?}", slot.client);
            }
            if let Some(lease) = slot.state.lease() {
                ensure!(slot.program == lease.shape.program, "ND-8: {id:?} is of {:?}", slot.program);
                ensure!(slot.held == Held::by(&lease), "ND-11: {id:?} has {:?}, not {lease:?}", slot.held);
            }
            let generic = slot.state == State::Generic;
            ensure!(!generic || slot.program.is_own(), "PR-4: {id:?} is kept ready");
            match slot.state {
                State::Generic => {
                    ensure!(slot.client.is_none(), "ND-2: {id:?} is bound and generic");
                    ensure!(
                        slot.held == Held::default(),
                        "ND-11: {id:?} is nobody's and has {:?}",
                        slot.held
                    );
                }
                State::Warm { .. } => ensure!(slot.client.is_some(), "ND-2: {id:?} is warm and nobody's"),
                State::Leased(_) | State::Detaching { .. } | State::Ending { .. } => {}
            }
            let has_zygote = match slot.program.is_own() {
                true => matches!(self.zygote, Zygote::Up { .. }),
                false => self.program_is_up(slot.program),
            };
            let unborn = slot.pid.is_none() && !has_zygote;
            ensure!(!unborn, "{id:?} was never forked and has no zygote");
        }
        Ok(())
    }

    fn check_numbers(&self) -> Result<(), String> {
        ensure!(self.phase != Phase::Closed || self.slots.is_empty(), "closed with slots");
        if self.phase != Phase::Open {
            return Ok(());
        }
        let warm = self
            .slots
            .values()
            .any(|slot| matches!(slot.state, State::Warm { needs, .. } if needs != Resources::default()));
        ensure!(!warm || self.kept().fits_in(&self.most()), "ND-6: warm slots are in the way");
        let blocked = self.slots.values().filter(|slot| slot.blocked == Some(Blocked::InTurn)).count();
        ensure!(blocked <= self.config.max_blocked, "ND-7: {blocked} tasks wait for others");
        let idle_zygote = matches!(self.zygote, Zygote::Up { .. }) && self.places_rested();
        ensure!(!idle_zygote || self.generic() >= self.places(), "ND-5: {} generic slots", self.generic());
        let mut waiting = self.pending.iter().filter(|lease| self.devices_are_free(lease));
        let waits_for_own = waiting.any(|lease| lease.shape.program.is_own());
        ensure!(!idle_zygote || !waits_for_own, "a lease waits for nothing");
        let waiting = self.pending.iter().filter(|lease| self.devices_are_free(lease));
        let mut others = waiting.map(|lease| lease.shape.program).filter(|it| !it.is_own());
        ensure!(!others.any(|program| self.program_is_up(program)), "a lease waits for a program that is up");
        let most = Resources::cpus(1).times_in(&self.config.total) as usize + self.config.spares as usize;
        ensure!(self.generic() <= most, "{} generic slots", self.generic());
        Ok(())
    }

    fn places_rested(&self) -> bool {
        self.places.values().all(|backoff| backoff.deaths() < PATIENCE)
    }
}
