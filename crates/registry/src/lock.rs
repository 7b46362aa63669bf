//! A file that is locked for as long as its process lives.

use paceline_net::lockfile;
use rustix::fs::{Mode, OFlags, open};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// Held until dropped. The kernel lets go of it when the process ends, however it ends.
pub struct Lock {
    _file: OwnedFd,
    path: PathBuf,
}

impl Lock {
    /// Take it, or none if another process has it.
    pub fn take(path: &Path) -> io::Result<Option<Lock>> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        loop {
            let file = open(path, flags, Mode::RUSR | Mode::WUSR)?;
            if !lockfile::try_lock(&file)? {
                return Ok(None);
            }
            // Whoever had it before may have removed the file between our opening and our locking it.
            let same = rustix::fs::stat(path).is_ok_and(|there| {
                rustix::fs::fstat(&file)
                    .is_ok_and(|here| (here.st_dev, here.st_ino) == (there.st_dev, there.st_ino))
            });
            if same {
                return Ok(Some(Lock { _file: file, path: path.to_owned() }));
            }
        }
    }

    /// Returns whether some process has it. Who takes it at the same moment does not notice (RG-5).
    pub fn is_held(path: &Path) -> bool {
        let Ok(file) = open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()) else { return false };
        lockfile::is_locked(&file).unwrap_or(false)
    }

    /// Remove the file, then let go of it.
    pub fn remove(self) {
        let _ = std::fs::remove_file(&self.path);
    }
}
