//! Nodes that die with what they have, and results that are made again.
//!
//! * SO-4: an object whose owner knows how it was made is lost only for a reason that holds: its task may not run again, has
//!   run again as often as may be, has failed, or what it was made from is lost.
//! * SO-5: no two runs make one object at the same time, and no run is of a task that is not known.

use super::{Call, State, Why, World};
use paceline_proto::objects::{FromStore, Missing, Reference, ToStore};
use paceline_proto::{ObjectId, PinId};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

#[derive(Default)]
pub(super) struct Losses {
    pub happen: bool,
    pub step: u64,
    /// When each question was asked.
    pub asked: BTreeMap<(usize, u64), u64>,
    /// How a client's process can make objects again.
    pub recipes: BTreeMap<(usize, ObjectId), Recipe>,
    /// Since when stores know of recipes.
    known: BTreeMap<ObjectId, u64>,
    runs: BTreeMap<ObjectId, u32>,
    failed_runs: BTreeSet<ObjectId>,
    not_again: BTreeSet<ObjectId>,
}

#[derive(Clone)]
pub(super) struct Recipe {
    reference: Reference,
    inputs: Vec<Reference>,
}

impl Losses {
    pub fn some() -> Losses {
        Losses { happen: true, ..Losses::default() }
    }

    pub fn on_delivered(&mut self, message: &ToStore) {
        if let ToStore::Remember { object, .. } = message {
            self.known.insert(*object, self.step);
        }
    }
}

impl World {
    /// The result of a call has come, and can be made again.
    pub(super) fn remember(&mut self, id: usize, reference: Reference, inputs: Vec<Reference>) {
        if !self.losses.happen || self.random.percent(20) {
            return;
        }
        let again = self.random.percent(90);
        let object = reference.object;
        if !again {
            self.losses.not_again.insert(object);
        }
        let named = inputs.iter().map(|input| input.object).collect();
        self.losses.recipes.insert((id, object), Recipe { reference, inputs });
        self.say(id, &ToStore::Remember { object, inputs: named, bytes: 100, again });
    }

    /// SO-4
    pub(super) fn may_be_lost(&self, reference: Reference, missing: &Missing, since: u64) -> bool {
        let object = reference.object;
        if self.met.nodes_lost == 0 {
            return false;
        }
        match missing {
            // Who asks before it is known hears that it is not.
            Missing::Lost => self.losses.known.get(&object).is_none_or(|known| *known >= since),
            Missing::NotAgain => self.losses.not_again.contains(&object),
            Missing::TooOften => self.losses.runs.get(&object).is_some_and(|runs| *runs >= 3),
            Missing::NoInput | Missing::Forgotten => self.losses.known.contains_key(&object),
            Missing::Failed(_) => !self.losses.failed_runs.is_empty(),
            Missing::OwnerLost | Missing::Unlinked => false,
        }
    }

    /// The store wants an object to be made again.
    pub(super) fn on_make(&mut self, id: usize, object: ObjectId) -> Result<(), String> {
        let recipe = self.losses.recipes.get(&(id, object)).cloned();
        let Recipe { reference, inputs } =
            recipe.ok_or_else(|| format!("SO-5: nobody can make {object:?}"))?;
        if self.calls.values().any(|call| call.makes == Some(reference)) {
            return Err(format!("SO-5: {object:?} is made twice at once"));
        }
        let runs = self.losses.runs.entry(object).or_default();
        *runs += 1;
        if *runs > 3 {
            return Err(format!("SO-4: {object:?} is made for the {runs}th time"));
        }
        let Some(slot) = self.living(Some(false), Some(self.processes[id].owner)) else {
            return self.on_ran(id, object, true);
        };
        self.called += 1;
        let (makes, state) = (Some(reference), State::Travels);
        self.calls.insert(self.called, Call { caller: id, slot, refs: inputs, state, makes, failed: false });
        Ok(())
    }

