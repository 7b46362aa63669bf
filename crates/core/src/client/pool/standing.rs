//! Standing calls: accepted, sent to every slot, confirmed or not.

use super::super::lease::{InFlight, LinkState};
use super::super::queue::NO_BARRIER;
use super::super::shapes::ShapeKey;
use super::super::task::{PoolBroken, RetryOn, Task, TaskKey};
use super::super::{Client, Effect, LeaseKey, Outcome};
use super::{Pool, PoolId};
use crate::Tick;
use paceline_proto::data::{Reply, Status};
use paceline_proto::parts::carried;
use paceline_proto::{Bytes, FunctionId, TaskId};
use std::sync::Arc;
use std::time::Duration;

/// In so many slots in a row a standing call may fail, the last one included.
const TRIES: u32 = 3;

/// In so many slots in a row one that has worked elsewhere may be cut short by a death, which can come from outside.
const DEATHS: u32 = 10;

/// What every slot of a pool is to run.
#[derive(Clone, Debug)]
pub struct Standing {
    pub function: FunctionId,
    pub payload: Bytes,
    /// What it is called, for people.
    pub name: Arc<str>,
    /// Slots that come later need not run earlier ones of the same key.
    pub replaces: Option<Bytes>,
}

/// There is no room for one more standing call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HistoryFull {
    pub bytes: usize,
    pub most: usize,
}

/// A standing call that was accepted.
pub(super) struct Entry {
    /// Later tasks run behind it.
    pub id: TaskId,
    pub call: Standing,
    /// In how many slots in a row it has failed, and how many died in it.
    pub failures: u32,
    pub deaths: u32,
    /// A slot has applied it.
    pub worked: bool,
}

impl Entry {
    fn new(id: TaskId, call: Standing) -> Entry {
        Entry { id, call, failures: 0, deaths: 0, worked: false }
    }

    fn applied(&mut self) {
        (self.failures, self.deaths, self.worked) = (0, 0, true);
    }

    /// A slot has died in it. Says in how many in a row, if that is too often.
    pub fn killed(&mut self) -> Option<u32> {
        self.deaths += 1;
        let most = if self.worked { DEATHS } else { TRIES };
        (self.deaths >= most).then_some(self.deaths)
    }
}

/// A standing call that did not end well, and how.
pub(in super::super) struct Failed {
    number: u32,
    status: Status,
    payload: Bytes,
}

impl<Ticket> Pool<Ticket> {
    /// Make a standing call the next one. Says its number.
    fn accept(&mut self, id: TaskId, call: Standing) -> u32 {
        let number = self.next;
        self.next += 1;
        self.bytes += carried(&call.payload);
        self.standing.insert(number, Entry::new(id, call));
        number
    }

    /// The turn of this one has come: every slot that comes later runs it, and none that it makes void. Before, a call
    /// that still waits could need those.
    fn turn(&mut self, number: u32) {
        self.sent = number + 1;
        let Some(key) = self.standing[&number].call.replaces.clone() else { return };
        let bytes = &mut self.bytes;
        self.standing.retain(|other, earlier| {
            let stays = *other >= number || earlier.call.replaces.as_ref() != Some(&key);
            *bytes -= if stays { 0 } else { carried(&earlier.call.payload) };
            stays
        });
    }

    /// What standing calls would take with this one.
    fn bytes_with(&self, call: &Standing) -> usize {
        let same = |entry: &&Entry| call.replaces.is_some() && entry.call.replaces == call.replaces;
        let void: usize = self.standing.values().filter(same).map(|entry| carried(&entry.call.payload)).sum();
        self.bytes - void + carried(&call.payload)
    }

    /// The first one that was not sent, as tasks see it.
    fn barrier(&self) -> TaskId {
        self.standing.range(self.sent..).next().map_or(NO_BARRIER, |(_, entry)| entry.id)
    }
}

impl<Ticket: Clone> Client<Ticket> {
    pub(super) fn new_task_id(&mut self) -> TaskId {
        let id = self.next_task;
        self.next_task = TaskId(id.0 + 1);
        id
    }

