//! The calls that a slot process runs: how they begin, what happens meanwhile, and how they end.

use super::{Busy, FLUSH_AFTER, Life, Page};
use crate::job::{Fate, value};
use crate::ledger::RunState;
use crate::news::News;
use crate::pool::standing_of;
use crate::world::{Event, Machine, Sim};
use paceline_proto::control::SlotToNode;
use paceline_proto::data::{Call, Reply, Status};
use paceline_proto::{Bytes, DeathCause, LeaseId, Seq};
use std::time::Duration;

const ANNOUNCE_AFTER: Duration = Duration::from_millis(2);

impl Sim {
    /// What the main thread does between calls.
    pub(crate) fn advance(&mut self, process: usize) {
        loop {
            let entry = &mut self.processes[process];
            if entry.life != Life::Alive || entry.busy.is_some() {
                return;
            }
            if entry.exits {
                self.flush(process);
                return self.kill(process, DeathCause::Exit(0));
            }
            if !entry.core.can_claim() && !entry.guests.values().any(|guest| guest.core.can_claim()) {
                self.flush(process);
                self.receive(process);
                // Replies that need no run: calls given back while they waited.
                self.flush(process);
            }
            let entry = &mut self.processes[process];
            if entry.life != Life::Alive {
                // It was told to end by what came in.
                return;
            }
            if entry.busy.is_some() {
                // A call that went on beside others was stopped by what came in, and another one has begun already.
                return;
            }
            let Some((guest, call)) = entry.next_call() else {
                entry.companion_serves = false;
                return;
            };
            self.begin(process, guest, call);
        }
    }

    fn begin(&mut self, process: usize, guest: Option<LeaseId>, call: Call) {
        let entry = &mut self.processes[process];
        entry.runs += 1;
        let run = entry.runs;
        let lease = match guest {
            Some(lease) => lease,
            None => entry.core.lease().expect("calls come under a lease"),
        };
        let guest = guest.map(|lease| {
            let number = entry.guests[&lease].number;
            let (_, page) = entry.guest_pages.get_mut(&number).expect("a guest has its place on the page");
            page.running = Some(call.seq);
            (lease, number)
        });
        if guest.is_none() {
            entry.page.running = Some(call.seq);
        }
        let client = entry.client.expect("a slot with calls is somebody's").0 as usize - 1;
        assert!(entry.defined.contains_key(&call.function), "CL-6: {:?} has no function", call.task);
        assert!(guest.is_some() || entry.environment.is_some(), "{:?} has no environment", call.task);
        let slowness = entry.slowness;
        let task = match standing_of(&call.payload) {
            Some(update) => self.begin_standing(process, client, lease, &call, update),
            None => {
                let task = self.ledger.on_begin(process, client, lease, &call);
                if self.settings.batch.is_zero() {
                    self.ledger.check_order(lease, task, call.task);
                }
                self.check_pool_call(process, task, call.task);
                task
            }
        };
        self.note(|sim| {
            format!("slot {} runs {:?}/{} as {:?}", sim.slot_name(process), call.task, call.attempt, call.seq)
        });
        self.tell(|sim| {
            let node = sim.nodes[sim.processes[process].node].name.clone();
            News::Began { task, attempt: call.attempt, node }
        });
        let job = self.ledger.entries[task].job;
        let program = self.processes[process].program;
        let same = guest.is_some() || job.shape.program == program;
        assert!(same, "ND-7: {:?} runs in another program", call.task);
        self.ledger.tally.program_runs += u64::from(!program.is_own());
        let takes = job.takes * slowness;
        if job.child().is_some() {
            self.after(takes / 2, Event::Nests { process, run });
        } else {
            self.after(takes, Event::RunEnds { process, run });
        }
        if takes > FLUSH_AFTER {
            self.after(FLUSH_AFTER, Event::Companion { process, run });
        }
        if takes > ANNOUNCE_AFTER {
            self.after(ANNOUNCE_AFTER, Event::Announces { process, run });
        }
        assert_eq!(call.timeout, job.timeout, "{:?} has another's time", call.task);
        if !job.timeout.is_zero() {
            self.after(job.timeout, Event::TimesOut { process, run });
        }
        self.processes[process].busy = Some(Busy {
            run,
            task,
            call,
            guest,
            began: self.now,
            stops: None,
            children: Vec::new(),
            waited_for: 0,
            waits: false,
            too_deep: false,
        });
        self.touch(Machine::Slot(process));
        if self.random.percent(self.load.chatter) {
            self.slot_prints(process, (client as u64).to_le_bytes().to_vec());
        }
        if job.beside {
            self.set_beside(process);
        }
    }

