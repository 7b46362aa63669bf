//! A node that wants to go.
//!
//! * NL-1: it asks the head to let its leases come to their end, and goes when told to, or when its time is up, or at
//!   once when there is no head to ask.
//! * NL-2: a head that it meets while it goes hears so at once, and grants nothing there that it would have to refuse.

use super::{Effect, HeadLink, Node, Phase};
use crate::time::Tick;
use paceline_proto::control::NodeToHead;
use std::time::Duration;

impl Node {
    pub(super) fn on_leave(&mut self, now: Tick, within: Duration, out: &mut Vec<Effect>) {
        if self.phase != Phase::Open {
            return;
        }
        if !matches!(self.head, HeadLink::Up { .. }) {
            return self.on_close(now, out);
        }
        let by = now + within;
        self.leave_by = Some(self.leave_by.map_or(by, |before| before.min(by)));
        out.push(Effect::ToHead(NodeToHead::Leaving));
    }

    /// The head is there again: it may not have heard of it.
    pub(super) fn say_leaving(&self, out: &mut Vec<Effect>) {
        if self.leave_by.is_some() || self.phase != Phase::Open {
            out.push(Effect::ToHead(NodeToHead::Leaving));
        }
    }

    pub(super) fn leaving_on_time(&mut self, now: Tick, out: &mut Vec<Effect>) {
        if self.phase == Phase::Open && self.leave_by.is_some_and(|by| by <= now) {
            self.on_close(now, out);
        }
    }

    pub(super) fn leave_deadline(&self) -> Option<Tick> {
        self.leave_by.filter(|_| self.phase == Phase::Open)
    }
}
