//! Actors, and those who call them: which client owns an actor, which lease it lives under, what it is called, and a lease
//! of its own for everybody else who calls it.
//!
//! A **guest** lease has no slot, no resources and no shape: it only lets its client open a data connection to the slot of
//! the lease that hosts the actor. What the head knows of actors their owners tell it, and of visits those who visit, on
//! each link anew (HD-8); nothing of it is in the journal.
//!
//! * AC-1: a guest lease is on the books of its visit, and of no other; it names the lease that hosted the actor when it
//!   was made, and is not moved to another.
//! * AC-2: a name is that of one actor that is not gone.
//! * AC-3: whoever visits an actor has a guest lease, or gets one as soon as the actor has a place, or is told that it is
//!   gone. After the end of a guest lease it gets another by itself when the actor is rebuilt.
//! * AC-4: who is told that an actor is gone heard before how its calls ended there.
//! * AC-5: an actor ends with its owner, unless that is a program that comes back.

mod check;
mod visits;

use super::{BEATS, Effect, Head};
use crate::time::Tick;
use paceline_proto::control::{Gone, HeadToClient};
use paceline_proto::{ActorId, ClientId, Death, LeaseId, NodeId, SlotId};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// So many actors that are gone are remembered, so that those who ask for them hear why at once.
const GONE_KEPT: usize = 4096;
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
    gone: BTreeMap<ActorId, Gone>,
    gone_order: VecDeque<ActorId>,
    /// Those that something is to be done about.
    dirty: BTreeSet<ActorId>,
    /// What is lost just now is known to be dead.
    known_dead: bool,
}

struct Actor {
    /// None: somebody visits it, and nobody has said that it is there, or its owner is a program that comes back.
    owner: Option<ClientId>,
    name: Option<String>,
    about: Vec<u8>,
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
pub(super) struct Said {
    pub actor: ActorId,
    pub name: Option<String>,
    pub about: Vec<u8>,
    pub lease: Option<LeaseId>,
    pub gone: Option<Gone>,
    pub program: Option<String>,
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

    pub(super) fn on_actor(&mut self, from: ClientId, said: Said, out: &mut Vec<Effect>) {
        let Said { actor: id, name, about, lease, mut gone, program } = said;
        if let Some(gone) = gone.as_mut().filter(|gone| gone.error.len() > LONGEST_ERROR) {
            gone.error.clear();
        }
        if !self.clients.get(&from).is_some_and(|client| client.is_up()) {
            return;
        }
        let known = self.actors.all.get(&id);
        // A program that comes back is started again only when the one before is no more.
        let back = known.is_some_and(|actor| actor.program.is_some() && actor.program == program);
        let owner = known.and_then(|actor| actor.owner).filter(|owner| *owner != from && !back);
        if let Some(owner) = owner {
            // Not its to say; but it may wish for the end.
            if let Some(why) = gone {
                self.tell_client(owner, HeadToClient::ActorGone { actor: id, why }, out);
            }
            return;
        }
        if let Some(why) = gone {
            // It says so until it hears that this was heard.
            self.tell_client(from, HeadToClient::ActorGone { actor: id, why: why.clone() }, out);
            if !self.actors.all.contains_key(&id) {
                // Nobody has asked for it yet.
                self.remember_gone(id, why);
                return;
            }
            return self.end_actor(id, why);
        }
        if let Some(refused) = self.refuse_actor(id, name.as_deref(), &about) {
            let refused = Some(refused);
            return self.tell_client(from, HeadToClient::ActorKnown { actor: id, refused }, out);
        }
        self.forget_gone(id);
        // One lease hosts one actor.
        let lease = lease.filter(|lease| self.actors.hosts.get(lease).is_none_or(|other| *other == id));
        let actor = self.actors.all.entry(id).or_insert_with(Actor::unknown);
        if let Some(before) = actor.name.take() {
            self.actors.names.remove(&before);
        }
        if let Some(name) = &name {
            self.actors.names.insert(name.clone(), id);
        }
        (actor.owner, actor.name, actor.about, actor.program) = (Some(from), name, about, program);
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
        actor.away &= lease.is_none();
        self.actors.dirty.insert(id);
        self.tell_client(from, HeadToClient::ActorKnown { actor: id, refused: None }, out);
    }

