//! Actors, and those who call them: which client owns an actor, which lease it lives under, what it is called, and a lease
//! of its own for everybody else who calls it.
//!
//! A **guest** lease has no slot, no resources and no shape: it only lets its client open a data connection to the slot of
//! the lease that hosts the actor. What the head knows of actors their owners tell it, and of visits those who visit, on
//! each link anew (HD-8); nothing of it is in the journal.
//!
//! * AC-1: a guest lease is on the books of its visit, and of no other, and is no other lease; it names the lease that
//!   hosted the actor when it was made, is not moved to another, and ends with it at the latest, wherever the actor lives
//!   by then.
//! * AC-2: a name is that of one actor that is not gone.
//! * AC-3: whoever visits an actor has a guest lease, or gets one as soon as the actor has a place, or is told that it is
//!   gone. After the end of a guest lease it gets another by itself when the actor is rebuilt.
//! * AC-4: who is told that an actor is gone heard before how its calls ended there.
//! * AC-5: an actor ends with its owner, unless that is a program that comes back.
//! * AC-6 (bounded): a client has so many actors, and calls so many, as the settings say; what is more is refused.
//! * AC-7: a guest lease that its client does not name on a new link is over, and the client gets another: its slot may have
//!   answers of calls that the client made under it and has forgotten.
//! * AC-8: a head that follows another gives no name away that an actor of before may have (`names`).
//! * AC-10 (nothing unnamed): what a client had of actors and visits before it opened its link anew, and does not name there, is
//!   over (`sync`).
//! * AC-11 (destruction lasts): an actor that one of its visitors has destroyed ends as soon as its owner can be told, whenever it
//!   comes back.
//! * AC-9: a name is free as soon as its actor is gone, and who looks for it hears why; of so many names as are kept.

mod check;
mod names;
mod sync;
mod visits;

use super::books::{CALLED_ACTOR, actor_weight};
use super::{BEATS, Effect, Head};
use crate::time::Tick;
use paceline_proto::control::{Gone, HeadToClient};
use paceline_proto::{ActorId, ClientId, Death, ExclusiveId, LeaseId, NodeId, SlotId};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// So many actors that are gone are remembered, so that those who ask for them hear why at once.
const GONE_KEPT: usize = 4096;
/// So many bytes of the reason why an actor is gone are kept by its name; nobody is charged for them.
const MAX_GONE_REASON: usize = 1024;
/// And of those that are not too many, so many bytes of reasons.
const GONE_BYTES: usize = 16 << 20;
/// The most bytes that an actor may have to be known by.
pub(super) const LONGEST_ABOUT: usize = 64 << 10;

/// What a constructor raised is passed on if it is not longer than this, because it is remembered.
const LONGEST_ERROR: usize = 16 << 10;

/// All of them.
#[derive(Default)]
pub(super) struct Actors {
    all: BTreeMap<ActorId, Actor>,
    names: BTreeMap<String, ActorId>,
    /// Actors by the lease that hosts them.
    hosts: BTreeMap<LeaseId, ActorId>,
    /// Guest leases, and whose they are.
    guests: BTreeMap<LeaseId, (ActorId, ClientId)>,
    /// Guest leases by the lease that hosts them, which need not host their actor any more.
    guests_by_host: BTreeSet<(LeaseId, LeaseId)>,
    gone: BTreeMap<ActorId, Gone>,
    gone_order: VecDeque<ActorId>,
    gone_bytes: usize,
    /// Those that a visitor has destroyed, and whose owners have not said that they are gone (AC-11).
    destroyed: BTreeSet<ActorId>,
    /// How many bytes the actors of a client have: its own, those that it calls, and those whose names wait.
    charges: BTreeMap<ClientId, usize>,
    /// Names that are free again, and what became of the last actor that had each (AC-9).
    gone_names: BTreeMap<String, String>,
    gone_names_order: VecDeque<String>,
    /// Those that something is to be done about.
    dirty: BTreeSet<ActorId>,
    /// Which client owns which actors, and which it calls.
    owners: BTreeSet<(ClientId, ActorId)>,
    visitors: BTreeSet<(ClientId, ActorId)>,
    /// What owners say of actors whose names may be taken (AC-8).
    held_names: BTreeMap<(ClientId, ActorId), Said>,
    /// When those of them are told why that are not yet.
    untold_held: BTreeMap<(ClientId, ActorId), Tick>,
    /// Actors that are gone, and whose processes may live (AC-12).
    former: names::Former,
    /// What clients had when they opened their links anew, and have not named since (AC-10).
    unnamed: sync::Unnamed,
    /// What is lost just now is known to be dead.
    known_dead: bool,
}

