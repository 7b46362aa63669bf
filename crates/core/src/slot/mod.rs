//! What a slot does with the calls of its lease.
//!
//! Owns: the calls that wait, which one runs, and every reply that the client has not acknowledged.
//! Does not own: the socket, the functions, or how a call is run.
//!
//! A call is in one state at a time: waiting, then claimed or withdrawn, then answered. One that was claimed may be
//! *deferred*: it goes on, on another thread, while later ones are claimed, and is answered by its number.
//!
//! * SL-1: a call is claimed at most once, and never after it was withdrawn or cancelled.
//! * SL-2: every call that arrived is answered once, withdrawn and cancelled ones too.
//! * SL-3: calls are claimed in the order of their numbers.
//! * SL-5: while the call that runs waits for others, every call behind it is given back, and so are those that come;
//!   unless the client said that they are for this slot alone.
//! * SL-6: no call is claimed while as many are deferred as may be.
//! * SL-4: a reply is kept until acknowledged, so a link that broke and came back loses none and repeats none.

use paceline_proto::data::{Call, Environment, FromSlot, Hello, Reply, Status, ToSlot};
use paceline_proto::{Bytes, FunctionId, LeaseId, Seq};
use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

#[cfg(test)]
mod tests;

/// What the shell must do. Replies are not here: the shell takes them with [`Slot::replies_to_send`] when it is time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Effect {
    Send(FromSlot),
    Define {
        function: FunctionId,
        bytes: Bytes,
    },
    Environment(Environment),
    /// Make a call stop: the one that runs, or one that was deferred.
    Interrupt {
        call: Seq,
    },
    /// End this process now: this call is not to go on.
    Die {
        call: Seq,
    },
}

/// So many calls may go on beside each other unless the shell says otherwise.
const MOST_DEFERRED: usize = 1000;

pub struct Slot {
    lease: Option<LeaseId>,
    received: Seq,
    arrived: u64,
    waiting: VecDeque<Call>,
    running: Option<Seq>,
    /// Replies the client may not have yet; the first is number `unacked_from`.
    unacked: VecDeque<Reply>,
    unacked_from: u64,
    /// How many replies went out over the present link or an earlier one.
    sent: u64,
    announced: Option<Seq>,
    blocked: bool,
    /// Calls that go on while others are claimed, and how many may.
    deferred: BTreeSet<Seq>,
    most_deferred: usize,
    /// The client knows of deferred calls up to this one.
    told: Seq,
    keeps: bool,
}

impl Default for Slot {
    fn default() -> Slot {
        Slot {
            lease: None,
            received: Seq::default(),
            arrived: 0,
            waiting: VecDeque::new(),
            running: None,
            unacked: VecDeque::new(),
            unacked_from: 0,
            sent: 0,
            announced: None,
            blocked: false,
            deferred: BTreeSet::new(),
            most_deferred: MOST_DEFERRED,
            told: Seq::default(),
            keeps: false,
        }
    }
}

impl Slot {
    /// A data connection for `lease` is here. The same lease goes on where it was; another starts afresh.
    ///
    /// Calls of an earlier lease are forgotten; one that still runs is no longer answered.
    pub fn attach(&mut self, lease: LeaseId) {
        if self.lease != Some(lease) {
            *self = Slot { lease: Some(lease), ..Slot::default() };
        }
    }

    /// The lease is over.
    pub fn detach(&mut self, lease: LeaseId) {
        if self.lease == Some(lease) {
            *self = Slot::default();
        }
    }

    pub fn lease(&self) -> Option<LeaseId> {
        self.lease
    }

    pub fn on_message(&mut self, message: ToSlot, effects: &mut Vec<Effect>) {
        match message {
            ToSlot::Hello(hello) => self.on_hello(&hello, effects),
            ToSlot::Environment(environment) => effects.push(Effect::Environment(environment)),
            ToSlot::Define { function, bytes } => effects.push(Effect::Define { function, bytes }),
            ToSlot::Run { acked, calls } => {
                self.on_ack(acked);
                for call in calls {
                    self.on_call(call);
                }
            }
            ToSlot::Withdraw { calls } => self.on_withdraw(&calls),
            ToSlot::Cancel { calls } => self.on_cancel(&calls, effects),
            ToSlot::Kill { calls } => self.on_kill(&calls, effects),
            ToSlot::Ack { acked } => self.on_ack(acked),
        }
    }

