//! The work that the head owns, as far as disks and askers are concerned.
//!
//! Owns: the way to the journal while the head runs, and who waits to hear of what is written to it. Does not own: what is
//! written ([`paceline_core::head`] decides), when ([`paceline_core::journal`]), nor the writing itself, which is the work
//! of a thread ([`crate::journal::writer`]).

use crate::ask::Asker;
use crate::journal::writer::{self, Command};
use crate::journal::{Journal, JournalError};
use crate::links::LinkId;
use paceline_core::Tick;
use paceline_core::head::{Event, Write};
use paceline_core::journal::{Effect, Event as Happened, WriteQueue};
use paceline_net::{alarm, clock};
use paceline_proto::work::{Ended, Standing, from_bytes};
use paceline_proto::{Work, WorkId};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::mpsc::Sender;
use std::time::Duration;
use tokio::sync::mpsc::UnboundedReceiver;

/// A disk that has not answered for so long is reported.
const STALL_WARNING: Duration = Duration::from_secs(3);

#[derive(Default)]
pub(crate) struct Works {
    shelf: Option<Shelf>,
    /// Those who submitted or stopped something and wait for an answer.
    askers: BTreeMap<u64, Asker>,
    asked: u64,
}

/// The journal of a head that runs.
struct Shelf {
    path: PathBuf,
    queue: WriteQueue,
    commands: Sender<Command>,
    events: UnboundedReceiver<Happened>,
    wake: Option<Tick>,
    /// It was reported that the disk does not answer.
    stalled: bool,
}

/// What the journal's thread or the clock has to say.
pub(crate) enum News {
    Happened(Box<Happened>),
    /// The thread is gone.
    Ended,
    /// The disk has not answered for long.
    Stalled,
}

/// Work that the journal knows, and what has ended.
pub(crate) type Known = (Vec<(WorkId, Work, Standing)>, Vec<(WorkId, Ended)>);

/// What the heads before have left.
pub(crate) fn read(journal: &Journal) -> Result<Known, JournalError> {
    let damaged = |error: paceline_proto::Error| JournalError::Damaged {
        path: PathBuf::from(journal.path()),
        reason: error.to_string(),
    };
    let mut notes: BTreeMap<u64, Vec<u8>> = journal.notes()?.into_iter().collect();
    let mut works = Vec::new();
    for (number, record) in journal.work()? {
        let standing = notes.remove(&number).map_or(Ok(Standing::default()), |note| from_bytes(&note));
        works.push((WorkId(number), from_bytes(&record).map_err(damaged)?, standing.map_err(damaged)?));
    }
    let mut ended = Vec::new();
    for (number, end) in journal.ends()? {
        ended.push((WorkId(number), from_bytes(&end).map_err(damaged)?));
    }
    Ok((works, ended))
}

impl Works {
    /// Has what is written from now on go to this journal.
    pub(crate) fn open(&mut self, journal: Journal) -> Result<(), JournalError> {
        let path = journal.path().to_owned();
        let (commands, events) = writer::start(journal)?;
        let queue = WriteQueue::default();
        self.shelf = Some(Shelf { path, queue, commands, events, wake: None, stalled: false });
        Ok(())
    }

    pub(crate) fn has_journal(&self) -> bool {
        self.shelf.is_some()
    }

    /// A number for one that waits for an answer.
    pub(crate) fn wait(&mut self, asker: Asker) -> u64 {
        self.asked += 1;
        self.askers.insert(self.asked, asker);
        self.asked
    }

    /// Returns how many questions of this link wait for the journal.
    pub(crate) fn waiting_of(&self, link: LinkId) -> usize {
        self.askers.values().filter(|asker| asker.link == link).count()
    }

    pub(crate) fn found(&mut self, number: u64) -> Option<Asker> {
        self.askers.remove(&number)
    }

    /// Has this written. Returns what the core is to hear at once; the rest comes as [`News`].
    pub(crate) fn write(&mut self, work: WorkId, write: Write) -> Vec<Event> {
        match &mut self.shelf {
            Some(shelf) => shelf.handle(Happened::Put { work, write }),
            None => vec![Event::Written { work, wrote: Err("there is no journal".into()) }],
        }
    }

    /// Waits for the journal's thread, or until it is time to look at the queue again. May be dropped and called again.
    pub(crate) async fn news(&mut self) -> News {
        let Some(shelf) = &mut self.shelf else { return std::future::pending().await };
        let stall = shelf.stall_at();
        tokio::select! {
            biased;
            event = shelf.events.recv() => event.map_or(News::Ended, |event| News::Happened(Box::new(event))),
            () = alarm::reached(shelf.wake.map(|at| at.0)) => {
                shelf.wake = None;
                News::Happened(Box::new(Happened::Tick))
            }
            () = alarm::reached(stall) => News::Stalled,
        }
    }

