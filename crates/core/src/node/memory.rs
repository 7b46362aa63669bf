//! What to end before the kernel ends something else for want of memory.
//!
//! * MM-1: only a slot at work is ended, the largest; one at a time, and the next when it is gone.
//! * MM-2: nothing is ended while slots have less than a quarter of the memory: then others are the reason, and ending
//!   slots would help nobody.

use super::{Effect, Node, State};
use paceline_proto::SlotId;

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
}
