//! The objects that this process has references to: its link to the store of its node.
//!
//! Owns: the link and the thread that reads it, what is counted here, descriptors of objects that were used. Does not own:
//! what is in an object, and how long it lives ([`paceline_core::objects`] decides).
//!
//! * OJ-1: whatever says something to the store does so under the lock that guards the counts, so that the store hears it
//!   in the order it happened here.
//! * OJ-2: nothing is dropped under that lock that would take it again.
//! * OJ-3: in a forked child nothing of this is touched: the references there count for nothing.

use crate::makers::Maker;
use crate::session::generation;
use paceline_core::objects::Holder;
use paceline_net::control::{Inbox, Outbox};
use paceline_net::kept::Kept;
use paceline_net::poll::{self, Wake};
use paceline_net::sealed::Mapping;
use paceline_net::signals;
use paceline_proto::limits;
use paceline_proto::objects::{FromStore, Full, Missing, Reference, ToStore};
use paceline_proto::{ClientId, NodeId, ObjectId, PinId};
use parking_lot::{Condvar, Mutex};
use rustix::event::{PollFd, PollFlags};
use rustix::fd::OwnedFd;
use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// So many objects that were used here stay at hand.
const MOST_AT_HAND: usize = 64;
const STACK: usize = 256 << 10;

/// The link of this process to a store.
#[derive(Clone)]
pub struct Objects {
    inner: Arc<Inner>,
}

struct Inner {
    socket: Kept,
    wake: Wake,
    state: Mutex<State>,
    answered: Condvar,
    owner: ClientId,
    generation: u32,
}

#[derive(Default)]
struct State {
    outbox: Outbox,
    holder: Holder,
    numbers: u64,
    /// Questions without an answer, and answers that nobody has taken.
    asked: HashMap<u64, Option<Answer>>,
    /// Which object a question was about that brings its bytes.
    wanted: HashMap<u64, ObjectId>,
    at_hand: VecDeque<Arc<Content>>,
    /// How many contents of an object there are here, or are on their way.
    having: HashMap<ObjectId, u32>,
    node: Option<NodeId>,
    /// How objects were made that the store may want to be made again.
    makers: HashMap<ObjectId, Arc<Maker>>,
    broken: bool,
    /// Why the node did not let this process in.
    refused: Option<String>,
}

/// What the store answers.
#[derive(Clone)]
pub enum Answer {
    /// There is room.
    Room,
    Full(Full),
    /// The object is held.
    Held,
    Content(Arc<Content>),
    Missing(Missing),
    /// There is no store any more: its node has ended.
    Broken,
    /// The node did not let this process have a link to its store, for this reason.
    Refused(String),
}

/// A question to the store.
pub struct Asked {
    inner: Arc<Inner>,
    number: u64,
}

/// The bytes of an object, as they are kept.
pub struct Content {
    object: ObjectId,
    bytes: Kind,
    of: Weak<Inner>,
}

enum Kind {
    Small(Vec<u8>),
    File { file: Kept, size: usize },
}

/// A reference that counts. Its object stays for as long as this does.
pub struct Held {
    inner: Arc<Inner>,
    reference: Reference,
}

impl Objects {
    /// A store is at the other end of this socket, where objects are made on this client's account. `root`: it is this
    /// process.
    pub fn open(socket: OwnedFd, owner: ClientId, root: bool) -> io::Result<Objects> {
        let inner = Arc::new(Inner {
            socket: Kept::new(socket),
            wake: Wake::new()?,
            state: Mutex::default(),
            answered: Condvar::new(),
            owner,
            generation: generation(),
        });
        inner.say(&mut inner.state.lock(), &ToStore::Hello { owner, root }, None);
        let reader = inner.clone();
        let thread = std::thread::Builder::new().name("paceline-objects".into()).stack_size(STACK);
        thread.spawn(move || {
            signals::block_all();
            reader.read();
        })?;
        Ok(Objects { inner })
    }

    /// Whether the store is gone.
    pub fn is_broken(&self) -> bool {
        self.inner.is_foreign() || self.inner.state.lock().broken
    }

    /// Whether this process was forked from the one that has the link. Nobody would answer here.
    pub fn is_foreign(&self) -> bool {
        self.inner.is_foreign()
    }

