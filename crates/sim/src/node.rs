//! A node's shell.

use crate::head::encoded;
use crate::link::{Data, End, Kind, LinkId, Repeat};
use crate::news::News;
use crate::process::{Life, Process};
use crate::rivals::Peer;
use crate::stalls::{Clock, Standstill};
use crate::world::{Event as Happening, Machine, Sim};
use crate::zygote::Zygote;
use paceline_core::Tick;
use paceline_core::node::{Config, Effect, Event, Node, SlotState};
use paceline_proto::control::{HeadToNode, NodeToHead, NodeToSlot, SlotToNode, Stream};
use paceline_proto::resources::UNIT;
use paceline_proto::{
    Address, Death, DeathCause, Devices, Incarnation, MemoryUse, NodeId, OutOfMemory, ProgramId, Resources,
    SlotId, Way,
};
use std::collections::BTreeMap;
use std::time::Duration;

/// A machine that a node runs on.
pub(crate) struct NodeHost {
    pub id: NodeId,
    pub name: String,
    pub total: Resources,
    /// None while the machine is gone.
    pub core: Option<Node>,
    incarnation: u64,
    pub head: Option<LinkId>,
    /// One for each program that has one.
    pub zygotes: BTreeMap<ProgramId, Zygote>,
    /// The number of the zygote that starts, by its program.
    pub starting: BTreeMap<ProgramId, u64>,
    pub slots: BTreeMap<SlotId, usize>,
    pub started: u64,
    wake: Option<Tick>,
    /// Nothing gets through to the head before.
    pub cut_off_until: Tick,
    pub clock: Clock,
    /// Its process stands still, or the whole machine does.
    pub standstill: Standstill<Event>,
    pub suspended_until: Tick,
    /// What the zygotes were told of the times when slots have to have ended.
    pub kill_at: BTreeMap<SlotId, Tick>,
}

impl Sim {
    pub(crate) fn add_node(&mut self, name: &str, total: Resources) -> usize {
        let node = self.nodes.len();
        let clock = self.some_clock();
        self.nodes.push(NodeHost {
            id: NodeId(node as u64 + 1),
            name: name.to_owned(),
            total,
            core: None,
            incarnation: 0,
            head: None,
            zygotes: BTreeMap::new(),
            starting: BTreeMap::new(),
            slots: BTreeMap::new(),
            started: 0,
            wake: None,
            cut_off_until: Tick::ZERO,
            clock,
            standstill: Standstill::default(),
            suspended_until: Tick::ZERO,
            kill_at: BTreeMap::new(),
        });
        self.node_returns(node);
        node
    }

    /// A node starts on this machine.
    pub(crate) fn node_returns(&mut self, node: usize) {
        if self.nodes[node].core.is_some() {
            return;
        }
        let restored = self.nodes[node].incarnation > 0
            && self.plan.active
            && self.plan.restored > 0
            && self.random.percent(self.plan.restored);
        let host = &mut self.nodes[node];
        host.incarnation += 2;
        // One from a copy of the machine takes itself for an earlier start than the last one was.
        let number = if restored { host.incarnation - 3 } else { host.incarnation };
        (host.standstill, host.suspended_until) = (Standstill::default(), Tick::ZERO);
        host.kill_at.clear();
        host.core = Some(Node::new(Config {
            node: host.id,
            incarnation: Incarnation(number << 32),
            name: host.name.clone(),
            total: host.total,
            addresses: vec![Address::tcp(host.name.clone(), 7078)],
            ..self.settings.node.clone()
        }));
        self.note(|sim| format!("node {} starts", sim.nodes[node].name));
        // A machine that starts knows nothing of older connections, and says so to whoever uses them.
        for link in self.links_of(|kind| kind.is_of_node(node)) {
            self.reset_link(link, End::Near);
        }
        self.node_handles(node, Event::Tick);
        self.node_connects(node);
    }

