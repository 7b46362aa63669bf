//! How objects were made, as far as their owner knows: one that is lost is made again, by running its task again.
//!
//! Owns: which of them are known, what they were made from, which are being made. Does not own: the tasks themselves, which
//! the process of the owner keeps for as long as this does, and runs when it is told to.
//!
//! * MK-1: however many ask for a lost object, its task runs once for all of them.
//! * MK-2: an object is made again at most [`MOST_RUNS`] times.
//! * MK-3: what a task needs is there, or can be made and was made, before the task runs again, and stays until it has run.
//! * MK-4: at most [`MOST_KNOWN`] are known, of so many bytes together; over that the oldest are forgotten, and it is known
//!   that they were.
//! * MK-5: what is known of an object is forgotten when the object is gone and nothing known was made from it. So a chain
//!   can be made again although the values in between are gone.

use super::object::{Object, Place};
use super::store::{Effect, LinkId, Store};
use crate::Tick;
use paceline_proto::ObjectId;
use paceline_proto::objects::{FromStore, Missing, Reference};
use std::collections::{BTreeMap, BTreeSet};

/// So often an object is made again.
const MOST_RUNS: u32 = 3;
/// So many objects are known how to make.
const MOST_KNOWN: usize = 100_000;
/// To know them takes at most so many bytes, if nobody says otherwise.
const MOST_BYTES: u64 = 256 << 20;

pub(super) struct Makers {
    records: BTreeMap<ObjectId, Record>,
    /// Those that are not forgotten, oldest first.
    order: BTreeMap<u64, ObjectId>,
    making: BTreeSet<ObjectId>,
    bytes: u64,
    most_bytes: u64,
    numbers: u64,
}

struct Record {
    reference: Reference,
    /// What it was made from, and whether that is known, too.
    inputs: Vec<(ObjectId, bool)>,
    bytes: u64,
    again: bool,
    runs: u32,
    /// How many that are known were made from it.
    users: u32,
    number: u64,
    state: State,
}

enum State {
    Idle,
    /// Its task runs again, or will when these are made. It keeps those it needs meanwhile.
    Making {
        waits: BTreeSet<ObjectId>,
        keeps: Vec<ObjectId>,
    },
    Forgotten,
}

impl Default for Makers {
    fn default() -> Makers {
        Makers {
            records: BTreeMap::new(),
            order: BTreeMap::new(),
            making: BTreeSet::new(),
            bytes: 0,
            most_bytes: MOST_BYTES,
            numbers: 0,
        }
    }
}

impl Makers {
    fn is_making(&self, id: ObjectId) -> bool {
        self.making.contains(&id)
    }

    /// The owner has ended.
    pub(super) fn clear(&mut self) {
        *self = Makers { most_bytes: self.most_bytes, ..Makers::default() };
    }

    /// What tasks that run again keep.
    pub(super) fn kept(&self) -> impl Iterator<Item = ObjectId> + '_ {
        let states = self.making.iter().filter_map(|id| self.records.get(id));
        states
            .flat_map(|record| match &record.state {
                State::Making { keeps, .. } => keeps.as_slice(),
                State::Idle | State::Forgotten => &[],
            })
            .copied()
    }

    pub(super) fn check(&self) -> Result<(), String> {
        let known = self.records.values().filter(|record| !matches!(record.state, State::Forgotten));
        let (count, bytes) = known.fold((0, 0), |(count, bytes), record| (count + 1, bytes + record.bytes));
        if (count, bytes) != (self.order.len(), self.bytes) {
            return Err(format!("MK-4: {count} of {bytes} bytes are known, {} are counted", self.bytes));
        }
        let making = |(_, record): &(&ObjectId, &Record)| matches!(record.state, State::Making { .. });
        if !self.records.iter().filter(making).map(|(id, _)| id).eq(&self.making) {
            return Err("MK-1: what is being made is not what is counted".into());
        }
        let mut users: BTreeMap<ObjectId, u32> = BTreeMap::new();
        for (input, known) in self.records.values().flat_map(|record| &record.inputs) {
            *users.entry(*input).or_default() += u32::from(*known);
        }
        for (id, record) in &self.records {
            if record.users != users.get(id).copied().unwrap_or_default() {
                return Err(format!("MK-5: {id:?} is needed by {}, which are not all there", record.users));
            }
        }
        Ok(())
    }
}

