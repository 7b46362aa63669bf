//! Arbitrary sequences of events for one core at a time: whatever peers say, nothing panics and every invariant holds.
//!
//! Owns: how bytes become events. Few ids are used, so that messages refer to each other, to what the core has said, and
//! to what never was. What only the shell can say (which link a message came over, what was written to disk) is true;
//! what peers say need not be.
//!
//! The drivers serve `cargo fuzz` (`fuzz/fuzz_targets`), a test over the stored corpus, and `--example fuzz`, which needs
//! neither nightly Rust nor a tool.

pub mod client;
pub mod head;
mod input;
pub mod node;

pub use input::Input;

use crate::random::Random;

/// A core under arbitrary events; panics at the first broken invariant.
pub type Target = fn(&[u8]);

/// All targets by name.
pub const TARGETS: [(&str, Target); 3] = [("head", head::run), ("node", node::run), ("client", client::run)];

/// Returns pseudo-random bytes of a length that lets something happen.
pub fn random_bytes(seed: u64) -> Vec<u8> {
    let mut random = Random::new(seed);
    let length = random.within(16..4096);
    let mut bytes: Vec<u8> = (0..length).map(|_| random.below(256) as u8).collect();
    // Half of the inputs repeat a part of themselves with changes, so that the same few peers meet again and again.
    if seed.is_multiple_of(2) {
        let part = bytes.len() / 4;
        for at in part..bytes.len() {
            if random.below(8) > 0 {
                bytes[at] = bytes[at % part.max(1)];
            }
        }
    }
    bytes
}
