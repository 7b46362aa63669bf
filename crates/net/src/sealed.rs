//! Memory that several processes share and none can change: a file in memory, sealed, and private maps of such files.
//!
//! * SE-1: sealed memory keeps its length and its bytes: who maps it never meets a page that is not there.
//! * SE-2: a map is copy-on-write: what is written to it is seen through this map alone.
//! * SE-3: nothing of it has a name, so that nothing is left when the last process that has it is gone.

use crate::kept::Kept;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{
    MemfdFlags, Mode, OFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, ftruncate, memfd_create,
    open,
};
use rustix::io::{Errno, pwrite};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::ffi::c_void;
use std::io;

/// Seals of memory that is done.
const SEALS: SealFlags =
    SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::WRITE).union(SealFlags::SEAL);

/// Memory that is being filled.
pub struct Filling {
    file: Kept,
    at: u64,
}

impl Filling {
    /// So many bytes, all zero.
    pub fn new(size: u64) -> io::Result<Filling> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = Kept::new(memfd_create(c"paceline-object", flags)?);
        ftruncate(&file, size)?;
        Ok(Filling { file, at: 0 })
    }

    /// Put these bytes after those that are there.
    pub fn write(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            match pwrite(&self.file, bytes, self.at) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => {
                    bytes = &bytes[count..];
                    self.at += count as u64;
                }
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Go on at this place.
    pub fn skip_to(&mut self, at: u64) {
        self.at = at;
    }

    /// Nothing more is written.
    pub fn seal(self) -> io::Result<OwnedFd> {
        fcntl_add_seals(&self.file, SEALS)?;
        Ok(self.file.into_inner())
    }
}

/// How many bytes of sealed memory these are. An error if anybody could still change them.
pub fn sealed_size(file: impl AsFd) -> io::Result<u64> {
    if !fcntl_get_seals(&file)?.contains(SEALS) {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "memory that came along is not sealed"));
    }
    Ok(fstat(&file)?.st_size as u64)
}

/// The same file, only to be read.
pub fn read_only(file: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    use rustix::fd::AsRawFd;
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    Ok(open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?)
}

/// The bytes of a file, to be read and written, without anybody else seeing what is written (SE-2).
pub struct Mapping {
    start: *mut c_void,
    size: usize,
}

// SAFETY: it is memory of this process, with no ties to a thread.
unsafe impl Send for Mapping {}
// SAFETY: through a shared reference it only gives out its address.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// So many bytes of a file, which must have them for as long as this is there: sealed memory, or a file without a name
    /// that nobody writes to.
    pub fn private(file: impl AsFd, size: usize) -> io::Result<Mapping> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new map wherever the kernel has room for it, of a file that does not shrink.
        let start = unsafe {
            mmap(std::ptr::null_mut(), size, access, MapFlags::PRIVATE | MapFlags::NORESERVE, file, 0)
        }?;
        Ok(Mapping { start, size })
    }

    /// Where it is. Whoever writes through this sees to it that nobody else reads or writes there meanwhile.
    pub fn start(&self) -> *mut u8 {
        self.start.cast()
    }

    pub fn size(&self) -> usize {
        self.size
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: it was mapped by us, and nobody has its address any more.
        let _ = unsafe { munmap(self.start, self.size) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_shared_and_writes_are_not() {
        let mut filling = Filling::new(10_000).unwrap();
        filling.write(b"abc").unwrap();
        filling.skip_to(9_000);
        filling.write(b"xyz").unwrap();
        let file = filling.seal().unwrap();
        assert_eq!(sealed_size(&file).unwrap(), 10_000);
        let maps = [Mapping::private(&file, 10_000).unwrap(), Mapping::private(&file, 10_000).unwrap()];
        // SAFETY: within the maps, which only this thread has.
        unsafe {
            *maps[0].start() = b'z';
            assert_eq!(std::slice::from_raw_parts(maps[1].start().cast_const(), 3), b"abc", "SE-2");
            assert_eq!(std::slice::from_raw_parts(maps[0].start().add(9_000).cast_const(), 3), b"xyz");
        }
        assert!(pwrite(&file, b"no", 0).is_err(), "SE-1");
        assert!(ftruncate(&file, 1).is_err(), "SE-1");
    }

    #[test]
    fn what_could_change_is_refused() {
        let file = memfd_create(c"open", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
        assert!(sealed_size(&file).is_err());
    }
}
