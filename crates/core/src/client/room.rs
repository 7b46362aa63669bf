//! How much may wait here to be sent.
//!
//! Owns: the count of tasks in the queues of all shapes, and of the bytes they carry. Does not own: who has to wait for
//! room, and how.
//!
//! * RM-1: only what has not been sent counts, so room comes by itself, whatever the one who waits for it does.
//! * RM-2: an empty queue takes any task, however large.

use super::{Client, Config};

/// What waits to be sent: tasks, and bytes of their arguments.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Waiting {
    pub tasks: usize,
    pub bytes: usize,
}

impl Waiting {
    pub(super) fn add(&mut self, bytes: usize) {
        self.tasks += 1;
        self.bytes += bytes;
    }

    pub(super) fn remove(&mut self, bytes: usize) {
        self.tasks -= 1;
        self.bytes -= bytes;
    }

    fn has_room(&self, config: &Config, bytes: usize) -> bool {
        let fits = self.bytes.saturating_add(bytes) <= config.queue_bytes;
        self.tasks == 0 || (self.tasks < config.queue_tasks && fits)
    }
}

impl<Ticket: Clone> Client<Ticket> {
    /// What waits to be sent now.
    pub fn waiting(&self) -> Waiting {
        self.waiting
    }

    /// What may wait at most.
    pub fn most_waiting(&self) -> Waiting {
        Waiting { tasks: self.config.queue_tasks, bytes: self.config.queue_bytes }
    }

    /// Whether one more task with arguments of so many bytes may wait. A task that is submitted all the same is
    /// accepted: those who submit are asked to wait, and what is sent back here always has a place.
    pub fn has_room(&self, bytes: usize) -> bool {
        self.waiting.has_room(&self.config, bytes)
    }
}
