//! A world for objects alone: clients, their slots and one store, under a seed; or a cluster, where each client and each node
//! has a store (`sites.rs`), and nodes may die (`losses.rs`).
//!
//! Calls and results carry references between processes; links are slow, but keep their order; slots and clients die at
//! any moment, with or without what they had just sent; disks are slow and refuse.
//!
//! * SO-1: who has a reference gets the bytes, as long as its owner lives: while a process holds it, while a call with it
//!   is under way, and when a result with it arrives, whatever became of the slot that sent it.
//! * SO-2: when everybody has let go, nothing is left but results that were pinned and never sent, because their slot died
//!   before; and those go with their owner: no object, no pin, no memory in use.
//! * SO-3: every question is answered once.

mod ending;
mod losses;
mod sites;

use crate::random::Random;
use losses::Losses;
use paceline_core::Tick;
use paceline_core::objects::{Event, Holder, LinkId};
use paceline_proto::control::Message;
use paceline_proto::frame::Decoder;
use paceline_proto::objects::{FromStore, Missing, Reference, ToStore};
use paceline_proto::{ClientId, NodeId, ObjectId, PinId};
use sites::Sites;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

const NODE: NodeId = NodeId(1);
const LIMIT: u64 = 1000;
const SLOTS: usize = 3;
/// So many bytes may be known of how objects were made.
const REMEMBERED: u64 = 2000;

/// Why a process asked the store something.
#[derive(Clone, Debug)]
enum Why {
    Room {
        reference: Reference,
        small: bool,
        then: Option<u64>,
    },
    /// The slot that runs this call keeps what it got.
    Hold(Reference, u64),
    /// The bytes, for itself or for the call of this number.
    Get(Reference, Option<u64>),
    Pin {
        call: u64,
    },
    Claim(Reference),
    /// The object that this call makes again may have room.
    Again {
        call: u64,
        small: bool,
    },
    /// Its owner knows of it.
    Settled {
        call: u64,
    },
}

/// What a process does.
struct Process {
    owner: ClientId,
    /// Where its store is.
    site: usize,
    root: bool,
    alive: bool,
    holder: Holder,
    /// Each once for every reference, but for those in its calls.
    refs: Vec<Reference>,
    having: BTreeSet<ObjectId>,
    asked: BTreeMap<u64, Why>,
    numbers: u64,
    out: VecDeque<Vec<u8>>,
    /// Its store knows of its end.
    noticed: bool,
}

/// A call from a client to a slot.
struct Call {
    caller: usize,
    slot: usize,
    refs: Vec<Reference>,
    state: State,
    /// It makes this object again.
    makes: Option<Reference>,
    /// It has missed something.
    failed: bool,
}

#[derive(Debug)]
enum State {
    Travels,
    /// The slot waits for so many answers.
    Runs(usize),
    /// The result is pinned before it is sent.
    Pinning(Reference, PinId),
    Returns(Option<(Reference, PinId)>),
}

/// What a run met.
#[derive(Clone, Copy, Default, Debug)]
pub struct Met {
    pub puts: u64,
    pub gets: u64,
    pub results: u64,
    pub deaths: u64,
    pub spilled: u64,
    pub refused: u64,
    pub owners_lost: u64,
    pub fetched: u64,
    pub unfetched: u64,
    pub passed_on: u64,
    pub nodes_lost: u64,
    pub lost: u64,
    pub made_again: u64,
    pub in_vain: u64,
}

struct World {
    random: Random,
    now: Tick,
    sites: Sites,
    processes: Vec<Process>,
    inbound: Vec<VecDeque<Vec<u8>>>,
    calls: BTreeMap<u64, Call>,
    called: u64,
    drawn: u128,
    /// Results that were pinned by slots that died before they had sent them.
    unsent: BTreeSet<ObjectId>,
    losses: Losses,
    met: Met,
}

/// Run one seed for so many steps. An error names what broke.
pub fn run_objects(seed: u64, steps: usize) -> Result<Met, String> {
    run(seed, steps, Sites::one())
}

/// The same in a cluster.
pub fn run_copies(seed: u64, steps: usize) -> Result<Met, String> {
    run(seed, steps, Sites::cluster())
}