    /// Takes the news in. Returns what the core is to hear.
    pub(crate) fn on_news(&mut self, news: News) -> Vec<Event> {
        let Some(shelf) = &mut self.shelf else { return Vec::new() };
        match news {
            News::Happened(event) => shelf.handle(*event),
            News::Stalled => {
                shelf.stalled = true;
                let path = shelf.path.display();
                tracing::warn!(journal = %path, "the disk of the journal does not answer: what is submitted waits");
                Vec::new()
            }
            News::Ended => {
                tracing::error!("the thread of the journal has ended");
                self.shelf = None;
                Vec::new()
            }
        }
    }

    /// Waits until all is written and the file is closed, for at most `within`. Returns how much was not.
    pub(crate) async fn finish(&mut self, within: Duration) -> usize {
        let until = clock::now() + within.as_nanos() as u64;
        while self.shelf.as_ref().is_some_and(|shelf| !shelf.queue.is_idle()) {
            tokio::select! {
                () = alarm::reached(Some(until)) => break,
                news = self.news() => drop(self.on_news(news)),
            }
        }
        let Some(Shelf { queue, commands, mut events, .. }) = self.shelf.take() else { return 0 };
        drop(commands);
        tokio::select! {
            () = alarm::reached(Some(until)) => {}
            () = async { while events.recv().await.is_some() {} } => {}
        }
        queue.status(Tick(clock::now())).waiting
    }

    /// Returns how the journal is, as a status has it; null without one.
    pub(crate) fn report(&self) -> Value {
        let Some(shelf) = &self.shelf else { return Value::Null };
        let status = shelf.queue.status(Tick(clock::now()));
        let silent = status.silent.filter(|silent| *silent >= STALL_WARNING);
        let state = match (&silent, &status.failure) {
            (Some(_), _) => "stalled",
            (None, Some(_)) => "failed",
            (None, None) => "ok",
        };
        let path = shelf.path.display();
        let trouble = match (&silent, &status.failure) {
            (Some(silent), _) => Some(format!(
                "the disk of the journal {path} has not answered for {} s: {} writes wait for it, and so do programs that \
                 were submitted; what runs goes on",
                silent.as_secs(),
                status.waiting
            )),
            (None, Some(why)) => {
                Some(format!("the last write to the journal failed, and nothing was written since: {why}"))
            }
            (None, None) => None,
        };
        json!({
            "path": path.to_string(),
            "state": state,
            "waiting": status.waiting,
            "silent_seconds": silent.map(|silent| silent.as_secs()),
            "trouble": trouble,
        })
    }

    /// Returns a sentence if something is wrong with the journal.
    pub(crate) fn trouble(&self) -> Option<String> {
        self.report()["trouble"].as_str().map(str::to_owned)
    }
}

impl Shelf {
    fn stall_at(&self) -> Option<u64> {
        let now = Tick(clock::now());
        let silent = self.queue.status(now).silent.filter(|_| !self.stalled)?;
        Some(now.0 + STALL_WARNING.saturating_sub(silent).as_nanos() as u64)
    }

    fn handle(&mut self, event: Happened) -> Vec<Event> {
        let before = self.queue.status(Tick(clock::now())).failure;
        if !matches!(event, Happened::Put { .. } | Happened::Tick) && std::mem::take(&mut self.stalled) {
            tracing::info!("the disk of the journal answers again");
        }
        let mut effects = Vec::new();
        self.queue.handle(Tick(clock::now()), event, &mut effects);
        let mut events = Vec::new();
        for effect in effects {
            // A thread that is gone is told of as news.
            match effect {
                Effect::Commit(batch) => drop(self.commands.send(Command::Commit(batch))),
                Effect::Reopen => drop(self.commands.send(Command::Reopen)),
                Effect::Answer { work, wrote } => events.push(Event::Written { work, wrote }),
                Effect::WakeAt(at) => self.wake = Some(at),
            }
        }
        match (before, self.queue.status(Tick(clock::now())).failure) {
            (None, Some(error)) => {
                tracing::error!(error, "the journal cannot be written: it is opened again")
            }
            (Some(_), None) => tracing::info!("the journal is written again"),
            _ => {}
        }
        events
    }
}
