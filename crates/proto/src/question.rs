//! What people and programs ask a head: how things stand, and to do something about it.
//!
//! A question goes over a control link with a number of the asker's choice, and its answer comes back with the same
//! number, as JSON text or as a sentence that says why there is none.

use crate::ids::{ClientId, LeaseId, NodeId, TaskId};
use crate::work::Work;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Asked of the head, over a client's link or one that does nothing else.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Question {
    /// Nodes, clients, leases, and how they are linked.
    Status,
    /// Why this lease, task (`42`, or `name/42` of one client), client, node or slot is where it is, or why it waits; nothing: why anything waits.
    Explain { what: Option<String> },
    /// The last lines of the logs of the head and of nodes, or of one of them.
    Logs { of: Option<String>, lines: u32 },
    /// Throw the logs away.
    CleanLogs,
    /// Let a node, by name or number, finish what it runs and leave. Answered once it is told so.
    Drain { node: String },
    /// End the cluster: every node leaves, then the head. Answered when all are gone.
    Stop,
    /// A token by which a machine can join: once and soon, or again and again.
    Token { reusable: bool },
    /// End the head alone: nodes wait for another one.
    StopHead,
    /// Run this, whatever becomes of the asker. Answered when it is in the journal.
    Submit { work: Work },
    /// What was submitted, and what became of it.
    Programs,
    /// End this one. Answered once it is told so.
    StopProgram { name: String },
}

impl Question {
    /// Returns whether code that runs in a slot may ask this. It may look at the cluster and submit programs, as detached
    /// actors do; it may not let others in, nor end or drain anything that is not its own.
    pub fn is_for_tasks(&self) -> bool {
        match self {
            Question::Status | Question::Explain { .. } | Question::Programs | Question::Submit { .. } => {
                true
            }
            Question::Logs { .. }
            | Question::CleanLogs
            | Question::Drain { .. }
            | Question::Stop
            | Question::Token { .. }
            | Question::StopHead
            | Question::StopProgram { .. } => false,
        }
    }

    /// Returns the answer to a task that asks what is not for tasks.
    pub fn refusal() -> Answer {
        Err("a task may not ask this: it may look at its cluster and submit programs, and nothing else; \
             use the command line, or ask from the program that submitted the task"
            .into())
    }
}

/// Asked of a node by its head.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum NodeQuestion {
    /// Its slots, and how the clients of its leases are linked to it.
    Status,
    /// The last lines of its log.
    Logs {
        lines: u32,
    },
    CleanLogs,
    /// The last lines that a submitted program printed here.
    ProgramLog {
        name: String,
        lines: u32,
    },
}

/// Asked of a client by its head.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum ClientQuestion {
    /// Where this task of its is, and why.
    Task { task: TaskId },
}

/// JSON text, or why there is none.
pub type Answer = Result<String, String>;

/// How long the parts of an answer are waited for.
pub const PATIENCE: Duration = Duration::from_secs(2);

/// A lease as people see and type it.
pub fn lease_name(lease: LeaseId) -> String {
    format!("{:032x}", lease.0)
}

/// A client's number as people see and type it.
pub fn client_name(client: ClientId) -> String {
    format!("{:016x}", client.0)
}

/// A node's number as people see and type it.
pub fn node_name(node: NodeId) -> String {
    format!("{:016x}", node.0)
}
