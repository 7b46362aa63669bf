//! The simulated world: the machines, what is between them, and the one queue of events that moves them.
//!
//! Owns: virtual time and everything that the shells own in the real world. A step is one event; the machines it
//! touched are checked after it.

use crate::actors::Actor;
use crate::agenda::Agenda;
use crate::client::ClientHost;
use crate::faults::Plan;
use crate::group::Group;
use crate::head::HeadHost;
use crate::isolation::Isolation;
use crate::ledger::Ledger;
use crate::link::{Arrival, Delay, End, Kind, LinkId, Links, Repeat};
use crate::load::Load;
use crate::news::News;
use crate::node::NodeHost;
use crate::pool::{Pool, Update, Wait};
use crate::process::{Life, Process};
use crate::random::Random;
use crate::rivals::Rivals;
use crate::trace::{Trace, Tracing};
use crate::works::Errand;
use paceline_core::client::LeaseKey;
use paceline_core::{Tick, client, head, node};
use paceline_proto::control::{
    ClientToHead, HeadToClient, HeadToNode, NodeToHead, NodeToSlot, NodeToZygote, SlotToNode, ZygoteToNode,
};
use paceline_proto::data::{FromSlot, ToSlot};
use paceline_proto::frame::Frame;
use paceline_proto::{LeaseId, ProgramId};
use std::collections::BTreeSet;
use std::time::Duration;

/// When a simulation begins: not at zero, which means "never" here and there.
pub(crate) const START: Tick = Tick(1_000_000_000);

/// A cluster under simulation.
pub struct Sim {
    pub(crate) now: Tick,
    pub(crate) random: Random,
    pub(crate) agenda: Agenda<Event>,
    pub(crate) links: Links,
    pub(crate) heads: Vec<HeadHost>,
    pub(crate) nodes: Vec<NodeHost>,
    /// Clients and nodes between which nothing gets through before then.
    pub(crate) cuts: Vec<(usize, usize, Tick)>,
    pub(crate) clients: Vec<ClientHost>,
    pub(crate) processes: Vec<Process>,
    pub(crate) works: Vec<Errand>,
    pub(crate) groups: Vec<Group>,
    pub(crate) actors: Vec<Actor>,
    pub(crate) pools: Vec<Pool>,
    pub(crate) waits: Vec<Wait>,
    pub(crate) updates: Vec<Update>,
    pub(crate) ledger: Ledger,
    pub(crate) settings: Settings,
    pub(crate) plan: Plan,
    pub(crate) load: Load,
    pub(crate) isolation: Option<Isolation>,
    pub(crate) rivals: Option<Rivals>,
    pub(crate) trace: Trace,
    /// Draws the rates of clocks, where they differ.
    pub(crate) clocks: Option<Random>,
    /// Where the timing of a head comes from that is started again; it is always the same if there is none.
    pub(crate) timings: Option<Random>,
    pub(crate) news: Vec<News>,
    /// Whether news are kept.
    pub(crate) tells: bool,
    touched: BTreeSet<Machine>,
    pub(crate) steps: u64,
    /// The seed and the number of steps that lead here again.
    replay: Option<(u64, u64)>,
}

/// How the world is, faults apart.
pub(crate) struct Settings {
    pub head: head::Config,
    pub client: client::Config,
    /// A node's settings; its id, incarnation and size are filled in.
    pub node: node::Config,
    pub delays: Vec<Delay>,
    /// Share of messages that come twice, where the protocol bears it.
    pub repeat_percent: u64,
    /// Calls that are not urgent wait this long for company at most.
    pub batch: Duration,
    pub fork: Delay,
    /// What was told to stop and goes on for this long is killed with its slot.
    pub grace: Duration,
    /// Timers are late by up to this.
    pub late: Duration,
    /// The longest time until a peer looks for its head again; none: longer than a head waits for it.
    pub redial: Option<Duration>,
}

/// A machine that a step touched.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Machine {
    Head(usize),
    Node(usize),
    Client(usize),
    Slot(usize),
}