struct Actor {
    /// None: somebody visits it, and nobody has said that it is there, or its owner is a program that comes back.
    owner: Option<ClientId>,
    name: Option<String>,
    about: Vec<u8>,
    /// What its owner is charged for.
    charge: usize,
    host: Option<LeaseId>,
    /// The program that its owner is.
    program: Option<String>,
    visits: BTreeMap<ClientId, Visit>,
    /// Until then its owner may still say that it is there.
    unknown_until: Option<Tick>,
    /// It has no place because its node fell silent.
    away: bool,
    gone: Option<Gone>,
}

#[derive(Default)]
struct Visit {
    guest: Option<Guest>,
    /// A lease that the client says it has, from an earlier start of the head.
    held: Option<LeaseId>,
    /// The lease whose node would not admit it.
    refused: Option<LeaseId>,
    /// It was told that the actor is away.
    told_away: bool,
}

struct Guest {
    lease: LeaseId,
    node: NodeId,
    host: LeaseId,
    slot: SlotId,
    /// The node has admitted it, and the client knows of it.
    placed: bool,
    /// The client had it already.
    again: bool,
    via: Option<NodeId>,
}

/// An actor, for people.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ActorStatus {
    pub actor: ActorId,
    pub name: Option<String>,
    pub owner: Option<ClientId>,
    /// The submitted program that keeps it.
    pub program: Option<String>,
    /// Where it is, if it has a place.
    pub place: Option<(NodeId, SlotId, LeaseId)>,
    /// Who calls it beside its owner.
    pub visitors: Vec<ClientId>,
}

/// What an owner says of its actor.
#[derive(Clone)]
pub(super) struct Said {
    pub actor: ActorId,
    pub name: Option<String>,
    pub about: Vec<u8>,
    pub lease: Option<LeaseId>,
    pub gone: Option<Gone>,
    pub program: Option<String>,
    /// A head has given it its name.
    pub named: bool,
}

impl Head {
    pub fn actors(&self) -> Vec<ActorStatus> {
        let known = self.actors.all.iter().filter(|(_, actor)| actor.gone.is_none() && actor.is_known());
        known
            .map(|(&id, actor)| ActorStatus {
                actor: id,
                name: actor.name.clone(),
                owner: actor.owner,
                program: actor.program.clone(),
                place: actor.host.and_then(|host| {
                    let lease = self.leases.get(&host)?;
                    Some((lease.node, lease.slot()?, host))
                }),
                visitors: actor.visits.keys().copied().collect(),
            })
            .collect()
    }

