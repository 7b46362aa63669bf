//! What the head is told of this client's share and of the nodes it wants, and how long tasks wait for room.
//!
//! * SG-1: a placement is told before the first shape that names it, and again over each new link.
//! * SG-2: a task that may wait only so long for a slot ends when that is over, unless it was handed to one, or a slot of
//!   its pool is there and runs what comes before all else.

use super::{Client, Effect, NoRoom, Outcome, TaskKey};
use crate::Tick;
use paceline_proto::control::ClientToHead;
use paceline_proto::parts::carried;
use paceline_proto::{PlacementId, Rule, TaskId};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

#[derive(Default)]
pub(super) struct Sharing {
    placements: BTreeMap<PlacementId, Rule>,
    names: BTreeSet<String>,
    /// Weight and priority, once they were set: also the usual ones are said again, because the head may know others.
    standing: Option<(u32, i32)>,
    /// Tasks that wait for so long and no longer.
    patience: BTreeSet<(Tick, TaskKey, TaskId)>,
}

/// How soon it is seen that the slot of a pool, for which a task has waited as long as it may, was lost.
const LOOK_AGAIN: Duration = Duration::from_millis(200);

impl<Ticket: Clone> Client<Ticket> {
    /// Make a rule of placement known, so that shapes can name it; the same rule gives the same name.
    pub fn add_placement(&mut self, rule: Rule, out: &mut Vec<Effect<Ticket>>) -> PlacementId {
        if rule == Rule::default() {
            return PlacementId::ANY;
        }
        let id = name(&rule);
        if self.sharing.placements.insert(id, rule.clone()).is_none() {
            out.push(Effect::ToHead(ClientToHead::Placement { id, rule }));
        }
        id
    }

    /// Say what a custom resource is called, for messages to people.
    pub fn add_resource_name(&mut self, name: &str, out: &mut Vec<Effect<Ticket>>) {
        if self.sharing.names.insert(name.to_owned()) {
            out.push(Effect::ToHead(ClientToHead::Named { resources: vec![name.to_owned()] }));
        }
    }

    /// How much this client counts when there is not enough for all.
    pub fn set_standing(&mut self, weight: u32, priority: i32, out: &mut Vec<Effect<Ticket>>) {
        self.sharing.standing = Some((weight.max(1), priority));
        out.push(Effect::ToHead(ClientToHead::Standing { weight, priority }));
    }

    /// The link to the head is new: it may have forgotten (SG-1).
    pub(super) fn say_sharing(&self, out: &mut Vec<Effect<Ticket>>) {
        if let Some((weight, priority)) = self.sharing.standing {
            out.push(Effect::ToHead(ClientToHead::Standing { weight, priority }));
        }
        if !self.sharing.names.is_empty() {
            let resources = self.sharing.names.iter().cloned().collect();
            out.push(Effect::ToHead(ClientToHead::Named { resources }));
        }
        for (&id, rule) in &self.sharing.placements {
            out.push(Effect::ToHead(ClientToHead::Placement { id, rule: rule.clone() }));
        }
    }

    /// This task waits for a slot until then.
    pub(super) fn bound_wait(
        &mut self,
        now: Tick,
        wait: Duration,
        key: TaskKey,
        id: TaskId,
        out: &mut Vec<Effect<Ticket>>,
    ) {
        if wait > Duration::ZERO
            && self.tasks.get(key.0).is_some_and(|task| task.id == id && task.sent.is_none())
        {
            self.sharing.patience.insert((now + wait, key, id));
            self.wake_at(now + wait, out);
        }
    }

    /// SG-2.
    pub(super) fn end_patience(&mut self, now: Tick, out: &mut Vec<Effect<Ticket>>) {
        while let Some(&(until, key, id)) = self.sharing.patience.first() {
            if until > now {
                return self.wake_at(until, out);
            }
            self.sharing.patience.pop_first();
            let Some(task) = self.tasks.get(key.0).filter(|task| task.id == id && task.sent.is_none()) else {
                continue;
            };
            // One that ran before has been granted what it needs.
            if task.attempts > 0 {
                continue;
            }
            let (shape, priority) = (task.shape, task.priority);
            if self.is_being_prepared(shape) {
                // It has its room, and the constructor takes its time.
                self.sharing.patience.insert((now + LOOK_AGAIN, key, id));
                continue;
            }
            self.waiting.remove(carried(&task.payload));
            let queue = &mut self.shapes[shape];
            queue.remove(key, priority);
            let why = queue.waits_for.clone();
            let outcome = NoRoom { needs: self.shapes.shape(shape).needs, why };
            self.finish_unplaced(key, Outcome::NoRoom(Box::new(outcome)), out);
            self.end_visit_if_idle(shape, out);
            self.stir_pool(shape, out);
        }
    }
}

/// What a rule is called: a hash of what it says.
pub(super) fn name(rule: &Rule) -> PlacementId {
    let mut hasher = blake3::Hasher::new();
    hasher.update(format!("{rule:?}").as_bytes());
    let hash = hasher.finalize();
    let (head, _) = hash.as_bytes().split_first_chunk::<8>().expect("a hash is longer than a name");
    PlacementId(u64::from_le_bytes(*head).max(1))
}