/// The same in a cluster whose nodes die.
pub fn run_losses(seed: u64, steps: usize) -> Result<Met, String> {
    run_with(seed, steps, Sites::cluster(), Losses::some())
}

fn run(seed: u64, steps: usize, sites: Sites) -> Result<Met, String> {
    run_with(seed, steps, sites, Losses::default())
}

fn run_with(seed: u64, steps: usize, sites: Sites, losses: Losses) -> Result<Met, String> {
    let mut world = World {
        random: Random::new(seed),
        now: Tick::ZERO,
        sites,
        processes: Vec::new(),
        inbound: Vec::new(),
        calls: BTreeMap::new(),
        called: 0,
        drawn: 0,
        unsent: BTreeSet::new(),
        losses,
        met: Met::default(),
    };
    for owner in 1..=2 {
        world.start(ClientId(owner), true)?;
        for _ in 0..SLOTS {
            world.start(ClientId(owner), false)?;
        }
    }
    for step in 0..steps {
        world.step(true).map_err(|why| format!("seed {seed}, step {step}: {why}"))?;
    }
    world.rest().map_err(|why| format!("seed {seed}, at rest: {why}"))?;
    Ok(world.met)
}

fn encoded(message: &impl Message) -> Vec<u8> {
    let mut bytes = Vec::new();
    message.encode(&mut bytes).expect("it fits");
    bytes
}

fn decoded<M: Message>(bytes: &[u8]) -> M {
    let mut decoder = Decoder::default();
    decoder.feed(bytes);
    M::decode(&decoder.next_frame().expect("well formed").expect("whole")).expect("ours")
}

impl World {
    fn draw(&mut self) -> u128 {
        self.drawn += 1;
        self.drawn
    }

    fn start(&mut self, owner: ClientId, root: bool) -> Result<(), String> {
        let id = self.processes.len();
        let site = self.site_for(owner, root)?;
        self.processes.push(Process {
            owner,
            site,
            root,
            alive: true,
            holder: Holder::default(),
            refs: Vec::new(),
            having: BTreeSet::new(),
            asked: BTreeMap::new(),
            numbers: 0,
            out: VecDeque::new(),
            noticed: false,
        });
        self.inbound.push(VecDeque::new());
        self.tell(site, Event::LinkUp(LinkId(id as u64)))?;
        // Nothing of a client runs before the store knows it, or nobody would hear of its end.
        self.tell(site, Event::From(LinkId(id as u64), ToStore::Hello { owner, root }))
    }

    fn is_alive(&self, owner: ClientId) -> bool {
        self.processes.iter().any(|process| process.root && process.alive && process.owner == owner)
    }

    /// One thing happens.
    fn step(&mut self, war: bool) -> Result<(), String> {
        self.now = self.now + Duration::from_millis(self.random.within(0..20));
        self.losses.step += 1;
        if war && self.losses.happen && self.random.below(1000) == 0 {
            return self.kill_node();
        }
        if self.sites.is_cluster() && self.random.percent(40) {
            return self.between();
        }
        match self.random.below(100) {
            0..35 => self.deliver_to_store(),
            35..65 => self.deliver_from_store(),
            65..68 => {
                let site = self.any_site();
                self.tell(site, Event::Tick)
            }
            68..74 => self.on_disk(),
            74..84 => self.on_call(),
            84..99 if war => self.act(),
            99 if war => self.kill(),
            _ => Ok(()),
        }
    }

    fn say(&mut self, id: usize, message: &ToStore) {
        if self.processes[id].alive {
            self.processes[id].out.push_back(encoded(message));
        }
    }

    fn ask(&mut self, id: usize, why: Why, message: impl FnOnce(u64) -> ToStore) {
        let process = &mut self.processes[id];
        process.numbers += 1;
        let number = process.numbers;
        process.asked.insert(number, why);
        self.losses.asked.insert((id, number), self.losses.step);
        self.say(id, &message(number));
    }

