//! Connections that name a lease and have not proved its secret yet.
//!
//! A lease's number is readable on the wire, so it must not buy a thread.
//!
//! * UN-1 (bounded): at most [`Limits::per_lease`] connections for one lease and [`Limits::in_all`] in all.
//! * UN-2 (fair eviction): the oldest connection of the source that has most of them makes room: of the same lease if
//!   that has too many, else of the lease that has most. Whoever has the secret comes from a source of its own.
//! * UN-3 (evicted ones count until they are over): the thread of one that had to go may not have run yet. A source that has
//!   [`Limits::per_lease`] of those gets no other, and nobody if there are [`Limits::in_all`]. So at most twice the bounds
//!   of UN-1 cost anything, however fast they come.

use super::Source;
use paceline_proto::LeaseId;
use std::collections::BTreeMap;

/// Bounds the connections that have proved nothing.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub per_lease: usize,
    pub in_all: usize,
}

/// The bounds of a node, for its stores, and of a slot.
pub const LIMITS: Limits = Limits { per_lease: 8, in_all: 64 };
/// The bounds of what a node relays. These cost no thread, they count as unproved for a while after they have proved the
/// secret to the other node, and a client may reach all its leases through one node.
pub const RELAY_LIMITS: Limits = Limits { per_lease: 8, in_all: 1024 };

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
    /// Those that had to go and are not over yet.
    leaving: BTreeMap<u64, Source>,
    arrived: u64,
}

/// One more connection has its place.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Arrival {
    pub number: u64,
    /// Has to be closed for it.
    pub evicted: Option<u64>,
}

impl Unproved {
    pub fn new(limits: Limits) -> Unproved {
        Unproved { limits, connections: BTreeMap::new(), leaving: BTreeMap::new(), arrived: 0 }
    }

    /// Takes one more. None: too many that had to go are not over yet.
    pub fn arrive(&mut self, lease: LeaseId, source: Source) -> Option<Arrival> {
        let of_source = self.leaving.values().filter(|one| **one == source).count();
        if of_source >= self.limits.per_lease || self.leaving.len() >= self.limits.in_all {
            return None;
        }
        let of_lease = self.connections.values().filter(|one| one.lease == lease).count();
        let crowded = if of_lease >= self.limits.per_lease {
            Some(lease)
        } else if self.connections.len() >= self.limits.in_all {
            self.largest(|one| one.lease, |_| true)
        } else {
            None
        };
        let evicted = crowded.and_then(|crowded| self.victim(crowded));
        if let Some((number, connection)) = evicted.and_then(|number| self.connections.remove_entry(&number))
        {
            self.leaving.insert(number, connection.source);
        }
        self.arrived += 1;
        self.connections.insert(self.arrived, Connection { lease, source });
        debug_assert_eq!(self.check(), Ok(()));
        Some(Arrival { number: self.arrived, evicted })
    }

    /// Forgets one that has proved the secret, or is over.
    pub fn remove(&mut self, number: u64) {
        self.connections.remove(&number);
        self.leaving.remove(&number);
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
            None if self.leaving.len() > self.limits.in_all => {
                Err(format!("UN-3: {} are not over yet", self.leaving.len()))
            }
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

    /// Arrives, and whoever has to make room for it is over at once.
    fn arrive(unproved: &mut Unproved, lease: u128, from: u8) -> Arrival {
        let arrival = unproved.arrive(LeaseId(lease), source(from)).expect("nothing is leaving");
        arrival.evicted.into_iter().for_each(|evicted| unproved.remove(evicted));
        arrival
    }

    #[test]
    fn unproved_flood_of_one_lease_keeps_the_holders_connection() {
        let mut unproved = Unproved::new(LIMITS);
        let holder = arrive(&mut unproved, 1, 1).number;
        for _ in 0..600 {
            assert_ne!(arrive(&mut unproved, 1, 2).evicted, Some(holder), "UN-2");
        }
        assert_eq!(unproved.len(), LIMITS.per_lease, "UN-1");
        unproved.remove(holder);
        // And it gets in while they stand there.
        assert_eq!(arrive(&mut unproved, 1, 1).evicted, None, "the holder's place was free");
    }

    #[test]
    fn flood_whose_threads_have_not_ended_gets_no_more_of_them() {
        let mut unproved = Unproved::new(LIMITS);
        let came = (0..600).filter_map(|_| unproved.arrive(LeaseId(1), source(2))).count();
        assert_eq!(came, 2 * LIMITS.per_lease, "UN-3");
        assert!(unproved.arrive(LeaseId(1), source(1)).is_some(), "the holder gets in all the same");
    }

    #[test]
    fn flood_from_many_sources_is_bounded_while_its_threads_have_not_ended() {
        let mut unproved = Unproved::new(LIMITS);
        let sources = (0..600_u32).map(|number| Source::V4((0x0a00_0000 + number).to_be_bytes()));
        let came = sources.filter_map(|source| unproved.arrive(LeaseId(1), source)).count();
        assert_eq!(came, LIMITS.per_lease + LIMITS.in_all, "UN-3");
    }

    #[test]
    fn unproved_connections_of_many_leases_are_bounded() {
        let mut unproved = Unproved::new(LIMITS);
        let mut random = Random::new(5);
        let mut number = 0;
        for _ in 0..5000 {
            let lease = LeaseId(random.below(100).into());
            if let Some(arrival) = unproved.arrive(lease, source(random.below(5) as u8)) {
                assert_ne!(arrival.evicted, Some(arrival.number));
                number = arrival.number;
            }
            if random.below(3) == 0 {
                unproved.remove(number - random.below(number.min(70)));
            }
            assert_eq!(unproved.check(), Ok(()), "UN-1, UN-3");
        }
    }
}
