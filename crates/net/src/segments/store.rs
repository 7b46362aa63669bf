//! A process's segments, and its payloads that have parts outside of them.

use super::LARGE;
use super::blocks::Blocks;
use super::habit::Habits;
use super::keeper::Keeper;
use super::memory::Written;
use super::numbered::Numbered;
use super::part::{Own, Part};
use super::wire::Wire;
use crate::clock;
use crate::kept::Kept;
use bytes::Bytes;
use paceline_core::Tick;
use paceline_core::segments::{Arena, Effect, Lent, LinkId, SegmentId, Spot, Use};
use paceline_proto::parts::{self, Parted, is_parted, number};
use parking_lot::{Mutex, MutexGuard};
use smallvec::SmallVec;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

/// The parts of a payload: mostly it is one.
pub type Parts = SmallVec<[Arc<Part>; 1]>;

pub(super) struct Store {
    segments: Mutex<Segments>,
    payloads: Mutex<Numbered<u64, Arc<Parts>>>,
    numbers: AtomicU64,
    pub keeper: Keeper,
    pub habits: Habits,
    pub blocks: Blocks,
    /// Descriptors for when there are no others left.
    reserve: Mutex<Vec<Kept>>,
}

/// What it takes to open a connection in a process that is both of its ends.
const RESERVE: usize = 3;

fn reserve() -> Vec<Kept> {
    let one = || std::fs::File::open("/dev/null").map(|file| Kept::new(file.into()));
    (0..RESERVE).map_while(|_| one().ok()).collect()
}

#[derive(Default)]
struct Segments {
    arena: Arena,
    memory: Numbered<SegmentId, Arc<Written>>,
    wires: Numbered<LinkId, Arc<Wire>>,
    links: u64,
    effects: Vec<Effect>,
    /// No further segment can be had, which was said.
    full: bool,
}

/// It is never freed: whatever refers to the one of a parent process still can.
static CURRENT: AtomicPtr<Store> = AtomicPtr::new(std::ptr::null_mut());

/// In a forked child: begin anew (SM-1).
pub(super) extern "C" fn in_child() {
    CURRENT.store(std::ptr::null_mut(), Ordering::SeqCst);
}

fn now() -> Tick {
    Tick(clock::coarse())
}

impl Store {
    /// The store of this process.
    pub fn current() -> &'static Store {
        let current = CURRENT.load(Ordering::SeqCst);
        if !current.is_null() {
            // SAFETY: it was leaked below.
            return unsafe { &*current };
        }
        super::watch_forks();
        let made = Box::into_raw(Box::new(Store {
            segments: Mutex::default(),
            payloads: Mutex::default(),
            numbers: AtomicU64::new(1),
            keeper: Keeper::default(),
            habits: Habits::default(),
            blocks: Blocks::default(),
            reserve: Mutex::new(reserve()),
        }));
        let null = std::ptr::null_mut();
        match CURRENT.compare_exchange(null, made, Ordering::SeqCst, Ordering::SeqCst) {
            // SAFETY: leaked just now.
            Ok(_) => unsafe { &*made },
            Err(other) => {
                // SAFETY: nobody has seen ours; the other one was leaked.
                unsafe {
                    drop(Box::from_raw(made));
                    &*other
                }
            }
        }
    }

    pub fn free_reserve(&self) {
        self.reserve.lock().clear();
    }

    /// Says whether there are descriptors again, those for the next time among them.
    pub fn refill_reserve(&self) -> bool {
        let mut kept = self.reserve.lock();
        kept.clear();
        *kept = reserve();
        let others = reserve();
        kept.len() == RESERVE && others.len() == RESERVE
    }

    pub fn is_current(&self) -> bool {
        std::ptr::eq(self, CURRENT.load(Ordering::SeqCst))
    }

    /// Room in a segment. None: there is none to be had.
    pub fn place(&'static self, length: usize) -> Option<Own> {
        let usage = if length < LARGE { Use::Small } else { Use::Large };
        let mut segments = self.segments.lock();
        let spot = match segments.arena.place(now(), length as u64, usage) {
            Some(spot) => spot,
            None => {
                self.grow(&mut segments, length, usage)?;
                segments.arena.place(now(), length as u64, usage)?
            }
        };
        let memory = segments.memory.get(&spot.segment)?.clone();
        Some(Own { store: self, memory, spot, length })
    }

    fn grow(&'static self, segments: &mut Segments, length: usize, usage: Use) -> Option<()> {
        let size = segments.arena.next_size(length as u64, usage);
        let made = Written::make(size as usize);
        match made {
            Ok(memory) => {
                let id = segments.arena.add(now(), size, usage);
                segments.memory.insert(id, Arc::new(memory));
                self.keeper.trim();
                Some(())
            }
            Err(error) => {
                if !std::mem::replace(&mut segments.full, true) {
                    super::tell(&format!("there is no more shared memory to be had: {error}"));
                }
                None
            }
        }
    }

    pub fn release(&self, spot: Spot) {
        let mut segments = self.segments.lock();
        let Segments { arena, effects, .. } = &mut *segments;
        arena.release(now(), spot, effects);
        self.perform(segments);
    }

    pub fn open_link(&self, wire: &Arc<Wire>) -> LinkId {
        let mut segments = self.segments.lock();
        segments.links += 1;
        let link = LinkId(segments.links);
        segments.arena.open(link);
        segments.wires.insert(link, wire.clone());
        link
    }

    pub fn end_link(&self, link: LinkId) {
        let mut segments = self.segments.lock();
        segments.wires.remove(&link);
        let Segments { arena, effects, .. } = &mut *segments;
        arena.end(now(), link, effects);
        self.perform(segments);
    }

    pub fn lend(&self, spot: Spot, link: LinkId) -> Option<Lent> {
        self.segments.lock().arena.lend(spot, link)
    }

    pub fn give_back(&self, link: LinkId, spot: Spot, retired: bool) -> bool {
        let mut segments = self.segments.lock();
        let Segments { arena, effects, .. } = &mut *segments;
        let known = arena.give_back(now(), link, spot, retired, effects);
        self.perform(segments);
        known
    }

    /// Give up memory that was idle for long. Says whether any is left.
    pub fn trim(&self) -> bool {
        let blocks = self.blocks.trim();
        let mut segments = self.segments.lock();
        let Segments { arena, effects, .. } = &mut *segments;
        let left = arena.trim(now(), effects);
        let mapped = segments.wires.values().any(|wire| wire.has_maps());
        self.perform(segments);
        left || blocks || mapped
    }

    /// Returns the links over which memory is lent, in either direction.
    pub fn lending_wires(&self) -> Vec<Arc<Wire>> {
        let segments = self.segments.lock();
        let mut wires: Vec<Arc<Wire>> =
            segments.arena.lent_to().filter_map(|link| segments.wires.get(&link).cloned()).collect();
        wires.extend(segments.wires.values().filter(|wire| wire.has_maps()).cloned());
        wires
    }

    fn perform(&self, mut segments: MutexGuard<'_, Segments>) {
        debug_assert_eq!(segments.arena.check(), Ok(()));
        if segments.effects.is_empty() {
            return;
        }
        let mut over = Vec::new();
        for effect in std::mem::take(&mut segments.effects) {
            match effect {
                Effect::Drop(id) => over.extend(segments.memory.remove(&id)),
                Effect::Forget(link, id) => {
                    if let Some(wire) = segments.wires.get(&link) {
                        wire.say_gone(id, &self.keeper);
                    }
                }
            }
        }
        // Unmapping takes a while if it was large.
        drop(segments);
        drop(over);
    }

    fn parts(&self, number: u64) -> Option<Arc<Parts>> {
        self.payloads.lock().get(&number).cloned()
    }
}