    /// Ask for room for an object of so many bytes.
    pub fn reserve(&self, object: ObjectId, size: u64, wait: Duration) -> Asked {
        self.inner.ask(|number| ToStore::Reserve { number, object, size, wait })
    }

    /// The object for which there is room is this.
    pub fn put(&self, object: ObjectId, memory: OwnedFd, inside: Vec<Reference>) -> Held {
        let mut state = self.inner.state.lock();
        state.holder.add(object);
        self.inner.say(&mut state, &ToStore::Put { object, inside }, Some(memory));
        self.held(&state, object)
    }

    /// Keep these few bytes, if there is room.
    pub fn put_small(
        &self,
        object: ObjectId,
        bytes: Vec<u8>,
        inside: Vec<Reference>,
        wait: Duration,
    ) -> Asked {
        self.inner.ask(|number| ToStore::PutSmall { number, object, bytes, inside, wait })
    }

    /// They are kept.
    pub fn put_done(&self, object: ObjectId) -> Held {
        let mut state = self.inner.state.lock();
        state.holder.add(object);
        self.held(&state, object)
    }

    /// No object will come.
    pub fn abandon(&self, object: ObjectId) {
        self.inner.say(&mut self.inner.state.lock(), &ToStore::Abandon { object }, None);
    }

    fn held(&self, state: &State, object: ObjectId) -> Held {
        let home = state.node.expect("a store says first which it is");
        Held { inner: self.inner.clone(), reference: Reference { object, owner: self.inner.owner, home } }
    }

    /// One more reference to an object that something else keeps until the store has answered. Nothing to wait for: this
    /// process has one already.
    pub fn hold(&self, reference: Reference) -> (Held, Option<Asked>) {
        let mut state = self.inner.state.lock();
        let first = state.holder.add(reference.object);
        let asked =
            first.then(|| self.inner.ask_in(&mut state, |number| ToStore::Hold { number, reference }));
        (Held { inner: self.inner.clone(), reference }, asked)
    }

    /// A reference has arrived by this pin.
    pub fn claim(&self, pin: PinId, reference: Reference) -> (Held, Asked) {
        let mut state = self.inner.state.lock();
        state.holder.add(reference.object);
        let asked = self.inner.ask_in(&mut state, |number| ToStore::Claim { number, pin, reference });
        (Held { inner: self.inner.clone(), reference }, asked)
    }

    /// The object was made like this, and can be made again so.
    pub fn remember(&self, object: ObjectId, maker: Maker) {
        if self.inner.is_foreign() {
            return;
        }
        let (inputs, bytes, again) = (maker.inputs.clone(), maker.bytes(), maker.may_run_again());
        let mut state = self.inner.state.lock();
        if state.broken {
            return;
        }
        let before = state.makers.insert(object, Arc::new(maker));
        self.inner.say(&mut state, &ToStore::Remember { object, inputs, bytes, again }, None);
        drop(state);
        // OJ-2
        drop(before);
    }

    /// Its task has run again; or why it has not.
    pub(crate) fn ran(&self, object: ObjectId, failed: Option<String>) {
        let failed = failed.map(|mut why| {
            limits::clip(&mut why, limits::LONGEST_TEXT);
            why
        });
        self.inner.say(&mut self.inner.state.lock(), &ToStore::Ran { object, failed }, None);
    }

    /// Nobody will claim it.
    pub fn unpin(&self, pin: PinId) {
        if !self.inner.is_foreign() {
            self.inner.say(&mut self.inner.state.lock(), &ToStore::Unpin { pin }, None);
        }
    }

    /// The bytes of an object.
    pub fn get(&self, reference: Reference) -> Result<Arc<Content>, Asked> {
        let mut state = self.inner.state.lock();
        if let Some(found) = state.at_hand.iter().find(|content| content.object == reference.object) {
            return Ok(found.clone());
        }
        *state.having.entry(reference.object).or_default() += 1;
        let asked = self.inner.ask_in(&mut state, |number| ToStore::Get { number, reference });
        state.wanted.insert(asked.number, reference.object);
        Err(asked)
    }
}

impl Held {
    pub fn reference(&self) -> Reference {
        self.reference
    }

