//! Taking back calls that were sent ahead, for slots that have nothing to do.
//!
//! * WD-1: a call that was sent is only asked for; it moves when its slot gives it back (CL-3).
//! * WD-2: nothing is asked back while tasks wait here anyway, or while the slot will be through with them sooner than
//!   the asking takes.

use super::lease::LinkState;
use super::shapes::ShapeKey;
use super::{Client, Effect, LeaseKey};
use crate::Tick;
use paceline_proto::Seq;
use paceline_proto::data::ToSlot;
use std::time::Duration;

/// Asking back work that takes less than this is not worth the messages.
const WORTH_ASKING: Duration = Duration::from_micros(200);

enum Verdict {
    /// Ask for all that waits: what runs there is long.
    All,
    /// Ask for half: it makes progress, but there is much.
    Half,
    /// Look again in a moment.
    Later,
    No,
}

impl<Ticket: Clone> Client<Ticket> {
    /// If slots of this shape are idle while others have work ahead, take some of it back.
    pub(super) fn balance(&mut self, now: Tick, shape: ShapeKey, out: &mut Vec<Effect<Ticket>>) {
        if !self.is_slack(shape) {
            return;
        }
        let victims: Vec<LeaseKey> = self.shapes[shape].ahead.iter().copied().collect();
        let mut taken = false;
        for key in &victims {
            taken |= self.take_back_unsent(*key);
        }
        if taken {
            self.fill(now, shape, out);
            if !self.is_slack(shape) {
                return;
            }
        }
        for key in victims {
            match self.judge(now, key) {
                Verdict::All => self.ask_back(key, usize::MAX, out),
                Verdict::Half => {
                    let half = self.leases[key.0].in_flight().len() / 2;
                    self.ask_back(key, half.max(1), out);
                }
                Verdict::Later => {
                    let at = self.leases[key.0].last_progress + self.config.stall;
                    self.wake_at(at.max(now + Duration::from_micros(50)), out);
                }
                Verdict::No => {}
            }
        }
    }

    /// Whether a slot has nothing to do and no task waits for one.
    fn is_slack(&self, shape: ShapeKey) -> bool {
        let queue = &self.shapes[shape];
        let mut idle = queue.idle.iter();
        queue.len() == 0
            && queue.in_flight >= 2
            && idle.any(|key| self.leases[key.0].accepts(&self.config, None))
    }

    /// Somebody else wants the lease: what waits behind the call that runs goes to other slots.
    pub(super) fn ask_back_waiting(&mut self, key: LeaseKey, out: &mut Vec<Effect<Ticket>>) {
        let lease = &self.leases[key.0];
        if lease.link == LinkState::Up && lease.backlog_behind() >= WORTH_ASKING {
            self.ask_back(key, usize::MAX, out);
        }
    }

    fn judge(&mut self, now: Tick, key: LeaseKey) -> Verdict {
        let stall = self.config.stall;
        let lease = &mut self.leases[key.0];
        if lease.link != LinkState::Up || lease.withdrawable().next().is_none() {
            return Verdict::No;
        }
        if lease.long_running.is_some() || now.since(lease.last_progress) >= stall {
            return Verdict::All;
        }
        if lease.backlog_behind() >= WORTH_ASKING { Verdict::Half } else { Verdict::Later }
    }

    fn ask_back(&mut self, key: LeaseKey, most: usize, out: &mut Vec<Effect<Ticket>>) {
        let lease = &mut self.leases[key.0];
        let mut calls: Vec<Seq> = lease
            .withdrawable()
            .take(most)
            .map(|call| {
                call.withdrawing = true;
                call.seq
            })
            .collect();
        calls.reverse();
        if !calls.is_empty() {
            lease.say(ToSlot::Withdraw { calls });
            out.push(Effect::Send { key, now: true });
        }
    }

    /// Calls that still wait here to be sent need no asking.
    fn take_back_unsent(&mut self, key: LeaseKey) -> bool {
        let shape = self.leases[key.0].shape;
        let taken = self.leases[key.0].take_unsent();
        self.shapes[shape].note(key, &mut self.leases[key.0]);
        for call in taken.iter().rev() {
            self.shapes[shape].in_flight -= 1;
            if self.tasks[call.task.0].ticket.is_some() {
                self.requeue(call.task);
            } else {
                self.tasks.remove(call.task.0);
            }
        }
        !taken.is_empty()
    }
}
