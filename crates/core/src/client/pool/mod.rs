//! Pools: leases whose slots have state of their own, made by **standing calls** that every slot of the pool runs before
//! anything else that was accepted after them: what constructs the state first, and what updates it later.
//!
//! To the head a pool is a shape whose rule is its own, and is kept: no lease is asked back for others, and a slot ends
//! with its lease. An actor is a pool of one slot whose calls run at most once, in the order they were accepted.
//!
//! * PL-1: a call runs in a slot that has applied all standing calls that were accepted before it, in their order.
//! * PL-2: nothing is sent to a slot behind a standing call that it has not confirmed. So no call runs in a slot that
//!   failed to become what it should be.
//! * PL-3: a standing call goes to the slots when no earlier call waits here any more; calls that run again run later.
//! * PL-4: a pool has at most as many leases as it is large, and keeps them; what is granted beyond goes back at once.
//! * PL-5: in an actor, what was sent and may have begun never runs again, and nothing overtakes anything.
//! * PL-6: a pool that is broken or closed has no leases, and whatever is submitted to it ends at once.
//! * PL-8: a slot that ends because a call of it was to be stopped is no death that breaks the pool; but an actor's state is
//!   gone with it.
//! * PL-7: a pool takes leases only that were granted for it, or for another of which there may be any number of copies.
//!
//! [`standing`] sends standing calls and hears of them, [`deaths`] says what becomes of calls whose slot is gone.

mod check;
mod deaths;
mod standing;

pub use standing::{HistoryFull, Standing};

use super::lease::{InFlight, Lease, LinkState};
use super::queue::{Kind, NO_BARRIER};
use super::shapes::ShapeKey;
use super::task::{Task, Unplaceable};
use super::{Client, Effect, LeaseKey, Outcome, TaskKey};
use crate::Tick;
use paceline_proto::control::{ClientToHead, Held};
use paceline_proto::parts::carried;
use paceline_proto::{
    Bytes, ExclusiveId, LeaseId, NodeId, ProgramId, Resources, Rule, Shape, SlotId, TaskId,
};
use standing::{Entry, Failed};
use std::collections::{BTreeMap, VecDeque};

/// What a pool is to be.
#[derive(Clone, Debug)]
pub struct PoolSpec {
    /// How many slots it has at most.
    pub size: u32,
    /// All of them are asked for at once; else as calls need them.
    pub eager: bool,
    /// Calls run at most once and in order. There is one slot.
    pub once: bool,
    /// What it is known by as something that must exist once, if others may rebuild it. One of `once` that has no such
    /// name is given one.
    pub exclusive: Option<ExclusiveId>,
    /// How many deaths of slots are made good; none: all.
    pub restarts: Option<u32>,
    /// The submitted program that owns it, if one does. A slot that is lost with its node does not count as a death then.
    pub owner_program: Option<String>,
    /// A slot is replaced after so many calls.
    pub calls_per_slot: Option<u32>,
    /// How many bytes standing calls may take.
    pub history: usize,
    pub needs: Resources,
    pub program: ProgramId,
    pub rule: Rule,
}

/// A pool as tasks name it: its shape, and its number, which no other has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PoolId {
    pub shape: Shape,
    pub number: u32,
}

pub(super) struct Pools<Ticket> {
    /// Those that are open, by the key of their shape.
    open: BTreeMap<ShapeKey, Pool<Ticket>>,
    number: u32,
    /// What keeps rules apart is used again, so that the head does not have to remember ever more of them.
    nonces: Vec<u64>,
    next_nonce: u64,
    /// What went wrong in the slot whose replies are being read.
    failed: Option<Failed>,
}

impl<Ticket> Default for Pools<Ticket> {
    fn default() -> Pools<Ticket> {
        Pools { open: BTreeMap::new(), number: 0, nonces: Vec::new(), next_nonce: 0, failed: None }
    }
}