    /// The link over which it is held.
    pub fn objects(&self) -> Objects {
        Objects { inner: self.inner.clone() }
    }

    /// Let it travel by this pin.
    pub fn pin(&self, pin: PinId) -> Asked {
        let reference = self.reference;
        self.inner.ask(|number| ToStore::Pin { number, pin, reference })
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if self.inner.is_foreign() {
            return;
        }
        let object = self.reference.object;
        let mut state = self.inner.state.lock();
        if state.holder.remove(object) {
            self.inner.say(&mut state, &ToStore::Release { object }, None);
        }
    }
}

impl Content {
    /// How many bytes it has.
    pub fn size(&self) -> usize {
        match &self.bytes {
            Kind::Small(bytes) => bytes.len(),
            Kind::File { size, .. } => *size,
        }
    }

    /// The bytes, if they are few.
    pub fn small(&self) -> Option<&[u8]> {
        match &self.bytes {
            Kind::Small(bytes) => Some(bytes),
            Kind::File { .. } => None,
        }
    }

    /// A map of the bytes that nobody else has, to be read and written. None if they are few.
    pub fn map(&self) -> Option<io::Result<Mapping>> {
        match &self.bytes {
            Kind::Small(_) => None,
            Kind::File { file, size } => Some(Mapping::private(file, *size)),
        }
    }
}

impl Drop for Content {
    fn drop(&mut self) {
        if matches!(self.bytes, Kind::Small(_)) {
            return;
        }
        if let Some(inner) = self.of.upgrade().filter(|inner| !inner.is_foreign()) {
            inner.let_go(&mut inner.state.lock(), self.object);
        }
    }
}

impl Asked {
    /// The answer, if it comes within the time.
    pub fn wait(&self, within: Duration) -> Option<Answer> {
        let until = Instant::now() + within;
        let mut state = self.inner.state.lock();
        loop {
            if let Some(answer) = state.asked.get_mut(&self.number).and_then(Option::take) {
                return Some(answer);
            }
            if state.broken {
                return Some(state.refused.clone().map_or(Answer::Broken, Answer::Refused));
            }
            if self.inner.answered.wait_until(&mut state, until).timed_out() {
                return state.asked.get_mut(&self.number).and_then(Option::take);
            }
        }
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        if self.inner.is_foreign() {
            return;
        }
        let mut state = self.inner.state.lock();
        let answer = state.asked.remove(&self.number);
        drop(state);
        // OJ-2
        drop(answer);
    }
}

impl Inner {
    fn is_foreign(&self) -> bool {
        self.generation != generation()
    }

    fn say(&self, state: &mut State, message: &ToStore, memory: Option<OwnedFd>) {
        if state.broken || self.is_foreign() {
            return;
        }
        state.outbox.push(message, memory.into_iter().collect());
        if state.outbox.flush(&self.socket).is_err() {
            // The thread that reads sends the rest, or finds out that there is nobody to send it to.
            self.wake.wake();
        }
    }

    fn ask(self: &Arc<Self>, message: impl FnOnce(u64) -> ToStore) -> Asked {
        self.ask_in(&mut self.state.lock(), message)
    }

    fn ask_in(self: &Arc<Self>, state: &mut State, message: impl FnOnce(u64) -> ToStore) -> Asked {
        state.numbers += 1;
        let number = state.numbers;
        state.asked.insert(number, None);
        self.say(state, &message(number), None);
        Asked { inner: self.clone(), number }
    }

    fn let_go(&self, state: &mut State, object: ObjectId) {
        let Some(count) = state.having.get_mut(&object) else { return };
        *count -= 1;
        if *count == 0 {
            state.having.remove(&object);
            self.say(state, &ToStore::LetGo { object }, None);
        }
    }

    /// The thread that reads: until the store is gone.
    fn read(self: Arc<Self>) {
        let mut inbox = Inbox::<FromStore>::default();
        while self.wait_for_more().is_ok() {
            match inbox.fill(&self.socket) {
                Ok(0) => break,
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
                Err(_) => break,
            }
            loop {
                match inbox.next() {
                    Ok(Some((message, files))) => self.on_message(message, files),
                    Ok(None) => break,
                    Err(error) => {
                        tracing::error!(%error, "the store says what stores do not say");
                        return self.break_off();
                    }
                }
            }
        }
        self.break_off();
    }

