//! The page a slot shares with its node: what runs now, and what ran last.
//!
//! * PG-1: it outlives the slot, so that a death is charged to exactly the call that was running.
//! * PG-2: only the slot writes it; a reader may see one call's numbers a moment late, never torn.
//! * PG-3: a child that the node's process forks does not have it, so it ends with the node and the slot.

use paceline_proto::{LeaseId, Seq};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};
use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

const LENGTH: usize = 64 << 10;

/// The most guests that a page tells of, by their numbers from 1.
pub const MOST_GUESTS: u32 = 2000;

/// In place of a call that could not be stopped otherwise: it was a guest's.
const OF_GUEST: u64 = 1 << 63;

#[repr(C)]
struct Fields {
    running: AtomicU64,
    since: AtomicU64,
    finished: AtomicU64,
    timed_out: AtomicU64,
    /// The highest number of a guest that has called.
    guests: AtomicU64,
    /// When the call that began at `limited` has had its time.
    limited: AtomicU64,
    ends_at: AtomicU64,
    /// When the first of those that go on beside it has had its, or a moment before; 0 if none of them has so much only.
    beside: AtomicU64,
    calls: [GuestFields; MOST_GUESTS as usize],
}

/// What other clients call is counted apart: their calls have numbers of their own.
#[repr(C)]
struct GuestFields {
    /// Whose calls they are. Written only while `begun` is 0, and the page tells of nobody who has begun none.
    lease: [AtomicU64; 2],
    begun: AtomicU64,
    finished: AtomicU64,
}

const _: () = assert!(size_of::<Fields>() <= LENGTH);

/// A mapping of the page.
pub struct Page {
    fields: NonNull<Fields>,
}

// SAFETY: the fields are atomics in memory that stays mapped as long as the `Page` lives.
unsafe impl Send for Page {}
// SAFETY: as above.
unsafe impl Sync for Page {}

impl Page {
    /// A new page and the descriptor by which another process opens it.
    pub fn create() -> io::Result<(Page, OwnedFd)> {
        let memory = memfd_create(c"paceline-page", MemfdFlags::CLOEXEC)?;
        ftruncate(&memory, LENGTH as u64)?;
        let page = Page::map(&memory)?;
        // SAFETY: it changes what a fork copies, and nothing here.
        unsafe { madvise(page.fields.as_ptr().cast(), LENGTH, Advice::LinuxDontFork) }?;
        Ok((page, memory))
    }

    /// The page behind a descriptor that was passed to us.
    pub fn open(memory: OwnedFd) -> io::Result<Page> {
        Page::map(&memory)
    }

    fn map(memory: impl AsFd) -> io::Result<Page> {
        // SAFETY: a fresh shared mapping at an address of the kernel's choice overlaps nothing.
        let address = unsafe {
            mmap(
                std::ptr::null_mut(),
                LENGTH,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                memory,
                0,
            )
        }?;
        let fields = NonNull::new(address.cast()).expect("a mapping is never at address zero");
        Ok(Page { fields })
    }

    fn fields(&self) -> &Fields {
        // SAFETY: mapped, page-aligned, zero-filled memory is a valid `Fields`, and lives as long as `self`.
        unsafe { self.fields.as_ref() }
    }

    /// A call begins.
    pub fn begin(&self, call: Seq, now: u64) {
        self.fields().since.store(now, Ordering::Relaxed);
        self.fields().running.store(call.0, Ordering::Release);
    }

    /// The call that began then may run until this time. Said only of calls that may not run on for ever.
    pub fn limit(&self, since: u64, ends_at: u64) {
        self.fields().ends_at.store(ends_at, Ordering::Relaxed);
        self.fields().limited.store(since, Ordering::Release);
    }

    /// The same of the first of the calls that go on beside it.
    pub fn limit_beside(&self, ends_at: Option<u64>) {
        self.fields().beside.store(ends_at.unwrap_or(0), Ordering::Release);
    }

    /// Until when those of the calls may run that have begun and may run only so long. For who knows that the slot stands
    /// still: otherwise it has changed before it was read.
    pub fn ends_at(&self) -> Option<u64> {
        let running =
            self.running().is_some() || self.guests().iter().any(|(_, running, _)| running.is_some());
        let limited = running && self.fields().limited.load(Ordering::Acquire) == self.since();
        let own = limited.then(|| self.fields().ends_at.load(Ordering::Relaxed));
        let beside = Some(self.fields().beside.load(Ordering::Acquire)).filter(|at| *at > 0);
        own.into_iter().chain(beside).min()
    }

    /// The call that was running is over.
    pub fn end(&self, call: Seq) {
        self.fields().finished.store(call.0, Ordering::Release);
        self.fields().running.store(0, Ordering::Release);
    }

    /// The call that runs, if any.
    pub fn running(&self) -> Option<Seq> {
        match self.fields().running.load(Ordering::Acquire) {
            0 => None,
            call => Some(Seq(call)),
        }
    }

    /// Since when (by [`crate::clock`]) it runs.
    pub fn since(&self) -> u64 {
        self.fields().since.load(Ordering::Relaxed)
    }

    /// The call that ended last.
    pub fn finished(&self) -> Seq {
        Seq(self.fields().finished.load(Ordering::Acquire))
    }

    /// The slot is about to end because this call cannot be stopped otherwise. If another one runs beside it, that has
    /// begun all the same.
    pub fn give_up(&self, call: Seq) {
        if let Some(running) = self.running().filter(|running| *running != call) {
            self.fields().finished.fetch_max(running.0, Ordering::AcqRel);
        }
        self.fields().running.store(call.0, Ordering::Release);
        self.fields().timed_out.store(call.0, Ordering::Release);
    }