/// What happens at some time.
#[derive(Debug)]
pub(crate) enum Event {
    Deliver {
        link: LinkId,
        to: End,
    },
    Again {
        link: LinkId,
        to: End,
        frame: Frame,
    },
    WakeHead {
        head: usize,
        at: Tick,
    },
    /// The journal's queue wants to look again.
    WakeJournal {
        head: usize,
        at: Tick,
    },
    /// The disk under a journal has done what it was asked for.
    DiskAnswers {
        head: usize,
        number: u64,
    },
    HeadStarts {
        head: usize,
    },
    /// A connection on which nothing has got through for so long is given up.
    GivesUp {
        link: LinkId,
    },
    WakeNode {
        node: usize,
        at: Tick,
    },
    WakeClient {
        client: usize,
        at: Tick,
    },
    ZygoteStarts {
        node: usize,
        program: ProgramId,
        zygote: u64,
        fine: bool,
    },
    Forks {
        node: usize,
        zygote: u64,
        process: usize,
    },
    SlotStarts {
        process: usize,
    },
    /// The node notices the end of a process without being told by its zygote.
    /// A process that was stopped is let go on.
    Continues {
        process: usize,
    },
    Reaped {
        process: usize,
    },
    NodeGoesOn {
        node: usize,
    },
    HeadGoesOn {
        head: usize,
    },
    ClientGoesOn {
        client: usize,
    },
    /// Slots may have to have ended whose node stands still.
    ZygotesKill {
        node: usize,
    },
    NodeConnects {
        node: usize,
    },
    NodeReturns {
        node: usize,
    },
    ClientConnects {
        client: usize,
    },
    Connected {
        link: LinkId,
    },
    Arrives {
        link: LinkId,
    },
    Reconnects {
        client: usize,
        key: LeaseKey,
        lease: LeaseId,
    },
    Flushes {
        client: usize,
    },
    TellsBegun {
        process: usize,
    },
    RunEnds {
        process: usize,
        run: u64,
    },
    Nests {
        process: usize,
        run: u64,
    },
    WaitsAgain {
        process: usize,
        run: u64,
    },
    Companion {
        process: usize,
        run: u64,
    },
    Announces {
        process: usize,
        run: u64,
    },
    TimesOut {
        process: usize,
        run: u64,
    },
    Stops {
        process: usize,
        run: u64,
    },
    Leaves {
        process: usize,
    },
    Acts {
        client: usize,
    },
    /// Its client has no more use for a group.
    GroupEnds {
        group: usize,
    },
    PoolEnds {
        pool: usize,
    },
    Fault,
    /// The node of an actor is cut off from the head.
    Isolates,
    IsolatedStalls {
        node: usize,
        span: Duration,
    },
    /// A later head is started beside the one that is there.
    RivalStarts,
    RivalsNodeIsCutOff {
        node: usize,
    },
    Submits {
        work: usize,
    },
    WorkEnds {
        process: usize,
    },
    StopsWork {
        work: usize,
    },
}

impl Sim {
    pub(crate) fn empty(replay: Option<(u64, u64)>, settings: Settings, tracing: Tracing) -> Sim {
        let mut sim = Sim {
            now: START,
            random: Random::new(replay.map_or(0, |(seed, _)| seed)),
            agenda: Agenda::new(),
            links: Links::default(),
            heads: vec![HeadHost::first()],
            nodes: Vec::new(),
            cuts: Vec::new(),
            clients: Vec::new(),
            processes: Vec::new(),
            works: Vec::new(),
            groups: Vec::new(),
            actors: Vec::new(),
            pools: Vec::new(),
            waits: Vec::new(),
            updates: Vec::new(),
            ledger: Ledger::default(),
            settings,
            plan: Plan::default(),
            load: Load::default(),
            isolation: None,
            rivals: None,
            trace: Trace::new(tracing),
            clocks: None,
            timings: None,
            news: Vec::new(),
            tells: replay.is_none(),
            touched: BTreeSet::new(),
            steps: 0,
            replay,
        };
        sim.head_starts(0);
        sim
    }

    /// One event. False if there is none left.
    pub(crate) fn step(&mut self) -> bool {
        let Some((at, event)) = self.agenda.pop() else { return false };
        self.now = self.now.max(at);
        self.steps += 1;
        self.dispatch(event);
        self.check();
        true
    }

