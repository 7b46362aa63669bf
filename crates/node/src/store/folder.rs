//! The directory of a store: one that is locked is in use, one that is not was left behind.

use rustix::fs::{FlockOperation, Mode, OFlags, flock, open};
use std::fs::{self, DirBuilder};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

const PREFIX: &str = "paceline-node-";
const LOCK: &str = "lock";

/// A name that nobody has, and that nobody can guess before it is there.
pub(super) fn name_in(parent: &Path) -> io::Result<PathBuf> {
    paceline_net::private::unguessable(parent, PREFIX)
}

/// Make it, locked. It has its name only once it is: whoever cleans up never finds one that is about to be used.
pub(super) fn create(path: &Path) -> io::Result<OwnedFd> {
    paceline_net::private::create_locked(path, |new| {
        for part in ["cache", "clients", "gone", "left"] {
            DirBuilder::new().mode(0o700).create(new.join(part))?;
        }
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let lock = open(new.join(LOCK), flags, Mode::RUSR | Mode::WUSR)?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
        Ok(lock)
    })
}

pub(super) fn remove(path: &Path) {
    let _ = fs::remove_dir_all(path);
}

/// Remove what nodes that were killed have left.
pub(super) fn remove_stale(parent: &Path) {
    let user = rustix::process::geteuid().as_raw();
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let ours = entry.file_name().to_string_lossy().starts_with(PREFIX)
            && fs::symlink_metadata(entry.path()).is_ok_and(|found| found.is_dir() && found.uid() == user);
        if !ours {
            continue;
        }
        let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let lock = open(entry.path().join(LOCK), flags, Mode::empty());
        let left = match &lock {
            Ok(lock) => flock(lock, FlockOperation::NonBlockingLockExclusive).is_ok(),
            // Somebody was killed in the middle of removing it.
            Err(error) => *error == rustix::io::Errno::NOENT,
        };
        if left {
            remove(&entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_in_use_stays_and_what_was_left_goes() {
        let parent = std::env::temp_dir().join(format!("store-folder-test-{}", std::process::id()));
        fs::create_dir(&parent).unwrap();
        let (used, left) = (name_in(&parent).unwrap(), name_in(&parent).unwrap());
        let lock = create(&used).unwrap();
        drop(create(&left).unwrap());
        fs::write(left.join("cache/x"), "x").unwrap();
        assert_eq!(fs::metadata(&used).unwrap().mode() & 0o777, 0o700, "SR-1");
        remove_stale(&parent);
        assert!(used.exists() && !left.exists(), "SR-3");
        drop(lock);
        remove_stale(&parent);
        assert!(!used.exists());
        fs::remove_dir(&parent).unwrap();
    }
}
