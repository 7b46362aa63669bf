//! Clients that have pools and actors: slots that run standing calls before anything else.
//!
//! * SP-1: a call of a pool runs in a slot that has applied every standing call that was accepted before it, or a later
//!   one that makes it void, in their order, each at most once.
//! * SP-2: a call that was sent once runs in a slot that has applied nothing that was accepted after it.
//! * SP-3: a call of an actor begins at most once, and after those that were submitted before it.
//! * SP-4: a slot that was in a pool never runs anything else.
//! * SP-5: whoever waits for an update hears of its end once; and of a broken pool only if there is a reason.
//! * SP-6: whoever waits for slots hears of them once, when so many are there and prepared; and who waits for the end of a
//!   pool when it has ended.

use crate::job::{Fate, Job};
use crate::world::{Event, Sim};
use paceline_core::client::{Outcome, PoolBroken, PoolId, PoolSpec, Standing};
use paceline_proto::data::Call;
use paceline_proto::{Bytes, LeaseId, ProgramId, Resources, Rule, TaskId};
use std::time::Duration;

/// Tickets from this on are those of updates.
pub(crate) const UPDATES: usize = 1 << 40;
/// And from this on those who wait for slots, or for the end.
pub(crate) const WAITS: usize = 1 << 41;

pub(crate) struct Pool {
    client: usize,
    pub id: PoolId,
    pub once: bool,
    restarts: Option<u32>,
    open: bool,
    finished: bool,
    /// One of its standing calls fails wherever it runs.
    spoiled: bool,
    /// The last call that began, of an actor.
    last_begun: Option<TaskId>,
    size: u32,
    /// How many standing calls it began with.
    prepared: usize,
    /// A call that has ended well, and no update was accepted since: it could have brought the state of its slot.
    snapshot: Option<TaskId>,
}

/// Somebody who waits for so many slots of a pool, or for its end.
pub(crate) struct Wait {
    pool: usize,
    slots: Option<u32>,
    ended: bool,
}

pub(crate) struct Update {
    pool: usize,
    id: TaskId,
    key: Option<u8>,
    takes: Duration,
    /// It fails so many times before it does not.
    failures: u32,
    kills: bool,
    ended: bool,
    /// It stands for every update up to its own.
    cuts: bool,
}

/// The standing call that a payload is of.
pub(crate) fn standing_of(payload: &Bytes) -> Option<usize> {
    (payload.len() == 9 && payload[8] == 0xff)
        .then(|| u64::from_le_bytes(payload[..8].try_into().expect("eight bytes")) as usize)
}

fn payload_of(update: usize) -> Bytes {
    [&(update as u64).to_le_bytes()[..], &[0xff]].concat().into()
}

impl Sim {
    /// Open a pool, use one, or close one.
    pub(crate) fn some_pool(&mut self, client: usize) {
        let takes = |pool: &Pool| pool.client == client && pool.open && !pool.finished;
        let mine = self.pools.iter().enumerate().filter(|(_, pool)| takes(pool));
        let open: Vec<usize> = mine.map(|(number, _)| number).collect();
        if open.len() < 2 && (open.is_empty() || self.random.percent(20)) {
            let once = self.random.percent(40);
            let spec = PoolSpec {
                size: if once { 1 } else { self.random.within(1..5) as u32 },
                eager: self.random.percent(50),
                once,
                exclusive: None,
                restarts: self.random.pick(&[None, None, Some(0), Some(2)]),
                owner_program: self.random.percent(30).then(|| "owner".into()),
                calls_per_slot: self.random.pick(&[None, None, None, Some(1), Some(7)]),
                history: 1 << 20,
                needs: self.random.pick(&[Resources::default(), Resources::default(), Resources::cpus(1)]),
                program: ProgramId::OWN,
                rule: Rule::default(),
            };
            let pool = self.open_pool(client, spec);
            for _ in 0..self.random.within(0..3) {
                self.some_update(pool, false);
                self.pools[pool].prepared += 1;
            }
            let lasts = self.random.span(Duration::from_millis(1)..Duration::from_millis(3_000));
            return self.after(lasts, Event::PoolEnds { pool });
        }
        let pool = self.random.pick(&open);
        for _ in 0..self.random.within(1..8) {
            if self.random.percent(25) {
                self.some_update(pool, true);
                continue;
            }
            match self.random.below(20) {
                0 => self.wait_for_pool(pool),
                1 | 2 => self.cut_pool(pool),
                _ => {}
            }
            let job = self.load.job(&mut self.random);
            if !self.clients[client].core.has_room(job.size) {
                return;
            }
            self.submit_to_pool(pool, job);
        }
    }

