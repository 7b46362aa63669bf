//! What happens next. Events of one time happen in the order in which they were put down.

use paceline_core::Tick;
use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

pub(crate) struct Agenda<T> {
    entries: BinaryHeap<Reverse<Entry<T>>>,
    count: u64,
}

struct Entry<T> {
    at: Tick,
    order: u64,
    what: T,
}

impl<T> Agenda<T> {
    pub fn new() -> Agenda<T> {
        Agenda { entries: BinaryHeap::new(), count: 0 }
    }

    pub fn add(&mut self, at: Tick, what: T) {
        self.count += 1;
        self.entries.push(Reverse(Entry { at, order: self.count, what }));
    }

    pub fn next_at(&self) -> Option<Tick> {
        self.entries.peek().map(|Reverse(entry)| entry.at)
    }

    pub fn pop(&mut self) -> Option<(Tick, T)> {
        self.entries.pop().map(|Reverse(entry)| (entry.at, entry.what))
    }
}

impl<T> Ord for Entry<T> {
    fn cmp(&self, other: &Entry<T>) -> Ordering {
        (self.at, self.order).cmp(&(other.at, other.order))
    }
}

impl<T> PartialOrd for Entry<T> {
    fn partial_cmp(&self, other: &Entry<T>) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> PartialEq for Entry<T> {
    fn eq(&self, other: &Entry<T>) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<T> Eq for Entry<T> {}
