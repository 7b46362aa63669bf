//! Which nodes have the bytes of an object, told to those who decide where tasks run.
//!
//! * WH-1: whenever another node has a copy, or one has none any more, it is told; and the end of an object that was told
//!   of. What was told may be late: it is good enough for a preference, and for nothing else.

use super::object::Object;
use super::store::{Effect, Store};
use paceline_proto::{NodeId, ObjectId};

impl Store {
    /// The copies of an object may be others than before (WH-1).
    pub(super) fn tell_copies(&self, id: ObjectId, out: &mut Vec<Effect>) {
        if let Some(object) = self.objects.get(&id) {
            let (size, nodes) = (object.size, self.nodes_with(object));
            out.push(Effect::Whereabouts { object: id, size, nodes });
        }
    }

    /// An object is no more.
    pub(super) fn tell_end(id: ObjectId, object: &Object, out: &mut Vec<Effect>) {
        if !object.copies.is_empty() {
            out.push(Effect::Whereabouts { object: id, size: 0, nodes: Vec::new() });
        }
    }

    fn nodes_with(&self, object: &Object) -> Vec<NodeId> {
        let links = object.copies.iter().filter_map(|link| self.links.get(link));
        links.filter_map(|link| link.node).collect()
    }
}