struct Pool<Ticket> {
    number: u32,
    /// What it is, if it must exist once.
    exclusive: Option<ExclusiveId>,
    /// Its last lease was given back or lost with its node, and it has not been granted another: a copy may live.
    lost: Option<Held>,
    nonce: u64,
    spec: PoolSpec,
    /// Standing calls by number; those that were replaced are gone.
    standing: BTreeMap<u32, Entry>,
    next: u32,
    /// Those before this number go to every slot that comes.
    sent: u32,
    /// What they take.
    bytes: usize,
    /// Standing calls that are in flight, in all slots.
    preparing: usize,
    /// So many slots were asked for, whatever there is to do.
    floor: u32,
    /// Nothing more will be submitted.
    finished: bool,
    /// How whatever is submitted ends.
    broken: Option<Outcome>,
    deaths: u32,
    /// Who waits until all slots have applied this standing call, and what one of them has returned.
    updates: VecDeque<(u32, Ticket, TaskId, Bytes)>,
    /// Who waits until so many slots are prepared.
    ready: Vec<(u32, Ticket, TaskId)>,
    /// Who waits until there is nothing to do; and no slots any more, if nothing more will be submitted.
    drained: Vec<(Ticket, TaskId)>,
}

impl<Ticket> Pool<Ticket> {
    /// Names the submitted program that owns it to the head.
    fn owner(&self) -> Option<Effect<Ticket>> {
        let (exclusive, program) = (self.exclusive?, self.spec.owner_program.clone()?);
        Some(Effect::ToHead(ClientToHead::OwnedByProgram { exclusive, program }))
    }
}

impl<Ticket: Clone> Client<Ticket> {
    /// Open a pool.
    pub fn open_pool(&mut self, spec: PoolSpec, out: &mut Vec<Effect<Ticket>>) -> PoolId {
        let nonce = self.pools.nonces.pop().unwrap_or_else(|| {
            self.pools.next_nonce += 1;
            self.pools.next_nonce
        });
        let rule = Rule { kept: true, nonce: self.id.0.rotate_left(20) ^ nonce, ..spec.rule.clone() };
        let placement = self.add_placement(rule, out);
        let shape = Shape { needs: spec.needs, program: spec.program, placement };
        let key = self.shapes.key(&shape);
        self.pools.number += 1;
        let number = self.pools.number;
        let queue = &mut self.shapes[key];
        queue.pool = if spec.once { Kind::Once } else { Kind::Pool };
        (queue.barrier, queue.attentive) = (NO_BARRIER, false);
        let own = ExclusiveId(u128::from(self.id.0) << 64 | u128::from(number));
        let exclusive = spec.exclusive.or(spec.once.then_some(own));
        let pool = Pool {
            number,
            exclusive,
            lost: None,
            nonce,
            spec,
            standing: BTreeMap::new(),
            next: 0,
            sent: 0,
            bytes: 0,
            preparing: 0,
            floor: 0,
            finished: false,
            broken: None,
            deaths: 0,
            updates: VecDeque::new(),
            ready: Vec::new(),
            drained: Vec::new(),
        };
        out.extend(pool.owner());
        self.pools.open.insert(key, pool);
        self.pool_demand(key, out);
        PoolId { shape, number }
    }

    /// What leases of this queue are for, if that must exist once.
    pub(super) fn exclusive_of(&self, key: ShapeKey) -> Option<ExclusiveId> {
        self.pools.open.get(&key).and_then(|pool| pool.exclusive)
    }

    /// The lease is ours no more, and nobody has said that what is under it has ended.
    pub(super) fn note_unconfirmed(&mut self, lease: &Lease) {
        let held = self.as_held(lease);
        if let Some(pool) = self.pools.open.get_mut(&lease.shape).filter(|pool| pool.exclusive.is_some()) {
            pool.lost = Some(held);
        }
    }

    /// Leases of what must exist once that were given back, or lost with nodes which may live. Only we know of them when
    /// the head is started anew.
    pub(super) fn lost_leases(&self) -> impl Iterator<Item = Held> {
        self.pools.open.values().filter_map(|pool| pool.lost)
    }

    /// Names the submitted programs that own pools, before anything is asked for.
    pub(super) fn say_owners(&self, out: &mut Vec<Effect<Ticket>>) {
        out.extend(self.pools.open.values().filter_map(Pool::owner));
    }

    pub(super) fn pool_key(&self, id: &PoolId) -> Option<ShapeKey> {
        let key = self.shapes.find(&id.shape)?;
        self.pools.open.get(&key).filter(|pool| pool.number == id.number).map(|_| key)
    }

    /// Give the pool back. What is still to run in it is cancelled, what runs ends with its slot.
    pub fn close_pool(&mut self, id: &PoolId, out: &mut Vec<Effect<Ticket>>) {
        let Some(key) = self.pool_key(id) else { return };
        self.end_pool(key, &Outcome::Cancelled, out);
        self.end_hosted(key, &Outcome::Cancelled, out);
        let pool = self.pools.open.remove(&key).expect("found above");
        self.pools.nonces.push(pool.nonce);
    }

