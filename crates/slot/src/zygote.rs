//! The zygote's end of its link to the node, and the reaper of its children.
//!
//! Owns: the processes of all slots, from fork to grave. Does not own: the fork itself, which is the language's: whoever
//! uses this forks when [`Zygote::next`] gives a [`Birth`], then calls [`Zygote::forked`] in the parent and
//! [`Birth::become_slot`] in the child.
//!
//! * ZY-1: a slot's end is reported after its process group was killed, and with it whatever the slot left behind.
//! * ZY-2: when the node is gone, so is everything: every slot, its group, its leftovers, and then the zygote.
//!   A zygote that was stopped goes on then: the kernel lets it, for nothing that it reads could.
//! * ZY-3: single-threaded, and nothing of one slot is open in another.
//! * ZY-4: a slot that must exist once is killed when its time has come, whether or not the node says a word.
//!
//! Each slot is a subreaper of its own: what its children leave behind becomes its child, and, when it dies, the
//! zygote's. So a child of the zygote that is not a slot is always left over from one that is dead.

use crate::deadlines::Deadlines;
use crate::directory;
use paceline_net::cgroup;
use paceline_net::control::{Inbox, Outbox};
use paceline_net::lifeline::go_on_at_the_end_of;
use paceline_net::private::Reserved;
use paceline_net::reap::{Reaped, first_dead, next_stopped, reap};
use paceline_net::signalfd::Signals;
use paceline_net::{poll, signals};
use paceline_proto::control::{NodeToZygote, ZygoteToNode};
use paceline_proto::{DeathCause, SlotId};
use rustix::event::{PollFd, PollFlags};
use rustix::fd::{AsRawFd, IntoRawFd, OwnedFd};
use rustix::fs::{Mode, OFlags, open};
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitOptions, getpid, getppid, kill_process, kill_process_group, pidfd_open,
    set_child_subreaper, set_parent_process_death_signal, setpgid, wait,
};
use rustix::stdio::{dup2_stderr, dup2_stdin, dup2_stdout};
use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

/// How long the zygote waits for killed processes to go before it goes itself.
const FAREWELL: Duration = Duration::from_secs(1);

/// The zygote.
pub struct Zygote {
    node: OwnedFd,
    inbox: Inbox<NodeToZygote>,
    outbox: Outbox,
    signals: Signals,
    /// The node's process; none if it was gone before we looked.
    peer: Option<OwnedFd>,
    peer_pid: Pid,
    /// Ends with the node (ZY-2).
    lifeline: Option<OwnedFd>,
    slots: HashMap<Pid, Slot>,
    deadlines: Deadlines,
    pid: Pid,
}

/// A slot that lives.
struct Slot {
    id: SlotId,
    directory: Reserved,
}

/// What the zygote is to do.
pub enum Wanted {
    Fork(Birth),
    /// Nothing was asked of it for as long as it was to wait.
    Idle,
    /// The node is gone or says so, and no slot is left.
    End,
}

/// One slot to be: its id and the descriptors it starts with. They close when this is dropped.
pub struct Birth {
    pub slot: SlotId,
    control: OwnedFd,
    stdout: OwnedFd,
    stderr: OwnedFd,
    page: OwnedFd,
    directory: Reserved,
}

enum Waited {
    Something,
    Nothing,
    Orphaned,
}

impl Zygote {
    /// Be the zygote of the node at the other end of this socket, which the process was started with.
    pub fn new(socket: OwnedFd) -> io::Result<Zygote> {
        let node = settle(socket)?;
        // Blocked rather than ignored: slots get back whatever handlers the language has installed.
        // The thread that started us blocks all signals, and a mask is inherited.
        signals::unblock_all();
        let signals = Signals::catch(&[Signal::CHILD, Signal::TERM, Signal::INT].map(Signal::as_raw))?;
        let pid = getpid();
        set_child_subreaper(Some(pid))?;
        // A pair of sockets tells who made it. That it is gone is seen at once, even if a child of it that we know
        // nothing of still has its end of the link.
        let peer_pid = rustix::net::sockopt::socket_peercred(&node)?.pid;
        let peer = pidfd_open(peer_pid, PidfdFlags::empty()).ok();
        let mut zygote = Zygote {
            node,
            inbox: Inbox::default(),
            outbox: Outbox::default(),
            signals,
            peer,
            peer_pid,
            lifeline: None,
            slots: HashMap::new(),
            deadlines: Deadlines::new()?,
            pid,
        };
        zygote.say(&ZygoteToNode::Hello);
        Ok(zygote)
    }

