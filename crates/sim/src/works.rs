//! Work that the head owns: who submits it, the processes that become it, and what is promised of it.
//!
//! * WS-1: at no time are there two processes that are the same work, whatever has happened to heads, nodes and links
//!   ([`crate::stalls`] checks it).
//! * WS-2: what was answered is in the journal, and stays there until it has ended; in the end it has.
//! * WS-3: it begins at most once more than it may be started again.

use crate::process::Life;
use crate::world::{Event, Sim};
use paceline_core::head::Event as HeadEvent;
use paceline_core::head::{Told, Write};
use paceline_proto::work::{End, Ended, Standing};
use paceline_proto::{DeathCause, Resources, Work, WorkId};
use std::collections::BTreeMap;
use std::time::Duration;

/// How many there are in one run.
const MOST: usize = 6;
/// One that asks for an end of something is told nothing here.
const NOBODY: u64 = u64::MAX;

/// A head's journal, as far as work is concerned.
#[derive(Clone, Default)]
pub(crate) struct Shelf {
    pub works: BTreeMap<WorkId, (Work, Standing)>,
    pub ended: BTreeMap<WorkId, Ended>,
}

/// A piece of work, as whoever submits it knows it.
pub(crate) struct Errand {
    work: Work,
    takes: Duration,
    /// It ends with this exit code.
    code: i32,
    /// The submitter was told that it is accepted.
    answered: bool,
    began: u32,
    /// It came to its own end at least once.
    succeeded: bool,
}

impl Shelf {
    pub fn write(&mut self, id: WorkId, write: Write) {
        match write {
            Write::Keep(work) => drop(self.works.insert(id, (work, Standing::default()))),
            Write::Note(standing) => {
                self.works.get_mut(&id).expect("only of what is kept is anything noted").1 = standing;
            }
            Write::End(ended) => {
                self.works.remove(&id);
                self.ended.insert(id, ended);
            }
            Write::Forget => drop(self.works.remove(&id)),
            Write::HeadLost(_) => unreachable!("it is of no work"),
        }
    }

    fn has(&self, token: u128) -> bool {
        self.works.values().any(|(work, _)| work.token == token)
            || self.ended.values().any(|ended| ended.token == token)
    }
}

impl Sim {
    /// In this run somebody submits work.
    pub(crate) fn start_works(&mut self) {
        for _ in 0..self.random.within(1..MOST as u64) {
            let micros = self.random.pick(&[1_000, 50_000, 2_000_000]);
            let takes = self.random.span(Duration::ZERO..Duration::from_micros(micros));
            let restarts = self.random.pick(&[0, 1, 2]);
            let code = self.random.pick(&[0, 0, 1]);
            let after = self.random.span(Duration::ZERO..Duration::from_secs(1));
            let work = self.add_work(takes, restarts, code);
            self.after(after, Event::Submits { work });
            if self.random.percent(20) {
                let later = self.random.span(Duration::ZERO..Duration::from_secs(3));
                self.after(later, Event::StopsWork { work });
            }
        }
    }

    pub(crate) fn add_work(&mut self, takes: Duration, restarts: u32, code: i32) -> usize {
        let number = self.works.len();
        let work = Work {
            token: number as u128 + 1,
            name: format!("work-{number}"),
            needs: Resources::cpus(1),
            restarts,
            start: (number as u64).to_le_bytes().to_vec(),
            ..Work::default()
        };
        self.works.push(Errand { work, takes, code, answered: false, began: 0, succeeded: false });
        number
    }

    /// Submit it, again and again until there is an answer.
    pub(crate) fn submits(&mut self, work: usize) {
        if self.works[work].answered {
            return;
        }
        let pause = self.settings.head.heartbeat;
        self.after(pause, Event::Submits { work });
        if let Some(head) = self.some_head() {
            self.note(|_| format!("work {work} is submitted to head {head}"));
            let wanted = self.works[work].work.clone();
            self.head_handles(head, HeadEvent::Submit { asker: work as u64, work: wanted });
        }
    }

    /// Somebody wants it to end.
    pub(crate) fn stops_work(&mut self, work: usize) {
        let name = self.works[work].work.name.clone();
        if let Some(head) = self.some_head() {
            self.head_handles(head, HeadEvent::StopWork { asker: NOBODY, name });
        }
    }