    pub(crate) fn open_pool(&mut self, client: usize, spec: PoolSpec) -> usize {
        self.ledger.tally.pools += 1;
        self.ledger.tally.actors += u64::from(spec.once);
        let (once, restarts, size) = (spec.once, spec.restarts, spec.size);
        let number = self.pools.len();
        self.note(|_| format!("client {client} opens pool {number}: {spec:?}"));
        let id = self.client_does(client, |core, out| core.open_pool(spec, out));
        let (open, finished, spoiled, last_begun) = (true, false, false, None);
        let (prepared, snapshot) = (0, None);
        self.pools.push(Pool {
            client,
            id,
            once,
            restarts,
            open,
            finished,
            spoiled,
            last_begun,
            size,
            prepared,
            snapshot,
        });
        number
    }

    /// Returns whether somebody has the pool, and it can have slots.
    /// The client that has opened the pool.
    pub(crate) fn owner_of(&self, pool: usize) -> usize {
        self.pools[pool].client
    }

    pub(crate) fn is_in_use(&self, pool: usize) -> bool {
        let Pool { client, id, open, finished, .. } = self.pools[pool];
        let host = &self.clients[client];
        open && !finished && host.alive && host.core.pool_broken(&id).is_none()
    }

    /// Somebody waits for slots of a pool, or for its end.
    pub(crate) fn wait_for_pool(&mut self, pool: usize) {
        let Pool { client, id, .. } = self.pools[pool];
        let slots = self.random.pick(&[None, Some(1), Some(2), Some(9)]);
        let ticket = WAITS + self.waits.len();
        self.waits.push(Wait { pool, slots, ended: false });
        self.client_does(client, |core, out| match slots {
            Some(count) => core.pool_ready(&id, count, ticket, out),
            None => core.pool_ended(&id, ticket, out),
        });
    }

    /// Let the state of a slot stand for all updates so far, as the one who has the pool does with nothing in between.
    pub(crate) fn cut_pool(&mut self, pool: usize) {
        let Pool { client, id, prepared, snapshot, .. } = self.pools[pool];
        let Some(after) = snapshot else { return };
        let number = self.updates.len();
        let call = Standing {
            function: self.clients[client].functions[0],
            payload: payload_of(number),
            name: format!("cut {number}").into(),
            replaces: None,
        };
        if self.clients[client].core.cut_pool(&id, after, prepared as u32, call) {
            self.ledger.tally.cuts += 1;
            let of = self.updates.iter().filter(|update| update.pool == pool);
            let last = of.map(|update| update.id).max().expect("something was cut");
            self.note(|_| format!("client {client} cuts pool {pool} up to {last:?}: {number}"));
            let takes = Duration::from_micros(20);
            let (key, failures, kills, ended) = (None, 0, false, true);
            self.updates.push(Update { pool, id: last, key, takes, failures, kills, ended, cuts: true });
        }
    }

    /// SP-6.
    pub(crate) fn on_wait_ended(&mut self, ticket: usize, outcome: &Outcome) {
        let number = ticket - WAITS;
        let wait = &mut self.waits[number];
        assert!(!std::mem::replace(&mut wait.ended, true), "SP-6: wait {number} ends twice");
        let (slots, pool) = (wait.slots, &self.pools[wait.pool]);
        // Those that were prepared when it ended may have got the next update in the same step.
        let there = self.clients[pool.client].core.pool_places(&pool.id).len() as u32;
        match (slots, outcome) {
            (Some(slots), Outcome::Value(_)) => {
                self.ledger.tally.ready_pools += 1;
                let enough = there >= slots.min(pool.size);
                assert!(enough, "SP-6: {there} of {slots} slots of pool {} are there", wait.pool);
            }
            (None, Outcome::Value(_)) => panic!("SP-6: pool {} has not ended", wait.pool),
            (None, _) => {
                self.ledger.tally.ended_pools += 1;
                assert_eq!(there, 0, "SP-6: pool {} has ended, and has slots", wait.pool);
            }
            (Some(_), _) => {}
        }
    }

