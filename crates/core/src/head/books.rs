//! How many bytes clients have made the head keep.
//!
//! Owns: the count for each client, and for each root client with all that work for it. Does not own: what is kept.
//!
//! A limit on the number of things does not bound memory: each may be long, and each slot that is a client may have as
//! many. So the head counts bytes, by root client, and what would be more than `max_client_state` is refused.
//!
//! * BK-1 (bounded): nothing is added to what a root client and its slots have once that is `max_client_state`. Only a slot
//!   that comes to a client brings along what it has.
//! * BK-2 (exact): the books say what is kept.

use super::actors::Said;
use super::{Client, Head};
use paceline_proto::{ClientId, NodeId, Rule, Start};
use std::collections::BTreeMap;

/// What a client costs that has said nothing but its name.
const CLIENT: usize = 1 << 10;
/// What a request costs: it is in several lists.
const WANT: usize = 1 << 10;
/// What an entry of any list costs beside what is in it.
const ENTRY: usize = 128;
/// What an actor costs, and one that is called.
const ACTOR: usize = 1 << 9;
pub(super) const CALLED_ACTOR: usize = 1 << 9;

#[derive(Clone, PartialEq, Default, Debug)]
pub(super) struct Books {
    /// By client: its root, and its bytes.
    clients: BTreeMap<ClientId, (ClientId, usize)>,
    roots: BTreeMap<ClientId, usize>,
}

impl Books {
    fn set(&mut self, client: ClientId, entry: Option<(ClientId, usize)>) {
        let before = match entry {
            Some(entry) => self.clients.insert(client, entry),
            None => self.clients.remove(&client),
        };
        if before == entry {
            return;
        }
        if let Some((root, bytes)) = before {
            let sum = self.roots.get_mut(&root).expect("a client has a root on the books");
            *sum -= bytes;
            if *sum == 0 {
                self.roots.remove(&root);
            }
        }
        if let Some((root, bytes)) = entry {
            *self.roots.entry(root).or_default() += bytes;
        }
    }

    /// What this root client and its slots have.
    pub(super) fn of_root(&self, root: ClientId) -> usize {
        self.roots.get(&root).copied().unwrap_or(0)
    }
}

impl Head {
    /// What the head keeps for this client may have changed.
    pub(super) fn note_kept(&mut self, id: ClientId) {
        self.books.set(id, self.kept(id));
    }

    fn kept(&self, id: ClientId) -> Option<(ClientId, usize)> {
        let client = self.clients.get(&id)?;
        Some((client.root, client.kept_bytes() + self.actors.kept_bytes(id)))
    }

    /// Returns why the head keeps so many more bytes for nobody of this client's family, if it does not (BK-1).
    pub(super) fn refuse_bytes(&self, id: ClientId, more: usize) -> Option<String> {
        let root = self.clients.get(&id)?.root;
        let (has, most) = (self.books.of_root(root), self.config.max_client_state);
        (has + more > most).then(|| no_room(most))
    }

    pub(super) fn check_books(&self) -> Result<(), String> {
        let mut books = Books::default();
        self.clients.keys().for_each(|&id| books.set(id, self.kept(id)));
        if books != self.books {
            return Err(format!("BK-2: the books say {:?}, not {books:?}", self.books));
        }
        let counted = |client: &Client| {
            let programs = client.programs.values().map(program_weight).sum::<usize>();
            let rules = client.placements.values().map(rule_weight).sum::<usize>();
            let near = client.near.values().map(|nodes| near_weight(nodes)).sum::<usize>();
            client.name.len() + programs + rules + client.oversized.len() * ENTRY + near
        };
        let wrong = self.clients.iter().find(|(_, client)| counted(client) != client.bytes);
        match wrong {
            Some((id, client)) => {
                Err(format!("BK-2: {id:?} has {} bytes, not {}", counted(client), client.bytes))
            }
            None => Ok(()),
        }
    }
}

impl Client {
    /// What it has declared and what it asks for; without its actors.
    fn kept_bytes(&self) -> usize {
        CLIENT + self.bytes + self.wants.len() * WANT
    }

    pub(super) fn want_weight() -> usize {
        WANT
    }

    pub(super) fn oversized_weight() -> usize {
        ENTRY
    }
}

/// What the refusal says.
pub(super) fn no_room(most: usize) -> String {
    format!(
        "the head keeps {most} bytes for one client and its tasks, and has as many already (max_client_state of the head)"
    )
}

pub(super) fn program_weight(start: &Start) -> usize {
    start.weight() + ENTRY
}

pub(super) fn rule_weight(rule: &Rule) -> usize {
    rule.weight() + size_of::<Rule>() + ENTRY
}

pub(super) fn near_weight(nodes: &[(NodeId, u32)]) -> usize {
    size_of_val(nodes) + ENTRY
}

/// What an actor costs of which this is said. Its name is in an index, too.
pub(super) fn actor_weight(said: &Said) -> usize {
    let length = |text: &Option<String>| text.as_ref().map_or(0, String::len);
    ACTOR + 2 * length(&said.name) + said.about.len() + length(&said.program)
}
