//! The main thread's side of a slot, and what it shares with the companion.
//!
//! * RT-1: whoever touches the link or the queue of calls holds the lock; nobody blocks or runs user code under it.
//! * RT-2: a reply is handed to the link when no call waits, when [`FLUSH_BYTES`] have gathered, or after
//!   [`FLUSH_AFTER`] ([`FLUSH_AT_LATEST`] behind a run of short calls), by the companion if the main thread is busy.
//! * RT-3: the page names a call from before user code sees it until after it has returned.

use crate::attaching::Attaching;
use crate::becoming::Becoming;
use crate::guests::{Caller, Guest};
use crate::interrupts::Interrupt;
use crate::overlap::Overlap;
use crate::{companion, nesting};
use paceline_core::slot::{Effect, Slot};
use paceline_net::kept::Kept;
use paceline_net::secure::Secured;
use paceline_net::{Link, Page, Received, clock, poll, signals, spin};
use paceline_proto::data::{Call, Environment, FromSlot, Reply, Status, ToSlot};
use paceline_proto::{Bytes, ClientId, Devices, FunctionId, LeaseId, Resources, Seq, SlotId};
use parking_lot::{Condvar, Mutex};
use rustix::event::{PollFd, PollFlags};
use rustix::fd::{AsFd, OwnedFd};
use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// A reply waits this long for others to travel with, if the companion expects to be needed.
pub(crate) const FLUSH_AFTER: Duration = Duration::from_micros(200);
/// And at most this long if it was not needed lately: waking for nothing every 200 µs would disturb short calls.
pub(crate) const FLUSH_AT_LATEST: Duration = Duration::from_millis(1);
/// Without replies that wait, the companion takes over the link from a call that has run for this long. Shorter ones are
/// through before anything it could do would matter.
pub(crate) const SERVE_AFTER: Duration = Duration::from_millis(4);
/// Replies are sent once they have this many bytes together.
const FLUSH_BYTES: usize = 16 << 10;

/// What the main thread does next.
#[derive(Debug)]
pub enum Next {
    /// Be in this environment from now on.
    Environment(Environment),
    /// Run this call, then hand in its reply.
    Call(Call),
    /// Leave.
    Exit,
}

/// Everything both threads use.
pub(crate) struct Shared {
    pub state: Mutex<State>,
    pub page: Page,
    /// Wakes the main thread when it waits for calls.
    pub main_wake: poll::Wake,
    /// Wakes the companion.
    pub companion_wake: poll::Wake,
    pub companion_timer: poll::Timer,
    /// Wakes whoever waits in [`Runtime::next_stop`].
    pub stops: Condvar,
    pub control: Kept,
    /// Where user code runs.
    pub main: signals::Thread,
}

pub(crate) struct State {
    pub core: Slot,
    pub link: Option<LinkInUse>,
    /// Other clients that call what lives here, and whose turn it was last.
    pub guests: Vec<Guest>,
    pub turn: usize,
    /// Whose call the main thread is in, or was in last.
    pub caller: Option<Caller>,
    pub functions: HashMap<FunctionId, Bytes>,
    pub environment: Option<Environment>,
    /// The client on whose account it works.
    pub client: Option<ClientId>,
    pub needs: Option<Resources>,
    /// The GPUs it has.
    pub devices: Devices,
    pub total: Option<Resources>,
    /// This is the client's own program.
    pub own: bool,
    /// The client is on another machine, or might as well be.
    pub far: bool,
    /// Where the node has what the client brings.
    pub files: Option<String>,
    /// How many threads of the call that runs wait for other tasks, and whether it may leave its CPUs to them.
    pub blocked: usize,
    /// As the node knows it.
    pub told_blocked: bool,
    pub too_deep: bool,
    pub on_too_deep: Option<Arc<dyn Fn() + Send + Sync>>,
    pub exit: bool,
    /// It leaves by becoming something else.
    pub becoming: Option<Becoming>,
    /// When the companion's timer will fire, if it will.
    pub timer_due: Option<u64>,
    /// How long after the beginning of a call the companion sees to replies that wait.
    pub patience: Duration,
    /// The companion serves the link because user code has been running for a while.
    pub companion_serves: bool,
    pub attaching: Attaching,
    /// A lease that is over and must be reported as soon as nothing of it runs.
    pub detaching: Option<LeaseId>,
    /// User code runs.
    pub busy: bool,
    pub interrupt: Option<Interrupt>,
    /// The reply to the call that runs leaves before another call begins.
    pub at_most_once: bool,
    /// When the call that runs has had its time.
    pub deadline: Option<u64>,
    /// Calls that go on beside it.
    pub overlap: Overlap,
    pub began: u64,
    pub effects: Vec<Effect>,
}

