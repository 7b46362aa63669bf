//! What outlives a head: which cluster it is the head of, how often it was started, and the work that it owns.
//!
//! Owns: one file, and the thread that writes it while the head runs ([`writer`]). Does not own: what is in the records of
//! work, nor when they are written ([`paceline_core::journal`] decides).
//!
//! * JR-1: a start is on disk before anybody hears of it ([`Journal::begin`]), so no two starts from one file have the
//!   same number; starts from two copies of it differ in what they draw at random.
//! * JR-2: one head uses the file at a time. The lock is the kernel's and ends with the process.
//! * JR-3: what was written and returned is on disk; what was being written when the machine failed is there as a whole
//!   or not at all.
//! * JR-4: a file that is no journal, or a damaged one, is left as it is.
//! * JR-5: no error of the disk is called damage. The database refuses everything after one until it is opened again, and
//!   only what it says of a file that was just opened, twice, is believed.
//! * JR-6: a file that is opened again is used only if it is still the one of this start of the head.
//! * JR-7: for how long anything may go on without a head is on disk before the start that lets it, and stays there for as
//!   long as that may be so, whatever later starts are told.

mod error;
#[cfg(test)]
mod tests;
pub(crate) mod writer;

pub use error::JournalError;

use paceline_proto::{ClusterId, Epoch};
use redb::{Database, ReadableDatabase, ReadableTable, ReadableTableMetadata, TableDefinition};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Facts about the cluster, by name.
const FACTS: TableDefinition<'_, &str, u128> = TableDefinition::new("facts");
/// Records of work that the head owns, by number.
const WORK: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("work");
/// How far each has come, by the same numbers. Apart from the records, which may be long and never change.
const NOTES: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("notes");
/// What has ended, by the same numbers.
const ENDS: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("ends");

/// What this version writes; a later one must still read it.
const FORMAT: u128 = 1;
/// What heads had that did not write it down: their default.
const UNKNOWN_HEAD_LOST: Duration = Duration::from_secs(60);
/// The journal is small, and read once.
const CACHE: usize = 256 << 10;

/// An open journal.
pub struct Journal {
    path: PathBuf,
    database: Database,
}

/// One change of a journal, by the number of a piece of work.
pub enum Change<'a> {
    /// A record, and how far it has come, in place of earlier ones.
    Accept {
        number: u64,
        record: &'a [u8],
        note: &'a [u8],
    },
    Note {
        number: u64,
        note: &'a [u8],
    },
    /// How it ended, in place of all else about it. Of those that have ended the first are forgotten, beyond `most`.
    End {
        number: u64,
        end: &'a [u8],
        most: usize,
    },
    Forget {
        number: u64,
    },
    /// The longest time for which anything may go on without a head.
    HeadLost(Duration),
}

/// What a start of the head has to know of those before it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Begun {
    pub cluster: ClusterId,
    pub epoch: Epoch,
    /// The longest time for which anything of an earlier start may go on without a head; nothing if there was none.
    pub earlier_head_lost: Duration,
}

impl Journal {
    /// Open the journal, or make it.
    pub fn open(path: &Path) -> Result<Journal, JournalError> {
        let open = || {
            let database = redb::Builder::new().set_cache_size(CACHE).create(path);
            let database = database.map_err(|error| JournalError::opening(path, error))?;
            Journal { path: path.to_owned(), database }.checked()
        };
        match open() {
            // JR-5: a disk that fails while it is read can look like that once.
            Err(JournalError::Damaged { .. }) => open(),
            opened => opened,
        }
    }

    /// Opens the journal of a start of the head again (JR-6).
    pub fn reopen(path: &Path, cluster: ClusterId, epoch: Epoch) -> Result<Journal, JournalError> {
        let open = || {
            // It is not made anew if it is missing: that would be an empty one.
            let database = redb::Builder::new().set_cache_size(CACHE).open(path);
            let database = database.map_err(|error| JournalError::opening(path, error))?;
            let journal = Journal { path: path.to_owned(), database }.checked()?;
            let found = (journal.fact("cluster")?, journal.fact("epoch")?);
            if found != (Some(cluster.0), Some(u128::from(epoch.0))) {
                return Err(JournalError::Replaced { path: path.to_owned() });
            }
            Ok(journal)
        };
        match open() {
            Err(JournalError::Damaged { .. }) => open(),
            opened => opened,
        }
    }

    fn checked(self) -> Result<Journal, JournalError> {
        match self.fact("format")? {
            None | Some(FORMAT) => Ok(self),
            Some(found) => Err(JournalError::Version { path: self.path.clone(), found, known: FORMAT }),
        }
    }

