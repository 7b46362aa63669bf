//! Which client gets the next lease: the one that has least, by its dominant resource.
//!
//! * SH-1: among families the least share goes first, then who waited longest; within a family the deepest task, and
//!   within a client the shape it has least of.
//! * SH-2: a request that does not fit yet keeps the roomiest node that could hold it from those behind it in the queue,
//!   so that small requests cannot starve a large one.
//! * SH-3: a client whose own idle leases may be in the way of its request is told so.

use super::{Effect, Head};
use crate::time::Tick;
use paceline_proto::control::HeadToClient;
use paceline_proto::placement::Order;
use paceline_proto::{ClientId, Devices, NodeId, Resources, Shape, Sum};
use std::cmp::Reverse;
use std::collections::BTreeSet;

/// One place in the queue: share, depth, order of arrival, and what is asked for.
type Turn = (u64, Reverse<u32>, u64, ClientId, Shape);

impl Head {
    pub(super) fn share(&mut self, now: Tick, out: &mut Vec<Effect>) {
        if self.hungry.is_empty() || self.room.is_empty() {
            return;
        }
        let stuck = self.grant(out);
        self.tell_crowded(&stuck, out);
        self.recall_for(now, &stuck, out);
    }

    /// SH-3: one that waits while it holds leases of another shape hears of it once, for it may not use them.
    fn tell_crowded(&mut self, stuck: &[(ClientId, Shape)], out: &mut Vec<Effect>) {
        for &(id, shape) in stuck {
            let client = self.clients.get_mut(&id).expect("only clients that are here wait");
            let holds_others = client.leases.keys().any(|other| *other != shape);
            let Some(want) = client.wants.get_mut(&shape).filter(|want| holds_others && !want.told) else {
                continue;
            };
            want.told = true;
            self.tell_client(id, HeadToClient::Crowded { shape }, out);
        }
    }

    /// Grant what fits. Returns the requests that found no room, in the order of the queue.
    fn grant(&mut self, out: &mut Vec<Effect>) -> Vec<(ClientId, Shape)> {
        let mut stuck = Vec::new();
        let mut passed = BTreeSet::new();
        let mut reserved = BTreeSet::new();
        let mut queue: BTreeSet<Turn> = self.hungry.iter().filter_map(|&id| self.turn(id, &passed)).collect();
        while let Some((_, _, _, client, shape)) = queue.pop_first() {
            match self.room_for(client, shape, &reserved) {
                Some((node, devices)) => self.place(client, shape, node, devices, out),
                None => {
                    reserved.extend(self.keep_free(client, shape, &reserved));
                    passed.insert((client, shape));
                    stuck.push((client, shape));
                }
            }
            queue.extend(self.turn(client, &passed));
        }
        stuck
    }

    /// The client's place in the queue, and what it asks for next.
    fn turn(&self, id: ClientId, passed: &BTreeSet<(ClientId, Shape)>) -> Option<Turn> {
        let client = &self.clients[&id];
        let share = self.family(id).used.dominant_share(&self.total);
        let has = |shape: Shape| self.fraction(&shape.needs) * client.count(shape) as u64;
        (client.unmet())
            .filter(|&(shape, _)| !passed.contains(&(id, shape)))
            .min_by_key(|&(shape, want)| (has(shape), want.order))
            .map(|(shape, want)| (share, Reverse(client.depth), want.order, id, shape))
    }

    /// The node for it and the devices there, not reserved for another.
    fn room_for(
        &self,
        client: ClientId,
        shape: Shape,
        reserved: &BTreeSet<NodeId>,
    ) -> Option<(NodeId, Devices)> {
        let needs = shape.needs;
        // Resources are ordered by their first difference, so whatever has room for `needs` is not less than it.
        let roomy = self.room.range((needs, Reverse(NodeId(u64::MAX)))..);
        let fit = |&(_, Reverse(id)): &(Resources, Reverse<NodeId>)| {
            let free = !reserved.contains(&id);
            free.then(|| self.fits(id, client, shape)).flatten().map(|devices| (id, devices))
        };
        match self.order(client, shape) {
            Order::Spread => roomy.rev().find_map(fit),
            Order::Pack => roomy.into_iter().find_map(fit),
        }
    }

    /// The node to keep for a request that waits (SH-2).
    fn keep_free(&self, client: ClientId, shape: Shape, reserved: &BTreeSet<NodeId>) -> Option<NodeId> {
        if shape.needs == Resources::default() {
            return None;
        }
        (self.room.iter().rev())
            .map(|&(_, Reverse(id))| id)
            .find(|id| !reserved.contains(id) && self.could_hold(*id, client, shape))
    }

    /// The share of everything that this is.
    pub(super) fn fraction(&self, needs: &Resources) -> u64 {
        Sum::default().plus(needs).dominant_share(&self.total)
    }
}