impl Store {
    /// What is known of how objects were made may have so many bytes.
    pub fn remember_at_most(&mut self, bytes: u64) {
        self.makers.most_bytes = bytes;
    }

    /// The process of the owner knows how an object was made.
    pub(super) fn on_remember(
        &mut self,
        link: LinkId,
        id: ObjectId,
        inputs: Vec<ObjectId>,
        (bytes, again): (u64, bool),
        out: &mut Vec<Effect>,
    ) {
        let Some(object) = self.objects.get(&id) else {
            return out.push(Effect::To(link, FromStore::Forget { object: id }));
        };
        let makers = &mut self.makers;
        if makers.records.contains_key(&id) {
            return;
        }
        let reference = object.reference;
        let inputs: BTreeSet<ObjectId> = inputs.into_iter().filter(|input| *input != id).collect();
        let mut known = Vec::with_capacity(inputs.len());
        for input in inputs {
            let record = makers.records.get_mut(&input);
            known.push((input, record.is_some()));
            record.into_iter().for_each(|record| record.users += 1);
        }
        makers.numbers += 1;
        makers.bytes += bytes;
        makers.order.insert(makers.numbers, id);
        let number = makers.numbers;
        let state = State::Idle;
        let record = Record { reference, inputs: known, bytes, again, runs: 0, users: 0, number, state };
        makers.records.insert(id, record);
        while self.makers.order.len() > MOST_KNOWN || self.makers.bytes > self.makers.most_bytes {
            let oldest = self.makers.order.values().find(|id| !self.makers.is_making(**id)).copied();
            let Some(oldest) = oldest else { break };
            self.forget(oldest, out);
        }
    }

    /// It takes too much to know how this was made (MK-4).
    fn forget(&mut self, id: ObjectId, out: &mut Vec<Effect>) {
        let inputs = self.strike(id, out);
        if let Some(record) = self.makers.records.get_mut(&id) {
            record.state = State::Forgotten;
        }
        self.let_go_of_inputs(inputs, out);
        self.see_to_maker(id, out);
    }

    /// It does not count any more among those that are known. Gives what it was made from.
    fn strike(&mut self, id: ObjectId, out: &mut Vec<Effect>) -> Vec<(ObjectId, bool)> {
        let link = self.root_link();
        let Some(record) = self.makers.records.get_mut(&id) else { return Vec::new() };
        if matches!(record.state, State::Forgotten) {
            return Vec::new();
        }
        self.makers.order.remove(&record.number);
        self.makers.bytes -= record.bytes;
        out.extend(link.map(|link| Effect::To(link, FromStore::Forget { object: id })));
        std::mem::take(&mut record.inputs)
    }

    fn let_go_of_inputs(&mut self, inputs: Vec<(ObjectId, bool)>, out: &mut Vec<Effect>) {
        for (input, _) in inputs.into_iter().filter(|(_, known)| *known) {
            if let Some(record) = self.makers.records.get_mut(&input) {
                record.users -= 1;
            }
            self.see_to_maker(input, out);
        }
    }

    /// The object, or what was made from it, may be gone (MK-5).
    pub(super) fn see_to_maker(&mut self, id: ObjectId, out: &mut Vec<Effect>) {
        let mut next = vec![id];
        while let Some(id) = next.pop() {
            let Some(record) = self.makers.records.get(&id) else { continue };
            let needed = record.users > 0 || matches!(record.state, State::Making { .. });
            if needed || self.objects.contains_key(&id) {
                continue;
            }
            for (input, known) in self.strike(id, out) {
                if let Some(record) = self.makers.records.get_mut(&input).filter(|_| known) {
                    record.users -= 1;
                    next.push(input);
                }
            }
            self.makers.records.remove(&id);
        }
    }

