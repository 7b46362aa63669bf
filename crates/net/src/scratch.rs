//! A file without a name, for bytes that are put aside for a while.
//!
//! * SC-1: nothing has a name on disk once [`Scratch::create`] has returned, so nothing is left when the process is gone,
//!   however it ended.
//! * SC-2: it is closed on exec and in forked children, where reading it fails.

use crate::kept::Kept;
use rustix::buffer::spare_capacity;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{FallocateFlags, Mode, OFlags, fallocate, fstatfs, ftruncate, open, unlink};
use rustix::io::{Errno, pread, pwrite};
use rustix::process::{Resource, getrlimit};
use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};

/// How the kernel numbers the file systems that keep files in memory.
const TMPFS: i64 = 0x0102_1994;
const RAMFS: i64 = 0x8584_58f6;

/// Where files that are no use in memory go: `TMPDIR` if it is set, else the first of `/tmp` and `/var/tmp` that is on a
/// disk.
pub fn directory(tmpdir: Option<&OsStr>) -> PathBuf {
    if let Some(chosen) = tmpdir.filter(|chosen| !chosen.is_empty()) {
        return chosen.into();
    }
    let on_disk = ["/tmp", "/var/tmp"].into_iter().map(Path::new).find(|directory| is_on_disk(directory));
    on_disk.unwrap_or(Path::new("/tmp")).into()
}

#[allow(clippy::unnecessary_cast, reason = "the number has another type on other machines")]
fn is_on_disk(directory: &Path) -> bool {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let kind = open(directory, flags, Mode::empty()).and_then(fstatfs).map(|status| status.f_type as i64);
    kind.is_ok_and(|kind| kind != TMPFS && kind != RAMFS)
}

#[derive(Debug)]
pub struct Scratch(Kept);

impl Scratch {
    pub fn create(directory: &Path) -> io::Result<Scratch> {
        let flags = OFlags::RDWR | OFlags::CLOEXEC;
        let mode = Mode::RUSR | Mode::WUSR;
        let file = match open(directory, flags | OFlags::TMPFILE, mode) {
            // Not every file system makes files without a name.
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::NOENT | Errno::INVAL) => {
                named(directory, flags, mode)?
            }
            opened => opened?,
        };
        Ok(Scratch(Kept::new(file)))
    }

    /// Write all of these bytes at this place, or fail.
    pub fn write_at(&self, mut bytes: &[u8], mut offset: u64) -> io::Result<()> {
        // Beyond the limit a write is answered by a signal that ends most programs.
        let limit = getrlimit(Resource::Fsize).current;
        if limit.is_some_and(|limit| offset.saturating_add(bytes.len() as u64) > limit) {
            return Err(Errno::FBIG.into());
        }
        while !bytes.is_empty() {
            match pwrite(&self.0, bytes, offset) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => {
                    bytes = &bytes[count..];
                    offset += count as u64;
                }
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Read so many bytes from this place.
    pub fn read_at(&self, length: usize, mut offset: u64) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::with_capacity(length);
        while bytes.len() < length {
            let before = bytes.len();
            match pread(&self.0, spare_capacity(&mut bytes), offset) {
                Ok(_) if bytes.len() == before => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(_) => offset += (bytes.len() - before) as u64,
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        // The allocator may have given more room than was asked for, and the file had more to fill it with.
        bytes.truncate(length);
        Ok(bytes)
    }

    /// The same file for others, who only read it.
    pub fn read_only(&self) -> io::Result<OwnedFd> {
        crate::sealed::read_only(self.0.as_fd())
    }

    /// Give the disk back what is here. Where the file system cannot, it stays until [`Scratch::clear`].
    pub fn discard(&self, offset: u64, length: u64) {
        let _ = fallocate(&self.0, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, offset, length);
    }

    /// Give the disk back everything.
    pub fn clear(&self) {
        let _ = ftruncate(&self.0, 0);
    }
}

/// A file that loses its name at once.
fn named(directory: &Path, flags: OFlags, mode: Mode) -> io::Result<OwnedFd> {
    let flags = flags | OFlags::CREATE | OFlags::EXCL;
    let mut random = [0; 16];
    loop {
        rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty())?;
        let name: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
        let path = directory.join(format!("paceline-{name}"));
        match open(&path, flags, mode) {
            Ok(file) => {
                unlink(&path)?;
                return Ok(file);
            }
            Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::fstat;

    #[test]
    fn bytes_come_back_and_go() {
        let directory = std::env::temp_dir();
        let flags = OFlags::RDWR | OFlags::CLOEXEC;
        let files = [
            Scratch::create(&directory).unwrap(),
            Scratch(Kept::new(named(&directory, flags, Mode::RUSR | Mode::WUSR).unwrap())),
        ];
        for file in files {
            assert_eq!(fstat(&file.0).unwrap().st_nlink, 0, "SC-1");
            file.write_at(&[1; 10_000], 0).unwrap();
            file.write_at(&[2; 10_000], 12_288).unwrap();
            assert_eq!(file.read_at(10_000, 12_288).unwrap(), [2; 10_000]);
            assert_eq!(file.read_at(10_000, 0).unwrap(), [1; 10_000]);
            assert!(file.read_at(10_000, 20_000).is_err(), "beyond its end");
            let before = fstat(&file.0).unwrap().st_blocks;
            file.discard(0, 12_288);
            assert!(fstat(&file.0).unwrap().st_blocks < before);
            assert_eq!(file.read_at(10_000, 12_288).unwrap(), [2; 10_000]);
            file.clear();
            assert_eq!(fstat(&file.0).unwrap().st_blocks, 0);
        }
    }

    #[test]
    fn the_user_chooses_the_place() {
        assert_eq!(directory(Some(OsStr::new("/over/there"))), Path::new("/over/there"));
        assert!(directory(None).is_absolute());
    }
}