/// A payload with parts, which live as long as it does.
struct Payload {
    bytes: Vec<u8>,
    number: u64,
    store: &'static Store,
}

impl AsRef<[u8]> for Payload {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Payload {
    fn drop(&mut self) {
        if self.store.is_current() {
            let parts = self.store.payloads.lock().remove(&self.number);
            drop(parts);
        }
    }
}

/// A payload of these bytes, with parts outside of them.
pub fn parted(inner: &[u8], parts: impl IntoIterator<Item = Part>) -> Bytes {
    let store = Store::current();
    let number = store.numbers.fetch_add(1, Ordering::Relaxed);
    let parts: Parts = parts.into_iter().map(Arc::new).collect();
    let bytes = parts::write(number, parts.iter().map(|part| part.len() as u64), inner);
    store.payloads.lock().insert(number, Arc::new(parts));
    Bytes::from_owner(Payload { bytes, number, store })
}

/// The parts of a payload of this process.
pub fn parts_of(payload: &[u8]) -> Option<Arc<Parts>> {
    number(payload).and_then(|number| Store::current().parts(number))
}

/// All that a payload is, in one piece.
pub fn flatten(payload: &Bytes) -> Bytes {
    let Some(parts) = parts_of(payload) else { return payload.clone() };
    let length = parts.iter().map(|part| part.len()).sum::<usize>();
    let mut out = Vec::with_capacity(payload.len() + length);
    out.extend_from_slice(payload);
    parts.iter().for_each(|part| out.extend_from_slice(part.bytes()));
    out.into()
}

/// A payload of what [`flatten`] has made of it.
pub fn unflatten(bytes: Vec<u8>) -> Bytes {
    let Some(flat) = Some(&bytes).filter(|bytes| is_parted(bytes)).and_then(|bytes| Parted::read(bytes))
    else {
        return bytes.into();
    };
    let length = flat.lengths.iter().sum::<u64>() as usize;
    let Some((inner, mut rest)) = flat.inner.split_at_checked(flat.inner.len().saturating_sub(length)) else {
        return bytes.into();
    };
    let mut parts = Vec::new();
    for length in &flat.lengths {
        let (part, after) = rest.split_at((*length as usize).min(rest.len()));
        parts.push(Part::heap(part.to_vec()));
        rest = after;
    }
    parted(inner, parts)
}
