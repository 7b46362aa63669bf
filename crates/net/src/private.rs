//! The directory of a slot whose client is on another machine: its own, and gone with it.
//!
//! * PD-1: only its owner may look inside, and nobody else's directory is ever taken for it.
//! * PD-2: its name follows from the number of the process, so that whoever reaps that process can remove it.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::PathBuf;

/// Where the directory of this process is, or would be.
fn path_of(process: u32) -> PathBuf {
    std::env::temp_dir().join(format!("paceline-slot-{process}"))
}

/// Make one for this process.
pub fn create() -> io::Result<PathBuf> {
    let path = path_of(std::process::id());
    let make = || DirBuilder::new().mode(0o700).create(&path);
    match make() {
        // Of a process that had this number before, and whose zygote was killed.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            remove(std::process::id());
            make()?;
        }
        made => made?,
    }
    Ok(path)
}

/// Remove that of a process that has ended, if it had one.
pub fn remove(process: u32) {
    let path = path_of(process);
    let ours = |found: fs::Metadata| found.is_dir() && found.uid() == rustix::process::geteuid().as_raw();
    if fs::symlink_metadata(&path).is_ok_and(ours) {
        let _ = fs::remove_dir_all(&path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_ours_alone_and_goes_with_its_content() {
        let path = create().unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o700, "PD-1");
        fs::write(path.join("file"), "text").unwrap();
        assert_eq!(create().unwrap(), path, "what is left of another with this number is not used");
        assert!(!path.join("file").exists());
        remove(std::process::id());
        assert!(!path.exists());
    }
}
