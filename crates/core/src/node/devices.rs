//! The GPUs of this machine, as far as its processes may hold them (ND-11).
//!
//! Which ones a lease gets is the head's choice. The node sees to it that they are free: a process that had them may
//! still have memory and kernels on them, however long ago its last call was over.

use super::{Effect, Node, State, Use};
use crate::Tick;
use paceline_proto::resources::UNIT;
use paceline_proto::{Devices, Resources};
use std::cmp::Reverse;

/// What a slot may hold of GPUs, until its process is gone.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(super) struct Held {
    pub devices: Devices,
    /// So much of each, in 1/10,000.
    share: u64,
}

impl Held {
    pub(super) fn by(wanted: &Use) -> Held {
        Held { devices: wanted.devices, share: share(&wanted.shape.needs) }
    }
}

/// Less than one is a part of one, and more is that many whole ones.
fn share(needs: &Resources) -> u64 {
    needs.gpu_units().min(UNIT)
}

impl Node {
    /// Whether the node has these at all.
    pub(super) fn has_devices(&self, devices: Devices) -> bool {
        let count = (self.config.total.gpu_units() / UNIT) as usize;
        devices.numbers().all(|number| number < count)
    }

    /// Whether no process can hold so much of what is wanted that there is not enough left.
    pub(super) fn devices_are_free(&self, wanted: &Use) -> bool {
        let share = share(&wanted.shape.needs);
        wanted.devices.numbers().all(|number| self.held(number) + share <= UNIT)
    }

    /// How much of this one processes may hold.
    fn held(&self, number: usize) -> u64 {
        let here = self.slots.values().filter(|slot| slot.held.devices.contains(number));
        here.map(|slot| slot.held.share).sum()
    }

    /// Let warm processes go that have what is wanted: those that would cool first, and no more than must.
    pub(super) fn free_devices(&mut self, now: Tick, wanted: &Use, out: &mut Vec<Effect>) {
        for number in wanted.devices.numbers() {
            let mut kept = share(&wanted.shape.needs);
            let mut warm = Vec::new();
            for (&id, slot) in self.slots.iter().filter(|(_, slot)| slot.held.devices.contains(number)) {
                match slot.state {
                    // It goes anyway.
                    State::Ending { .. } => continue,
                    State::Warm { until, .. } => warm.push((Reverse(until), slot.held.share, id)),
                    State::Generic | State::Leased(_) | State::Detaching { .. } => {}
                }
                kept += slot.held.share;
            }
            warm.sort_unstable();
            while kept > UNIT
                && let Some((_, share, id)) = warm.pop()
            {
                kept -= share;
                self.leave(now, id, out);
            }
        }
    }

    /// What user code knows them by.
    pub(super) fn ids_of(&self, devices: Devices) -> Devices {
        let id = |number: usize| self.config.gpu_ids.get(number).map_or(number, |id| usize::from(*id));
        devices.numbers().map(id).filter(|id| *id < Devices::MOST).collect()
    }

    pub(super) fn check_devices(&self) -> Result<(), String> {
        let over = (0..Devices::MOST).find(|number| self.held(*number) > UNIT);
        match over {
            Some(number) => Err(format!("ND-11: more of GPU {number} may be held than there is")),
            None => Ok(()),
        }
    }
}
