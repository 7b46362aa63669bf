//! The stores of the world: one for all, or one of each client and of each node.
//!
//! Between a node's store and a client's, messages keep their order, and arrive late. Bytes go beside them, at any time,
//! and do not get through now and then. A client that dies takes its store along, and nodes hear of it later. A node that
//! dies takes its store and its slots along, and is back at once with an empty one; clients hear of both, in any order.

use super::{LIMIT, NODE, REMEMBERED, World, decoded, encoded};
use paceline_core::objects::{Effect, Event, LinkId, Status, Store};
use paceline_proto::objects::{FromStore, Source, ToStore};
use paceline_proto::{ClientId, LeaseId, LeaseSecret, NodeId, ObjectId};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

const NODES: usize = 3;
/// Links between stores have numbers from here on.
const STORES: u64 = 1 << 40;
/// So far are the numbers of a node's links apart, each time that it is back.
const LIVES: u64 = 1 << 20;

pub(super) struct Sites {
    stores: Vec<Option<Store>>,
    cluster: bool,
    /// From nodes to clients, and back.
    pairs: BTreeMap<(usize, usize), Pair>,
    transfers: VecDeque<Transfer>,
    spilling: VecDeque<(usize, ObjectId)>,
    /// Objects whose bytes once did not get through.
    pub failed: BTreeSet<ObjectId>,
    /// How often each node was back.
    lives: [u64; NODES],
    /// What nodes that are gone had said to clients: over which link, and to which site.
    last_words: Vec<(LinkId, usize, VecDeque<Vec<u8>>)>,
}

