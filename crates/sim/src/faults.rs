//! What goes wrong, and how often.

use crate::head::encoded;
use crate::link::{End, Kind, Link, LinkId, Repeat};
use crate::process::{Life, Process};
use crate::random::Random;
use crate::world::{Event, Sim};
use paceline_core::Tick;
use paceline_proto::control::ZygoteToNode;
use paceline_proto::{DeathCause, ProgramId};
use std::time::Duration;

/// A run has some kinds of faults only, so that one kind does not hide what another would show.
#[derive(Default)]
pub(crate) struct Plan {
    pub active: bool,
    /// Share of zygotes that do not start.
    pub bad_zygotes: u64,
    /// Share of messages between client and slot after which their link breaks: it breaks most when it is used most.
    pub cuts: u64,
    /// Share of what a head writes before which its disk has become full.
    pub full_disk: u64,
    /// Share of it for which the disk takes as long as a hanging file system.
    pub slow_disk: u64,
    /// Share of nodes that come back from an older copy of their machine.
    pub restored: u64,
    kinds: Vec<Fault>,
    every: Duration,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fault {
    KillAny,
    KillRunning,
    /// Between the end of a run and the sending of its reply.
    KillUnsent,
    PauseSlot,
    SlowSlot,
    CutData,
    CutClient,
    CutNode,
    /// The link between node and slot: the slot leaves.
    CutSlot,
    StallLink,
    KillZygote,
    LoseNode,
    /// No word between a node and the head for less or more than three heartbeats; at times its data links as well.
    Partition,
    KillClient,
    ClientLeaves,
    /// A node has hardly any memory left.
    ShortOfMemory,
    /// A task has more memory than it asked for.
    Exceeds,
    /// A client gives up opening a data connection by itself.
    Unreachable,
    KillHead,
    /// In the middle of what it does.
    DoomHead,
    /// A second head from a copy of the journal.
    Rival,
    /// No word between a client and the head, for a moment or for longer than anybody waits.
    CutOffClient,
    /// No word between a client and the slots of a node.
    CutOffPair,
    /// As [`Fault::Partition`], for longer than anybody waits.
    LongPartition,
    /// Somebody tells the head to let a node go.
    DrainNode,
    /// A node asks to go, and does not wait for ever.
    NodeLeaves,
    /// The process of a node, a head or a client stands still.
    StallNode,
    StallHead,
    StallClient,
    /// The machine of a node is suspended.
    Suspend,
}

/// Those that were added later, and are drawn apart, so that a seed's other faults stay what they were.
const STANDSTILLS: [Fault; 4] = [Fault::StallNode, Fault::StallHead, Fault::StallClient, Fault::Suspend];

const KINDS: [Fault; 26] = [
    Fault::KillAny,
    Fault::KillRunning,
    Fault::KillUnsent,
    Fault::PauseSlot,
    Fault::SlowSlot,
    Fault::CutData,
    Fault::CutClient,
    Fault::CutNode,
    Fault::CutSlot,
    Fault::StallLink,
    Fault::KillZygote,
    Fault::LoseNode,
    Fault::Partition,
    Fault::KillClient,
    Fault::ClientLeaves,
    Fault::ShortOfMemory,
    Fault::Exceeds,
    Fault::Unreachable,
    Fault::KillHead,
    Fault::DoomHead,
    Fault::Rival,
    Fault::CutOffClient,
    Fault::CutOffPair,
    Fault::LongPartition,
    Fault::DrainNode,
    Fault::NodeLeaves,
];

/// How many clients there ever are.
const MOST_CLIENTS: usize = 12;

impl Plan {
    pub fn random(random: &mut Random) -> Plan {
        let share = random.pick(&[0, 15, 50, 50, 80]);
        let every = random.pick(&[2, 10, 50, 300]);
        let kinds: Vec<Fault> = KINDS.into_iter().filter(|_| random.percent(share)).collect();
        Plan {
            active: true,
            bad_zygotes: if share > 0 { random.pick(&[0, 0, 30]) } else { 0 },
            full_disk: 0,
            slow_disk: 0,
            restored: 0,
            cuts: if kinds.contains(&Fault::CutData) { random.within(0..4) } else { 0 },
            kinds,
            every: Duration::from_millis(every),
        }
    }
}

impl Plan {
    pub fn add_standstills(&mut self, random: &mut Random) {
        if !self.kinds.is_empty() {
            let share = random.pick(&[0, 30, 60]);
            self.restored = random.pick(&[0, 0, 20]);
            self.kinds.extend(STANDSTILLS.into_iter().filter(|_| random.percent(share)));
        }
    }

