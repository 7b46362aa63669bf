//! A slot process: its two threads, its page, and the calls it runs.
//!
//! It behaves like the real one: while user code runs, bytes stay unread until the companion takes over after 200 us;
//! replies are sent when no call waits, or after 200 us.

mod calls;

use crate::actors::Guest;
use crate::head::encoded;
use crate::ledger::RunState;
use crate::link::{Data, End, Kind, LinkId, Repeat};
use crate::trace::{brief_from, brief_to};
use crate::world::{Event, Machine, Sim};
use paceline_core::Tick;
use paceline_core::slot::{Effect, Slot};
use paceline_proto::control::{SlotToNode, ZygoteToNode};
use paceline_proto::data::{Call, Environment, FromSlot, Status, ToSlot};
use paceline_proto::{
    ClientId, DeathCause, Devices, FunctionId, LeaseId, LeaseSecret, ProgramId, Seq, SlotId,
};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

const FLUSH_AFTER: Duration = Duration::from_micros(200);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Life {
    /// The zygote has not forked it.
    Unborn,
    Starting,
    Alive,
    Dead,
}

/// What the slot shares with its node.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Page {
    pub running: Option<Seq>,
    pub finished: Seq,
    /// The slot ends itself because what runs has had its time and does not stop.
    pub gave_up: bool,
}

pub(crate) struct Process {
    pub node: usize,
    pub slot: SlotId,
    pub program: ProgramId,
    pub control: LinkId,
    pub life: Life,
    pub page: Page,
    pub core: Slot,
    /// Whose it is.
    pub client: Option<ClientId>,
    /// The GPUs it may use until it is dead, and how much of each.
    pub devices: Devices,
    pub share: u64,
    /// It was ended because it had more memory than it may.
    pub exceeded: bool,
    /// It was ended because it stood still, after this signal.
    pub stopped: Option<i32>,
    /// The work that it has become.
    pub work: Option<usize>,
    /// The client that it is itself, once a task of its has submitted tasks.
    pub nested: Option<usize>,
    /// The last lease under which a task waited for others.
    pub waited_under: Option<LeaseId>,
    pub data: Option<LinkId>,
    /// Other clients that call the actor in it.
    pub guests: BTreeMap<LeaseId, Guest>,
    /// Their calls on the page, by number. A guest's stay there when it goes, until another has its number.
    pub guest_pages: BTreeMap<u32, (LeaseId, Page)>,
    /// The guest that was served last.
    turn: Option<LeaseId>,
    pub busy: Option<Busy>,
    /// What goes on beside it.
    pub beside: Vec<Busy>,
    pub exits: bool,
    pub paused_until: Tick,
    /// Runs take this many times as long.
    pub slowness: u32,
    /// How often a function came, repeated messages aside.
    defined: BTreeMap<FunctionId, u32>,
    leases: Vec<LeaseId>,
    /// Leases that a client was told to have on it; it may never have heard of them.
    pub granted: Vec<LeaseId>,
    environment: Option<Environment>,
    /// What arrived and nobody has read. None: the end of the link.
    inbox: VecDeque<Option<(ToSlot, bool)>>,
    pub companion_serves: bool,
    detaching: Option<LeaseId>,
    last_flush: Tick,
    runs: u64,
    /// The pool that it is in, and the standing calls that it has applied.
    pub pool: Option<usize>,
    pub applied: Vec<usize>,
}

/// User code that runs.
pub(crate) struct Busy {
    pub run: u64,
    pub task: usize,
    pub call: Call,
    /// Whose call it is, if it is a guest's, and what that guest is to the page.
    pub guest: Option<(LeaseId, u32)>,
    began: Tick,
    /// It was told to stop.
    pub stops: Option<Status>,
    /// What it submitted and waits for, one after the other; and how many it has waited for.
    pub children: Vec<usize>,
    pub waited_for: usize,
    pub waits: bool,
    /// It may not leave its CPUs to them.
    pub too_deep: bool,
}

