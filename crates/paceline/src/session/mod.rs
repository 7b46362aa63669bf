//! A client of one cluster.

mod asking;
mod groups;
mod payload;

pub(crate) use asking::{INTERRUPTED, WAIT_SLICE, received};
pub use groups::GroupPlace;
pub use payload::Payload;

use crate::aside::{Aside, Excess};
use crate::batch::Batch;
use crate::cell::{Cell, Ticket, Waiter};
use crate::embedded::{self, Embedded};
use crate::files::Files;
use crate::host::Host;
use crate::nested::{Blocked, Nest, Nested};
use crate::notify::{Enter, Notifier, Patience};
use crate::objects::Objects;
use crate::pump::{LEADER_WAKE, Leadership, Waited};
use crate::reactor;
use crate::remote::{self, Remote};
use crate::room::{Limits, Warn};
use crate::state::{Print, State, tick};
use crate::unclaimed;
use paceline_core::Tick;
use paceline_core::client::{Client, Config, Event, Here, Outcome, RetryOn, Spec, Within};
use paceline_net::kept::{self, Kept};
use paceline_net::poll::{self, Timer, Wake};
use paceline_net::secure::Secured;
use paceline_node::Whereabouts;
use paceline_proto::control::Timing;
use paceline_proto::data::Environment;
use paceline_proto::{Bytes, ClientId, FunctionId, NodeId, PlacementId, ProgramId, Rule, Start};
use paceline_slot::Runtime;
use parking_lot::Mutex;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{PollFd, PollFlags};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long a closing cluster may go on talking: slots have a second to leave.
const LAST_WORDS: Duration = Duration::from_secs(3);

/// How often client and head say that they live, and how long a client goes on without its head.
pub(crate) const HEARTBEAT: Duration = Duration::from_secs(2);
const HEAD_LOST: Duration = Duration::from_secs(60);

/// What the session's lock guards.
pub(crate) struct Guarded {
    pub inner: State,
    pub leadership: Leadership,
    /// When the reactor's timer fires.
    pub armed: Option<Tick>,
}

pub(crate) struct Shared {
    pub state: Mutex<Guarded>,
    pub links_epoll: Arc<Kept>,
    pub leader_wake: Wake,
    pub reactor_wake: Wake,
    pub timer: Timer,
    pub notifier: Arc<Notifier>,
    pub aside: Arc<Aside>,
    /// Tells the user that a limit cannot be kept.
    pub warn: Warn,
    closed: AtomicBool,
    /// The cluster has ended by itself.
    pub gone: AtomicBool,
    reactor: Mutex<Option<JoinHandle<()>>>,
    cpus: AtomicU64,
    name: String,
    generation: u32,
    /// The slot this session lives in, if it does.
    pub nest: Option<Nest>,
    id: ClientId,
    /// The link to the store, once it was needed.
    objects: Mutex<Option<Objects>>,
    /// Where its objects are, if they may be on several nodes.
    pub(crate) whereabouts: Option<Whereabouts>,
    files: Option<Files>,
}

/// What a session is opened on.
struct Place {
    host: Box<dyn Host>,
    control: Secured,
    nest: Option<Nest>,
    name: String,
    cpus: u64,
    id: ClientId,
    files: Option<Files>,
}

/// How often this process has forked off from the one before it. A session belongs to one of them.
static GENERATION: AtomicU32 = AtomicU32::new(0);

/// Which of them this process is.
pub(crate) fn generation() -> u32 {
    GENERATION.load(Ordering::SeqCst)
}

/// In a forked child: the sessions of the parent are the parent's, here they are closed. Their threads do not exist
/// here, so nothing of theirs is touched.
pub fn after_fork_in_child() {
    GENERATION.fetch_add(1, Ordering::SeqCst);
    // Dropping the last handle of one here must not end the parent's cluster. If the list is locked, a session was
    // being opened in another thread as this process was forked, and no handle of it can have got here.
    if let Some(mut sessions) = SESSIONS.try_lock() {
        sessions.drain(..).filter_map(|session| session.upgrade()).for_each(std::mem::forget);
    }
    kept::close_in_child();
}

static SESSIONS: Mutex<Vec<Weak<Shared>>> = Mutex::new(Vec::new());

