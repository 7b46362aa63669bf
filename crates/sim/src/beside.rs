//! Calls that go on beside others in their slot: deferred as they begin, answered in any order.

use crate::job::{Fate, value};
use crate::ledger::RunState;
use crate::process::{Busy, Life, Page};
use crate::world::{Event, Machine, Sim};
use paceline_proto::data::{Reply, Status};
use paceline_proto::{Bytes, DeathCause, Seq};
use std::time::Duration;

/// When the companion tells the client of calls that go on.
const TOLD_AFTER: Duration = Duration::from_millis(2);

impl Sim {
    /// The call that has just begun leaves the main thread to others.
    pub(crate) fn set_beside(&mut self, process: usize) {
        let entry = &mut self.processes[process];
        let busy = entry.busy.take().expect("it has just begun");
        assert!(entry.core.defer(busy.call.seq), "it was claimed");
        entry.page = Page { running: None, finished: busy.call.seq, gave_up: false };
        entry.beside.push(busy);
        self.ledger.tally.beside += 1;
        self.after(TOLD_AFTER, Event::TellsBegun { process });
        self.touch(Machine::Slot(process));
    }

    pub(crate) fn tells_begun(&mut self, process: usize) {
        let entry = &mut self.processes[process];
        if entry.life == Life::Alive
            && entry.data.is_some()
            && let Some(message) = entry.core.announce_deferred()
        {
            self.slot_sends(process, &message);
        }
    }

    pub(crate) fn is_beside(&self, process: usize, run: u64) -> bool {
        let entry = &self.processes[process];
        entry.life == Life::Alive && entry.beside.iter().any(|busy| busy.run == run)
    }

    pub(crate) fn beside_ends(&mut self, process: usize, run: u64) {
        let Some(busy) = self.processes[process].beside.iter().find(|busy| busy.run == run) else { return };
        let (task, job) = (busy.task, self.ledger.entries[busy.task].job);
        match job.fate {
            Fate::Kills => self.kill(process, DeathCause::Signal(11)),
            Fate::Value => self.answer_beside(process, run, Status::Value, value(task, job.size)),
            Fate::Raises => self.answer_beside(process, run, Status::Raised, value(task, 0)),
            Fate::Unsendable => self.answer_beside(process, run, Status::Unsendable, Bytes::new()),
        }
    }

    /// The client wants it to stop, and it does.
    pub(crate) fn stop_beside(&mut self, process: usize, call: Seq) -> bool {
        let busy = self.processes[process].beside.iter().find(|busy| busy.call.seq == call);
        let run = busy.map(|busy| busy.run);
        if let Some(run) = run {
            self.ledger.tally.interrupted += 1;
            self.answer_beside(process, run, Status::Cancelled, Bytes::new());
        }
        run.is_some()
    }

    fn answer_beside(&mut self, process: usize, run: u64, status: Status, payload: Bytes) {
        let entry = &mut self.processes[process];
        let Some(place) = entry.beside.iter().position(|busy| busy.run == run) else { return };
        let busy: Busy = entry.beside.remove(place);
        entry.core.answer(Reply { seq: busy.call.seq, status, took: Duration::ZERO, payload });
        self.ledger.on_over(busy.task, process, RunState::Over(status));
        self.touch(Machine::Slot(process));
        self.flush(process);
        self.advance(process);
    }
}
