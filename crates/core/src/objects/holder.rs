//! The references that one process has.
//!
//! * HD-1: the store hears of a process's first reference to an object, and of the end of its last, in that order.

use paceline_proto::ObjectId;
use std::collections::BTreeMap;

/// Counts references. The store must hear what this says before it says anything else of the object.
#[derive(Default, Debug)]
pub struct Holder {
    counts: BTreeMap<ObjectId, u32>,
}

impl Holder {
    /// One more. True: it is the first, and the store has to know of it.
    pub fn add(&mut self, object: ObjectId) -> bool {
        let count = self.counts.entry(object).or_default();
        *count += 1;
        *count == 1
    }

    /// One less. True: it was the last, and the store is to be told.
    pub fn remove(&mut self, object: ObjectId) -> bool {
        let Some(count) = self.counts.get_mut(&object) else { return false };
        *count -= 1;
        let last = *count == 0;
        if last {
            self.counts.remove(&object);
        }
        last
    }

    pub fn holds(&self, object: ObjectId) -> bool {
        self.counts.contains_key(&object)
    }

    pub fn is_empty(&self) -> bool {
        self.counts.is_empty()
    }
}