    pub(super) fn on_actor(&mut self, now: Tick, from: ClientId, mut said: Said, out: &mut Vec<Effect>) {
        if let Some(gone) = said.gone.as_mut().filter(|gone| gone.error.len() > LONGEST_ERROR) {
            gone.error.clear();
        }
        if !self.clients.get(&from).is_some_and(|client| client.is_up()) {
            return;
        }
        let id = said.actor;
        self.actors.unnamed.on_owned(from, id);
        let known = self.actors.all.get(&id);
        // A program that comes back is started again only when the one before is no more.
        let back = known.is_some_and(|actor| actor.program.is_some() && actor.program == said.program);
        let owner = known.and_then(|actor| actor.owner).filter(|owner| *owner != from && !back);
        if said.gone.is_some() && self.is_visited_by_other(id, from) {
            return self.on_destroyed(id, out);
        }
        if let Some(owner) = owner {
            // Not its to say; but it may wish for the end.
            if let Some(why) = said.gone {
                self.tell_client(owner, HeadToClient::ActorGone { actor: id, why }, out);
            }
            return;
        }
        if let Some(why) = said.gone {
            self.release_name(from, id);
            match self.actors.owners.contains(&(from, id)) {
                true => self.actors.destroyed.remove(&id),
                // Its owner may be another client, of which this head has given up hope.
                false => self.actors.destroyed.insert(id),
            };
            // It says so until it hears that this was heard.
            self.tell_client(from, HeadToClient::ActorGone { actor: id, why: why.clone() }, out);
            if !self.actors.all.contains_key(&id) {
                // Nobody has asked for it yet.
                self.remember_gone(id, why);
                return;
            }
            return self.end_actor(id, why);
        }
        if let Some(refused) = self.refuse_actor(from, &said) {
            self.release_name(from, id);
            self.end_unknown(id, &refused);
            let refused = Some(refused);
            return self.tell_client(from, HeadToClient::ActorKnown { actor: id, refused }, out);
        }
        if self.hold_name(now, from, &said, out) {
            return;
        }
        let charge = actor_weight(&said);
        let Said { name, about, lease, program, .. } = said;
        self.forget_gone(id);
        self.actors.former.remove(id);
        // One lease hosts one actor.
        let lease = lease.filter(|lease| self.actors.hosts.get(lease).is_none_or(|other| *other == id));
        let actor = self.actors.all.entry(id).or_insert_with(Actor::unknown);
        if let Some(before) = actor.name.take() {
            self.actors.names.remove(&before);
        }
        if let Some(name) = &name {
            self.actors.names.insert(name.clone(), id);
        }
        let charged = std::mem::replace(&mut actor.charge, charge);
        let before = actor.owner.replace(from);
        if let Some(before) = before {
            self.actors.owners.remove(&(before, id));
        }
        self.actors.owners.insert((from, id));
        let taken = name.clone();
        (actor.name, actor.about, actor.program) = (name, about, program);
        (actor.unknown_until, actor.gone) = (None, None);
        if actor.host != lease {
            if let Some(before) = actor.host.take() {
                self.actors.hosts.remove(&before);
            }
            actor.host = lease;
            if let Some(lease) = lease {
                self.actors.hosts.insert(lease, id);
            }
        }
        before.into_iter().for_each(|before| self.uncharge(before, charged));
        self.charge(from, charge);
        let away = lease.is_none() && (self.actors.all[&id].away || self.is_actor_fenced(id));
        self.actors.all.get_mut(&id).expect("it is there by now").away = away;
        self.actors.dirty.insert(id);
        self.tell_client(from, HeadToClient::ActorKnown { actor: id, refused: None }, out);
        if self.actors.destroyed.contains(&id) {
            self.on_destroyed(id, out);
        }
        if let Some(name) = taken {
            self.actors.forget_name(&name);
            self.refuse_held(&name, id, out);
        }
    }

    /// Returns whether this client calls an actor that is somebody else's, or whose owner is not known yet.
    fn is_visited_by_other(&self, id: ActorId, client: ClientId) -> bool {
        self.actors.visitors.contains(&(client, id)) && self.actors.all[&id].owner != Some(client)
    }

    /// A visitor has destroyed the actor: its owner ends it, as soon as it is here (AC-11).
    fn on_destroyed(&mut self, id: ActorId, out: &mut Vec<Effect>) {
        self.actors.destroyed.insert(id);
        let actor = &self.actors.all[&id];
        if let Some(owner) = actor.owner.filter(|_| actor.gone.is_none()) {
            let why = "it was destroyed".into();
            self.tell_client(owner, HeadToClient::ActorGone { actor: id, why }, out);
        }
    }

