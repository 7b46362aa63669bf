//! The store of one node.

use paceline_proto::objects::{FromStore, Missing, Reference, Source, ToStore};
use paceline_proto::{ClientId, NodeId, ObjectId, PinId};
use std::collections::{BTreeMap, VecDeque};

use super::far::Pending;
use super::makers::Makers;
use super::object::{Object, Place};
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
    /// A link to the store of this client, which decides how long its objects live. In place of an earlier one.
    OwnerUp(LinkId, ClientId),
    FromOwner(LinkId, FromStore),
    /// Of the node at this link: whether it is on this machine, and whether others can fetch from it.
    Reached {
        link: LinkId,
        near: bool,
        serves: bool,
    },
    /// The client has ended, as the cluster says.
    OwnerGone(ClientId),
    /// The bytes of an object are in a file now, and only there; or they could not be written, for this reason.
    Spilled(ObjectId, Result<(), String>),
    /// The bytes that were to be fetched are here, or will not come.
    Fetched(ObjectId, bool),
    Tick,
}

#[derive(PartialEq, Eq, Debug)]
pub enum Effect {
    /// With `Memory` goes what the shell keeps for the object.
    To(LinkId, FromStore),
    ToOwner(LinkId, ToStore),
    /// The memory that came with `Put`, or was fetched, is this object's.
    Keep(ObjectId),
    /// The same of bytes in the message.
    KeepSmall(ObjectId, Vec<u8>),
    /// Answer the question of this number with the bytes that are kept, of this size.
    Hand(LinkId, u64, ObjectId, u64),
    /// Write the bytes to a file, and let go of the memory.
    Spill(ObjectId),
    /// Answer the question of this number by naming the node that has so many bytes.
    Offer {
        link: LinkId,
        number: u64,
        object: ObjectId,
        size: u64,
        source: LinkId,
    },
    /// Bring so many bytes of an object here, from whoever is at this link or where that says.
    Fetch {
        object: ObjectId,
        size: u64,
        link: LinkId,
        from: Source,
    },
    /// The node at this link has room for the bytes of an object.
    Send(LinkId, ObjectId),
    /// So many bytes of an object are on these nodes; none: it is nowhere else any more.
    Whereabouts {
        object: ObjectId,
        size: u64,
        nodes: Vec<NodeId>,
    },
    /// Let go of the object.
    Discard(ObjectId),
    WakeAt(Tick),
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
    /// The node whose store is at the other end, if it is one.
    pub node: Option<NodeId>,
    /// It is on this machine.
    pub near: bool,
    /// Others can fetch from it.
    pub serves: bool,
    /// The owner's store is at the other end: it answers, and we ask.
    pub up: bool,
}

impl Link {
    pub fn of(owner: Option<(ClientId, bool)>) -> Link {
        Link { owner, node: None, near: false, serves: false, up: false }
    }
}

pub struct Store {
    pub(super) node: NodeId,
    /// Owners have stores of their own, which decide how long their objects live.
    pub(super) far: bool,
    /// Questions to owners.
    pub(super) pending: BTreeMap<u64, (LinkId, Pending)>,
    pub(super) numbers: u64,
    pub(super) objects: BTreeMap<ObjectId, Object>,
    pub(super) links: BTreeMap<LinkId, Link>,
    pub(super) pins: BTreeMap<PinId, (ObjectId, ClientId)>,
    pub(super) room: Room,
    pub(super) makers: Makers,
    gone: VecDeque<ClientId>,
    pub(super) uses: u64,
}

impl Store {
    /// The store of this node, which may have so many bytes in memory.
    pub fn new(node: NodeId, limit: u64) -> Store {
        Store {
            node,
            far: false,
            pending: BTreeMap::new(),
            numbers: 0,
            objects: BTreeMap::new(),
            links: BTreeMap::new(),
            pins: BTreeMap::new(),
            room: Room::new(limit),
            makers: Makers::default(),
            gone: VecDeque::new(),
            uses: 0,
        }
    }

