//! Guests: other clients than the one the slot is leased to, which call the object in it. Each has a link of its own, with
//! its own calls, numbers and replies; the main thread takes their calls in turn.
//!
//! * GS-1: a guest that calls without pause keeps nobody from being served: links are served one call each, in turn.
//! * GS-2: what a guest's link does wrong ends that link and nothing else.
//! * GS-3: the page tells of each guest which of its calls was begun last, from before user code sees it.
//! * GS-4: a slot without guests does none of this: it looks whether there are any, and that is all.

use crate::attaching::Attaching;
use crate::interrupts::Interrupt;
use crate::runtime::{LinkInUse, Shared, State};
use paceline_core::slot::{Effect, Slot};
use paceline_net::Received;
use paceline_net::kept::Kept;
use paceline_net::secure::{Secured, answer_data};
use paceline_net::signals;
use paceline_proto::data::{Call, FromSlot, Reply, ToSlot};
use paceline_proto::parts::carried;
use paceline_proto::{LeaseId, LeaseSecret, Seq};
use rustix::event::PollFlags;
use rustix::fd::OwnedFd;
use std::sync::Arc;
use std::time::Instant;

pub(crate) struct Guest {
    pub lease: LeaseId,
    /// What the page knows it by.
    pub number: u32,
    pub core: Slot,
    pub link: Option<LinkInUse>,
    attaching: Attaching,
}

/// Whose call it is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Caller {
    pub lease: LeaseId,
    /// Zero: the client that the slot is leased to.
    pub guest: u32,
}

impl State {
    fn guest(&mut self, lease: LeaseId) -> Option<&mut Guest> {
        self.guests.iter_mut().find(|guest| guest.lease == lease)
    }

    /// Whether a call waits that could be begun now, if nothing runs.
    pub fn can_claim(&self) -> bool {
        match self.guests.is_empty() {
            true => self.core.can_claim(),
            false => self.has_room() && self.cores().any(Slot::can_claim),
        }
    }

    fn cores(&self) -> impl Iterator<Item = &Slot> {
        std::iter::once(&self.core).chain(self.guests.iter().map(|guest| &guest.core))
    }

    /// All callers together may have so many calls that go on beside each other.
    fn has_room(&self) -> bool {
        self.cores().map(Slot::deferred).sum::<usize>() < self.core.most_deferred()
    }

    /// The next call, and whose it is (GS-1).
    pub fn claim(&mut self) -> Option<(Caller, Call)> {
        let own = |lease| Caller { lease, guest: 0 };
        if self.guests.is_empty() {
            let lease = self.core.lease()?;
            return self.core.claim().map(|call| (own(lease), call));
        }
        if !self.has_room() {
            return None;
        }
        let count = self.guests.len() + 1;
        for step in 1..=count {
            let place = (self.turn + step) % count;
            let claimed = match place.checked_sub(1).map(|at| &mut self.guests[at]) {
                None => self.core.claim().zip(self.core.lease()).map(|(call, lease)| (own(lease), call)),
                Some(guest) => {
                    let caller = Caller { lease: guest.lease, guest: guest.number };
                    guest.core.claim().map(|call| (caller, call))
                }
            };
            if claimed.is_some() {
                self.turn = place;
                return claimed;
            }
        }
        None
    }

    /// The core of a caller, if it is still here.
    pub fn core_of(&mut self, caller: Caller) -> Option<&mut Slot> {
        match caller.guest {
            0 => Some(&mut self.core).filter(|core| core.lease() == Some(caller.lease)),
            _ => self.guest(caller.lease).map(|guest| &mut guest.core),
        }
    }

    /// The call that the main thread is in, as its caller knows it.
    pub fn running(&self) -> Option<(Caller, Seq)> {
        let caller = self.caller?;
        let core = match caller.guest {
            0 => Some(&self.core).filter(|core| core.lease() == Some(caller.lease)),
            _ => self.guests.iter().find(|guest| guest.lease == caller.lease).map(|guest| &guest.core),
        };
        Some((caller, core?.running()?))
    }

    /// Whether this is told to the call that runs.
    pub fn concerns_running(&self, interrupt: &Interrupt) -> bool {
        self.running() == Some((interrupt.caller, interrupt.call))
    }

    /// The call that runs has ended. What was asked for by a guest that is gone is answered to nobody.
    pub fn finish_running(&mut self, reply: Reply) {
        let Some(caller) = self.caller else { return };
        let bytes = carried(&reply.payload);
        let link = match caller.guest {
            0 => {
                self.core.finish(reply);
                &mut self.link
            }
            _ => match self.guest(caller.lease) {
                None => return,
                Some(guest) => {
                    guest.core.finish(reply);
                    &mut guest.link
                }
            },
        };
        if let Some(in_use) = link {
            in_use.unsent_bytes += bytes;
        }
    }

    /// Tell its caller that the call that runs has been running for a while.
    pub fn announce_running(&mut self) {
        let Some(caller) = self.caller else { return };
        if let Some(message) = self.core_of(caller).and_then(Slot::announce_running) {
            self.send_to(caller, &message);
        }
    }

    /// Tell callers which of their calls go on beside others.
    pub fn announce_deferred(&mut self) {
        if let Some(message) = self.core.announce_deferred() {
            self.send(&message);
        }
        for guest in &mut self.guests {
            if let Some(message) = guest.core.announce_deferred() {
                guest.send(&message);
            }
        }
    }

