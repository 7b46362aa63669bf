//! Grants, and the data connections that serve them.

use super::lease::{Lease, LinkState};
use super::queue::Kind;
use super::{Client, Effect, LeaseKey};
use crate::Tick;
use paceline_proto::Seq;
use paceline_proto::control::ClientToHead;
use paceline_proto::data::{Call, ToSlot};

impl<Ticket: Clone> Client<Ticket> {
    pub(super) fn on_granted(&mut self, now: Tick, mut granted: Lease, out: &mut Vec<Effect<Ticket>>) {
        let Lease { id: lease, node, secret, .. } = granted;
        if self.lease_keys.contains_key(&lease) {
            return;
        }
        let group = self.shapes[granted.shape].group;
        let vacant = group.map(|group| self.vacant_member(group));
        let refused = self.shapes[granted.shape].is_pool() && !self.admit(&mut granted);
        if self.closed || refused || vacant == Some(None) {
            out.push(Effect::ToHead(ClientToHead::Release { lease }));
            return;
        }
        granted.shape = vacant.flatten().unwrap_or(granted.shape);
        let shape = granted.shape;
        let key = LeaseKey(self.leases.insert(granted));
        self.lease_keys.insert(lease, key);
        self.shapes.crowded.remove(&shape);
        self.shapes[shape].leases.push(key);
        out.push(Effect::Open { key, lease, node, secret });
        self.note_down(now, key, out);
        if let Some(group) = group {
            self.on_member_granted(now, group, out);
        }
        self.idle_changed(now, key, out);
    }

    pub(super) fn on_link_up(&mut self, now: Tick, key: LeaseKey, out: &mut Vec<Effect<Ticket>>) {
        let Some(lease) = self.leases.get_mut(key.0) else { return };
        let LinkState::Opening { again } = lease.link else { return };
        if lease.broken {
            // Too late: the head has been told.
            return;
        }
        lease.hello(self.id);
        // On a first link the slot has received nothing; there is no need to wait for it to say so.
        lease.link = if again { LinkState::Resuming } else { LinkState::Up };
        out.push(Effect::Send { key, now: true });
        if !again {
            let shape = lease.shape;
            self.note_up(key);
            self.on_pool_link(now, key, out);
            self.reopen(now, key);
            self.fill(now, shape, out);
            self.balance(now, shape, out);
            self.idle_changed(now, key, out);
        }
    }

    /// Returns the last call that was handed to the link of a lease whose calls run at most once. None: they may run again.
    pub fn last_sent_once(&self, key: LeaseKey) -> Option<Seq> {
        let lease = self.leases.get(key.0).filter(|lease| lease.kind == Kind::Once)?;
        Some(lease.last_sent())
    }

    /// What was handed to the link after this call has gone nowhere: the slot had closed it. The end of the link is told apart
    /// from that, after what the slot still had to say. So these calls are known not to have begun (PL-5).
    pub fn unsend(&mut self, key: LeaseKey, last: Seq) {
        if let Some(lease) = self.leases.get_mut(key.0) {
            lease.unsend(last);
        }
    }

    pub(super) fn on_link_down(&mut self, now: Tick, key: LeaseKey, out: &mut Vec<Effect<Ticket>>) {
        let Some(lease) = self.leases.get_mut(key.0) else { return };
        lease.link = LinkState::Opening { again: true };
        lease.forget_outgoing();
        // What was said of functions may not have arrived; saying it again does no harm.
        self.slots.remove(&lease.home());
        self.note_down(now, key, out);
    }

    /// The slot has said what it received over links that broke: send the rest again.
    pub(super) fn on_resumed(
        &mut self,
        now: Tick,
        key: LeaseKey,
        received: Seq,
        out: &mut Vec<Effect<Ticket>>,
    ) {
        let lease = &mut self.leases[key.0];
        if lease.link != LinkState::Resuming || lease.broken {
            return;
        }
        self.note_up(key);
        let lease = &mut self.leases[key.0];
        lease.link = LinkState::Up;
        let memory = self.slots.entry(lease.home()).or_default();
        let mut before = Vec::new();
        if self.environment_version > 0 {
            memory.environment = self.environment_version;
            before.push(ToSlot::Environment(self.environment.clone()));
        }
        let (mut withdrawing, mut ending) = (Vec::new(), Vec::new());
        let mut calls = Vec::new();
        let plain = self.shapes[lease.shape].has_plain_tasks();
        for call in lease.in_flight() {
            let task = &self.tasks[call.task.0];
            if task.interrupt {
                ending.push(call.seq);
            } else if call.withdrawing || task.ticket.is_none() && call.standing == 0 {
                withdrawing.push(call.seq);
            }
            if call.seq > received {
                if memory.functions.insert(task.function)
                    && let Some(function) = self.functions.get(task.function)
                {
                    before.push(ToSlot::Define { function: task.function, bytes: function.bytes.clone() });
                }
                calls.push(Call {
                    seq: call.seq,
                    task: task.id,
                    attempt: task.attempts + 1,
                    at_most_once: task.retries == 0 && plain,
                    function: task.function,
                    timeout: task.timeout,
                    payload: task.payload.clone(),
                });
            }
        }
        before.into_iter().for_each(|message| lease.say_first(message));
        lease.resend(calls);
        if !withdrawing.is_empty() {
            lease.say(ToSlot::Withdraw { calls: withdrawing });
        }
        if !ending.is_empty() {
            lease.say(ToSlot::Cancel { calls: ending });
        }
        let shape = lease.shape;
        out.push(Effect::Send { key, now: true });
        self.on_pool_link(now, key, out);
        self.reopen(now, key);
        self.fill(now, shape, out);
        self.balance(now, shape, out);
        self.idle_changed(now, key, out);
    }
}
