//! How much a step of the head, and a task of the client, costs in large clusters.
//!
//! Owns: clusters without faults, links or clocks, in which every peer answers at once. What is measured is the core
//! alone, so the figures are of use only against each other.

use crate::random::Random;
use bytes::Bytes;
use paceline_core::client::{self, Client, LeaseKey, Spec};
use paceline_core::head::{self, Head};
use paceline_core::{Tick, client as client_core};
use paceline_proto::control::{ClientToHead, HeadToClient, HeadToNode, NodeToHead};
use paceline_proto::data::{FromSlot, Reply, Status, ToSlot};
use paceline_proto::{
    ClientId, ClusterId, Epoch, Facts, Incarnation, LeaseId, LeaseSecret, NodeId, Resources, Shape, SlotId,
};
use std::collections::VecDeque;
use std::time::Duration;

/// Slots of one node.
const CPUS: u64 = 10;

/// Up to so many nodes a head checks itself.
const CHECKED: u64 = 65;

/// What one size of cluster cost.
#[derive(Clone, Copy, Debug)]
pub struct Figures {
    pub size: usize,
    /// How many events were handled, or tasks done.
    pub count: u64,
    pub each: Duration,
    /// How many leases were held meanwhile.
    pub leases: usize,
}

/// A head with peers that do as told.
pub struct World {
    head: Head,
    now: Tick,
    inbox: VecDeque<head::Event>,
    /// The leases of each client, by its number.
    held: Vec<Vec<LeaseId>>,
    events: u64,
    slots: u64,
    nodes: usize,
    clients: usize,
    /// How many leases each client wants.
    each: u32,
    random: Random,
    /// What it cost until all there is was leased.
    pub start: Figures,
}

impl World {
    /// Nodes join, and clients take all there is. They want more than that.
    pub fn new(nodes: usize, clients: usize) -> World {
        let config = head::Config::new(ClusterId(1), Epoch(1), [1; 32]);
        let mut world = World {
            head: Head::new(config),
            now: Tick::ZERO,
            inbox: VecDeque::new(),
            held: vec![Vec::new(); clients + 1],
            events: 0,
            slots: 0,
            nodes,
            clients,
            each: ((nodes as u64 * CPUS) as usize).div_ceil(clients) as u32 + 1,
            random: Random::new(7),
            start: Figures { size: nodes, count: 0, each: Duration::ZERO, leases: 0 },
        };
        let start = cpu_time();
        // Small heads check all they know after each step, in builds that do so: that is not what is measured here.
        let first = (nodes as u64).min(CHECKED);
        (1..=first).for_each(|node| world.join(node));
        for client in 1..=clients {
            let id = ClientId(client as u64);
            let (name, leases, met) = (String::new(), Vec::new(), None);
            world.says(
                client,
                ClientToHead::Hello { client: id, name, leases, met, under: None, beats: false },
            );
            world.says(
                client,
                ClientToHead::Want { shape: Shape::cpus(1), count: world.each, exclusive: None },
            );
        }
        (first + 1..=nodes as u64).for_each(|node| world.join(node));
        world.start = world.figures(0, start);
        world
    }

    /// Clients give leases back and ask for others, for so many events.
    pub fn churn(&mut self, events: u64) -> Figures {
        let (from, start) = (self.events, cpu_time());
        while self.events - from < events {
            let client = 1 + self.random.below(self.clients);
            let count = self.held[client].len();
            if count > 0 {
                let place = self.random.below(count);
                let lease = self.held[client].swap_remove(place);
                self.says(
                    client,
                    ClientToHead::Want { shape: Shape::cpus(1), count: self.each, exclusive: None },
                );
                self.says(client, ClientToHead::Release { lease });
            }
        }
        self.figures(from, start)
    }

    fn figures(&self, from: u64, start: Duration) -> Figures {
        let (count, took) = (self.events - from, cpu_time() - start);
        let leases = self.held.iter().map(Vec::len).sum();
        Figures { size: self.nodes, count, each: took / count.max(1) as u32, leases }
    }

    /// Hand in one event and everything that comes of it.
    fn settle(&mut self, event: head::Event) {
        self.inbox.push_back(event);
        while let Some(event) = self.inbox.pop_front() {
            let mut out = Vec::new();
            self.now = self.now + Duration::from_nanos(200);
            self.head.handle(self.now, event, &mut out);
            self.events += 1;
            out.into_iter().for_each(|effect| self.on_effect(effect));
        }
    }

