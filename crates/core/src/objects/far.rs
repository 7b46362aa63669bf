//! The store of a node whose clients have stores of their own: what it asks them, and what they say.
//!
//! * FR-1: a process that is told that it holds an object does so by way of this store, which holds it at the owner's.
//! * FR-2: the owner is asked once for the bytes of an object, however many processes want them.
//! * FR-3: bytes stay until the owner says that they are of no use any more, or is gone.

use super::object::{Object, Place};
use super::room::{What, Wish};
use super::store::{Effect, Link, LinkId, Store};
use crate::Tick;
use paceline_proto::objects::{FromStore, Missing, Reference, Source, ToStore};
use paceline_proto::{ClientId, ObjectId};
use std::time::Duration;

/// How long what is fetched may wait for room.
pub(super) const FETCHED: Duration = Duration::from_secs(30);

/// What an owner was asked for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Pending {
    /// This process wants to hold an object.
    Hold { link: LinkId, number: u64, object: ObjectId },
    /// This process wants one to be pinned.
    Pin { link: LinkId, number: u64 },
    /// The bytes of one.
    Get(ObjectId),
    /// Whether it still knows that we hold one.
    Still(ObjectId),
}

impl Store {
    fn link_to(&self, owner: ClientId) -> Option<LinkId> {
        let ups = self.links.iter().filter(|(_, link)| link.up && link.owner == Some((owner, true)));
        ups.map(|(link, _)| *link).next_back()
    }

    pub(super) fn tell_owner(&self, owner: ClientId, message: ToStore, out: &mut Vec<Effect>) {
        out.extend(self.link_to(owner).map(|link| Effect::ToOwner(link, message)));
    }

    /// Whether what this process makes would be nobody's.
    pub(super) fn is_unlinked(&self, link: LinkId) -> bool {
        self.far && self.link_to(self.account(link)).is_none()
    }

    pub(super) fn say_unlinked(&self, link: LinkId, number: u64, object: ObjectId, out: &mut Vec<Effect>) {
        let reference = Reference { object, owner: self.account(link), home: self.node };
        self.say_missing(link, number, reference, out);
    }

    fn account(&self, link: LinkId) -> ClientId {
        self.links.get(&link).and_then(|link| link.owner).map_or(ClientId(0), |(owner, _)| owner)
    }

    fn ask_owner(
        &mut self,
        owner: ClientId,
        pending: Pending,
        message: impl FnOnce(u64) -> ToStore,
        out: &mut Vec<Effect>,
    ) {
        let Some(link) = self.link_to(owner) else { return };
        self.numbers += 1;
        self.pending.insert(self.numbers, (link, pending));
        out.push(Effect::ToOwner(link, message(self.numbers)));
    }

    /// What a process says that is the owner's to answer. Gives back what is not.
    pub(super) fn ask_owner_first(
        &mut self,
        link: LinkId,
        message: ToStore,
        out: &mut Vec<Effect>,
    ) -> Option<ToStore> {
        if !self.far {
            return Some(message);
        }
        match message {
            ToStore::Reserve { number, object, .. } | ToStore::PutSmall { number, object, .. }
                if self.is_unlinked(link) =>
            {
                self.say_unlinked(link, number, object, out);
            }
            ToStore::Hold { number, reference } | ToStore::Claim { number, reference, .. }
                if self.link_to(reference.owner).is_none() =>
            {
                self.say_missing(link, number, reference, out);
            }
            ToStore::Hold { number, reference } => {
                let object = self.known(reference);
                object.holders.insert(link);
                if object.up {
                    out.push(Effect::To(link, FromStore::Held { number }));
                } else {
                    let pending = Pending::Hold { link, number, object: reference.object };
                    self.ask_owner(
                        reference.owner,
                        pending,
                        |number| ToStore::Hold { number, reference },
                        out,
                    );
                }
            }
            ToStore::Claim { number, pin, reference } => {
                self.known(reference).holders.insert(link);
                let pending = Pending::Hold { link, number, object: reference.object };
                let message = |number| ToStore::Claim { number, pin, reference };
                self.ask_owner(reference.owner, pending, message, out);
            }
            ToStore::Pin { number, reference, .. } if self.link_to(reference.owner).is_none() => {
                self.say_missing(link, number, reference, out);
            }
            ToStore::Pin { number, pin, reference } => {
                let message = |number| ToStore::Pin { number, pin, reference };
                self.ask_owner(reference.owner, Pending::Pin { link, number }, message, out);
            }
            ToStore::Unpin { pin } => self.tell_owner(self.account(link), ToStore::Unpin { pin }, out),
            ToStore::Get { number, reference } if !self.objects.contains_key(&reference.object) => {
                if self.link_to(reference.owner).is_none() {
                    self.say_missing(link, number, reference, out);
                    return None;
                }
                self.known(reference);
                return Some(ToStore::Get { number, reference });
            }
            // What only nodes say to owners is nothing to us, nor what only owners know.
            ToStore::Node { .. }
            | ToStore::Made { .. }
            | ToStore::Has { .. }
            | ToStore::Send { .. }
            | ToStore::Remember { .. }
            | ToStore::Ran { .. } => {}
            message => return Some(message),
        }
        None
    }

