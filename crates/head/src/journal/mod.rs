//! What outlives a head: which cluster it is the head of, how often it was started, and the work that it owns.
//!
//! Owns: one file. Does not own: what is in the records of work, nor when they are written ([`crate::service`] does as the
//! core says).
//!
//! * JR-1: a start is on disk before anybody hears of it ([`Journal::begin`]), so no two starts from one file have the
//!   same number; starts from two copies of it differ in what they draw at random.
//! * JR-2: one head uses the file at a time. The lock is the kernel's and ends with the process.
//! * JR-3: what was written and returned is on disk; what was being written when the machine failed is there as a whole
//!   or not at all.
//! * JR-4: a file that is no journal, or a damaged one, is left as it is.

mod error;

pub use error::JournalError;

use paceline_proto::{ClusterId, Epoch};
use redb::{Database, ReadableDatabase, ReadableTable, ReadableTableMetadata, TableDefinition};
use std::path::{Path, PathBuf};

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
/// The journal is small, and read once.
const CACHE: usize = 256 << 10;

/// An open journal.
pub struct Journal {
    path: PathBuf,
    database: Database,
}

impl Journal {
    /// Open the journal, or make it.
    pub fn open(path: &Path) -> Result<Journal, JournalError> {
        let fail = |error: redb::DatabaseError| JournalError::opening(path, error);
        let database = redb::Builder::new().set_cache_size(CACHE).create(path).map_err(fail)?;
        let journal = Journal { path: path.to_owned(), database };
        match journal.fact("format")? {
            None | Some(FORMAT) => Ok(journal),
            Some(found) => Err(JournalError::Version { path: path.to_owned(), found, known: FORMAT }),
        }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Take the next epoch. `random` makes the cluster's id the first time, and each start another one than that from a
    /// copy of the journal (JR-1).
    pub fn begin(&self, random: [u8; 20]) -> Result<(ClusterId, Epoch), JournalError> {
        let (id, own) = random.split_first_chunk::<16>().expect("it is longer");
        let own = u32::from_le_bytes(own.try_into().expect("the rest is as long"));
        let before = self.fact("epoch")?.unwrap_or_default();
        let cluster = self.fact("cluster")?.unwrap_or(u128::from_le_bytes(*id));
        let epoch = Epoch(before as u64).next(own);
        self.write(|transaction| {
            let mut facts = transaction.open_table(FACTS)?;
            facts.insert("format", FORMAT)?;
            facts.insert("cluster", cluster)?;
            facts.insert("epoch", u128::from(epoch.0))?;
            Ok(())
        })?;
        Ok((ClusterId(cluster), epoch))
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
        self.write(|transaction| {
            transaction.open_table(WORK)?.insert(number, record)?;
            transaction.open_table(NOTES)?.insert(number, note)?;
            Ok(())
        })
    }

    /// Write how far a piece of work has come, in place of what was written before.
    pub fn note(&self, number: u64, note: &[u8]) -> Result<(), JournalError> {
        self.write(|transaction| {
            transaction.open_table(NOTES)?.insert(number, note)?;
            Ok(())
        })
    }

    /// Write how a piece of work ended, in place of all else about it. Of those that have ended the first are forgotten,
    /// beyond `most`.
    pub fn end(&self, number: u64, end: &[u8], most: usize) -> Result<(), JournalError> {
        self.write(|transaction| {
            transaction.open_table(WORK)?.remove(number)?;
            transaction.open_table(NOTES)?.remove(number)?;
            let mut ends = transaction.open_table(ENDS)?;
            ends.insert(number, end)?;
            while ends.len()? > most as u64 {
                ends.pop_first()?;
            }
            Ok(())
        })
    }

    pub fn forget(&self, number: u64) -> Result<(), JournalError> {
        self.write(|transaction| {
            transaction.open_table(WORK)?.remove(number)?;
            transaction.open_table(NOTES)?.remove(number)?;
            Ok(())
        })
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
        read().map_err(|error| JournalError::using(&self.path, error))
    }

    fn fact(&self, name: &str) -> Result<Option<u128>, JournalError> {
        let read = || -> Result<Option<u128>, redb::Error> {
            let transaction = self.database.begin_read()?;
            match transaction.open_table(FACTS) {
                Err(redb::TableError::TableDoesNotExist(_)) => Ok(None),
                table => Ok(table?.get(name)?.map(|value| value.value())),
            }
        };
        read().map_err(|error| JournalError::using(&self.path, error))
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
        write().map_err(|error| JournalError::using(&self.path, error))
    }
}
