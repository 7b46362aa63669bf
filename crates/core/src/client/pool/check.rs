//! The invariants of pools.

use super::super::Client;
use paceline_proto::parts::carried;

impl<Ticket: Clone> Client<Ticket> {
    pub(in super::super) fn check_pools(&self) -> Result<(), String> {
        for (&key, pool) in &self.pools.open {
            let queue = &self.shapes[key];
            let leases = queue.leases.len();
            if leases > pool.spec.size as usize {
                return Err(format!("PL-4: a pool of {} has {leases} leases", pool.spec.size));
            }
            if pool.broken.is_some() && leases + queue.len() + queue.in_flight > 0 {
                return Err(format!("PL-6: a broken pool has {leases} leases and {} calls", queue.len()));
            }
            let bytes: usize = pool.standing.values().map(|entry| carried(&entry.call.payload)).sum();
            if bytes != pool.bytes {
                return Err(format!("PL-1: standing calls take {bytes} bytes, not {}", pool.bytes));
            }
            let mut preparing = 0;
            for lease in queue.leases.iter().map(|lease| &self.leases[lease.0]) {
                let standing = lease.in_flight().filter(|call| call.standing > 0).count();
                if standing != lease.preparing as usize {
                    return Err(format!("PL-2: {standing} standing calls are in flight on {:?}", lease.id));
                }
                preparing += standing;
                let behind = || lease.in_flight().skip_while(|call| call.standing == 0);
                if behind().any(|call| call.standing == 0) {
                    return Err(format!("PL-2: a call was sent to {:?} before it was prepared", lease.id));
                }
                if !behind().is_sorted_by_key(|call| call.standing) {
                    return Err(format!("PL-1: standing calls of {:?} are out of order", lease.id));
                }
                let missing = pool.standing.range(lease.standing..).next().map(|(_, entry)| entry.id);
                let mut calls = lease.in_flight().filter(|call| call.standing == 0);
                if calls.any(|call| missing.is_some_and(|missing| self.tasks[call.task.0].id > missing)) {
                    return Err(format!(
                        "PL-1: a call on {:?} came before what it is to run behind",
                        lease.id
                    ));
                }
            }
            if preparing != pool.preparing {
                return Err(format!(
                    "PL-2: {preparing} standing calls are in flight, not {}",
                    pool.preparing
                ));
            }
        }
        Ok(())
    }
}
