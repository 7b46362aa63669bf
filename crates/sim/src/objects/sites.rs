//! The stores of the world: one for all, or one of each client and of each node.
//!
//! Between a node's store and a client's, messages keep their order, and arrive late. Bytes go beside them, at any time,
//! and do not get through now and then. A client that dies takes its store along, and nodes hear of it later.

use super::{LIMIT, NODE, World, decoded, encoded};
use paceline_core::objects::{Effect, Event, LinkId, Status, Store};
use paceline_proto::objects::{FromStore, Source, ToStore};
use paceline_proto::{ClientId, LeaseId, LeaseSecret, NodeId, ObjectId};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

const NODES: usize = 3;
/// Links between stores have numbers from here on.
const STORES: u64 = 1 << 40;

pub(super) struct Sites {
    stores: Vec<Option<Store>>,
    cluster: bool,
    /// From nodes to clients, and back.
    pairs: BTreeMap<(usize, usize), Pair>,
    transfers: VecDeque<Transfer>,
    spilling: VecDeque<(usize, ObjectId)>,
    /// Objects whose bytes once did not get through.
    pub failed: BTreeSet<ObjectId>,
}

/// Bytes on their way to a site; from which client to which node, if the client says so should they not get through.
type Transfer = (usize, ObjectId, Option<(usize, usize)>);

#[derive(Default)]
struct Pair {
    up: VecDeque<Vec<u8>>,
    down: VecDeque<Vec<u8>>,
    /// The client is gone.
    broken: bool,
}

fn link_to(site: usize) -> LinkId {
    LinkId(STORES + site as u64)
}

fn site_at(link: LinkId) -> Option<usize> {
    link.0.checked_sub(STORES).map(|site| site as usize)
}

impl Sites {
    fn of(stores: Vec<Option<Store>>, cluster: bool) -> Sites {
        Sites {
            stores,
            cluster,
            pairs: BTreeMap::new(),
            transfers: VecDeque::new(),
            spilling: VecDeque::new(),
            failed: BTreeSet::new(),
        }
    }

    /// One store, which decides.
    pub(super) fn one() -> Sites {
        Sites::of(vec![Some(Store::new(NODE, LIMIT))], false)
    }

    /// Nodes; the stores of clients come with them.
    pub(super) fn cluster() -> Sites {
        let node = |number| Some(Store::of_cluster(NodeId(number as u64), LIMIT));
        Sites::of((0..NODES).map(node).collect(), true)
    }

    pub(super) fn is_cluster(&self) -> bool {
        self.cluster
    }

    pub(super) fn statuses(&self) -> Vec<Status> {
        self.stores.iter().flatten().map(Store::status).collect()
    }

    /// Nothing is under way.
    pub(super) fn is_quiet(&self) -> bool {
        let quiet = |pair: &Pair| pair.up.is_empty() && pair.down.is_empty() && !pair.broken;
        self.transfers.is_empty() && self.spilling.is_empty() && self.pairs.values().all(quiet)
    }
}

impl World {
    /// Where the store of a new process is.
    pub(super) fn site_for(&mut self, owner: ClientId, root: bool) -> Result<usize, String> {
        match (self.sites.cluster, root) {
            (false, _) => Ok(0),
            (true, false) => Ok(self.random.below(NODES)),
            (true, true) => {
                let site = self.sites.stores.len();
                self.sites.stores.push(Some(Store::new(NodeId(site as u64), LIMIT)));
                for node in 0..NODES {
                    self.sites.pairs.insert((node, site), Pair::default());
                    self.tell(site, Event::LinkUp(link_to(node)))?;
                    let (lease, secret) = (LeaseId(1), LeaseSecret([0; 32]));
                    let hello = ToStore::Node { owner, node: NodeId(node as u64), lease, secret };
                    self.tell_owner(node, site, &hello);
                    self.tell(node, Event::OwnerUp(link_to(site), owner))?;
                }
                Ok(site)
            }
        }
    }

    pub(super) fn any_site(&mut self) -> usize {
        if self.sites.cluster { self.random.below(self.sites.stores.len()) } else { 0 }
    }

    fn tell_owner(&mut self, node: usize, owner: usize, message: &ToStore) {
        if let Some(pair) = self.sites.pairs.get_mut(&(node, owner)).filter(|pair| !pair.broken) {
            pair.up.push_back(encoded(message));
        }
    }

    fn tell_node(&mut self, owner: usize, node: usize, message: &FromStore) {
        if let Some(pair) = self.sites.pairs.get_mut(&(node, owner)) {
            pair.down.push_back(encoded(message));
        }
    }

