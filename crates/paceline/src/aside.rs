//! Large results that nobody has asked for yet: in memory within a budget, beyond it in a file without a name.
//!
//! Owns: where such a result is, how much of them is in memory, and the file. Does not own: whose result it is.
//!
//! * AS-1: a result below [`LARGE`] costs nothing here.
//! * AS-2: the file is written without the session's lock, by whoever reads the links, before it reads on. So what is in
//!   memory stays within the budget and one round of reading, and nobody who submits or asks waits for the disk.
//! * AS-3: a disk that does not take a result leaves it in memory; the user is told once.
//! * AS-4: in a forked child the file is the parent's: it is neither read nor changed.

use crate::session::generation;
use paceline_core::client::Outcome;
use paceline_net::scratch::{self, Scratch};
use paceline_net::segments::{flatten, unflatten};
use paceline_proto::Bytes;
use paceline_proto::parts::carried;
use paceline_proto::pins;
use parking_lot::Mutex;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

/// Results from here on are worth a place on disk.
pub(crate) const LARGE: usize = 64 << 10;

/// Places in the file begin and end where the file system's blocks do, so that each can be given back.
const BLOCK: u64 = 4096;

/// If nobody says, unread results may have one part in so many of the memory that this process may use.
const SHARE: u64 = 4;

/// After the disk has refused, it is asked again no sooner than this.
const RETRY: Duration = Duration::from_secs(5);

/// The large results of one session.
pub(crate) struct Aside {
    /// How much of them may be in memory, once that is known.
    budget: OnceLock<usize>,
    /// How much of them is.
    in_memory: AtomicUsize,
    directory: PathBuf,
    file: Mutex<File>,
    warned: AtomicBool,
    /// The process it belongs to.
    generation: u32,
}

#[derive(Default)]
struct File {
    scratch: Option<Arc<Scratch>>,
    end: u64,
    /// How many results have a place in it.
    places: usize,
    refused: Option<Instant>,
}

/// An outcome as it is kept until somebody asks for it.
#[derive(Clone)]
pub struct Stored(Inner);

#[derive(Clone)]
enum Inner {
    Small(Outcome),
    Large(Arc<Large>),
}

/// A large result.
pub(crate) struct Large {
    aside: Arc<Aside>,
    /// What the bytes are the bytes of.
    form: fn(Bytes) -> Outcome,
    /// How much memory it takes while it is there.
    length: usize,
    place: Mutex<Place>,
}

enum Place {
    Memory(Bytes),
    Disk { offset: u64, length: usize },
}

impl Aside {
    /// Results may take so many bytes of memory; a share of what there is, unless told.
    pub fn new(budget: Option<usize>) -> Arc<Aside> {
        Arc::new(Aside {
            budget: budget.map_or_else(OnceLock::new, OnceLock::from),
            in_memory: AtomicUsize::new(0),
            // Asked for now, while nothing else of ours runs: the environment is no place for threads.
            directory: scratch::directory(std::env::var_os("TMPDIR").as_deref()),
            file: Mutex::default(),
            warned: AtomicBool::new(false),
            generation: generation(),
        })
    }

    /// Keep an outcome. One that is beyond the budget is added to `excess`.
    pub fn store(self: &Arc<Aside>, outcome: Outcome, excess: &mut Excess) -> Stored {
        let (form, bytes): (fn(Bytes) -> Outcome, _) = match outcome {
            Outcome::Value(bytes) if carried(&bytes) >= LARGE => (Outcome::Value, bytes),
            Outcome::Raised(bytes) if carried(&bytes) >= LARGE => (Outcome::Raised, bytes),
            small => return Stored(Inner::Small(small)),
        };
        let length = carried(&bytes);
        // What its references keep is kept by the bytes.
        let stays = pins::has(&bytes);
        let before = self.in_memory.fetch_add(length, Ordering::Relaxed);
        let place = Mutex::new(Place::Memory(bytes));
        let large = Arc::new(Large { aside: self.clone(), form, length, place });
        if before + length > self.budget() && !stays {
            excess.bytes += length;
            excess.results.push(Arc::downgrade(&large));
        }
        Stored(Inner::Large(large))
    }

