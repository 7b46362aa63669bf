//! What to end before the kernel ends something else for want of memory.
//!
//! * MM-1: only a slot at work is ended, the largest; one at a time, and the next when it is gone.
//! * MM-2: nothing is ended while slots have less than a quarter of the memory: then others are the reason, and ending
//!   slots would help nobody.
//! * MM-3: a slot that has more than its lease asked for is ended, whatever else is free, once.

use super::{Effect, Node, Slot, State};
use paceline_proto::SlotId;

/// What bounds the memory of a node's slots.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum MemoryBound {
    /// What the machine has, or the nearest of the control groups that the node is in.
    #[default]
    Machine,
    /// So many bytes for all slots together.
    Slots(u64),
    /// Nobody looks.
    Nothing,
}

/// From this share of the limit on, in percent, something has to go.
const TIGHT: u64 = 95;

impl Node {
    /// So many bytes are in use of those there are, and these slots have so many of them.
    pub(super) fn on_memory(
        &mut self,
        used: u64,
        limit: u64,
        slots: &[(SlotId, u64)],
        out: &mut Vec<Effect>,
    ) {
        let tight = u128::from(used) * 100 >= u128::from(limit) * u128::from(TIGHT);
        let together: u64 = slots.iter().map(|(_, bytes)| bytes).sum();
        if !tight || together < limit / 4 || self.short_of_memory.is_some() {
            return;
        }
        let at_work = |slot: SlotId| {
            self.slots
                .get(&slot)
                .is_some_and(|slot| slot.pid.is_some() && matches!(slot.state, State::Leased(_)))
        };
        // Of equal ones the youngest: it has the least to lose.
        let largest =
            slots.iter().filter(|(slot, _)| at_work(*slot)).max_by_key(|(slot, bytes)| (*bytes, *slot));
        if let Some(&(slot, _)) = largest {
            self.short_of_memory = Some(slot);
            out.push(Effect::EndForMemory { slot, limit });
        }
    }

    /// The slots at work whose tasks have said how much memory they need, and how much that is.
    pub fn limits(&self) -> impl Iterator<Item = (SlotId, u64)> {
        self.slots.iter().filter_map(|(&id, slot)| Some((id, slot.limit()?)))
    }

    /// These slots have so many bytes, with all they have started.
    pub(super) fn on_sizes(&mut self, sizes: &[(SlotId, u64)], out: &mut Vec<Effect>) {
        for &(id, used) in sizes {
            let Some(slot) = self.slots.get_mut(&id) else { continue };
            if let Some(limit) = slot.limit().filter(|limit| used > *limit) {
                slot.exceeded = true;
                out.push(Effect::Exceeded { slot: id, used, limit });
            }
        }
    }
}

impl Slot {
    /// How much it may have; none if nobody said, if it is not at work, or if it is to end for this already.
    fn limit(&self) -> Option<u64> {
        match self.state {
            State::Leased(lease) | State::Detaching { lease, .. } if self.pid.is_some() && !self.exceeded => {
                Some(lease.shape.needs.memory()).filter(|limit| *limit > 0)
            }
            _ => None,
        }
    }
}
