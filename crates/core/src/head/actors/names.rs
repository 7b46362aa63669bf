//! Names that actors may still have which this head does not know, or has given up.
//!
//! Names are not in the journal: owners say them again. A head that follows another one therefore does not know which
//! names are taken before every owner has come back, or cannot come back with what it had.
//!
//! * AC-8 (one name across restarts): until nothing can live any more that the head does not know, it gives a name only
//!   to an owner who had it from an earlier head, or to the submitted program that keeps it. Others wait, and are told.
//! * AC-12 (one name, one process): the name of an actor that is gone is given to another one only when the process of the first
//!   has ended, or its node must have ended it. That takes a moment, and long if the node is silent: then who waits is told.

use super::super::books::actor_weight;
use super::super::{Effect, Head};
use super::{Said, program_of};
use crate::time::Tick;
use paceline_proto::control::HeadToClient;
use paceline_proto::{ActorId, ClientId, ExclusiveId};
use std::collections::BTreeMap;

/// Actors that are gone, and whose processes may live: by their names, and the names.
#[derive(Default)]
pub(super) struct Former {
    actors: BTreeMap<String, ActorId>,
    names: BTreeMap<ActorId, String>,
}

impl Former {
    fn insert(&mut self, actor: ActorId, name: &str) {
        self.actors.insert(name.to_owned(), actor);
        self.names.insert(actor, name.to_owned());
    }

    pub fn remove(&mut self, actor: ActorId) {
        if let Some(name) = self.names.remove(&actor)
            && self.actors.get(&name) == Some(&actor)
        {
            self.actors.remove(&name);
        }
    }

    pub fn names(&self) -> impl Iterator<Item = ActorId> {
        self.names.keys().copied()
    }
}

impl Head {
    /// Returns whether actors may live that this head has not heard of.
    fn expects_actors_of_before(&self, now: Tick) -> bool {
        let follows = self.config.epoch.number() > 1;
        follows && (self.names_known_at().is_none_or(|at| now < at) || self.expects_holders())
    }

    /// Returns from when on no actor can live any more that this head has not heard of, under its timing or a longer one of
    /// before (FE-4).
    fn names_known_at(&self) -> Option<Tick> {
        self.settled_at.max(self.earlier_over_at())
    }

    /// Returns whether an actor of this name may live that this head has not heard of.
    pub(super) fn may_be_taken(&self, now: Tick, name: &str) -> bool {
        self.expects_actors_of_before(now) && !self.actors.names.contains_key(name)
    }

    /// Keeps what an owner says of a new actor until its name is known to be free. Returns false if that is known.
    pub(super) fn hold_name(
        &mut self,
        now: Tick,
        from: ClientId,
        said: &Said,
        out: &mut Vec<Effect>,
    ) -> bool {
        self.release_name(from, said.actor);
        let (before, former) = (self.waits_for_head_of_before(now, said), self.waits_for_former(said));
        if !before && !former {
            return false;
        }
        let key = (from, said.actor);
        self.actors.held_names.insert(key, said.clone());
        self.charge(from, actor_weight(said));
        if before {
            self.tell_held(now, key, out);
        } else {
            // Mostly its end is on its way.
            let at = now + self.config.heartbeat;
            self.actors.untold_held.insert(key, at);
            self.no_later_than(at);
        }
        true
    }

    /// Returns whether this name may be that of an actor of before (AC-8).
    fn waits_for_head_of_before(&self, now: Tick, said: &Said) -> bool {
        let Some(name) = said.name.as_ref().filter(|_| self.expects_actors_of_before(now)) else {
            return false;
        };
        let has_it = self.actors.names.get(name) == Some(&said.actor);
        let keeper = said.program.as_deref().filter(|program| **program == program_of(name));
        !has_it && !said.named && keeper.is_none_or(|program| !self.works.lives(program))
    }

    /// Returns whether an actor that had this name is gone, and its process may live (AC-12).
    fn waits_for_former(&self, said: &Said) -> bool {
        let former = said.name.as_ref().and_then(|name| self.actors.former.actors.get(name));
        former.is_some_and(|former| *former != said.actor)
    }