    /// A process whose link has something to bring, or to end.
    fn deliver_to_store(&mut self) -> Result<(), String> {
        let id = self.random.below(self.processes.len());
        let process = &mut self.processes[id];
        if let Some(bytes) = process.out.pop_front() {
            let site = process.site;
            let message = decoded(&bytes);
            self.losses.on_delivered(&message);
            return self.tell(site, Event::From(LinkId(id as u64), message));
        }
        if !process.alive && !process.noticed {
            process.noticed = true;
            let site = process.site;
            return self.tell(site, Event::LinkDown(LinkId(id as u64)));
        }
        Ok(())
    }

    fn deliver_from_store(&mut self) -> Result<(), String> {
        let id = self.random.below(self.processes.len());
        let Some(bytes) = self.inbound[id].pop_front() else { return Ok(()) };
        if !self.processes[id].alive {
            return Ok(());
        }
        let message: FromStore = decoded(&bytes);
        match message {
            FromStore::Welcome { .. } => Ok(()),
            FromStore::Offered { .. }
            | FromStore::Unsent { .. }
            | FromStore::Gone { .. }
            | FromStore::Refused { .. } => {
                Err(format!("a process hears what only nodes should: {message:?}"))
            }
            FromStore::Make { object } => self.on_make(id, object),
            FromStore::Forget { object } => {
                self.losses.recipes.remove(&(id, object));
                Ok(())
            }
            FromStore::Unneeded { object } => {
                // What is asked for again is let go of when that has come, too.
                if self.processes[id].having.remove(&object) && !self.asks_for(id, object) {
                    self.say(id, &ToStore::LetGo { object });
                }
                Ok(())
            }
            FromStore::Room { number }
            | FromStore::Full { number, .. }
            | FromStore::Held { number }
            | FromStore::Small { number, .. }
            | FromStore::Memory { number, .. }
            | FromStore::Missing { number, .. } => {
                let why = self.processes[id].asked.remove(&number).ok_or("SO-3: answered twice")?;
                let since = self.losses.asked.remove(&(id, number)).unwrap_or_default();
                match (why, message) {
                    (why @ (Why::Again { .. } | Why::Settled { .. }), message) => {
                        self.on_made_again(id, why, &message)
                    }
                    (why, FromStore::Missing { why: missing, .. }) => {
                        self.on_missing(id, why, missing, since)
                    }
                    (why, message) => self.on_answer(id, why, message),
                }
            }
        }
    }

    fn on_answer(&mut self, id: usize, why: Why, answer: FromStore) -> Result<(), String> {
        match (why, answer) {
            (Why::Room { reference, small, then }, FromStore::Room { .. }) => {
                self.met.puts += 1;
                let object = reference.object;
                if !small {
                    self.say(id, &ToStore::Put { object, inside: Vec::new() });
                }
                self.processes[id].holder.add(object);
                self.processes[id].refs.push(reference);
                if let Some(call) = then {
                    self.pin(id, call, reference);
                }
            }
            (Why::Room { then, .. }, FromStore::Full { .. }) => {
                self.met.refused += 1;
                if let Some(call) = then.and_then(|call| self.calls.get_mut(&call)) {
                    call.state = State::Returns(None);
                }
            }
            (Why::Hold(_, call), FromStore::Held { .. }) => self.count_answer(Some(call)),
            (Why::Claim(_), FromStore::Held { .. }) => {}
            (Why::Get(reference, call), FromStore::Memory { .. }) => {
                self.met.gets += 1;
                self.processes[id].having.insert(reference.object);
                self.count_answer(call);
            }
            (Why::Pin { call }, FromStore::Held { .. }) => {
                if let Some(found) = self.calls.get_mut(&call)
                    && let State::Pinning(reference, pin) = found.state
                {
                    found.state = State::Returns(Some((reference, pin)));
                }
            }
            (Why::Get(Reference { object, .. }, call), FromStore::Full { .. }) => {
                self.met.refused += 1;
                if !self.processes[id].having.contains(&object) && !self.asks_for(id, object) {
                    self.say(id, &ToStore::LetGo { object });
                }
                self.count_answer(call);
            }
            (why, answer) => return Err(format!("{answer:?} is no answer to {why:?}")),
        }
        Ok(())
    }

