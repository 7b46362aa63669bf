//! Files that are there as a whole or not at all.
//!
//! * FL-1: a reader sees the old content or the new one, never a part of it, also after a loss of power.
//! * FL-2: what is written can be read by its owner only, and is never written through a link.

use rustix::fs::{CWD, Mode, OFlags, RenameFlags, fchmod, fsync, open, renameat_with};
use rustix::io::Errno;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Writes a file, in place of one that may be there.
pub fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let new = write_beside(path, bytes)?;
    rename(&new, path)
}

/// Writes a file unless there is one already. Returns whether it did.
pub fn create(path: &Path, bytes: &[u8]) -> io::Result<bool> {
    let new = write_beside(path, bytes)?;
    match rustix::fs::link(&new, path) {
        Ok(()) => {
            fs::remove_file(&new)?;
            sync_directory(path)?;
            Ok(true)
        }
        Err(Errno::EXIST) => {
            fs::remove_file(&new)?;
            Ok(false)
        }
        // Not every file system has links.
        Err(_) => match renameat_with(CWD, &new, CWD, path, RenameFlags::NOREPLACE) {
            Ok(()) => sync_directory(path).map(|()| true),
            Err(Errno::EXIST) => {
                fs::remove_file(&new)?;
                Ok(false)
            }
            Err(error) => {
                let _ = fs::remove_file(&new);
                Err(error.into())
            }
        },
    }
}

fn rename(new: &Path, path: &Path) -> io::Result<()> {
    fs::rename(new, path).inspect_err(|_| drop(fs::remove_file(new)))?;
    sync_directory(path)
}

/// Writes the bytes to disk under a name of their own.
fn write_beside(path: &Path, bytes: &[u8]) -> io::Result<PathBuf> {
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?.to_string_lossy();
    let new = crate::private::unguessable(directory_of(path), &format!(".{name}."))?;
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mode = Mode::RUSR | Mode::WUSR;
    let mut file = fs::File::from(open(&new, flags, mode)?);
    // The mode above was subject to the umask.
    let written = fchmod(&file, mode).map_err(io::Error::from).and_then(|()| file.write_all(bytes));
    // Before it gets its name: after a loss of power a file system may have kept the name and not the content.
    let written = written.and_then(|()| Ok(fsync(&file)?));
    written.inspect_err(|_| drop(fs::remove_file(&new)))?;
    Ok(new)
}

fn sync_directory(path: &Path) -> io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    match fsync(open(directory_of(path), flags, Mode::empty())?) {
        // Not every file system can say that of a directory.
        Err(Errno::INVAL | Errno::BADF | Errno::OPNOTSUPP) | Ok(()) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn directory_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;
    use std::sync::atomic::{AtomicBool, Ordering};

    fn folder(test: &str) -> PathBuf {
        let path = crate::private::unguessable(&std::env::temp_dir(), test).unwrap();
        fs::create_dir(&path).unwrap();
        path
    }

    #[test]
    fn replaced_file_is_seen_whole_by_readers() {
        let folder = folder("file-whole-");
        let path = folder.join("key");
        replace(&path, &[0; 100_000]).unwrap();
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                (0..50_u8).for_each(|round| replace(&path, &vec![round; 100_000]).unwrap());
                over.store(true, Ordering::SeqCst);
            });
            while !over.load(Ordering::SeqCst) {
                let found = fs::read(&path).unwrap();
                assert_eq!(found.len(), 100_000, "FL-1");
                assert!(found.iter().all(|byte| *byte == found[0]), "FL-1");
            }
        });
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1, "nothing else is left");
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn replaced_link_is_not_written_through() {
        let folder = folder("file-link-");
        let (path, target) = (folder.join("key"), folder.join("target"));
        fs::write(&target, "theirs").unwrap();
        std::os::unix::fs::symlink(&target, &path).unwrap();
        replace(&path, b"ours").unwrap();
        assert_eq!(fs::read(&target).unwrap(), b"theirs", "FL-2");
        let found = fs::symlink_metadata(&path).unwrap();
        assert!(found.is_file() && found.mode() & 0o777 == 0o600, "FL-2");
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn created_file_stays_what_the_first_wrote() {
        let folder = folder("file-first-");
        let path = folder.join("key");
        assert!(create(&path, b"first").unwrap());
        assert!(!create(&path, b"second").unwrap());
        assert_eq!(fs::read(&path).unwrap(), b"first");
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1, "nothing else is left");
        assert!(replace(&folder.join("missing/key"), b"x").is_err());
        fs::remove_dir_all(&folder).unwrap();
    }
}
