//! The client's dispatcher: which task goes to which slot, and what becomes of it.
//!
//! Owns: tasks from submission to their one outcome, the leases and what is in flight on each, the functions each slot
//! knows. Does not own: sockets, values, futures: a task carries an opaque `Ticket` that comes back with its outcome.
//!
//! * CL-1: every task ends exactly once.
//! * CL-2: a task is in one place: the queue of its shape, or in flight on one lease.
//! * CL-3: a call that was sent goes elsewhere only after its slot gave it back or is known dead.
//! * CL-4: a death is charged to the one call that ran; calls not begun are sent again for free.
//! * CL-5: first come, first served within one priority and shape, but for tasks that had better run on one node
//!   ([`apart`] says how far others may go past them).
//! * CL-7: each queue knows how many of its leases are busy, and which have calls ahead.
//! * CL-6: a function's bytes go to a slot once, before the first call that names it.
//!
//! One file an event family: [`dispatch`] (submitting, filling windows), [`room`] (how much may wait), [`replies`],
//! [`deaths`], [`withdraw`] (taking back), [`demand`] (how many leases to hold), [`links`] (grants and connections),
//! [`head`] (the link to the head, and its absence), [`group`] (leases that are there together or not at all), [`pool`]
//! (leases whose slots have state of their own), [`guests`] (actors of others, and actors that others call),
//! [`here`] (tasks that run in the client itself), [`programs`] (slots of other programs than the client's own).

mod apart;
mod deaths;
mod demand;
mod dispatch;
mod explain;
mod functions;
mod group;
mod guests;
mod head;
mod here;
mod lease;
mod links;
mod notices;
mod pool;
mod programs;
mod queue;
mod replies;
mod room;
mod shapes;
mod sharing;
mod task;
mod withdraw;

#[cfg(test)]
mod tests;

pub use explain::{TaskPlace, TaskStatus};
pub use functions::Estimate;
pub use guests::Card;
pub use here::Here;
pub use pool::{HistoryFull, PoolId, PoolSpec, Standing};
pub use programs::name as program_name;
pub use room::Waiting;
pub use task::{
    ActorDied, ActorGone, Charge, GroupLost, Lost, LostCause, Near, NoRoom, NotStarted, Outcome, PoolBroken,
    RetryOn, Spec, TaskKey, Unplaceable, Within,
};

use crate::Tick;
use functions::Functions;
use group::Groups;
use guests::Guests;
use head::HeadLink;
use lease::Lease;
use notices::Notices;
use paceline_proto::control::{ClientToHead, HeadToClient};
use paceline_proto::data::{Environment, FromSlot, ToSlot};
use paceline_proto::parts::carried;
use paceline_proto::{
    Bytes, ClientId, LeaseId, LeaseSecret, NodeId, ProgramId, Resources, Shape, Start, TaskId,
};
use pool::Pools;
use shapes::Shapes;
use sharing::Sharing;
use slab::Slab;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;
use task::Task;

/// The place of a lease in the client's table; reused after the lease has ended.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct LeaseKey(pub usize);

/// The settings of a client.
#[derive(Clone, Debug)]
pub struct Config {
    /// Work to keep ahead of each slot, in expected run time.
    pub ahead: Duration,
    /// Tasks expected to take longer than this are never sent ahead.
    pub long_task: Duration,
    /// At most this many calls in flight on one lease.
    pub max_window: usize,
    /// A slot that has answered nothing for this long may be running something long: take its waiting calls back.
    pub stall: Duration,
    /// How long an idle lease is kept.
    pub keep_idle: Duration,
    /// At most this many leases of one shape are asked for.
    pub max_leases: u32,
    /// This many deaths charged to one task end it.
    pub poison: u32,
    /// Beyond its first two calls, so many bytes of arguments are in flight on one lease.
    pub window_bytes: usize,
    /// Whoever submits is to wait while so many tasks have not been sent, or so many bytes of arguments.
    pub queue_tasks: usize,
    pub queue_bytes: usize,
    /// How often the head hears from us, and we from it. Zero where it is a part of this process: then nothing is timed.
    pub heartbeat: Duration,
    /// Without the head for this long, what waits for it ends.
    pub head_lost: Duration,
    /// What this client has been told for itself, whatever heads say (HL-5).
    pub own_heartbeat: Option<Duration>,
    pub own_head_lost: Option<Duration>,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            ahead: Duration::from_millis(1),
            long_task: Duration::from_millis(10),
            max_window: 512,
            stall: Duration::from_micros(300),
            keep_idle: Duration::from_millis(200),
            max_leases: 2000,
            poison: 3,
            window_bytes: 4 << 20,
            queue_tasks: 100_000,
            queue_bytes: 256_000_000,
            heartbeat: Duration::ZERO,
            head_lost: Duration::from_secs(60),
            own_heartbeat: None,
            own_head_lost: None,
        }
    }
}

