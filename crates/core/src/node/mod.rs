//! The slots of one machine: how many there are, whose they are, and what becomes of them.
//!
//! Owns: every slot from its fork to its death, spares, and which slot a lease gets. Does not own: who may have a lease
//! (the head decides), calls and results, processes and sockets (the shell does as told), clocks.
//!
//! * ND-1: a lease has one slot at most, and a slot one lease.
//! * ND-2: a slot that was bound to a client never serves another, nor other resources.
//! * ND-3: the head hears of the end of a lease when nothing of it runs any more, and hears of every end.
//! * ND-9: the leases of the node never need more than it has, but for tasks that waited for others and go on; a lease
//!   for which there is no room is refused, whoever asks for it.
//! * ND-10: of two starts of a head the later one is obeyed; how long it has been silent is counted from when the last
//!   beat was sent that it answered, so that nothing late on its way can lengthen it.
//! * ND-4: a repeated or late message changes nothing.
//! * ND-5: with a zygote there is a generic slot for every CPU that is neither leased nor warm, or one is being forked,
//!   unless its place backs off.
//! * ND-6: warm slots give way: leased and warm together never need more than the node has and what waited for others
//!   at most lately, as long as the leases alone do not.
//! * ND-7: a task that waits for others does not need its CPUs; at most `max_blocked` do so at once, but for those that
//!   could not get on by themselves.
//! * ND-8: a slot is of one program for life, and ends with that program's zygote.
//! * ND-12: how long silence may last is what the head that was obeyed last says, also for what an earlier one placed.
//! * ND-11: a slot has the GPUs it was bound to until its process is gone, warm and ending ones too: whoever gets them
//!   next finds nobody there.

mod blocked;
mod check;
mod config;
mod devices;
mod events;
mod exclusive;
mod guests;
mod head;
mod leases;
mod leaving;
mod memory;
mod places;
mod programs;
mod slots;
mod status;
mod stopped;
#[cfg(test)]
mod tests;
mod works;
mod zygotes;

use crate::alarm::Alarm;
use crate::time::Tick;
use devices::Held;
use paceline_proto::control::{Met, NodeToHead, Placement, Timing};
use paceline_proto::{
    Address, ClientId, Death, Devices, Epoch, ExclusiveId, LeaseId, LeaseSecret, ProgramId, Resources, Shape,
    SlotId, Way,
};
use places::Backoff;
use programs::Program;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;
use works::Errand;

pub use config::{Config, STOPPED_LIMIT};
pub use events::{Effect, Event};
pub use guests::{GuestCalls, MOST_GUESTS};
pub use leases::StoreOf;
pub use memory::MemoryBound;
pub use status::{SlotState, SlotStatus, Status};
pub use stopped::name as stopping_signal;
pub use zygotes::ZYGOTE_STOPPED_LIMIT;

/// The node.
pub struct Node {
    config: Config,
    alarm: Alarm,
    head: HeadLink,
    /// The head that was obeyed last, and how long silence may last in its cluster.
    met: Option<Met>,
    timing: Timing,
    /// When the last beat was sent that the head answered, until the first answer when it was first reached; none once
    /// everything was ended for its silence (ND-10).
    fresh: Option<Tick>,
    /// The same by a clock that nothing moves (EX-1), and when the link was opened by it.
    sign: Option<Tick>,
    opened: Tick,
    /// What the zygotes know of the times when slots have to have ended (EX-3).
    kill_at: BTreeMap<SlotId, Tick>,
    deadlines_changed: bool,
    /// Leases whose slots become work of the head's.
    works: BTreeMap<LeaseId, Errand>,
    zygote: Zygote,
    zygote_backoff: Backoff,
    /// Since when zygotes were found to stand still, each time that was looked.
    stopped_zygotes: BTreeMap<ProgramId, Tick>,
    /// The programs beside the clients' own.
    programs: BTreeMap<ProgramId, Program>,
    slots: BTreeMap<SlotId, Slot>,
    forked: u64,
    /// Leases without a slot: there is no zygote, their place backs off, or a process that had their GPUs still ends.
    pending: VecDeque<Use>,
    /// Leases of other nodes whose data connections come here, and where those nodes are.
    relays: BTreeMap<LeaseId, Vec<Address>>,
    /// Leases of other clients than the slots' own ([`guests`]).
    guests: BTreeMap<LeaseId, guests::Guest>,
    /// How guests ended, for as long as the head has not said that it heard.
    guest_ends: Vec<(LeaseId, Death)>,
    /// Ends that the head may not have heard of: it was out of reach, or has not said that it has.
    ends: Vec<(Placement, Option<Death>)>,
    /// Places whose slots died young.
    places: BTreeMap<usize, Backoff>,
    /// The slot that was ended for want of memory, until it is gone.
    short_of_memory: Option<SlotId>,
    /// Since when nothing happened.
    quiet_since: Tick,
    /// The most that tasks which wait have left to others, and until when that counts.
    left_at_most: Resources,
    left_until: Tick,
    /// When it goes whether or not something still runs, if it wants to go.
    leave_by: Option<Tick>,
    phase: Phase,
    /// It ends because it has been without its head for too long.
    has_lost_head: bool,
}

