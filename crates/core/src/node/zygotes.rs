//! Zygotes whose processes were stopped, by SIGSTOP or another signal of job control.
//!
//! Owns: when a zygote has stood still for too long. The shell looks, for nobody tells: a zygote is no child of the node. A
//! debugger stops a process in another way, which is not taken for this.
//!
//! * ZS-1: a zygote that stands still forks no slot and tells of no death, so calls would wait for ever. While somebody needs
//!   it, it stands still for [`ZYGOTE_STOPPED_LIMIT`] at most; then it is killed, and what follows is what follows whenever a
//!   zygote dies.

use super::{Effect, Node, Phase, Zygote};
use crate::time::Tick;
use paceline_proto::ProgramId;
use std::time::Duration;

/// How long a zygote may stand still.
pub const ZYGOTE_STOPPED_LIMIT: Duration = Duration::from_secs(5);

impl Node {
    /// Whether somebody needs the zygotes, so that it matters whether they stand still.
    pub fn needs_zygotes(&self) -> bool {
        self.phase != Phase::Closed && (self.is_used() || !self.pending.is_empty())
    }

    /// These zygotes were found to stand still, and no others.
    pub(super) fn on_zygotes_stopped(&mut self, now: Tick, programs: &[ProgramId], out: &mut Vec<Effect>) {
        self.stopped_zygotes.retain(|program, _| programs.contains(program));
        for &program in programs {
            let is_up = match program.is_own() {
                true => matches!(self.zygote, Zygote::Up { .. }),
                false => self.program_is_up(program),
            };
            if is_up && self.needs_zygotes() {
                self.stopped_zygotes.entry(program).or_insert(now);
            }
        }
        self.stopped_zygotes.retain(|&program, since| {
            let is_late = *since + ZYGOTE_STOPPED_LIMIT <= now;
            out.extend(is_late.then_some(Effect::KillZygote { program }));
            !is_late
        });
    }

    /// The zygote is another one from now on, or none.
    pub(super) fn forget_stopped_zygote(&mut self, program: ProgramId) {
        self.stopped_zygotes.remove(&program);
    }

    pub(super) fn stopped_zygotes_on_gap(&mut self, gap: Duration) {
        self.stopped_zygotes.values_mut().for_each(|since| *since = *since + gap);
    }

    /// Nobody looks meanwhile, so nobody knows how long they have.
    pub(super) fn tidy_stopped_zygotes(&mut self) {
        if !self.needs_zygotes() {
            self.stopped_zygotes.clear();
        }
    }
}
