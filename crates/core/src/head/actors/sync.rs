//! What a client that opens its link anew does not name any more.
//!
//! A client says on each link which actors it has and which it visits. The head may know of others: the word of their end
//! was lost with the link before, or another head has it, which was in charge meanwhile.
//!
//! * AC-10 (nothing unnamed): an actor or a visit that a client does not name between its `Hello` and its `Synced` is over.

use super::super::{Effect, Head};
use paceline_proto::{ActorId, ClientId};
use std::collections::BTreeSet;

/// What clients had when their links were opened, less what they have named since.
#[derive(Default)]
pub(super) struct Unnamed {
    owned: BTreeSet<(ClientId, ActorId)>,
    visited: BTreeSet<(ClientId, ActorId)>,
}

impl Unnamed {
    pub fn on_owned(&mut self, client: ClientId, actor: ActorId) {
        self.owned.remove(&(client, actor));
    }

    pub fn on_visited(&mut self, client: ClientId, actor: ActorId) {
        self.visited.remove(&(client, actor));
    }

    pub fn forget(&mut self, client: ClientId) {
        self.take(client);
    }

    /// Returns what is left of this client's, owned and visited, and forgets it.
    fn take(&mut self, client: ClientId) -> [Vec<ActorId>; 2] {
        [&mut self.owned, &mut self.visited].map(|set| {
            let left: Vec<ActorId> = set.range(all_of(client)).map(|(_, actor)| *actor).collect();
            for &actor in &left {
                set.remove(&(client, actor));
            }
            left
        })
    }
}

impl Head {
    /// The client has opened its link anew, and says again what it has.
    pub(in crate::head) fn start_sync(&mut self, client: ClientId) {
        let actors = &mut self.actors;
        let held = actors.held_names.range(all_of(client)).map(|(key, _)| *key);
        let owned = actors.owners.range(all_of(client)).copied().chain(held);
        actors.unnamed.owned.extend(owned);
        actors.unnamed.visited.extend(actors.visitors.range(all_of(client)).copied());
    }

    /// The client has said all that it has (AC-10).
    pub(in crate::head) fn on_synced(&mut self, client: ClientId, out: &mut Vec<Effect>) {
        let Some(entry) = self.clients.get_mut(&client).filter(|client| client.is_up()) else { return };
        // FE-7.
        entry.brings_lost_leases = false;
        let [owned, visited] = self.actors.unnamed.take(client);
        for id in owned {
            self.release_name(client, id);
            if self.actors.all.get(&id).is_some_and(|actor| actor.owner == Some(client)) {
                self.end_actor(id, "its owner has no more use for it".into());
            }
        }
        for id in visited {
            self.end_visit(id, client, out);
        }
    }
}

fn all_of(client: ClientId) -> std::ops::RangeInclusive<(ClientId, ActorId)> {
    (client, ActorId(0))..=(client, ActorId(u128::MAX))
}
