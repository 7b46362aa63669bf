//! Submitting within limits: what to do with a task for which there is no room.
//!
//! Owns: tasks that were offered and not let in yet, and how those who offered them hear of it. Whether there is room is
//! the machine's to say.
//!
//! * RO-1: tasks are let in in the order they were offered, and nobody goes before one that waits.
//! * RO-2: whoever lets the queue drain lets them in, so none of the threads that offered one needs to run for it.
//! * RO-3: a closing session turns all of them away at once.

use crate::cell::{Cell, Ticket, Waiter};
use crate::notify::{Notice, in_callback};
use crate::pump::Waited;
use crate::rust::in_slot;
use crate::session::{Payload, Session, Submission, submit_to};
use crate::state::{State, tick};
use paceline_core::client::{Config, Outcome, Spec, Waiting};
use paceline_proto::Bytes;
use paceline_proto::parts::carried;
use std::sync::Arc;
use std::time::Duration;

/// Tells the user something in one line.
pub type Warn = Arc<dyn Fn(&str) + Send + Sync>;

/// How much a session may hold.
#[derive(Clone)]
pub struct Limits {
    /// Tasks that wait to be sent. Beyond, whoever submits has to wait.
    pub queue_tasks: usize,
    /// Bytes of their arguments.
    pub queue_bytes: usize,
    /// Bytes of results that nobody has asked for, in memory. Beyond, they are on disk. If not set: a quarter of the
    /// memory that this process may use.
    pub result_bytes: Option<usize>,
    /// Called from the callback thread when a limit cannot be kept.
    pub warn: Warn,
}

impl Default for Limits {
    fn default() -> Limits {
        let Config { queue_tasks, queue_bytes, .. } = Config::default();
        let warn: Warn = Arc::new(|text| eprintln!("paceline: {text}"));
        Limits { queue_tasks, queue_bytes, result_bytes: None, warn }
    }
}

/// There is no room for a task now.
#[derive(Clone, Debug)]
pub struct Full {
    /// What was to be submitted.
    pub payload: Payload,
    /// What waits to be sent,
    pub waiting: Waiting,
    /// and how much may.
    pub most: Waiting,
}

/// Why a task was not submitted.
#[derive(Clone, Debug)]
pub enum Refused {
    Full(Full),
    /// The session was closed meanwhile.
    Closed,
}

/// A task that was offered and is to be let in.
pub(crate) struct Parked {
    spec: Spec,
    cell: Arc<Cell>,
    gate: Arc<Cell>,
}

/// What somebody who has offered a task waits for: that it is let in, or turned away.
#[derive(Clone)]
pub struct Gate {
    session: Session,
    /// Done once the task is either.
    gate: Arc<Cell>,
    cell: Arc<Cell>,
}

impl Session {
    /// Submit one task with a place of its own for the outcome, unless there is no room for it now.
    pub fn try_submit(
        &self,
        submission: &Submission,
        payload: impl Into<Payload>,
    ) -> Result<Arc<Cell>, Full> {
        let payload = payload.into();
        let mut state = self.shared.state.lock();
        let core = &state.inner.core;
        // RO-1: also if what waits would not fit and this one would.
        if !state.inner.parked.is_empty() || !core.has_room(carried(&payload.bytes)) {
            return Err(Full { payload, waiting: core.waiting(), most: core.most_waiting() });
        }
        let cell = Cell::new();
        self.shared.announce(&mut state);
        submit_to(&mut state, submission, payload, &cell);
        self.shared.after_submit(&mut state);
        Ok(cell)
    }

    /// Submit one task as soon as there is room for it.
    pub fn offer(&self, submission: &Submission, payload: impl Into<Payload>) -> Gate {
        let (cell, gate) = (Cell::new(), Cell::new());
        let mut state = self.shared.state.lock();
        let parked = Parked { spec: submission.spec(payload.into()), cell: cell.clone(), gate: gate.clone() };
        self.shared.announce(&mut state);
        state.inner.parked.push_back(parked);
        if self.shared.closed() {
            state.inner.turn_away();
        } else {
            state.inner.let_in();
        }
        self.shared.after_submit(&mut state);
        drop(state);
        Gate { session: self.clone(), gate, cell }
    }

