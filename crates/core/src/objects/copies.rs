//! Objects whose bytes are elsewhere: which nodes have copies, and how the bytes come here.
//!
//! * CP-1: a node that has a copy of an object hears of the object's end.
//! * CP-2: what is fetched has room before its bytes come.
//! * CP-3: if a copy cannot be had, the next one is tried.

use super::far::FETCHED;
use super::object::{Object, Place};
use super::room::{What, Wish};
use super::store::{Effect, LinkId, Store};
use crate::Tick;
use paceline_proto::objects::{FromStore, Full, Missing, Reference, Source, ToStore};
use paceline_proto::{ClientId, NodeId, ObjectId};

impl Store {
    /// An object was made on the node at this link.
    pub(super) fn on_made(
        &mut self,
        now: Tick,
        link: LinkId,
        id: ObjectId,
        size: u64,
        inside: Vec<Reference>,
        out: &mut Vec<Effect>,
    ) {
        let Some(from) = self.links.get(&link) else { return };
        let (owner, home) =
            (from.owner.map_or(ClientId(0), |(owner, _)| owner), from.node.unwrap_or(NodeId(0)));
        if self.objects.contains_key(&id) {
            return self.on_made_again(now, link, id, size, &inside, out);
        }
        let inside = self.keep_inside(&inside);
        self.uses += 1;
        let reference = Reference { object: id, owner, home };
        let mut object = Object::new(reference, size, Place::Away, self.uses);
        object.inside = inside;
        object.holders.insert(link);
        object.copies.insert(link);
        self.objects.insert(id, object);
    }

    /// The same of one that is known: its task has run again.
    fn on_made_again(
        &mut self,
        now: Tick,
        link: LinkId,
        id: ObjectId,
        size: u64,
        inside: &[Reference],
        out: &mut Vec<Effect>,
    ) {
        let inside = self.keep_inside(inside);
        let object = self.objects.get_mut(&id).expect("it is known");
        if object.place == Place::Away && object.copies.is_empty() {
            object.size = size;
        }
        object.copies.insert(link);
        object.holders.insert(link);
        object.tree.serving.remove(&link);
        // What this node has asked for it has by now.
        let (wanted, queue) = (&mut object.wanted, &mut object.tree.queue);
        for (_, number) in wanted
            .extract_if(.., |(asker, _)| *asker == link)
            .chain(queue.extract_if(.., |(asker, _)| *asker == link))
        {
            out.push(Effect::To(link, FromStore::Held { number }));
        }
        for inner in std::mem::replace(&mut object.inside, inside) {
            if let Some(found) = self.objects.get_mut(&inner.object) {
                found.pins -= 1;
            }
            self.see_to(inner.object, out);
        }
        self.assign(now, id, out);
        self.on_found(now, id, out);
    }

    /// The node at this link has the bytes.
    pub(super) fn on_has(&mut self, now: Tick, link: LinkId, id: ObjectId, out: &mut Vec<Effect>) {
        match self.objects.get_mut(&id) {
            Some(object) => {
                object.copies.insert(link);
                object.tree.serving.remove(&link);
                self.tell_copies(id, out);
                self.assign(now, id, out);
                self.see_to(id, out);
                self.on_found(now, id, out);
            }
            // It has ended while they were on their way (CP-1).
            None => out.push(Effect::To(link, FromStore::Gone { object: id, why: Missing::Lost })),
        }
    }

    /// Somebody wants the bytes, which are not here.
    pub(super) fn fetch(&mut self, now: Tick, id: ObjectId, out: &mut Vec<Effect>) {
        let Some(object) = self.objects.get_mut(&id).filter(|object| !object.asked) else { return };
        if self.far {
            return self.fetch_from_owner(id, out);
        }
        let Some(&link) = object.copies.difference(&object.failed).next() else {
            object.failed.clear();
            return self.on_lost(id, out);
        };
        let size = object.size;
        if size > self.room.limit {
            let why = self.room.full(size);
            return self.no_room_for(id, &why, out);
        }
        object.asked = true;
        let what = What::Fetched(Source::Here);
        self.room.waiting.push_back(Wish { link, number: 0, object: id, size, until: now + FETCHED, what });
    }

    /// There is room for what is to be fetched (CP-2), or for what came.
    pub(super) fn bring(
        &mut self,
        link: LinkId,
        id: ObjectId,
        size: u64,
        from: Result<Source, Vec<u8>>,
        out: &mut Vec<Effect>,
    ) {
        let Some(object) = self.objects.get_mut(&id).filter(|object| object.place == Place::Away) else {
            // Nobody wants it any more.
            return self.let_go_at(link, id, out);
        };
        object.size = size;
        // It may be another entry than the one that it was asked for.
        object.asked = true;
        self.room.used += size;
        match from {
            Ok(from) => {
                object.elsewhere = matches!(from, Source::Node { .. });
                object.place = Place::Coming(link);
                out.push(Effect::Fetch { object: id, size, link, from });
            }
            Err(bytes) => {
                object.place = Place::Small;
                out.push(Effect::KeepSmall(id, bytes));
                self.have(id, out);
            }
        }
    }

    /// The bytes are here.
    fn have(&mut self, id: ObjectId, out: &mut Vec<Effect>) {
        let object = self.objects.get_mut(&id).expect("it is here");
        object.asked = false;
        object.failed.clear();
        let owner = object.reference.owner;
        if self.far {
            self.tell_owner(owner, ToStore::Has { object: id }, out);
            self.tell_owner(owner, ToStore::LetGo { object: id }, out);
        }
        self.serve_wanted(id, out);
        self.see_to(id, out);
    }

    pub(super) fn on_fetched(&mut self, now: Tick, id: ObjectId, here: bool, out: &mut Vec<Effect>) {
        let Some(object) = self.objects.get_mut(&id).filter(|object| object.asked) else { return };
        let Place::Coming(link) = object.place else { return };
        if here {
            object.place = Place::Memory;
            out.push(Effect::Keep(id));
            return self.have(id, out);
        }
        self.room.used -= object.size;
        object.place = Place::Away;
        object.asked = false;
        if !self.far && self.links.contains_key(&link) {
            object.failed.insert(link);
        }
        let owner = object.reference.owner;
        let wanted = !object.wanted.is_empty();
        if self.far && object.elsewhere && wanted {
            // The owner knows of another source, or sends it itself.
            self.fetch(now, id, out);
        } else if self.far {
            self.tell_owner(owner, ToStore::LetGo { object: id }, out);
            self.none_to_be_had(id, &Missing::Lost, out);
        } else if wanted {
            // CP-3
            self.fetch(now, id, out);
        }
        self.see_to(id, out);
    }

    /// Whoever wanted it hears that there is no room.
    pub(super) fn no_room_for(&mut self, id: ObjectId, why: &Full, out: &mut Vec<Effect>) {
        let Some(object) = self.objects.get_mut(&id) else { return };
        object.asked = false;
        for (link, number) in std::mem::take(&mut object.wanted) {
            out.push(Effect::To(link, FromStore::Full { number, why: why.clone() }));
        }
        self.see_to(id, out);
    }
}
