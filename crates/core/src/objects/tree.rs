//! An object on its way to many nodes: from the owner to one, and from those that have it to the others.
//!
//! * TR-1: the owner sends an object to one far node at a time, and to no more as long as others have it, or will, who can
//!   pass it on.
//! * TR-2: a node passes an object on to at most [`AT_ONCE`] others at a time.
//! * TR-3: who did not get it from one source is given another, each once, and the owner itself in the end.

use super::object::{Object, Place};
use super::store::{Effect, LinkId, Store};
use crate::Tick;
use paceline_proto::ObjectId;
use std::collections::{BTreeMap, BTreeSet};

/// So many get an object from one node at the same time.
const AT_ONCE: usize = 2;

/// Where an object is on its way to.
#[derive(Default, Debug)]
pub(super) struct Tree {
    /// Nodes that want the bytes, by the numbers of their questions, and were given no source yet.
    pub queue: Vec<(LinkId, u64)>,
    /// Nodes that get the bytes, and from which node; from here if from none.
    pub serving: BTreeMap<LinkId, Option<LinkId>>,
    /// Which sources failed whom.
    pub refused: BTreeSet<(LinkId, LinkId)>,
}

impl Tree {
    pub(super) fn on_link_down(&mut self, link: LinkId) {
        self.queue.retain(|(asker, _)| *asker != link);
        self.serving.remove(&link);
        self.refused.retain(|(asker, source)| *asker != link && *source != link);
    }
}

enum Choice {
    Node(LinkId),
    Here,
    Later,
    Nobody,
}

impl Store {
    /// The node at this link wants the bytes. If it was given a source, that did not have them.
    pub(super) fn on_node_wants(
        &mut self,
        now: Tick,
        link: LinkId,
        number: u64,
        id: ObjectId,
        out: &mut Vec<Effect>,
    ) {
        let Some(object) = self.objects.get_mut(&id) else { return };
        if let Some(Some(source)) = object.tree.serving.remove(&link) {
            object.tree.refused.insert((link, source));
        }
        object.tree.queue.push((link, number));
        self.assign(now, id, out);
    }

    /// The node at this link has what it was sent, or gives it up.
    pub(super) fn on_served(&mut self, now: Tick, link: LinkId, id: ObjectId, out: &mut Vec<Effect>) {
        let Some(object) = self.objects.get_mut(&id) else { return };
        if object.tree.serving.remove(&link).is_some() {
            self.assign(now, id, out);
            self.see_to(id, out);
        }
    }

    /// Give sources to those who wait, as far as there are any.
    pub(super) fn assign(&mut self, now: Tick, id: ObjectId, out: &mut Vec<Effect>) {
        let Some(object) = self.objects.get_mut(&id) else { return };
        for (link, number) in std::mem::take(&mut object.tree.queue) {
            let Some(object) = self.objects.get(&id) else { return };
            let choice = self.choose(object, link);
            let object = self.objects.get_mut(&id).expect("it is here");
            match choice {
                Choice::Node(source) => {
                    object.tree.serving.insert(link, Some(source));
                    out.push(Effect::Offer { link, number, object: id, size: object.size, source });
                }
                Choice::Here => {
                    object.tree.serving.insert(link, None);
                    self.hand(link, number, id, out);
                }
                Choice::Later => object.tree.queue.push((link, number)),
                Choice::Nobody => {
                    let away = object.place == Place::Away;
                    object.wanted.push((link, number));
                    if away {
                        self.fetch(now, id, out);
                    }
                }
            }
        }
    }

