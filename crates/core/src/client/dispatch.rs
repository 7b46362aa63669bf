//! Submitting tasks, and filling the windows of leases with them.

use super::functions::Functions;
use super::lease::{InFlight, LinkState};
use super::shapes::ShapeKey;
use super::task::{Spec, Task, TaskKey, Within};
use super::{Client, Config, Effect, LeaseKey, Outcome};
use crate::Tick;
use paceline_proto::data::{Call, ToSlot};
use paceline_proto::parts::carried;
use paceline_proto::pins;
use paceline_proto::{Bytes, FunctionId, TaskId};
use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::time::Duration;

/// At most this many tasks go to one lease before the others get their turn.
const QUANTUM: usize = 64;

impl<Ticket: Clone> Client<Ticket> {
    /// Make a function known; equal bytes give equal ids.
    pub fn define(&mut self, bytes: Bytes) -> FunctionId {
        self.functions.define(bytes)
    }

    /// Accept a task.
    pub fn submit(
        &mut self,
        now: Tick,
        spec: Spec,
        ticket: Ticket,
        out: &mut Vec<Effect<Ticket>>,
    ) -> (TaskKey, TaskId) {
        let id = self.next_task;
        self.next_task = TaskId(id.0 + 1);
        let Spec {
            function,
            payload,
            shape,
            mut retries,
            retry_on,
            timeout,
            mut priority,
            wait,
            within,
            near,
        } = spec;
        let queue = match within {
            Within::Any => Ok(self.shapes.key(&shape)),
            Within::Member(member) => self.member_queue(&shape, member),
            Within::Pool(number) => self.pool_queue(&shape, number, &mut retries, &mut priority),
            Within::Guest(actor) => self.guest_queue(actor, &mut retries, &mut priority),
        };
        let shape = match queue {
            Ok(shape) => shape,
            Err(outcome) => {
                out.push(Effect::Finished { ticket, task: id, outcome });
                return (TaskKey(usize::MAX), id);
            }
        };
        let key = TaskKey(self.tasks.insert(Task {
            id,
            ticket: Some(ticket),
            function,
            payload,
            shape,
            priority,
            retries,
            retry_on,
            timeout,
            attempts: 0,
            sent: None,
            started: false,
            interrupt: false,
            charges: None,
        }));
        if self.closed {
            self.finish_unplaced(key, self.closing(), out);
            return (key, id);
        }
        self.waiting.add(carried(&self.tasks[key.0].payload));
        match near.filter(|_| within == Within::Any) {
            Some(near) => self.shapes[shape].push_near((Reverse(priority), id), key, near),
            None => self.shapes[shape].push(key, priority),
        }
        self.fill(now, shape, out);
        if self.head.is_lost() && !self.goes_on_alone(shape) {
            self.end_waiting(shape, out);
        }
        self.demand_changed(shape, out);
        if wait > Duration::ZERO {
            self.bound_wait(now, wait, key, id, out);
        }
        (key, id)
    }

    /// Whether the task is known to have begun. Unknown tasks have ended.
    pub fn is_running(&self, key: TaskKey, id: TaskId) -> bool {
        self.tasks.get(key.0).is_some_and(|task| task.id == id && task.started)
    }

    /// End a task that has not begun as far as is known, or whatever it does if `anyway`. Says whether it did.
    pub fn cancel(&mut self, key: TaskKey, id: TaskId, anyway: bool, out: &mut Vec<Effect<Ticket>>) -> bool {
        let Some(task) = self.tasks.get_mut(key.0).filter(|task| task.id == id) else { return false };
        if task.started && !anyway {
            return false;
        }
        let Some((lease, seq)) = task.sent else {
            let (shape, priority) = (task.shape, task.priority);
            self.waiting.remove(carried(&task.payload));
            self.shapes[shape].remove(key, priority);
            self.finish_unplaced(key, Outcome::Cancelled, out);
            self.demand_changed(shape, out);
            self.end_visit_if_idle(shape, out);
            self.stir_pool(shape, out);
            return true;
        };
        let Some(ticket) = task.ticket.take() else { return false };
        task.interrupt = anyway;
        out.push(Effect::Finished { ticket, task: id, outcome: Outcome::Cancelled });
        // The record stays until the slot has answered: it may be running after all.
        let message =
            if anyway { ToSlot::Cancel { calls: vec![seq] } } else { ToSlot::Withdraw { calls: vec![seq] } };
        self.leases[lease.0].say(message);
        out.push(Effect::Send { key: lease, now: true });
        true
    }

