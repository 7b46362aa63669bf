//! The invariants, spelled out. Slow and plain on purpose: it recomputes every book from the leases alone.

use super::families::MAX_NESTING_DEPTH;
use super::lineup::Lineup;
use super::room::Room;
use super::{ClientLink, Family, Head, Lease, NodeLink};
use paceline_proto::{ClientId, NodeId, Resources, Sum};
use std::collections::BTreeMap;

macro_rules! ensure {
    ($condition:expr, $($message:tt)+) => {
        if !$condition {
            return Err(format!($($message)+));
        }
    };
}

impl Head {
    /// The first broken invariant, if any.
    pub fn check(&self) -> Result<(), String> {
        self.check_leases()?;
        self.nodes.keys().try_for_each(|&id| self.check_node(id))?;
        self.clients.keys().try_for_each(|&id| self.check_client(id))?;
        self.check_families()?;
        self.check_works()?;
        self.check_fences()?;
        self.check_actors()?;
        self.check_books()?;
        self.check_indexes()
    }

    fn check_leases(&self) -> Result<(), String> {
        for (id, lease) in &self.leases {
            ensure!(self.nodes.contains_key(&lease.node), "{id:?} is on {:?}, which is gone", lease.node);
            let nobodys = !lease.state.is_somebodys();
            ensure!(
                nobodys || self.clients.contains_key(&lease.client),
                "{id:?} belongs to {:?}, which is gone",
                lease.client
            );
        }
        Ok(())
    }

    fn check_node(&self, id: NodeId) -> Result<(), String> {
        let node = &self.nodes[&id];
        let mine = || self.leases.iter().filter(|(_, lease)| lease.node == id);
        ensure!(mine().map(|(id, _)| id).eq(&node.leases), "{id:?} lists other leases than it has");
        let used = sum(mine().map(|(_, lease)| lease.needs()));
        ensure!(used == node.used, "HD-1: {id:?} has {used} used, not {}", node.used);
        let returning =
            mine().filter(|(_, lease)| lease.state.is_returning()).map(|(_, lease)| lease.needs());
        ensure!(sum(returning) == node.returning, "{id:?} expects {} back", node.returning);
        let devices: Vec<_> = mine().map(|(_, lease)| (lease.shape.needs, lease.devices)).collect();
        node.devices.check(&devices)?;
        ensure!(node.leases.len() <= self.config.max_leases, "{id:?} has too many leases");
        Ok(())
    }

    fn check_client(&self, id: ClientId) -> Result<(), String> {
        let client = &self.clients[&id];
        let claims = self.claims.values().filter(|claim| claim.client == id).count();
        ensure!(client.claimed.values().sum::<usize>() == claims, "{id:?} has {claims} claims");
        let listed = client.leases.values().flatten().count();
        let mine = || {
            let all = self.leases.iter();
            all.filter(|(_, lease)| lease.client == id && lease.state.is_somebodys())
        };
        ensure!(mine().count() == listed, "{id:?} lists {listed} leases");
        for (lease, entry) in mine() {
            let same = client.leases.get(&entry.shape);
            ensure!(same.is_some_and(|same| same.contains(lease)), "{id:?} does not list {lease:?}");
        }
        ensure!(client.leases.values().all(|same| !same.is_empty()), "{id:?} lists an empty shape");
        ensure!(client.wants.values().all(|want| want.count > 0), "{id:?} wants nothing of a shape");
        let quiet = matches!(client.link, ClientLink::Up) || client.wants.is_empty();
        ensure!(quiet, "{id:?} wants something while it is down");
        Ok(())
    }

    fn check_families(&self) -> Result<(), String> {
        let mut families: BTreeMap<ClientId, Family> = BTreeMap::new();
        for (id, lease) in self.leases.iter().filter(|(_, lease)| lease.state.is_somebodys()) {
            let family = families.entry(self.clients[&lease.client].root).or_default();
            family.used.add(&lease.needs());
            if !lease.state.leaves_family() {
                family.keeps.add(&lease.needs());
            }
            if let Some(since) = lease.held_since() {
                let depth = self.clients[&lease.client].depth;
                family.held.entry((depth, lease.needs())).or_default().insert((since, *id));
            }
        }
        for (root, _, shape) in self.owed.values().flatten() {
            families.entry(*root).or_default().promised.add(&shape.needs);
        }
        families.retain(|_, family| *family != Family::default());
        ensure!(families == self.families, "HD-7: the families use {families:?}, not {:?}", self.families);
        let shallow = self.clients.iter().find(|(id, client)| (client.root == **id) != (client.depth == 0));
        ensure!(shallow.is_none(), "HD-7: {:?} is in the wrong family", shallow.map(|(id, _)| id));
        self.clients.keys().try_for_each(|&id| self.check_ancestors(id))
    }

