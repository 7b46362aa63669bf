//! The node's core under arbitrary events: no panic, and every invariant holds after each.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| paceline_sim::fuzz::node::run(bytes));
