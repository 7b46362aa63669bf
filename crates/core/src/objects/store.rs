//! The store of one node.

use paceline_proto::objects::{FromStore, Missing, Reference, ToStore};
use paceline_proto::{ClientId, NodeId, ObjectId, PinId};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::room::Room;
use crate::Tick;

/// So many owners that have ended are remembered, to say so to those who ask for what was theirs.
const MOST_GONE: usize = 10_000;

/// The link to a process, never used again.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct LinkId(pub u64);

#[derive(Debug)]
pub enum Event {
    LinkUp(LinkId),
    From(LinkId, ToStore),
    /// The process is gone, or as good as gone.
    LinkDown(LinkId),
    /// The client has ended, as the cluster says.
    OwnerGone(ClientId),
    /// The bytes of an object are in a file now, and only there; or they could not be written, for this reason.
    Spilled(ObjectId, Result<(), String>),
    Tick,
}

#[derive(PartialEq, Eq, Debug)]
pub enum Effect {
    /// With `Memory` goes what the shell keeps for the object.
    To(LinkId, FromStore),
    /// The memory that came with `Put` is this object's.
    Keep(ObjectId),
    /// The same of bytes in the message.
    KeepSmall(ObjectId, Vec<u8>),
    /// Answer the question of this number with the bytes that are kept, of this size.
    Hand(LinkId, u64, ObjectId, u64),
    /// Write the bytes to a file, and let go of the memory.
    Spill(ObjectId),
    /// Let go of the object.
    Discard(ObjectId),
    WakeAt(Tick),
}

/// Where the bytes are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Place {
    /// They are being made by this process.
    Coming(LinkId),
    Small,
    Memory,
    /// On their way to disk. Whoever wants them waits for that.
    Spilling,
    Disk,
}

#[derive(Debug)]
pub(super) struct Object {
    pub reference: Reference,
    pub size: u64,
    pub place: Place,
    /// Processes that have a reference.
    pub holders: BTreeSet<LinkId>,
    /// Processes that have the memory.
    pub having: BTreeSet<LinkId>,
    /// References on their way, and objects that refer to it.
    pub pins: u32,
    pub inside: Vec<Reference>,
    /// When it was put or wanted last, by the store's own count.
    pub used: u64,
    /// Questions that wait for the bytes.
    pub wanted: Vec<(LinkId, u64)>,
}

impl Object {
    fn is_kept(&self) -> bool {
        // Who has asked for the bytes gets them, even if it has let go of its reference meanwhile.
        let wanted = !self.wanted.is_empty() || matches!(self.place, Place::Coming(_));
        wanted || self.pins > 0 || !self.holders.is_empty()
    }
}

/// What a store holds, for people.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Status {
    pub objects: usize,
    /// Bytes in memory,
    pub used: u64,
    /// of so many,
    pub limit: u64,
    /// and bytes on disk.
    pub on_disk: u64,
    /// Processes that wait for room.
    pub waiting: usize,
}

pub(super) struct Link {
    /// On whose account, and whether it is the owner itself.
    pub owner: Option<(ClientId, bool)>,
}

pub struct Store {
    pub(super) node: NodeId,
    pub(super) objects: BTreeMap<ObjectId, Object>,
    pub(super) links: BTreeMap<LinkId, Link>,
    pub(super) pins: BTreeMap<PinId, (ObjectId, ClientId)>,
    pub(super) room: Room,
    gone: VecDeque<ClientId>,
    pub(super) uses: u64,
}

impl Store {
    /// The store of this node, which may have so many bytes in memory.
    pub fn new(node: NodeId, limit: u64) -> Store {
        Store {
            node,
            objects: BTreeMap::new(),
            links: BTreeMap::new(),
            pins: BTreeMap::new(),
            room: Room::new(limit),
            gone: VecDeque::new(),
            uses: 0,
        }
    }

    /// How many bytes an object is to have.
    pub fn size_of(&self, object: ObjectId) -> Option<u64> {
        self.objects.get(&object).map(|object| object.size)
    }

    pub fn status(&self) -> Status {
        let on_disk = self.objects.values().filter(|object| object.place == Place::Disk);
        Status {
            objects: self.objects.len(),
            used: self.room.used,
            limit: self.room.limit,
            on_disk: on_disk.map(|object| object.size).sum(),
            waiting: self.room.waiting.len(),
        }
    }