    fn on_effect(&mut self, effect: head::Effect) {
        match effect {
            head::Effect::ToNode(node, HeadToNode::Place { lease, .. }) => {
                self.slots += 1;
                let slot = SlotId(self.slots);
                self.inbox.push_back(head::Event::FromNode(node, NodeToHead::Placed { lease, slot }));
            }
            head::Effect::ToNode(node, HeadToNode::End { lease }) => {
                self.inbox.push_back(head::Event::FromNode(node, NodeToHead::Ended { lease, death: None }));
            }
            head::Effect::ToClient(client, HeadToClient::Granted { lease, .. }) => {
                self.held[client.0 as usize].push(lease);
            }
            head::Effect::ToClient(client, HeadToClient::Recall { lease }) => {
                self.held[client.0 as usize].retain(|held| *held != lease);
                self.inbox.push_back(head::Event::FromClient(client, ClientToHead::Release { lease }));
            }
            _ => {}
        }
    }

    fn says(&mut self, client: usize, message: ClientToHead) {
        self.settle(head::Event::FromClient(ClientId(client as u64), message));
    }

    fn join(&mut self, node: u64) {
        let (node, incarnation, total) = (NodeId(node), Incarnation(1), Resources::cpus(CPUS));
        let (name, leases, met) = (format!("node {node}"), Vec::new(), None);
        let (addresses, facts) = (Vec::new(), Facts::default());
        let join = NodeToHead::Join { node, incarnation, name, total, leases, met, addresses, facts };
        self.settle(head::Event::FromNode(node, join));
    }
}

/// A client with so many leases does so many tasks.
pub fn client(leases: usize, tasks: u64) -> Figures {
    let config = client::Config { max_leases: u32::MAX, ..client::Config::default() };
    let mut core: Client<()> = Client::new(ClientId(1), "scale", config);
    let mut out = Vec::new();
    let function = core.define(Bytes::from_static(b"function"));
    let mut now = Tick::ZERO;
    let spec =
        || Spec { function, payload: Bytes::from_static(b"x"), shape: Shape::cpus(1), ..Spec::default() };
    // Slots that have nothing to do are not asked for.
    let mut submitted = leases as u64;
    for _ in 0..leases {
        let _ = core.submit(now, spec(), (), &mut out);
    }
    let mut replies = vec![0u64; leases];
    for number in 0..leases {
        let granted = HeadToClient::Granted {
            lease: LeaseId(number as u128 + 1),
            node: NodeId(1 + number as u64 / CPUS),
            slot: SlotId(number as u64 + 1),
            shape: Shape::cpus(1),
            incarnation: Incarnation(1),
            secret: LeaseSecret::default(),
            exclusive: None,
        };
        core.handle(now, client_core::Event::FromHead(granted), &mut out);
        core.handle(now, client_core::Event::LinkUp(LeaseKey(number)), &mut out);
    }
    let (mut done, start) = (0, cpu_time());
    let mut messages = Vec::new();
    let mut next = VecDeque::from_iter(0..leases);
    while done < tasks {
        out.clear();
        now = now + Duration::from_micros(1);
        while submitted < tasks && submitted < done + 2 * leases as u64 {
            core.submit(now, spec(), (), &mut out);
            submitted += 1;
        }
        let number = next.pop_front().expect("there are leases");
        next.push_back(number);
        core.outgoing(LeaseKey(number), &mut messages);
        for message in messages.drain(..) {
            let ToSlot::Run { calls, .. } = message else { continue };
            for call in calls {
                let took = Duration::from_millis(20);
                let reply = Reply { seq: call.seq, status: Status::Value, took, payload: Bytes::new() };
                let message = FromSlot::Replies { first: replies[number], replies: vec![reply] };
                replies[number] += 1;
                core.handle(now, client_core::Event::FromSlot(LeaseKey(number), message), &mut out);
                done += 1;
            }
        }
    }
    let took = cpu_time() - start;
    Figures { size: leases, count: done, each: took / done.max(1) as u32, leases }
}

/// Returns how long this thread has been running, exactly: others on the same machine do not count.
fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
