//! Data connections and the one to the head: opening them, and opening them again.
//!
//! * CN-1: a lease has one connection, or one is being opened, or one will be: until the lease is over.
//! * CN-2: what could not be opened or broke is tried again after a while, which is longer each time up to [`SLOWEST`].
//! * CN-4: a connection over which nothing arrives any more is broken, after about three heartbeats.
//! * CN-5: of a node that could not be reached, neither directly nor by way of another, the user is told once.
//! * CN-3: what a slot sent before its death is handed in before the death is, also if it is still on its way, but not
//!   for longer than [`LAST_WORDS`].

use crate::cell::Ticket;
use crate::host::Opened;
use crate::session::{HEARTBEAT, Shared};
use crate::state::{Data, State, tick};
use paceline_core::Tick;
use paceline_core::client::{Effect, Event, LeaseKey};
use paceline_net::Link;
use paceline_net::secure::Secured;
use paceline_net::spin::Spinner;
use paceline_net::tcp;
use paceline_proto::control::{ClientToHead, HeadToClient};
use paceline_proto::{DeathCause, LeaseId, LeaseSecret, NodeId};
use rustix::event::epoll::{self, EventData, EventFlags};
use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// The first wait before something is tried again, and the longest.
const FIRST: Duration = Duration::from_millis(20);
const SLOWEST: Duration = Duration::from_secs(2);

/// A connection that worked for so long has nothing to do with those that failed before it.
const STEADY: Duration = Duration::from_secs(1);

/// So many different reasons why a node is out of reach are kept.
const MOST_REASONS: usize = 4;

/// How long the death of a slot waits for the end of what it sent. Whoever waits for its tasks hears of it in less than a
/// second.
const LAST_WORDS: Duration = Duration::from_millis(400);

/// What ended the cluster, when the thread that was its head and node did so by itself.
const EMBEDDED_CRASH: &str =
    "a crash of its control thread, which is a defect of Paceline (the error output has the report)";

/// What is being opened, or will be.
#[derive(Default)]
pub(crate) struct Connecting {
    leases: HashMap<LeaseKey, Attempt>,
    head: Option<Attempt>,
    /// Since when there is a link to the head, and how many attempts had failed before.
    head_up: (Tick, u32),
    /// Deaths of slots whose last words are on their way.
    late: Vec<(Tick, LeaseKey, HeadToClient)>,
    /// After so long without a connection, the head is asked for another way.
    patience: Duration,
    heartbeat: Duration,
    /// When to look next whether anything arrives (CN-4).
    next_look: Option<Tick>,
    /// Why a lease has no connection yet.
    reasons: HashMap<LeaseId, Vec<String>>,
    /// Nodes of which the user knows that they are out of reach (CN-5).
    told: HashSet<NodeId>,
    /// When the next of them is due.
    pub due: Option<Tick>,
}

impl Connecting {
    /// Takes over how often client and head hear from each other; nothing if they do not.
    pub fn set_heartbeat(&mut self, heartbeat: Duration) {
        // In time for another way before the lease is given up.
        self.patience = heartbeat * 3 / 2;
        self.heartbeat = if heartbeat.is_zero() { HEARTBEAT } else { heartbeat };
    }
}

#[derive(Clone, Copy)]
struct Attempt {
    lease: LeaseId,
    node: NodeId,
    /// There was a connection before.
    opened: bool,
    /// The head was asked for another way.
    asked: bool,
    /// How often it has failed in a row.
    failed: u32,
    /// When to try again; none while it is tried.
    due: Option<Tick>,
    /// Since when nothing was reached.
    since: Option<Tick>,
}

impl Attempt {
    fn first(lease: LeaseId, node: NodeId) -> Attempt {
        Attempt { lease, node, opened: false, asked: false, failed: 0, due: None, since: None }
    }