    /// Why an actor cannot be known by this (AC-2).
    fn refuse_actor(&self, from: ClientId, said: &Said) -> Option<String> {
        let (id, name, about) = (said.actor, said.name.as_deref(), &said.about);
        let what = name.unwrap_or("without a name");
        let most = self.config.max_actors;
        let held = self.actors.held_names.contains_key(&(from, id));
        let waiting =
            self.actors.held_names.range((from, ActorId(0))..).take_while(|((client, _), _)| *client == from);
        let full = || has_most(&self.actors.owners, from, most) || waiting.take(most).count() >= most;
        if !held && !self.actors.owners.contains(&(from, id)) && full() {
            return Some(format!("this client has {most} actors already (max_actors of the head)"));
        }
        if about.len() > LONGEST_ABOUT {
            let (size, most) = (about.len(), LONGEST_ABOUT);
            return Some(format!(
                "what is to be said of the actor {what} has {size} bytes, and may have {most}"
            ));
        }
        let known = self.actors.all.get(&id).filter(|actor| actor.owner == Some(from));
        let known = known.map_or(0, |actor| actor.charge) + self.held_charge(from, id);
        if let Some(why) = self.refuse_bytes(from, actor_weight(said).saturating_sub(known)) {
            return Some(why);
        }
        let other = self.actors.names.get(name?).filter(|other| **other != id)?;
        let owner = self.actors.all[other].owner.and_then(|owner| self.clients.get(&owner));
        let by =
            owner.map_or("a program that comes back".into(), |owner| format!("the client {}", owner.name));
        Some(format!(
            "an actor of the name {what} is there already, made by {by}: give this one another name, or end that one"
        ))
    }

    pub(super) fn on_find(&self, now: Tick, from: ClientId, number: u64, name: &str, out: &mut Vec<Effect>) {
        let found = self.actors.names.get(name).copied();
        let about = found.map(|id| self.actors.all[&id].about.clone()).unwrap_or_default();
        // Its program is about to be started again, or its owner has not come back since this head was.
        let comes = found.is_none() && (self.works.lives(&program_of(name)) || self.may_be_taken(now, name));
        let gone = self.actors.gone_names.get(name).filter(|_| found.is_none() && !comes).cloned();
        self.tell_client(from, HeadToClient::Found { number, actor: found, about, comes, gone }, out);
    }

    /// An actor that nobody may have: who waits for it, or asks for it later, hears why.
    fn end_unknown(&mut self, id: ActorId, why: &str) {
        match self.actors.all.get(&id) {
            Some(actor) if actor.is_known() => {}
            Some(_) => self.end_actor(id, why.into()),
            None => self.remember_gone(id, why.into()),
        }
    }

    fn end_actor(&mut self, id: ActorId, why: Gone) {
        let Some(actor) = self.actors.all.get_mut(&id).filter(|actor| actor.gone.is_none()) else { return };
        let told = why.why.clone();
        actor.gone = Some(why);
        if let Some(name) = actor.name.take() {
            self.actors.names.remove(&name);
            self.note_former(id, &name);
            self.actors.remember_name(name, told);
        }
        self.actors.dirty.insert(id);
    }

    /// The client is gone, or says that it goes: so are its actors, and its visits (AC-5).
    pub(super) fn end_actors_of(&mut self, client: ClientId, out: &mut Vec<Effect>) {
        self.forget_held(client);
        self.actors.unnamed.forget(client);
        if self.actors.all.is_empty() {
            return;
        }
        let all = self.actors.all.iter();
        let touched =
            all.filter(|(_, actor)| actor.owner == Some(client) || actor.visits.contains_key(&client));
        let touched: Vec<ActorId> = touched.map(|(&id, _)| id).collect();
        let name = self.clients.get(&client).map_or(String::new(), |client| client.name.clone());
        for id in touched {
            self.end_visit(id, client, out);
            let actor = self.actors.all.get_mut(&id).expect("listed just now");
            if actor.owner != Some(client) {
                continue;
            }
            if actor.program.as_ref().is_some_and(|program| self.works.lives(program)) {
                actor.owner = None;
                let charge = std::mem::take(&mut actor.charge);
                self.actors.owners.remove(&(client, id));
                self.actors.dirty.insert(id);
                self.uncharge(client, charge);
            } else {
                self.end_actor(id, format!("its owner, the client {name}, has ended").into());
            }
        }
    }

    /// A submitted program has ended for good, and with it the actors that it kept.
    pub(super) fn end_actors_of_program(&mut self, program: &str) {
        let kept = self.actors.all.iter().filter(|(_, actor)| actor.program.as_deref() == Some(program));
        for id in kept.map(|(&id, _)| id).collect::<Vec<_>>() {
            self.end_actor(id, format!("the program {program} that kept it has ended").into());
        }
    }