    fn on_ran(&mut self, id: usize, object: ObjectId, failed: bool) -> Result<(), String> {
        if failed {
            self.met.in_vain += 1;
            self.losses.failed_runs.insert(object);
        } else {
            self.met.made_again += 1;
        }
        self.say(id, &ToStore::Ran { object, failed: failed.then(|| "failed".into()) });
        Ok(())
    }

    /// A call that makes an object again goes a step on.
    pub(super) fn on_making(&mut self, number: u64, makes: Reference, alive: bool) -> Result<(), String> {
        let call = &self.calls[&number];
        let (caller, slot, refs) = (call.caller, call.slot, call.refs.clone());
        if !alive && !matches!(call.state, State::Returns(_)) {
            let other = self.living(Some(false), Some(makes.owner));
            let Some(slot) = other.filter(|_| self.random.percent(70)) else {
                self.end_call(number, caller);
                return self.on_ran(caller, makes.object, true);
            };
            let call = self.calls.get_mut(&number).expect("it is here");
            (call.slot, call.state, call.failed) = (slot, State::Travels, false);
            return Ok(());
        }
        match call.state {
            State::Travels => {
                self.state(number, State::Runs(refs.len()));
                for reference in refs {
                    let why = Why::Get(reference, Some(number));
                    self.ask(slot, why, |number| ToStore::Get { number, reference });
                }
            }
            State::Runs(0) if call.failed || self.random.percent(5) => {
                self.calls.get_mut(&number).expect("it is here").failed = true;
                self.state(number, State::Returns(None));
            }
            State::Runs(0) => {
                self.state(number, State::Runs(usize::MAX));
                let (object, small) = (makes.object, self.random.percent(20));
                let (size, wait) = (self.random.within(11..400), Duration::from_millis(500));
                self.ask(slot, Why::Again { call: number, small }, |number| match small {
                    true => {
                        ToStore::PutSmall { number, object, bytes: vec![7; 10], inside: Vec::new(), wait }
                    }
                    false => ToStore::Reserve { number, object, size, wait },
                });
            }
            State::Returns(_) => {
                let failed = call.failed;
                self.end_call(number, caller);
                return self.on_ran(caller, makes.object, failed);
            }
            State::Runs(_) | State::Pinning(..) => {}
        }
        Ok(())
    }

    fn state(&mut self, number: u64, state: State) {
        self.calls.get_mut(&number).expect("it is here").state = state;
    }

    /// The slot that makes an object again has an answer.
    pub(super) fn on_made_again(&mut self, id: usize, why: Why, answer: &FromStore) -> Result<(), String> {
        let (Why::Again { call, .. } | Why::Settled { call }) = why else { return Ok(()) };
        // Its caller may have died, or have another slot make it.
        let found = self.calls.get(&call).filter(|found| found.slot == id);
        let makes = found.and_then(|found| found.makes);
        match (why, answer) {
            (Why::Again { small, .. }, FromStore::Room { .. }) => {
                let Some(reference) = makes else {
                    return Ok(());
                };
                let object = reference.object;
                if !small {
                    self.say(id, &ToStore::Put { object, inside: Vec::new() });
                }
                self.processes[id].holder.add(object);
                self.processes[id].refs.push(reference);
                let pin = PinId(self.draw());
                self.ask(id, Why::Settled { call }, |number| ToStore::Claim { number, pin, reference });
                return Ok(());
            }
            (Why::Again { .. }, FromStore::Held { .. }) => {}
            (Why::Settled { .. }, FromStore::Held { .. }) => {
                let at = makes.and_then(|makes| {
                    self.processes[id].refs.iter().position(|held| held.object == makes.object)
                });
                at.into_iter().for_each(|at| self.drop_ref(id, at));
            }
            (_, FromStore::Full { .. } | FromStore::Missing { .. }) => {
                if let Some(call) = self.calls.get_mut(&call).filter(|_| makes.is_some()) {
                    call.failed = true;
                }
            }
            (why, answer) => return Err(format!("{answer:?} is no answer to {why:?}")),
        }
        if makes.is_some() {
            self.state(call, State::Returns(None));
        }
        Ok(())
    }
}