    fn known(&mut self, reference: Reference) -> &mut Object {
        let new = || Object::new(reference, 0, Place::Away, self.uses);
        self.objects.entry(reference.object).or_insert_with(new)
    }

    /// Ask the owner for the bytes (FR-2).
    pub(super) fn fetch_from_owner(&mut self, id: ObjectId, out: &mut Vec<Effect>) {
        let Some(object) = self.objects.get_mut(&id) else { return };
        object.asked = true;
        let reference = object.reference;
        if self.link_to(reference.owner).is_none() {
            return self.none_to_be_had(id, &Missing::Unlinked, out);
        }
        let message = |number| ToStore::Get { number, reference };
        self.ask_owner(reference.owner, Pending::Get(id), message, out);
    }

    /// There is another link to an owner: it hears what of its own is here.
    pub(super) fn on_owner_up(&mut self, link: LinkId, owner: ClientId, out: &mut Vec<Effect>) {
        self.back(owner);
        let old = self.link_to(owner);
        self.links.insert(link, Link { up: true, ..Link::of(Some((owner, true))) });
        if let Some(old) = old {
            self.links.remove(&old);
            self.room.on_link_down(old);
            self.forget_questions(old, out);
        }
        let theirs: Vec<ObjectId> = self
            .objects
            .iter()
            .filter(|(_, object)| object.reference.owner == owner)
            .map(|(id, _)| *id)
            .collect();
        for id in theirs {
            let Some(object) = self.objects.get_mut(&id) else { continue };
            let reference = object.reference;
            (object.up, object.since) = (false, self.numbers);
            let (held, wanted) = (!object.holders.is_empty(), !object.wanted.is_empty());
            let mut place = object.place;
            if matches!(place, Place::Coming(_)) && object.asked {
                self.room.used -= object.size;
                (object.place, place) = (Place::Away, Place::Away);
            }
            if held {
                let message = |number| ToStore::Hold { number, reference };
                self.ask_owner(owner, Pending::Still(id), message, out);
            }
            match place {
                // It is being made.
                Place::Coming(_) => {}
                Place::Away if wanted => self.fetch_from_owner(id, out),
                Place::Away => self.see_to(id, out),
                _ => self.tell_owner(owner, ToStore::Has { object: id }, out),
            }
        }
    }

    /// Nobody answers what was asked over this link.
    pub(super) fn forget_questions(&mut self, link: LinkId, out: &mut Vec<Effect>) {
        let asked: Vec<u64> =
            self.pending.iter().filter(|(_, (over, _))| *over == link).map(|(number, _)| *number).collect();
        for number in asked {
            self.on_missing(number, &Missing::Unlinked, out);
        }
    }

