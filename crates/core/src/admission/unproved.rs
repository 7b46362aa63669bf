//! Connections that name a lease and have not proved its secret yet.
//!
//! A lease's number is readable on the wire, so it must not buy a thread.
//!
//! * UN-1 (bounded): at most [`Limits::per_lease`] connections for one lease and [`Limits::in_all`] in all.
//! * UN-2 (fair eviction): the oldest connection of the source that has most of them makes room: of the same lease if
//!   that has too many, else of the lease that has most. Whoever has the secret comes from a source of its own.

use super::Source;
use paceline_proto::LeaseId;
use std::collections::BTreeMap;

/// Bounds the connections that have proved nothing.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub per_lease: usize,
    pub in_all: usize,
}

/// The bounds of a node, for its stores and for what it relays, and of a slot.
pub const LIMITS: Limits = Limits { per_lease: 8, in_all: 64 };

#[derive(Clone, Copy, Debug)]
struct Connection {
    lease: LeaseId,
    source: Source,
}

/// Decides which connections that have proved nothing stay.
pub struct Unproved {
    limits: Limits,
    /// In the order of arrival.
    connections: BTreeMap<u64, Connection>,
    arrived: u64,
}

impl Unproved {
    pub fn new(limits: Limits) -> Unproved {
        Unproved { limits, connections: BTreeMap::new(), arrived: 0 }
    }

    /// Takes one more. Returns its number, and which one has to be closed for it.
    pub fn arrive(&mut self, lease: LeaseId, source: Source) -> (u64, Option<u64>) {
        let of_lease = self.connections.values().filter(|one| one.lease == lease).count();
        let crowded = if of_lease >= self.limits.per_lease {
            Some(lease)
        } else if self.connections.len() >= self.limits.in_all {
            self.largest(|one| one.lease, |_| true)
        } else {
            None
        };
        let victim = crowded.and_then(|crowded| self.victim(crowded));
        if let Some(victim) = victim {
            self.connections.remove(&victim);
        }
        self.arrived += 1;
        self.connections.insert(self.arrived, Connection { lease, source });
        debug_assert_eq!(self.check(), Ok(()));
        (self.arrived, victim)
    }

    /// Forgets one that has proved the secret, or is closed. False: it had to go before.
    pub fn remove(&mut self, number: u64) -> bool {
        self.connections.remove(&number).is_some()
    }

    pub fn len(&self) -> usize {
        self.connections.len()
    }

    pub fn is_empty(&self) -> bool {
        self.connections.is_empty()
    }

    fn victim(&self, lease: LeaseId) -> Option<u64> {
        let source = self.largest(|one| one.source, |one| one.lease == lease)?;
        let mut oldest =
            self.connections.iter().filter(|(_, one)| one.lease == lease && one.source == source);
        oldest.next().map(|(number, _)| *number)
    }

    /// Returns the key that most of these connections have.
    fn largest<K: Ord + Copy>(
        &self,
        key: impl Fn(&Connection) -> K,
        of: impl Fn(&Connection) -> bool,
    ) -> Option<K> {
        let mut counts: BTreeMap<K, usize> = BTreeMap::new();
        for connection in self.connections.values().filter(|one| of(one)) {
            *counts.entry(key(connection)).or_default() += 1;
        }
        counts.into_iter().max_by_key(|(_, count)| *count).map(|(key, _)| key)
    }

    /// Names the first broken invariant.
    pub fn check(&self) -> Result<(), String> {
        let mut counts: BTreeMap<LeaseId, usize> = BTreeMap::new();
        for connection in self.connections.values() {
            *counts.entry(connection.lease).or_default() += 1;
        }
        match counts.into_iter().find(|(_, count)| *count > self.limits.per_lease) {
            Some((lease, count)) => Err(format!("UN-1: {count} connections for {lease}")),
            None if self.len() > self.limits.in_all => Err(format!("UN-1: {} connections", self.len())),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    fn source(number: u8) -> Source {
        Source::V4([10, 0, 0, number])
    }

    #[test]
    fn unproved_flood_of_one_lease_keeps_the_holders_connection() {
        let mut unproved = Unproved::new(LIMITS);
        let (holder, _) = unproved.arrive(LeaseId(1), source(1));
        for _ in 0..600 {
            let (_, evicted) = unproved.arrive(LeaseId(1), source(2));
            assert_ne!(evicted, Some(holder), "UN-2");
        }
        assert_eq!(unproved.len(), LIMITS.per_lease, "UN-1");
        assert!(unproved.remove(holder));
        // And it gets in while they stand there.
        let (_, evicted) = unproved.arrive(LeaseId(1), source(1));
        assert_eq!(evicted, None, "the holder's place was free");
    }

    #[test]
    fn unproved_connections_of_many_leases_are_bounded() {
        let mut unproved = Unproved::new(LIMITS);
        let mut random = Random::new(5);
        for _ in 0..5000 {
            let lease = LeaseId(random.below(100).into());
            let (number, evicted) = unproved.arrive(lease, source(random.below(5) as u8));
            assert_ne!(evicted, Some(number));
            if random.below(3) == 0 {
                unproved.remove(number - random.below(number.min(70)));
            }
            assert_eq!(unproved.check(), Ok(()), "UN-1");
        }
    }
}
