//! How much memory objects have, who waits for more, and what goes to disk for it.

use super::object::{Object, Place};
use super::store::{Effect, LinkId, Store};
use crate::Tick;
use paceline_proto::objects::{FromStore, Full, Reference, Source};
use paceline_proto::{ClientId, ObjectId};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// After a failure nothing is written to disk for so long: it is mostly full, and stays so for a while.
const AFTER_FAILURE: Duration = Duration::from_secs(2);

pub(super) struct Room {
    pub limit: u64,
    /// Bytes that are in memory, or promised.
    pub used: u64,
    /// Bytes on their way to disk.
    pub spilling: u64,
    /// Removed objects whose memory somebody still has.
    pub leaving: BTreeMap<ObjectId, (u64, BTreeSet<LinkId>)>,
    pub waiting: VecDeque<Wish>,
    /// Why nothing goes to disk, and until when it is not tried.
    failed: Option<(String, Tick)>,
    woken_for: Option<Tick>,
    /// Those who have memory of these were asked to let go of it.
    asked: BTreeSet<ObjectId>,
}

/// A process that wants room.
pub(super) struct Wish {
    pub link: LinkId,
    pub number: u64,
    pub object: ObjectId,
    pub size: u64,
    pub until: Tick,
    pub what: What,
}

/// What there is to be room for.
pub(super) enum What {
    /// An object that is being made; small ones came along.
    Made(Option<(Vec<u8>, Vec<Reference>)>),
    /// The bytes of one from elsewhere.
    Fetched(Source),
    /// The same of few bytes, which came along.
    Came(Vec<u8>),
}

impl Room {
    pub fn new(limit: u64) -> Room {
        Room {
            limit,
            used: 0,
            spilling: 0,
            leaving: BTreeMap::new(),
            waiting: VecDeque::new(),
            failed: None,
            woken_for: None,
            asked: BTreeSet::new(),
        }
    }

    /// An object is gone; its memory is when nobody has it any more (OB-3).
    pub fn on_removed(&mut self, id: ObjectId, object: Object) {
        self.asked.remove(&id);
        match object.place {
            Place::Disk | Place::Away => {}
            Place::Spilling => {
                self.used -= object.size;
                self.spilling -= object.size;
            }
            Place::Coming(_) | Place::Small | Place::Memory if object.having.is_empty() => {
                self.used -= object.size;
            }
            Place::Coming(_) | Place::Small | Place::Memory => {
                self.leaving.insert(id, (object.size, object.having));
            }
        }
    }

    pub fn on_let_go(&mut self, link: LinkId, id: ObjectId) {
        self.asked.remove(&id);
        let Some((size, having)) = self.leaving.get_mut(&id) else { return };
        having.remove(&link);
        if having.is_empty() {
            self.used -= *size;
            self.leaving.remove(&id);
        }
    }

    pub fn on_link_down(&mut self, link: LinkId) {
        self.waiting.retain(|wish| wish.link != link);
        let ids: Vec<ObjectId> = self.leaving.keys().copied().collect();
        for id in ids {
            self.on_let_go(link, id);
        }
    }

    pub fn full(&self, size: u64) -> Full {
        let disk = self.failed.as_ref().map(|(why, _)| why.clone());
        Full { size, used: self.used, limit: self.limit, disk }
    }
}

impl Store {
    #[allow(clippy::too_many_arguments, reason = "they are the parts of one message")]
    pub(super) fn ask_for_room(
        &mut self,
        until: Tick,
        link: LinkId,
        number: u64,
        object: ObjectId,
        size: u64,
        small: Option<(Vec<u8>, Vec<Reference>)>,
        out: &mut Vec<Effect>,
    ) {
        let known = self.objects.get(&object).map(|object| object.place);
        if known.is_some_and(|place| self.far && place != Place::Away) {
            // It was to be made again, and is here.
            return out.push(Effect::To(link, FromStore::Held { number }));
        }
        if size > self.room.limit || (known.is_some() && !self.far) {
            let why = self.room.full(size);
            return out.push(Effect::To(link, FromStore::Full { number, why }));
        }
        self.room.waiting.push_back(Wish { link, number, object, size, until, what: What::Made(small) });
    }

