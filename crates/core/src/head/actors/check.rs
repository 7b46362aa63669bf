//! What holds of actors and of those who call them, spelled out.

use super::super::Head;

impl Head {
    pub(in crate::head) fn check_actors(&self) -> Result<(), String> {
        let actors = &self.actors;
        for (id, actor) in &actors.all {
            for (client, visit) in &actor.visits {
                let Some(guest) = &visit.guest else { continue };
                if actors.guests.get(&guest.lease) != Some(&(*id, *client)) {
                    return Err(format!("AC-1: {:?} of {client:?} is not on the books", guest.lease));
                }
                if !self.nodes.contains_key(&guest.node) {
                    return Err(format!("AC-1: {:?} is on {:?}, which is gone", guest.lease, guest.node));
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
        let visits = actors.all.values().flat_map(|actor| actor.visits.values());
        let guests = visits.filter(|visit| visit.guest.is_some()).count();
        if guests != actors.guests.len() {
            return Err(format!("AC-1: {guests} guests, and {} on the books", actors.guests.len()));
        }
        Ok(())
    }
}