    /// Accept a standing call. The ticket, if there is one, ends when all slots that are there have applied it.
    pub fn update_pool(
        &mut self,
        now: Tick,
        id: &PoolId,
        call: Standing,
        ticket: Option<Ticket>,
        out: &mut Vec<Effect<Ticket>>,
    ) -> Result<TaskId, HistoryFull> {
        let key = self.pool_key(id);
        let pool = key.and_then(|key| self.pools.open.get_mut(&key));
        if let Some(pool) = &pool
            && pool.bytes_with(&call) > pool.spec.history
            && pool.bytes > 0
        {
            return Err(HistoryFull { bytes: pool.bytes, most: pool.spec.history });
        }
        let task = self.next_task;
        self.next_task = TaskId(task.0 + 1);
        let (Some(pool), Some(key)) = (pool.filter(|pool| pool.broken.is_none() && !pool.finished), key)
        else {
            let broken = key.and_then(|key| self.pools.open[&key].broken.clone());
            let outcome = broken.unwrap_or_else(|| self.closing());
            out.extend(ticket.map(|ticket| Effect::Finished { ticket, task, outcome }));
            return Ok(task);
        };
        let number = pool.accept(task, call);
        if let Some(ticket) = ticket {
            pool.updates.push_back((number, ticket, task, Bytes::new()));
            self.shapes[key].attentive = true;
        }
        self.shapes[key].barrier = pool.barrier();
        self.fill(now, key, out);
        Ok(task)
    }

    /// Slots that come later run this call instead of all updates that were accepted before the task `after`. Standing
    /// calls that came before the first task stay.
    pub fn cut_pool(&mut self, id: &PoolId, after: TaskId, keep: u32, call: Standing) -> bool {
        let Some(pool) = self.pool_key(id).and_then(|key| self.pools.open.get_mut(&key)) else {
            return false;
        };
        let sent = pool.sent;
        let old = pool.standing.range(keep..sent).filter(|(_, entry)| entry.id < after);
        let old: Vec<u32> = old.map(|(number, _)| *number).collect();
        let Some(&last) = old.last() else { return false };
        let id = pool.standing[&last].id;
        for number in old {
            let entry = pool.standing.remove(&number).expect("listed above");
            pool.bytes -= carried(&entry.call.payload);
        }
        pool.bytes += carried(&call.payload);
        pool.standing.insert(last, Entry::new(id, call));
        true
    }

    /// Send standing calls whose turn it is to all slots that are there (PL-3). Says whether there were any.
    pub(in super::super) fn send_standing(
        &mut self,
        now: Tick,
        shape: ShapeKey,
        out: &mut Vec<Effect<Ticket>>,
    ) -> bool {
        let queue = &mut self.shapes[shape];
        if queue.barrier == NO_BARRIER {
            return false;
        }
        let front = queue.front().map(|task| self.tasks[task.0].id);
        if front.is_some_and(|front| front < queue.barrier) {
            return false;
        }
        let pool = self.pools.open.get_mut(&shape).expect("the barrier of a queue is its pool's");
        let due = |entry: &Entry| front.is_none_or(|front| entry.id < front);
        while let Some((&number, _)) = pool.standing.range(pool.sent..).next().filter(|(_, it)| due(it)) {
            pool.turn(number);
        }
        queue.barrier = pool.barrier();
        for lease in queue.leases.clone() {
            self.catch_up(now, lease, out);
        }
        self.pool_changed(shape, out);
        true
    }

    /// A slot of a pool can be talked to, perhaps again.
    pub(in super::super) fn on_pool_link(&mut self, now: Tick, key: LeaseKey, out: &mut Vec<Effect<Ticket>>) {
        let shape = self.leases[key.0].shape;
        if self.shapes[shape].is_pool() {
            self.catch_up(now, key, out);
            self.pool_changed(shape, out);
        }
    }

