//! What slots answer.

use super::shapes::ShapeKey;
use super::task::Task;
use super::{Client, Effect, LeaseKey, Outcome};
use crate::Tick;
use paceline_proto::Seq;
use paceline_proto::data::{Reply, Status};
use paceline_proto::parts::carried;

impl<Ticket: Clone> Client<Ticket> {
    pub(super) fn on_replies(
        &mut self,
        now: Tick,
        key: LeaseKey,
        first: u64,
        replies: Vec<Reply>,
        out: &mut Vec<Effect<Ticket>>,
    ) {
        let lease = &mut self.leases[key.0];
        let shape = lease.shape;
        // A repeated reply was counted when it came first.
        let known = lease.replies.saturating_sub(first) as usize;
        if first > lease.replies {
            // A gap cannot happen on a stream: the slot is not what it should be, and its node will say so.
            return;
        }
        lease.last_progress = now;
        let mut acknowledge = false;
        for reply in replies.into_iter().skip(known) {
            acknowledge |= self.leases[key.0].count_reply(carried(&reply.payload));
            self.on_reply(key, shape, reply, out);
        }
        self.after_replies(now, key, shape, acknowledge, out);
    }

    fn on_reply(&mut self, key: LeaseKey, shape: ShapeKey, reply: Reply, out: &mut Vec<Effect<Ticket>>) {
        let lease = &mut self.leases[key.0];
        let Some(call) = lease.remove(reply.seq) else { return };
        let queue = &mut self.shapes[shape];
        queue.in_flight -= 1;
        queue.note(key, lease);
        if call.standing > 0 {
            return self.on_standing_reply(key, &call, reply);
        }
        let task = &mut self.tasks[call.task.0];
        task.sent = None;
        if reply.status == Status::Withdrawn {
            if task.ticket.is_some() {
                if !call.withdrawing {
                    // Nobody asked for it: what runs there waits for others, and takes nothing in meanwhile. That it
                    // runs may have been said on a link that broke.
                    let lease = &mut self.leases[key.0];
                    let first = lease.in_flight().next().map(|first| first.seq);
                    lease.long_running = first;
                }
                return self.requeue(call.task);
            }
            return self.finish_unplaced(call.task, Outcome::Cancelled, out);
        }
        task.attempts += 1;
        if reply.status != Status::Cancelled {
            self.functions.learn(task.function, reply.took);
        }
        if reply.status == Status::TimedOut {
            // Of a slot with state of its own nobody knows what that is like now.
            self.leases[key.0].spoil();
        }
        let again = match reply.status {
            Status::TimedOut => task.retries_after(task.retry_on.timeout),
            Status::Raised => task.retries_after(task.retry_on.raised),
            _ => false,
        };
        if again && task.ticket.is_some() {
            return self.requeue(call.task);
        }
        let outcome = match reply.status {
            Status::Value => Outcome::Value(reply.payload),
            Status::Raised => Outcome::Raised(reply.payload),
            Status::Unsendable => Outcome::Unsendable(reply.payload),
            Status::TimedOut => Outcome::TimedOut { after: task.timeout, attempts: task.attempts },
            Status::Cancelled | Status::Withdrawn => Outcome::Cancelled,
        };
        self.finish_unplaced(call.task, outcome, out);
    }

    fn after_replies(
        &mut self,
        now: Tick,
        key: LeaseKey,
        shape: ShapeKey,
        acknowledge: bool,
        out: &mut Vec<Effect<Ticket>>,
    ) {
        if self.shapes[shape].is_pool() && !self.on_pool_replies(now, key, shape, out) {
            return;
        }
        self.reopen(now, key);
        self.fill(now, shape, out);
        if acknowledge {
            self.leases[key.0].acknowledge();
            out.push(Effect::Send { key, now: true });
        }
        self.balance(now, shape, out);
        self.idle_changed(now, key, out);
        self.end_visit_if_idle(shape, out);
    }

    /// A lease has room again.
    pub(super) fn reopen(&mut self, now: Tick, key: LeaseKey) {
        let lease = &mut self.leases[key.0];
        if lease.is_idle() {
            lease.idle_since = now;
        }
        self.list(key);
    }

    pub(super) fn on_running(&mut self, now: Tick, key: LeaseKey, call: Seq, out: &mut Vec<Effect<Ticket>>) {
        let lease = &mut self.leases[key.0];
        let Some(running) = lease.in_flight().find(|other| other.seq == call) else { return };
        let task = &mut self.tasks[running.task.0];
        lease.long_running = Some(call);
        let shape = lease.shape;
        note_started(task, out);
        self.balance(now, shape, out);
    }

    /// These calls go on beside those that come after them, for which there is room again.
    pub(super) fn on_begun(
        &mut self,
        now: Tick,
        key: LeaseKey,
        calls: &[Seq],
        out: &mut Vec<Effect<Ticket>>,
    ) {
        let lease = &mut self.leases[key.0];
        let shape = lease.shape;
        for call in calls {
            if let Some(task) = lease.set_beside(*call) {
                note_started(&mut self.tasks[task.0], out);
            }
        }
        self.shapes[shape].note(key, &mut self.leases[key.0]);
        self.list(key);
        self.fill(now, shape, out);
    }
}

fn note_started<Ticket: Clone>(task: &mut Task<Ticket>, out: &mut Vec<Effect<Ticket>>) {
    if !std::mem::replace(&mut task.started, true)
        && let Some(ticket) = task.ticket.clone()
    {
        out.push(Effect::Started { ticket });
    }
}
