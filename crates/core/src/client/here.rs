//! Tasks that the client runs itself: a slot that may not leave its CPUs to others while it waits for them.

use super::queue::Queue;
use super::shapes::ShapeKey;
use super::{Client, Effect, Outcome};
use paceline_proto::parts::carried;
use paceline_proto::{Bytes, FunctionId, Resources, Shape, TaskId};

/// A task for the client itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Here<Ticket> {
    pub ticket: Ticket,
    pub task: TaskId,
    pub attempt: u32,
    /// How often it may run again if it raises.
    pub retries: u32,
    pub function: FunctionId,
    pub bytes: Bytes,
    pub payload: Bytes,
}

impl<Ticket: Clone> Client<Ticket> {
    /// Take out a task of this very program that waits for a slot and needs no more than `has`. Its outcome is now the
    /// caller's to give. If only others wait, they end: nothing they wait for can come.
    pub fn take_here(&mut self, has: &Resources, out: &mut Vec<Effect<Ticket>>) -> Option<Here<Ticket>> {
        let fits = |shape: &Shape| shape.program.is_own() && shape.needs.fits_in(has);
        // A task of a group runs in its member and nowhere else, one of a pool in its slots, and a call of an actor where
        // that is.
        let waits = |(_, shape, queue): &(ShapeKey, &Shape, &Queue)| {
            queue.len() > 0 && !queue.is_kept() && fits(shape)
        };
        let fitting = self.shapes.iter().find(waits).map(|(shape, ..)| shape);
        let Some((shape, key)) = fitting.and_then(|shape| Some((shape, self.shapes[shape].pop()?))) else {
            for shape in self.shapes.keys() {
                let needs = self.shapes.shape(shape).needs;
                // Slots of a pool that need nothing will come.
                let come = self.shapes[shape].is_pool() && needs == Resources::default();
                if come || self.shapes[shape].guest || self.goes_on_alone(shape) {
                    continue;
                }
                for key in self.shapes[shape].drain() {
                    let task = self.tasks.remove(key.0);
                    self.waiting.remove(carried(&task.payload));
                    if let Some(ticket) = task.ticket {
                        let outcome = Outcome::TooDeep { needs: Box::new(needs) };
                        out.push(Effect::Finished { ticket, task: task.id, outcome });
                    }
                }
            }
            return None;
        };
        self.demand_changed(shape, out);
        let task = self.tasks.remove(key.0);
        self.waiting.remove(carried(&task.payload));
        let function = self.functions.get(task.function).expect("a task names a function that was defined");
        Some(Here {
            ticket: task.ticket?,
            task: task.id,
            attempt: task.attempts + 1,
            retries: if task.retry_on.raised { task.retries } else { 0 },
            function: task.function,
            bytes: function.bytes.clone(),
            payload: task.payload,
        })
    }
}