    /// What to do next. Reaps meanwhile, and with `patience` waits no longer than that for something new.
    pub fn next(&mut self, patience: Option<Duration>) -> io::Result<Wanted> {
        let mut patience = patience;
        loop {
            while let Some(signal) = self.signals.next() {
                match signal {
                    signal if signal == Signal::CHILD.as_raw() => self.on_children(),
                    signal if signal == Signal::TERM.as_raw() => return self.end(),
                    _ => {}
                }
            }
            self.kill_due();
            match self.inbox.next() {
                Ok(Some((NodeToZygote::KillAt { slots }, _))) => {
                    self.deadlines.set(slots);
                    continue;
                }
                Ok(Some((NodeToZygote::Lifeline, descriptors))) => {
                    self.lifeline = descriptors.into_iter().next();
                    // Where the system does not help, one that runs hears of the node's end all the same.
                    let _ = self.lifeline.as_ref().map(go_on_at_the_end_of);
                    continue;
                }
                Ok(Some((NodeToZygote::Fork { slot }, descriptors))) => {
                    return Ok(Wanted::Fork(birth(slot, descriptors, Reserved::draw()?)));
                }
                Ok(Some((NodeToZygote::Exit, _))) | Err(_) => return self.end(),
                Ok(None) => {}
            }
            match self.wait(patience)? {
                Waited::Something => {}
                Waited::Nothing if patience.take().is_some() => return Ok(Wanted::Idle),
                Waited::Nothing => continue,
                Waited::Orphaned => return self.end(),
            }
            match self.inbox.fill(&self.node) {
                Ok(0) => return self.end(),
                Err(error) if error.kind() != io::ErrorKind::WouldBlock => return self.end(),
                Ok(_) | Err(_) => {}
            }
        }
    }