    /// Send the slot the standing calls that it has not got (PL-1).
    fn catch_up(&mut self, now: Tick, key: LeaseKey, out: &mut Vec<Effect<Ticket>>) {
        let lease = &self.leases[key.0];
        let (shape, from) = (lease.shape, lease.standing);
        let Some(pool) = self.pools.open.get(&shape) else { return };
        if lease.link != LinkState::Up || lease.recalled || lease.calls_left == 0 || from == pool.sent {
            return;
        }
        let to = pool.sent;
        let due: Vec<(u32, FunctionId, Bytes)> = pool
            .standing
            .range(from..to)
            .map(|(number, entry)| (*number, entry.call.function, entry.call.payload.clone()))
            .collect();
        self.leases[key.0].standing = to;
        if due.is_empty() {
            self.leases[key.0].applied = to;
        }
        for (number, function, payload) in due {
            let id = self.new_task_id();
            let task = TaskKey(self.tasks.insert(Task {
                id,
                ticket: None,
                function,
                payload,
                shape,
                priority: 0,
                retries: 0,
                retry_on: RetryOn::default(),
                timeout: Duration::ZERO,
                attempts: 0,
                sent: None,
                started: false,
                interrupt: false,
                charges: None,
            }));
            self.leases[key.0].preparing += 1;
            self.pools.open.get_mut(&shape).expect("found above").preparing += 1;
            self.put_in_flight(now, task, key, Duration::ZERO, number + 1);
        }
        out.push(Effect::Send { key, now: true });
    }

    /// A slot has answered a standing call.
    pub(in super::super) fn on_standing_reply(&mut self, key: LeaseKey, call: &InFlight, reply: Reply) {
        self.tasks.remove(call.task.0);
        let lease = &mut self.leases[key.0];
        lease.preparing -= 1;
        let Some(pool) = self.pools.open.get_mut(&lease.shape) else { return };
        pool.preparing -= 1;
        let number = call.standing - 1;
        match reply.status {
            Status::Value => {
                lease.applied = if lease.preparing == 0 { lease.standing } else { call.standing };
                if let Some(entry) = pool.standing.get_mut(&number) {
                    entry.applied();
                }
                if let Some(update) = pool.updates.iter_mut().find(|it| it.0 == number) {
                    update.3 = reply.payload;
                }
            }
            status if self.pools.failed.is_none() => {
                // What is in flight behind it ran in a slot that is not what it should be.
                lease.calls_left = 0;
                self.pools.failed = Some(Failed { number, status, payload: reply.payload });
            }
            _ => {}
        }
    }

    /// A standing call has failed in this slot: another takes its place. False, unless the lease is still there.
    pub(super) fn on_standing_failed(
        &mut self,
        now: Tick,
        key: LeaseKey,
        shape: ShapeKey,
        out: &mut Vec<Effect<Ticket>>,
    ) -> bool {
        let Some(Failed { number, status, payload }) = self.pools.failed.take() else { return true };
        let Some(pool) = self.pools.open.get_mut(&shape) else { return true };
        let once = pool.spec.once || pool.spec.restarts == Some(0);
        let failed = pool.standing.get_mut(&number).map(|entry| {
            entry.failures += 1;
            (entry.call.name.clone(), entry.failures)
        });
        let enough = |tries: u32| once || tries >= TRIES;
        // One that was replaced meanwhile is nobody's any more.
        if let Some((call, tries)) = failed.filter(|(_, tries)| enough(*tries)) {
            let why = match status {
                Status::Raised => PoolBroken::Raised { call, error: payload, tries },
                _ => PoolBroken::Unsendable { call, reason: payload, tries },
            };
            self.break_pool(shape, Outcome::PoolBroken(Box::new(why)), out);
            return false;
        }
        if self.leases[key.0].in_flight().any(|call| call.standing == 0) {
            // Calls that began before it and go on beside others; they may end here, and then the slot goes.
            return true;
        }
        for call in self.take_calls(key) {
            self.requeue_or_drop(call.task);
        }
        self.give_back(key, out);
        self.fill(now, shape, out);
        self.pool_changed(shape, out);
        false
    }

    /// A call that is to be sent again, unless nobody waits for it.
    pub(super) fn requeue_or_drop(&mut self, task: TaskKey) {
        if self.tasks[task.0].ticket.is_some() {
            self.tasks[task.0].attempts += 1;
            self.requeue(task);
        } else {
            self.tasks.remove(task.0);
        }
    }
}