impl Process {
    pub fn new(node: usize, slot: SlotId, program: ProgramId, control: LinkId) -> Process {
        Process {
            node,
            slot,
            program,
            control,
            life: Life::Unborn,
            page: Page::default(),
            core: Slot::default(),
            client: None,
            devices: Devices::default(),
            share: 0,
            exceeded: false,
            stopped: None,
            work: None,
            nested: None,
            waited_under: None,
            data: None,
            guests: BTreeMap::new(),
            guest_pages: BTreeMap::new(),
            turn: None,
            busy: None,
            beside: Vec::new(),
            exits: false,
            paused_until: Tick::ZERO,
            slowness: 1,
            defined: BTreeMap::new(),
            leases: Vec::new(),
            granted: Vec::new(),
            environment: None,
            inbox: VecDeque::new(),
            companion_serves: false,
            detaching: None,
            last_flush: Tick::ZERO,
            runs: 0,
            pool: None,
            applied: Vec::new(),
        }
    }

    /// Whether this is the connection of its own client, or of a guest.
    pub fn has_link(&self, link: LinkId) -> bool {
        self.data == Some(link) || self.guests.values().any(|guest| guest.data == Some(link))
    }

    /// A guest brought a function along.
    pub(crate) fn knows(&mut self, function: FunctionId) {
        self.defined.entry(function).or_default();
    }

    /// The next call, in turn: its own client's and each guest's.
    fn next_call(&mut self) -> Option<(Option<LeaseId>, Call)> {
        let mut all: Vec<Option<LeaseId>> = vec![None];
        all.extend(self.guests.keys().map(|lease| Some(*lease)));
        let after = all.iter().position(|who| *who > self.turn).unwrap_or(0);
        all.rotate_left(after);
        for who in all {
            let call = match who {
                None => self.core.claim(),
                Some(lease) => self.guests.get_mut(&lease).and_then(|guest| guest.core.claim()),
            };
            if let Some(call) = call {
                self.turn = who;
                return Some((who, call));
            }
        }
        None
    }

    pub(crate) fn running(&self, run: u64) -> bool {
        self.life == Life::Alive && self.busy.as_ref().is_some_and(|busy| busy.run == run)
    }
}

impl Sim {
    pub(crate) fn slot_name(&self, process: usize) -> String {
        let Process { node, slot, .. } = &self.processes[process];
        format!("{}/{slot}", self.nodes[*node].name)
    }

    pub(crate) fn slot_starts(&mut self, process: usize) {
        let entry = &mut self.processes[process];
        if entry.life != Life::Starting {
            return;
        }
        entry.life = Life::Alive;
        let (slot, control) = (entry.slot, entry.control);
        self.slot_tells_node(process, &SlotToNode::Ready { slot, pid: process as u32 + 1 });
        self.start_reading(control, End::Far);
    }

    /// The process ends now. Its node hears of it from the zygote, or by itself if there is none.
    pub(crate) fn kill(&mut self, process: usize, cause: DeathCause) {
        if !matches!(self.processes[process].life, Life::Starting | Life::Alive) {
            return;
        }
        self.ledger.tally.slot_deaths += 1;
        let unsent = self.processes[process].core.unsent() > 0;
        self.ledger.tally.unsent_deaths += u64::from(unsent);
        self.end_process(process, cause);
        let Process { node, slot, program, .. } = self.processes[process];
        match self.nodes[node].zygotes.get(&program) {
            Some(zygote) => {
                let link = zygote.link;
                let message = ZygoteToNode::Exited { slot, pid: process as u32 + 1, cause, peak: 0 };
                self.post(link, End::Near, encoded(|out| message.encode(out)), None, Repeat::Later);
            }
            None => self.after(Duration::from_millis(1), Event::Reaped { process }),
        }
    }

