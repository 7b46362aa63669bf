//! The memory of segments: as their writer has it, and as a reader does.
//!
//! * ME-1: a segment can neither grow nor shrink, and nobody but its writer can ever write it.
//! * ME-2: what a reader writes is its own.

use crate::kept::Kept;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, ftruncate, memfd_create};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, mmap_anonymous, munmap};
use std::ffi::c_void;
use std::io;

/// Memory of a segment, mapped as a whole.
struct Map {
    begin: *mut u8,
    size: usize,
}

// SAFETY: a piece of memory that belongs to nobody's thread. Who may touch which part of it is the arena's to say.
unsafe impl Send for Map {}
// SAFETY: as above.
unsafe impl Sync for Map {}

impl Map {
    fn new(descriptor: impl AsFd, size: usize, flags: MapFlags) -> io::Result<Map> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping, where the kernel likes.
        let begin = unsafe { mmap(std::ptr::null_mut(), size, access, flags, descriptor, 0) }?;
        Ok(Map { begin: begin.cast(), size })
    }

    fn at(&self, offset: usize, length: usize) -> *mut u8 {
        assert!(offset.checked_add(length).is_some_and(|end| end <= self.size), "outside of the segment");
        // SAFETY: inside of the mapping.
        unsafe { self.begin.add(offset) }
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: whoever has a pointer into it has a share of its owner, too.
        let _ = unsafe { munmap(self.begin.cast::<c_void>(), self.size) };
    }
}

/// Memory of this process alone, of large pages where there are such.
pub(super) struct Anonymous {
    map: Map,
}

impl Anonymous {
    pub fn make(size: usize) -> io::Result<Anonymous> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping, where the kernel likes; the advice changes nothing of what is in it.
        let begin = unsafe {
            let begin = mmap_anonymous(std::ptr::null_mut(), size, access, MapFlags::PRIVATE)?;
            let _ = madvise(begin, size, Advice::LinuxHugepage);
            begin
        };
        Ok(Anonymous { map: Map { begin: begin.cast(), size } })
    }

    pub fn begin(&self) -> *mut u8 {
        self.map.begin
    }

    pub fn size(&self) -> usize {
        self.map.size
    }
}

/// A segment, in the process that writes it.
pub(super) struct Written {
    descriptor: Kept,
    map: Map,
}

impl Written {
    pub fn make(size: usize) -> io::Result<Written> {
        let descriptor = memfd_create("paceline", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        ftruncate(&descriptor, size as u64)?;
        let map = Map::new(&descriptor, size, MapFlags::SHARED | MapFlags::NORESERVE)?;
        fcntl_add_seals(&descriptor, SEALS)?;
        Ok(Written { descriptor: Kept::new(descriptor), map })
    }

    pub fn at(&self, offset: usize, length: usize) -> *mut u8 {
        self.map.at(offset, length)
    }

    pub fn size(&self) -> usize {
        self.map.size
    }
}

impl AsFd for Written {
    fn as_fd(&self) -> rustix::fd::BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

/// The mapping from before these seals stays writable, which is how its owner writes it.
const SEALS: SealFlags =
    SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::FUTURE_WRITE).union(SealFlags::SEAL);

/// A segment of somebody else's, in a process that reads it. Its descriptor is not needed any more.
pub(super) struct Read {
    map: Map,
}

impl Read {
    pub fn open(descriptor: OwnedFd, size: u64) -> io::Result<Read> {
        let seals = fcntl_get_seals(&descriptor)?;
        let found = fstat(&descriptor)?.st_size;
        // One that shrinks would end us by a signal.
        if !seals.contains(SEALS) || u64::try_from(found) != Ok(size) {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let map = Map::new(&descriptor, size as usize, MapFlags::PRIVATE | MapFlags::NORESERVE)?;
        Ok(Read { map })
    }

    pub fn at(&self, offset: usize, length: usize) -> *mut u8 {
        self.map.at(offset, length)
    }

    /// Forget what was written here of these pages, so that they are the segment's again. They begin where a page does.
    pub fn renew(&self, offset: usize, length: usize) -> Result<(), Errno> {
        // SAFETY: nobody looks at this range of the mapping any more.
        unsafe { madvise(self.at(offset, length).cast(), length, Advice::LinuxDontNeed) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read_is_written_by_one_only() {
        let written = Written::make(1 << 20).unwrap();
        // SAFETY: inside of it, and nobody else is there.
        unsafe { written.at(4096, 4096).write_bytes(7, 4096) };
        let again = || written.as_fd().try_clone_to_owned().unwrap();
        let read = Read::open(again(), 1 << 20).unwrap();
        let at = read.at(4096, 4096);
        // SAFETY: pages of our own mapping.
        unsafe {
            assert_eq!(*at, 7);
            at.write(8);
            assert_eq!((*at, *written.at(4096, 1)), (8, 7), "ME-2");
            written.at(4096, 1).write(9);
            read.renew(4096, 4096).unwrap();
            assert_eq!(*at, 9);
        }
        assert!(Map::new(&written, 4096, MapFlags::SHARED).is_err(), "ME-1");
        assert!(ftruncate(&written, 0).is_err(), "ME-1");
        assert!(Read::open(again(), 1 << 21).is_err());
        let other = memfd_create("other", MemfdFlags::CLOEXEC).unwrap();
        assert!(Read::open(other, 0).is_err(), "ME-1");
    }
}