    pub(crate) fn node_connects(&mut self, node: usize) {
        if self.nodes[node].core.is_none() || self.nodes[node].head.is_some() {
            return;
        }
        if let Some(until) = self.nodes[node].standstill.until(self.now) {
            return self.agenda.add(until, Happening::NodeConnects { node });
        }
        let Some(head) = self.head_for(Peer::Node(node)) else { return self.node_redials(node) };
        let delay = self.some_delay();
        let link = self.links.add(Kind::Node { node, head }, delay);
        self.stall(link, self.nodes[node].cut_off_until);
        self.nodes[node].head = Some(link);
        self.node_handles(node, Event::HeadUp);
    }

    /// The machine is gone, and all that ran on it. If `silent`, nobody sees its links close.
    pub(crate) fn lose_node(&mut self, node: usize, silent: bool) {
        let host = &mut self.nodes[node];
        if host.core.take().is_none() {
            return;
        }
        self.ledger.tally.lost_nodes += 1;
        self.note(|sim| format!("node {} is lost, silent: {silent}", sim.nodes[node].name));
        let host = &mut self.nodes[node];
        host.wake = None;
        host.starting.clear();
        for zygote in std::mem::take(&mut host.zygotes).into_values() {
            self.links.remove(zygote.link);
        }
        let head = host.head.take();
        for process in std::mem::take(&mut host.slots).into_values() {
            self.end_process(process, DeathCause::NodeLost);
        }
        for link in self.links_of(|kind| matches!(kind, Kind::Data(data) if data.node == node)) {
            self.lose_end(link, End::Far, silent);
            if silent {
                // Its client's machine gets no answer any more, and says so after a while.
                let beat = self.settings.node.heartbeat;
                let patience = self.random.span(beat..beat * 4);
                self.after(patience, Happening::GivesUp { link });
            }
        }
        if let Some(link) = head {
            self.lose_end(link, End::Near, silent);
        }
    }

    /// The node is to go, in an orderly way.
    pub(crate) fn node_leaves(&mut self, node: usize, within: Duration) {
        self.ledger.tally.leaving += 1;
        self.note(|sim| format!("node {} wants to go within {within:?}", sim.nodes[node].name));
        self.node_handles(node, Event::Leave { within });
    }

    /// It has ended all it had, and its process ends. Another one starts on its machine after a while.
    fn node_has_gone(&mut self, node: usize) {
        self.lose_node(node, false);
        let pause = self.random.span(Duration::from_millis(1)..self.settings.node.heartbeat * 6);
        self.after(pause, Happening::NodeReturns { node });
    }

    pub(crate) fn lose_end(&mut self, id: LinkId, end: End, silent: bool) {
        match self.links.get_mut(id) {
            Some(link) if silent => link.fall_silent(end),
            _ => self.close_end(id, end),
        }
    }

    pub(crate) fn node_handles(&mut self, node: usize, event: Event) {
        let host = &mut self.nodes[node];
        if host.core.is_some()
            && let Some(event) = host.standstill.keep(self.now, event)
        {
            self.node_takes(node, event);
        }
    }

    pub(crate) fn node_takes(&mut self, node: usize, event: Event) {
        let now = self.now;
        let host = &mut self.nodes[node];
        let Some(core) = &mut host.core else { return };
        let mut effects = Vec::new();
        core.handle(host.clock.read(now), event, &mut effects);
        self.touch(Machine::Node(node));
        for effect in effects {
            self.node_performs(node, effect);
        }
    }

