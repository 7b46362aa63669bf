//! Clients that have pools and actors: slots that run standing calls before anything else.
//!
//! * SP-1: a call of a pool runs in a slot that has applied every standing call that was accepted before it, or a later
//!   one that makes it void, in their order, each at most once.
//! * SP-2: a call that was sent once runs in a slot that has applied nothing that was accepted after it.
//! * SP-3: a call of an actor begins at most once, and after those that were submitted before it.
//! * SP-4: a slot that was in a pool never runs anything else.
//! * SP-5: whoever waits for an update hears of its end once; and of a broken pool only if there is a reason.

use crate::job::{Fate, Job};
use crate::world::{Event, Sim};
use paceline_core::client::{Outcome, PoolBroken, PoolId, PoolSpec, Standing};
use paceline_proto::data::Call;
use paceline_proto::{Bytes, LeaseId, ProgramId, Resources, Rule, TaskId};
use std::time::Duration;

/// Tickets from this on are those of updates.
pub(crate) const UPDATES: usize = 1 << 40;

pub(crate) struct Pool {
    client: usize,
    pub id: PoolId,
    once: bool,
    restarts: Option<u32>,
    open: bool,
    finished: bool,
    /// One of its standing calls fails wherever it runs.
    spoiled: bool,
    /// The last call that began, of an actor.
    last_begun: Option<TaskId>,
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
                restarts: self.random.pick(&[None, None, Some(0), Some(2)]),
                calls_per_slot: self.random.pick(&[None, None, None, Some(1), Some(7)]),
                history: 1 << 20,
                needs: self.random.pick(&[Resources::default(), Resources::default(), Resources::cpus(1)]),
                program: ProgramId::OWN,
                rule: Rule::default(),
            };
            let pool = self.open_pool(client, spec);
            for _ in 0..self.random.within(0..3) {
                self.some_update(pool, false);
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
        let (once, restarts) = (spec.once, spec.restarts);
        let number = self.pools.len();
        self.note(|_| format!("client {client} opens pool {number}: {spec:?}"));
        let id = self.client_does(client, |core, out| core.open_pool(spec, out));
        let (open, finished, spoiled, last_begun) = (true, false, false, None);
        self.pools.push(Pool { client, id, once, restarts, open, finished, spoiled, last_begun });
        number
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
        self.updates.push(Update { pool, id: TaskId(0), key, takes, failures, kills, ended: !waits });
        let ticket = waits.then_some(UPDATES + number);
        let now = self.now;
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
        for update in self.updates.iter().enumerate().filter(|(_, it)| it.pool == number && it.id < id) {
            let (missing, update) = update;
            let stands_in = |other: &usize| {
                let other = &self.updates[*other];
                other.key.is_some() && other.key == update.key && other.id > update.id
            };
            let has = applied.contains(&missing) || applied.iter().any(stands_in);
            assert!(
                has,
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
        entry.pool = pool;
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
