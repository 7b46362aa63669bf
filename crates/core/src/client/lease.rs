//! One lease: what is in flight on it, and how much more it may take.
//!
//! * LS-1: numbers in flight rise, and all but those not yet handed to the link were sent in that order.
//! * LS-2: at most the window is in flight, and what goes on beside others; a slot that runs something long gets nothing
//!   ahead.

use super::queue::Kind;
use super::shapes::ShapeKey;
use super::{Config, TaskKey};
use crate::Tick;
use paceline_proto::data::{Call, Hello, ToSlot};
use paceline_proto::parts::carried;
use paceline_proto::{ClientId, ExclusiveId, Incarnation, LeaseId, LeaseSecret, NodeId, Seq, SlotId};
use std::collections::VecDeque;
use std::time::Duration;

/// A call in flight.
pub(super) struct InFlight {
    pub seq: Seq,
    pub task: TaskKey,
    /// How long it was expected to run when it was sent.
    pub expected: Duration,
    /// What its arguments take.
    pub bytes: usize,
    /// Asked back; it will be answered one way or the other.
    pub withdrawing: bool,
    /// It is the standing call before this number of its pool; zero if it is none.
    pub standing: u32,
    /// It goes on in its slot beside others, and takes no room of the window.
    pub beside: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum LinkState {
    /// Being opened; the flag says whether there was a link before.
    Opening {
        again: bool,
    },
    /// Open again, waiting to hear what the slot has received.
    Resuming,
    Up,
}

/// A slot as one kind of link knows it: what was said over one may arrive after what is said over another.
pub(super) type Home = (NodeId, SlotId, bool);

pub(super) struct Lease {
    pub id: LeaseId,
    pub node: NodeId,
    pub incarnation: Incarnation,
    pub slot: SlotId,
    pub shape: ShapeKey,
    pub secret: LeaseSecret,
    /// What it was granted for, if that must exist once.
    pub exclusive: Option<ExclusiveId>,
    pub link: LinkState,
    /// Since when the link is down, if that is timed.
    pub down_since: Option<Tick>,
    /// It was down for too long: the head ends the lease.
    pub broken: bool,
    /// To be given back once nothing is in flight.
    pub recalled: bool,
    pub idle_since: Tick,
    /// When the slot last got its first call or answered one.
    pub last_progress: Tick,
    /// A call known to have run for a while.
    pub long_running: Option<Seq>,
    /// Whether the lease stands in the idle list of its shape, and in the list of those at work.
    pub in_idle: bool,
    pub in_open: bool,
    /// As its queue counts it.
    pub counted_busy: bool,
    pub counted_ahead: bool,
    /// Of a pool: its standing calls before this number were sent, and those before that were applied.
    pub standing: u32,
    pub applied: u32,
    /// How many of them are in flight. Nothing else is sent before they are answered.
    pub preparing: u32,
    /// How many more calls it takes. Its slot is replaced after the last.
    pub calls_left: u32,
    pub kind: Kind,
    /// It lets us call an actor of somebody's.
    pub guest: bool,
    next_seq: Seq,
    last_sent: Seq,
    in_flight: VecDeque<InFlight>,
    /// How many of them go on beside others.
    beside: usize,
    backlog: Duration,
    /// What the arguments of all calls in flight take.
    bytes: usize,
    /// Replies received.
    pub replies: u64,
    acked: u64,
    unacked_bytes: usize,
    before_calls: Vec<ToSlot>,
    /// Something was said before calls, and no reply has come since that shows that it arrived.
    unconfirmed: bool,
    calls: Vec<Call>,
    after_calls: Vec<ToSlot>,
}

/// Acknowledge at once when the slot keeps this much for us.
const ACK_BYTES: usize = 64 << 10;
/// Acknowledge at the latest after this many replies.
const ACK_REPLIES: u64 = 1024;

impl Lease {
    pub fn new(
        now: Tick,
        id: LeaseId,
        node: NodeId,
        slot: SlotId,
        shape: ShapeKey,
        secret: LeaseSecret,
    ) -> Lease {
        Lease {
            id,
            node,
            incarnation: Incarnation::default(),
            slot,
            shape,
            secret,
            exclusive: None,
            link: LinkState::Opening { again: false },
            down_since: None,
            broken: false,
            recalled: false,
            idle_since: now,
            last_progress: now,
            long_running: None,
            in_idle: false,
            in_open: false,
            counted_busy: false,
            counted_ahead: false,
            standing: 0,
            applied: 0,
            preparing: 0,
            calls_left: u32::MAX,
            kind: Kind::Plain,
            guest: false,
            next_seq: Seq(1),
            last_sent: Seq(0),
            in_flight: VecDeque::new(),
            beside: 0,
            backlog: Duration::ZERO,
            bytes: 0,
            replies: 0,
            acked: 0,
            unacked_bytes: 0,
            before_calls: Vec::new(),
            unconfirmed: false,
            calls: Vec::new(),
            after_calls: Vec::new(),
        }
    }

