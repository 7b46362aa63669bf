//! How many of something each of many may have at a time: links of a slot, of a client, of a machine.
//!
//! Owns: the counts. Does not own: the things that are counted; whoever takes a place gives it back when the thing is gone.
//!
//! * QU-1 (bounded): nobody has more places than `most`.
//! * QU-2 (apart): what one has changes nothing for another.

use std::collections::BTreeMap;

/// Counts places by who has them.
#[derive(Clone, PartialEq, Debug)]
pub struct Quota<Key> {
    most: usize,
    taken: BTreeMap<Key, usize>,
}

impl<Key: Ord> Quota<Key> {
    pub fn new(most: usize) -> Quota<Key> {
        Quota { most, taken: BTreeMap::new() }
    }

    /// The most places that one may have.
    pub fn most(&self) -> usize {
        self.most
    }

    /// Returns how many places this one has.
    pub fn count(&self, key: &Key) -> usize {
        self.taken.get(key).copied().unwrap_or(0)
    }

    /// Takes a place for this one. False: it has as many as it may (QU-1).
    pub fn take(&mut self, key: Key) -> bool {
        if self.count(&key) >= self.most {
            return false;
        }
        *self.taken.entry(key).or_default() += 1;
        true
    }

    /// Gives one back that was taken.
    pub fn give_back(&mut self, key: &Key) {
        if let Some(count) = self.taken.get_mut(key) {
            *count -= 1;
            if *count == 0 {
                self.taken.remove(key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_has_as_many_as_it_may() {
        let mut quota = Quota::new(2);
        assert!(quota.take("a") && quota.take("a"));
        assert!(!quota.take("a"), "QU-1");
        assert!(quota.take("b"), "QU-2");
        quota.give_back(&"b");
        assert!(!quota.take("a"), "QU-2: the place of another");
        quota.give_back(&"a");
        assert_eq!(quota.count(&"a"), 1);
        assert!(quota.take("a") && !quota.take("a"), "QU-1");
    }

    #[test]
    fn nothing_is_kept_of_one_that_has_none() {
        let mut quota = Quota::new(1);
        for key in 0..1000 {
            assert!(quota.take(key));
            quota.give_back(&key);
        }
        assert_eq!(quota, Quota::new(1));
        quota.give_back(&7);
        assert_eq!(quota, Quota::new(1), "what was never taken");
    }
}
