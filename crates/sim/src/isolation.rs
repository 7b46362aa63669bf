//! Nodes that are cut off from the head and stand still meanwhile, with an actor on them that must exist once.
//!
//! Each of the three is rare, and what goes wrong needs all of them: the head counts the time of the cut, the node does not
//! notice some of it. So some runs have an actor that lasts, and its node is cut off for longer than the head waits before
//! it has the actor rebuilt (ON-1).
//!
//! Everything is drawn from a stream of its own: runs without it are what they were.

use crate::process::{Life, Process};
use crate::random::Random;
use crate::world::{Event, Sim};
use paceline_proto::Resources;
use std::time::Duration;

/// Share of runs that have it.
const ISOLATION_PERCENT: u64 = 12;

/// Clients do something this often at most: there must be time for the head to give a node up.
const SLOW_PAUSE: Duration = Duration::from_millis(50);

pub(crate) struct Isolation {
    random: Random,
    /// The pool that is the actor.
    actor: Option<usize>,
}

impl Isolation {
    /// Returns what a seed has of it, if anything.
    pub fn of_seed(seed: u64) -> Option<Isolation> {
        let mut random = Random::new(seed ^ 0x1du64 << 56);
        random.percent(ISOLATION_PERCENT).then_some(Isolation { random, actor: None })
    }
}

impl Sim {
    pub(crate) fn start_isolation(&mut self, isolation: Isolation) {
        self.isolation = Some(isolation);
        self.load.pause = self.load.pause.max(SLOW_PAUSE);
        self.after(Duration::from_millis(100), Event::Isolates);
    }

    /// The node of the actor is cut off, and stands still some time later.
    pub(crate) fn isolates(&mut self) {
        let Some(mut isolation) = self.isolation.take().filter(|_| self.plan.active) else { return };
        let (beat, lost) = (self.settings.node.heartbeat, self.settings.node.head_lost);
        let mut again = beat;
        match isolation.actor.filter(|actor| self.is_in_use(*actor)) {
            None => isolation.actor = self.open_somebodys_actor(&mut isolation.random),
            Some(actor) => {
                if let Some(node) = self.host_of(actor) {
                    self.ledger.tally.isolations += 1;
                    let random = &mut isolation.random;
                    let lasts = lost * 2 + beat * 4;
                    let (pause, span) = (random.span(beat / 4..lost / 4), random.span(beat * 2..lost / 2));
                    let with_data = random.percent(50);
                    self.partition(node, self.now + lasts, with_data);
                    self.after(pause, Event::IsolatedStalls { node, span });
                    again = lasts;
                }
            }
        }
        self.isolation = Some(isolation);
        self.after(again, Event::Isolates);
    }

    pub(crate) fn isolated_stalls(&mut self, node: usize, span: Duration) {
        if self.plan.active && self.nodes[node].cut_off_until > self.now {
            self.stall_node(node, span);
        }
    }

    /// The node where the actor lives, if that can reach the head and does not stand still.
    pub(crate) fn host_of(&self, actor: usize) -> Option<usize> {
        let lives = |process: &&Process| {
            process.pool == Some(actor) && process.life == Life::Alive && !process.applied.is_empty()
        };
        let node = self.processes.iter().rfind(lives)?.node;
        let host = &self.nodes[node];
        (host.cut_off_until <= self.now && host.standstill.until(self.now).is_none()).then_some(node)
    }

    pub(crate) fn open_somebodys_actor(&mut self, random: &mut Random) -> Option<usize> {
        let owners: Vec<usize> = (0..self.clients.len())
            .filter(|client| self.clients[*client].alive && self.clients[*client].slot.is_none())
            .filter(|client| self.clients[*client].standstill.until(self.now).is_none())
            .collect();
        if owners.is_empty() {
            return None;
        }
        // There is room for another copy wherever a node is.
        Some(self.open_actor(random.pick(&owners), Resources::default()))
    }
}