    /// The same of a node whose clients have stores of their own.
    pub fn of_cluster(node: NodeId, limit: u64) -> Store {
        Store { far: true, ..Store::new(node, limit) }
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
                self.links.insert(link, Link::of(None));
                out.push(Effect::To(link, FromStore::Welcome { node: self.node }));
            }
            Event::From(link, message) if self.links.contains_key(&link) => {
                self.on_message(now, link, message, out)
            }
            Event::From(..) => {}
            Event::LinkDown(link) => self.on_link_down(now, link, out),
            Event::OwnerUp(link, owner) => self.on_owner_up(link, owner, out),
            Event::FromOwner(link, message) if self.links.contains_key(&link) => {
                self.on_owner_says(now, link, message, out);
            }
            Event::FromOwner(..) => {}
            Event::Reached { link, near, serves } => {
                if let Some(known) = self.links.get_mut(&link) {
                    (known.near, known.serves) = (near, serves);
                }
            }
            Event::OwnerGone(owner) => self.on_owner_gone(owner, out),
            Event::Spilled(object, result) => self.on_spilled(now, object, result, out),
            Event::Fetched(object, here) => self.on_fetched(now, object, here, out),
            Event::Tick => {}
        }
        self.give_room(now, out);
        self.wake(out);
        debug_assert_eq!(self.check(), Ok(()));
    }

    fn on_message(&mut self, now: Tick, link: LinkId, message: ToStore, out: &mut Vec<Effect>) {
        let Some(message) = self.ask_owner_first(link, message, out) else { return };
        match message {
            ToStore::Hello { owner, root } => {
                self.gone.retain(|gone| *gone != owner || !root);
                self.links.insert(link, Link::of(Some((owner, root))));
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
                    self.unmade(now, object, out);
                }
            }
            ToStore::Hold { number, reference } => match self.objects.get_mut(&reference.object) {
                Some(object) => {
                    object.holders.insert(link);
                    out.push(Effect::To(link, FromStore::Held { number }));
                }
                None => self.say_missing(link, number, reference, out),
            },
            ToStore::Release { object } => self.drop_holder(link, object, out),
            ToStore::Get { number, reference } => self.on_get(now, link, number, reference, out),
            ToStore::LetGo { object } => {
                self.on_let_go(link, object);
                self.on_served(now, link, object, out);
            }
            ToStore::Pin { number, pin, reference } => match self.objects.get_mut(&reference.object) {
                // Nobody would ever claim what a slot pins for an owner that has ended.
                Some(object) if !self.gone.contains(&reference.owner) => {
                    object.pins += 1;
                    self.pins.insert(pin, (reference.object, reference.owner));
                    out.push(Effect::To(link, FromStore::Held { number }));
                }
                _ => self.say_missing(link, number, reference, out),
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
            ToStore::Node { owner, node, .. } => {
                self.links.insert(link, Link { node: Some(node), ..Link::of(Some((owner, false))) });
            }
            ToStore::Made { object, size, inside } => {
                self.on_made(now, link, object, size, inside, out);
                self.tell_copies(object, out);
            }
            ToStore::Has { object } => self.on_has(now, link, object, out),
            ToStore::Send { object } => out.push(Effect::Send(link, object)),
            ToStore::Remember { object, inputs, bytes, again } => {
                self.on_remember(link, object, inputs, (bytes, again), out);
            }
            ToStore::Ran { object, failed } => self.on_ran(now, object, failed, out),
        }
    }

    /// The process that was making an object does not.
    fn unmade(&mut self, now: Tick, id: ObjectId, out: &mut Vec<Effect>) {
        let Some(object) = self.objects.get_mut(&id) else { return };
        if !self.far {
            return self.remove(id, &Missing::Lost, out);
        }
        // It was made again, and its owner may still have it made by somebody else; if it was new, nobody needs it.
        object.place = Place::Away;
        self.room.used -= object.size;
        if !object.wanted.is_empty() {
            self.fetch(now, id, out);
        }
        self.see_to(id, out);
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
        let known = self.keep_inside(&inside);
        let object = self.objects.get_mut(&id).expect("it was made by the caller");
        object.inside = known;
        object.holders.insert(link);
        if self.far {
            object.up = true;
            let (size, owner) = (object.size, object.reference.owner);
            self.tell_owner(owner, ToStore::Made { object: id, size, inside }, out);
        }
        self.serve_wanted(id, out);
    }

    /// Those of them that are known here, which are kept by what they are inside of. In a cluster the owner keeps them.
    pub(super) fn keep_inside(&mut self, inside: &[Reference]) -> Vec<Reference> {
        let mut known = inside.to_vec();
        known.retain(|inner| !self.far && self.objects.contains_key(&inner.object));
        for inner in &known {
            self.objects.get_mut(&inner.object).expect("only known ones").pins += 1;
        }
        known
    }

    /// The bytes are here: whoever waits for them gets them.
    pub(super) fn serve_wanted(&mut self, id: ObjectId, out: &mut Vec<Effect>) {
        let Some(object) = self.objects.get_mut(&id) else { return };
        for (link, number) in std::mem::take(&mut object.wanted) {
            self.hand(link, number, id, out);
        }
    }

    pub(super) fn on_get(
        &mut self,
        now: Tick,
        link: LinkId,
        number: u64,
        reference: Reference,
        out: &mut Vec<Effect>,
    ) {
        self.uses += 1;
        self.bring_back(reference.object);
        let Some(object) = self.objects.get_mut(&reference.object) else {
            return self.say_missing(link, number, reference, out);
        };
        object.used = self.uses;
        if self.links.get(&link).is_some_and(|asker| asker.node.is_some()) {
            return self.on_node_wants(now, link, number, reference.object, out);
        }
        match object.place {
            Place::Coming(_) | Place::Spilling => object.wanted.push((link, number)),
            Place::Small | Place::Memory | Place::Disk => self.hand(link, number, reference.object, out),
            Place::Away => {
                object.wanted.push((link, number));
                self.fetch(now, reference.object, out);
            }
        }
    }

    pub(super) fn hand(&mut self, link: LinkId, number: u64, id: ObjectId, out: &mut Vec<Effect>) {
        let object = self.objects.get_mut(&id).expect("only what is here is handed on");
        if matches!(object.place, Place::Memory | Place::Disk) {
            object.having.insert(link);
        }
        out.push(Effect::Hand(link, number, id, object.size));
    }

    pub(super) fn say_missing(&self, link: LinkId, number: u64, reference: Reference, out: &mut Vec<Effect>) {
        let why = match self.gone.contains(&reference.owner) {
            true => Missing::OwnerLost,
            false if self.far => Missing::Unlinked,
            false => Missing::Lost,
        };
        out.push(Effect::To(link, FromStore::Missing { number, why }));
    }

    fn unpin(&mut self, pin: PinId, out: &mut Vec<Effect>) {
        let Some((object, _)) = self.pins.remove(&pin) else { return };
        self.objects.get_mut(&object).expect("a pin keeps its object").pins -= 1;
        self.see_to(object, out);
    }

    /// Something that kept an object may be gone (OB-2).
    pub(super) fn see_to(&mut self, id: ObjectId, out: &mut Vec<Effect>) {
        if self.objects.get(&id).is_some_and(|object| !object.is_kept(self.far)) {
            self.remove(id, &Missing::Lost, out);
        }
    }

    pub(super) fn remove(&mut self, id: ObjectId, why: &Missing, out: &mut Vec<Effect>) {
        let mut next = vec![id];
        let mut removed = Vec::new();
        while let Some(id) = next.pop() {
            let Some(object) = self.objects.remove(&id) else { continue };
            Self::tell_end(id, &object, out);
            for &(link, number) in object.wanted.iter().chain(&object.tree.queue) {
                out.push(Effect::To(link, FromStore::Missing { number, why: why.clone() }));
            }
            for &link in &object.having {
                out.push(Effect::To(link, FromStore::Unneeded { object: id }));
            }
            for &link in &object.copies {
                out.push(Effect::To(link, FromStore::Gone { object: id, why: why.clone() }));
            }
            if !matches!(object.place, Place::Coming(_) | Place::Away) {
                out.push(Effect::Discard(id));
            }
            for inner in &object.inside {
                let Some(found) = self.objects.get_mut(&inner.object) else { continue };
                found.pins -= 1;
                if !found.is_kept(self.far) {
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
            removed.push(id);
        }
        removed.into_iter().for_each(|id| self.see_to_maker(id, out));
    }

    fn on_let_go(&mut self, link: LinkId, id: ObjectId) {
        if let Some(object) = self.objects.get_mut(&id) {
            object.having.remove(&link);
        }
        self.room.on_let_go(link, id);
    }

    /// A process has no reference any more.
    fn drop_holder(&mut self, link: LinkId, id: ObjectId, out: &mut Vec<Effect>) {
        let Some(object) = self.objects.get_mut(&id) else { return };
        if object.holders.remove(&link) && object.holders.is_empty() && self.far {
            (object.up, object.since) = (false, self.numbers);
            let owner = object.reference.owner;
            self.tell_owner(owner, ToStore::Release { object: id }, out);
        }
        self.see_to(id, out);
    }

    fn on_link_down(&mut self, now: Tick, link: LinkId, out: &mut Vec<Effect>) {
        let Some(Link { owner, up, .. }) = self.links.remove(&link) else { return };
        self.room.on_link_down(link);
        if up {
            self.forget_questions(link, out);
        }
        let ids: Vec<ObjectId> = self.objects.keys().copied().collect();
        // Before anything is made again: what was only there is lost, too.
        for id in &ids {
            if self.objects.get_mut(id).is_some_and(|object| object.copies.remove(&link)) {
                self.tell_copies(*id, out);
            }
        }
        for id in ids {
            let Some(object) = self.objects.get_mut(&id) else { continue };
            object.failed.remove(&link);
            object.tree.on_link_down(link);
            object.having.remove(&link);
            object.wanted.retain(|(asker, _)| *asker != link);
            match object.place {
                Place::Coming(from) if from == link && !object.asked => self.unmade(now, id, out),
                Place::Coming(from) if from == link => self.on_fetched(now, id, false, out),
                Place::Away
                    if object.asked
                        && !self.far
                        && !self.room.waiting.iter().any(|wish| wish.object == id) =>
                {
                    // It waited for room to be fetched over this link.
                    object.asked = false;
                    self.fetch(now, id, out);
                }
                _ => {}
            }
            self.drop_holder(link, id, out);
            self.assign(now, id, out);
        }
        if let Some((owner, true)) = owner {
            self.on_owner_gone(owner, out);
        }
    }

    /// An owner of which nothing was heard is back.
    pub(super) fn back(&mut self, owner: ClientId) {
        self.gone.retain(|gone| *gone != owner);
    }

    pub(super) fn on_owner_gone(&mut self, owner: ClientId, out: &mut Vec<Effect>) {
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
        if !self.far {
            self.makers.clear();
        }
        let theirs = |object: &&Object| object.reference.owner == owner;
        let ids: Vec<ObjectId> =
            self.objects.values().filter(theirs).map(|object| object.reference.object).collect();
        for id in ids {
            self.remove(id, &Missing::OwnerLost, out);
        }
    }
}