    fn on_hello(&mut self, hello: &Hello, effects: &mut Vec<Effect>) {
        if self.lease != Some(hello.lease) {
            return;
        }
        self.keeps = hello.keeps;
        self.on_ack(hello.replies);
        self.keeps = hello.keeps;
        self.told = Seq::default();
        // What was sent over the link that broke may never have arrived.
        self.sent = self.unacked_from;
        effects.push(Effect::Send(FromSlot::Hello { received: self.received }));
        if let Some(call) = self.running.filter(|_| self.announced == self.running) {
            effects.push(Effect::Send(FromSlot::Running { call }));
        }
    }

    fn on_call(&mut self, call: Call) {
        // A repeated call was answered or will be (SL-2).
        if call.seq > self.received {
            self.received = call.seq;
            self.arrived += 1;
            self.waiting.push_back(call);
            if self.blocked {
                self.give_back();
            }
        }
    }

    fn on_ack(&mut self, acked: u64) {
        let acked = acked.min(self.reply_count());
        while self.unacked_from < acked {
            self.unacked.pop_front();
            self.unacked_from += 1;
        }
        self.sent = self.sent.max(self.unacked_from);
    }

    fn on_withdraw(&mut self, calls: &[Seq]) {
        self.drop_waiting(calls, Status::Withdrawn);
    }

    fn on_cancel(&mut self, calls: &[Seq], effects: &mut Vec<Effect>) {
        self.drop_waiting(calls, Status::Cancelled);
        effects.extend(self.begun(calls).map(|call| Effect::Interrupt { call }));
    }

    fn on_kill(&mut self, calls: &[Seq], effects: &mut Vec<Effect>) {
        self.drop_waiting(calls, Status::Cancelled);
        effects.extend(self.begun(calls).map(|call| Effect::Die { call }).take(1));
    }

    /// Those of these calls that have begun and not ended.
    fn begun(&self, calls: &[Seq]) -> impl Iterator<Item = Seq> {
        calls.iter().copied().filter(|call| self.running == Some(*call) || self.deferred.contains(call))
    }

    fn drop_waiting(&mut self, calls: &[Seq], status: Status) {
        for seq in calls {
            let Ok(place) = self.waiting.binary_search_by_key(seq, |call| call.seq) else { continue };
            self.waiting.remove(place);
            self.push_reply(Reply { seq: *seq, status, took: Duration::ZERO, payload: Bytes::new() });
        }
    }

    /// The next call to run, which from now on cannot be withdrawn. None while one runs, or too many go on beside it.
    pub fn claim(&mut self) -> Option<Call> {
        if !self.can_claim() {
            return None;
        }
        let call = self.waiting.pop_front()?;
        self.running = Some(call.seq);
        Some(call)
    }

    /// Whether [`Slot::claim`] would give a call.
    pub fn can_claim(&self) -> bool {
        self.running.is_none() && !self.waiting.is_empty() && self.deferred.len() < self.most_deferred
    }

    /// So many calls may be deferred at a time.
    pub fn allow_deferred(&mut self, most: usize) {
        self.most_deferred = most.max(1);
    }

    /// The claimed call goes on while others are claimed. False: it is of an earlier lease.
    pub fn defer(&mut self, call: Seq) -> bool {
        let runs = self.running == Some(call);
        if runs {
            self.running = None;
            self.blocked = false;
            self.deferred.insert(call);
        }
        runs
    }

    /// A deferred call has ended. False: it is of an earlier lease, and nobody hears of it.
    pub fn answer(&mut self, reply: Reply) -> bool {
        let known = self.deferred.remove(&reply.seq);
        if known {
            self.push_reply(reply);
        }
        known
    }

