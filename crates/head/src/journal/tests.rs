//! What is left of a journal when the machine fails in the middle of a commit, and when its disk refuses something.

use super::{Begun, CACHE, Journal};
use redb::StorageBackend;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const HEAD_LOST: Duration = Duration::from_secs(60);

/// A disk that knows what has been synced and what a failure of the machine may lose.
#[derive(Debug, Default, Clone)]
struct Disk(Arc<Mutex<Image>>);

#[derive(Debug, Default)]
struct Image {
    /// As whoever reads it sees it.
    now: Vec<u8>,
    /// As it certainly is after a failure.
    synced: Vec<u8>,
    /// What was done since.
    since: Vec<Op>,
    /// So many more writes find room.
    room: Option<usize>,
}

#[derive(Debug, Clone)]
enum Op {
    Write(u64, Vec<u8>),
    SetLen(u64),
}

impl Op {
    fn apply(&self, image: &mut Vec<u8>) {
        match self {
            Op::Write(offset, bytes) => {
                let (begin, end) = (*offset as usize, *offset as usize + bytes.len());
                if image.len() < end {
                    image.resize(end, 0);
                }
                image[begin..end].copy_from_slice(bytes);
            }
            Op::SetLen(length) => image.resize(*length as usize, 0),
        }
    }
}

impl Image {
    fn act(&mut self, op: Op) -> io::Result<()> {
        if let Some(room) = &mut self.room {
            *room = room.checked_sub(1).ok_or(io::ErrorKind::StorageFull)?;
        }
        op.apply(&mut self.now);
        self.since.push(op);
        Ok(())
    }

    /// What a failure now would leave: of what was not synced each sector of each write is there or not.
    fn after_failure(&self, draw: &mut impl FnMut(u64) -> u64) -> Vec<u8> {
        const SECTOR: usize = 512;
        let mut image = self.synced.clone();
        // How far the disk got, with what is lost in between.
        for op in self.since.iter().take(draw(self.since.len() as u64 + 1) as usize) {
            match op {
                Op::SetLen(_) => op.apply(&mut image),
                Op::Write(offset, bytes) => {
                    for (number, sector) in bytes.chunks(SECTOR).enumerate() {
                        if draw(4) > 0 {
                            Op::Write(offset + (number * SECTOR) as u64, sector.to_vec()).apply(&mut image);
                        }
                    }
                }
            }
        }
        image
    }
}