impl Shared {
    pub(crate) fn closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst) || self.gone.load(Ordering::SeqCst) || self.is_foreign()
    }

    /// What the leader waits for may have come about without a message.
    pub(crate) fn wake_leader(&self, state: &Guarded) {
        if state.leadership.led {
            self.leader_wake.wake();
        }
    }

    fn is_foreign(&self) -> bool {
        self.generation != generation()
    }
}

/// A client of one cluster. Cheap to clone; the cluster ends with [`Session::close`].
#[derive(Clone)]
pub struct Session {
    pub(crate) shared: Arc<Shared>,
}

/// What to run, apart from its arguments.
#[derive(Clone, Copy, Debug)]
pub struct Submission {
    pub function: FunctionId,
    pub shape: paceline_proto::Shape,
    pub retries: u32,
    pub retry_on: RetryOn,
    /// How long one attempt may run; zero for as long as it likes.
    pub timeout: Duration,
    pub priority: i32,
    /// How long it waits for a slot; zero for as long as it takes.
    pub wait: Duration,
    /// For which slots of its shape it is.
    pub within: Within,
}

impl Submission {
    pub(crate) fn spec(&self, payload: Payload) -> Spec {
        let Payload { bytes: payload, near } = payload;
        let Submission { function, shape, retries, retry_on, timeout, priority, wait, within } = *self;
        Spec { function, payload, shape, retries, retry_on, timeout, priority, wait, within, near }
    }
}

impl Session {
    /// Start a cluster inside this process and be its client.
    pub fn embedded(
        config: embedded::Config,
        environment: Environment,
        enter: Enter,
        print: Print,
        limits: Limits,
    ) -> io::Result<Session> {
        let (name, cpus) = (config.name.clone(), config.cpus);
        let mut cluster = Embedded::start(config)?;
        let control = cluster.control().into();
        let id = ClientId(u64::from(std::process::id()));
        let place = Place { host: Box::new(cluster), control, nest: None, name, cpus, id, files: None };
        Session::open(place, Config::default(), environment, enter, print, limits)
    }

    /// Be a client of the cluster at an address.
    pub fn remote(
        target: remote::Target,
        environment: Environment,
        files: Option<Files>,
        enter: Enter,
        print: Print,
        limits: Limits,
    ) -> Result<Session, remote::Error> {
        remote::raise_descriptor_limit();
        let dialed = target.dial()?;
        if let Some(warning) = &dialed.warning {
            (limits.warn)(warning);
        }
        let place = Place {
            name: target.name().to_owned(),
            host: Box::new(Remote::new(target, files.clone())),
            control: dialed.secured,
            nest: None,
            cpus: 1,
            id: anybody()?,
            files,
        };
        // Unless the program says otherwise, as its cluster has it: now, and whenever a head says so.
        let own = |name: &str| variable_seconds(name).filter(|span| !span.is_zero());
        let (own_heartbeat, own_head_lost) = (own("PACELINE_HEARTBEAT"), own("PACELINE_HEAD_LOST"));
        let usual = Timing { heartbeat: HEARTBEAT, head_lost: HEAD_LOST };
        let usual = dialed.peer.timing.unwrap_or(usual);
        let config = Config {
            heartbeat: own_heartbeat.unwrap_or(usual.heartbeat),
            head_lost: own_head_lost.unwrap_or(usual.head_lost),
            own_heartbeat,
            own_head_lost,
            ..Config::default()
        };
        let session = Session::open(place, config, environment, enter, print, limits)?;
        // How large it is; it may have no nodes yet, and grow.
        let _ = session.cluster_status(&mut || false);
        Ok(session)
    }

    /// Be a client inside a slot, on behalf of the tasks that run there.
    pub fn nested(
        runtime: Runtime,
        environment: Environment,
        files: Option<Files>,
        enter: Enter,
    ) -> io::Result<Session> {
        let control = runtime.reach_head()?;
        let place = Place {
            host: Box::new(Nested::new(runtime.clone(), files.clone())),
            control: control.into(),
            name: String::from("this node"),
            cpus: runtime.total().map_or(1, |total| total.threads()),
            nest: Some(Nest::new(runtime.clone())),
            id: anybody()?,
            files,
        };
        // What others could use is not kept.
        let config = Config { keep_idle: Duration::ZERO, ..Config::default() };
        // What tasks print goes to the client they work for.
        let silent: Print = Arc::new(|_, _, _| {});
        let session = Session::open(place, config, environment, enter, silent, Limits::default())?;
        let shared = Arc::downgrade(&session.shared);
        runtime.on_too_deep(Arc::new(move || {
            if let Some(shared) = shared.upgrade() {
                shared.leader_wake.wake();
            }
        }));
        Ok(session)
    }

