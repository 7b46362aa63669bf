//! When slots have to have ended that must exist once: the zygote's half of what their node promises its head.
//!
//! The node renews these times whenever the head shows that it is there. It ends such slots itself when their time has
//! come; this is for a node whose process stands still.
//!
//! * DL-1: the times are of a clock that also runs while the machine is suspended ([`paceline_net::clock`]).

use paceline_net::clock;
use paceline_proto::SlotId;
use rustix::event::Timespec;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime,
};
use std::collections::BTreeMap;
use std::io;

pub(crate) struct Deadlines {
    slots: BTreeMap<SlotId, u64>,
    /// When it fires.
    armed: u64,
    timer: OwnedFd,
}

impl Deadlines {
    pub(crate) fn new() -> io::Result<Deadlines> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        Ok(Deadlines {
            armed: u64::MAX,
            slots: BTreeMap::new(),
            timer: timerfd_create(TimerfdClockId::Boottime, flags)?,
        })
    }

    /// Replaces what was set for these slots before.
    pub(crate) fn set(&mut self, slots: Vec<(SlotId, u64)>) {
        self.slots.extend(slots);
        self.arm();
    }

    /// The slot is gone.
    pub(crate) fn forget(&mut self, slot: SlotId) {
        // The timer is set anew when it fires, or with the next times.
        self.slots.remove(&slot);
    }

    /// Takes out the slots whose time has come.
    pub(crate) fn due(&mut self) -> Vec<SlotId> {
        if self.armed == u64::MAX {
            return Vec::new();
        }
        let now = clock::now();
        if self.armed > now {
            return Vec::new();
        }
        let due: Vec<SlotId> =
            self.slots.iter().filter(|(_, at)| **at <= now).map(|(&slot, _)| slot).collect();
        self.slots.retain(|_, at| *at > now);
        self.arm();
        due
    }

    fn arm(&mut self) {
        let first = self.slots.values().copied().min();
        self.armed = first.unwrap_or(u64::MAX);
        // Zero disarms.
        let at = first.map_or(0, |at| at.max(1));
        let it_value = Timespec { tv_sec: (at / 1_000_000_000) as i64, tv_nsec: (at % 1_000_000_000) as i64 };
        let it_interval = Timespec { tv_sec: 0, tv_nsec: 0 };
        let spec = Itimerspec { it_interval, it_value };
        timerfd_settime(&self.timer, TimerfdTimerFlags::ABSTIME, &spec).expect("a timer takes any time");
    }
}

impl AsFd for Deadlines {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.timer.as_fd()
    }
}