#[derive(PartialEq, Debug)]
enum HeadLink {
    Up {
        since: Tick,
        next_beat: Tick,
        /// It has said that it is the head, and is one.
        obeyed: bool,
    },
    Down,
    /// It was away for so long that everything was ended; also before the first link.
    Lost,
}

#[derive(PartialEq, Debug)]
enum Zygote {
    Absent { not_before: Tick },
    Starting { since: Tick },
    Up { since: Tick },
}

#[derive(PartialEq, Debug)]
enum Phase {
    Open,
    Closing,
    Closed,
}

struct Slot {
    /// What it runs; for life.
    program: ProgramId,
    place: usize,
    forked_at: Tick,
    pid: Option<u32>,
    ready: bool,
    /// It has been through a lease.
    served: bool,
    /// Whose it is; for life.
    client: Option<ClientId>,
    /// The GPUs it may hold; for life.
    held: Held,
    /// Its task waits for others.
    blocked: Option<Blocked>,
    /// It is to end because it had more memory than it may.
    exceeded: bool,
    /// Its process was stopped.
    stopped: Option<stopped::Stopped>,
    /// How its guests' calls stood when it ended.
    guest_calls: Vec<GuestCalls>,
    /// How its lease's data connection came, if one did.
    way: Option<Way>,
    state: State,
}

/// How a task came to wait for others.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Blocked {
    InTurn,
    /// Too many waited already, but it had nothing to run by itself.
    OutOfTurn,
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum State {
    Generic,
    Leased(Use),
    /// Told to let go of its lease.
    Detaching {
        lease: Use,
        until: Tick,
    },
    Warm {
        needs: Resources,
        until: Tick,
    },
    /// Told to leave, and killed at that time, or already killed.
    Ending {
        lease: Option<Use>,
        kill_at: Option<Tick>,
    },
}

/// What a lease says.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Use {
    lease: LeaseId,
    client: ClientId,
    shape: Shape,
    holder: ClientId,
    epoch: Epoch,
    secret: LeaseSecret,
    devices: Devices,
    /// Its slot ends with it.
    once: bool,
    /// What is under it, if that must exist once.
    exclusive: Option<ExclusiveId>,
    /// When that has to have ended, if the head that placed it is not obeyed any more (EX-4).
    ends_at: Option<Tick>,
}

impl Node {
    pub fn new(config: Config) -> Node {
        Node {
            // Each start numbers its slots anew: a client must not take one for a slot that it knew.
            forked: config.incarnation.number().saturating_sub(1) << 32,
            alarm: Alarm::new(config.heartbeat),
            timing: Timing { heartbeat: config.heartbeat, head_lost: config.head_lost },
            config,
            head: HeadLink::Lost,
            met: None,
            fresh: None,
            sign: None,
            opened: Tick::ZERO,
            kill_at: BTreeMap::new(),
            deadlines_changed: false,
            works: BTreeMap::new(),
            zygote: Zygote::Absent { not_before: Tick::ZERO },
            zygote_backoff: Backoff::default(),
            stopped_zygotes: BTreeMap::new(),
            programs: BTreeMap::new(),
            slots: BTreeMap::new(),
            pending: VecDeque::new(),
            relays: BTreeMap::new(),
            guests: BTreeMap::new(),
            guest_ends: Vec::new(),
            ends: Vec::new(),
            places: BTreeMap::new(),
            short_of_memory: None,
            quiet_since: Tick::ZERO,
            left_at_most: Resources::default(),
            left_until: Tick::ZERO,
            leave_by: None,
            phase: Phase::Open,
            has_lost_head: false,
        }
    }

