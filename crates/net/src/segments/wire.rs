//! What one end of a link has been lent, and what is to be said of it when the link is next written to.

use super::habit::User;
use super::keeper::Keeper;
use super::memory::Read;
use super::numbered::Numbered;
use super::store::Store;
use paceline_core::segments::{Borrowed, SegmentId, Spot, Wrong};
use paceline_proto::lending::{Lending, Returned};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Has the owner of a link write what is to be said, and see to it that the link is read (KE-1). It may take the locks that
/// guard the link.
pub type Kick = Arc<dyn Fn() + Send + Sync>;

/// Small ranges are returned when so many bytes of them have gathered: one message for many costs less.
const GATHERED: usize = 128 << 10;

pub(super) struct Wire {
    store: &'static Store,
    state: Mutex<State>,
    /// Something is to be said with the next message.
    pub pending: AtomicBool,
    /// The keeper is going to look whether something is to be said.
    looked_after: AtomicBool,
    kick: Option<Kick>,
}

#[derive(Default)]
struct State {
    borrowed: Borrowed,
    maps: Numbered<SegmentId, Arc<Read>>,
    returned: Vec<Returned>,
    /// How many bytes these are.
    gathered: usize,
    gone: Vec<SegmentId>,
    closed: bool,
}

impl Wire {
    pub fn new(store: &'static Store, kick: Option<Kick>) -> Wire {
        Wire {
            store,
            state: Mutex::default(),
            pending: AtomicBool::new(false),
            looked_after: AtomicBool::new(false),
            kick,
        }
    }

    pub fn on_segment(&self, id: SegmentId, size: u64, map: Read) -> Result<(), Wrong> {
        let mut state = self.state.lock();
        state.borrowed.on_segment(id, size)?;
        state.maps.insert(id, Arc::new(map));
        drop(state);
        self.store.keeper.trim();
        Ok(())
    }

    /// Returns whether segments of the other end are mapped here.
    pub fn has_maps(&self) -> bool {
        !self.state.lock().maps.is_empty()
    }

    /// Asks the owner of the link to read it.
    pub fn look(&self) {
        if let Some(kick) = &self.kick {
            kick();
        }
    }

    pub fn on_gone(&self, id: SegmentId) -> bool {
        let mut state = self.state.lock();
        let map = state.maps.remove(&id);
        let known = state.borrowed.on_gone(id);
        drop(state);
        // Unmapping takes a while if it was large.
        drop(map);
        known
    }

    pub fn on_range(self: &Arc<Wire>, spot: Spot, length: u64) -> Result<Range, Wrong> {
        let mut state = self.state.lock();
        state.borrowed.on_range(spot, length, super::forks())?;
        let map = state.maps.get(&spot.segment).cloned().ok_or(Wrong::Unknown(spot.segment))?;
        drop(state);
        let (untouched, user) = (AtomicBool::new(true), AtomicU64::new(0));
        Ok(Range { wire: self.clone(), map, spot, length: length as usize, untouched, user })
    }

    /// A segment of ours is no more.
    pub fn say_gone(self: &Arc<Wire>, id: SegmentId, keeper: &Keeper) {
        self.state.lock().gone.push(id);
        self.is_to_be_said(true, keeper);
    }

    /// There is something to say: with the next message, or in some time.
    fn is_to_be_said(self: &Arc<Wire>, soon: bool, keeper: &Keeper) {
        if soon || self.kick.is_none() {
            self.pending.store(true, Ordering::SeqCst);
        }
        // The order matters: the keeper looks whether there is something after it has said that it no longer knows.
        if !self.looked_after.swap(true, Ordering::SeqCst) {
            keeper.look_after(self);
        }
    }

    /// Nobody has said for some time what is to be said.
    pub fn say_now(&self) {
        self.looked_after.store(false, Ordering::SeqCst);
        let state = self.state.lock();
        let nothing = state.returned.is_empty() && state.gone.is_empty();
        drop(state);
        if !nothing && let Some(kick) = &self.kick {
            self.pending.store(true, Ordering::SeqCst);
            kick();
        }
    }

    /// Append what is to be said now.
    pub fn say(&self, out: &mut Vec<u8>) {
        self.pending.store(false, Ordering::SeqCst);
        let mut state = self.state.lock();
        for id in state.gone.drain(..) {
            // It is short, and never refused.
            let _ = Lending::Gone { segment: id.0 }.encode(out);
        }
        if !state.returned.is_empty() {
            let said = Lending::Returned(std::mem::take(&mut state.returned));
            let _ = said.encode(out);
            if let Lending::Returned(mut ranges) = said {
                // Its room is for the next ones.
                ranges.clear();
                state.returned = ranges;
                state.gathered = 0;
            }
        }
    }

    /// The link has ended: nothing more is to be said.
    pub fn close(&self) {
        let mut state = self.state.lock();
        state.closed = true;
        let maps = std::mem::take(&mut state.maps);
        drop(state);
        drop(maps);
    }
}

/// A range that is lent to this process. Nobody else here has the same.
pub(super) struct Range {
    wire: Arc<Wire>,
    map: Arc<Read>,
    spot: Spot,
    length: usize,
    /// Nobody here has had it to write in.
    untouched: AtomicBool,
    /// Who has it.
    user: AtomicU64,
}

impl Range {
    /// Whether who takes it now does better to have it where it is than to copy it.
    pub fn is_better_mapped(&self) -> bool {
        let user = User::current();
        self.user.store(user.0, Ordering::Relaxed);
        !self.wire.store.habits.copies(user, self.length)
    }

    /// Somebody has it to write in.
    pub fn touch(&self) {
        self.untouched.store(false, Ordering::Relaxed);
    }

    pub fn begin(&self) -> *mut u8 {
        self.map.at(self.spot.offset as usize, self.length)
    }
}

impl Drop for Range {
    fn drop(&mut self) {
        // SM-1: in a forked child it is the parent's to return.
        if !self.wire.store.is_current() {
            return;
        }
        let untouched = self.untouched.load(Ordering::Relaxed);
        let user = User(self.user.load(Ordering::Relaxed));
        // Pages that are as they were lent stay mapped for the next time.
        let written = !untouched && self.wire.store.habits.learn(user, self.begin(), self.length);
        let renewed = if written { self.map.renew(self.spot.offset as usize, self.length) } else { Ok(()) };
        let mut state = self.wire.state.lock();
        if state.closed {
            return;
        }
        let Some(retired) = state.borrowed.give_back(self.spot, super::forks()) else { return };
        // A child that was forked meanwhile has no view of it either if there was none here.
        let retired = (retired && !untouched) || renewed.is_err();
        let Spot { segment, offset } = self.spot;
        state.returned.push(Returned { segment: segment.0, offset, retired });
        state.gathered += self.length;
        let soon = state.gathered >= GATHERED;
        drop(state);
        self.wire.is_to_be_said(soon, &self.wire.store.keeper);
    }
}
