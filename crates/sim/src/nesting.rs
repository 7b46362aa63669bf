//! Tasks that submit tasks: a slot that is a client, and leaves its CPUs to what it waits for.

use crate::job::{Fate, value};
use crate::process::Process;
use crate::world::{Event, Machine, Sim};
use paceline_core::client::Outcome;
use paceline_proto::LeaseId;
use paceline_proto::control::SlotToNode;
use paceline_proto::data::Status;
use std::time::Duration;

impl Sim {
    /// The client that this one works for, itself if it is no slot.
    pub(crate) fn root_of(&self, client: usize) -> usize {
        let slot = self.clients[client].slot.map(|process| &self.processes[process]);
        slot.and_then(|slot| slot.client).map_or(client, |root| root.0 as usize - 1)
    }

    /// A task submits tasks and waits for them.
    pub(crate) fn nests(&mut self, process: usize, run: u64) {
        let entry = &self.processes[process];
        if !entry.running(run) {
            return;
        }
        if entry.paused_until > self.now {
            let at = entry.paused_until;
            return self.agenda.add(at, Event::Nests { process, run });
        }
        let task = entry.busy.as_ref().expect("it runs").task;
        let (job, lease) = (self.ledger.entries[task].job, entry.core.lease());
        // Functions of another program know nobody to submit to.
        let child = job.child().filter(|_| job.shape.program.is_own());
        let (Some(child), Some(lease)) = (child, lease) else {
            return self.after(job.takes / 2, Event::RunEnds { process, run });
        };
        let client = self.nested_client(process);
        self.client_does(client, |core, out| core.work_under(lease, out));
        let children: Vec<usize> = (0..job.children).map(|_| self.submit_job(client, child)).collect();
        let Some(busy) = &mut self.processes[process].busy else { return };
        busy.children = children;
        if job.leaves {
            self.ledger.tally.left_children += 1;
            return self.after(job.takes / 2, Event::RunEnds { process, run });
        }
        self.waits(process, lease);
        self.children_changed(process);
    }

    fn nested_client(&mut self, process: usize) -> usize {
        if let Some(client) = self.processes[process].nested {
            return client;
        }
        let name = format!("slot {}", self.slot_name(process));
        let client = self.add_client_as(&name, Some(process));
        self.processes[process].nested = Some(client);
        client
    }

    fn waits(&mut self, process: usize, lease: LeaseId) {
        self.ledger.tally.blocked += 1;
        let entry = &mut self.processes[process];
        entry.waited_under = Some(lease);
        entry.busy.as_mut().expect("it runs").waits = true;
        if entry.data.is_some()
            && let Some(message) = entry.core.announce_running()
        {
            self.slot_sends(process, &message);
        }
        self.processes[process].core.block();
        self.flush(process);
        self.processes[process].companion_serves = true;
        self.receive(process);
        self.flush(process);
        self.slot_tells_node(process, &SlotToNode::Blocked { lease, blocked: true });
        self.touch(Machine::Slot(process));
    }

    /// Something happened to the client that this slot is.
    pub(crate) fn children_changed(&mut self, process: usize) {
        if self.processes[process].busy.as_ref().is_some_and(|busy| busy.too_deep && busy.waits) {
            self.run_here(process);
        }
        let Some(busy) = self.processes[process].busy.as_mut().filter(|busy| busy.waits) else { return };
        let ended = |child: &&usize| self.ledger.entries[**child].outcome.is_some();
        let ended = busy.children[busy.waited_for..].iter().take_while(ended).count();
        busy.waited_for += ended;
        let (run, takes) = (busy.run, self.ledger.entries[busy.task].job.takes);
        if busy.waited_for == busy.children.len() {
            self.goes_on(process);
            self.after(takes / 2, Event::RunEnds { process, run });
        } else if ended > 0 {
            // It does something with what it has before it waits for the next.
            self.goes_on(process);
            let moment = self.random.span(Duration::from_micros(1)..Duration::from_millis(1));
            self.after(moment, Event::WaitsAgain { process, run });
        }
    }

    /// A task that has used the outcome of one that it had waited for waits for the next.
    pub(crate) fn waits_again(&mut self, process: usize, run: u64) {
        let entry = &self.processes[process];
        if !entry.running(run) {
            return;
        }
        if entry.paused_until > self.now {
            let at = entry.paused_until;
            return self.agenda.add(at, Event::WaitsAgain { process, run });
        }
        match entry.core.lease() {
            Some(lease) => self.waits(process, lease),
            // Its lease is over: nobody waits for what it does.
            None => return self.after(Duration::ZERO, Event::RunEnds { process, run }),
        }
        self.children_changed(process);
    }

    fn goes_on(&mut self, process: usize) {
        let Process { busy: Some(busy), core, .. } = &mut self.processes[process] else { return };
        if !std::mem::take(&mut busy.waits) {
            return;
        }
        busy.too_deep = false;
        core.unblock();
        if let Some(lease) = core.lease() {
            self.slot_tells_node(process, &SlotToNode::Blocked { lease, blocked: false });
        }
        self.touch(Machine::Slot(process));
    }

    /// The node says that too many wait already.
    pub(crate) fn slot_is_too_deep(&mut self, process: usize, lease: LeaseId) {
        let entry = &mut self.processes[process];
        let same = entry.core.lease() == Some(lease);
        if let Some(busy) = entry.busy.as_mut().filter(|busy| same && busy.waits) {
            busy.too_deep = true;
            self.ledger.tally.too_deep += 1;
            self.children_changed(process);
        }
    }

    /// Run what nobody has begun, in the middle of the task that waits for it.
    fn run_here(&mut self, process: usize) {
        let (Some(client), Some(busy)) = (self.processes[process].nested, &self.processes[process].busy)
        else {
            return;
        };
        let has = self.ledger.entries[busy.task].job.shape.needs;
        let lease = self.processes[process].core.lease().unwrap_or_default();
        loop {
            let mut effects = Vec::new();
            let here = self.clients[client].core.take_here(&has, &mut effects);
            for effect in effects {
                self.client_performs(client, effect);
            }
            self.touch(Machine::Client(client));
            let Some(here) = here else {
                let Some(busy) = &mut self.processes[process].busy else { return };
                busy.too_deep = false;
                return self.slot_tells_node(process, &SlotToNode::Waits { lease });
            };
            let job = self.ledger.entries[here.ticket].job;
            let (status, outcome) = match job.fate {
                Fate::Raises => (Status::Raised, Outcome::Raised(value(here.ticket, 0))),
                Fate::Unsendable => (Status::Unsendable, Outcome::Unsendable(Default::default())),
                Fate::Value | Fate::Kills => (Status::Value, Outcome::Value(value(here.ticket, job.size))),
            };
            self.note(|sim| format!("slot {} runs {:?} itself", sim.slot_name(process), here.task));
            let again = if status == Status::Raised { here.retries } else { 0 };
            for attempt in here.attempt..=here.attempt + again {
                self.ledger.on_here(here.ticket, process, lease, attempt, status);
            }
            self.ledger.on_finished(here.ticket, here.task, outcome);
        }
    }

    /// The task ends, and with it what it submitted.
    pub(crate) fn leave_children(&mut self, process: usize) {
        self.goes_on(process);
        let Some(client) = self.processes[process].nested else { return };
        let Some(busy) = &mut self.processes[process].busy else { return };
        for child in std::mem::take(&mut busy.children) {
            let entry = &mut self.ledger.entries[child];
            entry.cancelled |= entry.outcome.is_none();
        }
        self.client_does(client, |core, out| core.cancel_all(|_| true, out));
    }
}
