//! Which client gets the next lease: the one that has least, by its dominant resource.
//!
//! * SH-1: among families the higher priority goes first, then the least share by weight; within a family the deepest
//!   task, then the shape its client has least of, then who waited longest.
//! * SH-2: a request that does not fit yet keeps a node that could hold it, the roomiest, from those behind it in the
//!   queue, so that small requests cannot starve a large one. But not from those that a task waits for: it may be what
//!   the large one waits for.
//! * SH-3: a client whose own idle leases may be in the way of its request is told so.
//! * SH-4: a class that found no room is looked at again only where room has grown.

use super::lineup::Class;
use super::{Effect, Head};
use crate::time::Tick;
use paceline_proto::control::HeadToClient;
use paceline_proto::{ClientId, Devices, NodeId, Resources, Shape};
use std::collections::{BTreeMap, BTreeSet};

/// What is known of a class of requests that wait.
#[derive(Clone, Default)]
pub(super) struct Known {
    /// No node has room, but for those where it has grown since.
    tried: bool,
    /// The node that is kept for the first of them.
    keeps: Option<NodeId>,
    /// Nodes were searched for several leases to ask back; not again before.
    pub look_again: Tick,
    /// What a gang would take of which node.
    pub gang: BTreeMap<NodeId, Resources>,
}

impl Head {
    pub(super) fn share(&mut self, now: Tick, out: &mut Vec<Effect>) {
        self.rescale();
        self.let_go_on(now);
        let grown = std::mem::take(&mut self.grown);
        if !self.queue.is_empty() && !self.room.is_empty() {
            self.note_starving(now);
            self.grant(&grown, out);
            self.tell_crowded(out);
            self.recall_for(now, out);
        }
        // What is known of a class holds only while it is looked after.
        let queue = &self.queue;
        self.known.retain(|class, _| queue.has_class(class));
        self.untangle(now, out);
        self.tell_waits(now, out);
    }

    /// SH-3: one that waits while it holds leases of another shape hears of it once, for it may not use them.
    fn tell_crowded(&mut self, out: &mut Vec<Effect>) {
        for id in std::mem::take(&mut self.untold) {
            let Some(client) = self.clients.get_mut(&id) else { continue };
            let stuck: Vec<Shape> = client.unmet().filter(|(_, want)| !want.told).map(|it| it.0).collect();
            for shape in stuck {
                let client = self.clients.get_mut(&id).expect("seen above");
                if client.leases.keys().any(|other| *other != shape) {
                    client.wants.get_mut(&shape).expect("it is unmet").told = true;
                    self.tell_client(id, HeadToClient::Crowded { shape }, out);
                }
            }
        }
    }

    /// Grant what fits.
    fn grant(&mut self, grown: &BTreeSet<NodeId>, out: &mut Vec<Effect>) {
        let mut stuck = BTreeSet::new();
        let (mut kept, nothing) = (BTreeSet::new(), BTreeSet::new());
        while let Some((class, turn)) = self.queue.first(&stuck) {
            let (client, shape) = (turn.line.client, turn.line.shape);
            let out_of_reach = if class.nested { &nothing } else { &kept };
            let granted = match self.is_gang(client, shape) {
                true => self.grant_gang(class, client, shape, &mut kept, out),
                false => match self.find(class, client, shape, grown, out_of_reach) {
                    Some((node, devices)) => {
                        self.place(client, shape, node, devices, out);
                        true
                    }
                    None => false,
                },
            };
            if !granted {
                kept.extend(self.keep_free(class, client, shape, grown, &kept));
                stuck.insert(class);
            }
        }
    }

    /// A node for the first of its class (SH-4).
    fn find(
        &mut self,
        class: Class,
        client: ClientId,
        shape: Shape,
        grown: &BTreeSet<NodeId>,
        kept: &BTreeSet<NodeId>,
    ) -> Option<(NodeId, Devices)> {
        let tried = self.known.get(&class).is_some_and(|known| known.tried);
        let found = match tried {
            true => self.best_of(grown.difference(kept).copied(), client, shape),
            false => self.room_for(client, shape, kept),
        };
        if found.is_none() {
            // What is kept for another now may be free the next time.
            let kept_fits = kept.iter().any(|&id| self.fits(id, client, shape).is_some());
            self.known.entry(class).or_default().tried = !kept_fits;
        }
        found
    }

    /// The node to keep for a request that waits (SH-2).
    fn keep_free(
        &mut self,
        class: Class,
        client: ClientId,
        shape: Shape,
        grown: &BTreeSet<NodeId>,
        kept: &BTreeSet<NodeId>,
    ) -> Option<NodeId> {
        if shape.needs == Resources::default() || self.is_gang(client, shape) {
            return None;
        }
        let could =
            |id: &NodeId| self.takes_leases(*id) && !kept.contains(id) && self.could_hold(*id, client, shape);
        let before = self.known.get(&class).and_then(|known| known.keeps).filter(|id| could(id));
        let found = match before {
            // Only where room has grown there may be more of it.
            Some(before) => {
                let free = |id: &NodeId| self.nodes[id].free();
                let roomier = grown.iter().filter(|id| could(id)).max_by_key(|id| free(id));
                Some(roomier.copied().filter(|id| free(id) > free(&before)).unwrap_or(before))
            }
            None => self.room.roomiest().find(could),
        };
        self.known.entry(class).or_default().keeps = found;
        found
    }
}
