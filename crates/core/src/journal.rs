//! Decides when a head's journal is written, and when its file is opened again after an error.
//!
//! Owns: writes that wait, the one batch that is under way, and what follows from an error. Does not own: the file and the
//! thread that writes it, which are the shell's; nor what is written, which [`crate::head`] says.
//!
//! * JQ-1: one commit or one reopening is under way at a time. What comes meanwhile is the next batch, as a whole.
//! * JQ-2: every write is answered once, and the writes of one piece of work in their order.
//! * JQ-3: after an error nothing is committed before the file was opened again: the database refuses everything until
//!   then, also when the disk has room again.
//! * JQ-4: a record whose commit failed may have reached the disk all the same. Whoever submitted it is told that it was
//!   refused, so it is removed with the next commit.
//! * JQ-5: what waits is bounded: one state of each piece of work, and [`MAX_WAITING_RECORDS`] or
//!   [`MAX_WAITING_BYTES`] of new records. One more is refused at once.
//! * JQ-7: an error is reported until something that was to be written is. Removing what was refused (JQ-4) is no proof that
//!   the disk has room: it needs next to none.
//! * JQ-6: attempts come ever more slowly while they fail, up to [`MAX_RETRY_PAUSE`].

use crate::head::{Write, Wrote};
use crate::time::Tick;
use paceline_proto::WorkId;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// So many new records wait for the disk.
pub const MAX_WAITING_RECORDS: usize = 256;
/// So many bytes of new records wait for the disk.
pub const MAX_WAITING_BYTES: usize = 64 << 20;
/// The first pause after an error that has come again.
pub const MIN_RETRY_PAUSE: Duration = Duration::from_millis(50);
/// The longest pause between two attempts.
pub const MAX_RETRY_PAUSE: Duration = Duration::from_secs(1);

/// Tells the queue what has happened.
#[derive(Clone, PartialEq, Debug)]
pub enum Event {
    Put {
        work: WorkId,
        write: Write,
    },
    /// The batch is on disk, since this time in seconds since 1970.
    Committed {
        at: u64,
    },
    /// The batch is not known to be on disk.
    Failed {
        why: String,
    },
    Opened,
    NotOpened {
        why: String,
    },
    Tick,
}

/// Tells the shell what to do.
#[derive(Clone, PartialEq, Debug)]
pub enum Effect {
    /// Write all of it or nothing, in this order; then say how that went.
    Commit(Vec<(WorkId, Write)>),
    /// Close the file and open it again; then say how that went.
    Reopen,
    Answer {
        work: WorkId,
        wrote: Wrote,
    },
    WakeAt(Tick),
}

/// Says how the journal is, for people.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Status {
    /// Writes that wait or are under way.
    pub waiting: usize,
    /// For how long the disk has not answered.
    pub silent: Option<Duration>,
    /// Why the last write failed, until one succeeds (JQ-7).
    pub failure: Option<String>,
}

/// The writes of one head to its journal.
pub struct WriteQueue {
    waiting: BTreeMap<WorkId, Waiting>,
    under_way: Option<(Tick, UnderWay)>,
    file: File,
    /// Records that may be on disk though they were refused (JQ-4).
    refused: BTreeSet<WorkId>,
    /// Errors since the last commit.
    failures: u32,
    failure: Option<String>,
}

/// What waits of one piece of work.
#[derive(Default)]
struct Waiting {
    writes: Vec<Write>,
    answers: u32,
}

enum UnderWay {
    Commit { batch: Vec<Entry>, removed: BTreeSet<WorkId> },
    Reopen,
}

