//! What outlives a head, on real files.

use paceline_head::journal::{Change, Journal, JournalError};
use std::path::PathBuf;
use std::time::Duration;

const HEAD_LOST: Duration = Duration::from_secs(60);

/// A directory that goes with the test.
struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Directory {
        let path = std::env::temp_dir().join(format!("paceline-journal-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Directory(path)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_cluster_keeps_its_id_and_each_start_has_a_later_epoch() {
    let directory = Directory::new("epochs");
    let begin = |random: u8| {
        let begun =
            Journal::open(&directory.file("journal")).unwrap().begin([random; 20], HEAD_LOST).unwrap();
        (begun.cluster, begun.epoch)
    };
    let (cluster, first) = begin(9);
    let (same, second) = begin(3);
    assert_eq!((cluster, first.number(), second.number()), (same, 1, 2), "JR-1");
    assert!(second > first);
}

#[test]
fn starts_from_copies_of_a_journal_differ() {
    let directory = Directory::new("copies");
    let (original, copy) = (directory.file("journal"), directory.file("copy"));
    Journal::open(&original).unwrap().begin([1; 20], HEAD_LOST).unwrap();
    std::fs::copy(&original, &copy).unwrap();
    let one = Journal::open(&original).unwrap().begin([2; 20], HEAD_LOST).unwrap();
    let other = Journal::open(&copy).unwrap().begin([3; 20], HEAD_LOST).unwrap();
    assert_eq!((one.cluster, one.epoch.number()), (other.cluster, other.epoch.number()));
    assert_ne!(one.epoch, other.epoch, "JR-1");
}

#[test]
fn longest_head_lost_stays_until_it_is_forgotten() {
    let directory = Directory::new("head-lost");
    let path = directory.file("journal");
    let begin =
        |head_lost| Journal::open(&path).unwrap().begin([1; 20], head_lost).unwrap().earlier_head_lost;
    assert_eq!(begin(HEAD_LOST), Duration::ZERO, "there was no head before");
    assert_eq!(begin(HEAD_LOST / 6), HEAD_LOST, "JR-7");
    assert_eq!(begin(HEAD_LOST / 6), HEAD_LOST, "JR-7: the second start may have been short");
    Journal::open(&path).unwrap().apply(&[Change::HeadLost(HEAD_LOST / 6)]).unwrap();
    assert_eq!(begin(HEAD_LOST * 2), HEAD_LOST / 6);
    assert_eq!(begin(HEAD_LOST), HEAD_LOST * 2, "JR-7");
}

#[test]
fn one_head_uses_a_journal_at_a_time() {
    let directory = Directory::new("lock");
    let path = directory.file("journal");
    let first = Journal::open(&path).unwrap();
    let second = Journal::open(&path).err().expect("JR-2");
    assert!(matches!(second, JournalError::InUse { .. }), "{second:?}");
    assert!(second.to_string().contains("runs already"), "{second}");
    drop(first);
    Journal::open(&path).unwrap();
}

#[test]
fn work_is_there_after_a_restart() {
    let directory = Directory::new("work");
    let path = directory.file("journal");
    let journal = Journal::open(&path).unwrap();
    assert_eq!(journal.work().unwrap(), []);
    journal.keep(1, b"one").unwrap();
    journal.keep(2, &[7; 1 << 20]).unwrap();
    journal.keep(1, b"changed").unwrap();
    drop(journal);
    let journal = Journal::open(&path).unwrap();
    assert_eq!(journal.work().unwrap(), [(1, b"changed".to_vec()), (2, vec![7; 1 << 20])]);
    journal.forget(2).unwrap();
    assert_eq!(journal.work().unwrap().len(), 1);
}

#[test]
fn what_is_no_journal_is_left_alone_and_named() {
    let directory = Directory::new("foreign");
    let path = directory.file("journal");
    let text = b"Dear diary, ".repeat(1000);
    std::fs::write(&path, &text).unwrap();
    let error = Journal::open(&path).err().expect("it is a diary");
    let told = error.to_string();
    assert!(told.contains(path.to_str().unwrap()) && told.contains("move"), "{told}");
    assert_eq!(std::fs::read(&path).unwrap(), text, "JR-4");
}

#[test]
fn a_journal_that_was_cut_off_is_named() {
    let directory = Directory::new("damaged");
    let path = directory.file("journal");
    let journal = Journal::open(&path).unwrap();
    journal.begin([1; 20], HEAD_LOST).unwrap();
    journal.keep(1, &[1; 100_000]).unwrap();
    drop(journal);
    let length = std::fs::metadata(&path).unwrap().len();
    std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(length / 4).unwrap();
    let opened = std::panic::catch_unwind(|| {
        Journal::open(&path).and_then(|journal| journal.begin([2; 20], HEAD_LOST))
    });
    let Err(error) = opened.expect("no panic") else { panic!("three quarters are missing") };
    assert!(error.to_string().contains(path.to_str().unwrap()), "{error}");
}

#[test]
fn a_full_disk_is_named() {
    // Every write to it fails for want of room.
    let error = Journal::open(std::path::Path::new("/dev/full")).err().expect("there is no room");
    assert!(error.to_string().contains("/dev/full"), "{error}");
}

#[test]
fn a_piece_of_work_has_a_record_a_note_and_an_end() {
    let directory = Directory::new("ends");
    let path = directory.file("journal");
    let journal = Journal::open(&path).unwrap();
    journal.accept(1, b"one", b"waits").unwrap();
    journal.accept(2, b"two", b"waits").unwrap();
    journal.note(2, b"runs").unwrap();
    journal.end(1, b"done", 2).unwrap();
    drop(journal);
    let journal = Journal::open(&path).unwrap();
    assert_eq!(journal.work().unwrap(), [(2, b"two".to_vec())]);
    assert_eq!(journal.notes().unwrap(), [(2, b"runs".to_vec())]);
    assert_eq!(journal.ends().unwrap(), [(1, b"done".to_vec())]);
    for number in 3..6 {
        journal.end(number, b"done", 2).unwrap();
    }
    let kept: Vec<u64> = journal.ends().unwrap().into_iter().map(|(number, _)| number).collect();
    assert_eq!(kept, [4, 5], "the first are forgotten");
    journal.forget(2).unwrap();
    assert!(journal.work().unwrap().is_empty() && journal.notes().unwrap().is_empty());
}