/// The data link, with what belongs to its use.
pub(crate) struct LinkInUse {
    pub link: Link,
    spinner: spin::Spinner,
    last_flush: u64,
    pub unsent_bytes: usize,
}

impl LinkInUse {
    pub fn new(connection: Secured, shared: &Arc<Shared>) -> LinkInUse {
        let mut link = Link::new(connection);
        let shared = Arc::downgrade(shared);
        link.on_something_to_say(Arc::new(move || {
            if let Some(shared) = shared.upgrade() {
                shared.state.lock().say_what_is_due();
            }
        }));
        LinkInUse { link, spinner: spin::Spinner::of_slot(), last_flush: 0, unsent_bytes: 0 }
    }

    /// Send every reply that has been made.
    pub fn flush(&mut self, core: &mut Slot, now: u64) -> io::Result<()> {
        if let Some(replies) = core.replies_to_send() {
            self.link.make_room(replies.payload_bytes());
            put_replies(&replies, &mut self.link);
        }
        self.last_flush = now;
        self.unsent_bytes = 0;
        self.link.flush().map(drop)
    }

    /// Whether replies that wait have waited for long enough, or are many.
    pub fn is_due(&self, now: u64) -> bool {
        self.unsent_bytes >= FLUSH_BYTES
            || now.saturating_sub(self.last_flush) >= FLUSH_AFTER.as_nanos() as u64
    }

    /// What its socket is watched for.
    pub fn interest(&self) -> PollFlags {
        if self.link.pending() > 0 { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN }
    }
}

impl State {
    fn new() -> State {
        State {
            core: Slot::default(),
            link: None,
            guests: Vec::new(),
            turn: 0,
            caller: None,
            functions: HashMap::new(),
            environment: None,
            client: None,
            needs: None,
            devices: Devices::default(),
            total: None,
            own: false,
            far: false,
            files: None,
            blocked: 0,
            told_blocked: false,
            too_deep: false,
            on_too_deep: None,
            exit: false,
            becoming: None,
            timer_due: None,
            patience: FLUSH_AFTER,
            companion_serves: false,
            attaching: Attaching::default(),
            detaching: None,
            busy: false,
            interrupt: None,
            at_most_once: false,
            deadline: None,
            overlap: Overlap::default(),
            began: 0,
            effects: Vec::new(),
        }
    }

    /// Read what is there and take it in. A link that broke is dropped; the client or the node will act.
    pub fn receive(&mut self) {
        while let Some(in_use) = &mut self.link {
            let received = in_use.link.receive();
            if self.take_frames().is_err() {
                // Its client speaks nonsense: nothing it asked for can be trusted. The node sees us go and tells it.
                self.link = None;
                self.exit = true;
            }
            match received {
                Ok(Received::More) => {}
                Ok(Received::All | Received::Nothing) => break,
                Ok(Received::Closed) | Err(_) => self.link = None,
            }
        }
        if !self.guests.is_empty() {
            self.receive_from_guests();
        }
    }

    fn take_frames(&mut self) -> Result<(), paceline_proto::Error> {
        while let Some(in_use) = &mut self.link {
            let Some(message) = in_use.link.next_message::<ToSlot>()? else { break };
            self.core.on_message(message, &mut self.effects);
            let caller = Caller { lease: self.core.lease().unwrap_or_default(), guest: 0 };
            for effect in self.effects.drain(..) {
                match effect {
                    Effect::Send(message) => in_use.link.put(&message)?,
                    Effect::Define { function, bytes } => {
                        self.functions.insert(function, bytes);
                    }
                    Effect::Environment(environment) => self.environment = Some(environment),
                    Effect::Interrupt { call } => {
                        Interrupt::cancel(caller, call).put(&mut self.overlap, &mut self.interrupt);
                    }
                    Effect::Die { call } => {
                        Interrupt::kill(caller, call).put(&mut self.overlap, &mut self.interrupt);
                    }
                }
            }
        }
        Ok(())
    }

    /// Send every reply that has been made.
    pub fn flush(&mut self, now: u64) {
        if !self.guests.is_empty() {
            self.flush_guests(now);
        }
        let Some(in_use) = &mut self.link else { return };
        if in_use.flush(&mut self.core, now).is_err() {
            self.link = None;
        }
    }

    /// Say something that is not a reply, at once.
    pub fn send(&mut self, message: &FromSlot) {
        let Some(in_use) = &mut self.link else { return };
        if in_use.link.put(message).is_err() || in_use.link.flush().is_err() {
            self.link = None;
        }
    }

    /// Return memory that nobody here looks at any more, over links that have nothing else to carry.
    fn say_what_is_due(&mut self) {
        let guests = self.guests.iter_mut().map(|guest| &mut guest.link);
        for link in std::iter::once(&mut self.link).chain(guests) {
            if link.as_mut().is_some_and(|in_use| in_use.link.flush().is_err()) {
                *link = None;
            }
        }
    }

