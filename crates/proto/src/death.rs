//! How a slot ended, and which call it took with it.

use crate::ids::Seq;
use serde::{Deserialize, Serialize};

/// What the node knows of a slot's death. `running` and `finished` come from the page that outlives the slot.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Death {
    pub cause: DeathCause,
    pub out_of_memory: OutOfMemory,
    /// The one call that was running: the death is charged to it and to no other.
    pub running: Option<Seq>,
    /// The last call that had run to its end. Its result may have died with the slot.
    pub finished: Seq,
}

impl Death {
    /// What is said when nobody can tell how a slot ended.
    pub fn of_lost_node() -> Death {
        let (cause, out_of_memory) = (DeathCause::NodeLost, OutOfMemory::No);
        Death { cause, out_of_memory, running: None, finished: Seq(0) }
    }
}

/// Why a slot is no more.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum DeathCause {
    /// Ended by a signal.
    Signal(i32),
    /// Left by itself, with this exit code.
    Exit(i32),
    /// Its node is gone, and whatever ran there.
    NodeLost,
    /// It was ended because the call that ran took longer than it may and could not be stopped otherwise.
    TimedOut,
    /// It was ended because this signal had stopped it, and it stood still for too long.
    Stopped(i32),
}

/// Whether memory was the reason.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum OutOfMemory {
    Yes(MemoryUse),
    Likely(MemoryUse),
    #[default]
    No,
    /// The slot had more than its task had asked for; there may be more, but not for this.
    Exceeded(MemoryUse),
}

/// How much memory a slot had, and how much there was. Zero where it is not known.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct MemoryUse {
    /// The most bytes the slot ever had.
    pub peak: u64,
    /// All there are, or all it was to have.
    pub limit: u64,
}