    /// For the head, which is no lease. Clients do not all come back at one moment.
    fn for_head() -> Attempt {
        Attempt::first(LeaseId(u128::from(std::process::id())), NodeId(0))
    }

    /// After yet another failure.
    fn again(self, now: Tick) -> Attempt {
        let pause = (FIRST * (1 << self.failed.min(10))).min(SLOWEST);
        // Many that broke at one moment are not opened again at one moment.
        let spread = pause.mul_f64(f64::from(self.lease.0 as u8) / 1024.0);
        Attempt { failed: self.failed + 1, due: Some(now + pause + spread), ..self }
    }
}

impl State {
    /// The machine wants a data connection.
    pub(crate) fn open(
        &mut self,
        key: LeaseKey,
        lease: LeaseId,
        node: NodeId,
        secret: LeaseSecret,
        more: &mut Vec<Effect<Ticket>>,
    ) {
        self.by_lease.insert(lease, key);
        self.host.on_granted(lease, node, secret);
        self.try_open(key, Attempt::first(lease, node), more);
    }

    fn try_open(&mut self, key: LeaseKey, mut attempt: Attempt, more: &mut Vec<Effect<Ticket>>) {
        attempt.since.get_or_insert_with(tick);
        match self.host.open(attempt.lease) {
            Opened::Now(socket) => self.install(key, attempt, socket, more),
            Opened::Later => drop(self.connecting.leases.insert(key, Attempt { due: None, ..attempt })),
            Opened::Failed(error) => self.open_later(key, attempt, &error),
        }
    }

    fn install(&mut self, key: LeaseKey, attempt: Attempt, socket: Secured, more: &mut Vec<Effect<Ticket>>) {
        let far = socket.tls.is_some();
        let mut link = Link::new(socket);
        let session = self.session.clone();
        link.on_something_to_say(Arc::new(move || {
            if let Some(session) = session.upgrade() {
                session.say_and_read(key);
            }
        }));
        if let Err(error) = epoll::add(&self.epoll, &link, EventData::new_u64(key.0 as u64), EventFlags::IN) {
            return self.open_later(key, attempt, &error.into());
        }
        if self.links.len() <= key.0 {
            self.links.resize_with(key.0 + 1, || None);
        }
        let now = tick();
        self.connecting.reasons.remove(&attempt.lease);
        if far {
            // One that cannot be told so is looked at all the same.
            let _ = tcp::notice_silence(&link, self.connecting.heartbeat);
            let look = *self.connecting.next_look.get_or_insert(now + self.connecting.heartbeat);
            self.no_later_than(Some(look));
        }
        self.links[key.0] = Some(Data {
            link,
            lease: attempt.lease,
            spinner: Spinner::of_client(),
            watches_write: false,
            far,
            since: now,
            node: attempt.node,
            arrived: (0, now),
            failed: attempt.failed,
        });
        self.core.handle(now, Event::LinkUp(key), more);
    }

    fn open_later(&mut self, key: LeaseKey, attempt: Attempt, error: &io::Error) {
        let now = tick();
        let mut attempt = attempt.again(now);
        tracing::debug!(lease = ?attempt.lease, failed = attempt.failed, %error, "no data connection");
        let out_of_reach = matches!(
            error.kind(),
            io::ErrorKind::ConnectionRefused | io::ErrorKind::TimedOut | io::ErrorKind::ConnectionAborted
        );
        if out_of_reach && self.host.is_distributed(attempt.lease) {
            self.note_reason(attempt.lease, error);
            let since = *attempt.since.get_or_insert(now);
            if now.since(since) >= self.connecting.patience || error.kind() == io::ErrorKind::TimedOut {
                (attempt.since, attempt.asked) = (None, true);
                self.say(&ClientToHead::Unreachable { lease: attempt.lease });
            }
        }
        self.connecting.leases.insert(key, attempt);
        self.no_later_than(attempt.due);
    }