    /// A place for the outcome of a task that is submitted later.
    pub fn later(&self) -> Arc<Cell> {
        Cell::new()
    }

    /// Submit the task that has this place now, with or without room: it was accepted before. False: the session is
    /// closed.
    pub fn submit_later(
        &self,
        submission: &Submission,
        payload: impl Into<Payload>,
        cell: &Arc<Cell>,
    ) -> bool {
        let mut state = self.shared.state.lock();
        if self.shared.closed() {
            return false;
        }
        self.shared.announce(&mut state);
        submit_to(&mut state, submission, payload.into(), cell);
        self.shared.after_submit(&mut state);
        true
    }

    /// The task that has this place is never submitted.
    pub fn end_later(&self, cell: &Arc<Cell>) {
        cell.complete(Outcome::Cancelled.into(), &self.shared.notifier);
    }

    /// Submit one task, waiting for room if need be. A thread that must not wait is told instead: one that runs
    /// callbacks, or a task.
    pub fn submit(&self, submission: &Submission, payload: impl Into<Payload>) -> Result<Arc<Cell>, Refused> {
        let payload = match self.try_submit(submission, payload) {
            Ok(cell) => return Ok(cell),
            Err(full) if in_callback() || in_slot() => return Err(Refused::Full(full)),
            Err(full) => full.payload,
        };
        let gate = self.offer(submission, payload);
        let waiter = Waiter::new(1);
        if gate.watch(&waiter) {
            while !matches!(self.wait(&waiter, None, SLICE), Waited::Satisfied) {
                if self.is_closed() {
                    return Err(Refused::Closed);
                }
            }
        }
        if gate.is_in() { Ok(gate.cell) } else { Err(Refused::Closed) }
    }

    /// Whether one more task would find room now.
    pub fn has_room(&self) -> bool {
        let state = self.shared.state.lock();
        state.inner.parked.is_empty() && state.inner.core.has_room(0)
    }
}

/// How long a wait may take in one go; only to be sure that an end is never missed.
const SLICE: Duration = Duration::from_secs(1);

impl Gate {
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// The task's outcome, to be.
    pub fn cell(&self) -> &Arc<Cell> {
        &self.cell
    }

    /// Have the waiter counted when the task is let in or turned away. False: it is already.
    pub fn watch(&self, waiter: &Arc<Waiter>) -> bool {
        self.gate.watch(waiter)
    }

    /// Have the notice run by the callback thread then. Gives it back if it is already.
    pub fn on_open(&self, notice: Notice) -> Result<(), Notice> {
        self.gate.on_done(notice)?;
        self.session.expect_callback();
        Ok(())
    }

    /// Whether the task was submitted.
    pub fn is_in(&self) -> bool {
        self.gate.stored().is_some_and(|stored| stored.is_value())
    }

    /// The one who offered it has changed its mind: end the task, wherever it is.
    pub fn withdraw(&self) {
        if self.session.is_closed() {
            return;
        }
        let mut state = self.session.shared.state.lock();
        state.inner.parked.retain(|parked| !Arc::ptr_eq(&parked.gate, &self.gate));
        state.inner.let_in();
        drop(state);
        if self.is_in() {
            self.session.cancel(&self.cell, true);
        }
    }
}

impl State {
    /// Submit what was offered, as far as there is room (RO-1, RO-2).
    pub fn let_in(&mut self) {
        while let Some(first) = self.parked.front()
            && self.core.has_room(carried(&first.spec.payload))
        {
            let Some(Parked { spec, cell, gate }) = self.parked.pop_front() else { return };
            let ticket = Ticket::Cell(cell.clone());
            let (key, id) = self.run(|core, effects| core.submit(tick(), spec, ticket, effects));
            cell.set_task(key, id);
            gate.complete(Outcome::Value(Bytes::new()).into(), self.notifier());
        }
    }

    /// The session closes: nothing more is let in (RO-3).
    pub fn turn_away(&mut self) {
        for Parked { gate, .. } in std::mem::take(&mut self.parked) {
            gate.complete(self.core.closing().into(), self.notifier());
        }
    }
}