    /// Two heads from copies of one journal each have the work that is in it, and nobody can keep both from running it.
    pub fn has_rivals(&self) -> bool {
        self.kinds.contains(&Fault::Rival)
    }
}

impl Sim {
    pub(crate) fn start_faults(&mut self, plan: Plan) {
        self.plan = plan;
        if !self.plan.kinds.is_empty() {
            self.agenda.add(self.now, Event::Fault);
        }
    }

    pub(crate) fn fault(&mut self) {
        if !self.plan.active {
            return;
        }
        let every = self.plan.every;
        let pause = self.random.span(every / 8..every * 2);
        self.after(pause, Event::Fault);
        let kind = self.plan.kinds[self.random.below(self.plan.kinds.len())];
        self.note(|_| format!("fault: {kind:?}"));
        self.tell_lies();
        match kind {
            Fault::KillAny => self.kill_some(|sim, process| sim.is_alive(process)),
            Fault::KillRunning => self.kill_some(|sim, process| sim.processes[process].busy.is_some()),
            Fault::KillUnsent => self
                .kill_some(|sim, process| sim.is_alive(process) && sim.processes[process].core.unsent() > 0),
            Fault::PauseSlot => self.pause_some(),
            Fault::SlowSlot => {
                if let Some(process) = self.some_process(Sim::is_alive) {
                    self.processes[process].slowness = self.random.within(1..20) as u32;
                }
            }
            Fault::CutData => self.cut_some(|kind| matches!(kind, Kind::Data(_))),
            Fault::CutClient => self.cut_some(|kind| matches!(kind, Kind::Client { .. })),
            Fault::CutNode => self.cut_some(|kind| matches!(kind, Kind::Node { .. })),
            Fault::CutSlot => {
                if let Some(process) = self.some_process(Sim::is_alive) {
                    self.slot_loses_node(process);
                }
            }
            Fault::StallLink => {
                let until = self.now + self.random.span(Duration::from_micros(100)..Duration::from_secs(1));
                if let Some(link) = self.some_link(|_| true) {
                    self.stall(link, until);
                }
            }
            Fault::KillZygote => {
                let node = self.random.below(self.nodes.len());
                let alive: Vec<ProgramId> = self.nodes[node].zygotes.keys().copied().collect();
                if !alive.is_empty() {
                    let program = self.random.pick(&alive);
                    self.zygote_dies(node, program);
                }
            }
            Fault::LoseNode => self.lose_some_node(),
            Fault::Partition => self.partition_some_node(),
            Fault::KillClient => self.end_some_client(true),
            Fault::ClientLeaves => self.end_some_client(false),
            Fault::ShortOfMemory => {
                let node = self.random.below(self.nodes.len());
                self.memory_is_short(node);
            }
            Fault::Exceeds => {
                let node = self.random.below(self.nodes.len());
                self.task_exceeds(node);
            }
            Fault::Unreachable => {
                let client = self.random.below(self.clients.len());
                self.gets_nowhere(client);
            }
            Fault::KillHead => self.kill_some_head(),
            Fault::DoomHead => {
                if let Some(head) = self.some_head() {
                    let effects = self.random.below(20);
                    self.doom_head(head, effects);
                }
            }
            Fault::Rival => self.start_rival(),
            Fault::CutOffClient => {
                let client = self.random.below(self.clients.len());
                let until = self.now + self.some_outage();
                self.cut_off_client(client, until);
            }
            Fault::CutOffPair => {
                let (client, node) =
                    (self.random.below(self.clients.len()), self.random.below(self.nodes.len()));
                let until = self.now + self.some_outage();
                self.cut_off_pair(client, node, until);
            }
            Fault::LongPartition => {
                let node = self.random.below(self.nodes.len());
                let until = self.now + self.some_outage();
                let with_data = self.random.percent(50);
                self.partition(node, until, with_data);
            }
            Fault::DrainNode => {
                let node = self.random.below(self.nodes.len());
                self.drain_node(node);
            }
            Fault::StallNode | Fault::Suspend => {
                let (node, span) = (self.random.below(self.nodes.len()), self.some_standstill());
                match kind {
                    Fault::Suspend => self.suspend_machine(node, span),
                    _ => self.stall_node(node, span),
                }
            }
            Fault::StallHead => {
                if let Some(head) = self.some_head() {
                    let span = self.some_standstill();
                    self.stall_head(head, span);
                }
            }
            Fault::StallClient => {
                let (client, span) = (self.random.below(self.clients.len()), self.some_standstill());
                self.stall_client(client, span);
            }
            Fault::NodeLeaves => {
                let node = self.random.below(self.nodes.len());
                let within = self.random.span(Duration::from_millis(1)..self.settings.node.heartbeat * 4);
                self.node_leaves(node, within);
            }
        }
    }