    fn dispatch(&mut self, event: Event) {
        match event {
            Event::Deliver { link, to } => self.deliver(link, to),
            Event::Again { link, to, frame } => self.deliver_again(link, to, frame),
            Event::WakeHead { head, at } => self.wake_head(head, at),
            Event::WakeJournal { head, at } => self.wake_journal(head, at),
            Event::DiskAnswers { head, number } => self.disk_answers(head, number),
            Event::HeadStarts { head } => {
                // In peace there is one.
                if self.plan.active || self.heads_alive().is_empty() {
                    self.head_starts(head);
                }
            }
            Event::GivesUp { link } => self.gives_up(link),
            Event::WakeNode { node, at } => self.wake_node(node, at),
            Event::WakeClient { client, at } => self.wake_client(client, at),
            Event::ZygoteStarts { node, program, zygote, fine } => {
                self.zygote_starts(node, program, zygote, fine);
            }
            Event::Forks { node, zygote, process } => self.zygote_forks(node, zygote, process),
            Event::SlotStarts { process } => self.slot_starts(process),
            Event::Continues { process } => self.continues(process),
            Event::Reaped { process } => self.reaped(process),
            Event::NodeGoesOn { node } => self.node_goes_on(node),
            Event::HeadGoesOn { head } => self.head_goes_on(head),
            Event::ClientGoesOn { client } => self.client_goes_on(client),
            Event::ZygotesKill { node } => self.zygotes_kill(node),
            Event::NodeConnects { node } => self.node_connects(node),
            Event::NodeReturns { node } => self.node_returns(node),
            Event::ClientConnects { client } => self.client_connects(client),
            Event::Connected { link } => self.connected(link),
            Event::Arrives { link } => self.connection_arrives(link),
            Event::Reconnects { client, key, lease } => self.reconnects(client, key, lease),
            Event::Flushes { client } => match self.clients[client].standstill.until(self.now) {
                Some(until) => self.agenda.add(until, Event::Flushes { client }),
                None => self.flush_client(client),
            },
            Event::TellsBegun { process } => self.tells_begun(process),
            Event::RunEnds { process, run } => self.run_ends(process, run),
            Event::Nests { process, run } => self.nests(process, run),
            Event::WaitsAgain { process, run } => self.waits_again(process, run),
            Event::Companion { process, run } => self.companion_looks(process, run),
            Event::Announces { process, run } => self.announces(process, run),
            Event::TimesOut { process, run } => self.times_out(process, run),
            Event::Stops { process, run } => self.stops(process, run),
            Event::Leaves { process } => self.leaves(process),
            Event::Acts { client } => match self.clients[client].standstill.until(self.now) {
                Some(until) => self.agenda.add(until, Event::Acts { client }),
                None => self.client_acts(client),
            },
            Event::GroupEnds { group } => self.close_group(group),
            Event::PoolEnds { pool } => self.pool_ends(pool),
            Event::Fault => self.fault(),
            Event::Isolates => self.isolates(),
            Event::IsolatedStalls { node, span } => self.isolated_stalls(node, span),
            Event::RivalStarts => self.rival_starts(),
            Event::RivalsNodeIsCutOff { node } => self.rivals_node_is_cut_off(node),
            Event::Submits { work } => self.submits(work),
            Event::WorkEnds { process } => self.work_ends(process),
            Event::StopsWork { work } => self.stops_work(work),
        }
    }

    pub(crate) fn after(&mut self, span: Duration, event: Event) {
        self.agenda.add(self.now + span, event);
    }

    pub(crate) fn note(&mut self, text: impl FnOnce(&Sim) -> String) {
        if self.trace.is_on() {
            let text = text(self);
            self.trace.add(self.now, &text);
        }
    }

    pub(crate) fn touch(&mut self, machine: Machine) {
        self.touched.insert(machine);
    }