    /// Whether bytes wait for the socket to take them.
    pub fn wants_to_write(&self) -> bool {
        self.link.as_ref().is_some_and(|in_use| in_use.link.pending() > 0) || self.guests_want_to_write()
    }
}

/// A batch whose frame would be too long goes reply by reply; one that alone is too long becomes an error.
fn put_replies(message: &FromSlot, link: &mut Link) {
    if link.put(message).is_ok() {
        return;
    }
    let FromSlot::Replies { first, replies } = message else { return };
    for (index, reply) in replies.iter().enumerate() {
        let first = first + index as u64;
        let one = FromSlot::Replies { first, replies: vec![reply.clone()] };
        if let Err(error) = link.put(&one) {
            let payload = Bytes::from(error.to_string());
            let reply = Reply { status: Status::Unsendable, payload, ..reply.clone() };
            let short = FromSlot::Replies { first, replies: vec![reply] };
            link.put(&short).expect("a short reply fits a frame");
        }
    }
}

/// A slot as its main thread uses it.
#[derive(Clone)]
pub struct Runtime {
    pub(crate) shared: Arc<Shared>,
}

impl Runtime {
    /// Start the companion and tell the node that this slot is ready.
    pub fn start(slot: SlotId, control: OwnedFd, page: OwnedFd) -> io::Result<Runtime> {
        let shared = Arc::new(Shared {
            state: Mutex::new(State::new()),
            page: Page::open(page)?,
            main_wake: poll::Wake::new()?,
            companion_wake: poll::Wake::new()?,
            companion_timer: poll::Timer::new()?,
            stops: Condvar::new(),
            control: Kept::new(control),
            main: signals::Thread::current(),
        });
        companion::start(slot, shared.clone())?;
        Ok(Runtime { shared })
    }

    /// Whether the client is on another machine, whose directories mean nothing here.
    pub fn is_far(&self) -> bool {
        self.shared.state.lock().far
    }

    /// Where the node has what a client on another machine brings, if it takes any.
    pub fn files(&self) -> Option<String> {
        self.shared.state.lock().files.clone()
    }

    /// How many CPUs this slot was given.
    pub fn needs(&self) -> Option<Resources> {
        self.shared.state.lock().needs
    }

    /// The GPUs it has, by their numbers in the node's list.
    pub fn devices(&self) -> Devices {
        self.shared.state.lock().devices
    }