/// What happens to a client, apart from submissions and cancellations, which are calls that return something.
#[derive(Clone, Debug)]
pub enum Event {
    FromHead(HeadToClient),
    /// The link to the head is up again: say who we are and what we want.
    HeadUp,
    /// The link to the head is gone.
    HeadDown,
    /// A data connection for the lease is open.
    LinkUp(LeaseKey),
    /// It broke; the slot may live.
    LinkDown(LeaseKey),
    FromSlot(LeaseKey, FromSlot),
    Tick,
}

/// What the shell must do, in order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Effect<Ticket> {
    /// To be dropped while there is no link to the head: everything that counts is said again when there is one.
    ToHead(ClientToHead),
    /// Close the link to the head, which is silent or no head any more, and open another. Nothing more is to be said
    /// about this one.
    DropHead,
    /// Open a data connection for the lease, whose slot is on this node.
    Open { key: LeaseKey, lease: LeaseId, node: NodeId, secret: LeaseSecret },
    /// The lease is over: close its connection, if any.
    Close { key: LeaseKey },
    /// Neither the slot of this lease nor the head was to be reached for three heartbeats: its calls go elsewhere, or end.
    Abandoned { lease: LeaseId, node: NodeId },
    /// Messages wait for this lease ([`Client::outgoing`]). `now`: its slot has nothing to do until they come.
    Send { key: LeaseKey, now: bool },
    /// The one outcome of a task.
    Finished { ticket: Ticket, task: TaskId, outcome: Outcome },
    /// A task was cancelled as it ran, and gave a value all the same, which keeps objects for whoever were to read it.
    Unclaimed { value: Bytes },
    /// The task is known to run.
    Started { ticket: Ticket },
    /// Hand in [`Event::Tick`] at this time, or a little later.
    WakeAt(Tick),
    /// To be said to people: so many tasks of so many requests have been waiting for room for a while, and for what the
    /// first of them does.
    Waits { tasks: usize, requests: usize, why: String },
}

/// What the client remembers about a slot across leases.
#[derive(Default)]
struct SlotMemory {
    functions: BTreeSet<paceline_proto::FunctionId>,
    environment: u64,
}

pub struct Client<Ticket> {
    config: Config,
    id: ClientId,
    name: String,
    tasks: Slab<Task<Ticket>>,
    next_task: TaskId,
    shapes: Shapes,
    waiting: Waiting,
    leases: Slab<Lease>,
    lease_keys: HashMap<LeaseId, LeaseKey>,
    slots: BTreeMap<lease::Home, SlotMemory>,
    functions: Functions,
    programs: BTreeMap<ProgramId, Start>,
    sharing: Sharing,
    notices: Notices,
    groups: Groups,
    guests: Guests,
    pools: Pools<Ticket>,
    environment: Environment,
    environment_version: u64,
    head: HeadLink,
    /// The lease of the slot that this client is, if it is one.
    under: Option<LeaseId>,
    wake: Option<Tick>,
    closed: bool,
    /// Who ended the cluster, if that is why it is closed.
    stopped: Option<Box<str>>,
}

impl<Ticket: Clone> Client<Ticket> {
    pub fn new(id: ClientId, name: &str, config: Config) -> Client<Ticket> {
        Client {
            head: HeadLink::new(&config),
            under: None,
            config,
            id,
            name: name.to_owned(),
            tasks: Slab::new(),
            next_task: TaskId(1),
            shapes: Shapes::default(),
            waiting: Waiting::default(),
            leases: Slab::new(),
            lease_keys: HashMap::new(),
            slots: BTreeMap::new(),
            functions: Functions::default(),
            programs: BTreeMap::new(),
            sharing: Sharing::default(),
            notices: Notices::default(),
            groups: Groups::default(),
            guests: Guests::default(),
            pools: Pools::default(),
            environment: Environment::default(),
            environment_version: 0,
            wake: None,
            closed: false,
            stopped: None,
        }
    }

    pub fn handle(&mut self, now: Tick, event: Event, out: &mut Vec<Effect<Ticket>>) {
        match event {
            Event::FromHead(message) => self.on_head(now, message, out),
            Event::HeadUp => self.on_head_up(now, out),
            Event::HeadDown => self.on_head_down(now, out),
            Event::LinkUp(key) => self.on_link_up(now, key, out),
            Event::LinkDown(key) => self.on_link_down(now, key, out),
            Event::FromSlot(key, message) => self.on_slot(now, key, message, out),
            Event::Tick => self.on_tick(now, out),
        }
    }

