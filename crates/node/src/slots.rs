//! What belongs to each slot on this side: its control link, its page, its pipes, its process.

use crate::death::Vigil;
use crate::memory::Shortage;
use crate::news::{Desk, News};
use crate::output::Reader;
use crate::zygote::Zygote;
use paceline_net::control::{self, Receiver, Sender};
use paceline_net::{Page, fds};
use paceline_proto::control::{NodeToSlot, SlotToNode, Stream};
use paceline_proto::{Death, DeathCause, OutOfMemory, SlotId};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, Signal, kill_process_group};
use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use tokio::sync::{oneshot, watch as signal};
use tokio::task::JoinHandle;

pub(crate) struct Slots {
    slots: BTreeMap<SlotId, Slot>,
    desk: Desk,
    shortage: Shortage,
}

struct Slot {
    zygote: u64,
    control: Sender<NodeToSlot>,
    control_reader: JoinHandle<()>,
    page: Page,
    pid: Option<Pid>,
    killed: bool,
    /// Until it is forked.
    vigil: Option<Vigil>,
    /// From then on: tells the vigil what the zygote says.
    told: Option<oneshot::Sender<DeathCause>>,
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.control_reader.abort();
    }
}

impl Slots {
    pub(crate) fn new(desk: Desk) -> Slots {
        Slots { slots: BTreeMap::new(), desk, shortage: Shortage::new() }
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
        if let Some(vigil) = slot.vigil.take() {
            let (told, hears) = oneshot::channel();
            slot.told = Some(told);
            tokio::spawn(vigil.keep(pid, hears));
        }
    }

    /// The zygote says how a slot ended.
    pub(crate) fn on_exited(&mut self, id: SlotId, cause: DeathCause) {
        let Some(slot) = self.slots.get_mut(&id) else { return };
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
        let out_of_memory = if slot.killed { OutOfMemory::No } else { self.shortage.verdict(cause) };
        let cause = if slot.page.gave_up() { DeathCause::TimedOut } else { cause };
        Some(Death { cause, out_of_memory, running: slot.page.running(), finished: slot.page.finished() })
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

    pub(crate) fn forget(&mut self, id: SlotId) {
        self.slots.remove(&id);
    }
}

async fn listen(id: SlotId, mut receiver: Receiver<SlotToNode>, desk: Desk) {
    // The end of the link says nothing: user code may have closed it. Its process is watched for that.
    while let Ok(Some((message, descriptors))) = receiver.next().await {
        if !desk.tell(News::Slot(id, message, descriptors)) {
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
