//! Where a task is, and what it waits for, as far as its client knows.

use super::lease::LinkState;
use super::{Client, TaskKey};
use crate::Tick;
use paceline_proto::{LeaseId, NodeId, Resources, SlotId, TaskId};
use std::time::Duration;

/// What is known of a task that has not ended.
#[derive(Clone, PartialEq, Debug)]
pub struct TaskStatus {
    pub task: TaskId,
    pub needs: Resources,
    /// How often it was begun before, as far as is known, and how often it may be again.
    pub attempts: u32,
    pub retries: u32,
    /// How many slots have died under it.
    pub deaths: usize,
    pub place: TaskPlace,
}

#[derive(Clone, PartialEq, Debug)]
pub enum TaskPlace {
    /// It waits for a slot.
    Queued {
        /// So many go before it, in the same queue.
        before: usize,
        /// Leases of its shape: how many there are, how many of them work, and how many could be used.
        leases: usize,
        busy: usize,
        wanted: u32,
        /// What the head has said of it.
        why: String,
        /// The nodes that it waits for, for a while, because what it needs is there.
        near: Vec<NodeId>,
        /// Its group, if that is not whole: how many members are there, and how many there will be.
        group: Option<(usize, usize)>,
        /// There is no link to the head.
        alone: bool,
    },
    /// It was sent to a slot.
    Sent {
        lease: LeaseId,
        node: NodeId,
        slot: SlotId,
        /// So many were sent before it and are not answered.
        before: usize,
        /// It is known to run.
        started: bool,
        /// Since the slot has got it to run, or has answered the one before it.
        since: Duration,
        /// The link to its slot is up.
        linked: bool,
    },
}

impl<Ticket: Clone> Client<Ticket> {
    /// What is known of a task; nothing if it has ended, or never was. Looks at all of them.
    pub fn task_status(&self, now: Tick, id: TaskId) -> Option<TaskStatus> {
        let (key, task) = self.tasks.iter().find(|(_, task)| task.id == id && task.ticket.is_some())?;
        let queue = &self.shapes[task.shape];
        let place = match task.sent {
            Some((lease, seq)) => {
                let lease = &self.leases[lease.0];
                TaskPlace::Sent {
                    lease: lease.id,
                    node: lease.node,
                    slot: lease.slot,
                    before: lease.in_flight().take_while(|call| call.seq < seq).count(),
                    started: task.started,
                    since: now.since(lease.last_progress),
                    linked: lease.link == LinkState::Up,
                }
            }
            None => TaskPlace::Queued {
                before: queue.position(TaskKey(key)).unwrap_or(0),
                leases: queue.leases.len(),
                busy: queue.busy,
                wanted: queue.wanted,
                why: queue.waits_for.clone(),
                near: queue.apart.nodes_of(TaskKey(key)),
                group: self.group_so_far(task.shape),
                alone: !self.head.is_up(),
            },
        };
        Some(TaskStatus {
            task: id,
            needs: self.shapes.shape(task.shape).needs,
            attempts: task.attempts,
            retries: task.retries,
            deaths: task.charges.as_ref().map_or(0, |charges| charges.len()),
            place,
        })
    }
}
