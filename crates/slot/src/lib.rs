//! What runs inside a slot, whatever language the user's code is in.
//!
//! Two threads. The main thread runs user code; while it has none it reads calls and writes replies itself, without a
//! hop. The companion thread ([`companion`]) never touches the language runtime: it listens to the node, and while
//! user code runs it serves the data link, so that calls are taken in, taken back and answered whatever that code does.
#![forbid(unsafe_code)]

mod companion;
mod runtime;
pub mod zygote;

pub use runtime::{Next, Runtime};