    fn open(
        place: Place,
        config: Config,
        environment: Environment,
        enter: Enter,
        print: Print,
        limits: Limits,
    ) -> io::Result<Session> {
        let Place { host, control, nest, name, cpus, id, files } = place;
        let Limits { queue_tasks, queue_bytes, result_bytes, warn } = limits;
        let config = Config { queue_tasks, queue_bytes, ..config };
        let heartbeat = config.heartbeat;
        let links_epoll = Arc::new(Kept::new(epoll::create(CreateFlags::CLOEXEC)?));
        let leader_wake = Wake::new()?;
        epoll::add(&links_epoll, &leader_wake, EventData::new_u64(LEADER_WAKE), EventFlags::IN)?;
        let notifier = Arc::new(Notifier::new(enter));
        let mut core = Client::new(id, &name, config);
        core.set_environment(environment);
        let aside = Aside::new(result_bytes);
        let whereabouts = host.whereabouts();
        let (epoll, notices) = (links_epoll.clone(), notifier.clone());
        let mut inner = State::new(core, host, control, epoll, notices, print, aside.clone());
        inner.connecting.set_heartbeat(heartbeat);
        inner.warn = warn.clone();
        inner.own_name.clone_from(&name);
        inner.handle(Event::HeadUp);
        let shared = Arc::new(Shared {
            state: Mutex::new(Guarded { inner, leadership: Leadership::default(), armed: None }),
            links_epoll,
            leader_wake,
            reactor_wake: Wake::new()?,
            timer: Timer::new()?,
            notifier,
            aside,
            warn,
            closed: AtomicBool::new(false),
            gone: AtomicBool::new(false),
            reactor: Mutex::default(),
            cpus: AtomicU64::new(cpus),
            name,
            generation: generation(),
            nest,
            id,
            objects: Mutex::default(),
            whereabouts,
            files,
        });
        let mut sessions = SESSIONS.lock();
        sessions.retain(|session| session.strong_count() > 0);
        sessions.push(Arc::downgrade(&shared));
        drop(sessions);
        {
            let state = &mut shared.state.lock().inner;
            state.session = Arc::downgrade(&shared);
            state.host.deliver_to(Arc::downgrade(&shared));
        }
        *shared.reactor.lock() = Some(reactor::start(shared.clone())?);
        Ok(Session { shared })
    }

    /// The objects that this client has references to. Opens the link to the store when first asked for.
    pub fn objects(&self) -> io::Result<Objects> {
        if self.shared.closed() {
            return Err(io::ErrorKind::NotConnected.into());
        }
        let mut objects = self.shared.objects.lock();
        if let Some(found) = objects.as_ref().filter(|objects| !objects.is_broken()) {
            return Ok(found.clone());
        }
        let link = self.shared.state.lock().inner.host.reach_store();
        let link = link.unwrap_or_else(|| Err(io::ErrorKind::Unsupported.into()))?;
        let opened = Objects::open(link, self.shared.id, true)?;
        Ok(objects.insert(opened).clone())
    }

    /// Whether objects that nodes keep for this client may be lost, so that it is of use to know how they were made.
    pub fn loses_objects(&self) -> bool {
        self.shared.state.lock().inner.host.loses_nodes()
    }

    /// Make a function known by its bytes.
    pub fn define(&self, bytes: Bytes) -> FunctionId {
        self.shared.state.lock().inner.core.define(bytes)
    }

    /// Make a program known whose functions are to run in slots of its own.
    pub fn program(&self, start: Start) -> ProgramId {
        self.shared.state.lock().inner.act(|core, effects| core.add_program(start, effects))
    }

    /// A rule of placement that shapes name, by what it is called.
    pub fn placement(&self, rule: Rule) -> PlacementId {
        self.shared.state.lock().inner.act(|core, effects| core.add_placement(rule, effects))
    }

    /// Custom resources are called this.
    pub fn resource_name(&self, name: &str) {
        self.shared.state.lock().inner.act(|core, effects| core.add_resource_name(name, effects));
    }

    /// How much this client counts when there is not enough for all.
    pub fn set_standing(&self, weight: u32, priority: i32) {
        self.shared.state.lock().inner.act(|core, effects| core.set_standing(weight, priority, effects));
    }