    /// Why an actor cannot be known by this (AC-2).
    fn refuse_actor(&self, id: ActorId, name: Option<&str>, about: &[u8]) -> Option<String> {
        let what = name.unwrap_or("without a name");
        if about.len() > LONGEST_ABOUT {
            let (size, most) = (about.len(), LONGEST_ABOUT);
            return Some(format!(
                "what is to be said of the actor {what} has {size} bytes, and may have {most}"
            ));
        }
        let other = self.actors.names.get(name?).filter(|other| **other != id)?;
        let owner = self.actors.all[other].owner.and_then(|owner| self.clients.get(&owner));
        let by =
            owner.map_or("a program that comes back".into(), |owner| format!("the client {}", owner.name));
        Some(format!(
            "an actor of the name {what} is there already, made by {by}: give this one another name, or end that one"
        ))
    }

    pub(super) fn on_find(&self, from: ClientId, number: u64, name: &str, out: &mut Vec<Effect>) {
        let found = self.actors.names.get(name).copied();
        let about = found.map(|id| self.actors.all[&id].about.clone()).unwrap_or_default();
        // Its program is about to be started again, or its owner has not come back since this head was.
        let comes = found.is_none() && (self.works.lives(&program_of(name)) || self.expects_holders());
        self.tell_client(from, HeadToClient::Found { number, actor: found, about, comes }, out);
    }

    fn end_actor(&mut self, id: ActorId, why: Gone) {
        let Some(actor) = self.actors.all.get_mut(&id).filter(|actor| actor.gone.is_none()) else { return };
        actor.gone = Some(why);
        if let Some(name) = actor.name.take() {
            self.actors.names.remove(&name);
        }
        self.actors.dirty.insert(id);
    }

    /// The client is gone, or says that it goes: so are its actors, and its visits (AC-5).
    pub(super) fn end_actors_of(&mut self, client: ClientId, out: &mut Vec<Effect>) {
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
                self.actors.dirty.insert(id);
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
        let Some(id) = self.actors.hosts.remove(&host) else { return };
        let actor = self.actors.all.get_mut(&id).expect("a host hosts an actor");
        actor.host = None;
        actor.away = !self.actors.known_dead && death.is_some_and(|death| *death == Death::of_lost_node());
        // The node names guests before their host: of what is left here nobody knows which calls had begun, as of a node
        // that is lost. The numbers of the host's calls say nothing about theirs.
        let unknown = death.map(|_| Death::of_lost_node());
        let guests = actor.visits.values().filter_map(|visit| visit.guest.as_ref());
        let left: Vec<_> = guests.filter(|guest| guest.host == host).map(|it| (it.node, it.lease)).collect();
        for (node, lease) in left {
            self.on_guest_ended(node, lease, unknown.as_ref(), out);
        }
        self.actors.dirty.insert(id);
    }

    pub(super) fn hosts_actor(&self, lease: LeaseId) -> bool {
        self.actors.hosts.contains_key(&lease)
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
        if !late.is_empty() && self.expects_actors() {
            // It may be one of a program that is about to be started again.
            let until = now + self.config.heartbeat * BEATS;
            for id in late {
                self.actors.all.get_mut(&id).expect("listed just now").unknown_until = Some(until);
            }
            return self.no_later_than(until);
        }
        for id in late {
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
        if let Some(host) = actor.host {
            self.actors.hosts.remove(&host);
        }
        if let Some(why) = actor.gone {
            self.remember_gone(id, why);
        }
    }

    fn remember_gone(&mut self, id: ActorId, why: Gone) {
        if self.actors.gone.insert(id, why).is_none() {
            self.actors.gone_order.push_back(id);
        }
        if self.actors.gone_order.len() > GONE_KEPT
            && let Some(oldest) = self.actors.gone_order.pop_front()
        {
            self.actors.gone.remove(&oldest);
        }
    }

    fn forget_gone(&mut self, id: ActorId) {
        if self.actors.gone.remove(&id).is_some() {
            self.actors.gone_order.retain(|other| *other != id);
        }
    }
}

impl Actor {
    fn unknown() -> Actor {
        Actor {
            owner: None,
            name: None,
            about: Vec::new(),
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

/// What the program is called that keeps a detached actor of this name.
pub fn program_of(name: &str) -> String {
    format!("{PREFIX}{name}")
}

/// Programs of such names keep actors.
const PREFIX: &str = "actor.";
