//! Which clusters this user has on this machine: files that daemons write and everybody else reads.
//!
//! Owns: where the files are, who may read them, and whether the daemon that wrote one still lives. Does not own: what
//! is in the key, the journal and the logs beside them.
//!
//! ```text
//! $PACELINE_HOME or $XDG_STATE_HOME/paceline or ~/.local/state/paceline
//!   clusters/NAME/          only its owner may look inside
//!     cluster.json          the head's record
//!     head.lock             locked by the head for as long as it lives
//!     key                   the cluster's key
//!     journal               what the head remembers
//!     logs/                 rotated
//!     nodes/NODE.json       a node's record
//!     nodes/NODE.lock       locked by the node for as long as it lives
//! ```
//!
//! * RG-1: a record counts while its lock is held: a daemon that was killed leaves a record that nobody believes.
//! * RG-2: directories are for their owner only, and one of another user is refused.
//! * RG-3: the home may be shared between machines: a record says which one it is from.
//! * RG-4: a record is there as a whole or not at all, also after a loss of power.
//! * RG-5: looking at a lock keeps nobody from taking it, and what is locked is not removed.
//! * RG-6: the record of a node is its own in the directory where it was written, and in no copy of that: two nodes must not
//!   speak for each other.
#![forbid(unsafe_code)]

mod home;
mod lock;
mod record;

pub use home::{Error, Home, Place, is_name};
pub use lock::Lock;
pub use record::{Head, Node, machine};