    /// The actor that this pool is has to end; what is submitted to it from now on is cancelled.
    pub(super) fn destroy_pool(&mut self, key: ShapeKey, out: &mut Vec<Effect<Ticket>>) {
        self.break_pool(key, Outcome::Cancelled, out);
    }

    /// Nothing more will be submitted: slots go back as they run dry.
    pub fn finish_pool(&mut self, id: &PoolId, out: &mut Vec<Effect<Ticket>>) {
        let Some(key) = self.pool_key(id) else { return };
        self.pools.open.get_mut(&key).expect("found above").finished = true;
        self.shapes[key].attentive = true;
        self.release_dry(key, out);
        self.pool_demand(key, out);
    }

    /// Whether a slot of this pool is there, and has standing calls to run before anything else.
    pub(super) fn is_being_prepared(&self, key: ShapeKey) -> bool {
        self.shapes[key].is_pool()
            && self.shapes[key].leases.iter().any(|lease| !self.has_applied_all(key, &self.leases[lease.0]))
    }

    /// Where its slots are, and whether they have run all standing calls.
    pub fn pool_places(&self, id: &PoolId) -> Vec<(NodeId, SlotId, bool)> {
        let Some(key) = self.pool_key(id) else { return Vec::new() };
        let leases = self.shapes[key].leases.iter().map(|lease| &self.leases[lease.0]);
        leases.map(|lease| (lease.node, lease.slot, self.is_prepared(key, lease))).collect()
    }

    /// The ticket ends with an empty value when so many slots are there and prepared, or with the pool.
    pub fn pool_ready(&mut self, id: &PoolId, count: u32, ticket: Ticket, out: &mut Vec<Effect<Ticket>>) {
        let task = self.new_task_id();
        let Some(key) = self.pool_key(id).filter(|_| !self.closed) else {
            return out.push(Effect::Finished { ticket, task, outcome: self.closing() });
        };
        let pool = self.pools.open.get_mut(&key).expect("found above");
        if let Some(outcome) = pool.broken.clone() {
            return out.push(Effect::Finished { ticket, task, outcome });
        }
        pool.floor = pool.floor.max(count.min(pool.spec.size));
        pool.ready.push((count.min(pool.spec.size), ticket, task));
        self.pool_demand(key, out);
        self.pool_changed(key, out);
    }

    /// The ticket ends when the pool does, and as that does.
    pub fn pool_ended(&mut self, id: &PoolId, ticket: Ticket, out: &mut Vec<Effect<Ticket>>) {
        let task = self.new_task_id();
        let Some(key) = self.pool_key(id).filter(|_| !self.closed) else {
            return out.push(Effect::Finished { ticket, task, outcome: self.closing() });
        };
        let pool = self.pools.open.get_mut(&key).expect("found above");
        match pool.broken.clone() {
            Some(outcome) => out.push(Effect::Finished { ticket, task, outcome }),
            // More slots than it can ever have.
            None => pool.ready.push((u32::MAX, ticket, task)),
        }
    }

    /// The ticket ends with an empty value when nothing runs or waits in the pool any more; of one that is finished, when
    /// its slots are given back, too.
    pub fn pool_drained(&mut self, id: &PoolId, ticket: Ticket, out: &mut Vec<Effect<Ticket>>) {
        let task = self.new_task_id();
        let Some(key) = self.pool_key(id) else {
            return out.push(Effect::Finished { ticket, task, outcome: Outcome::Value(Bytes::new()) });
        };
        self.pools.open.get_mut(&key).expect("found above").drained.push((ticket, task));
        self.pool_changed(key, out);
    }

    /// End every call of the pool that has not begun as far as is known, but for the `keep` oldest that have not ended. Says
    /// how many.
    pub fn cancel_waiting(&mut self, id: &PoolId, keep: usize, out: &mut Vec<Effect<Ticket>>) -> usize {
        let Some(shape) = self.pool_key(id) else { return 0 };
        let ours = |task: &Task<Ticket>| task.shape == shape && task.ticket.is_some();
        let ours = self.tasks.iter().filter(|(_, task)| ours(task));
        let mut ours: Vec<(TaskId, TaskKey, bool)> =
            ours.map(|(key, task)| (task.id, TaskKey(key), task.started)).collect();
        ours.sort_unstable_by_key(|(id, ..)| *id);
        let waiting = ours.into_iter().skip(keep).filter(|(.., started)| !started);
        waiting.filter(|(id, key, _)| self.cancel(*key, *id, false, out)).count()
    }

