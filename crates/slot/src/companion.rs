//! The companion thread: the node's messages always, the client's while user code runs.
//!
//! It sleeps while short calls come and go. The main thread sets a timer as it begins a call; only if that fires while
//! user code still runs does the companion take the link over, and it gives it back when the main thread has nothing
//! more to do.
//!
//! * CP-1: it never waits for the main thread and never enters the language runtime.
//! * CP-2: when the node is gone, so is the slot, within [`LEAVE_WITHIN`].

use crate::attaching;
use crate::becoming::Becoming;
use crate::guests;
use crate::interrupts::{GRACE, Interrupt, Why};
use crate::runtime::{FLUSH_AFTER, FLUSH_AT_LATEST, SERVE_AFTER, Shared, State};
use crate::{nesting, overlap};
use paceline_net::control::{Inbox, Outbox};
use paceline_net::kept::Kept;
use paceline_net::{clock, poll, signals};
use paceline_proto::control::{NodeToSlot, SlotToNode};
use paceline_proto::{LeaseId, SlotId};
use rustix::event::{PollFd, PollFlags};
use rustix::fd::{AsFd, OwnedFd};
use rustix::process::{Signal, getpid, kill_process};
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// How long user code may go on after the node is gone.
const LEAVE_WITHIN: Duration = Duration::from_millis(500);

pub(crate) fn start(slot: SlotId, shared: Arc<Shared>) -> io::Result<()> {
    say(&shared, &SlotToNode::Ready { slot, pid: std::process::id() });
    std::thread::Builder::new().name("paceline-companion".into()).stack_size(256 << 10).spawn(move || {
        signals::block_all();
        Companion::new(shared).run();
    })?;
    Ok(())
}

/// Send to the node. It reads at once and messages are short, so a full socket means that it is gone.
pub(crate) fn say(shared: &Shared, message: &SlotToNode) {
    let mut outbox = Outbox::default();
    outbox.push(message, Vec::new());
    let _ = outbox.flush(&shared.control);
}

/// Send a descriptor to the node.
pub(crate) fn hand_over(shared: &Shared, message: &SlotToNode, descriptor: OwnedFd) -> io::Result<()> {
    let mut outbox = Outbox::default();
    outbox.push(message, vec![descriptor]);
    outbox.flush(&shared.control).map(drop)
}

/// Nothing of the lease runs here any more. Should the slot die before the next one, its calls are not to blame.
pub(crate) fn say_detached(shared: &Shared, lease: LeaseId) {
    shared.page.reset();
    say(shared, &SlotToNode::Detached { lease });
}

/// Look at `due`, or before.
pub(crate) fn set_timer(shared: &Shared, state: &mut State, now: u64, due: u64) {
    if state.timer_due.is_none_or(|at| at > due) {
        state.timer_due = Some(due);
        shared.companion_timer.arm(Duration::from_nanos(due.saturating_sub(now)));
    }
}

/// Look after the calls that go on beside the one that runs, now and when it is time again.
pub(crate) fn see_to_overlap(shared: &Shared, state: &mut State, now: u64) {
    if let Some(due) = overlap::see_to(shared, state, now) {
        set_timer(shared, state, now, due);
    }
}

/// User code has closed our descriptors: nobody can reach this slot any more, so it ends and its node notices.
pub(crate) fn lose_descriptors() -> ! {
    eprintln!("paceline: user code closed descriptors that are not its own, so this slot ends");
    signals::leave(LOST_DESCRIPTORS);
}

/// EX_SOFTWARE: the slot itself can go no further.
const LOST_DESCRIPTORS: i32 = 70;

struct Companion {
    shared: Arc<Shared>,
    inbox: Inbox<NodeToSlot>,
}

impl Companion {
    fn new(shared: Arc<Shared>) -> Companion {
        Companion { shared, inbox: Inbox::default() }
    }

    fn run(mut self) {
        loop {
            let links = self.served_links();
            let mut waits = vec![
                PollFd::new(&self.shared.control, PollFlags::IN),
                PollFd::new(&self.shared.companion_timer, PollFlags::IN),
                PollFd::new(&self.shared.companion_wake, PollFlags::IN),
            ];
            for (socket, interest) in &links {
                waits.push(PollFd::from_borrowed_fd(socket.as_fd(), *interest));
            }
            if poll::wait(&mut waits, None).is_err() {
                lose_descriptors();
            }
            let ready: Vec<bool> = waits.iter().map(|fd| !fd.revents().is_empty()).collect();
            drop(waits);
            if ready[2] {
                self.shared.companion_wake.clear();
            }
            if ready[1] {
                self.shared.companion_timer.clear();
                self.on_timer();
            }
            if ready[3..].contains(&true) {
                self.serve();
            }
            if ready[0] && !self.on_control() {
                return self.leave();
            }
        }
    }

    /// The links, if they are the companion's to serve now.
    fn served_links(&self) -> Vec<(Arc<Kept>, PollFlags)> {
        let state = self.shared.state.lock();
        if !state.companion_serves {
            return Vec::new();
        }
        let own = state.link.as_ref().map(|in_use| (in_use.link.socket(), in_use.interest()));
        own.into_iter().chain(state.guest_sockets()).collect()
    }