    fn node_performs(&mut self, node: usize, effect: Effect) {
        match effect {
            Effect::ToHead(message) => self.node_tells_head(node, &message),
            Effect::DropHead => {
                self.ledger.tally.silent_heads += 1;
                self.note(|sim| format!("node {} drops its link to the head", sim.nodes[node].name));
                if let Some(link) = self.nodes[node].head.take() {
                    self.close_end(link, End::Near);
                }
                self.node_redials(node);
            }
            Effect::StartZygote => self.start_zygote(node, ProgramId::OWN),
            Effect::StartProgram { program, .. } => self.start_zygote(node, program),
            Effect::EndProgram { program } => {
                self.nodes[node].starting.remove(&program);
                if let Some(zygote) = self.nodes[node].zygotes.remove(&program) {
                    self.ledger.tally.ended_programs += 1;
                    self.links.remove(zygote.link);
                }
            }
            Effect::KillZygote { program } => self.zygote_dies(node, program),
            Effect::Fork { slot, program } => self.fork(node, slot, program),
            Effect::ToSlot { slot, message, connection } => {
                let connection = connection.map(LinkId);
                let Some(&process) = self.nodes[node].slots.get(&slot) else { return };
                self.note(|sim| format!("node {} -> {slot:?}: {message:?}", sim.nodes[node].name));
                let link = self.processes[process].control;
                self.post(link, End::Far, encoded(|out| message.encode(out)), connection, Repeat::Never);
            }
            Effect::KillAt { slots } => self.zygotes_are_told(node, slots),
            Effect::Kill { slot } => {
                if let Some(&process) = self.nodes[node].slots.get(&slot) {
                    self.kill(process, DeathCause::Signal(9));
                }
            }
            Effect::EndForMemory { slot, .. } => {
                let process = self.nodes[node].slots[&slot];
                self.ledger.tally.memory_deaths += 1;
                self.kill(process, DeathCause::Signal(9));
            }
            Effect::Exceeded { slot, .. } => {
                let process = self.nodes[node].slots[&slot];
                self.ledger.tally.exceeded += 1;
                self.processes[process].exceeded = true;
                self.kill(process, DeathCause::Signal(9));
            }
            Effect::EndStopped { slot, signal, .. } => {
                let process = self.nodes[node].slots[&slot];
                self.ledger.tally.stood_still += 1;
                self.processes[process].stopped = Some(signal);
                self.kill(process, DeathCause::Signal(9));
            }
            Effect::Confine { .. } => {}
            // What one node passes on to another gets there by itself here, and is refused if it is too late.
            Effect::Relay { connection, .. } | Effect::Refuse { connection } => {
                self.ledger.tally.refused += 1;
                self.note(|sim| format!("node {} refuses connection {connection}", sim.nodes[node].name));
                self.close_end(LinkId(connection), End::Far);
            }
            Effect::ForgetSlot { slot } => {
                if let Some(process) = self.nodes[node].slots.remove(&slot) {
                    if self.nodes[node].core.as_ref().is_some_and(Node::is_closing) {
                        // Its zygote had not yet said that it is there: it finds its link to the node closed, and goes.
                        self.end_process(process, DeathCause::Exit(0));
                    }
                    assert_ne!(self.processes[process].life, Life::Alive, "{slot:?} is forgotten and lives");
                    self.processes[process].life = Life::Dead;
                }
            }
            Effect::Terminate { slot } => {
                if let Some(&process) = self.nodes[node].slots.get(&slot) {
                    self.work_is_asked(process);
                }
            }
            Effect::Stray { .. } | Effect::Printed { .. } => {}
            Effect::Closed => self.node_has_gone(node),
            Effect::WakeAt(at) => {
                self.nodes[node].wake = Some(at);
                let (late, when) = (self.lateness(), self.nodes[node].clock.when(at));
                self.agenda.add(when + late, Happening::WakeNode { node, at });
            }
        }
    }

    pub(crate) fn wake_node(&mut self, node: usize, at: Tick) {
        if self.nodes[node].wake == Some(at) {
            self.nodes[node].wake = None;
            self.node_handles(node, Event::Tick);
        }
    }