    fn note_reason(&mut self, lease: LeaseId, error: &io::Error) {
        let text = error.to_string();
        let reason = text.lines().next().unwrap_or_default();
        let reasons = self.connecting.reasons.entry(lease).or_default();
        if reasons.len() < MOST_REASONS && !reasons.iter().any(|known| known == reason) {
            reasons.push(reason.to_owned());
        }
    }

    /// A lease is over for which no way was found (CN-5).
    fn tell_out_of_reach(&mut self, attempt: Attempt) {
        let Some(reasons) = self.connecting.reasons.get(&attempt.lease) else { return };
        if !self.connecting.told.insert(attempt.node) {
            return;
        }
        let name = self.names.get(&attempt.node).map_or("a node", String::as_str);
        let text = format!(
            "{name} cannot be reached from here, neither directly nor by way of another node, and runs nothing for this \
             program meanwhile; {}\nhint: `paceline doctor` here and there says more, and `paceline join --advertise` names \
             another address of that machine",
            reasons.join("; ")
        );
        let warn = self.warn.clone();
        self.notifier().push(Box::new(move || warn(&text)));
    }

    /// Links over which nothing arrives any more though something is on its way (CN-4).
    fn look_at_links(&mut self, now: Tick) {
        let heartbeat = self.connecting.heartbeat;
        let mut silent = Vec::new();
        let mut any = false;
        for (key, data) in self.links.iter_mut().enumerate() {
            let Some(data) = data.as_mut().filter(|data| data.far) else { continue };
            any = true;
            self.host.retry_direct(data.lease);
            let Some(progress) = tcp::progress(&data.link) else { continue };
            if progress.unacked == 0 || progress.acked != data.arrived.0 {
                data.arrived = (progress.acked, now);
            } else if now.since(data.arrived.1) >= heartbeat * 5 / 2 {
                silent.push(LeaseKey(key));
            }
        }
        self.connecting.next_look = any.then(|| now + heartbeat);
        for key in silent {
            tracing::warn!(?key, "nothing arrives at a slot any more: its connection is opened again");
            self.stop_reading(key);
        }
    }

    fn no_later_than(&mut self, at: Option<Tick>) {
        let due = self.connecting.due;
        self.connecting.due = due.into_iter().chain(at).min();
    }

    /// A data connection that was being opened is here, or is not to be had for now.
    fn on_dialed(&mut self, lease: LeaseId, result: io::Result<Secured>) {
        let Some(&key) = self.by_lease.get(&lease) else { return };
        let Some(attempt) = self.connecting.leases.remove(&key) else { return };
        let mut more = Vec::new();
        match result {
            Ok(socket) => self.install(key, attempt, socket, &mut more),
            Err(error) => self.open_later(key, attempt, &error),
        }
        self.act(|_, effects| effects.append(&mut more));
    }

    /// A shorter way to the slot of a lease was tried. The slot serves the connection that was opened last, and what was on
    /// its way over the other is said again.
    fn on_direct(&mut self, lease: LeaseId, socket: Option<Secured>) {
        self.host.on_direct(lease, socket.is_some());
        let (Some(socket), Some(&key)) = (socket, self.by_lease.get(&lease)) else { return };
        let Some(data) = self.links.get_mut(key.0).and_then(Option::take) else {
            return self.on_dialed(lease, Ok(socket));
        };
        let _ = epoll::delete(&self.epoll, &data.link);
        let attempt = Attempt { opened: true, ..Attempt::first(lease, data.node) };
        drop(data);
        self.handle(Event::LinkDown(key));
        let mut more = Vec::new();
        self.install(key, attempt, socket, &mut more);
        self.act(|_, effects| effects.append(&mut more));
    }

