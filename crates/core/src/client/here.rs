//! Tasks that the client runs itself: a slot that may not leave its CPUs to others while it waits for them.

use super::{Client, Effect, Outcome};
use paceline_proto::{Bytes, FunctionId, Resources, TaskId};

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
        let fitting = (self.shapes.iter_mut())
            .filter(|(shape, _)| shape.program.is_own() && shape.needs.fits_in(has))
            .find_map(|(&shape, queue)| Some((shape, queue.pop()?)));
        let Some((shape, key)) = fitting else {
            for queue in self.shapes.values_mut() {
                for key in queue.drain() {
                    let task = self.tasks.remove(key.0);
                    self.waiting.remove(task.payload.len());
                    if let Some(ticket) = task.ticket {
                        let outcome = Outcome::TooDeep { needs: task.shape.needs };
                        out.push(Effect::Finished { ticket, task: task.id, outcome });
                    }
                }
            }
            return None;
        };
        self.demand_changed(shape, out);
        let task = self.tasks.remove(key.0);
        self.waiting.remove(task.payload.len());
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