    /// Whether the call that runs is why the slot ended.
    pub fn gave_up(&self) -> bool {
        let timed_out = self.fields().timed_out.load(Ordering::Acquire);
        timed_out == OF_GUEST || self.running().is_some_and(|call| timed_out == call.0)
    }

    /// A guest's call begins.
    pub fn begin_guest(&self, guest: u32, call: Seq, now: u64) {
        let Some(calls) = self.guest_fields(guest) else { return };
        self.fields().since.store(now, Ordering::Relaxed);
        calls.begun.store(call.0, Ordering::Release);
        self.fields().guests.fetch_max(guest.into(), Ordering::Release);
    }

    /// A guest's call is over.
    pub fn end_guest(&self, guest: u32, call: Seq) {
        if let Some(calls) = self.guest_fields(guest) {
            calls.finished.fetch_max(call.0, Ordering::Release);
        }
    }

    /// The guest of this lease has this number now, and counts its calls from 1.
    pub fn reset_guest(&self, guest: u32, lease: LeaseId) {
        if let Some(calls) = self.guest_fields(guest) {
            calls.begun.store(0, Ordering::SeqCst);
            calls.finished.store(0, Ordering::SeqCst);
            calls.lease[0].store((lease.0 >> 64) as u64, Ordering::SeqCst);
            calls.lease[1].store(lease.0 as u64, Ordering::SeqCst);
        }
    }

    /// The guests that have called: their leases, which call of theirs was begun last and is not over, and which ended
    /// last.
    pub fn guests(&self) -> Vec<(LeaseId, Option<Seq>, Seq)> {
        let most = self.fields().guests.load(Ordering::Acquire).min(MOST_GUESTS.into()) as u32;
        let called = (1..=most).filter_map(|guest| {
            let calls = self.guest_fields(guest)?;
            let (begun, finished) =
                (calls.begun.load(Ordering::Acquire), calls.finished.load(Ordering::Acquire));
            let [high, low] = &calls.lease;
            let (high, low) = (high.load(Ordering::Acquire), low.load(Ordering::Acquire));
            let lease = LeaseId(u128::from(high) << 64 | u128::from(low));
            (begun > 0).then_some((lease, (begun > finished).then_some(Seq(begun)), Seq(finished)))
        });
        called.collect()
    }

    fn guest_fields(&self, guest: u32) -> Option<&GuestFields> {
        self.fields().calls.get((guest as usize).checked_sub(1)?)
    }

    /// The slot is about to end because a guest's call cannot be stopped otherwise.
    pub fn give_up_guest(&self) {
        self.fields().timed_out.store(OF_GUEST, Ordering::Release);
    }

    /// A new lease counts its calls from 1 again.
    pub fn reset(&self) {
        self.fields().running.store(0, Ordering::Release);
        self.fields().finished.store(0, Ordering::Release);
        self.fields().timed_out.store(0, Ordering::Release);
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        // SAFETY: mapped by `map` with this length, and nobody can hold a reference into it any more.
        let _ = unsafe { munmap(self.fields.as_ptr().cast(), LENGTH) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guests_are_told_apart() {
        let (ours, memory) = Page::create().unwrap();
        let theirs = Page::open(memory).unwrap();
        let (one, last) = (LeaseId(1 << 100 | 1), LeaseId(9));
        theirs.reset_guest(2, one);
        theirs.reset_guest(MOST_GUESTS, last);
        theirs.begin_guest(2, Seq(1), 5);
        theirs.begin_guest(MOST_GUESTS, Seq(7), 6);
        theirs.end_guest(2, Seq(1));
        theirs.begin_guest(MOST_GUESTS + 1, Seq(1), 6);
        assert_eq!(ours.guests(), [(one, None, Seq(1)), (last, Some(Seq(7)), Seq(0))]);
        assert_eq!((ours.running(), ours.gave_up()), (None, false), "PG-1: nothing of the lease's own ran");
        theirs.reset_guest(2, LeaseId(3));
        theirs.give_up_guest();
        assert_eq!(ours.guests(), [(last, Some(Seq(7)), Seq(0))], "the next one has not called");
        assert!(ours.gave_up());
    }

    #[test]
    fn a_call_that_may_run_only_so_long() {
        let (ours, memory) = Page::create().unwrap();
        let theirs = Page::open(memory).unwrap();
        theirs.begin(Seq(4), 99);
        assert_eq!(ours.ends_at(), None);
        theirs.limit(99, 150);
        assert_eq!(ours.ends_at(), Some(150));
        theirs.end(Seq(4));
        assert_eq!(ours.ends_at(), None, "it is over");
        theirs.begin(Seq(5), 120);
        assert_eq!(ours.ends_at(), None, "it is another");
        theirs.limit_beside(Some(130));
        assert_eq!(ours.ends_at(), Some(130));
        theirs.limit_beside(None);
        assert_eq!(ours.ends_at(), None);
    }

    #[test]
    fn both_sides_see_the_call() {
        let (ours, memory) = Page::create().unwrap();
        let theirs = Page::open(memory).unwrap();
        assert_eq!((ours.running(), ours.finished()), (None, Seq(0)));
        theirs.begin(Seq(4), 99);
        assert_eq!((ours.running(), ours.since()), (Some(Seq(4)), 99));
        theirs.end(Seq(4));
        drop(theirs);
        assert_eq!((ours.running(), ours.finished()), (None, Seq(4)), "PG-1");
    }
}