    fn on_head(&mut self, now: Tick, message: HeadToClient, out: &mut Vec<Effect<Ticket>>) {
        if !self.on_heard(now, &message, out) {
            return;
        }
        match message {
            HeadToClient::Welcome { .. } | HeadToClient::Heartbeat { .. } => {}
            HeadToClient::Granted { lease, node, slot, shape, incarnation, secret, exclusive } => {
                let shape = self.shapes.key(&shape);
                let mut lease = Lease::new(now, lease, node, slot, shape, secret);
                (lease.incarnation, lease.exclusive) = (incarnation, exclusive);
                self.on_granted(now, lease, out);
            }
            HeadToClient::Recall { lease } => self.on_recall(now, lease, out),
            HeadToClient::Crowded { shape } => self.on_crowded(shape, out),
            HeadToClient::Ended { lease, death } => self.on_ended(now, lease, &death, out),
            HeadToClient::Unplaceable { shape, largest, why } => {
                self.on_unplaceable(shape, largest, &why, out);
            }
            HeadToClient::Refused { why } => self.on_refused(&why, out),
            HeadToClient::ProgramFailed { program, why } => self.on_program_failed(program, &why, out),
            // The shell prints and finds the way; nothing to decide.
            HeadToClient::Output { .. }
            | HeadToClient::NodeAt { .. }
            | HeadToClient::Via { .. }
            | HeadToClient::Over
            | HeadToClient::Answer { .. }
            | HeadToClient::Ask { .. }
            | HeadToClient::Bye { .. } => {}
            HeadToClient::Visiting { actor, lease, node, slot, secret } => {
                self.on_visiting(now, actor, (lease, node, slot, secret), out);
            }
            HeadToClient::ActorGone { actor, why } => self.on_actor_gone(actor, why, out),
            HeadToClient::ActorAway { actor, why } => self.on_actor_away(actor, why, out),
            HeadToClient::ActorKnown { actor, refused: None } => self.on_actor_known(actor),
            // The shell tells whoever waits for it.
            HeadToClient::ActorKnown { .. } | HeadToClient::NameHeld { .. } | HeadToClient::Found { .. } => {}
            HeadToClient::Waits { shape, why } => self.on_waits(now, shape, why, out),
        }
    }

    fn on_slot(&mut self, now: Tick, key: LeaseKey, message: FromSlot, out: &mut Vec<Effect<Ticket>>) {
        if !self.leases.contains(key.0) {
            return;
        }
        match message {
            FromSlot::Hello { received } => self.on_resumed(now, key, received, out),
            FromSlot::Replies { first, replies } => self.on_replies(now, key, first, replies, out),
            FromSlot::Running { call } => self.on_running(now, key, call, out),
            FromSlot::Begun { calls } => self.on_begun(now, key, &calls, out),
        }
    }

    fn on_tick(&mut self, now: Tick, out: &mut Vec<Effect<Ticket>>) {
        if self.wake.is_some_and(|wake| wake <= now) {
            self.wake = None;
        }
        for shape in self.shapes.keys() {
            if self.shapes[shape].is_stirred() {
                self.fill(now, shape, out);
                self.release_dry(shape, out);
                self.pool_changed(shape, out);
            }
            if !self.shapes[shape].apart.is_empty() {
                self.fill(now, shape, out);
            }
            self.balance(now, shape, out);
        }
        self.release_idle(now, out);
        self.end_patience(now, out);
        self.say_notices(now, out);
        self.head_on_time(now, out);
    }

    /// Ask for a tick at `at`, unless an earlier one is due.
    fn wake_at(&mut self, at: Tick, out: &mut Vec<Effect<Ticket>>) {
        if self.wake.is_none_or(|wake| at < wake) {
            self.wake = Some(at);
            out.push(Effect::WakeAt(at));
        }
    }

    /// Where user code will find itself. Slots hear of it before the next call they get.
    pub fn set_environment(&mut self, environment: Environment) {
        if self.environment != environment || self.environment_version == 0 {
            self.environment = environment;
            self.environment_version += 1;
        }
    }

    pub fn id(&self) -> ClientId {
        self.id
    }

    /// How many tasks have not ended.
    pub fn pending(&self) -> usize {
        self.tasks.len()
    }

    /// How many tasks have not been handed to a slot.
    pub fn queued(&self) -> usize {
        self.waiting.tasks
    }

    /// The cluster was ended by somebody else: what is pending ends with a word that says so.
    pub fn stop(&mut self, by: &str, out: &mut Vec<Effect<Ticket>>) {
        self.stopped = Some(by.into());
        self.close(out);
    }

    /// How a task ends for which nothing more can be done.
    pub fn closing(&self) -> Outcome {
        match &self.stopped {
            Some(by) => Outcome::Stopped { by: by.clone() },
            None => Outcome::Cancelled,
        }
    }

