//! What people are told of requests that wait for room.
//!
//! * NT-1: the head says of each request that has waited for a while what it waits for. However many there are, a program
//!   says it in one line: those that are told of within [`GATHER`] together, and after a line none for [`QUIET`].
//! * NT-2: what has got a slot meanwhile is not in it.

use super::shapes::ShapeKey;
use super::{Client, Effect};
use crate::Tick;
use paceline_proto::Shape;
use std::time::Duration;

/// Requests that were made together are told of together.
const GATHER: Duration = Duration::from_millis(100);
const QUIET: Duration = Duration::from_secs(30);

#[derive(Default)]
pub(super) struct Notices {
    /// Requests that nothing was said of yet, in the order in which the head told of them.
    unsaid: Vec<Shape>,
    say_at: Option<Tick>,
    /// Until then nothing is said.
    quiet_until: Tick,
}

impl<Ticket: Clone> Client<Ticket> {
    /// The head says what tasks of this shape wait for.
    pub(super) fn on_waits(&mut self, now: Tick, shape: Shape, why: String, out: &mut Vec<Effect<Ticket>>) {
        let Some(key) = self.shapes.find(&shape) else { return };
        for queue in self.queues_of(key) {
            self.shapes[queue].waits_for = why.clone();
        }
        self.shapes[key].waits_for = why;
        if self.waiting_tasks(key) == 0 || self.notices.unsaid.contains(&shape) {
            return;
        }
        self.notices.unsaid.push(shape);
        if self.notices.say_at.is_none() {
            let at = self.notices.quiet_until.max(now + GATHER);
            self.notices.say_at = Some(at);
            self.wake_at(at, out);
        }
    }

    /// How many tasks of this request wait for a slot.
    fn waiting_tasks(&self, key: ShapeKey) -> usize {
        // A pool that has slots goes on with those.
        if self.shapes[key].is_pool() && !self.shapes[key].leases.is_empty() {
            return 0;
        }
        self.queues_of(key).iter().map(|queue| self.shapes[*queue].len()).sum()
    }

    /// NT-1.
    pub(super) fn say_notices(&mut self, now: Tick, out: &mut Vec<Effect<Ticket>>) {
        let Some(at) = self.notices.say_at else { return };
        if at > now {
            return self.wake_at(at, out);
        }
        self.notices.say_at = None;
        let (mut tasks, mut requests, mut why) = (0, 0, None);
        for shape in std::mem::take(&mut self.notices.unsaid) {
            let Some(key) = self.shapes.find(&shape) else { continue };
            // NT-2.
            let waiting = self.waiting_tasks(key);
            if waiting > 0 {
                tasks += waiting;
                requests += 1;
                why.get_or_insert_with(|| self.shapes[key].waits_for.clone());
            }
        }
        if let Some(why) = why {
            self.notices.quiet_until = now + QUIET;
            out.push(Effect::Waits { tasks, requests, why });
        }
    }
}