    /// Ends every call of the pool: one that runs is told to stop, and has a grace of time for that.
    pub fn cancel_pool(&mut self, id: &PoolId, out: &mut Vec<Effect<Ticket>>) {
        let Some(shape) = self.pool_key(id) else { return };
        self.cancel_where(|task| task.shape == shape && task.ticket.is_some(), out);
    }

    /// How whatever is submitted to the pool ends, if it is broken.
    pub fn pool_broken(&self, id: &PoolId) -> Option<Outcome> {
        self.pools.open[&self.pool_key(id)?].broken.clone()
    }

    /// The lease of an actor, while it has one.
    pub fn pool_lease(&self, id: &PoolId) -> Option<LeaseId> {
        let key = self.shapes[self.pool_key(id)?].leases.first()?;
        Some(self.leases[key.0].id)
    }

    /// How many bytes its standing calls take.
    pub fn pool_history(&self, id: &PoolId) -> usize {
        self.pool_key(id).map_or(0, |key| self.pools.open[&key].bytes)
    }

    /// The queue of an open pool; or what becomes of a task for it (PL-6). In an actor nothing goes before others, and
    /// nothing runs again.
    pub(super) fn pool_queue(
        &mut self,
        shape: &Shape,
        number: u32,
        retries: &mut u32,
        priority: &mut i32,
    ) -> Result<ShapeKey, Outcome> {
        let key = self.shapes.key(shape);
        let Some(pool) = self.pools.open.get(&key).filter(|pool| pool.number == number) else {
            return Err(self.closing());
        };
        if let Some(broken) = &pool.broken {
            return Err(broken.clone());
        }
        if pool.finished {
            return Err(Outcome::Cancelled);
        }
        if pool.spec.once {
            (*retries, *priority) = (0, 0);
        }
        Ok(key)
    }

    /// Whether the pool takes a lease that was granted, which is marked as its own then (PL-4).
    pub(super) fn admit(&mut self, lease: &mut Lease) -> bool {
        let queue = &self.shapes[lease.shape];
        let Some(pool) = self.pools.open.get_mut(&lease.shape) else { return false };
        // It was on its way when the pool was closed that had this shape before (PL-7).
        if lease.exclusive != pool.exclusive {
            return false;
        }
        // The head grants another only when nothing of the last one is left.
        pool.lost = None;
        lease.kind = queue.pool;
        lease.calls_left = pool.spec.calls_per_slot.unwrap_or(u32::MAX);
        pool.broken.is_none() && queue.leases.len() < pool.spec.size as usize
    }

    /// How many slots the pool could use.
    pub(super) fn pool_demand(&mut self, key: ShapeKey, out: &mut Vec<Effect<Ticket>>) {
        let Some(pool) = self.pools.open.get(&key) else { return };
        let queue = &mut self.shapes[key];
        let calls = (queue.len() + queue.in_flight - pool.preparing) as u32;
        let wanted = match pool.spec.size {
            _ if pool.broken.is_some() => 0,
            size if pool.finished => calls.min(size),
            size if pool.spec.eager => size,
            size => calls.max(pool.floor).max(queue.leases.len() as u32).max(queue.wanted).min(size),
        };
        if wanted != queue.wanted && !self.head.is_lost() {
            queue.wanted = wanted;
            let exclusive = pool.exclusive;
            let shape = *self.shapes.shape(key);
            out.push(Effect::ToHead(ClientToHead::Want { shape, count: wanted, exclusive }));
        }
    }

    /// The head is there again.
    pub(super) fn pools_want(&mut self, out: &mut Vec<Effect<Ticket>>) {
        for key in self.pools.open.keys().copied().collect::<Vec<_>>() {
            self.pool_demand(key, out);
        }
    }

    /// Whether tasks of this queue have slots without the head.
    pub(super) fn goes_on_alone(&self, shape: ShapeKey) -> bool {
        let queue = &self.shapes[shape];
        self.is_in_whole_group(shape) || (queue.is_pool() || queue.guest) && !queue.leases.is_empty()
    }

    /// A task was taken out of the queue of a pool: what waited behind it may be due.
    pub(super) fn stir_pool(&mut self, shape: ShapeKey, out: &mut Vec<Effect<Ticket>>) {
        if self.shapes[shape].is_stirred() {
            self.wake_at(Tick::ZERO, out);
        }
    }

