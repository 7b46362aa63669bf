//! Maps by numbers that this process itself has given, or of which there are few: nobody chooses them to do harm, so they
//! need no hash that takes longer than the look-up.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

pub(super) type Numbered<K, V> = HashMap<K, V, BuildHasherDefault<Mixed>>;

#[derive(Default)]
pub(super) struct Mixed(u64);

impl Hasher for Mixed {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }

    fn write_u32(&mut self, number: u32) {
        self.write_u64(u64::from(number));
    }

    fn write_u64(&mut self, number: u64) {
        // An odd number whose product has all bits of the other in its upper half, which is where maps look.
        self.0 = (self.0.rotate_left(5) ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::hash::BuildHasher;

    #[test]
    fn neighbours_are_far_apart() {
        let hasher = BuildHasherDefault::<Mixed>::default();
        let tops: std::collections::HashSet<u64> =
            (0..128_u64).map(|number| hasher.hash_one(number) >> 57).collect();
        assert!(tops.len() > 64, "{}", tops.len());
    }
}