    /// Nothing of the process goes on. What it had sent still arrives.
    pub(crate) fn end_process(&mut self, process: usize, cause: DeathCause) {
        let entry = &mut self.processes[process];
        if entry.life == Life::Dead {
            return;
        }
        entry.life = Life::Dead;
        entry.inbox.clear();
        let (control, data, busy) = (entry.control, entry.data.take(), entry.busy.take());
        let guests: Vec<LinkId> = entry.guests.values_mut().filter_map(Guest::end).collect();
        self.note(|sim| {
            let page = sim.processes[process].page;
            format!("slot {} dies of {cause:?}, {page:?}", sim.slot_name(process))
        });
        let beside = std::mem::take(&mut self.processes[process].beside);
        for busy in busy.into_iter().chain(beside) {
            self.ledger.on_over(busy.task, process, RunState::Cut);
        }
        if let Some(nested) = self.processes[process].nested {
            self.end_client(nested, true);
        }
        self.close_end(control, End::Far);
        if cause != DeathCause::NodeLost
            && let Some(data) = data
        {
            self.close_end(data, End::Far);
        }
        if cause != DeathCause::NodeLost {
            guests.into_iter().for_each(|link| self.close_end(link, End::Far));
        }
    }

    pub(crate) fn slot_attaches(
        &mut self,
        process: usize,
        lease: LeaseId,
        secret: Option<LeaseSecret>,
        connection: Option<LinkId>,
    ) {
        let Some(id) = connection else { return };
        let Some(link) = self.links.get_mut(id) else { return };
        let Kind::Data(data) = link.kind else { panic!("only data links are attached") };
        link.kind = Kind::Data(Data { process: Some(process), ..data });
        // The two sides prove it to each other: head and node must have told them the same.
        let serving = self.clients[data.client].leases.get(&data.key);
        if let Some(serving) = serving.filter(|serving| serving.lease == lease) {
            assert_eq!(secret, Some(serving.secret), "{lease:?}: client and slot have different secrets");
        }
        let entry = &mut self.processes[process];
        if !entry.leases.contains(&lease) {
            self.ledger.tally.warm += u64::from(!entry.leases.is_empty());
            entry.leases.push(lease);
        }
        entry.core.attach(lease);
        entry.detaching = None;
        entry.inbox.clear();
        if let Some(older) = entry.data.replace(id) {
            self.close_end(older, End::Far);
        }
        self.note(|sim| format!("slot {} attaches {lease:?}", sim.slot_name(process)));
        self.start_reading(id, End::Far);
        self.touch(Machine::Slot(process));
    }

    pub(crate) fn slot_detaches(&mut self, process: usize, lease: LeaseId) {
        let entry = &mut self.processes[process];
        if entry.core.lease().is_some_and(|own| own != lease) {
            // A guest's that never came, or a word that came twice. What the page says is of its own lease.
            return;
        }
        if entry.core.lease() == Some(lease) {
            entry.core.detach(lease);
            entry.exits |= !entry.beside.is_empty();
            entry.inbox.clear();
            if let Some(data) = entry.data.take() {
                self.close_end(data, End::Far);
            }
        }
        let entry = &mut self.processes[process];
        if entry.busy.is_some() {
            entry.detaching = Some(lease);
        } else {
            entry.page = Page::default();
            self.slot_tells_node(process, &SlotToNode::Detached { lease });
        }
        self.touch(Machine::Slot(process));
        self.advance(process);
    }

    /// The node is gone: so is the slot, a moment later.
    pub(crate) fn slot_loses_node(&mut self, process: usize) {
        let delay = self.random.span(Duration::from_millis(1)..Duration::from_millis(500));
        self.after(delay, Event::Leaves { process });
    }

    pub(crate) fn leaves(&mut self, process: usize) {
        self.kill(process, DeathCause::Exit(1));
    }