    pub(super) fn tell(&mut self, site: usize, event: Event) -> Result<(), String> {
        let Some(store) = &mut self.sites.stores[site] else { return Ok(()) };
        let mut effects = Vec::new();
        store.handle(self.now, event, &mut effects);
        store.check()?;
        for effect in effects {
            match effect {
                Effect::To(link, message) => match site_at(link) {
                    Some(node) => self.tell_node(site, node, &message),
                    None => self.inbound[link.0 as usize].push_back(encoded(&message)),
                },
                Effect::Hand(link, number, object, size) => match site_at(link) {
                    Some(node) if size == 10 => {
                        self.tell_node(site, node, &FromStore::Small { number, bytes: vec![7; 10] });
                    }
                    Some(node) => {
                        let from = Source::Here;
                        self.tell_node(site, node, &FromStore::Offered { number, object, size, from });
                    }
                    None => {
                        let message = FromStore::Memory { number, object, size };
                        self.inbound[link.0 as usize].push_back(encoded(&message));
                    }
                },
                Effect::Offer { link, number, object, size, source } => {
                    let node = site_at(link).ok_or("only nodes are told of nodes")?;
                    let lease = LeaseId(site_at(source).ok_or("only nodes have copies")? as u128);
                    let from = Source::Node { addresses: Vec::new(), lease, secret: LeaseSecret([0; 32]) };
                    self.tell_node(site, node, &FromStore::Offered { number, object, size, from });
                }
                Effect::ToOwner(link, message) => {
                    let owner = site_at(link).ok_or("an owner is no process")?;
                    self.tell_owner(site, owner, &message);
                }
                Effect::Fetch { object, from: Source::Node { lease, .. }, .. } => {
                    self.met.passed_on += 1;
                    // It may be gone from there when it is asked for.
                    let source = self.sites.stores[lease.0 as usize].as_ref();
                    let there = source.is_some_and(|source| source.size_of(object).is_some());
                    self.sites.transfers.push_back((site, object, None));
                    if !there {
                        self.sites.failed.insert(object);
                    }
                }
                Effect::Fetch { object, link, .. } => {
                    let other = site_at(link).ok_or("no process sends bytes")?;
                    if site < NODES {
                        self.tell_owner(site, other, &ToStore::Send { object });
                    } else {
                        self.sites.transfers.push_back((site, object, None));
                    }
                }
                Effect::Send(link, object) => {
                    let node = site_at(link).ok_or("only nodes are sent bytes")?;
                    self.sites.transfers.push_back((node, object, Some((site, node))));
                }
                Effect::Spill(object) => self.sites.spilling.push_back((site, object)),
                Effect::Keep(_) | Effect::KeepSmall(..) | Effect::Discard(_) | Effect::WakeAt(_) => {}
                Effect::Whereabouts { .. } => {}
            }
        }
        Ok(())
    }

    pub(super) fn on_disk(&mut self) -> Result<(), String> {
        let Some((site, object)) = self.sites.spilling.pop_front() else { return Ok(()) };
        self.met.spilled += 1;
        let fails = self.random.percent(20);
        self.tell(site, Event::Spilled(object, if fails { Err("full".into()) } else { Ok(()) }))
    }

    /// Something gets from one store to another.
    pub(super) fn between(&mut self) -> Result<(), String> {
        if self.random.percent(15) {
            return self.transfer();
        }
        let at = self.random.below(self.sites.pairs.len());
        let (&(node, owner), pair) = self.sites.pairs.iter_mut().nth(at).expect("there are so many");
        if self.random.percent(50)
            && let Some(bytes) = pair.up.pop_front()
        {
            let message = decoded(&bytes);
            let hello = matches!(message, ToStore::Node { .. });
            self.tell(owner, Event::From(link_to(node), message))?;
            if hello {
                let link = link_to(node);
                self.tell(owner, Event::Reached { link, near: node == 0, serves: node != 1 })?;
            }
            return Ok(());
        }
        if let Some(bytes) = pair.down.pop_front() {
            return self.tell(node, Event::FromOwner(link_to(owner), decoded(&bytes)));
        }
        if pair.broken {
            self.sites.pairs.remove(&(node, owner));
            return self.tell(node, Event::LinkDown(link_to(owner)));
        }
        Ok(())
    }

    fn transfer(&mut self) -> Result<(), String> {
        let Some((site, object, sender)) = self.sites.transfers.pop_front() else { return Ok(()) };
        let fails = self.random.percent(5);
        match (fails, sender) {
            (false, _) => {
                self.met.fetched += 1;
                self.tell(site, Event::Fetched(object, true))
            }
            (true, sender) => {
                self.met.unfetched += 1;
                self.sites.failed.insert(object);
                match sender {
                    None => self.tell(site, Event::Fetched(object, false)),
                    Some((owner, node)) => {
                        self.tell_node(owner, node, &FromStore::Unsent { object });
                        Ok(())
                    }
                }
            }
        }
    }

    /// A client dies, and its store with it.
    pub(super) fn end_site_of(&mut self, id: usize) {
        if !self.sites.cluster {
            return;
        }
        let site = self.processes[id].site;
        self.processes[id].noticed = true;
        self.processes[id].out.clear();
        self.sites.stores[site] = None;
        self.sites
            .transfers
            .retain(|(to, _, sender)| *to != site && sender.is_none_or(|(from, _)| from != site));
        self.sites.spilling.retain(|(at, _)| *at != site);
        for ((_, owner), pair) in &mut self.sites.pairs {
            if *owner == site {
                pair.up.clear();
                pair.broken = true;
            }
        }
    }

    /// Every client ends, and the nodes hear of it.
    pub(super) fn end_sites(&mut self) -> Result<(), String> {
        for site in NODES..self.sites.stores.len() {
            self.sites.stores[site] = None;
        }
        let pairs: Vec<(usize, usize)> = self.sites.pairs.keys().copied().collect();
        for (node, owner) in pairs {
            self.sites.pairs.remove(&(node, owner));
            self.tell(node, Event::LinkDown(link_to(owner)))?;
        }
        Ok(())
    }
}