    pub fn handle(&mut self, now: Tick, event: Event, out: &mut Vec<Effect>) {
        match event {
            Event::LinkUp(link) => {
                self.links.insert(link, Link { owner: None });
                out.push(Effect::To(link, FromStore::Welcome { node: self.node }));
            }
            Event::From(link, message) if self.links.contains_key(&link) => {
                self.on_message(now, link, message, out)
            }
            Event::From(..) => {}
            Event::LinkDown(link) => self.on_link_down(link, out),
            Event::OwnerGone(owner) => self.on_owner_gone(owner, out),
            Event::Spilled(object, result) => self.on_spilled(now, object, result, out),
            Event::Tick => {}
        }
        self.give_room(now, out);
        self.wake(out);
        debug_assert_eq!(self.check(), Ok(()));
    }

    fn on_message(&mut self, now: Tick, link: LinkId, message: ToStore, out: &mut Vec<Effect>) {
        match message {
            ToStore::Hello { owner, root } => {
                self.gone.retain(|gone| *gone != owner || !root);
                self.links.insert(link, Link { owner: Some((owner, root)) });
            }
            ToStore::Reserve { number, object, size, wait } => {
                self.ask_for_room(now + wait, link, number, object, size, None, out);
            }
            ToStore::PutSmall { number, object, bytes, inside, wait } => {
                let size = bytes.len() as u64;
                self.ask_for_room(now + wait, link, number, object, size, Some((bytes, inside)), out);
            }
            ToStore::Put { object, inside } => self.on_put(link, object, inside, out),
            ToStore::Abandon { object } => {
                if self.objects.get(&object).is_some_and(|found| found.place == Place::Coming(link)) {
                    self.remove(object, Missing::Lost, out);
                }
            }
            ToStore::Hold { number, reference } => match self.objects.get_mut(&reference.object) {
                Some(object) => {
                    object.holders.insert(link);
                    out.push(Effect::To(link, FromStore::Held { number }));
                }
                None => self.say_missing(link, number, reference, out),
            },
            ToStore::Release { object } => {
                if let Some(found) = self.objects.get_mut(&object) {
                    found.holders.remove(&link);
                }
                self.see_to(object, out);
            }
            ToStore::Get { number, reference } => self.on_get(link, number, reference, out),
            ToStore::LetGo { object } => self.on_let_go(link, object),
            ToStore::Pin { number, pin, reference } => match self.objects.get_mut(&reference.object) {
                Some(object) => {
                    object.pins += 1;
                    self.pins.insert(pin, (reference.object, reference.owner));
                    out.push(Effect::To(link, FromStore::Held { number }));
                }
                None => self.say_missing(link, number, reference, out),
            },
            ToStore::Claim { number, pin, reference } => {
                match self.objects.get_mut(&reference.object) {
                    Some(object) => {
                        object.holders.insert(link);
                        out.push(Effect::To(link, FromStore::Held { number }));
                    }
                    None => self.say_missing(link, number, reference, out),
                }
                self.unpin(pin, out);
            }
            ToStore::Unpin { pin } => self.unpin(pin, out),
        }
    }

    /// The bytes of an object are here.
    fn on_put(&mut self, link: LinkId, id: ObjectId, inside: Vec<Reference>, out: &mut Vec<Effect>) {
        let Some(object) = self.objects.get_mut(&id) else { return };
        if object.place != Place::Coming(link) {
            return;
        }
        object.place = Place::Memory;
        out.push(Effect::Keep(id));
        self.on_kept(link, id, inside, out);
    }

    pub(super) fn on_kept(
        &mut self,
        link: LinkId,
        id: ObjectId,
        inside: Vec<Reference>,
        out: &mut Vec<Effect>,
    ) {
        let known: Vec<Reference> =
            inside.into_iter().filter(|inner| self.objects.contains_key(&inner.object)).collect();
        for inner in &known {
            self.objects.get_mut(&inner.object).expect("only known ones").pins += 1;
        }
        let object = self.objects.get_mut(&id).expect("it was made by the caller");
        object.inside = known;
        object.holders.insert(link);
        let wanted = std::mem::take(&mut object.wanted);
        for (link, number) in wanted {
            self.hand(link, number, id, out);
        }
    }