    pub fn in_flight(&self) -> impl DoubleEndedIterator<Item = &InFlight> + ExactSizeIterator {
        self.in_flight.iter()
    }

    /// Whose memory of its slot counts.
    pub fn home(&self) -> Home {
        (self.node, self.slot, self.guest)
    }

    pub fn is_idle(&self) -> bool {
        self.in_flight.is_empty()
    }

    /// Whether it can be given tasks at all: its link works and nobody wants it back before it did anything.
    pub fn usable(&self) -> bool {
        self.link == LinkState::Up
            && (!self.recalled || self.next_seq == Seq(1))
            && self.preparing == 0
            && self.calls_left > 0
    }

    /// Whether its first link is being opened.
    pub fn is_opening(&self) -> bool {
        self.link == LinkState::Opening { again: false }
    }

    /// Whether a task that is expected to run for `expected` (none: unknown) may be sent now (LS-2).
    pub fn accepts(&self, config: &Config, expected: Option<Duration>) -> bool {
        if !self.usable() {
            return false;
        }
        match self.in_flight.len() - self.beside {
            0 => true,
            // They can go nowhere else, so it does not matter how long those before them take.
            length if self.kind == Kind::Once => {
                length < config.max_window && self.bytes < config.window_bytes
            }
            _ if self.long_running.is_some() => false,
            // Nothing known yet: one ahead, so that a fast function does not wait for its first answer.
            1 => expected.is_none_or(|expected| expected < config.long_task),
            length => {
                let Some(expected) = expected else { return false };
                length < config.max_window
                    && self.bytes < config.window_bytes
                    && self.backlog + expected <= config.ahead
            }
        }
    }

    /// Put a call in flight and return its number.
    pub fn push(
        &mut self,
        now: Tick,
        task: TaskKey,
        expected: Duration,
        standing: u32,
        call: impl FnOnce(Seq) -> Call,
    ) -> Seq {
        let seq = self.next_seq;
        self.next_seq = seq.next();
        if self.in_flight.is_empty() {
            self.last_progress = now;
        }
        self.backlog += expected;
        let call = call(seq);
        let bytes = carried(&call.payload);
        self.bytes += bytes;
        let (withdrawing, beside) = (false, false);
        self.in_flight.push_back(InFlight { seq, task, expected, bytes, withdrawing, standing, beside });
        self.calls.push(call);
        seq
    }

    /// A call was answered.
    pub fn remove(&mut self, seq: Seq) -> Option<InFlight> {
        let place = match self.in_flight.front() {
            Some(first) if first.seq == seq => 0,
            _ => self.in_flight.binary_search_by_key(&seq, |call| call.seq).ok()?,
        };
        let call = self.in_flight.remove(place)?;
        self.backlog = self.backlog.saturating_sub(call.expected);
        self.bytes -= call.bytes;
        self.beside -= usize::from(call.beside);
        if self.long_running == Some(seq) {
            self.long_running = None;
        }
        Some(call)
    }

    /// What its slot holds is not to be relied on any more: if that is the pool's, it is replaced.
    pub fn spoil(&mut self) {
        if self.kind == Kind::Pool {
            self.calls_left = 0;
        }
    }

    /// A call has begun and goes on beside others. Says which task's it is, if that is news.
    pub fn set_beside(&mut self, seq: Seq) -> Option<TaskKey> {
        let place = self.in_flight.binary_search_by_key(&seq, |call| call.seq).ok()?;
        let call = &mut self.in_flight[place];
        if std::mem::replace(&mut call.beside, true) {
            return None;
        }
        self.beside += 1;
        self.backlog = self.backlog.saturating_sub(std::mem::take(&mut call.expected));
        self.bytes -= std::mem::take(&mut call.bytes);
        if self.long_running == Some(seq) {
            self.long_running = None;
        }
        Some(call.task)
    }

    /// Everything in flight, as the lease ends.
    pub fn take_in_flight(&mut self) -> VecDeque<InFlight> {
        self.backlog = Duration::ZERO;
        self.bytes = 0;
        self.beside = 0;
        self.calls.clear();
        std::mem::take(&mut self.in_flight)
    }

    /// Calls behind the one that runs, which were sent and not asked back yet, from the last to the first.
    pub fn withdrawable(&mut self) -> impl Iterator<Item = &mut InFlight> {
        let calls = self.in_flight.iter_mut().skip(1).rev();
        calls.filter(|call| !call.withdrawing && call.standing == 0 && !call.beside)
    }

    /// Expected run time of everything behind the call that runs.
    pub fn backlog_behind(&self) -> Duration {
        let first = self.in_flight.front().map_or(Duration::ZERO, |call| call.expected);
        self.backlog.saturating_sub(first)
    }