    /// The actor is gone. Its name waits while its process may live (AC-12).
    pub(super) fn note_former(&mut self, id: ActorId, name: &str) {
        if self.may_have_copy(ExclusiveId(id.0)) {
            self.actors.former.insert(id, name);
        }
    }

    /// Says what an owner waits for whose actor's name is not known to be free.
    fn tell_held(&mut self, now: Tick, key: (ClientId, ActorId), out: &mut Vec<Effect>) {
        let Some(name) = self.actors.held_names.get(&key).and_then(|said| said.name.as_ref()) else { return };
        let (until, why) = match self.actors.former.actors.get(name) {
            Some(former) => {
                let until = self.copy_over_at(now, ExclusiveId(former.0));
                let seconds = until.since(now).as_secs_f64().ceil();
                let why = format!(
                    "the actor that had the name {name} is gone, but its node does not answer, and its process may still run; \
                     in at most {seconds} s that is known"
                );
                (until, why)
            }
            None => {
                let until = self.names_known_at().unwrap_or(now).max(now + self.config.heartbeat);
                let seconds = until.since(now).as_secs_f64().ceil();
                let why = format!(
                    "the head has started again, and an actor of the name {name} may still live; in about {seconds} s that is known"
                );
                (until, why)
            }
        };
        // Leases that a late node reports wait for their holders for so long.
        let within = until.since(now) + self.config.client_lost;
        self.no_later_than(until);
        self.tell_client(key.0, HeadToClient::NameHeld { actor: key.1, within, why }, out);
    }

    /// Answers those whose name waits, once it is known what is free.
    pub(in crate::head) fn settle_names(&mut self, now: Tick, out: &mut Vec<Effect>) {
        if self.actors.held_names.is_empty() {
            return;
        }
        let late = self.actors.untold_held.iter().filter(|(_, at)| **at <= now).map(|(key, _)| *key);
        for key in late.collect::<Vec<_>>() {
            self.actors.untold_held.remove(&key);
            self.tell_held(now, key, out);
        }
        self.actors.untold_held.values().copied().min().into_iter().for_each(|at| self.no_later_than(at));
        if self.expects_actors_of_before(now) {
            return;
        }
        let held = self.actors.held_names.iter();
        let free = held.filter(|(_, said)| !self.waits_for_former(said)).map(|(key, _)| *key);
        for (client, id) in free.collect::<Vec<_>>() {
            if let Some(said) = self.release_name(client, id) {
                self.on_actor(now, client, said, out);
            }
        }
    }

    /// Returns whether the owner of this actor is here, and its name is not known to be free.
    pub(super) fn has_held_name(&self, id: ActorId) -> bool {
        self.actors.held_names.keys().any(|(_, held)| *held == id)
    }

    /// An owner has come back with this name: whoever waits for it hears so at once.
    pub(super) fn refuse_held(&mut self, name: &str, owner: ActorId, out: &mut Vec<Effect>) {
        let held = self.actors.held_names.iter();
        let beaten = held.filter(|((_, id), said)| *id != owner && said.name.as_deref() == Some(name));
        for (client, id) in beaten.map(|(&key, _)| key).collect::<Vec<_>>() {
            let said = self.release_name(client, id).expect("listed just now");
            let refused = self.refuse_actor(client, &said);
            self.tell_client(client, HeadToClient::ActorKnown { actor: id, refused }, out);
        }
    }

    pub(super) fn forget_held(&mut self, client: ClientId) {
        let held = self.actors.held_names.range((client, ActorId(0))..=(client, ActorId(u128::MAX)));
        for id in held.map(|((_, id), _)| *id).collect::<Vec<_>>() {
            self.release_name(client, id);
        }
    }

    /// The name of this actor waits no more.
    pub(super) fn release_name(&mut self, client: ClientId, id: ActorId) -> Option<Said> {
        let said = self.actors.held_names.remove(&(client, id))?;
        self.actors.untold_held.remove(&(client, id));
        self.uncharge(client, actor_weight(&said));
        Some(said)
    }

    /// What the client is charged for an actor whose name waits.
    pub(super) fn held_charge(&self, client: ClientId, id: ActorId) -> usize {
        self.actors.held_names.get(&(client, id)).map_or(0, actor_weight)
    }
}
