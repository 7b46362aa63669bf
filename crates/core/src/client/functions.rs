//! Functions by their hash, and how long their tasks take.

use paceline_proto::{Bytes, FunctionId};
use std::collections::HashMap;
use std::time::Duration;

/// A new sample weighs one part in this many.
const WEIGHT: u64 = 8;

/// A sample counts for at most this many times the estimate (plus a little): one preempted microsecond task among
/// thousands must not make them all look long, while a real change is followed within a few samples.
const OUTLIER: u64 = 4;
const OUTLIER_FLOOR: u64 = 20_000;

/// How long tasks of one function take, learned from replies.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Estimate(Option<u64>);

impl Estimate {
    pub fn learn(&mut self, took: Duration) {
        let sample = took.as_nanos() as u64;
        self.0 = Some(match self.0 {
            None => sample,
            Some(mean) => {
                let sample = sample.min(mean * OUTLIER + OUTLIER_FLOOR);
                (mean * (WEIGHT - 1) + sample) / WEIGHT
            }
        });
    }

    /// None before the first reply.
    pub fn get(&self) -> Option<Duration> {
        self.0.map(Duration::from_nanos)
    }
}

pub(super) struct Function {
    pub bytes: Bytes,
    pub estimate: Estimate,
}

#[derive(Default)]
pub(super) struct Functions(HashMap<FunctionId, Function>);

impl Functions {
    /// Make a function known under the hash of its bytes.
    pub fn define(&mut self, bytes: Bytes) -> FunctionId {
        let hash = blake3::hash(&bytes);
        let (head, _) = hash.as_bytes().split_first_chunk::<16>().expect("a hash has 32 bytes");
        let id = FunctionId(u128::from_le_bytes(*head));
        self.0.entry(id).or_insert_with(|| Function { bytes, estimate: Estimate::default() });
        id
    }

    pub fn get(&self, id: FunctionId) -> Option<&Function> {
        self.0.get(&id)
    }

    pub fn estimate(&self, id: FunctionId) -> Option<Duration> {
        self.0.get(&id).and_then(|function| function.estimate.get())
    }

    pub fn learn(&mut self, id: FunctionId, took: Duration) {
        if let Some(function) = self.0.get_mut(&id) {
            function.estimate.learn(took);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_outlier_moves_little_and_a_change_is_followed() {
        let mut estimate = Estimate::default();
        (0..100).for_each(|_| estimate.learn(Duration::from_micros(1)));
        estimate.learn(Duration::from_millis(10));
        assert!(estimate.get().unwrap() < Duration::from_micros(5));
        (0..60).for_each(|_| estimate.learn(Duration::from_millis(10)));
        assert!(estimate.get().unwrap() > Duration::from_millis(9));
    }

    #[test]
    fn equal_bytes_are_one_function() {
        let mut functions = Functions::default();
        let one = functions.define(Bytes::from_static(b"a"));
        assert_eq!(functions.define(Bytes::from_static(b"a")), one);
        assert_ne!(functions.define(Bytes::from_static(b"b")), one);
    }
}