    fn asks_for(&self, id: usize, object: ObjectId) -> bool {
        let mut asked = self.processes[id].asked.values();
        asked.any(|why| matches!(why, Why::Get(wanted, _) if wanted.object == object))
    }

    fn on_missing(&mut self, id: usize, why: Why, missing: Missing, since: u64) -> Result<(), String> {
        let (reference, call) = match why {
            Why::Get(reference, call) => (Some(reference), call),
            Why::Hold(reference, call) => (Some(reference), Some(call)),
            Why::Claim(reference) => (Some(reference), None),
            Why::Pin { .. } | Why::Room { .. } | Why::Again { .. } | Why::Settled { .. } => (None, None),
        };
        let owner = reference.map_or(self.processes[id].owner, |reference| reference.owner);
        // A call whose caller has died keeps nothing.
        let orphan = call.is_some_and(|call| !self.calls.contains_key(&call));
        // Its bytes did not get through.
        let failed = reference.is_some_and(|reference| self.sites.failed.contains(&reference.object));
        if self.is_alive(owner) && !orphan && !failed {
            let lost = reference.is_some_and(|reference| self.may_be_lost(reference, &missing, since));
            if !lost {
                return Err(format!("SO-1: process {id} misses {reference:?}: {missing:?}"));
            }
            self.met.lost += 1;
        }
        if let Some(call) = call.and_then(|call| self.calls.get_mut(&call)) {
            call.failed = true;
        }
        self.met.owners_lost += u64::from(missing == Missing::OwnerLost);
        if let Some(Reference { object, .. }) = reference
            && !self.processes[id].having.contains(&object)
            && !self.asks_for(id, object)
        {
            self.say(id, &ToStore::LetGo { object });
        }
        self.count_answer(call);
        Ok(())
    }

    fn count_answer(&mut self, call: Option<u64>) {
        if let Some(call) = call.and_then(|call| self.calls.get_mut(&call))
            && let State::Runs(waits) = &mut call.state
        {
            *waits -= 1;
        }
    }

    fn pin(&mut self, id: usize, call: u64, reference: Reference) {
        let pin = PinId(self.draw());
        if let Some(found) = self.calls.get_mut(&call) {
            found.state = State::Pinning(reference, pin);
            self.ask(id, Why::Pin { call }, |number| ToStore::Pin { number, pin, reference });
        }
    }

    fn living(&mut self, root: Option<bool>, owner: Option<ClientId>) -> Option<usize> {
        let fits = |process: &Process| {
            process.alive
                && root.is_none_or(|root| process.root == root)
                && owner.is_none_or(|owner| process.owner == owner)
        };
        let found: Vec<usize> = (0..self.processes.len()).filter(|&id| fits(&self.processes[id])).collect();
        (!found.is_empty()).then(|| found[self.random.below(found.len())])
    }

    fn put(&mut self, id: usize, then: Option<u64>) {
        let (object, owner) = (ObjectId(self.draw()), self.processes[id].owner);
        let reference = Reference { object, owner, home: NODE };
        let small = self.random.percent(20);
        let size = self.random.within(1..400);
        let wait = Duration::from_millis(self.random.within(0..2000));
        self.ask(id, Why::Room { reference, small, then }, |number| match small {
            true => ToStore::PutSmall { number, object, bytes: vec![7; 10], inside: Vec::new(), wait },
            false => ToStore::Reserve { number, object, size, wait },
        });
    }

    /// A process does something by itself.
    fn act(&mut self) -> Result<(), String> {
        let Some(id) = self.living(None, None) else { return Ok(()) };
        let held = self.processes[id].refs.len();
        match self.random.below(10) {
            0..3 => self.put(id, None),
            3..5 if held > 0 => {
                let at = self.random.below(held);
                self.drop_ref(id, at);
            }
            5 if held > 0 => {
                let reference = self.processes[id].refs[self.random.below(held)];
                self.processes[id].holder.add(reference.object);
                self.processes[id].refs.push(reference);
            }
            6 if held > 0 => {
                let reference = self.processes[id].refs[self.random.below(held)];
                if !self.processes[id].having.contains(&reference.object) {
                    self.ask(id, Why::Get(reference, None), |number| ToStore::Get { number, reference });
                }
            }
            7 => {
                // Only what is not being asked for again: then it would be let go of after it has come.
                let mut having = self.processes[id].having.iter().copied();
                let first = having.find(|&object| !self.asks_for(id, object));
                if let Some(object) = first {
                    self.processes[id].having.remove(&object);
                    self.say(id, &ToStore::LetGo { object });
                }
            }
            _ if self.processes[id].root => self.call(id),
            _ => {}
        }
        Ok(())
    }

