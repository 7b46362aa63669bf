//! Actors: objects that live in slots, and what stands for them here.
//!
//! * AC-1: calls of one process run at most once, and in the order in which they were made.
//! * AC-2: an actor ends when its maker has no handle to it any more, after the calls that were submitted.
//! * AC-3: at most one checkpoint is under way, however many calls there are, and an object that is built anew begins
//!   with the last one that arrived.

use super::object::PING;
use super::slots::{HISTORY, Kind, Slots, encoded, history_full};
use super::target::Target;
use super::{Cluster, Error, Future, Options, Result};
use crate::embedded::fill_random;
use crate::exchange;
use crate::{ActorId, Bytes, Card, Cell, FunctionId, Outcome, PoolPlace, Session, Shape, Submission, Within};
use parking_lot::Mutex;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// A type whose objects live in slots. [`#[paceline::actor]`](macro@crate::actor) makes one of an `impl` block.
pub trait Actor: Sized + 'static {
    /// What slots, and other programs, know the type by.
    const NAME: &'static str;
    /// The arguments of `new`, as a tuple.
    type Arguments: Serialize + DeserializeOwned;
    /// What stands for an object, with its methods.
    type Handle: From<ActorHandle>;
    #[doc(hidden)]
    const CLASS: &'static Class;
    /// How its objects are to be, unless somebody says otherwise.
    fn options() -> ActorBuilder<Self>;
}

/// What slots know of a type: the names of the functions that build, call, save and restore an object.
#[doc(hidden)]
pub struct Class {
    pub name: &'static str,
    pub new: &'static str,
    pub methods: &'static [&'static str],
    /// How its state is asked for and put back.
    pub saves: Option<(&'static str, &'static str)>,
}

/// How an actor is to be: what stands in `#[paceline::actor(...)]`, or `Counter::options()`.
#[must_use = "spawn() builds the object"]
pub struct ActorBuilder<A> {
    options: Options,
    restarts: u32,
    name: Option<String>,
    kind: PhantomData<fn() -> A>,
}

impl<A: Actor> ActorBuilder<A> {
    #[doc(hidden)]
    pub fn new() -> ActorBuilder<A> {
        ActorBuilder { options: Options::new(), restarts: 0, name: None, kind: PhantomData }
    }

    /// How often it is built anew after its process has died (0).
    pub fn restarts(self, restarts: u32) -> Self {
        ActorBuilder { restarts, ..self }
    }

    /// What others find it by: [`Cluster::get_actor`].
    pub fn named(self, name: impl Into<String>) -> Self {
        ActorBuilder { name: Some(name.into()), ..self }
    }

    /// How many CPUs it has as long as it lives (1); with 0 it shares what is there.
    pub fn cpus(self, cpus: f64) -> Self {
        ActorBuilder { options: self.options.cpus(cpus), ..self }
    }

    /// See [`Options::gpus`].
    pub fn gpus(self, gpus: f64) -> Self {
        ActorBuilder { options: self.options.gpus(gpus), ..self }
    }

    /// See [`Options::memory`].
    pub fn memory(self, bytes: u64) -> Self {
        ActorBuilder { options: self.options.memory(bytes), ..self }
    }

    /// How long [`spawn`](ActorBuilder::spawn) waits for a slot; zero, the default, is as long as it takes.
    pub fn wait(self, wait: Duration) -> Self {
        ActorBuilder { options: self.options.wait(wait), ..self }
    }

    /// How long one call may run; zero, the default, is as long as it likes.
    pub fn timeout(self, timeout: Duration) -> Self {
        ActorBuilder { options: self.options.timeout(timeout), ..self }
    }

    /// Build an object in a slot of its own. Waits for its `new`, and fails as that fails.
    pub fn spawn(&self, cluster: &Cluster, arguments: A::Arguments) -> Result<A::Handle> {
        let class = A::CLASS;
        let restarts = Some(self.restarts);
        let kind =
            Kind { size: 1, eager: true, once: true, restarts, calls_per_slot: None, history: HISTORY };
        let slots = Slots::open(cluster, kind, self.options)?;
        slots.prepare(class.new, encoded(class.new, &arguments)?)?;
        let identity = new_identity()?;
        let home = Arc::new(Home {
            class,
            identity,
            functions: class.methods.iter().map(|name| slots.define(name)).collect(),
            session: slots.session.clone(),
            save: class.saves.filter(|_| self.restarts > 0).map(|(name, _)| slots.define(name)),
            saving: Mutex::new(Saving::default()),
            ended: AtomicBool::new(false),
            place: Place::Own(slots),
        });
        if let Some(name) = &self.name {
            home.host(name, self.options.timeout)?;
            cluster.keep_actor(identity, &home);
        }
        home.await_object(self.options.wait)?;
        Ok(ActorHandle { home, timeout: self.options.timeout }.into())
    }
}

/// Stands for an object that lives in a slot. What `#[paceline::actor]` makes for a type has its methods, and derefs to
/// this. Cheap to clone; when its maker has dropped the last one, the object ends after the calls that were submitted.
#[derive(Clone)]
pub struct ActorHandle {
    home: Arc<Home>,
    timeout: Duration,
}