    /// End every task whose ticket is one of these, whether it runs or not.
    pub fn cancel_all(&mut self, is_one: impl Fn(&Ticket) -> bool, out: &mut Vec<Effect<Ticket>>) {
        self.cancel_where(|task| task.ticket.as_ref().is_some_and(&is_one), out);
        self.end_idle_visits(out);
    }

    /// Ends all tasks of which this holds: first those that wait, so that none is sent to a slot that another has left.
    pub(super) fn cancel_where(
        &mut self,
        is_one: impl Fn(&Task<Ticket>) -> bool,
        out: &mut Vec<Effect<Ticket>>,
    ) {
        let mut queued = BTreeSet::new();
        let mut in_flight = Vec::new();
        for (key, task) in &self.tasks {
            if is_one(task) {
                match task.sent {
                    None => drop(queued.insert(TaskKey(key))),
                    Some(_) => in_flight.push((TaskKey(key), task.id)),
                }
            }
        }
        if !queued.is_empty() {
            for queue in self.shapes.queues() {
                queue.remove_all(&queued);
            }
        }
        for key in queued {
            let Task { ref payload, shape, .. } = self.tasks[key.0];
            self.waiting.remove(carried(payload));
            self.finish_unplaced(key, Outcome::Cancelled, out);
            self.stir_pool(shape, out);
        }
        for (key, id) in in_flight {
            self.cancel(key, id, true, out);
        }
    }

    /// Whatever was told to stop and still runs has no more time: its slots end now.
    pub fn kill_interrupted(&mut self, out: &mut Vec<Effect<Ticket>>) {
        for (index, lease) in &mut self.leases {
            let told = |call: &&InFlight| self.tasks[call.task.0].interrupt;
            let calls: Vec<_> = lease.in_flight().filter(told).map(|call| call.seq).collect();
            if !calls.is_empty() && lease.link == LinkState::Up {
                lease.say(ToSlot::Kill { calls });
                out.push(Effect::Send { key: LeaseKey(index), now: true });
            }
        }
    }

    /// Hand queued tasks of a shape to leases with room.
    pub(super) fn fill(&mut self, now: Tick, shape: ShapeKey, out: &mut Vec<Effect<Ticket>>) {
        if self.shapes[shape].gated {
            return;
        }
        self.send_tasks(now, shape, out);
        while self.send_standing(now, shape, out) {
            self.send_tasks(now, shape, out);
        }
    }

    fn send_tasks(&mut self, now: Tick, shape: ShapeKey, out: &mut Vec<Effect<Ticket>>) {
        while let Some((key, was_idle)) = self.next_lease(now, shape) {
            let room = self.share_of_one(shape);
            let mut sent = 0;
            while sent < room && self.send_one(now, shape, key) {
                sent += 1;
            }
            if sent > 0 {
                self.list(key);
                out.push(Effect::Send { key, now: was_idle });
            }
        }
        if !self.shapes[shape].apart.is_empty() {
            self.note_idle_elsewhere(now, shape, out);
        }
    }

    /// A lease that may take a task: an idle one first, else one at work. It is taken out of its list.
    fn next_lease(&mut self, now: Tick, shape: ShapeKey) -> Option<(LeaseKey, bool)> {
        if !self.shapes[shape].apart.is_empty() {
            return self.next_lease_by_node(now, shape);
        }
        let queue = &mut self.shapes[shape];
        let first = queue.front()?;
        if self.tasks[first.0].id > queue.barrier {
            return None;
        }
        while let Some(key) = queue.idle.pop() {
            let lease = &mut self.leases[key.0];
            lease.in_idle = false;
            if lease.usable() {
                return Some((key, true));
            }
        }
        let expected = expected(&self.config, &self.functions, &self.tasks[first.0]);
        while let Some(key) = queue.open.pop_front() {
            let lease = &mut self.leases[key.0];
            lease.in_open = false;
            if lease.accepts(&self.config, expected) {
                return Some((key, false));
            }
        }
        None
    }

    /// A lease may have room: list it where [`Client::fill`] looks. Each list names a lease at most once.
    pub(super) fn list(&mut self, key: LeaseKey) {
        let lease = &mut self.leases[key.0];
        let queue = &mut self.shapes[lease.shape];
        if !lease.usable() {
            return;
        }
        if lease.is_idle() && !lease.in_idle {
            lease.in_idle = true;
            queue.idle.push(key);
        } else if !lease.is_idle() && !lease.in_open {
            lease.in_open = true;
            queue.open.push_back(key);
        }
    }