    /// A call of a pool has ended well.
    pub(crate) fn on_pool_value(&mut self, task: usize, id: TaskId) {
        if let Some(pool) = self.ledger.entries[task].job.pool {
            let newest =
                self.updates.iter().filter(|update| update.pool == pool).map(|update| update.id).max();
            if newest.is_none_or(|newest| newest < id) {
                self.pools[pool].snapshot = Some(id);
            }
        }
    }

    fn some_update(&mut self, pool: usize, waits: bool) {
        let takes = self.random.pick(&[10, 500, 20_000]);
        let takes = self.random.span(Duration::from_micros(1)..Duration::from_micros(takes + 1));
        let failures = match self.random.below(200) {
            0 => u32::MAX,
            1..6 => self.random.within(1..3) as u32,
            _ => 0,
        };
        let key = self.random.pick(&[None, None, Some(1), Some(2)]);
        let kills = self.random.percent(30);
        self.update_pool(pool, takes, failures, kills, key, waits);
    }

    pub(crate) fn update_pool(
        &mut self,
        pool: usize,
        takes: Duration,
        failures: u32,
        kills: bool,
        key: Option<u8>,
        waits: bool,
    ) -> usize {
        let Pool { client, id, .. } = self.pools[pool];
        let number = self.updates.len();
        self.pools[pool].spoiled |= failures > 0;
        let call = Standing {
            function: self.clients[client].functions[0],
            payload: payload_of(number),
            name: format!("update {number}").into(),
            replaces: key.map(|key| Bytes::from(vec![key])),
        };
        let (ended, cuts) = (!waits, false);
        self.pools[pool].snapshot = None;
        self.updates.push(Update { pool, id: TaskId(0), key, takes, failures, kills, ended, cuts });
        let ticket = waits.then_some(UPDATES + number);
        let now = self.clients[client].clock.read(self.now);
        let mut effects = Vec::new();
        let task = self.clients[client].core.update_pool(now, &id, call, ticket, &mut effects);
        self.updates[number].id = task.expect("the history is far from full");
        self.note(|_| {
            format!("client {client} updates pool {pool}: {number}, fails {failures}, {key:?}, {task:?}")
        });
        self.client_does(client, |_, out| out.append(&mut effects));
        number
    }

    pub(crate) fn submit_to_pool(&mut self, pool: usize, job: Job) -> usize {
        let Pool { client, id, once, .. } = self.pools[pool];
        let retries = if once { 0 } else { job.retries };
        let job = Job { shape: id.shape, pool: Some(pool), levels: 0, priority: 0, retries, ..job };
        let task = self.submit_job(client, job);
        self.note(|_| format!("task {task} is for pool {pool}"));
        task
    }

    /// A pool is through: no more is submitted, or it is closed.
    pub(crate) fn pool_ends(&mut self, pool: usize) {
        let Pool { client, id, open, finished, .. } = self.pools[pool];
        if !open || !self.clients[client].alive || finished || self.random.percent(60) {
            return self.close_pool(pool);
        }
        self.note(|_| format!("client {client} finishes pool {pool}"));
        self.pools[pool].finished = true;
        self.client_does(client, |core, out| core.finish_pool(&id, out));
        let lasts = self.random.span(Duration::from_millis(1)..Duration::from_millis(3_000));
        self.after(lasts, Event::PoolEnds { pool });
    }

    pub(crate) fn close_pool(&mut self, pool: usize) {
        let Pool { client, id, open, .. } = self.pools[pool];
        if !open {
            return;
        }
        self.note(|_| format!("client {client} closes pool {pool}"));
        self.pools[pool].open = false;
        for entry in &mut self.ledger.entries {
            entry.cancelled |= entry.job.pool == Some(pool);
        }
        if self.clients[client].alive {
            self.client_does(client, |core, out| core.close_pool(&id, out));
        }
        let waits = self.updates.iter().position(|update| update.pool == pool && !update.ended);
        assert_eq!(waits, None, "SP-5: somebody waits for an update of a pool that is closed");
        let waits = self.waits.iter().position(|wait| wait.pool == pool && !wait.ended);
        assert_eq!(waits, None, "SP-6: somebody waits for a pool that is closed");
    }