pub(crate) struct Home {
    class: &'static Class,
    session: Session,
    identity: ActorId,
    /// Its methods, as the session knows them.
    functions: Vec<FunctionId>,
    /// Asks for its state, if that is kept.
    save: Option<FunctionId>,
    saving: Mutex<Saving>,
    /// Somebody here has destroyed it.
    ended: AtomicBool,
    place: Place,
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

/// How long an actor is waited for that is about to come.
const COMES_WITHIN: Duration = Duration::from_secs(10);

/// Later checkpoints make earlier ones void.
const CHECKPOINT: &[u8] = b"checkpoint";

impl Cluster {
    /// The actor of this name, which this program or another one of the cluster has made.
    ///
    /// ```no_run
    /// # struct Tally;
    /// # #[paceline::actor]
    /// # impl Tally {
    /// #     fn new() -> Tally { Tally }
    /// #     fn count(&self) -> u64 { 7 }
    /// # }
    /// # fn main() -> paceline::Result<()> {
    /// # let cluster = paceline::Cluster::connect()?;
    /// println!("{}", cluster.get_actor::<Tally>("votes")?.count()?);
    /// # Ok(())
    /// # }
    /// ```
    pub fn get_actor<A: Actor>(&self, name: &str) -> Result<A::Handle> {
        let missing = |why: String| Error::NoSuchActor { name: name.into(), why };
        if self.session.is_closed() {
            return Err(Error::Closed);
        }
        let found = self.session.find_actor(name, COMES_WITHIN).map_err(missing)?;
        let (identity, card) = found.ok_or_else(|| missing(String::new()))?;
        let (timeout, kind) = read_card(&card).ok_or_else(|| missing("it is no actor of Rust".into()))?;
        if kind != A::NAME {
            return Err(missing(format!("it is a {kind}, and no {}", A::NAME)));
        }
        let home =
            self.kept_actor(identity).unwrap_or_else(|| Home::visit(&self.session, identity, A::CLASS));
        Ok(ActorHandle { home, timeout }.into())
    }
}

/// A number that no other actor has.
fn new_identity() -> Result<ActorId> {
    let mut number = [0; 16];
    fill_random(&mut number).map_err(|error| Error::Start(Arc::new(error)))?;
    Ok(ActorId(u128::from_le_bytes(number)))
}

fn write_card(class: &Class, timeout: Duration) -> Vec<u8> {
    let milliseconds = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
    [&[CARD], &milliseconds.to_le_bytes()[..], class.name.as_bytes()].concat()
}

fn read_card(card: &[u8]) -> Option<(Duration, &str)> {
    let (milliseconds, name) = card.strip_prefix(&[CARD])?.split_first_chunk()?;
    Some((Duration::from_millis(u64::from_le_bytes(*milliseconds)), std::str::from_utf8(name).ok()?))
}

impl Home {
    fn visit(session: &Session, identity: ActorId, class: &'static Class) -> Arc<Home> {
        session.visit(identity);
        let define = |name: &&str| session.define(super::slot_main::name_bytes(name));
        Arc::new(Home {
            class,
            session: session.clone(),
            identity,
            functions: class.methods.iter().map(define).collect(),
            save: None,
            saving: Mutex::default(),
            ended: AtomicBool::new(false),
            place: Place::Elsewhere,
        })
    }

    /// Let others find it.
    fn host(&self, name: &str, timeout: Duration) -> Result<()> {
        let Place::Own(slots) = &self.place else { return Ok(()) };
        let about = write_card(self.class, timeout);
        let card = Card { name: Some(name.into()), about, program: None };
        let refused = |why| Error::ActorRefused { name: name.into(), why };
        self.session.host_actor(self.identity, card, slots.id()).map_err(refused)
    }

    /// Wait until the object was built.
    fn await_object(&self, wait: Duration) -> Result<()> {
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
                retry_on: crate::RetryOn::default(),
                timeout,
                priority: 0,
                wait: Duration::ZERO,
                within: Within::Guest(self.identity),
            },
        }
    }

    fn target(&self, method: usize, timeout: Duration) -> Result<Target> {
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
    fn changed(self: &Arc<Home>) {
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

    /// Ask for the object's state (AC-3).
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

impl ActorHandle {
    /// Run a method, by its number, and wait for its value. The typed methods are the way to do this.
    #[doc(hidden)]
    pub fn call<O: DeserializeOwned>(&self, method: usize, arguments: &impl Serialize) -> Result<O> {
        let result = self.home.target(method, self.timeout)?.call(arguments);
        self.home.changed();
        result
    }

    /// Have a method run, by its number.
    #[doc(hidden)]
    pub fn submit<O: DeserializeOwned>(&self, method: usize, arguments: &impl Serialize) -> Future<O> {
        let future = match self.home.target(method, self.timeout) {
            Ok(target) => target.submit(arguments),
            Err(error) => return Future::failed(error),
        };
        self.home.changed();
        future
    }

    #[doc(hidden)]
    #[must_use]
    pub fn with_timeout(&self, timeout: Duration) -> ActorHandle {
        ActorHandle { home: self.home.clone(), timeout }
    }

    /// End the object now: its process ends, and what waited for it is cancelled. Harmless when repeated.
    pub fn destroy(&self) {
        if self.home.ended.swap(true, Ordering::Relaxed) {
            return;
        }
        match &self.home.place {
            Place::Own(slots) => slots.close(),
            Place::Elsewhere => self.home.session.end_actor(self.home.identity, "it was destroyed"),
        }
    }

    /// Where it lives, if this program has made it and its process is there.
    pub fn place(&self) -> Option<PoolPlace> {
        match &self.home.place {
            Place::Own(slots) => slots.places().into_iter().next(),
            Place::Elsewhere => None,
        }
    }
}

/// Two handles are equal if they stand for the same object.
impl PartialEq for ActorHandle {
    fn eq(&self, other: &ActorHandle) -> bool {
        self.home.identity == other.home.identity
    }
}

impl Eq for ActorHandle {}

impl std::fmt::Debug for ActorHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ActorHandle({}", self.home.class.name)?;
        if let Some(place) = self.place() {
            write!(f, ", slot {} on {}", place.slot.0, place.node)?;
        }
        write!(f, ")")
    }
}
