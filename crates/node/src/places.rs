//! Places for the links that slots open through their node, and for those that clients open to its stores.
//!
//! Owns: who has how many ([`paceline_core::quota`] decides). Does not own: the links; each has its place along with it.
//!
//! * PL-1: a place is given back when its link is gone, and not before.
//! * PL-2: a slot that has all its places keeps no other slot from anything; the next link is refused with the setting's name.
//! * PL-3: a connection that has not proved its lease's secret takes no place of the client's: anybody may name a lease.

use paceline_core::quota::Quota;
use paceline_proto::{ClientId, SlotId};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The settings that bound links at a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LinkLimits {
    /// Links that one slot opens through its node: to the head, to the store, and data connections on their way.
    pub slot_links: usize,
    /// The same for all slots of one client here.
    pub task_links: usize,
    /// Links of one client to the stores here.
    pub store_links: usize,
}

impl Default for LinkLimits {
    fn default() -> LinkLimits {
        LinkLimits { slot_links: 64, task_links: 4096, store_links: 512 }
    }
}

#[derive(Clone)]
pub(crate) struct Places(Arc<Mutex<Quotas>>);

struct Quotas {
    slots: Quota<SlotId>,
    tasks: Quota<ClientId>,
    stores: Quota<ClientId>,
}

/// The place of one link. Give it to whoever has the link.
pub struct LinkPlace {
    of: Places,
    whose: Whose,
}

#[derive(Clone, Copy)]
enum Whose {
    Slot(SlotId, ClientId),
    Store(ClientId),
}

/// There is no place. For people; names the setting.
#[derive(Debug)]
pub(crate) struct NoPlace(pub String);

impl std::error::Error for NoPlace {}

impl fmt::Display for NoPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Places {
    pub(crate) fn new(limits: LinkLimits) -> Places {
        Places(Arc::new(Mutex::new(Quotas {
            slots: Quota::new(limits.slot_links),
            tasks: Quota::new(limits.task_links),
            stores: Quota::new(limits.store_links),
        })))
    }

    fn lock(&self) -> MutexGuard<'_, Quotas> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place for a link that this slot of the client's opens.
    pub(crate) fn of_slot(&self, slot: SlotId, client: ClientId) -> Result<LinkPlace, NoPlace> {
        let mut quotas = self.lock();
        if !quotas.slots.take(slot) {
            let most = quotas.slots.most();
            return Err(NoPlace(format!(
                "a slot may have {most} links at a time (max_slot_links of the node)"
            )));
        }
        if !quotas.tasks.take(client) {
            quotas.slots.give_back(&slot);
            let most = quotas.tasks.most();
            return Err(NoPlace(format!(
                "the tasks of one client may have {most} links at a time on one node (max_task_links of the node)"
            )));
        }
        Ok(LinkPlace { of: self.clone(), whose: Whose::Slot(slot, client) })
    }

    /// A place for a link of this client to a store.
    pub(crate) fn of_store(&self, client: ClientId) -> Result<LinkPlace, NoPlace> {
        let mut quotas = self.lock();
        match quotas.stores.take(client) {
            true => Ok(LinkPlace { of: self.clone(), whose: Whose::Store(client) }),
            false => Err(no_store_place(quotas.stores.most())),
        }
    }

    /// Says whether there is one, for a link that has proved nothing yet: only those that have take one (PL-3).
    pub(crate) fn check_store(&self, client: ClientId) -> Result<(), NoPlace> {
        let quotas = self.lock();
        match quotas.stores.count(&client) < quotas.stores.most() {
            true => Ok(()),
            false => Err(no_store_place(quotas.stores.most())),
        }
    }
}

fn no_store_place(most: usize) -> NoPlace {
    NoPlace(format!(
        "a client may have {most} links at a time to the stores of a node (max_store_links of the node)"
    ))
}

impl Drop for LinkPlace {
    fn drop(&mut self) {
        let mut quotas = self.of.lock();
        match self.whose {
            Whose::Slot(slot, client) => {
                quotas.slots.give_back(&slot);
                quotas.tasks.give_back(&client);
            }
            Whose::Store(client) => quotas.stores.give_back(&client),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: ClientId = ClientId(1);
    const B: ClientId = ClientId(2);

    #[test]
    fn slots_and_clients_have_places_of_their_own() {
        let places = Places::new(LinkLimits { slot_links: 2, task_links: 3, store_links: 1 });
        let mut held = vec![places.of_slot(SlotId(1), A).unwrap(), places.of_slot(SlotId(1), A).unwrap()];
        let refused = places.of_slot(SlotId(1), A).err().unwrap();
        assert!(refused.0.contains("max_slot_links"), "{refused}");
        held.push(places.of_slot(SlotId(2), A).unwrap());
        let refused = places.of_slot(SlotId(2), A).err().unwrap();
        assert!(refused.0.contains("max_task_links"), "{refused}");
        held.push(places.of_slot(SlotId(3), B).expect("PL-2"));
        let store = places.of_store(A).expect("stores have places of their own");
        assert!(places.of_store(A).err().unwrap().0.contains("max_store_links"));
        drop(store);
        assert!(places.of_store(A).is_ok(), "PL-1");
        drop(held);
        // A refusal has taken nothing.
        let again: Vec<_> = (0..2).map(|_| places.of_slot(SlotId(2), A)).collect();
        assert!(again.iter().all(Result::is_ok), "PL-1");
    }
}