    fn wait(&mut self, time: Option<Duration>) -> io::Result<Waited> {
        let Some(peer) = &self.peer else { return Ok(Waited::Orphaned) };
        let interest = if self.outbox.queued() > 0 { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
        let mut sources = [
            PollFd::new(&self.node, interest),
            PollFd::new(&self.signals, PollFlags::IN),
            PollFd::new(peer, PollFlags::IN),
            PollFd::new(&self.deadlines, PollFlags::IN),
        ];
        let something = poll::wait(&mut sources, time)?;
        let orphaned = !sources[2].revents().is_empty();
        self.flush();
        Ok(match (orphaned, something) {
            (true, _) => Waited::Orphaned,
            (false, true) => Waited::Something,
            (false, false) => Waited::Nothing,
        })
    }

    /// In the parent: the fork gave this process.
    pub fn forked(&mut self, birth: Birth, pid: u32) -> io::Result<()> {
        let process = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or(io::ErrorKind::InvalidInput)?;
        // The child does the same. Whoever comes second is told off, which does not matter.
        let _ = setpgid(Some(process), Some(process));
        self.slots.insert(process, Slot { id: birth.slot, directory: birth.directory.clone() });
        self.say(&ZygoteToNode::Forked { slot: birth.slot, pid });
        Ok(())
    }

    /// In the parent: the fork failed, for want of memory or processes.
    pub fn not_forked(&mut self, birth: Birth, error: i32) {
        self.say(&ZygoteToNode::Exited { slot: birth.slot, pid: 0, cause: DeathCause::Exit(error), peak: 0 });
    }

    fn on_children(&mut self) {
        // Seen dead but not yet reaped: nobody else can have its number, so its group can be killed safely (ZY-1).
        while let Some(pid) = first_dead() {
            if self.slots.contains_key(&pid) {
                let _ = kill_process_group(pid, Signal::KILL);
            }
            let Some(Reaped { cause, peak }) = reap(pid) else { break };
            self.on_exit(pid, cause, peak);
        }
        while let Some((pid, signal)) = next_stopped() {
            let Some(&Slot { id: slot, .. }) = self.slots.get(&pid) else { continue };
            self.say(&match signal {
                Some(signal) => ZygoteToNode::Stopped { slot, signal },
                None => ZygoteToNode::Continued { slot },
            });
        }
        self.kill_leftovers();
    }

    fn on_exit(&mut self, pid: Pid, cause: DeathCause, peak: u64) {
        if let Some(Slot { id: slot, directory }) = self.slots.remove(&pid) {
            self.deadlines.forget(slot);
            self.kill_leftovers();
            let pid = pid.as_raw_nonzero().get() as u32;
            directory.remove();
            self.say(&ZygoteToNode::Exited { slot, pid, cause, peak });
        }
    }

    /// ZY-4. What they leave behind goes with them (ZY-1).
    fn kill_due(&mut self) {
        for slot in self.deadlines.due() {
            let pids = self.slots.iter().filter(|(_, other)| other.id == slot);
            for (&pid, _) in pids {
                let _ = kill_process_group(pid, Signal::KILL);
                let _ = kill_process(pid, Signal::KILL);
            }
        }
    }

    /// Whatever is our child and not a slot. What it leaves behind becomes our child in turn, and dies next.
    fn kill_leftovers(&self) {
        for pid in children().into_iter().filter(|pid| !self.slots.contains_key(pid)) {
            let _ = kill_process(pid, Signal::KILL);
        }
    }

    /// Nothing may outlive the zygote (ZY-2).
    fn end(&mut self) -> io::Result<Wanted> {
        for &pid in self.slots.keys() {
            let _ = kill_process_group(pid, Signal::KILL);
            let _ = kill_process(pid, Signal::KILL);
        }
        let until = Instant::now() + FAREWELL;
        loop {
            self.on_children();
            let left = until.saturating_duration_since(Instant::now());
            let childless = matches!(wait(WaitOptions::NOHANG), Err(rustix::io::Errno::CHILD));
            if childless || left.is_zero() {
                self.remove_groups();
                return Ok(Wanted::End);
            }
            poll::wait(&mut [PollFd::new(&self.signals, PollFlags::IN)], Some(left.min(FAREWELL / 20)))?;
            while self.signals.next().is_some() {}
        }
    }

    /// A node that was killed cannot remove them itself.
    fn remove_groups(&self) {
        if let Some(group) = cgroup::own_of_memory(Path::new("/")) {
            cgroup::sweep(&group, Some(self.peer_pid));
        }
    }

    fn say(&mut self, message: &ZygoteToNode) {
        self.outbox.push(message, Vec::new());
        self.flush();
    }

    fn flush(&mut self) {
        // What the socket does not take now goes later; a node that is gone shows when we read.
        let _ = self.outbox.flush(&self.node);
    }
}

impl Birth {
    /// In the child, first of all: stop being the zygote. Its descriptors close, signals arrive again, output goes to
    /// the node. Gives the slot's id, its control socket and its page.
    pub fn become_slot(self, zygote: Zygote) -> io::Result<(SlotId, OwnedFd, OwnedFd)> {
        let Zygote {
            signals,
            node,
            inbox,
            outbox,
            peer,
            lifeline,
            slots,
            deadlines,
            pid: parent,
            peer_pid: _,
        } = zygote;
        drop((node, inbox, outbox, peer, lifeline, slots, deadlines));
        // The parent does the same. Whoever comes second is told off, which does not matter.
        let _ = setpgid(None, None);
        set_parent_process_death_signal(Some(Signal::KILL))?;
        if getppid() != Some(parent) {
            return Err(io::Error::new(io::ErrorKind::NotConnected, "the zygote died as it forked"));
        }
        set_child_subreaper(Some(getpid()))?;
        dup2_stdout(&self.stdout)?;
        dup2_stderr(&self.stderr)?;
        // If memory runs out, rather a slot than what surrounds it. Where that is not allowed, so be it.
        let _ = std::fs::write("/proc/self/oom_score_adj", "800");
        signals.release();
        directory::set(self.directory);
        Ok((self.slot, self.control, self.page))
    }
}

/// Move the socket away from standard input, where the node may have put it, and leave that empty.
fn settle(socket: OwnedFd) -> io::Result<OwnedFd> {
    let moved = rustix::io::fcntl_dupfd_cloexec(&socket, 3)?;
    if socket.as_raw_fd() == 0 {
        dup2_stdin(open(c"/dev/null", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?)?;
        // Its number is standard input's now, which nobody owns.
        let _ = socket.into_raw_fd();
    }
    Ok(moved)
}

fn birth(slot: SlotId, descriptors: Vec<OwnedFd>, directory: Reserved) -> Birth {
    let [control, stdout, stderr, page] =
        <[OwnedFd; 4]>::try_from(descriptors).expect("the inbox gives a fork its four descriptors");
    Birth { slot, control, stdout, stderr, page, directory }
}

/// The children of this process, whichever of its threads the kernel gave them to. A kernel that does not tell keeps
/// leftovers that have left their slot's group: there is no other way to see them.
fn children() -> Vec<Pid> {
    let Ok(threads) = std::fs::read_dir("/proc/self/task") else { return Vec::new() };
    let lists =
        threads.flatten().filter_map(|thread| std::fs::read_to_string(thread.path().join("children")).ok());
    let mut pids = Vec::new();
    for list in lists {
        pids.extend(list.split_ascii_whitespace().filter_map(|pid| Pid::from_raw(pid.parse().ok()?)));
    }
    pids
}