impl StorageBackend for Disk {
    fn len(&self) -> io::Result<u64> {
        Ok(self.0.lock().unwrap().now.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let image = self.0.lock().unwrap();
        let begin = offset as usize;
        out.copy_from_slice(image.now.get(begin..begin + out.len()).ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        self.0.lock().unwrap().act(Op::SetLen(length))
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut image = self.0.lock().unwrap();
        if image.room == Some(0) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        image.synced = image.now.clone();
        image.since.clear();
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.0.lock().unwrap().act(Op::Write(offset, data.to_vec()))
    }
}

fn on(disk: &Disk) -> Journal {
    let database = redb::Builder::new().set_cache_size(CACHE).create_with_backend(disk.clone()).unwrap();
    Journal { path: PathBuf::from("in memory"), database }
}

/// Numbers that look random, the same each time.
fn numbers(seed: u64) -> impl FnMut(u64) -> u64 {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    move |below| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % below
    }
}

fn records(path: &Path) -> Vec<(u64, usize)> {
    let journal = Journal::open(path).unwrap_or_else(|error| panic!("{error}"));
    journal.begin([9; 20], HEAD_LOST).unwrap();
    journal.work().unwrap().into_iter().map(|(number, record)| (number, record.len())).collect()
}

#[test]
fn torn_commit_leaves_all_that_was_acknowledged() {
    let path = std::env::temp_dir().join(format!("paceline-torn-{}", std::process::id()));
    for seed in 0..50 {
        let mut draw = numbers(seed);
        let disk = Disk::default();
        let journal = on(&disk);
        journal.begin([1; 20], HEAD_LOST).unwrap();
        let size = |number: u64| (number * 7919 % 9000) as usize;
        let (count, mut torn) = (2 + draw(6), Vec::new());
        for number in 1..=count {
            // What the disk looks like in the middle of the last one: it is stopped before one of its writes.
            if number == count {
                disk.0.lock().unwrap().room = Some(draw(12) as usize);
            }
            let done = journal.accept(number, &vec![7; size(number)], b"note").is_ok();
            torn.push((number, size(number), done));
        }
        let image = disk.0.lock().unwrap().after_failure(&mut draw);
        std::fs::write(&path, image).unwrap();
        let found = records(&path);
        for (number, size, done) in torn {
            let there = found.contains(&(number, size));
            assert!(there || !done, "JR-3: seed {seed}: {number} was acknowledged and is lost: {found:?}");
            let other = found.iter().any(|(found, length)| *found == number && *length != size);
            assert!(!other, "JR-3: seed {seed}: {number} is there in part: {found:?}");
        }
    }
    std::fs::remove_file(&path).unwrap();
}

#[test]
fn file_with_foreign_bytes_is_called_damaged_and_left_alone() {
    let path = std::env::temp_dir().join(format!("paceline-tail-{}", std::process::id()));
    let journal = Journal::open(&path).unwrap();
    journal.accept(1, &[7; 3000], b"note").unwrap();
    drop(journal);
    let whole = std::fs::read(&path).unwrap();
    for length in [1, 511, 5000] {
        let mut bytes = whole.clone();
        bytes.extend(std::iter::repeat_n(0xa5, length));
        std::fs::write(&path, &bytes).unwrap();
        let error = Journal::open(&path).err().expect("these are not the database's");
        assert!(matches!(error, super::JournalError::Damaged { .. }), "{error:?}");
        assert_eq!(std::fs::read(&path).unwrap(), bytes, "JR-4");
    }
    std::fs::write(&path, &whole).unwrap();
    assert_eq!(records(&path), [(1, 3000)]);
    std::fs::remove_file(&path).unwrap();
}

#[test]
fn full_disk_refuses_everything_until_it_is_opened_again() {
    let disk = Disk::default();
    let journal = on(&disk);
    journal.begin([1; 20], HEAD_LOST).unwrap();
    journal.accept(1, b"one", b"note").unwrap();
    disk.0.lock().unwrap().room = Some(0);
    let error = journal.accept(2, b"two", b"note").unwrap_err();
    assert!(matches!(error, super::JournalError::Full { .. }), "{error:?}");
    disk.0.lock().unwrap().room = None;
    // There is room, and the database still refuses: this is what the queue opens it again for (JQ-3).
    let error = journal.accept(2, b"two", b"note").unwrap_err();
    assert!(matches!(error, super::JournalError::Io { .. }), "JR-5: {error:?}");
    assert!(!error.to_string().contains("damaged"), "JR-5: {error}");
    drop(journal);
    let journal = on(&disk);
    journal.accept(2, b"two", b"note").unwrap();
    assert_eq!(journal.work().unwrap().len(), 2);
}

#[test]
fn reopened_journal_must_be_the_one_that_was_begun() {
    let path = std::env::temp_dir().join(format!("paceline-reopened-{}", std::process::id()));
    let journal = Journal::open(&path).unwrap();
    let Begun { cluster, epoch, .. } = journal.begin([1; 20], HEAD_LOST).unwrap();
    drop(journal);
    drop(Journal::reopen(&path, cluster, epoch).unwrap());
    std::fs::remove_file(&path).unwrap();
    let missing = Journal::reopen(&path, cluster, epoch).err().expect("JR-6: it is missing");
    assert!(!path.exists(), "JR-6: it is not made anew: {missing}");
    Journal::open(&path).unwrap().begin([2; 20], HEAD_LOST).unwrap();
    let other = Journal::reopen(&path, cluster, epoch).err().expect("JR-6: it is another");
    assert!(matches!(other, super::JournalError::Replaced { .. }), "{other:?}");
    std::fs::remove_file(&path).unwrap();
}