    /// The head asks for a lease back, because its node leaves. An actor stays where it is for as long as it can.
    pub(super) fn on_pool_recall(&mut self, now: Tick, key: LeaseKey, out: &mut Vec<Effect<Ticket>>) {
        let lease = &mut self.leases[key.0];
        if lease.kind == Kind::Once {
            return;
        }
        lease.recalled = true;
        let shape = lease.shape;
        self.ask_back_waiting(key, out);
        if self.on_pool_replies(now, key, shape, out) {
            self.pool_changed(shape, out);
        }
    }

    /// No node will ever hold its slots. Those who wait for slots are told, if none are there.
    pub(super) fn refuse_pool(&mut self, key: ShapeKey, why: &Unplaceable, out: &mut Vec<Effect<Ticket>>) {
        if self.shapes[key].leases.is_empty() {
            self.end_waiters(key, &Outcome::Unplaceable(Box::new(why.clone())), out);
        }
    }

    /// Everything of the pool ends like this, and its leases go back.
    fn end_pool(&mut self, key: ShapeKey, outcome: &Outcome, out: &mut Vec<Effect<Ticket>>) {
        for task in self.shapes[key].drain() {
            self.waiting.remove(carried(&self.tasks[task.0].payload));
            self.finish_unplaced(task, outcome.clone(), out);
        }
        for lease in self.shapes[key].leases.clone() {
            for call in self.take_calls(lease) {
                self.finish_unplaced(call.task, outcome.clone(), out);
            }
            self.give_back(lease, out);
        }
        self.end_waiters(key, outcome, out);
        let queue = &mut self.shapes[key];
        (queue.barrier, queue.attentive) = (NO_BARRIER, false);
        self.want_nothing(key, out);
    }

    fn end_waiters(&mut self, key: ShapeKey, outcome: &Outcome, out: &mut Vec<Effect<Ticket>>) {
        let Some(pool) = self.pools.open.get_mut(&key) else { return };
        let updates = std::mem::take(&mut pool.updates).into_iter().map(|it| (it.1, it.2));
        let ready = std::mem::take(&mut pool.ready).into_iter().map(|it| (it.1, it.2));
        let drained = std::mem::take(&mut pool.drained).into_iter();
        out.extend(drained.map(|(ticket, task)| Effect::Finished {
            ticket,
            task,
            outcome: Outcome::Value(Bytes::new()),
        }));
        out.extend(updates.chain(ready).map(|(ticket, task)| Effect::Finished {
            ticket,
            task,
            outcome: outcome.clone(),
        }));
    }

    /// The session ends. Tasks and leases are seen to already.
    pub(super) fn close_pools(&mut self, out: &mut Vec<Effect<Ticket>>) {
        let outcome = self.closing();
        for key in self.pools.open.keys().copied().collect::<Vec<_>>() {
            self.end_waiters(key, &outcome, out);
        }
        self.pools = Pools::default();
    }

    /// From now on the pool is broken, and whatever is submitted to it ends like this.
    fn break_pool(&mut self, key: ShapeKey, outcome: Outcome, out: &mut Vec<Effect<Ticket>>) {
        self.end_pool(key, &outcome, out);
        self.end_hosted(key, &outcome, out);
        if let Some(pool) = self.pools.open.get_mut(&key) {
            pool.broken = Some(outcome);
        }
    }

    /// What is in flight on a lease of a pool, without its standing calls.
    fn take_calls(&mut self, key: LeaseKey) -> Vec<InFlight> {
        let lease = &mut self.leases[key.0];
        let (shape, calls) = (lease.shape, lease.take_in_flight());
        lease.preparing = 0;
        self.shapes[shape].in_flight -= calls.len();
        self.strike_standing(shape, calls)
    }

    /// Standing calls of a lease that is over need no records any more.
    fn strike_standing(&mut self, shape: ShapeKey, calls: VecDeque<InFlight>) -> Vec<InFlight> {
        let (standing, others): (Vec<_>, Vec<_>) = calls.into_iter().partition(|call| call.standing > 0);
        if let Some(pool) = self.pools.open.get_mut(&shape) {
            pool.preparing -= standing.len();
        }
        standing.into_iter().for_each(|call| drop(self.tasks.remove(call.task.0)));
        others
    }