    /// The variables that let user code see the GPUs of this slot and no others, for as long as it lives. To be set
    /// before anything of the user's is loaded: what uses GPUs reads them once.
    pub fn device_variables(&self) -> [(&'static str, String); 2] {
        let ids: Vec<String> = self.devices().numbers().map(|id| id.to_string()).collect();
        // The numbers are those of the bus; by itself CUDA would put the fastest first.
        [("CUDA_DEVICE_ORDER", "PCI_BUS_ID".into()), ("CUDA_VISIBLE_DEVICES", ids.join(","))]
    }

    /// The bytes of a function that a call names.
    pub fn function(&self, id: FunctionId) -> Option<Bytes> {
        self.shared.state.lock().functions.get(&id).cloned()
    }

    /// Hand in the outcome of the call that ran, if one did, and get the next thing to do. Never blocks; none means
    /// that there is nothing to do and the caller should [`Runtime::wait`].
    pub fn advance(&self, finished: Option<(Seq, Status, Bytes)>) -> Option<Next> {
        let now = clock::now();
        let mut guard = self.shared.state.lock();
        let state = &mut *guard;
        let ran = finished.is_some();
        if let Some((seq, status, payload)) = finished {
            self.finish(state, now, seq, status, payload);
        }
        if state.exit {
            state.flush(now);
            if let Some(becoming) = state.becoming.take() {
                let needs = state.needs;
                drop(guard);
                becoming.now(needs, &self.device_variables());
            }
            return Some(Next::Exit);
        }
        if !state.can_claim() {
            state.flush(now);
            // The client can hardly have answered yet: whoever waits for it finds out without asking twice.
            if !ran {
                state.receive();
                if !state.overlap.is_empty() {
                    companion::see_to_overlap(&self.shared, state, now);
                }
            }
        }
        let next = self.next(state, now);
        if next.is_none() && state.has_unsent() {
            // A call that came and was withdrawn in one breath has left its answer.
            state.flush(now);
        }
        next
    }

    fn next(&self, state: &mut State, now: u64) -> Option<Next> {
        if state.environment.is_some()
            && state.can_claim()
            && let Some(environment) = state.environment.take()
        {
            return Some(Next::Environment(environment));
        }
        let (caller, call) = state.claim()?;
        state.busy = true;
        state.began = now;
        state.caller = Some(caller);
        state.at_most_once = call.at_most_once;
        match caller.guest {
            0 => self.shared.page.begin(call.seq, now),
            guest => self.shared.page.begin_guest(guest, call.seq, now),
        }
        state.deadline = (!call.timeout.is_zero()).then(|| now + call.timeout.as_nanos() as u64);
        if let Some(deadline) = state.deadline {
            self.shared.page.limit(now, deadline);
        }
        let look_after = if state.has_unsent() { state.patience } else { SERVE_AFTER };
        let look_after = if call.timeout.is_zero() { look_after } else { look_after.min(call.timeout) };
        let due = now + look_after.as_nanos() as u64;
        if state.timer_due.is_none_or(|at| at > due) {
            state.timer_due = Some(due);
            self.shared.companion_timer.arm(look_after);
        }
        Some(Next::Call(call))
    }

    fn finish(&self, state: &mut State, now: u64, seq: Seq, status: Status, payload: Bytes) {
        state.busy = false;
        state.deadline = None;
        if state.blocked > 0 {
            // A thread that the call left behind may wait on; it is no longer the call that does.
            nesting::goes_on(&self.shared, state);
        }
        let interrupt = state.interrupt.take().filter(|interrupt| state.concerns_running(interrupt));
        let status = interrupt.map_or(status, |interrupt| interrupt.why.status_for(status));
        self.shared.end_on_page(state, seq);
        let took = Duration::from_nanos(now.saturating_sub(state.began));
        state.finish_running(Reply { seq, status, took, payload });
        if let Some(lease) = state.detaching.take() {
            companion::say_detached(&self.shared, lease);
        }
        if state.link.as_ref().is_some_and(|in_use| state.at_most_once || in_use.is_due(now)) {
            state.flush(now);
        } else if !state.guests.is_empty() {
            state.flush_due_guests(now);
        }
    }

    /// Block until there may be something to do. Call it without any lock of the language runtime.
    pub fn wait(&self) {
        let Some((link, look_for, interest, guests)) = self.start_waiting() else { return };
        if let (Some(link), Some(limit)) = (&link, look_for) {
            let looked = spin::until_readable(link, limit);
            if let Some(in_use) = &mut self.shared.state.lock().link {
                in_use.spinner.learn(looked);
            }
            if looked == spin::Looked::Found {
                return;
            }
        }
        let wake = self.shared.main_wake.as_fd();
        let mut descriptors = vec![PollFd::from_borrowed_fd(wake, PollFlags::IN)];
        if let Some(link) = &link {
            descriptors.push(PollFd::from_borrowed_fd(link.as_fd(), interest));
        }
        for (guest, interest) in &guests {
            descriptors.push(PollFd::from_borrowed_fd(guest.as_fd(), *interest));
        }
        if poll::wait(&mut descriptors, None).is_err() {
            companion::lose_descriptors();
        }
        if descriptors[0].revents().contains(PollFlags::IN) {
            self.shared.main_wake.clear();
        }
    }

    /// None if there is something to do already.
    fn start_waiting(&self) -> Option<Watched> {
        let mut state = self.shared.state.lock();
        if state.exit || state.can_claim() {
            return None;
        }
        if state.companion_serves {
            state.companion_serves = false;
            self.shared.companion_wake.wake();
        }
        let guests = state.guest_sockets();
        let Some(in_use) = &mut state.link else { return Some((None, None, PollFlags::IN, guests)) };
        // With guests there is more than one socket to look at, and looking at one would keep the others waiting.
        let look_for = guests.is_empty().then(|| in_use.spinner.look_for(in_use.link.peer_cpu())).flatten();
        Some((Some(in_use.link.socket()), look_for, in_use.interest(), guests))
    }
}

/// The slot's own link, for how long to look at it awake, and what to watch it for; and the links of guests.
type Watched = (Option<Arc<Kept>>, Option<Duration>, PollFlags, Vec<(Arc<Kept>, PollFlags)>);

impl Shared {
    /// This process ends because the call cannot be stopped otherwise.
    pub fn give_up_on_page(&self, caller: Caller, call: Seq) {
        match caller.guest {
            0 => self.page.give_up(call),
            _ => self.page.give_up_guest(),
        }
    }

    /// The call that the main thread is in is over (RT-3).
    pub fn end_on_page(&self, state: &State, call: Seq) {
        match state.caller {
            Some(Caller { guest: 0, .. }) | None => self.page.end(call),
            // A guest that is gone has left its number to others.
            Some(caller) if state.guests.iter().any(|guest| guest.lease == caller.lease) => {
                self.page.end_guest(caller.guest, call);
            }
            Some(_) => {}
        }
    }
}