    pub(crate) fn submitter_is_told(&mut self, at: usize, asker: u64, told: &Told) {
        let Some(errand) = self.works.get_mut(asker as usize).filter(|_| asker != NOBODY) else { return };
        if told.is_ok() {
            errand.answered = true;
            let token = errand.work.token;
            self.ledger.tally.submitted += 1;
            assert!(
                self.heads[at].shelf_ref().has(token),
                "WS-2: work {asker} was accepted and is not on disk"
            );
        }
    }

    /// A slot becomes work.
    pub(crate) fn slot_becomes(&mut self, process: usize, start: &[u8]) {
        let number = u64::from_le_bytes(start.try_into().expect("a start names its work")) as usize;
        self.note(|sim| format!("slot {} becomes work {number}", sim.slot_name(process)));
        self.processes[process].work = Some(number);
        self.check_copy(process);
        let errand = &mut self.works[number];
        errand.began += 1;
        self.ledger.tally.work_runs += 1;
        assert!(
            errand.began <= errand.work.restarts + 1,
            "WS-3: work {number} begins {} times",
            errand.began
        );
        let takes = errand.takes;
        self.after(takes, Event::WorkEnds { process });
    }

    pub(crate) fn work_ends(&mut self, process: usize) {
        let Some(number) = self.processes[process].work.filter(|_| self.is_alive(process)) else { return };
        let errand = &mut self.works[number];
        errand.succeeded |= errand.code == 0;
        let code = errand.code;
        self.kill(process, DeathCause::Exit(code));
    }

    /// Work is asked to end: it does, or takes no notice.
    pub(crate) fn work_is_asked(&mut self, process: usize) {
        if self.random.percent(50) {
            let pause = self.random.span(Duration::from_micros(10)..Duration::from_millis(50));
            self.after(pause, Event::Leaves { process });
        }
    }

    /// WS-2: nothing that was accepted is missing.
    pub(crate) fn check_works(&self) -> Result<(), String> {
        for (number, errand) in self.works.iter().enumerate().filter(|(_, errand)| errand.answered) {
            if !self.heads[0].shelf_ref().has(errand.work.token) {
                return Err(format!("WS-2: work {number} was accepted and is lost"));
            }
        }
        Ok(())
    }

    /// Whether all that was accepted has ended, and ended as it may.
    pub(crate) fn works_are_over(&self) -> bool {
        let shelf = self.heads[0].shelf_ref();
        for (number, errand) in self.works.iter().enumerate().filter(|(_, errand)| errand.answered) {
            let Some(ended) = shelf.ended.values().find(|ended| ended.token == errand.work.token) else {
                return false;
            };
            let may = match ended.end {
                End::Died { cause: DeathCause::Exit(0), .. } => errand.succeeded,
                End::Died { .. } | End::NodeLost => ended.restarted == errand.work.restarts,
                End::Stopped => true,
            };
            assert!(may, "WS-2: work {number} ended as {ended:?}");
        }
        true
    }

    /// How long what is left of it may take.
    pub(crate) fn works_take(&self) -> Duration {
        let of = |errand: &Errand| (errand.takes + Duration::from_secs(2)) * (errand.work.restarts + 1);
        self.works.iter().map(of).sum::<Duration>() * 2
    }
}

/// For scenarios.
impl Sim {
    /// Submit work that runs for this long, and wait until that is accepted.
    pub fn submit_work(&mut self, takes: Duration, restarts: u32) -> usize {
        let work = self.add_work(takes, restarts, 0);
        self.submits(work);
        self.run_until("the work is accepted", |sim| sim.works[work].answered);
        work
    }

    /// Ask for its end.
    pub fn stop_work(&mut self, work: usize) {
        self.stops_work(work);
    }

    /// The node where it runs now, and how often it has begun.
    pub fn work_at(&self, work: usize) -> (Option<&str>, u32) {
        let alive =
            |process: &&crate::process::Process| process.work == Some(work) && process.life == Life::Alive;
        let process = self.processes.iter().find(alive);
        (process.map(|process| self.nodes[process.node].name.as_str()), self.works[work].began)
    }

    /// What the head says of it.
    pub fn work_state(&self, work: usize) -> Option<&'static str> {
        let head = self.heads_alive().first().copied()?;
        let core = self.heads[head].core.as_ref()?;
        let name = &self.works[work].work.name;
        core.works().iter().find(|status| status.name == *name).map(|status| status.state)
    }

    /// How it ended.
    pub fn work_end(&self, work: usize) -> Option<End> {
        let token = self.works[work].work.token;
        self.heads[0].shelf_ref().ended.values().find(|ended| ended.token == token).map(|ended| ended.end)
    }
}