    pub(super) fn on_owner_says(
        &mut self,
        now: Tick,
        link: LinkId,
        message: FromStore,
        out: &mut Vec<Effect>,
    ) {
        match message {
            FromStore::Held { number } => match self.pending.remove(&number) {
                Some((_, Pending::Hold { link, number: of, object })) => {
                    self.is_up(object, number);
                    out.push(Effect::To(link, FromStore::Held { number: of }));
                }
                Some((_, Pending::Pin { link, number })) => {
                    out.push(Effect::To(link, FromStore::Held { number }));
                }
                Some((_, Pending::Still(object))) => self.is_up(object, number),
                // It was made again on this very node.
                Some((_, Pending::Get(id))) => {
                    let waits = self.waits_for_room(id);
                    let object = self.objects.get_mut(&id).filter(|_| !waits);
                    if let Some(object) = object.filter(|object| object.place == Place::Away && object.asked)
                    {
                        object.asked = false;
                        if !object.wanted.is_empty() {
                            self.fetch_from_owner(id, out);
                        }
                        self.see_to(id, out);
                    }
                }
                None => {}
            },
            FromStore::Missing { number, why } => self.on_missing(number, &why, out),
            FromStore::Small { number, bytes } => {
                let size = bytes.len() as u64;
                self.on_offer(now, link, number, size, What::Came(bytes), out);
            }
            FromStore::Memory { number, size, .. } => {
                self.on_offer(now, link, number, size, What::Fetched(Source::Here), out);
            }
            FromStore::Offered { number, size, from, .. } => {
                self.on_offer(now, link, number, size, What::Fetched(from), out);
            }
            // The owner would have had to fetch it, and has no room.
            FromStore::Full { number, why } => {
                if let Some((_, Pending::Get(object))) = self.pending.remove(&number) {
                    self.no_room_for(object, &why, out);
                }
            }
            FromStore::Unsent { object } => self.on_fetched(now, object, false, out),
            FromStore::Gone { object, why } => match self.objects.get_mut(&object) {
                Some(found) if found.place == Place::Spilling && !found.wanted.is_empty() => {
                    found.ended = true
                }
                _ => self.remove(object, &why, out),
            },
            FromStore::Welcome { .. }
            | FromStore::Room { .. }
            | FromStore::Unneeded { .. }
            | FromStore::Make { .. }
            | FromStore::Forget { .. }
            | FromStore::Refused { .. } => {}
        }
    }

    /// The owner has counted us, unless we have told it the contrary since it was asked.
    fn is_up(&mut self, object: ObjectId, number: u64) {
        if let Some(object) = self.objects.get_mut(&object) {
            object.up |= !object.holders.is_empty() && number > object.since;
        }
    }

    fn on_missing(&mut self, number: u64, why: &Missing, out: &mut Vec<Effect>) {
        match self.pending.remove(&number) {
            Some((_, Pending::Hold { link, number, object })) => {
                if let Some(object) = self.objects.get_mut(&object) {
                    object.holders.remove(&link);
                }
                out.push(Effect::To(link, FromStore::Missing { number, why: why.clone() }));
                self.see_to(object, out);
            }
            Some((_, Pending::Pin { link, number })) => {
                out.push(Effect::To(link, FromStore::Missing { number, why: why.clone() }));
            }
            Some((_, Pending::Get(object))) => self.none_to_be_had(object, why, out),
            Some((_, Pending::Still(_))) | None => {}
        }
    }

    /// Whoever wanted the bytes hears that there are none.
    pub(super) fn none_to_be_had(&mut self, id: ObjectId, why: &Missing, out: &mut Vec<Effect>) {
        let Some(object) = self.objects.get_mut(&id) else { return };
        (object.asked, object.making) = (false, false);
        for (link, number) in std::mem::take(&mut object.wanted) {
            out.push(Effect::To(link, FromStore::Missing { number, why: why.clone() }));
        }
        self.see_to(id, out);
    }

    fn on_offer(
        &mut self,
        now: Tick,
        link: LinkId,
        number: u64,
        size: u64,
        what: What,
        out: &mut Vec<Effect>,
    ) {
        let Some((_, Pending::Get(object))) = self.pending.remove(&number) else { return };
        if !self.objects.contains_key(&object) {
            return self.let_go_at(link, object, out);
        }
        if size > self.room.limit {
            self.let_go_at(link, object, out);
            let why = self.room.full(size);
            return self.no_room_for(object, &why, out);
        }
        self.room.waiting.push_back(Wish { link, number, object, size, until: now + FETCHED, what });
    }

    /// The owner need not keep the bytes for us, if it is who is at this link.
    pub(super) fn let_go_at(&self, link: LinkId, object: ObjectId, out: &mut Vec<Effect>) {
        if self.links.get(&link).is_some_and(|link| link.up) {
            out.push(Effect::ToOwner(link, ToStore::LetGo { object }));
        }
    }
}