    fn drop_ref(&mut self, id: usize, at: usize) {
        let reference = self.processes[id].refs.swap_remove(at);
        self.release(id, reference);
    }

    fn release(&mut self, id: usize, reference: Reference) {
        if self.processes[id].holder.remove(reference.object) {
            self.say(id, &ToStore::Release { object: reference.object });
        }
    }

    fn call(&mut self, caller: usize) {
        let Some(slot) = self.living(Some(false), Some(self.processes[caller].owner)) else { return };
        let known = self.processes[caller].refs.clone();
        let refs: Vec<Reference> = known.into_iter().filter(|_| self.random.percent(50)).take(3).collect();
        for reference in &refs {
            self.processes[caller].holder.add(reference.object);
        }
        self.called += 1;
        let state = State::Travels;
        self.calls.insert(self.called, Call { caller, slot, refs, state, makes: None, failed: false });
    }

    /// A call goes a step on.
    fn on_call(&mut self) -> Result<(), String> {
        if self.calls.is_empty() {
            return Ok(());
        }
        let at = self.random.below(self.calls.len());
        let number = *self.calls.keys().nth(at).expect("there are so many");
        let call = &self.calls[&number];
        let (caller, slot, refs) = (call.caller, call.slot, call.refs.clone());
        let alive = self.processes[slot].alive;
        if let Some(makes) = call.makes {
            return self.on_making(number, makes, alive);
        }
        match call.state {
            State::Travels if alive => {
                let keeps: Vec<Reference> =
                    refs.iter().copied().filter(|_| self.random.percent(30)).collect();
                let keeps: Vec<Reference> =
                    keeps.into_iter().filter(|reference| self.keep(slot, *reference)).collect();
                self.calls.get_mut(&number).expect("it is here").state =
                    State::Runs(refs.len() + keeps.len());
                for reference in keeps {
                    let why = Why::Hold(reference, number);
                    self.ask(slot, why, |number| ToStore::Hold { number, reference });
                }
                for reference in refs {
                    let why = Why::Get(reference, Some(number));
                    self.ask(slot, why, |number| ToStore::Get { number, reference });
                }
            }
            State::Runs(0) if alive && self.random.percent(50) => {
                self.calls.get_mut(&number).expect("it is here").state = State::Runs(usize::MAX);
                self.put(slot, Some(number));
            }
            State::Runs(0) if alive => {
                self.calls.get_mut(&number).expect("it is here").state = State::Returns(None);
            }
            State::Returns(result) => {
                let inputs = call.refs.clone();
                self.end_call(number, caller);
                if let Some((reference, pin)) = result {
                    self.met.results += 1;
                    self.processes[caller].holder.add(reference.object);
                    self.processes[caller].refs.push(reference);
                    self.ask(caller, Why::Claim(reference), |number| ToStore::Claim {
                        number,
                        pin,
                        reference,
                    });
                    self.remember(caller, reference, inputs);
                }
            }
            // The caller hears that its slot has died.
            _ if !alive => self.end_call(number, caller),
            _ => {}
        }
        Ok(())
    }

    /// One more reference. True: the store has to know of it.
    fn keep(&mut self, id: usize, reference: Reference) -> bool {
        self.processes[id].refs.push(reference);
        self.processes[id].holder.add(reference.object)
    }

    fn end_call(&mut self, number: u64, caller: usize) {
        let Some(call) = self.calls.remove(&number) else { return };
        if let State::Pinning(reference, _) = call.state {
            self.unsent.insert(reference.object);
        }
        // What is made again keeps nothing that it is made from: the store does.
        for reference in call.refs.into_iter().filter(|_| call.makes.is_none()) {
            self.release(caller, reference);
        }
    }
}
