//! What belongs to each slot on this side: its control link, its page, its pipes, its process.

use crate::death::Vigil;
use crate::limits::{self, Group, Size};
use crate::memory::{self, Memory, Reading};
use crate::news::{Desk, News};
use crate::output::Reader;
use crate::zygote::Zygote;
use paceline_core::node::{GuestCalls, MemoryBound};
use paceline_net::control::{self, Receiver, Sender};
use paceline_net::{Page, fds};
use paceline_proto::control::{NodeToSlot, SlotToNode, Stream};
use paceline_proto::{Death, DeathCause, MemoryUse, OutOfMemory, SlotId};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, Signal, kill_process_group};
use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Semaphore, oneshot, watch as signal};
use tokio::task::JoinHandle;

pub(crate) struct Slots {
    slots: BTreeMap<SlotId, Slot>,
    desk: Desk,
    memory: Memory,
}

struct Slot {
    zygote: u64,
    control: Sender<NodeToSlot>,
    control_reader: JoinHandle<()>,
    page: Page,
    pid: Option<Pid>,
    killed: bool,
    /// It was ended for want of memory.
    short: Option<OutOfMemory>,
    /// What its end is to be called if it was ended for standing still.
    stopped: Option<DeathCause>,
    /// What it may have, and the group that holds it to that.
    limit: Option<u64>,
    group: Option<Group>,
    /// The most memory it had, as the zygote says.
    peak: u64,
    /// Until it is forked.
    vigil: Option<Vigil>,
    /// From then on: tells the vigil what the zygote says.
    told: Option<oneshot::Sender<DeathCause>>,
}

impl Slot {
    /// Put it into a group of its own, as soon as it has a process and a limit.
    fn confine(&mut self, id: SlotId) {
        if let (Some(pid), Some(limit), None) = (self.pid, self.limit, &self.group) {
            self.group = Group::confine(id.0, pid, limit);
        }
    }

    /// What it had, if the kernel has ended something of it for its limit.
    fn exceeded_group(&self) -> Option<MemoryUse> {
        let peak = self.group.as_ref()?.exceeded()?;
        Some(MemoryUse { peak: peak.max(self.peak), limit: self.limit? })
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.control_reader.abort();
    }
}

impl Slots {
    pub(crate) fn new(desk: Desk, bound: MemoryBound) -> Slots {
        Slots { slots: BTreeMap::new(), desk, memory: Memory::new(bound) }
    }

    /// Make everything a slot needs, and ask the zygote for it.
    pub(crate) fn fork(&mut self, id: SlotId, zygote: &Zygote) -> io::Result<()> {
        let (ours, control_end) = fds::pair()?;
        let (page, memory) = Page::create()?;
        let (dead, hears) = signal::channel(false);
        let mut ends = vec![control_end];
        let mut readers = Vec::new();
        for stream in [Stream::Out, Stream::Err] {
            let (pipe, end) = output_pipe()?;
            let reader = Reader::new(id, stream, pipe, self.desk.printed.clone())?;
            readers.push(tokio::spawn(reader.run(hears.clone())));
            ends.push(end);
        }
        ends.push(memory);
        let (control, receiver) = control::channel(ours)?;
        let control_reader = tokio::spawn(listen(id, receiver, self.desk.clone()));
        let vigil = Vigil { slot: id, dead, readers, desk: self.desk.clone() };
        let slot = Slot {
            zygote: zygote.number,
            control,
            control_reader,
            page,
            pid: None,
            killed: false,
            short: None,
            stopped: None,
            limit: None,
            group: None,
            peak: 0,
            vigil: Some(vigil),
            told: None,
        };
        self.slots.insert(id, slot);
        zygote.fork(id, ends);
        Ok(())
    }

    pub(crate) fn on_forked(&mut self, id: SlotId, pid: u32) {
        let Some(slot) = self.slots.get_mut(&id) else { return };
        slot.pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
        slot.confine(id);
        if let Some(vigil) = slot.vigil.take() {
            let (told, hears) = oneshot::channel();
            slot.told = Some(told);
            tokio::spawn(vigil.keep(pid, hears));
        }
    }

