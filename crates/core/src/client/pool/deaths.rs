//! What becomes of the calls of a pool when one of its slots is gone.

use super::super::deaths::Blame;
use super::super::lease::{InFlight, Lease};
use super::super::task::{ActorDied, Charge, PoolBroken};
use super::super::{Client, Effect, Outcome};
use paceline_proto::{Death, DeathCause};
use std::collections::VecDeque;

impl<Ticket: Clone> Client<Ticket> {
    /// A lease of a pool is over, and was struck off.
    pub(in super::super) fn on_pool_slot_ended(
        &mut self,
        lease: &Lease,
        calls: &VecDeque<InFlight>,
        death: &Death,
        charge: Charge,
        out: &mut Vec<Effect<Ticket>>,
    ) {
        let shape = lease.shape;
        let first = calls.front().map(|call| call.seq);
        let blamed: Vec<(u32, super::super::TaskKey, Blame)> = (calls.iter())
            .map(|call| (call.standing, call.task, Blame::of(call.seq, first, lease.last_sent(), death)))
            .collect();
        let (standing, others): (Vec<_>, Vec<_>) = blamed.into_iter().partition(|call| call.0 > 0);
        standing.iter().for_each(|call| drop(self.tasks.remove(call.1.0)));
        let lost = (death.cause == DeathCause::NodeLost).then(|| self.as_held(lease));
        let Some(pool) = self.pools.open.get_mut(&shape) else {
            return others.into_iter().for_each(|call| self.finish_unplaced(call.1, Outcome::Cancelled, out));
        };
        pool.preparing -= standing.len();
        pool.lost = lost.filter(|lost| lost.exclusive.is_some());
        // One that was told to stop and did not is no fault of the pool (PL-8).
        let told = |call: &(u32, super::super::TaskKey, Blame)| {
            call.2 == Blame::Ran && self.tasks[call.1.0].interrupt
        };
        let is_ours = !pool.spec.once && others.iter().any(told);
        let outlived = pool.spec.owner_program.is_some() && death.cause == DeathCause::NodeLost;
        let counts = !outlived && !is_ours;
        pool.deaths += u32::from(counts);
        let deaths = pool.deaths;
        let over = counts && pool.spec.restarts.is_some_and(|restarts| deaths > restarts);
        let once = pool.spec.once;
        let killed = standing.iter().find(|call| call.2 == Blame::Ran).and_then(|call| {
            let entry = pool.standing.get_mut(&(call.0 - 1))?;
            entry.killed().map(|deaths| (entry.call.name.clone(), deaths))
        });
        let broken = if let Some((call, tries)) = killed {
            Some(PoolBroken::Killed { call, charge, tries })
        } else {
            over.then_some(PoolBroken::Died { charge, deaths })
        };
        for (_, task, blame) in others {
            let ended = match &broken {
                _ if self.tasks[task.0].ticket.is_none() => {
                    self.tasks.remove(task.0);
                    continue;
                }
                _ if once => self.end_of_actor_call(task, blame, charge, deaths, broken.is_none()),
                Some(broken) => Some(Outcome::PoolBroken(Box::new(broken.clone()))),
                None => {
                    self.settle(task, blame, charge, out);
                    continue;
                }
            };
            match ended {
                Some(outcome) => self.finish_unplaced(task, outcome, out),
                None => self.requeue(task),
            }
        }
        if let Some(broken) = broken {
            let outcome = match broken {
                // Nothing that waits here has begun.
                PoolBroken::Died { charge, deaths } if once => {
                    Outcome::ActorDied(Box::new(ActorDied { ran: false, charge, deaths, again: false }))
                }
                broken => Outcome::PoolBroken(Box::new(broken)),
            };
            self.break_pool(shape, outcome, out);
        }
        self.pool_changed(shape, out);
    }

    /// How a call of an actor ends whose slot died. Nothing: it had not begun, and runs in the next slot (PL-5).
    fn end_of_actor_call(
        &self,
        task: super::super::TaskKey,
        blame: Blame,
        charge: Charge,
        deaths: u32,
        again: bool,
    ) -> Option<Outcome> {
        let task = &self.tasks[task.0];
        match blame {
            Blame::NotBegun if again => None,
            Blame::Ran if charge.cause == DeathCause::TimedOut => {
                Some(Outcome::TimedOut { after: task.timeout, attempts: task.attempts + 1 })
            }
            blame => {
                let ran = blame != Blame::NotBegun;
                Some(Outcome::ActorDied(Box::new(ActorDied { ran, charge, deaths, again })))
            }
        }
    }
}