    pub fn send_to(&mut self, caller: Caller, message: &FromSlot) {
        match caller.guest {
            0 => self.send(message),
            _ => {
                if let Some(guest) = self.guest(caller.lease) {
                    guest.send(message);
                }
            }
        }
    }

    /// Whether replies wait to be sent to anybody.
    pub fn has_unsent(&self) -> bool {
        self.core.unsent() > 0 || self.guests.iter().any(|guest| guest.core.unsent() > 0)
    }

    pub fn receive_from_guests(&mut self) {
        for place in 0..self.guests.len() {
            self.receive_from(place);
        }
    }

    fn receive_from(&mut self, place: usize) {
        while let Some(in_use) = &mut self.guests[place].link {
            let received = in_use.link.receive();
            let sound = self.take_guest_frames(place).is_ok();
            match received {
                Ok(Received::More) if sound => {}
                Ok(Received::All | Received::Nothing) if sound => break,
                _ => self.guests[place].link = None,
            }
        }
    }

    fn take_guest_frames(&mut self, place: usize) -> Result<(), paceline_proto::Error> {
        let State { guests, functions, effects, interrupt, overlap, .. } = self;
        let guest = &mut guests[place];
        let caller = Caller { lease: guest.lease, guest: guest.number };
        while let Some(in_use) = &mut guest.link {
            let Some(message) = in_use.link.next_message::<ToSlot>()? else { break };
            guest.core.on_message(message, effects);
            for effect in effects.drain(..) {
                match effect {
                    Effect::Send(message) => in_use.link.put(&message)?,
                    Effect::Define { function, bytes } => {
                        functions.insert(function, bytes);
                    }
                    // It is the owner's that counts.
                    Effect::Environment(_) => {}
                    Effect::Interrupt { call } => Interrupt::cancel(caller, call).put(overlap, interrupt),
                    Effect::Die { call } => Interrupt::kill(caller, call).put(overlap, interrupt),
                }
            }
        }
        Ok(())
    }

    pub fn flush_guests(&mut self, now: u64) {
        for guest in &mut self.guests {
            let Some(in_use) = &mut guest.link else { continue };
            if guest.core.unsent() == 0 && in_use.link.pending() == 0 {
                continue;
            }
            if in_use.flush(&mut guest.core, now).is_err() {
                guest.link = None;
            }
        }
    }

    /// Send what guests have waited for for long enough.
    pub fn flush_due_guests(&mut self, now: u64) {
        for guest in &mut self.guests {
            if let Some(in_use) = guest.link.as_mut().filter(|in_use| in_use.is_due(now))
                && guest.core.unsent() > 0
                && in_use.flush(&mut guest.core, now).is_err()
            {
                guest.link = None;
            }
        }
    }

    /// The links of guests, for who waits for them.
    pub fn guest_sockets(&self) -> Vec<(Arc<Kept>, PollFlags)> {
        let links = self.guests.iter().filter_map(|guest| guest.link.as_ref());
        links.map(|in_use| (in_use.link.socket(), in_use.interest())).collect()
    }

    pub fn guests_want_to_write(&self) -> bool {
        self.guests.iter().any(|guest| guest.link.as_ref().is_some_and(|in_use| in_use.link.pending() > 0))
    }

    /// The guest is not to call any more; what runs for it goes on, and nobody hears of its end. False: it is none.
    pub fn end_guest(&mut self, lease: LeaseId) -> bool {
        let before = self.guests.len();
        self.guests.retain(|guest| guest.lease != lease);
        if self.guests.len() == before {
            return false;
        }
        self.overlap.forget_of(lease);
        self.turn = 0;
        true
    }
}

impl Guest {
    fn send(&mut self, message: &FromSlot) {
        let Some(in_use) = &mut self.link else { return };
        if in_use.link.put(message).is_err() || in_use.link.flush().is_err() {
            self.link = None;
        }
    }
}

/// A guest opened a connection.
pub(crate) fn on_guest(
    shared: &Arc<Shared>,
    state: &mut State,
    lease: LeaseId,
    number: u32,
    connection: OwnedFd,
    secret: Option<LeaseSecret>,
) {
    if state.guest(lease).is_none() {
        shared.page.reset_guest(number, lease);
        let attaching = Attaching::default();
        state.guests.push(Guest { lease, number, core: Slot::default(), link: None, attaching });
    }
    let Some(guest) = state.guest(lease) else { return };
    let came = guest.attaching.next();
    let Some(secret) = secret else { return serve(shared, state, lease, came, connection.into()) };
    let Ok(place) = state.attaching.unproved.admit(&connection, lease) else { return };
    let shared = shared.clone();
    let thread = std::thread::Builder::new().name("paceline-seal".into()).stack_size(crate::attaching::STACK);
    let _ = thread.spawn(move || {
        signals::block_all();
        let sealed = answer_data(connection, &secret, Instant::now() + crate::attaching::LIMIT);
        drop(place);
        let mut state = shared.state.lock();
        if let Ok(sealed) = sealed {
            serve(&shared, &mut state, lease, came, sealed);
            drop(state);
            shared.main_wake.wake();
            shared.companion_wake.wake();
        }
    });
}

fn serve(shared: &Arc<Shared>, state: &mut State, lease: LeaseId, came: u64, connection: Secured) {
    if let Some(guest) = state.guest(lease)
        && guest.attaching.settle(came)
    {
        guest.core.attach(lease);
        guest.link = Some(LinkInUse::new(connection, shared));
    }
}