    fn choose(&self, object: &Object, link: LinkId) -> Choice {
        let here = matches!(object.place, Place::Small | Place::Memory | Place::Disk);
        let near = |link| self.links.get(link).is_some_and(|known| known.near);
        if here && (near(&link) || object.place == Place::Small) {
            // The memory itself is handed over.
            return Choice::Here;
        }
        if matches!(object.place, Place::Coming(_) | Place::Spilling) {
            return Choice::Nobody;
        }
        let tree = &object.tree;
        let serves = |source: &LinkId| {
            let able = self.links.get(source).is_some_and(|known| known.serves);
            able && *source != link && !tree.refused.contains(&(link, *source))
        };
        let busy = |source: &LinkId| tree.serving.values().filter(|from| **from == Some(*source)).count();
        let able: Vec<LinkId> = object.copies.iter().copied().filter(serves).collect();
        match able.iter().min_by_key(|source| busy(source)) {
            Some(source) if busy(source) < AT_ONCE => return Choice::Node(*source),
            Some(_) => return Choice::Later,
            None => {}
        }
        let coming = tree.serving.keys().any(|other| !near(other) && serves(other));
        match here {
            _ if coming => Choice::Later,
            true if tree.serving.iter().any(|(other, from)| from.is_none() && !near(other)) => Choice::Later,
            true => Choice::Here,
            false => Choice::Nobody,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Event;
    use super::*;
    use paceline_proto::objects::{FromStore, Reference, ToStore};
    use paceline_proto::{ClientId, LeaseId, LeaseSecret, NodeId};
    use std::time::Duration;

    const OBJECT: ObjectId = ObjectId(1);
    const OWNER: ClientId = ClientId(1);

    fn tell(store: &mut Store, event: Event) -> Vec<Effect> {
        let mut out = Vec::new();
        store.handle(Tick::ZERO, event, &mut out);
        store.check().unwrap();
        out
    }

    /// An owner with an object, and so many far nodes that want it.
    fn broadcast(nodes: u64) -> (Store, Vec<Effect>) {
        let mut store = Store::new(NodeId(0), 1000);
        tell(&mut store, Event::LinkUp(LinkId(0)));
        tell(&mut store, Event::From(LinkId(0), ToStore::Hello { owner: OWNER, root: true }));
        let wait = Duration::ZERO;
        tell(
            &mut store,
            Event::From(LinkId(0), ToStore::Reserve { number: 1, object: OBJECT, size: 100, wait }),
        );
        tell(&mut store, Event::From(LinkId(0), ToStore::Put { object: OBJECT, inside: Vec::new() }));
        let mut out = Vec::new();
        for node in 1..=nodes {
            let link = LinkId(node);
            tell(&mut store, Event::LinkUp(link));
            let (lease, secret) = (LeaseId(1), LeaseSecret([0; 32]));
            let hello = ToStore::Node { owner: OWNER, node: NodeId(node), lease, secret };
            tell(&mut store, Event::From(link, hello));
            tell(&mut store, Event::Reached { link, near: false, serves: true });
            out.extend(get(&mut store, node));
        }
        (store, out)
    }

    fn get(store: &mut Store, node: u64) -> Vec<Effect> {
        let reference = Reference { object: OBJECT, owner: OWNER, home: NodeId(0) };
        tell(store, Event::From(LinkId(node), ToStore::Get { number: node, reference }))
    }

    fn has(store: &mut Store, node: u64) -> Vec<Effect> {
        let mut out = tell(store, Event::From(LinkId(node), ToStore::Has { object: OBJECT }));
        out.extend(tell(store, Event::From(LinkId(node), ToStore::LetGo { object: OBJECT })));
        out
    }

    fn given(out: &[Effect]) -> Vec<(u64, u64)> {
        let given = out.iter().filter_map(|effect| match effect {
            Effect::Hand(link, ..) => Some((0, link.0)),
            Effect::Offer { link, source, .. } => Some((source.0, link.0)),
            _ => None,
        });
        given.collect()
    }

    #[test]
    fn the_owner_sends_it_once_and_each_node_to_two_at_a_time() {
        let (mut store, out) = broadcast(8);
        assert_eq!(given(&out), [(0, 1)], "TR-1");
        assert_eq!(given(&has(&mut store, 1)), [(1, 2), (1, 3)], "TR-2");
        assert_eq!(given(&has(&mut store, 2)), [(2, 4), (1, 5), (2, 6)], "TR-2: the first still serves one");
        assert_eq!(given(&has(&mut store, 3)), [(3, 7), (1, 8)], "whoever has least to do");
    }

    #[test]
    fn who_gets_it_nowhere_else_gets_it_from_the_owner() {
        let (mut store, _) = broadcast(3);
        assert_eq!(given(&has(&mut store, 1)), [(1, 2), (1, 3)]);
        assert_eq!(given(&get(&mut store, 2)), [], "the other one may have it soon");
        assert_eq!(given(&has(&mut store, 3)), [(3, 2)], "TR-3");
        assert_eq!(given(&get(&mut store, 2)), [(0, 2)], "TR-3");
    }

    #[test]
    fn a_node_that_dies_with_it_is_no_end() {
        let (mut store, _) = broadcast(3);
        let out = tell(&mut store, Event::LinkDown(LinkId(1)));
        assert_eq!(given(&out), [(0, 2)], "the next one gets it from the owner");
        let missing = |effect: &Effect| matches!(effect, Effect::To(_, FromStore::Missing { .. }));
        assert!(!out.iter().any(missing));
    }
}
