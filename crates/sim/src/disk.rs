//! The disk under a head's journal, and the shell around the queue of its writes.
//!
//! It takes its time, hangs, fills up, and after an error the database on it refuses everything until it is opened again.
//!
//! * SD-1: a commit is there as a whole or not at all. One that failed, or that was under way when its head died, may be
//!   there all the same.
//! * SD-2: a head that starts while there is no room does not get further than that.

use crate::works::Shelf;
use crate::world::{Event as Happening, Sim};
use paceline_core::Tick;
use paceline_core::head::{Event, Write};
use paceline_core::journal::{Effect, Event as Happened, WriteQueue};
use paceline_proto::{Epoch, WorkId};
use std::time::Duration;

/// A head's journal.
#[derive(Clone, Default)]
pub(crate) struct Disk {
    pub epoch: Epoch,
    pub shelf: Shelf,
    /// The longest time for which anything may go on without a head.
    pub head_lost: Duration,
    /// Nothing is written before it was opened again.
    refuses: bool,
    full_until: Tick,
    commands: u64,
}

/// The queue of one life of a head, and what the disk is doing for it.
#[derive(Default)]
pub(crate) struct Desk {
    queue: WriteQueue,
    under_way: Option<(u64, Command)>,
    wake: Option<Tick>,
}

enum Command {
    Commit(Vec<(WorkId, Write)>),
    Reopen,
}

impl Sim {
    /// What the head writes is on its way to the disk. Returns what it hears at once.
    pub(crate) fn head_writes(&mut self, at: usize, work: WorkId, write: Write) -> Vec<Event> {
        self.queue_handles(at, Happened::Put { work, write })
    }

    fn queue_handles(&mut self, at: usize, event: Happened) -> Vec<Event> {
        let mut effects = Vec::new();
        self.heads[at].desk.queue.handle(self.now, event, &mut effects);
        let mut events = Vec::new();
        for effect in effects {
            match effect {
                Effect::Commit(batch) => self.disk_begins(at, Command::Commit(batch)),
                Effect::Reopen => self.disk_begins(at, Command::Reopen),
                Effect::Answer { work, wrote } => events.push(Event::Written { work, wrote }),
                Effect::WakeAt(wake) => {
                    self.heads[at].desk.wake = Some(wake);
                    self.agenda.add(wake, Happening::WakeJournal { head: at, at: wake });
                }
            }
        }
        events
    }

    pub(crate) fn wake_journal(&mut self, head: usize, at: Tick) {
        if self.heads[head].desk.wake == Some(at) {
            self.heads[head].desk.wake = None;
            let events = self.queue_handles(head, Happened::Tick);
            events.into_iter().for_each(|event| self.head_handles(head, event));
        }
    }

    fn disk_begins(&mut self, at: usize, command: Command) {
        let host = &mut self.heads[at];
        assert!(host.desk.under_way.is_none(), "JQ-1: the disk is asked for two things at a time");
        host.disk.commands += 1;
        let number = host.disk.commands;
        host.desk.under_way = Some((number, command));
        let hangs = self.plan.active && self.random.percent(self.plan.slow_disk);
        let longest = if hangs { self.settings.head.head_lost * 3 / 2 } else { Duration::from_millis(5) };
        self.ledger.tally.hung_writes += u64::from(hangs);
        let takes = self.random.span(Duration::from_micros(20)..longest);
        self.after(takes, Happening::DiskAnswers { head: at, number });
    }

    /// The disk has done what it was asked for, or not.
    pub(crate) fn disk_answers(&mut self, at: usize, number: u64) {
        if self.heads[at].desk.under_way.as_ref().is_none_or(|(asked, _)| *asked != number) {
            return;
        }
        let Some((_, command)) = self.heads[at].desk.under_way.take() else { return };
        if self.plan.active && self.random.percent(self.plan.full_disk) {
            let span = self.random.span(Duration::from_millis(1)..self.settings.head.heartbeat * 3);
            self.heads[at].disk.full_until = self.now + span;
        }
        let full = self.heads[at].disk.full_until > self.now;
        let event = match command {
            Command::Commit(batch) => self.disk_commits(at, batch, full),
            Command::Reopen if full => Happened::NotOpened { why: "the disk is full".into() },
            Command::Reopen => {
                self.heads[at].disk.refuses = false;
                self.ledger.tally.reopened += 1;
                Happened::Opened
            }
        };
        let events = self.queue_handles(at, event);
        events.into_iter().for_each(|event| self.head_handles(at, event));
    }

    fn disk_commits(&mut self, at: usize, batch: Vec<(WorkId, Write)>, full: bool) -> Happened {
        if self.heads[at].disk.refuses || full {
            self.ledger.tally.unwritten += 1;
            // The last thing that failed may have been to say that it is there (SD-1).
            let first = !std::mem::replace(&mut self.heads[at].disk.refuses, true);
            if first && self.random.percent(30) {
                self.disk_takes(at, batch);
            }
            return Happened::Failed { why: "the disk is full".into() };
        }
        self.disk_takes(at, batch);
        Happened::Committed { at: 1 }
    }

    fn disk_takes(&mut self, at: usize, batch: Vec<(WorkId, Write)>) {
        for (id, write) in batch {
            self.note(|_| format!("on the disk of head {at}: {id:?}: {write:?}"));
            match write {
                Write::HeadLost(longest) => self.heads[at].disk.head_lost = longest,
                write => self.heads[at].disk.shelf.write(id, write),
            }
        }
    }

    /// The head is gone, and with it its queue. What was under way may have got there (SD-1).
    pub(crate) fn tear_journal(&mut self, at: usize) {
        let desk = std::mem::take(&mut self.heads[at].desk);
        if let Some((_, Command::Commit(batch))) = desk.under_way {
            let got_there = !self.heads[at].disk.refuses && self.random.percent(50);
            self.ledger.tally.torn += u64::from(!got_there);
            if got_there {
                self.disk_takes(at, batch);
            }
        }
        self.heads[at].disk.refuses = false;
    }

    /// When a head can be started: not before there is room for its epoch (SD-2).
    pub(crate) fn room_at(&self, at: usize) -> Option<Tick> {
        Some(self.heads[at].disk.full_until).filter(|until| *until > self.now)
    }
}

/// For scenarios.
impl Sim {
    /// The disk of the head is full for this long.
    pub fn fill_disk(&mut self, span: Duration) {
        self.heads[0].disk.full_until = self.now + span;
    }

    /// What the head says of its journal.
    pub fn journal_failure(&self) -> Option<String> {
        self.heads[0].desk.queue.status(self.now).failure
    }
}
