//! Whole clusters in one process, under a seed.
//!
//! Owns: a world around the pure machines of `paceline-core`: time, links, processes, faults, and a ledger of what every
//! task did. Does not own: any decision; those are the machines'.
//!
//! A seed makes a cluster, its work and its faults. After every step the machines that it touched are checked, and the
//! promises that no machine can see alone: the ledger names them. When the faults stop, everything must come to rest in
//! bounded time.
//!
//! * SM-1: the same seed and number of steps give the same run, step by step.
//! * SM-2: messages cross links through the real codec only.
//! * SM-3: in peace every task ends, and no lease is held for long without use.
#![forbid(unsafe_code)]

mod actors;
mod agenda;
mod beside;
mod client;
mod disk;
mod faults;
pub mod fuzz;
mod group;
mod head;
mod isolation;
mod job;
mod ledger;
mod lies;
mod link;
mod load;
mod nesting;
mod news;
mod node;
mod objects;
mod pool;
mod process;
mod random;
mod rivals;
mod run;
pub mod scale;
mod scenario;
mod stalls;
mod tally;
mod trace;
mod works;
mod world;
mod zygote;

pub use job::Job;
pub use news::{How, News};
pub use objects::{Met, run_copies, run_losses, run_objects};
pub use paceline_core::client::RetryOn;
pub use paceline_proto::work::End;
pub use run::{Report, run, run_traced};
pub use scenario::{cpus, ms, us};
pub use tally::Tally;
pub use trace::Tracing;
pub use world::Sim;