    /// How many of them there may be.
    pub fn most_deferred(&self) -> usize {
        self.most_deferred
    }

    /// How many calls go on that were deferred.
    pub fn deferred(&self) -> usize {
        self.deferred.len()
    }

    /// Tell the client which calls go on beside others, each once.
    pub fn announce_deferred(&mut self) -> Option<FromSlot> {
        let calls: Vec<Seq> = self.deferred.range(self.told.next()..).copied().collect();
        self.told = *calls.last()?;
        Some(FromSlot::Begun { calls })
    }

    /// Whether the client's calls are for this slot alone.
    pub fn keeps(&self) -> bool {
        self.keeps
    }

    /// The call that runs waits for others: what waits behind it can go elsewhere.
    pub fn block(&mut self) {
        if self.running.is_some() && !self.keeps {
            self.blocked = true;
            self.give_back();
        }
    }

    /// The call that runs goes on.
    pub fn unblock(&mut self) {
        self.blocked = false;
    }

    fn give_back(&mut self) {
        if self.keeps {
            return;
        }
        let calls: Vec<Seq> = self.waiting.iter().map(|call| call.seq).collect();
        self.drop_waiting(&calls, Status::Withdrawn);
    }

    /// The claimed call has ended. A call of an earlier lease is passed over.
    pub fn finish(&mut self, reply: Reply) {
        if self.running == Some(reply.seq) {
            self.running = None;
            self.blocked = false;
            self.push_reply(reply);
        }
    }

    fn push_reply(&mut self, reply: Reply) {
        self.unacked.push_back(reply);
    }

    /// Whether calls wait to be claimed.
    pub fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    pub fn running(&self) -> Option<Seq> {
        self.running
    }

    /// How many replies have not been handed to the link yet.
    pub fn unsent(&self) -> usize {
        (self.reply_count() - self.sent) as usize
    }

    /// Replies that have not been handed to the link yet, as one message.
    pub fn replies_to_send(&mut self) -> Option<FromSlot> {
        let skip = (self.sent - self.unacked_from) as usize;
        if skip == self.unacked.len() {
            return None;
        }
        let replies: Vec<Reply> = self.unacked.range(skip..).cloned().collect();
        let first = self.sent;
        self.sent = self.reply_count();
        Some(FromSlot::Replies { first, replies })
    }

    /// The call that runs has been running for a while: tell the client, once.
    pub fn announce_running(&mut self) -> Option<FromSlot> {
        if self.running.is_none() || self.running == self.announced {
            return None;
        }
        self.announced = self.running;
        self.running.map(|call| FromSlot::Running { call })
    }

    fn reply_count(&self) -> u64 {
        self.unacked_from + self.unacked.len() as u64
    }

    /// The first broken invariant, if any.
    pub fn check(&self) -> Result<(), String> {
        if self.blocked && !((self.keeps || self.waiting.is_empty()) && self.running.is_some()) {
            return Err(format!("SL-5: calls wait behind {:?}, which waits itself", self.running));
        }
        if !self.waiting.iter().is_sorted_by(|a, b| a.seq < b.seq) {
            return Err(format!("SL-3: waiting calls out of order in {:?}", self.lease));
        }
        if let (Some(running), Some(next)) = (self.running, self.waiting.front())
            && next.seq <= running
        {
            return Err(format!("SL-3: {:?} waits behind the later {running:?}", next.seq));
        }
        if let (Some(deferred), Some(next)) = (self.deferred.last(), self.waiting.front())
            && next.seq <= *deferred
        {
            return Err(format!("SL-3: {:?} waits behind the later {deferred:?}", next.seq));
        }
        if self.sent < self.unacked_from || self.sent > self.reply_count() {
            return Err(format!("SL-4: {} sent of {} replies", self.sent, self.reply_count()));
        }
        let begun = self.deferred.len() as u64 + u64::from(self.running.is_some());
        let answered = self.reply_count() + self.waiting.len() as u64 + begun;
        if answered != self.arrived {
            return Err(format!("SL-2: {} calls came, {answered} are accounted for", self.arrived));
        }
        Ok(())
    }
}