    pub(crate) fn close_pools(&mut self) {
        (0..self.pools.len()).for_each(|pool| self.close_pool(pool));
    }

    /// A slot begins a standing call.
    pub(crate) fn begin_standing(
        &mut self,
        process: usize,
        client: usize,
        lease: LeaseId,
        call: &Call,
        update: usize,
    ) -> usize {
        self.ledger.tally.standing_runs += 1;
        let Update { pool, takes, failures, kills, .. } = self.updates[update];
        self.enter(process, Some(pool));
        let applied = &self.processes[process].applied;
        let last = applied.last().map(|last| self.updates[*last].id);
        let id = self.updates[update].id;
        assert!(last.is_none_or(|last| last < id), "SP-1: {update} is applied after {applied:?}");
        self.updates[update].failures -= u32::from(failures > 0 && failures < u32::MAX);
        let fate = match failures {
            0 => Fate::Value,
            _ if kills => Fate::Kills,
            _ => Fate::Raises,
        };
        let shape = self.pools[pool].id.shape;
        let job = Job { takes, fate, shape, pool: Some(pool), ..Job::new() };
        self.ledger.on_begin_standing(process, client, lease, call, job)
    }

    /// A slot begins a call, which may be a pool's.
    pub(crate) fn check_pool_call(&mut self, process: usize, task: usize, id: TaskId) {
        let of = self.ledger.entries[task].job.pool;
        if self.ledger.entries[task].job.actor.is_some() {
            // A guest's call of what lives there, whatever that is.
            return;
        }
        self.enter(process, of);
        let Some(number) = of else { return };
        self.ledger.tally.pool_runs += 1;
        let applied = &self.processes[process].applied;
        let accepted = |update: &Update| update.pool == number && !update.cuts;
        let all: Vec<usize> = (0..self.updates.len()).filter(|it| accepted(&self.updates[*it])).collect();
        // The newest first: one that is void is as good as applied if the one that makes it void is, and that one may be
        // in a state that stands for it.
        let mut keys = Vec::new();
        for (place, &missing) in all.iter().enumerate().rev() {
            let update = &self.updates[missing];
            let first = place < self.pools[number].prepared;
            let cut = |other: &usize| self.updates[*other].cuts && self.updates[*other].id >= update.id;
            let has = applied.contains(&missing)
                || update.key.is_some_and(|key| keys.contains(&key))
                || !first && applied.iter().any(cut);
            keys.extend(update.key.filter(|_| has));
            assert!(
                has || update.id > id,
                "SP-1: {id:?} runs in a slot of pool {number} that has {applied:?}, and not {missing}"
            );
        }
        let later = applied.iter().any(|update| self.updates[*update].id > id);
        self.ledger.tally.late_runs += u64::from(later);
        let first = self.ledger.times_sent(task) == 1 && self.settings.batch.is_zero();
        assert!(!first || !later, "SP-2: {id:?} runs in a slot of pool {number} that has {applied:?}");
        let pool = &mut self.pools[number];
        if pool.once {
            let before = pool.last_begun.replace(id);
            assert!(before.is_none_or(|before| before < id), "SP-3: {id:?} begins after {before:?}");
        }
    }

    /// SP-4.
    fn enter(&mut self, process: usize, pool: Option<usize>) {
        let entry = &mut self.processes[process];
        assert!(
            entry.pool.is_none() || entry.pool == pool,
            "SP-4: a slot of pool {:?} serves {pool:?}",
            entry.pool
        );
        if entry.pool != pool {
            entry.pool = pool;
            self.check_copy(process);
        }
    }

    /// SP-5.
    pub(crate) fn on_update_ended(&mut self, ticket: usize, outcome: &Outcome) {
        let number = ticket - UPDATES;
        let update = &mut self.updates[number];
        assert!(!std::mem::replace(&mut update.ended, true), "SP-5: update {number} ends twice");
        let pool = &self.pools[update.pool];
        if let Outcome::PoolBroken(why) = outcome {
            let reason = match &**why {
                PoolBroken::Raised { .. } | PoolBroken::Unsendable { .. } => pool.spoiled,
                PoolBroken::Killed { .. } => true,
                PoolBroken::Died { .. } => pool.restarts.is_some(),
            };
            assert!(reason, "SP-5: pool {} is broken by nothing: {why:?}", update.pool);
        }
    }
}