    /// User code has run for a while: the companion takes the link over.
    pub(crate) fn companion_looks(&mut self, process: usize, run: u64) {
        if !self.processes[process].running(run) {
            return;
        }
        self.flush(process);
        self.processes[process].companion_serves = true;
        self.receive(process);
        self.flush(process);
    }

    pub(crate) fn announces(&mut self, process: usize, run: u64) {
        if !self.processes[process].running(run) {
            return;
        }
        self.flush(process);
        self.guests_announce(process);
        if self.processes[process].data.is_some()
            && let Some(message) = self.processes[process].core.announce_running()
        {
            self.slot_sends(process, &message);
        }
        self.touch(Machine::Slot(process));
    }

    pub(crate) fn run_ends(&mut self, process: usize, run: u64) {
        let entry = &self.processes[process];
        let beside = self.is_beside(process, run);
        if !beside && !entry.running(run) {
            return;
        }
        if entry.paused_until > self.now {
            let at = entry.paused_until;
            return self.agenda.add(at, Event::RunEnds { process, run });
        }
        if beside {
            return self.beside_ends(process, run);
        }
        let Some(busy) = &entry.busy else { return };
        let (task, job) = (busy.task, self.ledger.entries[busy.task].job);
        match job.fate {
            Fate::Kills => self.kill(process, DeathCause::Signal(11)),
            Fate::Value => self.finish_run(process, Status::Value, value(task, job.size)),
            Fate::Raises => self.finish_run(process, Status::Raised, value(task, 0)),
            Fate::Unsendable => self.finish_run(process, Status::Unsendable, Bytes::new()),
        }
    }

    pub(crate) fn times_out(&mut self, process: usize, run: u64) {
        if self.processes[process].running(run)
            && let Some(call) = self.processes[process].page.running
        {
            self.stop_run(process, None, call, Status::TimedOut);
        }
    }

    /// What was told to stop does, or its slot ends.
    pub(crate) fn stops(&mut self, process: usize, run: u64) {
        if !self.processes[process].running(run) {
            return;
        }
        let Some(Busy { task, stops: Some(why), .. }) = self.processes[process].busy else { return };
        if self.ledger.entries[task].job.stubborn {
            self.processes[process].page.gave_up = why == Status::TimedOut;
            self.ledger.tally.stopped += 1;
            self.kill(process, DeathCause::Signal(9));
        } else {
            self.ledger.tally.interrupted += 1;
            self.finish_run(process, why, Bytes::new());
        }
    }

    /// What runs is to stop, for this reason. Some code cannot, and is killed in the end.
    pub(crate) fn stop_run(&mut self, process: usize, guest: Option<LeaseId>, call: Seq, why: Status) {
        let Some(busy) = &mut self.processes[process].busy else { return };
        let same = busy.call.seq == call && busy.guest.map(|(lease, _)| lease) == guest;
        if same && busy.stops.is_none() {
            busy.stops = Some(why);
            let run = busy.run;
            let stubborn = self.ledger.entries[busy.task].job.stubborn;
            let delay = if stubborn { self.settings.grace } else { Duration::from_micros(100) };
            self.after(delay, Event::Stops { process, run });
        }
    }

    fn finish_run(&mut self, process: usize, status: Status, payload: Bytes) {
        self.leave_children(process);
        let now = self.now;
        let entry = &mut self.processes[process];
        let busy = entry.busy.take().expect("only a running call finishes");
        let page = Page { running: None, finished: busy.call.seq, gave_up: false };
        // It ended by itself, but too late.
        let status = if busy.stops == Some(Status::TimedOut) { Status::TimedOut } else { status };
        let reply = Reply { seq: busy.call.seq, status, took: now.since(busy.began), payload };
        match busy.guest {
            None => {
                entry.page = page;
                entry.core.finish(reply);
            }
            Some((lease, number)) => {
                if let Some(guest) = entry.guests.get_mut(&lease) {
                    entry.guest_pages.insert(number, (lease, page));
                    guest.core.finish(reply);
                }
            }
        }
        let due = busy.call.at_most_once || now.since(entry.last_flush) >= FLUSH_AFTER;
        let detached = entry.detaching.take();
        self.ledger.on_over(busy.task, process, RunState::Over(status));
        if let Some(update) = standing_of(&busy.call.payload).filter(|_| status == Status::Value) {
            self.processes[process].applied.push(update);
        }
        if let Some(lease) = detached {
            self.processes[process].page = Page::default();
            self.slot_tells_node(process, &SlotToNode::Detached { lease });
        }
        if due {
            self.flush(process);
        }
        self.touch(Machine::Slot(process));
        self.advance(process);
    }
}