    /// The connection of a lease is of no use any more. The lease may be: its slot's end is told by the head.
    pub(crate) fn stop_reading(&mut self, key: LeaseKey) {
        let Some(data) = self.links.get_mut(key.0).and_then(Option::take) else { return };
        let _ = epoll::delete(&self.epoll, &data.link);
        let now = tick();
        let failed = if now.since(data.since) < STEADY { data.failed } else { 0 };
        let attempt = Attempt { failed, opened: true, ..Attempt::first(data.lease, data.node) };
        drop(data);
        self.open_later(key, attempt, &io::ErrorKind::ConnectionReset.into());
        self.handle(Event::LinkDown(key));
        // CN-3: that was all it had to say.
        if let Some(place) = self.connecting.late.iter().position(|(_, late, _)| *late == key) {
            let (_, _, death) = self.connecting.late.swap_remove(place);
            self.handle(Event::FromHead(death));
        }
    }

    /// The lease is over.
    pub(crate) fn close_link(&mut self, key: LeaseKey) {
        let opened = self.links.get_mut(key.0).and_then(Option::take);
        let wanted = self.connecting.leases.remove(&key);
        if let Some(data) = &opened {
            let _ = epoll::delete(&self.epoll, &data.link);
        }
        if let Some(lease) = opened.map(|data| data.lease).or(wanted.map(|attempt| attempt.lease)) {
            if let Some(attempt) = wanted.filter(|attempt| attempt.asked && !attempt.opened) {
                self.tell_out_of_reach(attempt);
            }
            self.connecting.reasons.remove(&lease);
            self.by_lease.remove(&lease);
            self.host.forget(lease);
        }
        self.connecting.late.retain(|(_, late, _)| *late != key);
    }

    /// The head says that a lease is over.
    pub(crate) fn on_lease_ended(&mut self, lease: LeaseId, cause: DeathCause, message: HeadToClient) {
        if let Some(key) = self.by_lease.get(&lease).copied() {
            // ST-2: the process is dead, so all it ever sent is in the socket, or on its way if it was far.
            self.read(key, usize::MAX);
            let open = self.links.get(key.0).and_then(Option::as_ref).is_some_and(|data| data.far);
            if open && cause != DeathCause::NodeLost {
                let until = tick() + LAST_WORDS;
                self.connecting.late.push((until, key, message));
                return self.no_later_than(Some(until));
            }
        }
        self.handle(Event::FromHead(message));
    }

    /// There is another way to the slot of this lease: it is tried at once.
    pub(crate) fn on_other_way(&mut self, lease: LeaseId) {
        let Some(key) = self.by_lease.get(&lease) else { return };
        if let Some(attempt) = self.connecting.leases.get_mut(key).filter(|attempt| attempt.due.is_some()) {
            let now = tick();
            (attempt.failed, attempt.due) = (0, Some(now));
            self.no_later_than(Some(now));
        }
    }

    /// What is due is tried again, and deaths have waited long enough.
    pub(crate) fn see_to_connections(&mut self, now: Tick) {
        if self.connecting.due.is_none_or(|due| due > now) {
            return;
        }
        self.connecting.due = None;
        let is_due = |attempt: &Attempt| attempt.due.is_some_and(|due| due <= now);
        let due: Vec<_> = self.connecting.leases.iter().filter(|(_, attempt)| is_due(attempt)).collect();
        let due: Vec<(LeaseKey, Attempt)> = due.into_iter().map(|(key, attempt)| (*key, *attempt)).collect();
        for (key, attempt) in due {
            self.connecting.leases.remove(&key);
            let mut more = Vec::new();
            self.try_open(key, attempt, &mut more);
            self.act(|_, effects| effects.append(&mut more));
        }
        if self.connecting.next_look.is_some_and(|at| at <= now) {
            self.look_at_links(now);
        }
        let late = std::mem::take(&mut self.connecting.late);
        let (over, late) = late.into_iter().partition(|(until, _, _)| *until <= now);
        self.connecting.late = late;
        for (_, _, death) in over {
            self.handle(Event::FromHead(death));
        }
        if let Some(attempt) = self.connecting.head.filter(is_due) {
            self.reach_head(attempt);
        }
        let next = self.connecting.leases.values().filter_map(|attempt| attempt.due);
        let next = next.chain(self.connecting.late.iter().map(|(until, _, _)| *until));
        let next = next.chain(self.connecting.head.and_then(|attempt| attempt.due));
        let next = next.chain(self.connecting.next_look).min();
        self.no_later_than(next);
    }