    /// FM-1, and a slot lies one task deeper than its parent.
    fn check_ancestors(&self, id: ClientId) -> Result<(), String> {
        let mut at = id;
        for _ in 0..=self.clients.len() {
            let Some(parent) = self.parent_of(at).filter(|_| !self.clients[&at].orphan) else {
                return Ok(());
            };
            let (below, above) = (&self.clients[&at], &self.clients[&parent]);
            let deeper = (above.depth + 1).min(MAX_NESTING_DEPTH);
            let same = above.orphan || (below.root, below.depth) == (above.root, deeper);
            ensure!(same, "HD-7: {at:?} has another place than below {parent:?}");
            at = parent;
        }
        Err(format!("FM-1: {id:?} works for itself"))
    }

    fn check_indexes(&self) -> Result<(), String> {
        self.check_lineups()?;
        let up = self.nodes.iter().filter(|(_, node)| matches!(node.link, NodeLink::Up { .. }));
        let up = up.filter(|(id, _)| !self.leaving.contains(id));
        let stray = self.leaving.iter().find(|id| !self.nodes.contains_key(id));
        ensure!(stray.is_none(), "LV-2: {stray:?} is leaving and not here");
        let mut room = Room::default();
        up.for_each(|(&id, node)| room.add(id, node));
        self.nodes.iter().for_each(|(&id, node)| room.know(id, node));
        ensure!(self.room == room, "the room is other than listed");
        let mut total = Sum::default();
        self.nodes.values().for_each(|node| total.add(&node.total));
        ensure!(self.total == total, "the total is {:?}", self.total);
        let held = self.leases.iter().map(|(&id, lease)| (lease.client, id)).collect();
        ensure!(self.holders == held, "leases are held by {held:?}, not {:?}", self.holders);
        let under = |(&id, client): (&ClientId, &super::Client)| Some((client.under?, id));
        let slots = self.clients.iter().filter_map(under).collect();
        ensure!(self.slots == slots, "HD-7: slots work under {slots:?}, not {:?}", self.slots);
        let both = self.departed.keys().find(|id| self.nodes.contains_key(id));
        ensure!(both.is_none(), "{both:?} is here and departed");
        for (id, claim) in &self.claims {
            ensure!(!self.leases.contains_key(id), "HD-8: {id:?} is claimed and known");
            ensure!(self.clients.contains_key(&claim.client), "HD-8: {id:?} is claimed by nobody");
        }
        Ok(())
    }
}

impl Head {
    /// WA-1, WA-2, RC-3.
    fn check_lineups(&self) -> Result<(), String> {
        let (mut queue, mut calling) = (Lineup::default(), Lineup::default());
        for &id in self.clients.keys() {
            let lines = self.lines_of(id);
            ensure!(
                self.listed.get(&id).cloned().unwrap_or_default() == lines,
                "WA-1: {id:?} is listed otherwise"
            );
            for (root, class, line, calls) in lines.into_values() {
                queue.put(root, self.rank(root), class, line);
                if calls {
                    calling.put(root, self.calling_rank(root), class, line);
                }
            }
        }
        ensure!(self.queue == queue, "WA-1: the queue is {:?}, not {queue:?}", self.queue);
        ensure!(self.calling == calling, "WA-1: there call {:?}, not {calling:?}", self.calling);
        let rich = self.families.keys().filter_map(|&root| self.richness(root)).collect();
        ensure!(self.rich == rich, "WA-2: the rich are {rich:?}, not {:?}", self.rich);
        let returning = |lease: &Lease| lease.state.is_returning() && lease.needs() != Resources::default();
        let loose = self.leases.iter().filter(|(id, lease)| returning(lease) && !self.owed.contains_key(id));
        ensure!(
            loose.map(|(id, _)| id).eq(&self.loose),
            "RC-3: other leases are loose than {:?}",
            self.loose
        );
        let stray = self.owed.keys().find(|id| !self.leases.contains_key(id));
        ensure!(stray.is_none(), "RC-3: {stray:?} is promised and gone");
        Ok(())
    }
}

fn sum(resources: impl Iterator<Item = Resources>) -> Resources {
    resources.fold(Resources::default(), |sum, each| sum.plus(&each))
}