    /// The machines that this step touched, and what they must agree on. Untouched ones were checked when they changed.
    fn check(&mut self) {
        while let Some(machine) = self.touched.pop_first() {
            let result = match machine {
                Machine::Head(at) => {
                    let core = self.heads[at].core.as_ref().map_or(Ok(()), |core| core.check());
                    core.and_then(|()| self.check_works())
                }
                Machine::Node(node) => self.check_node(node),
                Machine::Client(client) => self.clients[client].core.check(),
                Machine::Slot(process) => {
                    let process = &self.processes[process];
                    let mut guests = process.guests.values();
                    process.core.check().and_then(|()| guests.try_for_each(|guest| guest.core.check()))
                }
            };
            result.unwrap_or_else(|broken| panic!("{broken}"));
        }
    }

    fn deliver(&mut self, id: LinkId, to: End) {
        let Some(link) = self.links.get(id) else { return };
        let (kind, stalled_until) = (link.kind, link.stalled_until);
        if stalled_until > self.now {
            self.agenda.add(stalled_until, Event::Deliver { link: id, to });
            return;
        }
        if let Some(resumes) = self.reads_again_at(kind, to) {
            self.agenda.add(resumes, Event::Deliver { link: id, to });
            return;
        }
        if !self.reads(id, kind, to) {
            return;
        }
        let piece = self.random.next() as usize;
        let Some(arrival) = self.links.get_mut(id).and_then(|link| link.take(self.now, to, piece)) else {
            return;
        };
        match arrival {
            Arrival::End => {
                self.links.leave(id, to);
                self.on_end(id, kind, to);
            }
            Arrival::Frame { frame, connection, repeat } => {
                let twice = repeat != Repeat::Never && self.random.percent(self.settings.repeat_percent);
                if twice && repeat == Repeat::Later && self.random.percent(50) {
                    let delay = self.random.span(Duration::from_micros(1)..Duration::from_millis(5));
                    self.after(delay, Event::Again { link: id, to, frame: frame.clone() });
                } else if twice {
                    self.ledger.tally.repeats += 1;
                    self.on_frame(id, kind, to, frame.clone(), connection, false);
                    return self.on_frame(id, kind, to, frame, connection, true);
                }
                self.on_frame(id, kind, to, frame, connection, false);
                if matches!(kind, Kind::Data(_)) && self.plan.active && self.random.percent(self.plan.cuts) {
                    self.break_link(id);
                }
            }
        }
    }

    /// A message comes again, later: only while its link lives.
    fn deliver_again(&mut self, id: LinkId, to: End, frame: Frame) {
        let Some(link) = self.links.get(id).filter(|link| link.open) else { return };
        let kind = link.kind;
        let reads = self.reads_again_at(kind, to).is_none() && self.reads(id, kind, to);
        if link.stalled_until > self.now || !reads {
            return;
        }
        self.ledger.tally.repeats += 1;
        self.on_frame(id, kind, to, frame, None, true);
    }

    /// Until when the process at this end stands still, if it does: what comes waits in its socket.
    fn reads_again_at(&self, kind: Kind, to: End) -> Option<Tick> {
        match (kind, to) {
            (Kind::Client { head, .. } | Kind::Node { head, .. }, End::Far) => {
                self.heads[head].standstill.until(self.now)
            }
            (Kind::Client { client, .. }, End::Near) => self.clients[client].standstill.until(self.now),
            (Kind::Node { node, .. } | Kind::Zygote { node, .. }, End::Near) => {
                self.nodes[node].standstill.until(self.now)
            }
            (Kind::Zygote { node, .. }, End::Far) => {
                Some(self.nodes[node].suspended_until).filter(|until| *until > self.now)
            }
            (Kind::Slot { process }, End::Near) => {
                self.nodes[self.processes[process].node].standstill.until(self.now)
            }
            (Kind::Data(data), End::Near) => self.clients[data.client].standstill.until(self.now),
            (Kind::Slot { process }, End::Far) => self.paused(process),
            (Kind::Data(data), End::Far) => self.paused(data.process?),
        }
    }

    fn paused(&self, process: usize) -> Option<Tick> {
        Some(self.processes[process].paused_until).filter(|until| *until > self.now)
    }

