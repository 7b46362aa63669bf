//! What nodes say, or no longer say, of work that was placed on them (DT-3, DT-7).

use super::super::{Effect, Head};
use super::{Entry, Gone, Stage};
use crate::time::Tick;
use paceline_proto::control::Placement;
use paceline_proto::work::End;
use paceline_proto::{LeaseId, NodeId, SlotId, WorkId};
use std::collections::BTreeMap;

impl Head {
    /// A node counts as lost that has this lease (DT-3).
    pub(in crate::head) fn on_work_lost(
        &mut self,
        now: Tick,
        lease: LeaseId,
        gone: Gone,
        out: &mut Vec<Effect>,
    ) {
        let Some(id) = self.leases[&lease].client.work() else { return };
        let Some(entry) = self.works.live.get_mut(&id) else { return };
        match (&entry.stage, gone) {
            (Stage::Reserved { lease: own }, _) if *own == lease => self.start_over(now, id, out),
            (Stage::Sent { lease: own } | Stage::Running { lease: own, .. }, Gone::Dead) if *own == lease => {
                self.on_failure(now, id, End::NodeLost, out);
            }
            (Stage::Sent { lease: own } | Stage::Running { lease: own, .. }, Gone::Silent { heard })
                if *own == lease =>
            {
                let until = self.out_of_reach_at(heard);
                self.works.live.get_mut(&id).expect("seen above").stage = Stage::Away { until };
                self.no_later_than(until);
            }
            _ => {}
        }
    }

    /// A node names a lease whose holder is a piece of work. None: it is none; otherwise whether it goes on.
    pub(in crate::head) fn on_work_found(&mut self, node: NodeId, placement: &Placement) -> Option<bool> {
        let id = placement.holder.work()?;
        let entry = self.works.live.get_mut(&id)?;
        let placed = entry.standing.placed.as_ref();
        let same = placed.is_some_and(|placed| (placed.node, placed.lease) == (node, placement.lease));
        if !same || !entry.is_away() {
            return Some(false);
        }
        entry.stage = Stage::Running { lease: placement.lease, slot: placement.slot };
        Some(!entry.standing.stopping)
    }

    /// A node has said what it has: whatever was there and is not is over (DT-3).
    pub(in crate::head) fn on_works_reported(
        &mut self,
        now: Tick,
        node: NodeId,
        reported: &BTreeMap<LeaseId, SlotId>,
        out: &mut Vec<Effect>,
    ) {
        let incarnation = self.nodes[&node].incarnation;
        let missing = |entry: &Entry| {
            let placed = entry.standing.placed.as_ref();
            // An earlier start of the node says nothing of what a later one has.
            let placed = placed.filter(|at| at.node == node && at.incarnation <= incarnation);
            entry.is_away() && placed.is_some_and(|at| !reported.contains_key(&at.lease))
        };
        // A start of a node tells of everything that it began until that was heard (ND-3): what it does not know it was never
        // told of. Nobody is to blame.
        let began = |entry: &Entry| {
            entry.standing.placed.as_ref().is_some_and(|placed| placed.incarnation != incarnation)
        };
        let missing = self.works.live.iter().filter(|(_, entry)| missing(entry));
        let missing: Vec<(WorkId, bool)> = missing.map(|(&id, entry)| (id, began(entry))).collect();
        for (id, began) in missing {
            match began || self.works.live[&id].standing.stopping || self.closing.is_some() {
                true => self.on_failure(now, id, End::NodeLost, out),
                false => self.start_over(now, id, out),
            }
        }
    }
}