    fn budget(&self) -> usize {
        *self.budget.get_or_init(|| (paceline_node::hardware::usable_memory() / SHARE) as usize)
    }

    fn is_over(&self) -> bool {
        self.in_memory.load(Ordering::Relaxed) > self.budget()
    }

    /// Write to the file what is still too much. Returns what to tell the user, if anything.
    pub fn write(&self, excess: Excess) -> Option<String> {
        let mut problem = None;
        for large in excess.results.iter().filter_map(Weak::upgrade) {
            if !self.is_over() {
                break;
            }
            if let Err(error) = large.move_to_disk() {
                problem = Some(error);
            }
        }
        let error = problem.filter(|_| !self.warned.swap(true, Ordering::Relaxed))?;
        Some(format!(
            "results are kept in memory beyond {} MB, because {} takes no more: {error}",
            self.budget() / 1_000_000,
            self.directory.display()
        ))
    }

    fn put(&self, bytes: &[u8]) -> io::Result<u64> {
        let (scratch, offset) = {
            let mut file = self.file.lock();
            if file.refused.is_some_and(|when| when.elapsed() < RETRY) {
                return Err(io::ErrorKind::StorageFull.into());
            }
            let scratch = match &file.scratch {
                Some(scratch) => scratch.clone(),
                None => match Scratch::create(&self.directory) {
                    Ok(made) => file.scratch.insert(Arc::new(made)).clone(),
                    Err(error) => {
                        file.refused = Some(Instant::now());
                        return Err(error);
                    }
                },
            };
            let offset = file.end;
            file.end += room_for(bytes.len());
            file.places += 1;
            (scratch, offset)
        };
        scratch.write_at(bytes, offset).map(|()| offset).inspect_err(|_| {
            self.give_back(offset, bytes.len());
            self.file.lock().refused = Some(Instant::now());
        })
    }

    fn get(&self, offset: u64, length: usize) -> io::Result<Vec<u8>> {
        if self.is_foreign() {
            return Err(io::Error::other("it is the parent's, and this is a forked child"));
        }
        let scratch = self.file.lock().scratch.clone();
        scratch.ok_or(io::ErrorKind::NotFound)?.read_at(length, offset)
    }

    fn give_back(&self, offset: u64, length: usize) {
        if self.is_foreign() {
            return;
        }
        let mut file = self.file.lock();
        let Some(scratch) = file.scratch.clone() else { return };
        file.places -= 1;
        if file.places == 0 {
            file.end = 0;
            scratch.clear();
        } else {
            // Under the lock: the place may be another result's as soon as it is released.
            scratch.discard(offset, room_for(length));
        }
    }

    fn is_foreign(&self) -> bool {
        self.generation != generation()
    }
}

fn room_for(length: usize) -> u64 {
    (length as u64).next_multiple_of(BLOCK)
}

/// Results that came when there was no room in memory for them.
#[derive(Default)]
pub(crate) struct Excess {
    results: Vec<Weak<Large>>,
    bytes: usize,
}

impl Excess {
    pub fn is_empty(&self) -> bool {
        self.results.is_empty()
    }

    /// What they take, unless somebody has asked for them since.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Stored {
    /// The outcome itself. May read from disk, so no lock that others want must be held.
    pub fn load(self) -> Outcome {
        match self.0 {
            Inner::Small(outcome) => outcome,
            Inner::Large(large) => large.load(),
        }
    }

    /// Whether the disk has to be asked for it.
    pub fn is_on_disk(&self) -> bool {
        matches!(&self.0, Inner::Large(large) if matches!(*large.place.lock(), Place::Disk { .. }))
    }

    pub fn is_value(&self) -> bool {
        match &self.0 {
            Inner::Small(outcome) => matches!(outcome, Outcome::Value(_)),
            Inner::Large(large) => matches!((large.form)(Bytes::new()), Outcome::Value(_)),
        }
    }

    pub fn is_cancelled(&self) -> bool {
        matches!(&self.0, Inner::Small(Outcome::Cancelled))
    }
}