    /// The last call that was handed to a link: later ones have gone nowhere yet.
    pub fn last_sent(&self) -> Seq {
        self.last_sent
    }

    /// What was handed to the link after this call has gone nowhere.
    pub fn unsend(&mut self, last: Seq) {
        self.last_sent = self.last_sent.min(last);
    }

    /// Take back calls that have not been handed to the link yet, all but the first in flight.
    pub fn take_unsent(&mut self) -> Vec<InFlight> {
        let keep = self.in_flight.partition_point(|call| call.seq <= self.last_sent).max(1);
        // A standing call stays where it is, and with it what is before it.
        if keep >= self.in_flight.len() || self.preparing > 0 {
            return Vec::new();
        }
        let taken: Vec<InFlight> = self.in_flight.drain(keep..).collect();
        for call in &taken {
            self.backlog = self.backlog.saturating_sub(call.expected);
            self.bytes -= call.bytes;
        }
        if let Some(first) = taken.first() {
            self.calls.retain(|call| call.seq < first.seq);
        }
        taken
    }

    /// Say something that must arrive before the calls that wait to be sent.
    pub fn say_first(&mut self, message: ToSlot) {
        self.before_calls.push(message);
    }

    pub fn say(&mut self, message: ToSlot) {
        self.after_calls.push(message);
    }

    /// Whether something was said, or is yet to be, that the slot may never hear of if the lease ends now.
    pub fn is_unconfirmed(&self) -> bool {
        self.unconfirmed || !self.before_calls.is_empty()
    }

    pub fn hello(&mut self, client: ClientId) {
        let keeps = self.kind != Kind::Plain;
        let hello = Hello { client, lease: self.id, replies: self.replies, keeps };
        self.before_calls.insert(0, ToSlot::Hello(hello));
    }

    /// The link broke: what was to be said of it is void; calls are sent again once the slot says what it has.
    pub fn forget_outgoing(&mut self) {
        self.before_calls.clear();
        self.calls.clear();
        self.after_calls.clear();
        self.acked = self.replies;
    }

    /// Send these calls again, under their numbers.
    pub fn resend(&mut self, calls: Vec<Call>) {
        self.calls = calls;
    }

    /// A reply arrived. Says whether to acknowledge without waiting for a call to carry it.
    pub fn count_reply(&mut self, bytes: usize) -> bool {
        self.replies += 1;
        self.unconfirmed = false;
        self.unacked_bytes += bytes;
        self.unacked_bytes > ACK_BYTES || self.replies - self.acked > ACK_REPLIES
    }

    pub fn acknowledge(&mut self) {
        self.acked = self.replies;
        self.unacked_bytes = 0;
        self.after_calls.push(ToSlot::Ack { acked: self.replies });
    }

    pub fn outgoing_size(&self) -> (usize, usize) {
        let bytes = self.calls.iter().map(|call| carried(&call.payload)).sum();
        (self.calls.len() + self.before_calls.len() + self.after_calls.len(), bytes)
    }

    pub fn drain_outgoing(&mut self, messages: &mut Vec<ToSlot>) {
        if matches!(self.link, LinkState::Opening { .. }) {
            return;
        }
        self.unconfirmed |= !self.before_calls.is_empty();
        messages.append(&mut self.before_calls);
        if let Some(last) = self.calls.last() {
            self.last_sent = last.seq;
            self.acked = self.replies;
            self.unacked_bytes = 0;
            messages.push(ToSlot::Run { acked: self.replies, calls: std::mem::take(&mut self.calls) });
        }
        messages.append(&mut self.after_calls);
    }

    pub fn check(&self) -> Result<(), String> {
        if !self.in_flight.iter().is_sorted_by(|a, b| a.seq < b.seq) {
            return Err(format!("LS-1: calls of {:?} out of order", self.id));
        }
        if self.in_flight.back().is_some_and(|call| call.seq >= self.next_seq) {
            return Err(format!("LS-1: {:?} is ahead of its numbers", self.id));
        }
        let backlog: Duration = self.in_flight.iter().map(|call| call.expected).sum();
        if backlog != self.backlog {
            return Err(format!("LS-2: backlog of {:?} is {backlog:?}, not {:?}", self.id, self.backlog));
        }
        let beside = self.in_flight.iter().filter(|call| call.beside).count();
        if beside != self.beside {
            return Err(format!(
                "LS-2: {beside} calls of {:?} go on beside others, not {}",
                self.id, self.beside
            ));
        }
        let bytes: usize = self.in_flight.iter().map(|call| call.bytes).sum();
        if bytes != self.bytes {
            return Err(format!("LS-2: {bytes} bytes are in flight on {:?}, not {}", self.id, self.bytes));
        }
        Ok(())
    }
}