    /// Whether this end is there. A slot that has not started, or was not given the connection, reads later.
    fn reads(&self, id: LinkId, kind: Kind, to: End) -> bool {
        match (kind, to) {
            (Kind::Client { .. } | Kind::Node { .. } | Kind::Zygote { .. }, _) => true,
            (Kind::Slot { .. }, End::Near) => true,
            (Kind::Slot { process }, End::Far) => self.processes[process].life == Life::Alive,
            (Kind::Data(data), End::Far) => {
                data.process.is_some_and(|process| self.processes[process].has_link(id))
            }
            (Kind::Data(data), End::Near) => self.has_connected(id, data),
        }
    }

    fn on_frame(
        &mut self,
        id: LinkId,
        kind: Kind,
        to: End,
        frame: Frame,
        connection: Option<LinkId>,
        repeated: bool,
    ) {
        const SENT: &str = "what was sent can be read";
        match (kind, to) {
            (Kind::Client { client, head }, End::Far) => {
                self.head_hears_client(head, id, client, ClientToHead::decode(&frame).expect(SENT));
            }
            (Kind::Client { client, .. }, End::Near) => {
                self.client_hears_head(id, client, HeadToClient::decode(&frame).expect(SENT));
            }
            (Kind::Node { node, head }, End::Far) => {
                self.head_hears_node(head, id, node, NodeToHead::decode(&frame).expect(SENT));
            }
            (Kind::Node { node, .. }, End::Near) => {
                self.node_hears_head(id, node, HeadToNode::decode(&frame).expect(SENT));
            }
            (Kind::Slot { process }, End::Far) => {
                self.slot_hears_node(process, NodeToSlot::decode(&frame).expect(SENT), connection);
            }
            (Kind::Slot { process }, End::Near) => {
                self.node_hears_slot(process, SlotToNode::decode(&frame).expect(SENT));
            }
            (Kind::Zygote { node, zygote }, End::Far) => {
                self.zygote_hears(node, zygote, NodeToZygote::decode(&frame).expect(SENT));
            }
            (Kind::Zygote { node, zygote }, End::Near) => {
                self.node_hears_zygote(node, zygote, ZygoteToNode::decode(&frame).expect(SENT));
            }
            (Kind::Data(data), End::Far) => {
                let process = data.process.expect("only an attached slot reads");
                self.slot_hears_client(process, id, ToSlot::decode(frame).expect(SENT), repeated);
            }
            (Kind::Data(data), End::Near) => {
                self.client_hears_slot(id, data, FromSlot::decode(frame).expect(SENT));
            }
        }
    }

    fn on_end(&mut self, id: LinkId, kind: Kind, to: End) {
        match (kind, to) {
            (Kind::Client { client, head }, End::Far) => self.head_loses_client(head, id, client),
            (Kind::Client { client, .. }, End::Near) => self.client_loses_head(id, client),
            (Kind::Node { node, head }, End::Far) => self.head_loses_node(head, id, node),
            (Kind::Node { node, .. }, End::Near) => self.node_loses_head(id, node),
            (Kind::Slot { process }, End::Far) => self.slot_loses_node(process),
            // Ends of processes are told by their zygote, never by the end of a link alone.
            (Kind::Slot { .. } | Kind::Zygote { .. }, _) => {}
            (Kind::Data(data), End::Far) => self.slot_loses_client(id, data),
            (Kind::Data(data), End::Near) => self.client_loses_slot(id, data),
        }
    }

    /// How late a timer is.
    pub(crate) fn lateness(&mut self) -> Duration {
        let late = self.settings.late;
        if late.is_zero() {
            late
        } else {
            Duration::from_nanos(self.random.within(0..late.as_nanos() as u64))
        }
    }

    /// The delay of a new link.
    pub(crate) fn some_delay(&mut self) -> Delay {
        self.random.pick(&self.settings.delays)
    }
}

impl Drop for Sim {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.trace.print();
            eprintln!("failed in step {} at {:?}", self.steps, self.now.since(Tick::ZERO));
            if let Some((seed, steps)) = self.replay {
                eprintln!("replay: cargo run -p paceline-sim -- --seed {seed} --steps {steps} --verbose");
            }
        }
    }
}
