//! The outcomes of the many tasks of one map, kept without a future for each.

use crate::aside::Stored;
use crate::cell::Waiter;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;

/// Outcomes to be taken in the order of the input, or as they come.
pub struct Batch {
    waiter: Arc<Waiter>,
    inner: Mutex<Inner>,
}

struct Inner {
    store: Store,
    done: usize,
    target: usize,
    /// Some outcome was not a value.
    failed: bool,
}

enum Store {
    /// Outcomes from index `first` on, with gaps for those still to come.
    InOrder {
        outcomes: VecDeque<Option<Stored>>,
        first: u32,
    },
    AsTheyCome(VecDeque<(u32, Stored)>),
}

impl Batch {
    /// Outcomes for the calling thread to take.
    pub fn new(in_order: bool) -> Arc<Batch> {
        let store = if in_order {
            Store::InOrder { outcomes: VecDeque::new(), first: 0 }
        } else {
            Store::AsTheyCome(VecDeque::new())
        };
        Arc::new(Batch {
            waiter: Waiter::new(0),
            inner: Mutex::new(Inner { store, done: 0, target: 0, failed: false }),
        })
    }

    /// How many outcomes have come, taken or not.
    pub fn done(&self) -> usize {
        self.inner.lock().done
    }

    /// A waiter that is satisfied once `target` outcomes have come in all. When one of them is no value it is
    /// satisfied with that one, and afterwards with each: the sooner its turn comes, the better.
    pub fn waiter(&self, target: usize) -> &Arc<Waiter> {
        let mut inner = self.inner.lock();
        inner.target = if inner.failed { target.min(inner.done + 1) } else { target };
        let target = inner.target;
        self.waiter.reset(usize::from(inner.done < target));
        &self.waiter
    }

    pub(crate) fn complete(&self, index: u32, outcome: Stored) {
        let mut inner = self.inner.lock();
        let first_failure = !inner.failed && !outcome.is_value();
        inner.failed |= first_failure;
        match &mut inner.store {
            Store::InOrder { outcomes, first } => {
                let place = (index - *first) as usize;
                if outcomes.len() <= place {
                    outcomes.resize_with(place + 1, || None);
                }
                outcomes[place] = Some(outcome);
            }
            Store::AsTheyCome(outcomes) => outcomes.push_back((index, outcome)),
        }
        inner.done += 1;
        if inner.done == inner.target || (first_failure && inner.done < inner.target) {
            self.waiter.count(1);
        }
    }

    /// The next outcome, if it is there.
    pub fn take_next(&self) -> Option<Stored> {
        self.take_next_one().map(|(_, outcome)| outcome)
    }

    /// The same, and of which task it is.
    pub fn take_next_one(&self) -> Option<(u32, Stored)> {
        self.inner.lock().store.take_next()
    }

    /// All next outcomes that are there.
    pub fn take_ready(&self, into: &mut Vec<Stored>) {
        let mut inner = self.inner.lock();
        while let Some((_, outcome)) = inner.store.take_next() {
            into.push(outcome);
        }
    }
}

impl Store {
    fn take_next(&mut self) -> Option<(u32, Stored)> {
        match self {
            Store::InOrder { outcomes, first } => {
                let outcome = outcomes.front_mut()?.take()?;
                outcomes.pop_front();
                *first += 1;
                Some((*first - 1, outcome))
            }
            Store::AsTheyCome(outcomes) => outcomes.pop_front(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use paceline_core::client::Outcome;
    use paceline_proto::Bytes;

    fn value(byte: u8) -> Outcome {
        Outcome::Value(Bytes::copy_from_slice(&[byte]))
    }

    fn next(batch: &Batch) -> Option<Outcome> {
        batch.take_next().map(Stored::load)
    }

    #[test]
    fn in_order_waits_for_gaps() {
        let batch = Batch::new(true);
        batch.complete(1, value(1).into());
        assert!(batch.take_next().is_none());
        batch.complete(0, value(0).into());
        let mut ready = Vec::new();
        batch.take_ready(&mut ready);
        assert_eq!(ready.into_iter().map(Stored::load).collect::<Vec<_>>(), [value(0), value(1)]);
        batch.complete(2, value(2).into());
        assert_eq!(next(&batch), Some(value(2)));
    }

    #[test]
    fn as_they_come_does_not() {
        let batch = Batch::new(false);
        batch.complete(5, value(5).into());
        batch.complete(0, value(0).into());
        assert_eq!((next(&batch), next(&batch)), (Some(value(5)), Some(value(0))));
    }
}
