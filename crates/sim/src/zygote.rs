//! The zygotes of a node: how they start, fork and die.

use crate::head::encoded;
use crate::link::{End, Kind, LinkId, Repeat};
use crate::process::{Life, Process};
use crate::world::{Event as Happening, Sim};
use paceline_core::Tick;
use paceline_core::node::Event;
use paceline_proto::control::{NodeToZygote, ZygoteToNode};
use paceline_proto::{DeathCause, ProgramId, SlotId, StartError};
use std::time::Duration;

#[derive(Clone, Copy)]
pub(crate) struct Zygote {
    number: u64,
    pub link: LinkId,
    /// It forks one slot after the other.
    busy_until: Tick,
}

impl Sim {
    pub(crate) fn start_zygote(&mut self, node: usize, program: ProgramId) {
        let bad = self.plan.active && self.random.percent(self.plan.bad_zygotes);
        let host = &mut self.nodes[node];
        host.started += 1;
        let zygote = host.started;
        let before = host.starting.insert(program, zygote);
        assert!(before.is_none() && !host.zygotes.contains_key(&program), "{program:?} is started twice");
        if bad && !program.is_own() && self.random.percent(20) {
            // It runs, and never says a word.
            return;
        }
        let delay = self.settings.fork.draw(&mut self.random);
        self.after(delay, Happening::ZygoteStarts { node, program, zygote, fine: !bad });
    }

    pub(crate) fn zygote_starts(&mut self, node: usize, program: ProgramId, zygote: u64, fine: bool) {
        let host = &mut self.nodes[node];
        if host.core.is_none() || host.starting.get(&program) != Some(&zygote) {
            return;
        }
        host.starting.remove(&program);
        if !fine {
            return self.zygote_is_gone(node, program);
        }
        let delay = self.settings.delays[0];
        let link = self.links.add(Kind::Zygote { node, zygote }, delay);
        let entry = Zygote { number: zygote, link, busy_until: self.now };
        self.nodes[node].zygotes.insert(program, entry);
        let up = if program.is_own() { Event::ZygoteUp } else { Event::ProgramUp(program) };
        self.node_handles(node, up);
    }

    pub(crate) fn zygote_is_gone(&mut self, node: usize, program: ProgramId) {
        let why = StartError::Ended { cause: DeathCause::Exit(1), words: "it is broken".into() };
        let gone = if program.is_own() { Event::ZygoteDied } else { Event::ProgramDown(program, why) };
        self.node_handles(node, gone);
    }

    /// The zygote of this number, if it lives.
    fn zygote(&mut self, node: usize, number: u64) -> Option<&mut Zygote> {
        self.nodes[node].zygotes.values_mut().find(|zygote| zygote.number == number)
    }

    pub(crate) fn zygote_dies(&mut self, node: usize, program: ProgramId) {
        let Some(&Zygote { number, link, .. }) = self.nodes[node].zygotes.get(&program) else { return };
        self.ledger.tally.zygote_deaths += 1;
        self.ledger.tally.program_deaths += u64::from(!program.is_own());
        self.note(|sim| format!("the zygote of {program:?} on node {} dies", sim.nodes[node].name));
        // Everything it had said is handed in first.
        while let Some(frame) = self.links.get_mut(link).and_then(|link| link.take_early(End::Near)) {
            let message = ZygoteToNode::decode(&frame).expect("what was sent can be read");
            self.node_hears_zygote(node, number, message);
        }
        self.links.remove(link);
        self.nodes[node].zygotes.remove(&program);
        if self.nodes[node].standstill.until(self.now).is_some() {
            // The kernel kills them; a node that does not stand still does so, too.
            for process in self.nodes[node].slots.values().copied().collect::<Vec<_>>() {
                if self.processes[process].program == program {
                    self.kill(process, DeathCause::Signal(9));
                }
            }
        }
        self.zygote_is_gone(node, program);
        // Those that died before and were not reaped yet.
        for process in self.nodes[node].slots.values().copied().collect::<Vec<_>>() {
            let entry = &self.processes[process];
            if entry.program == program && entry.life == Life::Dead {
                self.after(Duration::from_micros(200), Happening::Reaped { process });
            }
        }
    }

    pub(crate) fn fork(&mut self, node: usize, slot: SlotId, program: ProgramId) {
        let delay = self.settings.delays[0];
        let process = self.processes.len();
        let control = self.links.add(Kind::Slot { process }, delay);
        self.processes.push(Process::new(node, slot, program, control));
        assert_eq!(self.nodes[node].slots.insert(slot, process), None, "{slot:?} is used again");
        let zygote = self.nodes[node].zygotes.get(&program);
        let Some(zygote) = zygote else {
            // A node that stood still may not have heard yet that its zygote is gone.
            assert!(self.nodes[node].standstill.is_behind(), "{slot:?} has no zygote to fork it");
            return;
        };
        let message = NodeToZygote::Fork { slot };
        self.post(zygote.link, End::Far, encoded(|out| message.encode(out)), None, Repeat::Never);
    }

    pub(crate) fn zygote_hears(&mut self, node: usize, number: u64, message: NodeToZygote) {
        let NodeToZygote::Fork { slot } = message else { return };
        let delay = self.settings.fork.draw(&mut self.random);
        let now = self.now;
        let Some(&process) = self.nodes[node].slots.get(&slot) else { return };
        let Some(zygote) = self.zygote(node, number) else { return };
        zygote.busy_until = zygote.busy_until.max(now) + delay;
        let at = zygote.busy_until;
        self.agenda.add(at, Happening::Forks { node, zygote: number, process });
    }

    pub(crate) fn zygote_forks(&mut self, node: usize, number: u64, process: usize) {
        let Some(zygote) = self.zygote(node, number) else { return };
        let link = zygote.link;
        let slot = self.processes[process].slot;
        if self.processes[process].life != Life::Unborn {
            return;
        }
        self.processes[process].life = Life::Starting;
        let message = ZygoteToNode::Forked { slot, pid: process as u32 + 1 };
        self.post(link, End::Near, encoded(|out| message.encode(out)), None, Repeat::Later);
        let delay = self.settings.fork.draw(&mut self.random);
        self.after(delay, Happening::SlotStarts { process });
    }

    pub(crate) fn node_hears_zygote(&mut self, node: usize, number: u64, message: ZygoteToNode) {
        if self.zygote(node, number).is_none() {
            return;
        }
        match message {
            ZygoteToNode::Hello => {}
            ZygoteToNode::Forked { slot, pid } => self.node_handles(node, Event::Forked { slot, pid }),
            ZygoteToNode::Stopped { slot, signal } => {
                self.node_handles(node, Event::Stopped { slot, signal, ends_at: None });
            }
            ZygoteToNode::Continued { slot } => self.node_handles(node, Event::Continued { slot }),
            ZygoteToNode::Exited { slot, cause, .. } => {
                if let Some(&process) = self.nodes[node].slots.get(&slot) {
                    let death = self.death(process, cause);
                    let calls = self.guest_calls(process);
                    self.node_handles(node, Event::GuestCalls { slot, calls });
                    self.node_handles(node, Event::Exited { slot, death });
                }
            }
        }
    }
}
