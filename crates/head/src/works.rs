//! The work that the head owns, as far as disks and askers are concerned.
//!
//! Owns: the journal while the head runs, and who waits to hear of what is written to it. Does not own: what is written,
//! and when ([`paceline_core::head`] decides).

use crate::ask::Asker;
use crate::journal::{Journal, JournalError};
use paceline_core::head::{ENDS_KEPT, Write, Wrote};
use paceline_proto::work::{Ended, LONGEST_RECORD, Standing, from_bytes, to_bytes};
use paceline_proto::{Work, WorkId};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

#[derive(Default)]
pub(crate) struct Works {
    pub journal: Option<Journal>,
    /// Those who submitted or stopped something and wait for an answer.
    askers: BTreeMap<u64, Asker>,
    asked: u64,
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
    /// A number for one that waits for an answer.
    pub(crate) fn wait(&mut self, asker: Asker) -> u64 {
        self.asked += 1;
        self.askers.insert(self.asked, asker);
        self.asked
    }

    pub(crate) fn found(&mut self, number: u64) -> Option<Asker> {
        self.askers.remove(&number)
    }

    /// Write, and wait for the disk: what is answered next must not be undone by a crash.
    pub(crate) fn write(&mut self, work: WorkId, write: Write) -> Wrote {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
        let Some(journal) = &self.journal else { return Err("there is no journal".into()) };
        let wrote = match write {
            Write::Keep(record) => {
                let bytes = to_bytes(&record);
                if bytes.len() > LONGEST_RECORD {
                    let size = bytes.len();
                    return Err(format!(
                        "the start record of {} has {size} bytes, and may have {LONGEST_RECORD}; put large things into files",
                        record.name
                    ));
                }
                let standing = Standing { submitted: now, ..Standing::default() };
                journal.accept(work.0, &bytes, &to_bytes(&standing))
            }
            Write::Note(standing) => journal.note(work.0, &to_bytes(&standing)),
            Write::End(ended) => journal.end(work.0, &to_bytes(&Ended { at: now, ..ended }), ENDS_KEPT),
            Write::Forget => journal.forget(work.0),
        };
        if let Err(error) = &wrote {
            tracing::error!(%error, %work, "the journal cannot be written");
        }
        wrote.map(|()| now).map_err(|error| error.to_string())
    }
}