    fn wait_for_more(&self) -> io::Result<()> {
        let unsent = self.state.lock().outbox.queued() > 0;
        let interest = if unsent { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
        let mut waits = [PollFd::new(&self.socket, interest), PollFd::new(&self.wake, PollFlags::IN)];
        poll::wait(&mut waits, None)?;
        if !waits[1].revents().is_empty() {
            self.wake.clear();
        }
        if unsent {
            let mut state = self.state.lock();
            if let Err(error) = state.outbox.flush(&self.socket)
                && error.kind() != io::ErrorKind::WouldBlock
            {
                // Nobody hears it. But the last words of a node that refuses the link may be here to read.
                state.outbox = Outbox::default();
            }
        }
        Ok(())
    }

    fn on_message(self: &Arc<Self>, message: FromStore, files: Vec<OwnedFd>) {
        let mut state = self.state.lock();
        let (number, answer) = match message {
            FromStore::Welcome { node } => {
                state.node = Some(node);
                return;
            }
            FromStore::Refused { why } => {
                state.refused = Some(why);
                return;
            }
            FromStore::Unneeded { object } => {
                let (gone, rest) = state.at_hand.drain(..).partition(|content| content.object == object);
                state.at_hand = rest;
                drop(state);
                // OJ-2
                let gone: VecDeque<Arc<Content>> = gone;
                return drop(gone);
            }
            FromStore::Make { object } => {
                let maker = state.makers.get(&object).cloned();
                drop(state);
                let objects = Objects { inner: self.clone() };
                return match maker {
                    Some(maker) => maker.run(object, objects),
                    None => objects.ran(object, Some("nobody knows its task".into())),
                };
            }
            FromStore::Forget { object } => {
                let maker = state.makers.remove(&object);
                drop(state);
                // OJ-2
                return drop(maker);
            }
            // These are for the stores of nodes.
            FromStore::Offered { .. } | FromStore::Unsent { .. } | FromStore::Gone { .. } => return,
            FromStore::Room { number } => (number, Answer::Room),
            FromStore::Full { number, why } => {
                if let Some(object) = state.wanted.get(&number).copied() {
                    self.let_go(&mut state, object);
                }
                (number, Answer::Full(why))
            }
            FromStore::Held { number } => (number, Answer::Held),
            FromStore::Missing { number, why } => {
                if let Some(object) = state.wanted.get(&number).copied() {
                    self.let_go(&mut state, object);
                }
                (number, Answer::Missing(why))
            }
            FromStore::Small { number, bytes } => {
                let object = state.wanted.get(&number).copied().unwrap_or_default();
                self.let_go(&mut state, object);
                let bytes = Kind::Small(bytes);
                (number, Answer::Content(Arc::new(Content { object, bytes, of: Weak::new() })))
            }
            FromStore::Memory { number, object, size } => {
                let Some(file) = files.into_iter().next() else { return };
                let bytes = Kind::File { file: Kept::new(file), size: size as usize };
                let content = Arc::new(Content { object, bytes, of: Arc::downgrade(self) });
                (number, Answer::Content(content))
            }
        };
        state.wanted.remove(&number);
        let mut surplus = None;
        if let Answer::Content(content) = &answer
            && matches!(content.bytes, Kind::File { .. })
        {
            state.at_hand.push_back(content.clone());
            surplus = if state.at_hand.len() > MOST_AT_HAND { state.at_hand.pop_front() } else { None };
        }
        // Nobody may wait for it any more.
        let unasked = match state.asked.get_mut(&number) {
            Some(place) => {
                *place = Some(answer);
                None
            }
            None => Some(answer),
        };
        self.answered.notify_all();
        drop(state);
        // OJ-2
        drop((surplus, unasked));
    }

    fn break_off(&self) {
        let mut state = self.state.lock();
        state.broken = true;
        let at_hand = std::mem::take(&mut state.at_hand);
        let makers = std::mem::take(&mut state.makers);
        self.answered.notify_all();
        drop(state);
        drop((at_hand, makers));
    }
}