    fn node_tells_head(&mut self, node: usize, message: &NodeToHead) {
        let repeat = match message {
            NodeToHead::Output { .. } | NodeToHead::Answer { .. } => Repeat::Never,
            NodeToHead::Join { .. }
            | NodeToHead::Placed { .. }
            | NodeToHead::Ended { .. }
            | NodeToHead::ProgramFailed { .. }
            | NodeToHead::Leaving
            | NodeToHead::Heartbeat { .. } => Repeat::Later,
            NodeToHead::Blocked { .. } => Repeat::AtOnce,
        };
        if !matches!(message, NodeToHead::Heartbeat { .. }) {
            self.note(|sim| format!("node {} -> head: {message:?}", sim.nodes[node].name));
        }
        if let Some(link) = self.nodes[node].head {
            self.post(link, End::Far, encoded(|out| message.encode(out)), None, repeat);
        }
    }

    pub(crate) fn node_hears_head(&mut self, link: LinkId, node: usize, message: HeadToNode) {
        if self.nodes[node].head == Some(link) {
            self.node_handles(node, Event::FromHead(message));
        }
    }

    pub(crate) fn node_loses_head(&mut self, link: LinkId, node: usize) {
        if self.nodes[node].head != Some(link) {
            return;
        }
        self.nodes[node].head = None;
        self.note(|sim| format!("node {} has no head", sim.nodes[node].name));
        self.node_handles(node, Event::HeadDown);
        self.node_redials(node);
    }

    fn node_redials(&mut self, node: usize) {
        let longest = self.settings.redial.unwrap_or(self.settings.node.heartbeat * 2);
        let delay = self.random.span(Duration::from_millis(1)..longest);
        self.after(delay, Happening::NodeConnects { node });
    }

    /// The node's memory is all in use, by its slots, which have some of it each.
    pub(crate) fn memory_is_short(&mut self, node: usize) {
        if self.nodes[node].core.is_none() {
            return;
        }
        let slots: Vec<SlotId> = self.nodes[node].slots.keys().copied().collect();
        let slots = slots.into_iter().map(|slot| (slot, self.random.within(1..100))).collect();
        self.node_handles(node, Event::Memory { used: 100, limit: 100, slots });
    }

    /// A task has more memory than it may.
    pub(crate) fn task_exceeds(&mut self, node: usize) {
        let Some(core) = &self.nodes[node].core else { return };
        let limits: Vec<(SlotId, u64)> = core.limits().collect();
        if !limits.is_empty() {
            let (slot, limit) = self.random.pick(&limits);
            self.node_handles(node, Event::Sizes(vec![(slot, limit + 1)]));
        }
    }

    /// The node sees the end of a process without its zygote.
    pub(crate) fn reaped(&mut self, process: usize) {
        let Process { node, slot, .. } = self.processes[process];
        if self.nodes[node].slots.get(&slot) == Some(&process) {
            let death = self.death(process, DeathCause::Signal(9));
            let calls = self.guest_calls(process);
            self.node_handles(node, Event::GuestCalls { slot, calls });
            self.node_handles(node, Event::Exited { slot, death });
        }
    }

    /// What the node reads on the page that outlived the slot.
    pub(crate) fn death(&mut self, process: usize, cause: DeathCause) -> Death {
        let page = self.processes[process].page;
        let killed = matches!(cause, DeathCause::Signal(9));
        let stopped = self.processes[process].stopped.map(DeathCause::Stopped);
        let cause = if page.gave_up { DeathCause::TimedOut } else { stopped.unwrap_or(cause) };
        let out_of_memory = match (self.processes[process].exceeded, killed) {
            (true, _) => OutOfMemory::Exceeded(MemoryUse::default()),
            (false, true) => OutOfMemory::Likely(MemoryUse::default()),
            (false, false) => OutOfMemory::No,
        };
        self.tell(|sim| News::SlotDied(sim.nodes[sim.processes[process].node].name.clone()));
        Death { cause, out_of_memory, running: page.running, finished: page.finished }
    }

    pub(crate) fn node_hears_slot(&mut self, process: usize, message: SlotToNode) {
        let Process { node, slot, .. } = self.processes[process];
        if self.nodes[node].slots.get(&slot) == Some(&process) {
            self.node_handles(node, Event::FromSlot(slot, message));
        }
    }