    /// Code has been loaded since functions were last made known: what it needs is brought to where it may run, before
    /// this returns. False: nothing was brought anywhere yet.
    pub fn refresh_files(&self) -> bool {
        let files = self.shared.files.as_ref().filter(|_| !self.shared.closed());
        files.is_some_and(Files::refresh)
    }

    /// User code finds itself here from the next call on.
    pub fn set_environment(&self, environment: Environment) {
        self.shared.state.lock().inner.core.set_environment(environment);
    }

    /// Submit one task that the calling thread is about to wait for. There is one for each thread at most, so it finds
    /// room always.
    pub fn submit_for(
        &self,
        submission: &Submission,
        payload: impl Into<Payload>,
        waiter: &Arc<Waiter>,
    ) -> Arc<Cell> {
        let cell = Cell::new();
        cell.watch(waiter);
        let mut state = self.shared.state.lock();
        self.shared.announce(&mut state);
        submit_to(&mut state, submission, payload.into(), &cell);
        cell
    }

    /// Submit many tasks at once.
    pub fn submit_many<P: Into<Payload>>(
        &self,
        submission: &Submission,
        tasks: impl Iterator<Item = (Ticket, P)>,
    ) {
        let mut state = self.shared.state.lock();
        self.shared.announce(&mut state);
        let now = tick();
        state.inner.act(|core, effects| {
            for (ticket, payload) in tasks {
                core.submit(now, submission.spec(payload.into()), ticket, effects);
            }
        });
        state.inner.flush_all();
        self.shared.watch_links(&mut state);
    }

    /// How many tasks wait here for a slot.
    pub fn queued(&self) -> usize {
        self.shared.state.lock().inner.core.queued()
    }