struct Entry {
    work: WorkId,
    answers: u32,
    /// Its record is new.
    is_record: bool,
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum File {
    Open,
    /// It takes nothing until it was opened again, which is tried then (JQ-3).
    Failed {
        retry_at: Tick,
    },
}

impl Default for WriteQueue {
    fn default() -> WriteQueue {
        WriteQueue {
            waiting: BTreeMap::new(),
            under_way: None,
            file: File::Open,
            refused: BTreeSet::new(),
            failures: 0,
            failure: None,
        }
    }
}

impl WriteQueue {
    pub fn handle(&mut self, now: Tick, event: Event, out: &mut Vec<Effect>) {
        match event {
            Event::Put { work, write } => self.put(work, write, out),
            Event::Committed { at } => self.on_committed(at, out),
            Event::Failed { why } => self.on_failed(now, why, out),
            Event::Opened => {
                self.under_way = None;
                self.file = File::Open;
            }
            Event::NotOpened { why } => {
                self.under_way = None;
                self.pause(now, &why);
                for (work, waiting) in std::mem::take(&mut self.waiting) {
                    answer(work, waiting.answers, &Err(why.clone()), out);
                }
            }
            Event::Tick => {}
        }
        self.advance(now, out);
    }

    /// Returns how the journal is.
    pub fn status(&self, now: Tick) -> Status {
        let under_way = match &self.under_way {
            Some((_, UnderWay::Commit { batch, .. })) => batch.iter().map(|entry| entry.answers).sum(),
            _ => 0,
        };
        let waiting = self.waiting.values().map(|waiting| waiting.answers).sum::<u32>();
        Status {
            waiting: (waiting + under_way) as usize,
            silent: self.under_way.as_ref().map(|(since, _)| now.since(*since)),
            failure: self.failure.clone(),
        }
    }

    /// Returns whether nothing waits and nothing is under way.
    pub fn is_idle(&self) -> bool {
        self.under_way.is_none() && self.waiting.is_empty()
    }

    fn put(&mut self, work: WorkId, write: Write, out: &mut Vec<Effect>) {
        if let Write::Keep(record) = &write {
            let waiting = self.waiting.values().flat_map(|waiting| &waiting.writes).filter_map(record_size);
            let (count, bytes) = waiting.fold((0, 0), |(count, bytes), size| (count + 1, bytes + size));
            if count >= MAX_WAITING_RECORDS || bytes + record.start.len() > MAX_WAITING_BYTES {
                // JQ-5.
                let why = format!(
                    "{count} submitted programs wait for the journal's disk already; try again later"
                );
                return out.push(Effect::Answer { work, wrote: Err(why) });
            }
        }
        let waiting = self.waiting.entry(work).or_default();
        waiting.answers += 1;
        match &write {
            // It is the whole state, and stands for those before it.
            Write::Note(_) => waiting.writes.retain(|other| !matches!(other, Write::Note(_))),
            Write::End(_) | Write::Forget => waiting.writes.clear(),
            Write::HeadLost(_) => waiting.writes.clear(),
            Write::Keep(_) => {}
        }
        waiting.writes.push(write);
    }

    fn on_committed(&mut self, at: u64, out: &mut Vec<Effect>) {
        let Some((_, UnderWay::Commit { batch, removed })) = self.under_way.take() else { return };
        self.failures = 0;
        if !batch.is_empty() {
            // JQ-7.
            self.failure = None;
        }
        self.refused.retain(|work| !removed.contains(work));
        for Entry { work, answers, .. } in batch {
            answer(work, answers, &Ok(at), out);
        }
    }

    fn on_failed(&mut self, now: Tick, why: String, out: &mut Vec<Effect>) {
        let Some((_, UnderWay::Commit { batch, .. })) = self.under_way.take() else { return };
        self.pause(now, &why);
        for Entry { work, answers, is_record } in batch {
            if is_record {
                self.refused.insert(work);
            }
            answer(work, answers, &Err(why.clone()), out);
        }
    }

    /// Counts an error: the file is opened again at once after the first, and later after each further one (JQ-6).
    fn pause(&mut self, now: Tick, why: &str) {
        let pause = match self.failures {
            0 => Duration::ZERO,
            count => (MIN_RETRY_PAUSE * (1 << (count - 1).min(10))).min(MAX_RETRY_PAUSE),
        };
        self.failures += 1;
        self.failure = Some(why.to_owned());
        self.file = File::Failed { retry_at: now + pause };
    }