/// Bytes on their way to a site.
struct Transfer {
    site: usize,
    object: ObjectId,
    /// From which client and over which link, if the client says so should they not get through.
    sender: Option<(usize, LinkId)>,
    /// Who is to send them does not have them.
    doomed: bool,
}

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
    link.0.checked_sub(STORES).map(|link| (link % LIVES) as usize)
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
            lives: [0; NODES],
            last_words: Vec::new(),
        }
    }

    /// The link of a client to a node, as it lives now.
    fn link_to_node(&self, node: usize) -> LinkId {
        LinkId(link_to(node).0 + self.lives[node] * LIVES)
    }

    /// The node at this link, if it lives.
    fn node_at(&self, link: LinkId) -> Option<usize> {
        site_at(link).filter(|&node| node < NODES && self.link_to_node(node) == link)
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
        let silent = self.transfers.is_empty() && self.spilling.is_empty() && self.last_words.is_empty();
        silent && self.pairs.values().all(quiet)
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
                let mut store = Store::new(NodeId(site as u64), LIMIT);
                store.remember_at_most(REMEMBERED);
                self.sites.stores.push(Some(store));
                (0..NODES).try_for_each(|node| self.meet(node, site, owner))?;
                Ok(site)
            }
        }
    }

    /// The stores of a node and of a client meet.
    fn meet(&mut self, node: usize, site: usize, owner: ClientId) -> Result<(), String> {
        self.sites.pairs.insert((node, site), Pair::default());
        let link = self.sites.link_to_node(node);
        self.tell(site, Event::LinkUp(link))?;
        let (lease, secret) = (LeaseId(1), LeaseSecret([0; 32]));
        let hello = ToStore::Node { owner, node: NodeId(node as u64), lease, secret };
        self.tell_owner(node, site, &hello);
        self.tell(node, Event::OwnerUp(link_to(site), owner))
    }

    /// A node dies with everything on it, and is back with nothing.
    pub(super) fn kill_node(&mut self) -> Result<(), String> {
        let node = self.random.below(NODES);
        self.met.nodes_lost += 1;
        let old = self.sites.link_to_node(node);
        let pairs: Vec<usize> =
            self.sites.pairs.keys().filter(|(of, _)| *of == node).map(|(_, owner)| *owner).collect();
        for owner in &pairs {
            let mut pair = self.sites.pairs.remove(&(node, *owner)).expect("it is there");
            // What it had said may be lost with it, from somewhere on.
            pair.up.truncate(self.random.below(pair.up.len() + 1));
            if !pair.broken {
                self.sites.last_words.push((old, *owner, pair.up));
            }
        }
        self.sites.transfers.retain(|transfer| transfer.site != node);
        self.sites.spilling.retain(|(at, _)| *at != node);
        self.sites.stores[node] = Some(Store::of_cluster(NodeId(node as u64), LIMIT));
        self.sites.lives[node] += 1;
        let slots: Vec<usize> = (0..self.processes.len())
            .filter(|&id| !self.processes[id].root && self.processes[id].site == node)
            .filter(|&id| !self.processes[id].noticed)
            .collect();
        let roots: Vec<(usize, ClientId)> = self
            .processes
            .iter()
            .filter(|process| process.root && process.alive)
            .map(|process| (process.site, process.owner))
            .collect();
        for (site, owner) in roots {
            self.meet(node, site, owner)?;
        }
        for id in slots {
            let process = &mut self.processes[id];
            process.noticed = true;
            process.out.clear();
            let (owner, lived) = (process.owner, std::mem::replace(&mut process.alive, false));
            if lived && self.is_alive(owner) {
                self.start(owner, false)?;
            }
        }
        Ok(())
    }

    /// A client hears what a node had said that is gone, and then that it is.
    fn hear_last_words(&mut self) -> Result<(), String> {
        let at = self.random.below(self.sites.last_words.len());
        let (link, owner, words) = &mut self.sites.last_words[at];
        let (link, owner) = (*link, *owner);
        match words.pop_front() {
            Some(bytes) => self.tell(owner, Event::From(link, decoded(&bytes))),
            None => {
                self.sites.last_words.swap_remove(at);
                self.tell(owner, Event::LinkDown(link))
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

    fn tell_node(&mut self, owner: usize, link: LinkId, message: &FromStore) {
        let Some(node) = self.sites.node_at(link) else { return };
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
                    Some(_) => self.tell_node(site, link, &message),
                    None => self.inbound[link.0 as usize].push_back(encoded(&message)),
                },
                Effect::Hand(link, number, object, size) => match site_at(link) {
                    Some(_) if size == 10 => {
                        self.tell_node(site, link, &FromStore::Small { number, bytes: vec![7; 10] });
                    }
                    Some(_) => {
                        let from = Source::Here;
                        self.tell_node(site, link, &FromStore::Offered { number, object, size, from });
                    }
                    None => {
                        let message = FromStore::Memory { number, object, size };
                        self.inbound[link.0 as usize].push_back(encoded(&message));
                    }
                },
                Effect::Offer { link, number, object, size, source } => {
                    site_at(link).ok_or("only nodes are told of nodes")?;
                    let lease = LeaseId(site_at(source).ok_or("only nodes have copies")? as u128);
                    let from = Source::Node { addresses: Vec::new(), lease, secret: LeaseSecret([0; 32]) };
                    self.tell_node(site, link, &FromStore::Offered { number, object, size, from });
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
                    let doomed = !there && self.met.nodes_lost > 0;
                    self.sites.transfers.push_back(Transfer { site, object, sender: None, doomed });
                    if !there && !doomed {
                        self.sites.failed.insert(object);
                    }
                }
                Effect::Fetch { object, link, .. } => {
                    let other = site_at(link).ok_or("no process sends bytes")?;
                    if site < NODES {
                        self.tell_owner(site, other, &ToStore::Send { object });
                    } else {
                        let source =
                            self.sites.node_at(link).and_then(|node| self.sites.stores[node].as_ref());
                        let doomed = source.is_none_or(|source| source.size_of(object).is_none());
                        let doomed = doomed && self.met.nodes_lost > 0;
                        self.sites.transfers.push_back(Transfer { site, object, sender: None, doomed });
                    }
                }
                Effect::Send(link, object) => {
                    site_at(link).ok_or("only nodes are sent bytes")?;
                    if let Some(node) = self.sites.node_at(link) {
                        let sender = Some((site, link));
                        self.sites.transfers.push_back(Transfer {
                            site: node,
                            object,
                            sender,
                            doomed: false,
                        });
                    }
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
        if !self.sites.last_words.is_empty() && self.random.percent(20) {
            return self.hear_last_words();
        }
        let at = self.random.below(self.sites.pairs.len());
        let (&(node, owner), pair) = self.sites.pairs.iter_mut().nth(at).expect("there are so many");
        if self.random.percent(50)
            && let Some(bytes) = pair.up.pop_front()
        {
            let message = decoded(&bytes);
            let hello = matches!(message, ToStore::Node { .. });
            let link = self.sites.link_to_node(node);
            self.tell(owner, Event::From(link, message))?;
            if hello {
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
        let Some(transfer) = self.sites.transfers.pop_front() else { return Ok(()) };
        let Transfer { site, object, sender, doomed } = transfer;
        let fails = self.random.percent(5) || doomed;
        match (fails, sender) {
            (false, _) => {
                self.met.fetched += 1;
                self.tell(site, Event::Fetched(object, true))
            }
            (true, sender) => {
                self.met.unfetched += 1;
                if !doomed {
                    self.sites.failed.insert(object);
                }
                match sender {
                    None => self.tell(site, Event::Fetched(object, false)),
                    Some((owner, link)) => {
                        self.tell_node(owner, link, &FromStore::Unsent { object });
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
        let is_of = |one: &Transfer| one.site == site || one.sender.is_some_and(|(from, _)| from == site);
        self.sites.transfers.retain(|transfer| !is_of(transfer));
        self.sites.last_words.retain(|(_, owner, _)| *owner != site);
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