    /// Serve those who wait, as far as there is room, and make some for the first of the others (OB-4).
    pub(super) fn give_room(&mut self, now: Tick, out: &mut Vec<Effect>) {
        while let Some(wish) = self.room.waiting.front() {
            if self.room.used + wish.size > self.room.limit {
                break;
            }
            let wish = self.room.waiting.pop_front().expect("there is one");
            self.grant(wish, out);
        }
        let room = &mut self.room;
        let late = room.waiting.iter().any(|wish| wish.until <= now);
        if late {
            let waiting = std::mem::take(&mut room.waiting);
            let (over, still) = waiting.into_iter().partition(|wish| wish.until <= now);
            room.waiting = still;
            for Wish { link, number, size, object, what, .. } in
                <VecDeque<Wish> as IntoIterator>::into_iter(over)
            {
                let why = self.room.full(size);
                match what {
                    What::Made(_) => out.push(Effect::To(link, FromStore::Full { number, why })),
                    What::Fetched(_) | What::Came(_) => {
                        self.let_go_at(link, object, out);
                        self.no_room_for(object, &why, out);
                    }
                }
            }
            return self.give_room(now, out);
        }
        self.make_room(now, out);
    }

    fn grant(&mut self, wish: Wish, out: &mut Vec<Effect>) {
        let Wish { link, number, object: id, size, what, .. } = wish;
        let small = match what {
            What::Made(small) => small,
            What::Fetched(from) => return self.bring(link, id, size, Ok(from), out),
            What::Came(bytes) => return self.bring(link, id, size, Err(bytes), out),
        };
        if self.is_unlinked(link) {
            // The owner has gone while this waited, and would never say that it may go.
            return self.say_unlinked(link, number, id, out);
        }
        let owner = self.links.get(&link).and_then(|link| link.owner).map_or(ClientId(0), |(owner, _)| owner);
        if self.objects.get(&id).is_some_and(|object| object.place != Place::Away) {
            return out.push(Effect::To(link, FromStore::Held { number }));
        }
        self.room.used += size;
        self.uses += 1;
        let reference = Reference { object: id, owner, home: self.node };
        match self.objects.get_mut(&id) {
            // It is made again, and somebody here has asked for it.
            Some(object) => {
                (object.size, object.place, object.asked) = (size, Place::Coming(link), false);
            }
            None => {
                self.objects.insert(id, Object::new(reference, size, Place::Coming(link), self.uses));
            }
        }
        if let Some((bytes, inside)) = small {
            self.objects.get_mut(&id).expect("just made").place = Place::Small;
            out.push(Effect::KeepSmall(id, bytes));
            self.on_kept(link, id, inside, out);
        }
        out.push(Effect::To(link, FromStore::Room { number }));
    }

    /// Whether the bytes of an object that comes from elsewhere wait for room.
    pub(super) fn waits_for_room(&self, id: ObjectId) -> bool {
        self.room.waiting.iter().any(|wish| wish.object == id)
    }

    /// Somebody waits: what was not used for the longest time goes to disk, unless a process has it.
    fn make_room(&mut self, now: Tick, out: &mut Vec<Effect>) {
        let Some(first) = self.room.waiting.front() else { return };
        if self.room.failed.as_ref().is_some_and(|(_, until)| *until > now) {
            return;
        }
        let mut short = (self.room.used - self.room.spilling + first.size).saturating_sub(self.room.limit);
        let mut oldest: Vec<&mut Object> =
            self.objects.values_mut().filter(|object| object.place == Place::Memory).collect();
        oldest.sort_by_key(|object| (object.used, object.reference.object));
        for object in oldest {
            if short == 0 {
                break;
            }
            let id = object.reference.object;
            if object.having.is_empty() {
                object.place = Place::Spilling;
                self.room.spilling += object.size;
                short = short.saturating_sub(object.size);
                out.push(Effect::Spill(id));
            } else if self.room.asked.insert(id) {
                for &link in &object.having {
                    out.push(Effect::To(link, FromStore::Unneeded { object: id }));
                }
            }
        }
    }

    pub(super) fn on_spilled(
        &mut self,
        now: Tick,
        id: ObjectId,
        result: Result<(), String>,
        out: &mut Vec<Effect>,
    ) {
        let Some(object) = self.objects.get_mut(&id).filter(|object| object.place == Place::Spilling) else {
            return;
        };
        self.room.spilling -= object.size;
        match result {
            Ok(()) => {
                object.place = Place::Disk;
                self.room.used -= object.size;
                self.room.failed = None;
            }
            Err(why) => {
                object.place = Place::Memory;
                self.room.failed = Some((why, now + AFTER_FAILURE));
            }
        }
        for (link, number) in std::mem::take(&mut object.wanted) {
            self.hand(link, number, id, out);
        }
        self.see_to(id, out);
    }

    pub(super) fn wake(&mut self, out: &mut Vec<Effect>) {
        let waits = self.room.waiting.iter().map(|wish| wish.until);
        let again = self.room.failed.as_ref().map(|(_, until)| *until);
        let again = again.filter(|_| !self.room.waiting.is_empty());
        let next = waits.chain(again).min();
        if next != self.room.woken_for {
            self.room.woken_for = next;
            out.extend(next.map(Effect::WakeAt));
        }
    }
}