    /// A moment, or longer than anybody waits for anybody.
    fn some_outage(&mut self) -> Duration {
        let (beat, lost) = (self.settings.node.heartbeat, self.settings.node.head_lost);
        if self.random.percent(70) {
            self.random.span(beat / 2..beat * 8)
        } else {
            self.random.span(beat..lost * 2)
        }
    }

    fn kill_some_head(&mut self) {
        let Some(head) = self.some_head() else { return };
        let silent = self.random.percent(30);
        let (beat, lost) = (self.settings.node.heartbeat, self.settings.node.head_lost);
        let longest = if self.random.percent(10) { lost * 2 } else { beat * 6 };
        let pause = self.random.span(Duration::from_millis(1)..longest);
        // A rival stays away.
        let back = head == 0 || self.heads_alive().len() == 1;
        self.head_dies(head, silent, back.then_some(pause));
    }

    /// Nothing gets through between a client and any head.
    pub(crate) fn cut_off_client(&mut self, client: usize, until: Tick) {
        self.note(|_| format!("client {client} is cut off from the head until {}", until.0));
        let host = &mut self.clients[client];
        host.cut_off_until = host.cut_off_until.max(until);
        for link in self.links_of(|kind| kind.is_of_client(client)) {
            self.stall(link, until);
        }
    }

    /// Nothing gets through between a client and the slots of a node. Connections that are silent for long break.
    pub(crate) fn cut_off_pair(&mut self, client: usize, node: usize, until: Tick) {
        self.note(|_| format!("client {client} and node {node} are cut off until {}", until.0));
        self.cuts.retain(|(_, _, until)| *until > self.now);
        self.cuts.push((client, node, until));
        let is_one = |kind| matches!(kind, Kind::Data(data) if data.client == client && data.node == node);
        for link in self.links_of(is_one) {
            self.stall(link, until);
            let patience = self.random.span(self.settings.node.heartbeat..self.settings.node.heartbeat * 4);
            self.after(patience, Event::GivesUp { link });
        }
    }

    pub(crate) fn gives_up(&mut self, link: LinkId) {
        let now = self.now;
        if self.links.get(link).is_some_and(Link::is_silent) {
            return self.reset_link(link, End::Far);
        }
        if let Some(entry) = self.links.get_mut(link).filter(|link| link.stalled_until > now) {
            entry.stalled_until = now;
            self.break_link(link);
            // What was held up and is not lost arrives now, and then the end of the link.
            self.start_reading(link, End::Near);
            self.start_reading(link, End::Far);
        }
    }

    /// Until when nothing gets through between a client and a node.
    pub(crate) fn cut_between(&self, client: usize, node: usize) -> Tick {
        let pair = self.cuts.iter().filter(|(a, b, _)| (*a, *b) == (client, node));
        pair.map(|(_, _, until)| *until).max().unwrap_or(Tick::ZERO)
    }

    pub(crate) fn is_alive(&self, process: usize) -> bool {
        self.processes[process].life == Life::Alive
    }

    fn some_process(&mut self, is_one: impl Fn(&Sim, usize) -> bool) -> Option<usize> {
        let slots = self.nodes.iter().flat_map(|node| node.slots.values().copied());
        let some: Vec<usize> = slots.filter(|process| is_one(self, *process)).collect();
        (!some.is_empty()).then(|| self.random.pick(&some))
    }

    fn kill_some(&mut self, is_one: impl Fn(&Sim, usize) -> bool) {
        if let Some(process) = self.some_process(is_one) {
            let cause =
                self.random.pick(&[DeathCause::Signal(9), DeathCause::Signal(11), DeathCause::Exit(1)]);
            self.kill(process, cause);
        }
    }