    /// Returns whether nobody has said yet which process it is.
    pub(crate) fn is_unborn(&self, id: SlotId) -> bool {
        self.slots.get(&id).is_some_and(|slot| slot.pid.is_none())
    }

    /// The number of the zygote that it is of.
    pub(crate) fn zygote_of(&self, id: SlotId) -> Option<u64> {
        self.slots.get(&id).map(|slot| slot.zygote)
    }

    /// The zygote says how a slot ended.
    pub(crate) fn on_exited(&mut self, id: SlotId, cause: DeathCause, peak: u64) {
        let Some(slot) = self.slots.get_mut(&id) else { return };
        slot.peak = peak;
        match (slot.told.take(), slot.vigil.take()) {
            (Some(told), _) => drop(told.send(cause)),
            // It could not be forked.
            (None, Some(vigil)) => drop(tokio::spawn(vigil.close(cause))),
            (None, None) => {}
        }
    }

    /// This zygote says nothing more: the processes themselves must tell when they end.
    pub(crate) fn on_zygote_died(&mut self, zygote: u64) {
        for slot in self.slots.values_mut().filter(|slot| slot.zygote == zygote) {
            slot.told = None;
        }
    }

    /// What the page says of a slot that is gone.
    pub(crate) fn death(&mut self, id: SlotId, cause: DeathCause) -> Option<Death> {
        let slot = self.slots.get(&id)?;
        let out_of_memory = match slot.short {
            Some(OutOfMemory::Yes(MemoryUse { peak, limit })) => {
                OutOfMemory::Yes(MemoryUse { peak: peak.max(slot.peak), limit })
            }
            Some(exceeded) => exceeded,
            None if slot.killed || slot.stopped.is_some() => OutOfMemory::No,
            None => match slot.exceeded_group() {
                Some(memory) => OutOfMemory::Exceeded(memory),
                None => self.memory.verdict(cause, slot.peak),
            },
        };
        let cause = if slot.page.gave_up() { DeathCause::TimedOut } else { slot.stopped.unwrap_or(cause) };
        Some(Death { cause, out_of_memory, running: slot.page.running(), finished: slot.page.finished() })
    }

    /// What the page says of its guests' calls.
    pub(crate) fn guest_calls(&self, id: SlotId) -> Vec<GuestCalls> {
        let guests = self.slots.get(&id).map(|slot| slot.page.guests()).unwrap_or_default();
        let calls = |(lease, running, finished)| GuestCalls { lease, running, finished };
        guests.into_iter().map(calls).collect()
    }

    pub(crate) fn send(&self, id: SlotId, message: &NodeToSlot, descriptors: Vec<OwnedFd>) {
        if let Some(slot) = self.slots.get(&id) {
            slot.control.send(message, descriptors);
        }
    }

    pub(crate) fn kill(&mut self, id: SlotId) {
        let Some(slot) = self.slots.get_mut(&id) else { return };
        slot.killed = true;
        if let Some(pid) = slot.pid {
            let _ = kill_process_group(pid, Signal::KILL);
        }
    }

    /// Ask its group to end.
    pub(crate) fn terminate(&mut self, id: SlotId) {
        let Some(slot) = self.slots.get_mut(&id) else { return };
        slot.killed = true;
        if let Some(pid) = slot.pid {
            let _ = kill_process_group(pid, Signal::TERM);
        }
    }

    /// Kill it because it has the most of the memory there is.
    pub(crate) fn end_for_memory(&mut self, id: SlotId, limit: u64) {
        let Some(slot) = self.slots.get_mut(&id) else { return };
        let Some(pid) = slot.pid else { return };
        let peak = memory::peak_of_process(pid);
        slot.short = Some(OutOfMemory::Yes(MemoryUse { peak, limit }));
        tracing::warn!(slot = %id, peak, limit, "memory is short, so the largest slot is ended");
        let _ = kill_process_group(pid, Signal::KILL);
    }