    /// Something came from a slot of a pool, and was dealt with. False: the slot was replaced, or the pool is broken.
    pub(super) fn on_pool_replies(
        &mut self,
        now: Tick,
        key: LeaseKey,
        shape: ShapeKey,
        out: &mut Vec<Effect<Ticket>>,
    ) -> bool {
        if self.pools.failed.is_some() && !self.on_standing_failed(now, key, shape, out) {
            return false;
        }
        let lease = &self.leases[key.0];
        if lease.is_idle() && (lease.calls_left == 0 || lease.recalled) {
            self.give_back(key, out);
            self.pool_demand(shape, out);
            self.pool_changed(shape, out);
            self.fill(now, shape, out);
            return false;
        }
        if self.shapes[shape].attentive || self.shapes[shape].homeless {
            self.release_dry(shape, out);
            self.pool_changed(shape, out);
        }
        self.leases.contains(key.0)
    }

    /// A pool that is finished gives slots back that have nothing to do.
    pub(super) fn release_dry(&mut self, key: ShapeKey, out: &mut Vec<Effect<Ticket>>) {
        let queue = &self.shapes[key];
        if !self.pools.open.get(&key).is_some_and(|pool| pool.finished) || queue.len() > 0 {
            return;
        }
        // An update that was accepted is applied by those that are there.
        if queue.barrier != NO_BARRIER {
            return;
        }
        let idle = queue.leases.iter().filter(|lease| self.leases[lease.0].is_idle());
        let idle: Vec<LeaseKey> = idle.copied().collect();
        if !idle.is_empty() {
            // First, or the head would grant them again.
            self.pool_demand(key, out);
        }
        idle.into_iter().for_each(|lease| self.give_back(lease, out));
    }

    /// Slots have come, gone or applied something: tell those who wait for that.
    pub(super) fn pool_changed(&mut self, key: ShapeKey, out: &mut Vec<Effect<Ticket>>) {
        if self.shapes[key].hosts {
            self.follow_actor(key, out);
        }
        let Some(pool) = self.pools.open.get(&key) else { return };
        if pool.updates.is_empty() && pool.ready.is_empty() && pool.drained.is_empty() {
            self.shapes[key].attentive = pool.finished;
            return;
        }
        let leases = self.shapes[key].leases.iter().map(|lease| &self.leases[lease.0]);
        // A slot that is about to go is nobody's any more.
        let staying = leases.filter(|lease| !lease.recalled && lease.calls_left > 0);
        let prepared = staying.clone().filter(|lease| self.is_prepared(key, lease)).count() as u32;
        let applied = staying.map(|lease| lease.applied).min();
        // With nobody there, and nobody to come, there is nobody to wait for.
        let applied = applied.or((self.shapes[key].wanted == 0).then_some(pool.sent)).unwrap_or(0);
        let queue = &self.shapes[key];
        let calls = queue.len() + queue.in_flight - pool.preparing;
        let is_drained = calls == 0 && (!pool.finished || queue.leases.is_empty());
        let pool = self.pools.open.get_mut(&key).expect("found above");
        if is_drained {
            for (ticket, task) in std::mem::take(&mut pool.drained) {
                out.push(Effect::Finished { ticket, task, outcome: Outcome::Value(Bytes::new()) });
            }
        }
        while pool.updates.front().is_some_and(|it| it.0 < applied) {
            let (_, ticket, task, value) = pool.updates.pop_front().expect("seen just now");
            out.push(Effect::Finished { ticket, task, outcome: Outcome::Value(value) });
        }
        let (there, still): (Vec<_>, Vec<_>) =
            std::mem::take(&mut pool.ready).into_iter().partition(|it| it.0 <= prepared);
        pool.ready = still;
        for (_, ticket, task) in there {
            out.push(Effect::Finished { ticket, task, outcome: Outcome::Value(Bytes::new()) });
        }
        let waited_for = !(pool.updates.is_empty() && pool.ready.is_empty() && pool.drained.is_empty());
        self.shapes[key].attentive = pool.finished || waited_for;
    }

    fn is_prepared(&self, key: ShapeKey, lease: &Lease) -> bool {
        lease.link == LinkState::Up && self.has_applied_all(key, lease)
    }

    /// The same, whether or not it can be talked to just now.
    pub(super) fn has_applied_all(&self, key: ShapeKey, lease: &Lease) -> bool {
        let sent = self.pools.open.get(&key).map_or(0, |pool| pool.sent);
        lease.preparing == 0 && lease.standing == sent
    }
}
