//! What a node is told at its start.

use super::MemoryBound;
use paceline_proto::control::Timing;
use paceline_proto::{Address, Facts, Incarnation, NodeId, Resources};
use std::time::Duration;

/// How long silence may last, in heartbeats, before the link to the head counts as dead.
pub(super) const BEATS: u32 = Timing::BEATS;

/// How long a slot may stand still, unless somebody says otherwise.
pub const STOPPED_LIMIT: Duration = Duration::from_secs(30);

/// What the node is told at its start.
#[derive(Clone, Debug)]
pub struct Config {
    pub node: NodeId,
    pub incarnation: Incarnation,
    pub name: String,
    pub total: Resources,
    /// Where it takes data connections.
    pub addresses: Vec<Address>,
    /// What the machine is like.
    pub facts: Facts,
    /// What user code knows its GPUs by, in the order of their numbers; those themselves if nothing is said.
    pub gpu_ids: Vec<u8>,
    /// What its slots may have of memory together, before the largest is ended. The shell looks.
    pub memory: MemoryBound,
    /// Generic slots kept ready beyond the CPUs.
    pub spares: u64,
    /// Until the first head says how long silence may last in its cluster (ND-12).
    pub heartbeat: Duration,
    /// How long its head may be silent, in heartbeats, before the link counts as dead.
    pub beats: u32,
    /// Without its head for this long, the node ends what runs. At least a few heartbeats. Until a head says otherwise.
    pub head_lost: Duration,
    /// Then it ends itself, too.
    pub ends_without_head: bool,
    /// Its head is a part of the same process: neither goes on without the other.
    pub has_own_head: bool,
    /// A slot whose lease ended waits this long for another lease of the same client.
    pub warm: Duration,
    /// A slot has this long to let go of a lease, and to leave when told to; then it is killed.
    pub grace: Duration,
    /// Spares are forked only when nothing has happened for this long: they must not delay the first results.
    pub quiet: Duration,
    /// At most this many tasks may wait for others and leave their CPUs to them, but for those that must.
    pub max_blocked: usize,
    /// A program has this long to say that it is a zygote.
    pub start_limit: Duration,
    /// The zygote of a program that has no slots and is not asked for any ends after this long.
    pub program_idle: Duration,
    /// A slot that was stopped by a signal is ended after this long; none: it may stand still for ever.
    pub stopped_limit: Option<Duration>,
    /// Work of the head's has this long to end when asked to; then it is killed.
    pub work_grace: Duration,
    /// What such work finds in its environment.
    pub variables: Vec<(String, String)>,
    /// Where it keeps what clients on other machines bring.
    pub files: Option<String>,
}

impl Config {
    pub fn new(node: NodeId, incarnation: Incarnation, total: Resources) -> Config {
        Config {
            node,
            incarnation,
            name: String::new(),
            total,
            addresses: Vec::new(),
            facts: Facts::default(),
            gpu_ids: Vec::new(),
            memory: MemoryBound::Machine,
            spares: 0,
            heartbeat: Duration::from_secs(2),
            beats: BEATS,
            head_lost: Duration::from_secs(60),
            ends_without_head: false,
            has_own_head: false,
            warm: Duration::from_secs(10),
            grace: Duration::from_millis(500),
            quiet: Duration::from_millis(30),
            max_blocked: 64,
            start_limit: Duration::from_secs(10),
            program_idle: Duration::from_secs(60),
            stopped_limit: Some(STOPPED_LIMIT),
            work_grace: Duration::from_secs(5),
            variables: Vec::new(),
            files: None,
        }
    }
}
