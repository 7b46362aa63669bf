//! Actors: objects that live in slots, and what stands for them here.
//!
//! * AC-1: calls of one process run at most once, and in the order in which they were made.
//! * AC-2: an actor ends when its maker has no handle to it any more, after the calls that were submitted.

use super::home::{self, Home};
use super::slots::{HISTORY, Kind, Slots, encoded};
use super::{Cluster, Error, Future, Options, Result};
use crate::{ActorId, PoolPlace, Search};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::marker::PhantomData;
use std::sync::Arc;
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
        let identity = home::new_identity()?;
        let Some(name) = &self.name else { return self.built(cluster, identity, &arguments) };
        if cluster.session.is_closed() {
            return Err(Error::Closed);
        }
        let refused = |why| Error::ActorRefused { name: name.clone(), why };
        // Before its `new` is sent: another of the name may live, and two must not run at the same time.
        home::claim(&cluster.session, identity, A::CLASS, name, self.options.timeout).map_err(refused)?;
        let built = self.built(cluster, identity, &arguments);
        if built.is_err() {
            cluster.session.end_actor(identity, "it was not built");
        }
        built
    }

    fn built(&self, cluster: &Cluster, identity: ActorId, arguments: &A::Arguments) -> Result<A::Handle> {
        let class = A::CLASS;
        let restarts = Some(self.restarts);
        let kind =
            Kind { size: 1, eager: true, once: true, restarts, calls_per_slot: None, history: HISTORY };
        let slots = Slots::open(cluster, kind, self.options)?;
        slots.prepare(class.new, encoded(class.new, arguments)?)?;
        let home = Home::own(slots, class, identity, self.restarts > 0);
        if let Some(name) = &self.name {
            let refused = |why| Error::ActorRefused { name: name.clone(), why };
            home.host(true, self.options.timeout).map_err(refused)?;
        }
        home.await_object(self.options.wait)?;
        Ok(ActorHandle { home, timeout: self.options.timeout }.into())
    }
}

/// Stands for an object that lives in a slot. What `#[paceline::actor]` makes for a type has its methods, and derefs to
/// this. Cheap to clone; when its maker has dropped the last one, the object ends after the calls that were submitted.
#[derive(Clone)]
pub struct ActorHandle {
    pub(super) home: Arc<Home>,
    pub(super) timeout: Duration,
}

/// How long an actor is waited for that is about to come.
const COMES_WITHIN: Duration = Duration::from_secs(10);

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
        let found = self.session.find_actor(name, COMES_WITHIN, &mut || false).map_err(missing)?;
        let (identity, card) = match found {
            Search::Found(found) => found,
            Search::Coming => {
                return Err(missing("it is being started, or built anew; try again in a while".into()));
            }
            Search::Absent { gone } => return Err(missing(gone.unwrap_or_default())),
        };
        let (timeout, kind) =
            home::read_card(&card).ok_or_else(|| missing("it is no actor of Rust".into()))?;
        if kind != A::NAME {
            return Err(missing(format!("it is a {kind}, and no {}", A::NAME)));
        }
        let home = home::known(identity).unwrap_or_else(|| Home::visit(&self.session, identity, A::CLASS));
        Ok(ActorHandle { home, timeout }.into())
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
        self.home.destroy();
    }

    /// Where it lives, if this program has made it and its process is there.
    pub fn place(&self) -> Option<PoolPlace> {
        self.home.place()
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
