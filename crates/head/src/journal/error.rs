//! What can be wrong with a journal, and what to do about it.

use std::io;
use std::path::{Path, PathBuf};

/// Why a head cannot use its journal.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// Another head uses it (JR-2).
    #[error("the journal {} is in use: a head of this cluster runs already; stop it first, or start a cluster of another name", .path.display())]
    InUse { path: PathBuf },
    #[error("this is no journal of a head: {} ({reason}); move the file away, or name another directory", .path.display())]
    Foreign { path: PathBuf, reason: String },
    /// The library says so of a file that was just opened (JR-5).
    #[error("the journal {} is damaged ({reason}); move it away to start a new cluster, whose nodes have to join again", .path.display())]
    Damaged { path: PathBuf, reason: String },
    #[error("the journal {} is of format {found}, and this version knows {known}; use the version of Paceline that wrote it", .path.display())]
    Version { path: PathBuf, found: u128, known: u128 },
    #[error("no space left on the disk for the journal {}; free some: nothing that was accepted is lost", .path.display())]
    Full { path: PathBuf },
    #[error("the journal {} cannot be used: {source}; see to its disk: nothing that was accepted is lost", .path.display())]
    Io { path: PathBuf, source: io::Error },
    /// JR-6.
    #[error("the journal {} is not the one that this head has begun: somebody has put another in its place; put it back, or start the head again", .path.display())]
    Replaced { path: PathBuf },
}

impl JournalError {
    pub(super) fn opening(path: &Path, error: redb::DatabaseError) -> JournalError {
        match error {
            redb::DatabaseError::DatabaseAlreadyOpen => JournalError::InUse { path: path.to_owned() },
            redb::DatabaseError::UpgradeRequired(found) => JournalError::Foreign {
                path: path.to_owned(),
                reason: format!("its file format {found} is older than this version reads"),
            },
            other => JournalError::reading(path, other.into()),
        }
    }

    /// What reading has shown of a file that was just opened.
    pub(super) fn reading(path: &Path, error: redb::Error) -> JournalError {
        let path = path.to_owned();
        match error {
            redb::Error::Corrupted(reason) => JournalError::Damaged { path, reason },
            other @ (redb::Error::TableTypeMismatch { .. } | redb::Error::TypeDefinitionChanged { .. }) => {
                JournalError::Foreign { path, reason: other.to_string() }
            }
            redb::Error::Io(source) => match source.kind() {
                // Its first bytes are those of something else.
                io::ErrorKind::InvalidData => JournalError::Foreign { path, reason: source.to_string() },
                // It is shorter than it says itself.
                io::ErrorKind::UnexpectedEof => {
                    JournalError::Damaged { path, reason: "it ends too early".into() }
                }
                _ => JournalError::of_io(path, source),
            },
            other => JournalError::Io { path, source: io::Error::other(other.to_string()) },
        }
    }

    /// What writing has come to. It may be of an earlier error and of what that has left in memory, so none of it is
    /// damage before the file was opened again (JR-5).
    pub(super) fn writing(path: &Path, error: redb::Error) -> JournalError {
        let path = path.to_owned();
        match error {
            redb::Error::Io(source) => JournalError::of_io(path, source),
            other => JournalError::Io { path, source: io::Error::other(other.to_string()) },
        }
    }

    fn of_io(path: PathBuf, source: io::Error) -> JournalError {
        match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
                JournalError::Full { path }
            }
            _ => JournalError::Io { path, source },
        }
    }
}
