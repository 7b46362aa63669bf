//! Where the bytes of a client's objects are, as its store has told.

use paceline_proto::{NodeId, ObjectId};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Cheap to clone; all clones are one.
#[derive(Clone, Default)]
pub struct Whereabouts {
    known: Arc<Mutex<HashMap<ObjectId, Place>>>,
}

/// So many bytes, which these nodes have.
type Place = (u64, Vec<NodeId>);

impl Whereabouts {
    pub(super) fn set(&self, object: ObjectId, size: u64, nodes: Vec<NodeId>) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if nodes.is_empty() {
            known.remove(&object);
        } else {
            known.insert(object, (size, nodes));
        }
    }

    /// Those of these objects that some node has.
    pub fn of(&self, objects: impl Iterator<Item = ObjectId>) -> Vec<Place> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        objects.filter_map(|object| known.get(&object).cloned()).collect()
    }
}