    fn pause_some(&mut self) {
        if let Some(process) = self.some_process(Sim::is_alive) {
            let span = self.random.span(Duration::from_micros(100)..Duration::from_secs(2));
            let signal = 19;
            self.processes[process].paused_until = self.now + span;
            let slot = self.processes[process].slot;
            self.zygote_says(process, &ZygoteToNode::Stopped { slot, signal });
            self.after(span, Event::Continues { process });
        }
    }

    /// The process is let go on, unless somebody has stopped it again meanwhile.
    pub(crate) fn continues(&mut self, process: usize) {
        if self.is_alive(process) && self.processes[process].paused_until <= self.now {
            let slot = self.processes[process].slot;
            self.zygote_says(process, &ZygoteToNode::Continued { slot });
        }
    }

    /// The zygote of this process, if there is one, tells its node.
    fn zygote_says(&mut self, process: usize, message: &ZygoteToNode) {
        let Process { node, program, .. } = self.processes[process];
        if let Some(zygote) = self.nodes[node].zygotes.get(&program) {
            let link = zygote.link;
            self.post(link, End::Near, encoded(|out| message.encode(out)), None, Repeat::Never);
        }
    }

    fn some_link(&mut self, is_one: impl Fn(Kind) -> bool) -> Option<LinkId> {
        let open = self.links.iter().filter(|(_, link)| link.open && is_one(link.kind));
        let some: Vec<LinkId> = open.map(|(id, _)| id).collect();
        (!some.is_empty()).then(|| self.random.pick(&some))
    }

    fn cut_some(&mut self, is_one: impl Fn(Kind) -> bool) {
        if let Some(link) = self.some_link(is_one) {
            self.note(|_| format!("{link:?} breaks"));
            self.break_link(link);
        }
    }

    fn lose_some_node(&mut self) {
        let node = self.random.below(self.nodes.len());
        let silent = self.random.percent(50);
        self.lose_node(node, silent);
        let beat = self.settings.node.heartbeat;
        let pause = self.random.span(Duration::from_millis(1)..beat * 6);
        self.after(pause, Event::NodeReturns { node });
    }

    fn partition_some_node(&mut self) {
        let node = self.random.below(self.nodes.len());
        let beat = self.settings.node.heartbeat;
        let until = self.now + self.random.span(beat / 2..beat * 8);
        let with_data = self.random.percent(50);
        self.partition(node, until, with_data);
    }

    /// Nothing gets through between the node and the head, or between the node and anybody.
    pub(crate) fn partition(&mut self, node: usize, until: Tick, with_data: bool) {
        self.ledger.tally.partitions += 1;
        self.note(|sim| {
            let name = &sim.nodes[node].name;
            format!("node {name} is cut off until {}, with its slots: {with_data}", until.0)
        });
        self.nodes[node].cut_off_until = self.nodes[node].cut_off_until.max(until);
        let is_data = |kind| matches!(kind, Kind::Data(data) if data.node == node);
        for link in self.links_of(|kind| kind.is_of_node(node) || with_data && is_data(kind)) {
            self.stall(link, until);
        }
    }

    fn end_some_client(&mut self, dies: bool) {
        let roots: Vec<usize> =
            (0..self.clients.len()).filter(|client| self.clients[*client].slot.is_none()).collect();
        let client = self.random.pick(&roots);
        if roots.len() < MOST_CLIENTS && self.clients[client].alive {
            self.end_client(client, dies);
            let next = self.add_client(&format!("client-{}", self.clients.len()));
            self.agenda.add(self.now, Event::Acts { client: next });
        }
    }

    /// Nothing goes wrong from here on, and what stood still goes on.
    pub(crate) fn heal(&mut self) {
        self.plan.active = false;
        // Of two heads somebody stops one.
        while let [_, second, ..] = self.heads_alive()[..] {
            self.head_dies(second, false, None);
        }
        // Connections to one that is gone for good end some day, whoever looks.
        let alive = self.heads_alive();
        for link in self.links_of(|kind| kind.head().is_some_and(|head| !alive.contains(&head))) {
            self.reset_link(link, End::Far);
        }
        for process in &mut self.processes {
            process.slowness = 1;
        }
    }
}