    fn advance(&mut self, now: Tick, out: &mut Vec<Effect>) {
        if self.under_way.is_some() {
            return;
        }
        match self.file {
            File::Open if self.waiting.is_empty() && self.refused.is_empty() => {}
            File::Open => {
                let mut writes: Vec<(WorkId, Write)> =
                    self.refused.iter().map(|work| (*work, Write::Forget)).collect();
                let mut batch = Vec::new();
                for (work, waiting) in std::mem::take(&mut self.waiting) {
                    let is_record = waiting.writes.iter().any(|write| record_size(write).is_some());
                    batch.push(Entry { work, answers: waiting.answers, is_record });
                    writes.extend(waiting.writes.into_iter().map(|write| (work, write)));
                }
                self.under_way = Some((now, UnderWay::Commit { batch, removed: self.refused.clone() }));
                out.push(Effect::Commit(writes));
            }
            File::Failed { retry_at } if retry_at <= now => {
                self.under_way = Some((now, UnderWay::Reopen));
                out.push(Effect::Reopen);
            }
            File::Failed { retry_at } => out.push(Effect::WakeAt(retry_at)),
        }
    }
}

fn record_size(write: &Write) -> Option<usize> {
    match write {
        Write::Keep(record) => Some(record.start.len()),
        _ => None,
    }
}

fn answer(work: WorkId, answers: u32, wrote: &Wrote, out: &mut Vec<Effect>) {
    for _ in 0..answers {
        out.push(Effect::Answer { work, wrote: wrote.clone() });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use paceline_proto::Work;
    use paceline_proto::work::{End, Ended, Standing};

    const A: WorkId = WorkId(1);
    const B: WorkId = WorkId(2);

    struct Bench {
        queue: WriteQueue,
        now: Tick,
    }

    impl Bench {
        fn new() -> Bench {
            Bench { queue: WriteQueue::default(), now: Tick(0) }
        }

        fn handle(&mut self, event: Event) -> Vec<Effect> {
            let mut out = Vec::new();
            self.queue.handle(self.now, event, &mut out);
            out
        }

        fn put(&mut self, work: WorkId, write: Write) -> Vec<Effect> {
            self.handle(Event::Put { work, write })
        }

        fn fail(&mut self) -> Vec<Effect> {
            self.handle(Event::Failed { why: "full".into() })
        }
    }

    fn keep(name: &str) -> Write {
        Write::Keep(Work { name: name.into(), ..Work::default() })
    }

    fn note(restarted: u32) -> Write {
        Write::Note(Standing { restarted, ..Standing::default() })
    }

    fn ended() -> Ended {
        let (name, node) = (String::new(), None);
        Ended { token: 1, name, end: End::Stopped, node, restarted: 0, submitted: 0, at: 0 }
    }

    fn written(work: WorkId) -> Effect {
        Effect::Answer { work, wrote: Ok(7) }
    }

    fn refused(work: WorkId) -> Effect {
        Effect::Answer { work, wrote: Err("full".into()) }
    }

    #[test]
    fn writes_during_a_commit_are_the_next_batch() {
        let mut bench = Bench::new();
        assert_eq!(bench.put(A, keep("a")), [Effect::Commit(vec![(A, keep("a"))])]);
        assert_eq!(bench.put(B, note(1)), [], "JQ-1");
        assert_eq!(bench.put(B, note(2)), [], "JQ-1");
        let next = Effect::Commit(vec![(B, note(2))]);
        assert_eq!(bench.handle(Event::Committed { at: 7 }), [written(A), next], "JQ-1, JQ-5");
        assert_eq!(bench.handle(Event::Committed { at: 7 }), [written(B), written(B)], "JQ-2");
        assert!(bench.queue.is_idle());
    }

    #[test]
    fn end_stands_for_the_notes_before_it() {
        let mut bench = Bench::new();
        bench.put(A, keep("a"));
        bench.put(B, note(1));
        bench.put(B, Write::End(ended()));
        let next = Effect::Commit(vec![(B, Write::End(ended()))]);
        assert_eq!(bench.handle(Event::Committed { at: 7 }), [written(A), next]);
        assert_eq!(bench.handle(Event::Committed { at: 7 }), [written(B), written(B)], "JQ-2");
    }

    #[test]
    fn error_reopens_the_file_before_the_next_commit() {
        let mut bench = Bench::new();
        bench.put(A, note(1));
        assert_eq!(bench.fail(), [refused(A), Effect::Reopen], "JQ-3");
        assert_eq!(bench.put(A, note(2)), [], "JQ-3");
        assert_eq!(bench.handle(Event::Opened), [Effect::Commit(vec![(A, note(2))])]);
        assert_eq!(bench.handle(Event::Committed { at: 7 }), [written(A)]);
        assert_eq!(bench.queue.status(bench.now).failure, None);
    }

    #[test]
    fn refused_record_is_removed_with_the_next_commit() {
        let mut bench = Bench::new();
        bench.put(A, keep("a"));
        assert_eq!(bench.fail(), [refused(A), Effect::Reopen]);
        bench.put(B, keep("a"));
        let next = vec![(A, Write::Forget), (B, keep("a"))];
        assert_eq!(bench.handle(Event::Opened), [Effect::Commit(next)], "JQ-4");
        // It fails again: both are to be removed, and not at once.
        let effects = bench.fail();
        assert_eq!(effects[..1], [refused(B)]);
        assert_eq!(effects[1..], [Effect::WakeAt(bench.now + MIN_RETRY_PAUSE)], "JQ-6");
        bench.now = bench.now + MIN_RETRY_PAUSE;
        assert_eq!(bench.handle(Event::Tick), [Effect::Reopen]);
        let both = vec![(A, Write::Forget), (B, Write::Forget)];
        assert_eq!(bench.handle(Event::Opened), [Effect::Commit(both)], "JQ-4");
        assert_eq!(bench.handle(Event::Committed { at: 7 }), []);
    }

    #[test]
    fn failure_is_reported_until_a_write_succeeds() {
        let mut bench = Bench::new();
        bench.put(A, keep("a"));
        bench.fail();
        assert_eq!(bench.handle(Event::Opened), [Effect::Commit(vec![(A, Write::Forget)])], "JQ-4");
        assert_eq!(bench.handle(Event::Committed { at: 7 }), []);
        let failure = |bench: &Bench| bench.queue.status(bench.now).failure;
        assert_eq!(failure(&bench).as_deref(), Some("full"), "JQ-7: nothing was written, only removed");
        bench.put(B, note(1));
        bench.handle(Event::Committed { at: 8 });
        assert_eq!(failure(&bench), None, "JQ-7");
    }

    #[test]
    fn file_that_cannot_be_opened_refuses_what_waits_and_is_tried_again() {
        let mut bench = Bench::new();
        bench.put(A, note(1));
        bench.fail();
        let mut pauses = Vec::new();
        for _ in 0..8 {
            bench.put(B, note(1));
            let effects = bench.handle(Event::NotOpened { why: "full".into() });
            let Some(Effect::WakeAt(at)) = effects.last() else { panic!("{effects:?}") };
            assert_eq!(effects[..effects.len() - 1], [refused(B)], "JQ-2");
            pauses.push(at.since(bench.now));
            bench.now = *at;
            assert_eq!(bench.handle(Event::Tick), [Effect::Reopen]);
        }
        assert_eq!(pauses[0], MIN_RETRY_PAUSE, "JQ-6");
        assert!(pauses.is_sorted() && pauses[7] == MAX_RETRY_PAUSE, "JQ-6: {pauses:?}");
        assert_eq!(bench.handle(Event::Opened), []);
        assert_eq!(
            bench.queue.status(bench.now).failure.as_deref(),
            Some("full"),
            "nothing was written since"
        );
    }

    #[test]
    fn waiting_records_are_bounded_while_the_disk_hangs() {
        let mut bench = Bench::new();
        bench.put(A, keep("a"));
        bench.now = Tick(Duration::from_secs(9).as_nanos() as u64);
        for number in 0..MAX_WAITING_RECORDS as u64 {
            assert_eq!(bench.put(WorkId(10 + number), keep("b")), []);
        }
        let over = bench.put(B, keep("c"));
        assert!(matches!(&over[..], [Effect::Answer { work: B, wrote: Err(_) }]), "JQ-5: {over:?}");
        assert_eq!(bench.put(B, note(1)), [], "what is known already has its place");
        let status = bench.queue.status(bench.now);
        assert_eq!((status.waiting, status.silent), (258, Some(Duration::from_secs(9))));
    }
}