    /// A lease is over. If it hosted an actor, that has no place now.
    pub(super) fn on_host_ended(&mut self, host: LeaseId, death: Option<&Death>, out: &mut Vec<Effect>) {
        if let Some(id) = self.actors.hosts.remove(&host) {
            let actor = self.actors.all.get_mut(&id).expect("a host hosts an actor");
            actor.host = None;
            actor.away =
                !self.actors.known_dead && death.is_some_and(|death| *death == Death::of_lost_node());
            self.actors.dirty.insert(id);
        }
        // The node names guests before their host: of what is left here nobody knows which calls had begun, as of a node
        // that is lost. The numbers of the host's calls say nothing about theirs.
        let unknown = death.map(|_| Death::of_lost_node());
        for lease in self.actors.guests_of(host) {
            let (actor, client) = self.actors.guests[&lease];
            let node = self.guest_mut(actor, client).node;
            self.on_guest_ended(node, lease, unknown.as_ref(), out);
        }
    }

    /// A node is about to be given up: what lived there is known to be dead, or nobody knows.
    pub(super) fn know_dead(&mut self, dead: bool) {
        self.actors.known_dead = dead;
    }

    /// A node or a client is here again: what it has may host actors, or let them be visited.
    pub(super) fn look_at_actors(&mut self) {
        self.actors.dirty.extend(self.actors.all.keys().copied());
    }

    pub(super) fn actors_on_gap(&mut self, gap: std::time::Duration) {
        for actor in self.actors.all.values_mut() {
            actor.unknown_until = actor.unknown_until.map(|at| at + gap);
        }
    }

    pub(super) fn actors_on_deadline(&mut self, now: Tick) {
        let waits = self.actors.all.values().filter_map(|actor| actor.unknown_until);
        waits.filter(|at| *at > now).min().into_iter().for_each(|at| self.no_later_than(at));
        let late = |actor: &Actor| actor.unknown_until.is_some_and(|at| at <= now);
        let late: Vec<ActorId> =
            self.actors.all.iter().filter(|(_, actor)| late(actor)).map(|(&id, _)| id).collect();
        // It may be one of a program that is about to be started again, or its name may be taken (AC-8).
        let expects = self.expects_actors();
        let until = now + self.config.heartbeat * BEATS;
        for id in late {
            if expects || self.has_held_name(id) {
                self.actors.all.get_mut(&id).expect("listed just now").unknown_until = Some(until);
                self.no_later_than(until);
                continue;
            }
            self.end_actor(id, "nobody in this cluster has such an actor; its owner has ended".into());
        }
    }

    /// Whether a program is there that keeps an actor, and has not said so yet.
    fn expects_actors(&self) -> bool {
        let said: BTreeSet<&str> =
            self.actors.all.values().filter_map(|actor| actor.program.as_deref()).collect();
        self.works.names().any(|name| name.starts_with(PREFIX) && !said.contains(name))
    }

    /// Bring about what the state of things asks for (AC-3).
    pub(super) fn settle_actors(&mut self, out: &mut Vec<Effect>) {
        while let Some(id) = self.actors.dirty.pop_first() {
            let Some(actor) = self.actors.all.get(&id) else { continue };
            match &actor.gone {
                Some(why) => {
                    let why = why.clone();
                    self.see_off_visitors(id, &why, out);
                }
                None if actor.is_known() => self.let_in(id, out),
                None => {}
            }
            // One that is not known yet stays until its time is over: who asks for it again finds that it was asked for.
            let actor = &self.actors.all[&id];
            if actor.visits.is_empty() && actor.gone.is_some() {
                self.strike_actor(id);
            }
        }
    }

    fn strike_actor(&mut self, id: ActorId) {
        let actor = self.actors.all.remove(&id).expect("only known actors are struck off");
        if let Some(owner) = actor.owner {
            self.actors.owners.remove(&(owner, id));
            self.uncharge(owner, actor.charge);
        }
        if let Some(host) = actor.host {
            self.actors.hosts.remove(&host);
        }
        if let Some(why) = actor.gone {
            self.remember_gone(id, why);
        }
    }