    /// The link to the head broke. False: that is the end of the cluster.
    pub(crate) fn on_head_down(&mut self) -> bool {
        self.control = None;
        self.asking.clear();
        if self.gone {
            return false;
        }
        if !self.host.outlives_us() {
            return self.end_with_embedded_head();
        }
        self.handle(Event::HeadDown);
        let (since, failed) = self.connecting.head_up;
        let first = Attempt::for_head();
        if tick().since(since) >= STEADY {
            return self.reach_head(first);
        }
        // It ended as soon as it was there.
        self.reach_head_later(Attempt { failed, ..first }, &io::ErrorKind::ConnectionReset.into());
        self.host.outlives_us()
    }

    /// Ends everything that waits: the head was a thread of this process, and has ended without being told to (EM-5).
    fn end_with_embedded_head(&mut self) -> bool {
        self.gone = true;
        self.act(|core, effects| core.stop(EMBEDDED_CRASH, effects));
        self.turn_away();
        false
    }

    /// The machine has given up the link to the head: another is opened in a moment.
    pub(crate) fn drop_head(&mut self) {
        self.control = None;
        let attempt = Attempt { due: Some(tick()), ..Attempt::for_head() };
        self.connecting.head = Some(attempt);
        self.no_later_than(attempt.due);
    }

    fn reach_head(&mut self, attempt: Attempt) -> bool {
        match self.host.reach_head() {
            None => return false,
            Some(Opened::Now(socket)) => self.install_head(socket),
            Some(Opened::Later) => self.connecting.head = Some(Attempt { due: None, ..attempt }),
            Some(Opened::Failed(error)) => self.reach_head_later(attempt, &error),
        }
        true
    }

    fn reach_head_later(&mut self, attempt: Attempt, error: &io::Error) {
        let attempt = attempt.again(tick());
        tracing::debug!(failed = attempt.failed, %error, "the head is out of reach");
        self.connecting.head = Some(attempt);
        self.no_later_than(attempt.due);
    }

    fn install_head(&mut self, socket: Secured) {
        let failed = self.connecting.head.take().map_or(0, |attempt| attempt.failed);
        self.connecting.head_up = (tick(), failed);
        self.asking.clear();
        self.control = Some(Link::new(socket));
        self.handle(Event::HeadUp);
    }
}

impl Shared {
    /// How the opening of a data connection went.
    pub(crate) fn on_dialed(&self, lease: LeaseId, result: io::Result<Secured>) {
        self.on_connection(|state| state.on_dialed(lease, result));
    }

    /// Whether there is a shorter way to the slot of a lease.
    pub(crate) fn on_direct(&self, lease: LeaseId, socket: Option<Secured>) {
        self.on_connection(|state| state.on_direct(lease, socket));
    }

    /// How the opening of another link to the head went.
    pub(crate) fn on_head_dialed(&self, result: io::Result<Secured>) {
        self.on_connection(|state| {
            let Some(attempt) = state.connecting.head else { return };
            match result {
                Ok(socket) => state.install_head(socket),
                Err(error) => state.reach_head_later(attempt, &error),
            }
        });
        // It waits for the socket from before.
        self.reactor_wake.wake();
    }

    fn on_connection(&self, change: impl FnOnce(&mut State)) {
        if self.closed() {
            return;
        }
        let mut state = self.state.lock();
        change(&mut state.inner);
        state.inner.flush_all();
        self.arm_for_tick(&mut state);
        self.watch_links(&mut state);
    }
}
