//! The thread that writes a journal while its head runs.
//!
//! Owns: the open file, and waiting for the disk. Does not own: what is written and when, and when the file is opened again
//! ([`paceline_core::journal`] decides, on the head's own thread).
//!
//! * JW-1: the head's thread never waits for the disk: commands go in, and what came of them comes out as events.
//! * JW-2: one command is under way at a time, which is the queue's doing (JQ-1), so both channels are short.

use super::{Change, Journal, JournalError};
use paceline_core::head::{ENDS_KEPT, Write};
use paceline_core::journal::Event;
use paceline_net::signals;
use paceline_proto::work::{Ended, Standing, to_bytes};
use paceline_proto::{ClusterId, Epoch, WorkId};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{SystemTime, UNIX_EPOCH};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// What the thread is to do.
pub(crate) enum Command {
    Commit(Vec<(WorkId, Write)>),
    Reopen,
}

/// Starts the thread. Once the commands have ended, it closes the file, and then the events end.
pub(crate) fn start(journal: Journal) -> Result<(Sender<Command>, UnboundedReceiver<Event>), JournalError> {
    let (cluster, epoch) = journal.identity()?;
    let path = journal.path().to_owned();
    let failed = {
        let path = path.clone();
        move |source| JournalError::Io { path, source }
    };
    let (commands, received) = channel();
    let (events, told) = unbounded_channel();
    let writer = Writer { path, cluster, epoch, journal: Some(journal) };
    let thread = std::thread::Builder::new().name("paceline-journal".into()).stack_size(512 << 10);
    let run = move || {
        signals::block_all();
        writer.run(received, events);
    };
    thread.spawn(run).map_err(failed)?;
    Ok((commands, told))
}

struct Writer {
    path: PathBuf,
    cluster: ClusterId,
    epoch: Epoch,
    /// None after an error.
    journal: Option<Journal>,
}

impl Writer {
    fn run(mut self, commands: Receiver<Command>, events: UnboundedSender<Event>) {
        for command in commands {
            if events.send(self.perform(&command)).is_err() {
                return;
            }
        }
    }

    fn perform(&mut self, command: &Command) -> Event {
        match command {
            Command::Commit(batch) => match self.commit(batch) {
                Ok(at) => Event::Committed { at },
                Err(error) => Event::Failed { why: error.to_string() },
            },
            Command::Reopen => {
                // Its lock is free before the file is opened again.
                drop(self.journal.take());
                match Journal::reopen(&self.path, self.cluster, self.epoch) {
                    Ok(journal) => {
                        self.journal = Some(journal);
                        Event::Opened
                    }
                    Err(error) => Event::NotOpened { why: error.to_string() },
                }
            }
        }
    }

    /// Writes the batch, and returns the time that its records have.
    fn commit(&self, batch: &[(WorkId, Write)]) -> Result<u64, JournalError> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
        let Some(journal) = &self.journal else {
            let source = std::io::Error::other("it is not open");
            return Err(JournalError::Io { path: self.path.clone(), source });
        };
        let bytes: Vec<(Vec<u8>, Vec<u8>)> = batch.iter().map(|(_, write)| encode(write, now)).collect();
        let changes: Vec<Change<'_>> = (batch.iter().zip(&bytes))
            .map(|((work, write), (first, second))| match write {
                Write::Keep(_) => Change::Accept { number: work.0, record: first, note: second },
                Write::Note(_) => Change::Note { number: work.0, note: first },
                Write::End(_) => Change::End { number: work.0, end: first, most: ENDS_KEPT },
                Write::Forget => Change::Forget { number: work.0 },
                Write::HeadLost(longest) => Change::HeadLost(*longest),
            })
            .collect();
        journal.apply(&changes)?;
        Ok(now)
    }
}

fn encode(write: &Write, now: u64) -> (Vec<u8>, Vec<u8>) {
    match write {
        Write::Keep(record) => {
            let standing = Standing { submitted: now, ..Standing::default() };
            (to_bytes(record), to_bytes(&standing))
        }
        Write::Note(standing) => (to_bytes(standing), Vec::new()),
        Write::End(ended) => (to_bytes(&Ended { at: now, ..ended.clone() }), Vec::new()),
        Write::Forget | Write::HeadLost(_) => (Vec::new(), Vec::new()),
    }
}