    pub(crate) fn slot_hears_client(
        &mut self,
        process: usize,
        link: LinkId,
        message: ToSlot,
        repeated: bool,
    ) {
        if self.processes[process].data != Some(link) {
            self.guest_speaks(process, link, Some((message, repeated)));
            return;
        }
        self.processes[process].inbox.push_back(Some((message, repeated)));
        self.serve(process);
    }

    pub(crate) fn slot_loses_client(&mut self, link: LinkId, data: Data) {
        let Some(process) = data.process else { return };
        if self.processes[process].data == Some(link) {
            self.processes[process].inbox.push_back(None);
            self.serve(process);
        } else {
            self.guest_speaks(process, link, None);
        }
    }

    /// Bytes are there: the main thread reads them if it is idle, the companion if it serves the link.
    pub(crate) fn serve(&mut self, process: usize) {
        let entry = &self.processes[process];
        if entry.busy.is_none() {
            self.advance(process);
        } else if entry.companion_serves {
            self.receive(process);
            self.flush(process);
        }
    }

    pub(crate) fn receive(&mut self, process: usize) {
        while let Some(item) = self.processes[process].inbox.pop_front() {
            match item {
                None => self.processes[process].data = None,
                Some((message, repeated)) => self.take_message(process, message, repeated),
            }
        }
        self.guests_receive(process);
        self.touch(Machine::Slot(process));
    }

    fn take_message(&mut self, process: usize, message: ToSlot, repeated: bool) {
        self.note(|sim| format!("slot {} <- {}", sim.slot_name(process), brief_to(&message)));
        if let ToSlot::Hello(hello) = &message {
            let root = self.root_of(hello.client.0 as usize - 1);
            let root = self.clients[root].id;
            assert_eq!(Some(root), self.processes[process].client, "a stranger in the slot");
        }
        let mut effects = Vec::new();
        self.processes[process].core.on_message(message, &mut effects);
        for effect in effects {
            match effect {
                Effect::Send(message) => self.slot_sends(process, &message),
                Effect::Define { function, .. } => self.defines(process, function, repeated),
                Effect::Environment(environment) => self.processes[process].environment = Some(environment),
                Effect::Interrupt { call } if self.stop_beside(process, call) => {}
                Effect::Interrupt { call } => self.stop_run(process, None, call, Status::Cancelled),
                Effect::Die { call } => {
                    let entry = &self.processes[process];
                    let mut runs = entry.busy.iter().chain(&entry.beside).map(|busy| busy.call.seq);
                    assert!(runs.any(|run| run == call), "only what runs is a reason to die");
                    self.kill(process, DeathCause::Signal(9));
                }
            }
        }
    }

    fn defines(&mut self, process: usize, function: FunctionId, repeated: bool) {
        if repeated {
            return;
        }
        let entry = &mut self.processes[process];
        let count = entry.defined.entry(function).or_default();
        *count += 1;
        let forgotten: u32 = entry.granted.iter().map(|lease| self.ledger.forgotten(*lease)).sum();
        assert!(*count <= 1 + forgotten, "CL-6: a function came {count} times");
    }

    pub(crate) fn flush(&mut self, process: usize) {
        self.guests_flush(process);
        let now = self.now;
        let entry = &mut self.processes[process];
        if entry.data.is_none() {
            return;
        }
        entry.last_flush = now;
        let Some(message) = entry.core.replies_to_send() else { return };
        self.slot_sends(process, &message);
    }

    pub(crate) fn slot_sends(&mut self, process: usize, message: &FromSlot) {
        let entry = &self.processes[process];
        let Some(data) = entry.data else { return };
        if let (FromSlot::Replies { replies, .. }, Some(lease)) = (message, entry.core.lease()) {
            for reply in replies.iter().filter(|reply| reply.status == Status::Withdrawn) {
                self.ledger.on_given_back(lease, reply.seq);
            }
        }
        self.note(|sim| format!("slot {} -> {}", sim.slot_name(process), brief_from(message)));
        self.post(data, End::Near, encoded(|out| message.encode(out)), None, Repeat::Later);
    }
}
