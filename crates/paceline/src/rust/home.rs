//! Where an actor lives, as this process knows it.
//!
//! Owns: the pool of one slot that an actor of our own is, or our visit to one of somebody else's; what others are told of it;
//! and the checkpoints that an object that is built anew begins with. `actor` puts the user's face on it.
//!
//! * HM-1: at most one checkpoint is under way, however many calls there are, and an object that is built anew begins with
//!   the last one that arrived.

use super::actor::Class;
use super::object::PING;
use super::slots::{Slots, history_full};
use super::target::Target;
use super::{Error, Options, Result, slot_main};
use crate::embedded::fill_random;
use crate::{
    ActorId, Bytes, Card, Cell, FunctionId, Outcome, PoolPlace, RetryOn, Session, Shape, Submission, Within,
    exchange,
};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

pub(crate) struct Home {
    pub class: &'static Class,
    pub session: Session,
    pub identity: ActorId,
    /// Its methods, as the session knows them.
    functions: Vec<FunctionId>,
    /// Asks for its state, if that is kept.
    save: Option<FunctionId>,
    saving: Mutex<Saving>,
    /// Somebody here has destroyed it.
    ended: AtomicBool,
    /// Others know of it.
    hosted: Mutex<bool>,
    place: Place,
}

/// Actors that this process has handles to, its own and those of others: who gets another one calls it in order with all its
/// other calls.
static KNOWN: Mutex<BTreeMap<u128, Weak<Home>>> = Mutex::new(BTreeMap::new());

fn remember(home: &Arc<Home>) {
    let mut known = KNOWN.lock();
    known.retain(|_, home| home.strong_count() > 0);
    known.insert(home.identity.0, Arc::downgrade(home));
}

pub(crate) fn known(identity: ActorId) -> Option<Arc<Home>> {
    let known = KNOWN.lock().get(&identity.0)?.upgrade();
    known.filter(|home| !home.session.is_closed())
}

enum Place {
    /// This program has made it.
    Own(Slots),
    /// Somebody else has.
    Elsewhere,
}

#[derive(Default)]
struct Saving {
    under_way: bool,
    /// There were calls since.
    again: bool,
}

/// What another program is told of an actor of Rust: this, for how long its calls may run in milliseconds, its type.
const CARD: u8 = b'R';

/// Later checkpoints make earlier ones void.
const CHECKPOINT: &[u8] = b"checkpoint";

/// A number that no other actor has.
pub(crate) fn new_identity() -> Result<ActorId> {
    let mut number = [0; 16];
    fill_random(&mut number).map_err(|error| Error::Start(Arc::new(error)))?;
    Ok(ActorId(u128::from_le_bytes(number)))
}

fn write_card(class: &Class, timeout: Duration) -> Vec<u8> {
    let milliseconds = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
    [&[CARD], &milliseconds.to_le_bytes()[..], class.name.as_bytes()].concat()
}

pub(crate) fn read_card(card: &[u8]) -> Option<(Duration, &str)> {
    let (milliseconds, name) = card.strip_prefix(&[CARD])?.split_first_chunk()?;
    Some((Duration::from_millis(u64::from_le_bytes(*milliseconds)), std::str::from_utf8(name).ok()?))
}

/// Have a name for an actor that is about to be built.
pub(crate) fn claim(
    session: &Session,
    identity: ActorId,
    class: &Class,
    name: &str,
    timeout: Duration,
) -> Result<(), String> {
    let card = Card { about: write_card(class, timeout), ..Card::default() };
    session.claim_actor(identity, name, card, &mut || false)
}

impl Home {
    /// An actor of our own, whose state is kept if its type says how and `saved`.
    pub fn own(slots: Slots, class: &'static Class, identity: ActorId, saved: bool) -> Arc<Home> {
        let home = Arc::new(Home {
            class,
            identity,
            functions: class.methods.iter().map(|name| slots.define(name)).collect(),
            session: slots.session.clone(),
            save: class.saves.filter(|_| saved).map(|(name, _)| slots.define(name)),
            saving: Mutex::default(),
            ended: AtomicBool::new(false),
            hosted: Mutex::new(false),
            place: Place::Own(slots),
        });
        remember(&home);
        home
    }

    pub fn visit(session: &Session, identity: ActorId, class: &'static Class) -> Arc<Home> {
        session.visit(identity);
        let define = |name: &&str| session.define(slot_main::name_bytes(name));
        let home = Arc::new(Home {
            class,
            session: session.clone(),
            identity,
            functions: class.methods.iter().map(define).collect(),
            save: None,
            saving: Mutex::default(),
            ended: AtomicBool::new(false),
            hosted: Mutex::new(true),
            place: Place::Elsewhere,
        });
        remember(&home);
        home
    }