    pub(crate) fn slot_tells_node(&mut self, process: usize, message: &SlotToNode) {
        let link = self.processes[process].control;
        let repeat = match message {
            SlotToNode::Blocked { .. } | SlotToNode::Waits { .. } => Repeat::AtOnce,
            _ => Repeat::Later,
        };
        self.post(link, End::Near, encoded(|out| message.encode(out)), None, repeat);
    }

    /// User code printed something.
    pub(crate) fn slot_prints(&mut self, process: usize, text: Vec<u8>) {
        let Process { node, slot, .. } = self.processes[process];
        self.node_handles(node, Event::Output { slot, stream: Stream::Out, text });
    }

    /// Somebody opened a data connection.
    pub(crate) fn connection_arrives(&mut self, link: LinkId) {
        let Some(Kind::Data(Data { node, lease, .. })) = self.links.get(link).map(|link| link.kind) else {
            return;
        };
        if self.nodes[node].core.is_none() {
            return self.close_end(link, End::Far);
        }
        self.node_handles(node, Event::Connection { connection: link.0, lease, way: Way::Tls });
    }

    /// The node's own invariants, and that its leases never need more than it has.
    pub(crate) fn check_node(&self, node: usize) -> Result<(), String> {
        let host = &self.nodes[node];
        let Some(core) = &host.core else { return Ok(()) };
        core.check()?;
        self.check_devices(node)?;
        let slots = core.status().slots;
        // Those whose task waited for others may need more for a while: nothing is placed then.
        let never_waited = |slot: &SlotId| {
            let process = host.slots.get(slot).map(|process| &self.processes[*process]);
            process.is_none_or(|process| process.waited_under.is_none())
        };
        let leased = slots
            .iter()
            .filter(|slot| matches!(slot.state, SlotState::Leased | SlotState::Detaching))
            .filter(|slot| never_waited(&slot.slot));
        let sum = leased.filter_map(|slot| slot.needs).fold(Resources::default(), |sum, it| sum.plus(&it));
        if sum.fits_in(&host.total) {
            Ok(())
        } else {
            Err(format!("HD-1: the leases of node {} need {sum} of {}", host.name, host.total))
        }
    }

    /// No two processes that live may use the same GPU, unless they have parts of it (ND-11).
    fn check_devices(&self, node: usize) -> Result<(), String> {
        let host = &self.nodes[node];
        let alive = host.slots.values().map(|process| &self.processes[*process]);
        let mut used = [0; Devices::MOST];
        for process in alive.filter(|process| process.life == Life::Alive) {
            process.devices.numbers().for_each(|number| used[number] += process.share);
        }
        match used.iter().position(|used| *used > UNIT) {
            Some(number) => Err(format!("ND-11: GPU {number} of node {} is used twice", host.name)),
            None => Ok(()),
        }
    }

    pub(crate) fn slot_hears_node(
        &mut self,
        process: usize,
        message: NodeToSlot,
        connection: Option<LinkId>,
    ) {
        match message {
            NodeToSlot::Bind { client, needs, devices, .. } => {
                let entry = &mut self.processes[process];
                (entry.devices, entry.share) = (devices, needs.gpu_units().min(UNIT));
                let bound = self.processes[process].client.replace(client);
                assert!(bound.is_none(), "ND-2: a slot is bound twice");
            }
            NodeToSlot::Attach { lease, secret } => self.slot_attaches(process, lease, secret, connection),
            NodeToSlot::Guest { lease, number, secret } => {
                self.guest_attaches(process, lease, number, secret, connection);
            }
            NodeToSlot::Detach { lease } if self.guest_detaches(process, lease) => {}
            NodeToSlot::Detach { lease } => self.slot_detaches(process, lease),
            NodeToSlot::Exit => {
                self.processes[process].exits = true;
                self.advance(process);
            }
            NodeToSlot::TooDeep { lease } => self.slot_is_too_deep(process, lease),
            NodeToSlot::Become { start, .. } => self.slot_becomes(process, &start),
        }
    }
}