    /// To be kept by a thread that waits several times for the same: inside a slot its CPUs stay with others in between.
    pub fn keep_waiting(&self) -> Option<Blocked<'_>> {
        self.shared.nest.as_ref().map(Nest::block)
    }

    /// Wait until the waiter is satisfied. `focus` is the one task that is waited for, if it is one.
    pub fn wait(&self, waiter: &Arc<Waiter>, focus: Option<&Cell>, timeout: Duration) -> Waited {
        self.shared.wait(waiter, focus, timeout)
    }

    /// Somebody will be called back: see to it that the links are read, now.
    pub fn expect_callback(&self) {
        self.shared.hold_for_callbacks();
        let mut state = self.shared.state.lock();
        state.inner.flush_all();
        if !state.leadership.led && !state.leadership.reactor_reads {
            state.leadership.reactor_reads = true;
            self.shared.reactor_wake.wake();
        }
    }

    /// End a task. Without `anyway` only if it is not known to run. Says whether it did.
    pub fn cancel(&self, cell: &Cell, anyway: bool) -> bool {
        if self.shared.closed() {
            return false;
        }
        let (key, id) = cell.key();
        let mut state = self.shared.state.lock();
        let done = state.inner.act(|core, effects| core.cancel(key, id, anyway, effects));
        self.shared.wake_leader(&state);
        done
    }

    /// End every task of a batch that has not ended.
    pub fn cancel_batch(&self, batch: &Arc<Batch>) {
        if self.shared.closed() {
            return;
        }
        let mut state = self.shared.state.lock();
        state.inner.act(|core, effects| core.cancel_all(|ticket| ticket.is_of(batch), effects));
        self.shared.wake_leader(&state);
    }

    /// End every task that has not ended.
    pub fn cancel_pending(&self) {
        let mut state = self.shared.state.lock();
        state.inner.turn_away();
        if state.inner.core.pending() > 0 {
            state.inner.act(|core, effects| core.cancel_all(|_| true, effects));
        }
    }

    /// The outcome of a task that this process ran itself ([`Waited::Here`]).
    pub fn finish_here(&self, here: Here<Ticket>, outcome: Outcome) {
        let mut excess = Excess::default();
        let outcome = unclaimed::pinned(outcome, &Arc::downgrade(&self.shared));
        let stored = self.shared.aside.store(outcome, &mut excess);
        here.ticket.complete(stored, &self.shared.notifier);
        self.shared.set_aside(excess);
    }

    /// The user is out of patience: what was told to stop and still runs ends with its slots, now.
    pub fn kill_interrupted(&self) {
        if !self.shared.closed() {
            self.shared.state.lock().inner.act(|core, effects| core.kill_interrupted(effects));
        }
    }

    /// How many CPUs the cluster was started with.
    pub fn cpus(&self) -> u64 {
        self.shared.cpus.load(Ordering::Relaxed)
    }

    /// What a node is called. The one of an embedded cluster has the name of the machine.
    pub fn node_name(&self, node: NodeId) -> String {
        let state = self.shared.state.lock();
        state.inner.names.get(&node).cloned().unwrap_or_else(|| self.shared.name.clone())
    }

    pub fn is_closed(&self) -> bool {
        self.shared.closed()
    }

    /// Whether this process was forked from the one that has the session. Here nothing of it may be used: its threads do
    /// not exist, and its locks may be held by one of them.
    pub fn is_foreign(&self) -> bool {
        self.shared.is_foreign()
    }

    /// Who ended the cluster, if it was not this program.
    pub fn stopped_by(&self) -> Option<String> {
        match self.shared.state.lock().inner.core.closing() {
            Outcome::Stopped { by } => Some(by.into()),
            _ => None,
        }
    }

    pub fn status(&self) -> embedded::Status {
        self.shared.state.lock().inner.host.status()
    }

    /// Run something in the callback thread.
    pub fn notify(&self, notice: crate::notify::Notice) {
        self.shared.notifier.push(notice);
    }

    /// The same, or gives it back if this session is closed.
    pub fn try_notify(&self, notice: crate::notify::Notice) -> Result<(), crate::notify::Notice> {
        self.shared.notifier.try_push(notice)
    }

    /// End the cluster, and wait until the callbacks that are there have run. Returns how many tasks were cancelled by it.
    /// Harmless when repeated.
    pub fn close(&self) -> usize {
        self.close_with(|| Patience::All)
    }

    /// The same; `patience` is asked again and again for which callbacks it waits.
    pub fn close_with(&self, patience: impl FnMut() -> Patience) -> usize {
        if self.shared.is_foreign() || self.shared.closed.swap(true, Ordering::SeqCst) {
            return 0;
        }
        let cancelled = {
            let mut state = self.shared.state.lock();
            state.inner.turn_away();
            state.inner.act(|core, effects| core.close(effects))
        };
        self.shared.leader_wake.wake();
        self.shared.reactor_wake.wake();
        if let Some(reactor) = self.shared.reactor.lock().take() {
            let _ = reactor.join();
        }
        // The cluster's last words, such as output still in the pipes, and then its end.
        let mut state = self.shared.state.lock();
        state.inner.host.close();
        let until = Instant::now() + LAST_WORDS;
        let done = |state: &State| state.over && state.host.outlives_us();
        while state.inner.on_control() && !done(&state.inner) {
            let left = until.saturating_duration_since(Instant::now());
            let Some(control) = &state.inner.control else { break };
            let mut one = [PollFd::new(control, PollFlags::IN)];
            if left.is_zero() || poll::wait(&mut one, Some(left)).is_err() {
                break;
            }
        }
        // Futures may keep the session for long; nobody is to wait for an answer over this link.
        state.inner.control = None;
        state.inner.host.shutdown();
        drop(state);
        if let Some(files) = &self.shared.files {
            // Those of a slot are its client's.
            files.close(self.shared.nest.is_none());
        }
        self.shared.notifier.close(patience);
        cancelled
    }
}

pub(crate) fn submit_to(state: &mut Guarded, submission: &Submission, payload: Payload, cell: &Arc<Cell>) {
    let ticket = Ticket::Cell(cell.clone());
    let spec = submission.spec(payload);
    let (key, id) = state.inner.act(|core, effects| core.submit(tick(), spec, ticket, effects));
    cell.set_task(key, id);
}

/// A client that nobody else is: process numbers mean something on one machine only.
fn anybody() -> io::Result<ClientId> {
    let mut number = [0; 8];
    embedded::fill_random(&mut number)?;
    Ok(ClientId::of_process(u64::from_le_bytes(number)))
}

/// A setting in seconds, as `2s`, `500ms` or `2`.
pub(crate) fn variable_seconds(name: &str) -> Option<Duration> {
    let text = std::env::var(name).ok()?;
    let text = text.trim();
    let (number, unit) = match text.strip_suffix("ms") {
        Some(number) => (number, 0.001),
        None => (text.strip_suffix('s').unwrap_or(text), 1.0),
    };
    let seconds = number.trim().parse::<f64>().ok().map(|number| number * unit)?;
    Duration::try_from_secs_f64(seconds).ok()
}