    /// Let others call it. One whose name was claimed is known to them.
    pub fn host(&self, claimed: bool, timeout: Duration) -> Result<(), String> {
        let Place::Own(slots) = &self.place else { return Ok(()) };
        let mut hosted = self.hosted.lock();
        if !*hosted {
            let card = || Card { about: write_card(self.class, timeout), ..Card::default() };
            let card = (!claimed).then(card);
            self.session.host_actor(self.identity, card, slots.id())?;
            *hosted = true;
        }
        Ok(())
    }

    /// Wait until the object was built.
    pub fn await_object(&self, wait: Duration) -> Result<()> {
        let Place::Own(slots) = &self.place else { return Ok(()) };
        let submission = slots.submission(slots.define(PING), Options::new().retries(0).wait(wait));
        match self.target_of(submission, self.class.new).call(&()) {
            Err(Error::PoolBroken { cause, .. }) => Err(*cause),
            other => other,
        }
    }

    fn target_of(&self, submission: Submission, name: &'static str) -> Target {
        Target { session: self.session.clone(), submission, name, chunk: 1, slots: 1 }
    }

    fn submission(&self, function: FunctionId, timeout: Duration) -> Submission {
        let options = Options::new().retries(0).timeout(timeout);
        match &self.place {
            Place::Own(slots) => slots.submission(function, options),
            Place::Elsewhere => Submission {
                function,
                shape: Shape::default(),
                retries: 0,
                retry_on: RetryOn::default(),
                timeout,
                priority: 0,
                wait: Duration::ZERO,
                within: Within::Guest(self.identity),
            },
        }
    }

    pub fn target(&self, method: usize, timeout: Duration) -> Result<Target> {
        let name = self.class.methods[method];
        if self.session.is_closed() {
            return Err(Error::Closed);
        }
        if self.ended.load(Ordering::Relaxed) {
            return Err(Error::actor_gone(name, "it was destroyed", false));
        }
        Ok(self.target_of(self.submission(self.functions[method], timeout), name))
    }

    /// A call may have changed the object.
    pub fn changed(self: &Arc<Home>) {
        if self.save.is_none() {
            return;
        }
        {
            let mut saving = self.saving.lock();
            saving.again = saving.under_way;
            if saving.under_way {
                return;
            }
            saving.under_way = true;
        }
        self.save();
    }

    /// End the object now.
    pub fn destroy(&self) {
        if self.ended.swap(true, Ordering::Relaxed) {
            return;
        }
        match &self.place {
            Place::Own(slots) => slots.close(),
            Place::Elsewhere => self.session.end_actor(self.identity, "it was destroyed"),
        }
    }

    /// Where it lives, if it is our own.
    pub fn place(&self) -> Option<PoolPlace> {
        match &self.place {
            Place::Own(slots) => slots.places().into_iter().next(),
            Place::Elsewhere => None,
        }
    }

    /// Ask for the object's state (HM-1).
    fn save(self: &Arc<Home>) {
        let Some(function) = self.save else { return };
        let payload = Bytes::from_static(&[exchange::CALL, NO_ARGUMENTS]);
        let submission = self.submission(function, Duration::ZERO);
        let Ok(cell) = self.session.try_submit(&submission, payload) else {
            // No room for it now: the next call tries again.
            self.saving.lock().under_way = false;
            return;
        };
        let (home, done) = (Arc::downgrade(self), cell.clone());
        match cell.on_done(Box::new(move || Home::saved(&home, &done))) {
            Ok(()) => self.session.expect_callback(),
            Err(notice) => notice(),
        }
    }

    fn saved(home: &Weak<Home>, done: &Cell) {
        let Some(home) = home.upgrade() else { return };
        home.keep(done.outcome());
        let again = {
            let mut saving = home.saving.lock();
            saving.under_way = std::mem::take(&mut saving.again);
            saving.under_way
        };
        if again {
            home.save();
        }
    }

    /// Slots that come later begin with this state.
    fn keep(&self, state: Option<Outcome>) {
        let (Place::Own(slots), Some((save, restore))) = (&self.place, self.class.saves) else { return };
        let complain = |why: &dyn std::fmt::Display| eprintln!("paceline: no checkpoint of {save}: {why}");
        match state {
            Some(Outcome::Value(state)) => {
                let payload = [&[exchange::CALL, ONE_ARGUMENT], &state[..]].concat();
                let call = slots.standing(restore, payload.into(), Some(CHECKPOINT));
                if let Err(full) = self.session.prepare_pool(slots.id(), call) {
                    complain(&history_full(restore, full));
                }
            }
            Some(outcome @ (Outcome::Raised(_) | Outcome::Unsendable(_))) => {
                complain(&Error::of(&self.session, save, outcome));
            }
            // The object has died, or the cluster is closed: there is nothing to be kept.
            _ => {}
        }
    }
}

/// No arguments, and the beginning of a single one, in MessagePack.
pub(super) const NO_ARGUMENTS: u8 = 0xc0;
pub(super) const ONE_ARGUMENT: u8 = 0x91;

impl Drop for Home {
    fn drop(&mut self) {
        if matches!(self.place, Place::Elsewhere) {
            self.session.leave_actor(self.identity);
        }
    }
}