    /// Kill it because it has more than it may.
    pub(crate) fn end_for_limit(&mut self, id: SlotId, used: u64, limit: u64) {
        let Some(slot) = self.slots.get_mut(&id) else { return };
        let Some(pid) = slot.pid else { return };
        slot.short = Some(OutOfMemory::Exceeded(MemoryUse { peak: used, limit }));
        tracing::warn!(slot = %id, used, limit, "a slot has more memory than it may, so it is ended");
        let _ = kill_process_group(pid, Signal::KILL);
    }

    /// When the call that runs has had its time, if it has so much only.
    pub(crate) fn call_ends_at(&self, id: SlotId) -> Option<u64> {
        self.slots.get(&id)?.page.ends_at()
    }

    /// Kill it because it stands still; its end is to be called that.
    pub(crate) fn end_stopped(&mut self, id: SlotId, cause: DeathCause) {
        let Some(slot) = self.slots.get_mut(&id) else { return };
        let Some(pid) = slot.pid else { return };
        slot.stopped = Some(cause);
        tracing::warn!(slot = %id, ?cause, "a slot was stopped and stands still, so it is ended");
        let _ = kill_process_group(pid, Signal::KILL);
    }

    /// It may have so many bytes.
    pub(crate) fn confine(&mut self, id: SlotId, limit: u64) {
        let Some(slot) = self.slots.get_mut(&id) else { return };
        slot.limit = Some(limit);
        slot.confine(id);
    }

    /// How much these slots have, and when to look again.
    pub(crate) fn look_at_limits(
        &self,
        limits: impl Iterator<Item = (SlotId, u64)>,
    ) -> (Vec<(SlotId, u64)>, Duration) {
        let mut sizes = Vec::new();
        let mut pause = limits::LATEST;
        for (id, limit) in limits {
            let Some(slot) = self.slots.get(&id) else { continue };
            let Some(pid) = slot.pid else { continue };
            let Size { bytes, .. } = limits::size_of(pid, limit);
            // The kernel may have ended one of its processes, and the task must not go on without it.
            let bytes = slot.exceeded_group().map_or(bytes, |memory| bytes.max(memory.peak).max(limit + 1));
            pause = pause.min(limits::pause(limit.saturating_sub(bytes)));
            sizes.push((id, bytes));
        }
        (sizes, pause)
    }

    pub(crate) fn watches_memory(&self) -> bool {
        self.memory.is_watched()
    }

    /// How full memory is, and, if it is nearly full, how much of it each slot has.
    pub(crate) fn look_at_memory(&self) -> Option<(Reading, Vec<(SlotId, u64)>)> {
        let pids: Vec<_> = self.slots.iter().filter_map(|(&id, slot)| Some((id, slot.pid?))).collect();
        let reading = self.memory.look(&pids)?;
        let sizes = pids.into_iter().filter(|_| reading.nearly_full());
        Some((reading, sizes.map(|(id, pid)| (id, memory::size_of_process(pid))).collect()))
    }

    pub(crate) fn forget(&mut self, id: SlotId) {
        self.slots.remove(&id);
    }
}

/// So many messages of one slot may wait to be handled; then it is not read.
const MOST_WAITING: usize = 64;

async fn listen(id: SlotId, mut receiver: Receiver<SlotToNode>, desk: Desk) {
    let waiting = Arc::new(Semaphore::new(MOST_WAITING));
    // The end of the link says nothing: user code may have closed it. Its process is watched for that.
    while let Ok(Some((message, descriptors))) = receiver.next().await {
        let Ok(permit) = waiting.clone().acquire_owned().await else { return };
        if !desk.tell(News::Slot(id, message, descriptors, permit)) {
            return;
        }
    }
}

/// The end we read does not block; the slot's own does.
fn output_pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let (read, write) = pipe_with(PipeFlags::CLOEXEC)?;
    rustix::io::ioctl_fionbio(&read, true)?;
    Ok((read, write))
}