    /// End everything: what is pending is cancelled. Returns how many tasks that were.
    pub fn close(&mut self, out: &mut Vec<Effect<Ticket>>) -> usize {
        self.closed = true;
        self.shapes = Shapes::default();
        self.groups = Groups::default();
        self.guests = Guests::default();
        self.close_pools(out);
        self.waiting = Waiting::default();
        let mut count = 0;
        for (_, task) in std::mem::take(&mut self.tasks) {
            if let Some(ticket) = task.ticket {
                count += 1;
                out.push(Effect::Finished { ticket, task: task.id, outcome: self.closing() });
            }
        }
        for (key, _) in std::mem::take(&mut self.leases) {
            out.push(Effect::Close { key: LeaseKey(key) });
        }
        self.lease_keys.clear();
        self.head.forget_links();
        out.push(Effect::ToHead(ClientToHead::Bye));
        count
    }

    /// Move what waits to be sent on this lease into `messages`.
    pub fn outgoing(&mut self, key: LeaseKey, messages: &mut Vec<ToSlot>) {
        let Some(lease) = self.leases.get_mut(key.0) else { return };
        lease.drain_outgoing(messages);
    }

    /// How many calls wait to be sent on this lease, and their payload in bytes.
    pub fn outgoing_size(&self, key: LeaseKey) -> (usize, usize) {
        self.leases.get(key.0).map_or((0, 0), |lease| lease.outgoing_size())
    }

    fn on_unplaceable(&mut self, shape: Shape, largest: Resources, why: &str, out: &mut Vec<Effect<Ticket>>) {
        let Some(key) = self.shapes.find(&shape) else { return };
        let refused = Unplaceable { needs: shape.needs, largest, why: why.to_owned() };
        self.refuse_group(key, &refused);
        // Whoever submits such a task again is told again: a larger node may have come.
        self.want_nothing(key, out);
        for queue in self.queues_of(key) {
            for key in self.shapes[queue].drain() {
                self.waiting.remove(carried(&self.tasks[key.0].payload));
                self.finish_unplaced(key, Outcome::Unplaceable(Box::new(refused.clone())), out);
            }
        }
        self.refuse_pool(key, &refused, out);
    }

    /// The first broken invariant, if any.
    pub fn check(&self) -> Result<(), String> {
        let mut places: HashMap<TaskKey, u32> = HashMap::new();
        let mut waiting = Waiting::default();
        for (shape, _, queue) in self.shapes.iter() {
            for key in queue.iter() {
                waiting.add(self.tasks.get(key.0).map_or(0, |task| carried(&task.payload)));
                *places.entry(key).or_default() += 1;
                let task = self.tasks.get(key.0).ok_or(format!("CL-2: {key:?} is queued but unknown"))?;
                if task.shape != shape || task.sent.is_some() {
                    return Err(format!("CL-2: {:?} is queued wrongly", task.id));
                }
            }
        }
        if waiting != self.waiting {
            return Err(format!("RM-1: {waiting:?} wait, not {:?}", self.waiting));
        }
        self.shapes.iter().try_for_each(|(_, _, queue)| queue.apart.check())?;
        for tasks in self.shapes.iter().flat_map(|(_, _, queue)| queue.by_priority()) {
            if !tasks.iter().is_sorted_by_key(|key| self.tasks[key.0].id) {
                return Err("CL-5: tasks are queued out of order".into());
            }
        }
        for (shape, _, queue) in self.shapes.iter() {
            let mine = || self.leases.iter().filter(move |(_, lease)| lease.shape == shape);
            let busy = mine().filter(|(_, lease)| !lease.is_idle()).count();
            let ahead = mine().filter(|(_, lease)| lease.in_flight().len() > 1);
            if busy != queue.busy || !ahead.map(|(key, _)| LeaseKey(key)).eq(queue.ahead.iter().copied()) {
                return Err(format!("CL-7: {busy} leases are busy, not {}", queue.busy));
            }
        }
        for (index, lease) in &self.leases {
            lease.check()?;
            for call in lease.in_flight() {
                *places.entry(call.task).or_default() += 1;
                let task = self
                    .tasks
                    .get(call.task.0)
                    .ok_or(format!("CL-2: {:?} is in flight but unknown", call.seq))?;
                if task.sent != Some((LeaseKey(index), call.seq)) {
                    return Err(format!("CL-2: {:?} is in flight wrongly: {:?}", task.id, task.sent));
                }
            }
        }
        self.check_groups()?;
        self.check_guests()?;
        self.check_pools()?;
        match self.tasks.iter().find(|(key, _)| places.get(&TaskKey(*key)) != Some(&1)) {
            Some((_, task)) => Err(format!("CL-2: {:?} is not in exactly one place", task.id)),
            None => Ok(()),
        }
    }
}
