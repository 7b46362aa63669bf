//! Slots whose processes were stopped, by SIGSTOP or another signal of job control.
//!
//! Owns: when somebody is told that a slot stands still, and when it has for too long. The zygote, whose children they are,
//! hears from the kernel that they do. A debugger stops a process in another way, of which it is told nothing.
//!
//! * SD-1: whose slot stands still for [`TELL_AFTER`] is told once, by what looks like output of that slot.
//! * SD-2: one that stands still for `stopped_limit` is ended, and one whose call has had its time a moment after that:
//!   nothing inside could do it. Both are deaths as any other, charged to the call that ran.
//! * SD-3: somebody's program stands still for as long as it likes. It is no slot any more.

use super::{Effect, Node, State};
use crate::time::Tick;
use paceline_proto::SlotId;
use paceline_proto::control::Stream;
use std::time::Duration;

/// Somebody may only have had a quick look.
const TELL_AFTER: Duration = Duration::from_secs(1);
/// What a slot gives a call that has had its time, and that does not stop when asked to.
const GRACE: Duration = Duration::from_secs(2);

/// How a slot stands still.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Stopped {
    pub signal: i32,
    /// None once it was told (SD-1).
    tell_at: Option<Tick>,
    /// None if nobody wants it to, or once it was ended (SD-2).
    end_at: Option<Tick>,
    /// It is the time of its call that is over then.
    timed_out: bool,
}

impl Stopped {
    pub fn next(&self) -> Option<Tick> {
        self.tell_at.into_iter().chain(self.end_at).min()
    }

    pub fn on_gap(&mut self, gap: Duration) {
        self.tell_at = self.tell_at.map(|at| at + gap);
        self.end_at = self.end_at.map(|at| at + gap);
    }
}

impl Node {
    /// A slot was stopped by this signal. Its call, if it has one that may run only so long, has had its time at `ends_at`.
    pub(super) fn on_stopped(&mut self, now: Tick, id: SlotId, signal: i32, ends_at: Option<Tick>) {
        let is_work = self.work_in(id).is_some();
        let limit = self.config.stopped_limit.filter(|_| !is_work).map(|limit| now + limit);
        let late = ends_at.filter(|_| !is_work).map(|at| at.max(now) + GRACE);
        let timed_out = late.is_some_and(|late| limit.is_none_or(|limit| late <= limit));
        let Some(slot) = self.slots.get_mut(&id) else { return };
        // Of another signal on top of the first nothing comes.
        slot.stopped.get_or_insert(Stopped {
            signal,
            tell_at: Some(now + TELL_AFTER),
            end_at: limit.into_iter().chain(late).min(),
            timed_out,
        });
    }

    pub(super) fn on_continued(&mut self, id: SlotId) {
        if let Some(slot) = self.slots.get_mut(&id) {
            slot.stopped = None;
        }
    }

    pub(super) fn stopped_on_time(&mut self, now: Tick, out: &mut Vec<Effect>) {
        let due = |at: Option<Tick>| at.is_some_and(|at| at <= now);
        for id in self.slots.keys().copied().collect::<Vec<_>>() {
            let Some(slot) = self.slots.get_mut(&id) else { continue };
            let (pid, state) = (slot.pid, slot.state);
            let Some(stopped) = &mut slot.stopped else { continue };
            // What ends already is killed anyway.
            let leaves = matches!(state, State::Ending { .. });
            let tell = due(stopped.tell_at) && stopped.tell_at.take().is_some() && !leaves;
            let end = due(stopped.end_at) && stopped.end_at.take().is_some() && !leaves;
            let stopped = *stopped;
            if tell && let Some(pid) = pid {
                let text = notice(&stopped, pid, now);
                self.on_output(id, Stream::Err, text.into_bytes(), out);
            }
            if end {
                out.push(Effect::EndStopped {
                    slot: id,
                    signal: stopped.signal,
                    timed_out: stopped.timed_out,
                });
            }
        }
    }

    pub(super) fn stopped_next(&self) -> Option<Tick> {
        self.slots.values().filter_map(|slot| slot.stopped?.next()).min()
    }
}

fn notice(stopped: &Stopped, pid: u32, now: Tick) -> String {
    let signal = name(stopped.signal);
    let end = match stopped.end_at {
        Some(at) => {
            format!(
                "; in {:.0} s it is ended, unless `kill -CONT {pid}` lets it go on",
                at.since(now).as_secs_f64()
            )
        }
        None => format!(" until `kill -CONT {pid}` lets it go on"),
    };
    format!("paceline: this process ({pid}) was stopped by {signal} and stands still{end}\n")
}

/// What a signal that stops processes is called, as Linux counts them.
pub fn name(signal: i32) -> String {
    match signal {
        19 => "SIGSTOP".into(),
        20 => "SIGTSTP".into(),
        21 => "SIGTTIN".into(),
        22 => "SIGTTOU".into(),
        other => format!("signal {other}"),
    }
}
