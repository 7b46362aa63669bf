//! The end of a lease by the death of its slot or node.

use super::task::{Charge, Lost, LostCause};
use super::{Client, Effect, Outcome, TaskKey};
use crate::Tick;
use paceline_proto::{Death, DeathCause, LeaseId, OutOfMemory, Seq};

/// What a death means for one call in flight.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Blame {
    /// It was running: the death is charged to it.
    Ran,
    /// It ran on a node that is lost, as far as anybody knows, or it was the last to run and its result is lost.
    Lost,
    /// It had ended and its result is lost, or it may have begun on a node that is: sent again for free, as another run, if
    /// it may run again at all.
    Doubtful,
    /// It had not begun: sent again for free.
    NotBegun,
}

impl Blame {
    /// What the death means for the call of this number. `first` is the first in flight, `sent` the last that was sent.
    pub fn of(call: Seq, first: Option<Seq>, sent: Seq, death: &Death) -> Blame {
        match death.cause {
            _ if call > sent => Blame::NotBegun,
            DeathCause::NodeLost if Some(call) == first => Blame::Lost,
            DeathCause::NodeLost => Blame::Doubtful,
            _ if death.running == Some(call) => Blame::Ran,
            // Nothing ran any more: what ran last may well have been the reason, and must not run for ever.
            _ if death.running.is_none() && call == death.finished => Blame::Lost,
            _ if call <= death.finished => Blame::Doubtful,
            _ => Blame::NotBegun,
        }
    }
}

impl<Ticket: Clone> Client<Ticket> {
    /// Everything the slot had sent before its end must have been handed in already.
    pub(super) fn on_ended(
        &mut self,
        now: Tick,
        lease: LeaseId,
        death: &Death,
        out: &mut Vec<Effect<Ticket>>,
    ) {
        let Some(key) = self.lease_keys.remove(&lease) else { return };
        self.note_up(key);
        let mut lease = self.leases.remove(key.0);
        self.slots.remove(&lease.home());
        let shape = lease.shape;
        let queue = &mut self.shapes[shape];
        queue.forget_lease(key, &lease);
        let calls = lease.take_in_flight();
        queue.in_flight -= calls.len();
        out.push(Effect::Close { key });
        let charge = Charge {
            slot: lease.slot,
            node: lease.node,
            cause: death.cause,
            out_of_memory: death.out_of_memory,
        };
        if let Some(group) = queue.group {
            return self.on_member_ended(group, shape, calls, charge, out);
        }
        if queue.guest {
            return self.on_guest_ended(&lease, calls, death, charge, out);
        }
        if queue.is_pool() {
            self.on_pool_slot_ended(&lease, &calls, death, charge, out);
        } else {
            let first = calls.front().map(|call| call.seq);
            for call in &calls {
                self.settle(call.task, Blame::of(call.seq, first, lease.last_sent(), death), charge, out);
            }
        }
        self.fill(now, shape, out);
        self.demand_changed(shape, out);
        self.balance(now, shape, out);
    }

    pub(super) fn settle(
        &mut self,
        key: TaskKey,
        blame: Blame,
        charge: Charge,
        out: &mut Vec<Effect<Ticket>>,
    ) {
        let poison = self.config.poison;
        let task = &mut self.tasks[key.0];
        task.sent = None;
        if task.ticket.is_none() {
            self.tasks.remove(key.0);
            return;
        }
        if blame == Blame::NotBegun {
            return self.requeue(key);
        }
        task.attempts += 1;
        // One without retries must not run twice, not even if that is only possible.
        if blame == Blame::Doubtful && task.retries > 0 {
            return self.requeue(key);
        }
        if charge.cause == DeathCause::TimedOut && blame == Blame::Ran {
            // The slot's end was the way to stop it, not its doing.
            return self.give_up_or_retry(key, out);
        }
        let charges = task.charges.get_or_insert_default();
        charges.push(charge);
        let killed = charges.iter().filter(|charge| charge.cause != DeathCause::NodeLost).count();
        let asked_for = match charge.cause {
            _ if matches!(charge.out_of_memory, OutOfMemory::Exceeded(_)) => task.retry_on.memory,
            DeathCause::NodeLost => task.retry_on.node_lost,
            _ => task.retry_on.slot_lost,
        };
        let cause = if blame == Blame::Ran && killed as u32 >= poison {
            LostCause::Poison
        } else if asked_for && task.retries > 0 {
            task.retries -= 1;
            if blame == Blame::Lost {
                charges.pop();
            }
            return self.requeue(key);
        } else if charge.cause == DeathCause::NodeLost {
            LostCause::NodeLost
        } else {
            LostCause::SlotDied
        };
        let lost = Lost { cause, attempts: task.attempts, charges: charges.to_vec() };
        self.finish_unplaced(key, Outcome::Lost(Box::new(lost)), out);
    }

    fn give_up_or_retry(&mut self, key: TaskKey, out: &mut Vec<Effect<Ticket>>) {
        let task = &mut self.tasks[key.0];
        if task.retries_after(task.retry_on.timeout) {
            return self.requeue(key);
        }
        let outcome = Outcome::TimedOut { after: task.timeout, attempts: task.attempts };
        self.finish_unplaced(key, outcome, out);
    }
}
