//! What every task did, kept apart from the machines, and the promises that are checked against it.
//!
//! * LG-1: every task ends exactly once (CL-1), and with the right value.
//! * LG-2: a task runs again only when the lease of each earlier run has ended for its client, by death or loss, or
//!   when its user asked for it.
//! * LG-3: no run of a task has the number of another.
//! * LG-4: a call that was given back never runs.
//! * LG-5: a death is charged to the call that ran; three of them end a task, and no other task pays.
//! * LG-7: a call of an actor runs once at most, and who is told that it has not begun may rely on it.
//! * LG-6: first come, first served on one slot, within a client, a priority and a shape, among tasks that had better run on
//!   the same node, and among those that run anywhere.

use crate::job::{Fate, Job, argument, value};
use crate::tally::Tally;
use paceline_core::client::{LostCause, Outcome, TaskKey};
use paceline_proto::data::{Call, Status};
use paceline_proto::{Bytes, Death, DeathCause, LeaseId, NodeId, OutOfMemory, Seq, TaskId};
use std::collections::{HashMap, HashSet};

/// Where a task had better run, if that matters.
type Nodes = Option<(NodeId, NodeId)>;

/// The deaths that end a task.
pub(crate) const POISON: u32 = 3;

pub(crate) struct Entry {
    pub client: usize,
    /// The client that this one works for, itself if it is no slot.
    root: usize,
    /// The task that submitted it.
    pub parent: Option<usize>,
    pub job: Job,
    pub place: Option<(TaskKey, TaskId)>,
    pub runs: Vec<Run>,
    pub outcome: Option<Outcome>,
    /// Its client ended it, or left.
    pub cancelled: bool,
    /// Where it was sent.
    sent: Vec<(LeaseId, Seq)>,
    /// Deaths charged to it.
    charged: u32,
    /// Deaths of slots that had to end for it to stop.
    stopped: u32,
    /// It had more memory than it may, and is not to run again.
    exceeded: bool,
    /// A lease that had it was lost without a word about what ran, so nobody can tell how often it ran.
    doubtful: bool,
    /// A node was lost that had it.
    node_lost: bool,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Run {
    pub process: usize,
    pub lease: LeaseId,
    pub attempt: u32,
    pub state: RunState,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RunState {
    Running,
    Over(Status),
    /// Its process died in the middle.
    Cut,
}

#[derive(Default)]
pub(crate) struct Ledger {
    pub entries: Vec<Entry>,
    pub tally: Tally,
    /// Tasks that have not ended.
    pub open: usize,
    /// What was sent under each lease, in order.
    sent: HashMap<LeaseId, Vec<(Seq, usize)>>,
    begun: HashMap<(LeaseId, Seq), usize>,
    given_back: HashSet<(LeaseId, Seq)>,
    /// Leases that ended for their client by death or loss.
    ended: HashSet<LeaseId>,
    broken: HashMap<LeaseId, u32>,
    /// Leases under which something began.
    begun_under: HashSet<LeaseId>,
    /// Leases whose slot was told something, and nothing has begun since that would show that it was heard.
    untried: HashSet<LeaseId>,
    /// The last task that began, by lease and priority.
    last_begun: HashMap<(LeaseId, i32, Nodes), TaskId>,
}

impl Ledger {
    pub fn submit(&mut self, client: usize, root: usize, parent: Option<usize>, job: Job) -> usize {
        self.tally.tasks += 1;
        self.tally.nested += u64::from(parent.is_some());
        self.open += 1;
        self.entries.push(Entry {
            client,
            root,
            parent,
            job,
            place: None,
            runs: Vec::new(),
            outcome: None,
            cancelled: false,
            sent: Vec::new(),
            charged: 0,
            stopped: 0,
            exceeded: false,
            doubtful: false,
            node_lost: false,
        });
        self.entries.len() - 1
    }

    /// A client hands a call to a link.
    pub fn on_sent(&mut self, lease: LeaseId, call: &Call) {
        let task = named(&call.payload);
        let calls = self.sent.entry(lease).or_default();
        if calls.last().is_none_or(|(seq, _)| *seq < call.seq) {
            calls.push((call.seq, task));
            self.entries[task].sent.push((lease, call.seq));
        }
    }

    /// A slot begins a standing call of a pool, which is a task that nobody waits for.
    pub fn on_begin_standing(
        &mut self,
        process: usize,
        client: usize,
        lease: LeaseId,
        call: &Call,
        job: Job,
    ) -> usize {
        let task = self.submit(client, client, None, job);
        self.tally.tasks -= 1;
        self.open -= 1;
        let entry = &mut self.entries[task];
        (entry.outcome, entry.cancelled) = (Some(Outcome::Cancelled), true);
        entry.runs.push(Run { process, lease, attempt: call.attempt, state: RunState::Running });
        self.begun.insert((lease, call.seq), task);
        self.begun_under.insert(lease);
        task
    }

    /// How often a task was handed to a link.
    pub fn times_sent(&self, task: usize) -> usize {
        self.entries[task].sent.len()
    }

    /// A slot begins a call. Returns the task.
    pub fn on_begin(&mut self, process: usize, client: usize, lease: LeaseId, call: &Call) -> usize {
        let task = named(&call.payload);
        let entry = &mut self.entries[task];
        let guest = entry.job.actor.is_some();
        assert!(guest || entry.root == client, "{:?} runs in another client's slot", call.task);
        let once = guest || call.at_most_once && entry.job.retries == 0;
        assert!(!once || entry.runs.is_empty(), "LG-7: {:?} runs twice, and must not", call.task);
        assert_eq!(entry.place.map(|(_, id)| id), Some(call.task), "the call has another task's argument");
        assert_eq!(
            call.payload,
            argument(task, entry.job.size),
            "the argument of {:?} is damaged",
            call.task
        );
        assert!(!self.given_back.contains(&(lease, call.seq)), "LG-4: {:?} was given back", call.task);
        for run in &entry.runs {
            assert_ne!(run.attempt, call.attempt, "LG-3: run {} of {:?} twice", run.attempt, call.task);
            let over = self.ended.contains(&run.lease) || self.ended.contains(&lease);
            let asked_for = match run.state {
                RunState::Over(Status::Raised) => entry.job.retry_on.raised,
                RunState::Over(Status::TimedOut) => entry.job.retry_on.timeout,
                _ => false,
            };
            assert!(over || asked_for, "LG-2: {:?} runs again, and {:?} has not ended", call.task, run.lease);
        }
        self.tally.runs += 1;
        self.tally.reruns += u64::from(!entry.runs.is_empty());
        entry.runs.push(Run { process, lease, attempt: call.attempt, state: RunState::Running });
        self.begun.insert((lease, call.seq), task);
        self.begun_under.insert(lease);
        self.untried.remove(&lease);
        task
    }

    /// A slot runs a task itself, in the middle of the one that waits for it.
    pub fn on_here(&mut self, task: usize, process: usize, lease: LeaseId, attempt: u32, status: Status) {
        let entry = &mut self.entries[task];
        let again = entry.runs.iter().any(|run| run.attempt == attempt);
        assert!(!again || entry.doubtful, "LG-3: run {attempt} of task {task} twice");
        assert!(entry.job.shape.program.is_own(), "task {task} is another program's");
        self.tally.here += 1;
        entry.runs.push(Run { process, lease, attempt, state: RunState::Over(status) });
    }

    /// LG-6, for tasks that were sent once only. Others go before younger ones where they come next.
    pub fn check_order(&mut self, lease: LeaseId, task: usize, id: TaskId) {
        let entry = &self.entries[task];
        if entry.sent.len() == 1 {
            let near = entry.job.near.map(|(one, other, _)| (one.min(other), one.max(other)));
            let before = self.last_begun.insert((lease, entry.job.priority, near), id);
            assert!(before.is_none_or(|before| before < id), "LG-6: {id:?} begins after {before:?}");
        }
    }

    pub fn on_over(&mut self, task: usize, process: usize, state: RunState) {
        let mut runs = self.entries[task].runs.iter_mut().rev();
        let run = runs.find(|run| run.process == process && run.state == RunState::Running);
        run.expect("only a running call is over").state = state;
    }

    pub fn on_given_back(&mut self, lease: LeaseId, seq: Seq) {
        assert!(!self.begun.contains_key(&(lease, seq)), "LG-4: {seq:?} of {lease:?} ran and was given back");
        self.tally.withdrawn += u64::from(self.given_back.insert((lease, seq)));
    }

    /// A client that holds this lease is told of its end.
    pub fn on_ended(&mut self, lease: LeaseId, death: &Death) {
        let lost = death.cause == DeathCause::NodeLost;
        self.ended.insert(lease);
        for &(seq, task) in self.sent.get(&lease).map(Vec::as_slice).unwrap_or_default() {
            let entry = &mut self.entries[task];
            if entry.outcome.is_some() {
                continue;
            }
            entry.node_lost |= lost;
            // Its answer died with the slot, so it may run once more for free.
            entry.doubtful |= lost || seq <= death.finished;
        }
        if let Some(seq) = death.running.filter(|_| !lost) {
            let task = self.begun.get(&(lease, seq)).copied();
            let task = task.unwrap_or_else(|| panic!("LG-5: {seq:?} of {lease:?} is charged and never ran"));
            let entry = &mut self.entries[task];
            let cut = entry.runs.iter().any(|run| run.lease == lease && run.state == RunState::Cut);
            assert!(cut, "LG-5: {task} is charged for a slot that it outlived");
            let exceeded = matches!(death.out_of_memory, OutOfMemory::Exceeded(_));
            entry.exceeded |= exceeded && !entry.job.retry_on.memory;
            if death.cause == DeathCause::TimedOut {
                entry.stopped += 1;
            } else {
                entry.charged += 1;
            }
        }
    }

    pub fn has_ended(&self, lease: LeaseId) -> bool {
        self.ended.contains(&lease)
    }

    /// A client lost the link of a lease, and with it what it knows about the slot.
    pub fn on_break(&mut self, lease: LeaseId) {
        *self.broken.entry(lease).or_default() += 1;
    }

    /// A client tells the slot of a lease something that later calls rely on.
    pub fn on_told(&mut self, lease: LeaseId) {
        self.untried.insert(lease);
    }

    /// How often the client of this lease had to tell its slot everything again: because its link broke, because it
    /// ended, or because it was given back before anything had run that would show what the slot has heard.
    pub fn forgotten(&self, lease: LeaseId) -> u32 {
        let broken = self.broken.get(&lease).copied().unwrap_or(0);
        let untried = !self.begun_under.contains(&lease) || self.untried.contains(&lease);
        broken + u32::from(self.ended.contains(&lease)) + u32::from(untried)
    }

    pub fn on_finished(&mut self, task: usize, id: TaskId, outcome: Outcome) {
        let parent = self.entries[task].parent.map(|parent| self.entries[parent].job);
        let entry = &mut self.entries[task];
        assert!(
            entry.place.is_none_or(|(_, known)| known == id),
            "the ticket of {id:?} came back with another"
        );
        assert_eq!(entry.outcome, None, "LG-1: {id:?} ends twice");
        let (job, tally) = (entry.job, &mut self.tally);
        let has_run = entry.runs.iter().any(|run| matches!(run.state, RunState::Over(_)));
        match &outcome {
            Outcome::Value(bytes) => {
                assert_eq!(*bytes, value(task, job.size), "LG-1: a wrong value for {id:?}");
                assert!(job.fate == Fate::Value && has_run, "LG-1: a value of {id:?} out of nowhere");
                tally.values += 1;
            }
            Outcome::Raised(bytes) => {
                assert_eq!((job.fate, bytes), (Fate::Raises, &value(task, 0)), "LG-1: {id:?} never raises");
                let all = !job.retry_on.raised || entry.doubtful || entry.runs.len() > job.retries as usize;
                assert!(all, "{id:?} is given up too soon");
                tally.raised += 1;
            }
            Outcome::Unsendable(_) => {
                assert_eq!((job.fate, has_run), (Fate::Unsendable, true), "LG-1: {id:?} can be sent");
                tally.unsendable += 1;
            }
            Outcome::Cancelled => {
                assert!(entry.cancelled, "{id:?} was cancelled by nobody");
                tally.cancelled += 1;
            }
            Outcome::TimedOut { after, attempts } => {
                assert!(*after == job.timeout && !after.is_zero(), "{id:?} has all the time it wants");
                assert!(entry.doubtful || *attempts as usize == entry.runs.len(), "{id:?} is miscounted");
                tally.timed_out += 1;
            }
            Outcome::Unplaceable(refused) => {
                assert!(job.member.is_some() || !refused.needs.fits_in(&refused.largest), "{id:?} fits");
                tally.unplaceable += 1;
            }
            Outcome::ActorGone(gone) => {
                assert!(job.actor.is_some(), "{id:?} is no call of an actor");
                assert!(gone.ran || entry.runs.is_empty(), "LG-7: {id:?} has run, and nobody is told");
                let known = gone.charge.is_some_and(|charge| charge.cause != DeathCause::NodeLost);
                let wrong = gone.ran && known && entry.runs.is_empty();
                assert!(!wrong, "LG-7: {id:?} is said to have run, and has not");
                tally.actor_died += u64::from(known);
                tally.actor_gone += u64::from(!known);
            }
            Outcome::ActorAway { .. } => {
                assert!(job.actor.is_some() && entry.runs.is_empty(), "LG-7: {id:?} has run");
                tally.actor_away += 1;
            }
            Outcome::Stopped { .. } => unreachable!("nobody here ends the cluster"),
            Outcome::Refused { .. } => unreachable!("nobody here has more links than it may"),
            Outcome::NoRoom(_) => unreachable!("nobody here waits for so long and no longer"),
            Outcome::TooDeep { needs } => {
                let has = parent.map(|parent| parent.shape.needs);
                let fits = job.shape.program.is_own() && has.is_some_and(|has| needs.fits_in(&has));
                assert!(has.is_some() && !fits, "{id:?} could run where it is waited for");
                tally.too_large += 1;
            }
            Outcome::GroupLost(_) => {
                assert!(job.member.is_some(), "{id:?} is in no group");
                // It may have been stopped in the middle, and nobody waited for what it did.
                entry.doubtful = true;
                tally.group_lost += 1;
            }
            Outcome::PoolBroken(_) => {
                assert!(job.pool.is_some(), "{id:?} is in no pool");
                entry.doubtful = true;
                tally.broken_pools += 1;
            }
            Outcome::ActorDied(how) => {
                assert!(job.pool.is_some(), "{id:?} is in no pool");
                assert!(how.ran || entry.runs.is_empty(), "SP-3: {id:?} is said not to have run");
                entry.doubtful = true;
                tally.actor_deaths += 1;
            }
            Outcome::HeadLost { .. } => {
                // Where it was and how often it ran, nobody was left to say.
                entry.doubtful = true;
                tally.head_lost += 1;
            }
            Outcome::NotStarted(_) => {
                assert!(!job.shape.program.is_own(), "{id:?} needs no other program");
                tally.not_started += 1;
            }
            Outcome::Lost(lost) => {
                entry.check_lost(id, lost);
                match lost.cause {
                    LostCause::Poison => tally.poison += 1,
                    LostCause::SlotDied => tally.slot_died += 1,
                    LostCause::NodeLost => tally.node_lost += 1,
                }
            }
        }
        // How often a call of an actor ran was looked at above.
        entry.doubtful |= job.actor.is_some();
        let value = matches!(&outcome, Outcome::Value(_));
        assert!(!value || !entry.exceeded, "{id:?} had too much memory and ran again");
        if !entry.cancelled && !entry.doubtful {
            let deaths = entry.charged + entry.stopped;
            assert_eq!(entry.cuts(), deaths, "LG-5: the deaths of {id:?} are miscounted");
            assert!(entry.runs.len() <= job.retries as usize + 1, "{id:?} has more runs than it may");
        }
        assert!(entry.charged <= POISON, "LG-5: {id:?} was charged {} deaths", entry.charged);
        let with_pool = matches!(&outcome, Outcome::PoolBroken(_));
        if entry.charged == POISON && !entry.cancelled && !with_pool {
            let poison = matches!(&outcome, Outcome::Lost(lost) if lost.cause == LostCause::Poison);
            assert!(poison, "LG-5: {id:?} has three deaths and ends as {outcome:?}");
        }
        entry.outcome = Some(outcome);
        self.open -= 1;
    }
}

impl Entry {
    fn cuts(&self) -> u32 {
        self.runs.iter().filter(|run| run.state == RunState::Cut).count() as u32
    }

    fn check_lost(&self, id: TaskId, lost: &paceline_core::client::Lost) {
        let kills = lost.charges.iter().filter(|charge| charge.cause != DeathCause::NodeLost).count() as u32;
        match lost.cause {
            LostCause::Poison => {
                assert_eq!((self.charged, kills), (POISON, POISON), "LG-5: {id:?} is no poison");
            }
            LostCause::SlotDied => {
                let last = lost.charges.last().map(|charge| charge.cause);
                assert!(last.is_some_and(|cause| cause != DeathCause::NodeLost), "{id:?} ended by {last:?}");
                assert!(self.doubtful || !self.runs.is_empty(), "LG-5: {id:?} pays and never ran");
            }
            LostCause::NodeLost => assert!(self.node_lost, "no node was lost with {id:?}"),
        }
        if !self.doubtful {
            assert_eq!(lost.attempts as usize, self.runs.len(), "LG-5: the runs of {id:?} are miscounted");
            if lost.cause == LostCause::SlotDied && self.job.retry_on.slot_lost && !self.exceeded {
                assert_eq!(self.runs.len(), self.job.retries as usize + 1, "{id:?} is given up too soon");
            }
        }
    }
}

/// The task a call's argument names.
pub(crate) fn named(payload: &Bytes) -> usize {
    let (number, _) = payload.split_first_chunk::<8>().expect("every argument begins with its task's number");
    u64::from_le_bytes(*number) as usize
}