    fn on_timer(&self) {
        let now = clock::now();
        let mut state = self.shared.state.lock();
        state.timer_due = None;
        let waiting = state.busy && state.has_unsent();
        if waiting {
            state.flush(now);
        }
        if !state.overlap.is_empty() {
            see_to_overlap(&self.shared, &mut state, now);
        }
        state.patience = if waiting { FLUSH_AFTER } else { (state.patience * 2).min(FLUSH_AT_LATEST) };
        if !state.busy {
            return;
        }
        let serve_at = self.shared.page.since() + SERVE_AFTER.as_nanos() as u64;
        if now >= serve_at && !state.companion_serves {
            state.companion_serves = true;
            state.receive();
        }
        if now >= serve_at {
            state.announce_running();
        }
        self.see_to_deadline(&mut state, now);
        self.see_to_interrupt(&mut state, now);
        state.flush(now);
        let serve_at = Some(serve_at).filter(|at| *at > now);
        let deadline = state.deadline.filter(|_| state.interrupt.is_none());
        let ends_at = state.interrupt.map(|interrupt| interrupt.ends_at);
        if let Some(due) = [serve_at, deadline, ends_at].into_iter().flatten().min() {
            set_timer(&self.shared, &mut state, now, due);
        }
    }

    /// A call that has had its time is to stop.
    fn see_to_deadline(&self, state: &mut State, now: u64) {
        if let (Some(deadline), Some((caller, call))) = (state.deadline, state.running())
            && now >= deadline
            && state.interrupt.is_none()
        {
            let ends_at = now + GRACE.as_nanos() as u64;
            let why = Why::TimedOut;
            state.interrupt = Some(Interrupt { caller, call, why, ends_at, signalled: false });
        }
    }

    /// The client has something to say, or takes more, while user code runs.
    fn serve(&self) {
        let mut state = self.shared.state.lock();
        if state.companion_serves {
            state.receive();
            let now = clock::now();
            if !state.overlap.is_empty() {
                see_to_overlap(&self.shared, &mut state, now);
            }
            self.see_to_interrupt(&mut state, now);
            // Withdrawn and cancelled calls are answered at once.
            state.flush(now);
        }
    }

    /// A call that is to stop gets the signal; if it goes on all the same, the slot ends, and its node says so.
    fn see_to_interrupt(&self, state: &mut State, now: u64) {
        let running = state.running();
        let Some(interrupt) = &mut state.interrupt else { return };
        if running != Some((interrupt.caller, interrupt.call)) {
            return;
        }
        if now >= interrupt.ends_at {
            if interrupt.why == Why::TimedOut {
                self.shared.give_up_on_page(interrupt.caller, interrupt.call);
            }
            let _ = kill_process(getpid(), Signal::KILL);
        }
        if !std::mem::replace(&mut interrupt.signalled, true) {
            self.shared.main.interrupt();
        }
        let ends_at = interrupt.ends_at;
        set_timer(&self.shared, state, now, ends_at);
    }

    /// Handle what the node says. False: it is gone.
    fn on_control(&mut self) -> bool {
        match self.inbox.fill(&self.shared.control) {
            Ok(0) => return false,
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return true,
            Err(_) => return false,
        }
        loop {
            match self.inbox.next() {
                Ok(None) => return true,
                Ok(Some((message, descriptors))) => self.on_node(message, descriptors),
                Err(_) => return false,
            }
        }
    }

    fn on_node(&self, message: NodeToSlot, descriptors: Vec<OwnedFd>) {
        let mut state = self.shared.state.lock();
        match message {
            NodeToSlot::Bind { client, needs, total, own, devices, files } => {
                state.client = Some(client);
                state.files = files;
                state.devices = devices;
                state.own = own;
                state.needs = Some(needs);
                state.total = Some(total);
            }
            NodeToSlot::Attach { lease, secret } => {
                state.far = secret.is_some();
                let Some(connection) = descriptors.into_iter().next() else { return };
                attaching::on_attach(&self.shared, &mut state, lease, connection, secret);
            }
            NodeToSlot::Guest { lease, number, secret } => {
                let Some(connection) = descriptors.into_iter().next() else { return };
                guests::on_guest(&self.shared, &mut state, lease, number, connection, secret);
                if state.companion_serves {
                    self.shared.companion_wake.wake();
                }
            }
            NodeToSlot::Detach { lease } if state.end_guest(lease) => {}
            NodeToSlot::Detach { lease } => self.on_detach(&mut state, lease),
            NodeToSlot::Exit => state.exit = true,
            NodeToSlot::Become { start, variables } => {
                state.becoming = Some(Becoming { start, variables });
                state.exit = true;
            }
            NodeToSlot::TooDeep { lease } => {
                let call = nesting::on_too_deep(&mut state, lease);
                drop(state);
                return call.into_iter().for_each(|call| call());
            }
        }
        drop(state);
        self.shared.main_wake.wake();
    }

    fn on_detach(&self, state: &mut State, lease: LeaseId) {
        if state.core.lease().is_some_and(|own| own != lease) {
            // A guest's that never came, or a word that came twice. What the page says is of our own lease.
            return;
        }
        if state.core.lease() == Some(lease) {
            state.core.detach(lease);
            state.link = None;
            state.attaching.forget();
            // OV-4
            state.exit |= state.overlap.forget();
        }
        if state.busy {
            state.detaching = Some(lease);
        } else {
            say_detached(&self.shared, lease);
        }
    }

    /// The node is gone. The main thread leaves by itself if it can.
    fn leave(self) {
        self.shared.state.lock().exit = true;
        self.shared.main_wake.wake();
        std::thread::sleep(LEAVE_WITHIN);
        let _ = kill_process(getpid(), Signal::KILL);
    }
}
