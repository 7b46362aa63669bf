//! The queues of all shapes. A shape is a hundred bytes, and a task names one: it does so by the shape's key.

use super::queue::Queue;
use paceline_proto::Shape;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Index, IndexMut};

/// The place of a shape among those that were ever asked for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) struct ShapeKey(u32);

#[derive(Default)]
pub(super) struct Shapes {
    all: Vec<(Shape, Queue)>,
    keys: BTreeMap<Shape, ShapeKey>,
    /// The one that was asked for last: mostly it is the one that is asked for next.
    last: Option<ShapeKey>,
    /// Those for which the head has no room for another lease.
    pub crowded: BTreeSet<ShapeKey>,
}

impl Shapes {
    /// The key of this shape, which has a queue from now on.
    pub fn key(&mut self, shape: &Shape) -> ShapeKey {
        if let Some(last) = self.last.filter(|last| self.shape(*last) == shape) {
            return last;
        }
        let key = match self.keys.get(shape) {
            Some(key) => *key,
            None => {
                let key = ShapeKey(u32::try_from(self.all.len()).expect("there are not that many shapes"));
                self.all.push((*shape, Queue::default()));
                self.keys.insert(*shape, key);
                key
            }
        };
        self.last = Some(key);
        key
    }

    /// A queue beside that of the shape, for one member of a group; `place` was one before.
    pub fn add(&mut self, shape: Shape, place: Option<ShapeKey>) -> ShapeKey {
        let Some(key) = place else {
            let key = ShapeKey(u32::try_from(self.all.len()).expect("there are not that many shapes"));
            self.all.push((shape, Queue::default()));
            return key;
        };
        self.all[key.0 as usize] = (shape, Queue::default());
        self.crowded.remove(&key);
        key
    }

    pub fn find(&self, shape: &Shape) -> Option<ShapeKey> {
        self.keys.get(shape).copied()
    }

    pub fn shape(&self, key: ShapeKey) -> &Shape {
        &self.all[key.0 as usize].0
    }

    pub fn keys(&self) -> impl Iterator<Item = ShapeKey> + use<> {
        (0..self.all.len() as u32).map(ShapeKey)
    }

    pub fn iter(&self) -> impl Iterator<Item = (ShapeKey, &Shape, &Queue)> {
        self.keys().zip(&self.all).map(|(key, (shape, queue))| (key, shape, queue))
    }

    pub fn queues(&mut self) -> impl Iterator<Item = &mut Queue> {
        self.all.iter_mut().map(|(_, queue)| queue)
    }
}

impl Index<ShapeKey> for Shapes {
    type Output = Queue;

    fn index(&self, key: ShapeKey) -> &Queue {
        &self.all[key.0 as usize].1
    }
}

impl IndexMut<ShapeKey> for Shapes {
    fn index_mut(&mut self, key: ShapeKey) -> &mut Queue {
        &mut self.all[key.0 as usize].1
    }
}
