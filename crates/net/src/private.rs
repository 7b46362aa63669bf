//! The directory of a slot whose client is on another machine: its own, and gone with it.
//!
//! * PD-1: only its owner may look inside, and nobody else's directory is ever taken for it.
//! * PD-2: nobody can guess its name before it is there. So nobody who shares the directory for temporary files, another
//!   user or a container with process numbers of its own, can be there first.
//! * PD-3: it is locked while its slot lives. One that is not was left behind by a zygote that was killed, and goes when
//!   its node ends, or when the next one starts.

use crate::kept::Kept;
use rustix::fs::{FlockOperation, Mode, OFlags, flock, open};
use std::fs::{self, DirBuilder};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

const PREFIX: &str = "paceline-slot-";

/// Returns a path in `parent` that nobody can guess.
pub fn unguessable(parent: &Path, prefix: &str) -> io::Result<PathBuf> {
    let mut random = [0; 16];
    rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty())?;
    Ok(parent.join(format!("{prefix}{:032x}", u128::from_le_bytes(random))))
}

/// Makes a directory for its owner only, and has it locked by `lock` before it gets its name: whoever removes what is not
/// locked never finds one that is about to be used. The name it has until then says nothing about the final one (PD-2).
pub fn create_locked<T>(path: &Path, lock: impl FnOnce(&Path) -> io::Result<T>) -> io::Result<T> {
    let parent = path.parent().unwrap_or(Path::new("/"));
    let new = unguessable(parent, ".paceline-new-")?;
    DirBuilder::new().mode(0o700).create(&new)?;
    let made = lock(&new).and_then(|locked| fs::rename(&new, path).map(|()| locked));
    made.inspect_err(|_| drop(fs::remove_dir_all(&new)))
}

/// The name of a directory that may be made. Who draws it removes the directory, who inherits it makes it.
#[derive(Clone, Debug)]
pub struct Reserved(PathBuf);

impl Reserved {
    pub fn draw() -> io::Result<Reserved> {
        unguessable(&std::env::temp_dir(), PREFIX).map(Reserved)
    }

    /// Makes the directory, and locks it for as long as this process lives.
    pub fn create(&self) -> io::Result<PathBuf> {
        let locked = create_locked(&self.0, |new| {
            let directory = open_directory(new)?;
            // Where it cannot be locked, nobody else can lock it either, so it stays.
            let _ = flock(&directory, FlockOperation::NonBlockingLockExclusive);
            Ok(directory)
        })?;
        // It is closed when the process ends, and in forked children.
        std::mem::forget(Kept::new(locked));
        Ok(self.0.clone())
    }

    /// Removes the directory with all that is in it, if it was made.
    pub fn remove(&self) {
        if is_ours(&self.0) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }
}

/// Removes the directories of slots that are gone (PD-3).
pub fn remove_stale(parent: &Path) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let random = name.to_str().and_then(|name| name.strip_prefix(PREFIX)).unwrap_or_default();
        let named = random.len() == 32 && random.bytes().all(|byte| byte.is_ascii_hexdigit());
        if !named || !is_ours(&entry.path()) {
            continue;
        }
        let Ok(directory) = open_directory(&entry.path()) else { continue };
        if flock(&directory, FlockOperation::NonBlockingLockExclusive).is_ok() {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

fn open_directory(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(open(path, flags, Mode::empty())?)
}

fn is_ours(path: &Path) -> bool {
    let ours = |found: fs::Metadata| found.is_dir() && found.uid() == rustix::process::geteuid().as_raw();
    fs::symlink_metadata(path).is_ok_and(ours)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parent(test: &str) -> PathBuf {
        let path = unguessable(&std::env::temp_dir(), test).unwrap();
        fs::create_dir(&path).unwrap();
        path
    }

    #[test]
    fn slot_directory_is_its_owners_alone_and_goes_with_its_content() {
        let parent = parent("private-alone-");
        let reserved = Reserved(unguessable(&parent, PREFIX).unwrap());
        let path = reserved.create().unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o700, "PD-1");
        fs::write(path.join("file"), "text").unwrap();
        reserved.remove();
        assert_eq!(fs::read_dir(&parent).unwrap().count(), 0);
        fs::remove_dir(&parent).unwrap();
    }

    #[test]
    fn slot_directory_names_have_nothing_in_common() {
        let (one, other) = (Reserved::draw().unwrap(), Reserved::draw().unwrap());
        assert_ne!(one.0, other.0, "PD-2");
        let pid = format!("{PREFIX}{}", std::process::id());
        assert!(!one.0.ends_with(pid), "PD-2");
    }

    #[test]
    fn slot_directory_whose_name_is_taken_is_refused() {
        let parent = parent("private-taken-");
        let (link, file, full) = (parent.join("link"), parent.join("file"), parent.join("full"));
        fs::create_dir_all(full.join("target")).unwrap();
        std::os::unix::fs::symlink(full.join("target"), &link).unwrap();
        fs::write(&file, "text").unwrap();
        for taken in [link, file, full.clone()] {
            assert!(Reserved(taken.clone()).create().is_err(), "PD-1: {taken:?}");
            assert!(fs::symlink_metadata(&taken).is_ok(), "PD-1: what was there stays: {taken:?}");
        }
        assert_eq!(fs::read_dir(full.join("target")).unwrap().count(), 0, "PD-1: no link is followed");
        assert_eq!(fs::read_dir(&parent).unwrap().count(), 3, "nothing of the attempt is left");
        fs::remove_dir_all(&parent).unwrap();
    }

    #[test]
    fn slot_directory_of_a_killed_zygote_is_removed_by_the_next_node() {
        let parent = parent("private-stale-");
        let used = Reserved(unguessable(&parent, PREFIX).unwrap()).create().unwrap();
        let left = unguessable(&parent, PREFIX).unwrap();
        fs::create_dir_all(left.join("folder")).unwrap();
        let other = parent.join(format!("{PREFIX}7"));
        fs::create_dir(&other).unwrap();
        remove_stale(&parent);
        assert!(used.exists() && other.exists() && !left.exists(), "PD-3");
        fs::remove_dir_all(&parent).unwrap();
    }
}