    fn on_get(&mut self, link: LinkId, number: u64, reference: Reference, out: &mut Vec<Effect>) {
        self.uses += 1;
        let Some(object) = self.objects.get_mut(&reference.object) else {
            return self.say_missing(link, number, reference, out);
        };
        object.used = self.uses;
        match object.place {
            Place::Coming(_) | Place::Spilling => object.wanted.push((link, number)),
            Place::Small | Place::Memory | Place::Disk => self.hand(link, number, reference.object, out),
        }
    }

    pub(super) fn hand(&mut self, link: LinkId, number: u64, id: ObjectId, out: &mut Vec<Effect>) {
        let object = self.objects.get_mut(&id).expect("only what is here is handed on");
        if object.place == Place::Memory {
            object.having.insert(link);
        }
        out.push(Effect::Hand(link, number, id, object.size));
    }

    fn say_missing(&self, link: LinkId, number: u64, reference: Reference, out: &mut Vec<Effect>) {
        let gone = self.gone.contains(&reference.owner);
        let why = if gone { Missing::OwnerLost } else { Missing::Lost };
        out.push(Effect::To(link, FromStore::Missing { number, why }));
    }

    fn unpin(&mut self, pin: PinId, out: &mut Vec<Effect>) {
        let Some((object, _)) = self.pins.remove(&pin) else { return };
        self.objects.get_mut(&object).expect("a pin keeps its object").pins -= 1;
        self.see_to(object, out);
    }

    /// Something that kept an object may be gone (OB-2).
    pub(super) fn see_to(&mut self, id: ObjectId, out: &mut Vec<Effect>) {
        if self.objects.get(&id).is_some_and(|object| !object.is_kept()) {
            self.remove(id, Missing::Lost, out);
        }
    }

    pub(super) fn remove(&mut self, id: ObjectId, why: Missing, out: &mut Vec<Effect>) {
        let mut next = vec![id];
        while let Some(id) = next.pop() {
            let Some(object) = self.objects.remove(&id) else { continue };
            for &(link, number) in &object.wanted {
                out.push(Effect::To(link, FromStore::Missing { number, why }));
            }
            for &link in &object.having {
                out.push(Effect::To(link, FromStore::Unneeded { object: id }));
            }
            if !matches!(object.place, Place::Coming(_)) {
                out.push(Effect::Discard(id));
            }
            for inner in &object.inside {
                let Some(found) = self.objects.get_mut(&inner.object) else { continue };
                found.pins -= 1;
                if !found.is_kept() {
                    next.push(inner.object);
                }
            }
            if object.pins > 0 {
                // Its owner has ended: what keeps it keeps nothing any more.
                self.pins.retain(|_, (pinned, _)| *pinned != id);
                let others = self.objects.values_mut();
                others.for_each(|other| other.inside.retain(|inner| inner.object != id));
            }
            self.room.on_removed(id, object);
        }
    }

    fn on_let_go(&mut self, link: LinkId, id: ObjectId) {
        if let Some(object) = self.objects.get_mut(&id) {
            object.having.remove(&link);
        }
        self.room.on_let_go(link, id);
    }

    fn on_link_down(&mut self, link: LinkId, out: &mut Vec<Effect>) {
        let Some(Link { owner }) = self.links.remove(&link) else { return };
        self.room.on_link_down(link);
        let ids: Vec<ObjectId> = self.objects.keys().copied().collect();
        for id in ids {
            let Some(object) = self.objects.get_mut(&id) else { continue };
            object.holders.remove(&link);
            object.having.remove(&link);
            object.wanted.retain(|(asker, _)| *asker != link);
            if object.place == Place::Coming(link) {
                self.remove(id, Missing::Lost, out);
            } else {
                self.see_to(id, out);
            }
        }
        if let Some((owner, true)) = owner {
            self.on_owner_gone(owner, out);
        }
    }

    fn on_owner_gone(&mut self, owner: ClientId, out: &mut Vec<Effect>) {
        let roots = self.links.values().any(|link| link.owner == Some((owner, true)));
        if roots {
            // It has opened another link, which is what counts.
            return;
        }
        if !self.gone.contains(&owner) {
            self.gone.push_back(owner);
            if self.gone.len() > MOST_GONE {
                self.gone.pop_front();
            }
        }
        let theirs = |object: &&Object| object.reference.owner == owner;
        let ids: Vec<ObjectId> =
            self.objects.values().filter(theirs).map(|object| object.reference.object).collect();
        for id in ids {
            self.remove(id, Missing::OwnerLost, out);
        }
    }
}