    /// How many tasks one lease may get in one go, so that few tasks are spread over many slots.
    fn share_of_one(&self, shape: ShapeKey) -> usize {
        let queue = &self.shapes[shape];
        let takers = queue.idle.len() + queue.open.len() + 1;
        queue.len().div_ceil(takers).min(QUANTUM)
    }

    fn send_one(&mut self, now: Tick, shape: ShapeKey, key: LeaseKey) -> bool {
        let Some((task_key, near)) = self.turn(now, shape, key) else { return false };
        let queue = &mut self.shapes[shape];
        let task = &mut self.tasks[task_key.0];
        let lease = &mut self.leases[key.0];
        let expected = expected(&self.config, &self.functions, task);
        if task.id > queue.barrier || !lease.accepts(&self.config, expected) {
            return false;
        }
        match near {
            None => queue.pop(),
            Some(nodes) => queue.pop_near(&nodes),
        };
        if !queue.apart.is_empty() {
            queue.apart.goes_past(now, lease.node, (Reverse(task.priority), task.id));
        }
        self.waiting.remove(carried(&task.payload));
        if lease.calls_left != u32::MAX {
            lease.calls_left -= 1;
        }
        // Unknown: as long as the window allows, so that the next one waits for an answer.
        let expected = expected.unwrap_or(self.config.ahead);
        self.put_in_flight(now, task_key, key, expected, 0);
        true
    }

    /// A task is sent on this lease, as that standing call of a pool if `standing` is not zero.
    #[inline]
    pub(super) fn put_in_flight(
        &mut self,
        now: Tick,
        task_key: TaskKey,
        key: LeaseKey,
        expected: Duration,
        standing: u32,
    ) {
        let task = &mut self.tasks[task_key.0];
        let lease = &mut self.leases[key.0];
        let queue = &mut self.shapes[lease.shape];
        queue.in_flight += 1;
        let memory = self.slots.entry(lease.home()).or_default();
        if memory.environment != self.environment_version {
            memory.environment = self.environment_version;
            lease.say_first(ToSlot::Environment(self.environment.clone()));
        }
        if memory.functions.insert(task.function) {
            let bytes = self.functions.get(task.function).map(|function| function.bytes.clone());
            let bytes = bytes.expect("a task names a function that was defined");
            lease.say_first(ToSlot::Define { function: task.function, bytes });
        }
        let seq = lease.push(now, task_key, expected, standing, |seq| Call {
            seq,
            task: task.id,
            attempt: task.attempts + 1,
            at_most_once: task.retries == 0 && queue.has_plain_tasks(),
            function: task.function,
            timeout: task.timeout,
            payload: task.payload.clone(),
        });
        task.sent = Some((key, seq));
        queue.note(key, lease);
    }

    /// Put a task that was out back in its place in the queue (CL-5).
    pub(super) fn requeue(&mut self, key: TaskKey) {
        let task = &mut self.tasks[key.0];
        task.sent = None;
        task.started = false;
        let (id, shape, priority) = (task.id, task.shape, task.priority);
        self.waiting.add(carried(&task.payload));
        let queue = &mut self.shapes[shape];
        queue.put_back(key, priority, |other| self.tasks[other.0].id < id);
    }

    /// End a task that is in no queue and not in flight.
    pub(super) fn finish_unplaced(&mut self, key: TaskKey, outcome: Outcome, out: &mut Vec<Effect<Ticket>>) {
        let task = self.tasks.remove(key.0);
        match (task.ticket, outcome) {
            (Some(ticket), outcome) => out.push(Effect::Finished { ticket, task: task.id, outcome }),
            (None, Outcome::Value(value)) if pins::has(&value) => out.push(Effect::Unclaimed { value }),
            (None, _) => {}
        }
    }

    /// The lease a task is in flight on, and how long its function's tasks take, if that is known.
    pub fn location(&self, key: TaskKey, id: TaskId) -> Option<(LeaseKey, Option<Duration>)> {
        let task = self.tasks.get(key.0).filter(|task| task.id == id)?;
        let (lease, _) = task.sent?;
        Some((lease, self.functions.estimate(task.function)))
    }
}

/// How long a task will run, if that is known. One that killed a slot counts as long, so that it goes to an idle slot:
/// should it kill again, no other's unsent result dies with it.
pub(super) fn expected<Ticket>(
    config: &Config,
    functions: &Functions,
    task: &Task<Ticket>,
) -> Option<Duration> {
    let killed = task.charges.as_ref().is_some_and(|charges| !charges.is_empty());
    if killed { Some(config.long_task) } else { functions.estimate(task.function) }
}