    /// Returns which cluster's journal it is, and which start of the head was written last.
    pub(crate) fn identity(&self) -> Result<(ClusterId, Epoch), JournalError> {
        let cluster = self.fact("cluster")?.unwrap_or_default();
        Ok((ClusterId(cluster), Epoch(self.fact("epoch")?.unwrap_or_default() as u64)))
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Take the next epoch. `random` makes the cluster's id the first time, and each start another one than that from a
    /// copy of the journal (JR-1). `head_lost` is for how long what this start places may go on without it (JR-7).
    pub fn begin(&self, random: [u8; 20], head_lost: Duration) -> Result<Begun, JournalError> {
        let (id, own) = random.split_first_chunk::<16>().expect("it is longer");
        let own = u32::from_le_bytes(own.try_into().expect("the rest is as long"));
        let before = self.fact("epoch")?.unwrap_or_default();
        let cluster = self.fact("cluster")?.unwrap_or(u128::from_le_bytes(*id));
        let epoch = Epoch(before as u64).next(own);
        let earlier_head_lost = match self.fact("head_lost")? {
            Some(millis) => Duration::from_millis(u64::try_from(millis).unwrap_or(u64::MAX)),
            None if before == 0 => Duration::ZERO,
            None => UNKNOWN_HEAD_LOST,
        };
        self.write(|transaction| {
            let mut facts = transaction.open_table(FACTS)?;
            facts.insert("format", FORMAT)?;
            facts.insert("cluster", cluster)?;
            facts.insert("epoch", u128::from(epoch.0))?;
            facts.insert("head_lost", in_millis(head_lost.max(earlier_head_lost)))?;
            Ok(())
        })?;
        Ok(Begun { cluster: ClusterId(cluster), epoch, earlier_head_lost })
    }

    /// Write a record of work, in place of an earlier one.
    pub fn keep(&self, number: u64, record: &[u8]) -> Result<(), JournalError> {
        self.write(|transaction| {
            transaction.open_table(WORK)?.insert(number, record)?;
            Ok(())
        })
    }

    /// The same, with how far it has come: both or neither.
    pub fn accept(&self, number: u64, record: &[u8], note: &[u8]) -> Result<(), JournalError> {
        self.apply(&[Change::Accept { number, record, note }])
    }

    /// Write how far a piece of work has come, in place of what was written before.
    pub fn note(&self, number: u64, note: &[u8]) -> Result<(), JournalError> {
        self.apply(&[Change::Note { number, note }])
    }

    /// Write how a piece of work ended, in place of all else about it.
    pub fn end(&self, number: u64, end: &[u8], most: usize) -> Result<(), JournalError> {
        self.apply(&[Change::End { number, end, most }])
    }

    pub fn forget(&self, number: u64) -> Result<(), JournalError> {
        self.apply(&[Change::Forget { number }])
    }

    /// Writes all of these changes or none, in their order.
    pub fn apply(&self, changes: &[Change<'_>]) -> Result<(), JournalError> {
        self.write(|transaction| changes.iter().try_for_each(|change| change.write(transaction)))
    }

    /// All records of work, in the order of their numbers.
    pub fn work(&self) -> Result<Vec<(u64, Vec<u8>)>, JournalError> {
        self.all(WORK)
    }

    pub fn notes(&self) -> Result<Vec<(u64, Vec<u8>)>, JournalError> {
        self.all(NOTES)
    }

    pub fn ends(&self) -> Result<Vec<(u64, Vec<u8>)>, JournalError> {
        self.all(ENDS)
    }

    fn all(&self, table: TableDefinition<'_, u64, &[u8]>) -> Result<Vec<(u64, Vec<u8>)>, JournalError> {
        let read = || -> Result<Vec<(u64, Vec<u8>)>, redb::Error> {
            let transaction = self.database.begin_read()?;
            let table = match transaction.open_table(table) {
                Err(redb::TableError::TableDoesNotExist(_)) => return Ok(Vec::new()),
                table => table?,
            };
            let mut records = Vec::new();
            for entry in table.iter()? {
                let (number, record) = entry?;
                records.push((number.value(), record.value().to_vec()));
            }
            Ok(records)
        };
        read().map_err(|error| JournalError::reading(&self.path, error))
    }

    fn fact(&self, name: &str) -> Result<Option<u128>, JournalError> {
        let read = || -> Result<Option<u128>, redb::Error> {
            let transaction = self.database.begin_read()?;
            match transaction.open_table(FACTS) {
                Err(redb::TableError::TableDoesNotExist(_)) => Ok(None),
                table => Ok(table?.get(name)?.map(|value| value.value())),
            }
        };
        read().map_err(|error| JournalError::reading(&self.path, error))
    }

    /// One change, on disk when this returns (JR-3).
    fn write(
        &self,
        change: impl FnOnce(&redb::WriteTransaction) -> Result<(), redb::Error>,
    ) -> Result<(), JournalError> {
        let write = || -> Result<(), redb::Error> {
            let transaction = self.database.begin_write()?;
            change(&transaction)?;
            transaction.commit()?;
            Ok(())
        };
        write().map_err(|error| JournalError::writing(&self.path, error))
    }
}

impl Change<'_> {
    fn write(&self, transaction: &redb::WriteTransaction) -> Result<(), redb::Error> {
        match *self {
            Change::Accept { number, record, note } => {
                transaction.open_table(WORK)?.insert(number, record)?;
                transaction.open_table(NOTES)?.insert(number, note)?;
            }
            Change::Note { number, note } => {
                transaction.open_table(NOTES)?.insert(number, note)?;
            }
            Change::End { number, end, most } => {
                transaction.open_table(WORK)?.remove(number)?;
                transaction.open_table(NOTES)?.remove(number)?;
                let mut ends = transaction.open_table(ENDS)?;
                ends.insert(number, end)?;
                while ends.len()? > most as u64 {
                    ends.pop_first()?;
                }
            }
            Change::HeadLost(longest) => {
                transaction.open_table(FACTS)?.insert("head_lost", in_millis(longest))?;
            }
            Change::Forget { number } => {
                transaction.open_table(WORK)?.remove(number)?;
                transaction.open_table(NOTES)?.remove(number)?;
            }
        }
        Ok(())
    }
}

/// Rounded up: it must not become shorter on disk.
fn in_millis(span: Duration) -> u128 {
    span.as_nanos().div_ceil(1_000_000)
}
