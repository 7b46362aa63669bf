//! What holds of actors and of those who call them, spelled out.

use super::super::Head;
use super::super::books::{CALLED_ACTOR, actor_weight};
use paceline_proto::{ActorId, ExclusiveId};
use std::collections::BTreeSet;

impl Head {
    pub(in crate::head) fn check_actors(&self) -> Result<(), String> {
        let actors = &self.actors;
        for (id, actor) in &actors.all {
            for (client, visit) in &actor.visits {
                let Some(guest) = &visit.guest else { continue };
                let is_other = self.leases.contains_key(&guest.lease);
                if is_other || actors.guests.get(&guest.lease) != Some(&(*id, *client)) {
                    return Err(format!("AC-1: {:?} of {client:?} is not on the books", guest.lease));
                }
                let on_books = actors.guests_by_host.contains(&(guest.host, guest.lease));
                if !on_books || self.leases.get(&guest.host).is_none_or(|host| host.node != guest.node) {
                    return Err(format!("AC-1: {:?} has outlived its host {:?}", guest.lease, guest.host));
                }
            }
            if let Some(name) = &actor.name
                && (actor.gone.is_some() || actors.names.get(name) != Some(id))
            {
                return Err(format!("AC-2: {id:?} does not have its name {name}"));
            }
            if actor.host.is_some_and(|host| actors.hosts.get(&host) != Some(id)) {
                return Err(format!("AC-1: {id:?} is not on the books of its host"));
            }
            if let Some(owner) =
                actor.owner.filter(|owner| actor.gone.is_none() && !self.clients.contains_key(owner))
            {
                return Err(format!("AC-5: {id:?} has outlived {owner:?}"));
            }
        }
        let owned = actors.all.iter().filter_map(|(&id, actor)| Some((actor.owner?, id)));
        if owned.collect::<BTreeSet<_>>() != actors.owners {
            return Err("AC-6: other actors are owned than the index says".into());
        }
        let visited =
            actors.all.iter().flat_map(|(&id, actor)| actor.visits.keys().map(move |&client| (client, id)));
        if visited.collect::<BTreeSet<_>>() != actors.visitors {
            return Err("AC-6: other actors are visited than the index says".into());
        }
        let owned = actors.all.values().filter_map(|actor| Some((actor.owner?, actor.charge)));
        let visited = actors.visitors.iter().map(|(client, _)| (*client, CALLED_ACTOR));
        let held = actors.held_names.iter().map(|((client, _), said)| (*client, actor_weight(said)));
        let mut charges = std::collections::BTreeMap::new();
        for (client, bytes) in owned.chain(visited).chain(held) {
            *charges.entry(client).or_insert(0) += bytes;
        }
        if charges != actors.charges {
            return Err(format!("BK-2: actors have {charges:?} bytes, not {:?}", actors.charges));
        }
        let gone: usize = actors.gone.values().map(super::gone_weight).sum();
        if gone != actors.gone_bytes || gone > super::GONE_BYTES {
            return Err(format!("BK-2: {gone} bytes are remembered of actors that are gone"));
        }
        let known = |id: &ActorId| actors.all.contains_key(id) || actors.gone.contains_key(id);
        if let Some(id) = actors.destroyed.iter().find(|id| !known(id)) {
            return Err(format!("AC-11: {id:?} was destroyed, and nobody knows of it"));
        }
        if let Some(id) = actors.former.names().find(|id| !self.may_have_copy(ExclusiveId(id.0))) {
            return Err(format!("AC-12: the name of {id:?} waits, and nothing of it lives"));
        }
        if actors.untold_held.keys().any(|key| !actors.held_names.contains_key(key)) {
            return Err("AC-12: somebody is to be told of a name that does not wait".into());
        }
        let visits = actors.all.values().flat_map(|actor| actor.visits.values());
        let guests = visits.filter(|visit| visit.guest.is_some()).count();
        if guests != actors.guests.len() || guests != actors.guests_by_host.len() {
            return Err(format!("AC-1: {guests} guests, and {} on the books", actors.guests.len()));
        }
        Ok(())
    }
}