    /// The process that knows how objects were made.
    fn root_link(&self) -> Option<LinkId> {
        let is_root = |link: &super::store::Link| link.owner.is_some_and(|(_, root)| root) && !link.up;
        self.links.iter().filter(|(_, link)| is_root(link)).map(|(link, _)| *link).next_back()
    }

    fn is_there(&self, id: ObjectId) -> bool {
        self.objects.get(&id).is_some_and(|object| object.place != Place::Away || !object.copies.is_empty())
    }

    /// Somebody wants an object that nobody has: it is made again, if that can be.
    pub(super) fn on_lost(&mut self, id: ObjectId, out: &mut Vec<Effect>) {
        if self.objects.get(&id).is_some_and(|object| object.wanted.is_empty()) {
            return self.none_to_be_had(id, &Missing::Lost, out);
        }
        match self.make(id, out) {
            Ok(()) => {
                let object = self.objects.get_mut(&id).expect("somebody wants it");
                (object.asked, object.making) = (true, true);
            }
            Err(why) => self.none_to_be_had(id, &why, out),
        }
    }

    /// An object that is gone, though it is known how it was made, is lost like any other.
    pub(super) fn bring_back(&mut self, id: ObjectId) {
        if let Some(record) = self.makers.records.get(&id) {
            let object = || Object::new(record.reference, 0, Place::Away, self.uses);
            self.objects.entry(id).or_insert_with(object);
        }
    }

    /// What has to be made to have this: it, and what it was made from, as far as that is lost, too.
    fn plan(&self, id: ObjectId) -> Result<Vec<ObjectId>, Missing> {
        let (mut plan, mut seen, mut next) = (Vec::new(), BTreeSet::new(), vec![id]);
        while let Some(one) = next.pop() {
            if !seen.insert(one) {
                continue;
            }
            let because = |why| if one == id { why } else { Missing::NoInput };
            let record = self.makers.records.get(&one).ok_or_else(|| because(Missing::Lost))?;
            match record.state {
                State::Making { .. } => continue,
                State::Forgotten => return Err(because(Missing::Forgotten)),
                State::Idle if !record.again => return Err(because(Missing::NotAgain)),
                State::Idle if record.runs >= MOST_RUNS => return Err(because(Missing::TooOften)),
                State::Idle => plan.push(one),
            }
            next.extend(record.inputs.iter().map(|(input, _)| *input).filter(|input| !self.is_there(*input)));
        }
        Ok(plan)
    }

    fn make(&mut self, id: ObjectId, out: &mut Vec<Effect>) -> Result<(), Missing> {
        let plan = self.plan(id)?;
        let link = self.root_link().ok_or(Missing::Lost)?;
        for &one in &plan {
            self.makers.making.insert(one);
            self.bring_back(one);
        }
        // Those that need nothing of the others are begun first.
        for &one in plan.iter().rev() {
            let record = self.makers.records.get(&one).expect("it was planned");
            let inputs: Vec<ObjectId> = record.inputs.iter().map(|(input, _)| *input).collect();
            let lost = |input: &ObjectId| self.makers.is_making(*input) && !self.is_there(*input);
            let waits: BTreeSet<ObjectId> = inputs.iter().copied().filter(lost).collect();
            let keeps: Vec<ObjectId> =
                inputs.into_iter().filter(|input| self.objects.contains_key(input)).collect();
            for input in &keeps {
                self.objects.get_mut(input).expect("it is known").pins += 1;
            }
            if waits.is_empty() {
                out.push(Effect::To(link, FromStore::Make { object: one }));
            }
            let record = self.makers.records.get_mut(&one).expect("it was planned");
            record.runs += 1;
            record.state = State::Making { waits, keeps };
        }
        Ok(())
    }