    /// One step. Effects are appended to `out`.
    pub fn handle(&mut self, now: Tick, event: Event, out: &mut Vec<Effect>) {
        let gap = self.alarm.on_step(now);
        if gap > Duration::ZERO {
            self.on_gap(gap);
        }
        self.on_time(now, out);
        match event {
            Event::HeadUp => self.on_head_up(now, out),
            Event::HeadDown => self.on_head_down(),
            Event::FromHead(message) => self.on_head(now, message, out),
            Event::ZygoteUp => self.on_zygote_up(now),
            Event::ZygoteDied => self.on_zygote_died(now, out),
            Event::ProgramUp(program) => self.on_program_up(now, program),
            Event::ProgramDown(program, why) => self.on_program_down(now, program, why, out),
            Event::ZygotesStopped(programs) => self.on_zygotes_stopped(now, &programs, out),
            Event::Forked { slot, pid } => self.on_forked(now, slot, pid, out),
            Event::Stopped { slot, signal, ends_at } => self.on_stopped(now, slot, signal, ends_at),
            Event::Continued { slot } => self.on_continued(slot),
            Event::GuestCalls { slot, calls } => self.on_guest_calls(slot, calls),
            Event::Exited { slot, death } => self.on_exited(now, slot, death, out),
            Event::FromSlot(slot, message) => self.on_slot(now, slot, message, out),
            Event::Connection { connection, lease, way } => {
                self.on_connection(now, connection, lease, way, out)
            }
            Event::Output { slot, stream, text } => self.on_output(slot, stream, text, out),
            Event::Memory { used, limit, slots } => self.on_memory(used, limit, &slots, out),
            Event::Sizes(sizes) => self.on_sizes(&sizes, out),
            Event::ClientLeft(client) => self.on_client_left(now, client, out),
            Event::Close => self.on_close(now, out),
            Event::Leave { within } => self.on_leave(now, within, out),
            Event::Tick => {}
        }
        self.settle(now, out);
        debug_assert_eq!(self.check(), Ok(()));
    }

    /// Whether it ends what it has, or has ended it.
    pub fn is_closing(&self) -> bool {
        self.phase != Phase::Open
    }

    /// Returns whether it ends because it has been without its head for too long.
    pub fn has_lost_head(&self) -> bool {
        self.has_lost_head
    }

    /// Whether somebody's calls may be running here.
    pub fn is_used(&self) -> bool {
        self.slots.values().any(|slot| slot.state.lease().is_some())
    }

    /// The whole process stood still: the time does not count against anybody.
    fn on_gap(&mut self, gap: Duration) {
        self.fresh = self.fresh.map(|at| at + gap);
        if let HeadLink::Up { since, .. } = &mut self.head {
            *since = *since + gap;
        }
        self.programs_on_gap(gap);
        self.stopped_zygotes_on_gap(gap);
        self.leave_by = self.leave_by.map(|by| by + gap);
        for slot in self.slots.values_mut() {
            if let Some(stopped) = &mut slot.stopped {
                stopped.on_gap(gap);
            }
            match &mut slot.state {
                State::Detaching { until, .. } | State::Warm { until, .. } => *until = *until + gap,
                State::Ending { kill_at: Some(at), .. } => *at = *at + gap,
                State::Ending { kill_at: None, .. } | State::Generic | State::Leased(_) => {}
            }
        }
    }

    fn on_time(&mut self, now: Tick, out: &mut Vec<Effect>) {
        self.exclusive_on_time(now, out);
        self.head_on_time(now, out);
        self.slots_on_time(now, out);
        self.stopped_on_time(now, out);
        self.blocked_on_time(now);
        self.programs_on_time(now, out);
        self.leaving_on_time(now, out);
    }

    /// Bring about what the state of things asks for.
    fn settle(&mut self, now: Tick, out: &mut Vec<Effect>) {
        if self.phase == Phase::Open {
            self.start_zygote(now, out);
            self.start_programs(now, out);
            self.place_pending(now, out);
            self.cool_surplus(now, out);
            self.fill(now, out);
        } else if self.phase == Phase::Closing && self.slots.is_empty() {
            self.phase = Phase::Closed;
            out.push(Effect::Closed);
        }
        self.tidy_works();
        self.tidy_stopped_zygotes();
        self.tell_zygotes(out);
        let next = self.next_deadline(now);
        out.extend(self.alarm.on_settled(now, next).map(Effect::WakeAt));
    }

    fn next_deadline(&self, now: Tick) -> Option<Tick> {
        let head = self.head_next();
        let slots = self.slots.values().filter_map(|slot| match slot.state {
            State::Detaching { until: at, .. } | State::Warm { until: at, .. } => Some(at),
            State::Ending { kill_at, .. } => kill_at,
            State::Generic | State::Leased(_) => None,
        });
        let programs =
            self.programs_next().into_iter().chain(self.blocked_until(now)).chain(self.exclusive_next());
        slots
            .chain(self.stopped_next())
            .chain(head)
            .chain(self.next_fork(now))
            .chain(programs)
            .chain(self.leave_deadline())
            .min()
    }

    pub(super) fn on_close(&mut self, now: Tick, out: &mut Vec<Effect>) {
        if self.phase != Phase::Open {
            return;
        }
        self.phase = Phase::Closing;
        for pending in self.pending.drain(..) {
            out.push(Effect::ToHead(NodeToHead::Ended { lease: pending.lease, death: None }));
        }
        for id in self.slots.keys().copied().collect::<Vec<_>>() {
            let slot = &self.slots[&id];
            match (slot.pid, slot.client) {
                // What the zygote has not forked yet ends with the zygote.
                (None, _) => self.forget(id, None, out),
                (Some(_), None) => self.kill(id, out),
                (Some(_), Some(_)) => self.leave(now, id, out),
            }
        }
    }
}