    fn remember_gone(&mut self, id: ActorId, why: Gone) {
        self.actors.gone_bytes += gone_weight(&why);
        match self.actors.gone.insert(id, why) {
            None => self.actors.gone_order.push_back(id),
            Some(before) => self.actors.gone_bytes -= gone_weight(&before),
        }
        while (self.actors.gone_order.len() > GONE_KEPT || self.actors.gone_bytes > GONE_BYTES)
            && let Some(oldest) = self.actors.gone_order.pop_front()
        {
            self.actors.destroyed.remove(&oldest);
            let before = self.actors.gone.remove(&oldest).expect("what is in the order is there");
            self.actors.gone_bytes -= gone_weight(&before);
        }
    }

    /// The client has so many more bytes of actors, or fewer.
    fn charge(&mut self, client: ClientId, bytes: usize) {
        *self.actors.charges.entry(client).or_default() += bytes;
        self.note_kept(client);
    }

    fn uncharge(&mut self, client: ClientId, bytes: usize) {
        if let Some(sum) = self.actors.charges.get_mut(&client) {
            *sum -= bytes;
            if *sum == 0 {
                self.actors.charges.remove(&client);
            }
        }
        self.note_kept(client);
    }

    fn forget_gone(&mut self, id: ActorId) {
        if let Some(before) = self.actors.gone.remove(&id) {
            self.actors.gone_bytes -= gone_weight(&before);
            self.actors.gone_order.retain(|other| *other != id);
        }
    }
}

impl Actors {
    /// Returns how many bytes the actors of a client have.
    pub(super) fn kept_bytes(&self, client: ClientId) -> usize {
        self.charges.get(&client).copied().unwrap_or(0)
    }

    fn remember_name(&mut self, name: String, mut why: String) {
        let end = (0..=MAX_GONE_REASON.min(why.len())).rev().find(|at| why.is_char_boundary(*at));
        why.truncate(end.unwrap_or_default());
        if self.gone_names.insert(name.clone(), why).is_none() {
            self.gone_names_order.push_back(name);
        }
        if self.gone_names_order.len() > GONE_KEPT
            && let Some(oldest) = self.gone_names_order.pop_front()
        {
            self.gone_names.remove(&oldest);
        }
    }

    fn forget_name(&mut self, name: &str) {
        if self.gone_names.remove(name).is_some() {
            self.gone_names_order.retain(|other| other != name);
        }
    }

    /// Returns the guest leases that this lease hosts.
    fn guests_of(&self, host: LeaseId) -> Vec<LeaseId> {
        let guests = self.guests_by_host.range((host, LeaseId(0))..=(host, LeaseId(u128::MAX)));
        guests.map(|(_, guest)| *guest).collect()
    }

    /// Its last copy is over.
    pub(super) fn on_no_copy(&mut self, exclusive: ExclusiveId) {
        self.former.remove(ActorId(exclusive.0));
    }

    fn strike_guest(&mut self, guest: &Guest) {
        self.guests.remove(&guest.lease);
        self.guests_by_host.remove(&(guest.host, guest.lease));
    }
}

impl Actor {
    fn unknown() -> Actor {
        Actor {
            owner: None,
            name: None,
            about: Vec::new(),
            charge: 0,
            host: None,
            program: None,
            visits: BTreeMap::new(),
            unknown_until: None,
            away: false,
            gone: None,
        }
    }

    /// Whether somebody has said that it is there.
    fn is_known(&self) -> bool {
        self.owner.is_some() || self.program.is_some()
    }
}

/// Returns whether this set has so many actors of one client. Counts only where there are so many at all.
fn has_most(actors: &BTreeSet<(ClientId, ActorId)>, client: ClientId, most: usize) -> bool {
    let own = || actors.range((client, ActorId(0))..=(client, ActorId(u128::MAX)));
    actors.len() >= most && own().count() >= most
}

fn gone_weight(gone: &Gone) -> usize {
    gone.why.len() + gone.error.len()
}

/// What the program is called that keeps a detached actor of this name.
pub fn program_of(name: &str) -> String {
    format!("{PREFIX}{name}")
}

/// Programs of such names keep actors.
const PREFIX: &str = "actor.";