    /// A node has the bytes of an object: whoever waited for it to be made goes on.
    pub(super) fn on_found(&mut self, now: Tick, id: ObjectId, out: &mut Vec<Effect>) {
        self.go_on(id, out);
        let Some(object) = self.objects.get_mut(&id).filter(|object| object.making) else { return };
        (object.making, object.asked) = (false, false);
        object.failed.clear();
        object.tree.refused.clear();
        let is_node = |link: &LinkId| self.links.get(link).is_some_and(|link| link.node.is_some());
        let (nodes, here): (Vec<_>, Vec<_>) =
            std::mem::take(&mut object.wanted).into_iter().partition(|(link, _)| is_node(link));
        object.wanted = here;
        object.tree.queue.extend(nodes);
        if !object.wanted.is_empty() {
            self.fetch(now, id, out);
        }
        self.assign(now, id, out);
        self.see_to(id, out);
    }

    /// Tasks that waited for nothing but this run now (MK-3).
    fn go_on(&mut self, id: ObjectId, out: &mut Vec<Effect>) {
        let link = self.root_link();
        for one in &self.makers.making {
            let record = self.makers.records.get_mut(one).expect("it is being made");
            let State::Making { waits, .. } = &mut record.state else { continue };
            if waits.remove(&id) && waits.is_empty() {
                out.extend(link.map(|link| Effect::To(link, FromStore::Make { object: *one })));
            }
        }
    }

    /// A task has run again.
    pub(super) fn on_ran(&mut self, now: Tick, id: ObjectId, failed: Option<String>, out: &mut Vec<Effect>) {
        if !self.stop_making(id, out) {
            return;
        }
        if let Some(why) = failed {
            self.not_made(id, &Missing::Failed(why), out);
        } else if let Some(object) = self.objects.get_mut(&id).filter(|object| object.making) {
            // It has been here, and is lost again or could not be fetched.
            (object.making, object.asked) = (false, false);
            self.fetch(now, id, out);
        }
        if self.is_waited_for(id)
            && !self.is_there(id)
            && let Err(why) = self.make(id, out)
        {
            self.not_made(id, &why, out);
        }
        self.see_to(id, out);
        self.see_to_maker(id, out);
    }

    fn is_waited_for(&self, id: ObjectId) -> bool {
        let mut making = self.makers.making.iter().filter_map(|one| self.makers.records.get(one));
        making.any(|record| matches!(&record.state, State::Making { waits, .. } if waits.contains(&id)))
    }

    /// Its task does not run, or will. False: nor did it.
    fn stop_making(&mut self, id: ObjectId, out: &mut Vec<Effect>) -> bool {
        if !self.makers.making.remove(&id) {
            return false;
        }
        let record = self.makers.records.get_mut(&id).expect("it was being made");
        if let State::Making { keeps, .. } = std::mem::replace(&mut record.state, State::Idle) {
            for input in keeps {
                // Its owner may have ended meanwhile.
                if let Some(object) = self.objects.get_mut(&input) {
                    object.pins -= 1;
                }
                self.see_to(input, out);
            }
        }
        true
    }

    /// Nor can be made what needs it.
    fn not_made(&mut self, id: ObjectId, why: &Missing, out: &mut Vec<Effect>) {
        let mut next = vec![(id, why.clone())];
        while let Some((id, why)) = next.pop() {
            self.none_to_be_had(id, &why, out);
            let waits = |one: &&ObjectId| {
                let record = self.makers.records.get(one);
                record.is_some_and(
                    |record| matches!(&record.state, State::Making { waits, .. } if waits.contains(&id)),
                )
            };
            let users: Vec<ObjectId> = self.makers.making.iter().filter(waits).copied().collect();
            for user in users {
                self.stop_making(user, out);
                let because = match &why {
                    Missing::Failed(_) => why.clone(),
                    _ => Missing::NoInput,
                };
                next.push((user, because));
            }
            self.see_to_maker(id, out);
        }
    }
}

#[cfg(test)]
mod tests;