impl From<Outcome> for Stored {
    /// An outcome that counts for nothing.
    fn from(outcome: Outcome) -> Stored {
        Stored(Inner::Small(outcome))
    }
}

impl Large {
    fn load(&self) -> Outcome {
        let (offset, length) = match &*self.place.lock() {
            Place::Memory(bytes) => return (self.form)(bytes.clone()),
            Place::Disk { offset, length } => (*offset, *length),
        };
        match self.aside.get(offset, length) {
            Ok(bytes) => (self.form)(unflatten(bytes)),
            Err(error) => {
                let reason = format!("it was set aside on disk and cannot be read again: {error}");
                Outcome::Unsendable(reason.into())
            }
        }
    }

    fn move_to_disk(&self) -> io::Result<()> {
        let mut place = self.place.lock();
        if let Place::Memory(bytes) = &*place {
            let flat = flatten(bytes);
            let length = flat.len();
            let offset = self.aside.put(&flat)?;
            *place = Place::Disk { offset, length };
            self.aside.in_memory.fetch_sub(self.length, Ordering::Relaxed);
        }
        Ok(())
    }
}

impl Drop for Large {
    fn drop(&mut self) {
        match self.place.get_mut() {
            Place::Memory(_) => drop(self.aside.in_memory.fetch_sub(self.length, Ordering::Relaxed)),
            Place::Disk { offset, length } => self.aside.give_back(*offset, *length),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(byte: u8, length: usize) -> Outcome {
        Outcome::Value(Bytes::from(vec![byte; length]))
    }

    /// Keep results one by one, and write after each what is too much.
    fn keep(aside: &Arc<Aside>, outcomes: impl IntoIterator<Item = Outcome>) -> Vec<Stored> {
        let each = outcomes.into_iter().map(|outcome| {
            let mut excess = Excess::default();
            let stored = aside.store(outcome, &mut excess);
            assert_eq!(aside.write(excess), None);
            stored
        });
        each.collect()
    }

    #[test]
    fn beyond_the_budget_results_are_on_disk_until_they_are_dropped() {
        let aside = Aside::new(Some(3 * LARGE));
        let mut results = keep(&aside, (0..10).map(|byte| value(byte, LARGE)));
        assert_eq!(results.iter().filter(|stored| stored.is_on_disk()).count(), 7);
        assert_eq!(aside.in_memory.load(Ordering::Relaxed), 3 * LARGE, "AS-2");
        for byte in (0..10).rev() {
            assert_eq!(results.pop().unwrap().load(), value(byte, LARGE));
        }
        assert_eq!(aside.in_memory.load(Ordering::Relaxed), 0);
        let file = aside.file.lock();
        assert_eq!((file.places, file.end), (0, 0));
    }

    #[test]
    fn small_results_stay() {
        let aside = Aside::new(Some(0));
        let results = keep(&aside, [value(1, LARGE - 1), Outcome::Cancelled]);
        assert!(!results.iter().any(Stored::is_on_disk), "AS-1");
        assert!(results[1].is_cancelled() && !results[1].is_value() && results[0].is_value());
        assert!(aside.file.lock().scratch.is_none());
    }

    #[test]
    fn what_was_asked_for_meanwhile_is_not_written() {
        let aside = Aside::new(Some(0));
        let mut excess = Excess::default();
        drop(aside.store(value(1, LARGE), &mut excess));
        assert_eq!(aside.write(excess), None);
        assert!(aside.file.lock().scratch.is_none());
    }

    #[test]
    fn a_disk_that_refuses_is_told_of_once() {
        let aside = Arc::new(Aside {
            directory: "/dev/null/nowhere".into(),
            ..Arc::into_inner(Aside::new(Some(0))).expect("it has one owner")
        });
        let mut told = 0;
        for byte in 0..3 {
            let mut excess = Excess::default();
            let stored = aside.store(value(byte, LARGE), &mut excess);
            told += usize::from(aside.write(excess).is_some_and(|text| text.contains("/dev/null/nowhere")));
            assert!(!stored.is_on_disk());
            assert_eq!(stored.load(), value(byte, LARGE), "AS-3");
        }
        assert_eq!(told, 1, "AS-3");
    }
}
