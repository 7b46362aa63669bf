//! The shell around admission control: tasks of unauthenticated connections, and the turns they wait for.
//!
//! Owns: the task of each such connection, which ends when the core says so. Does not own: which one that is
//! ([`paceline_core::admission`] decides it), nor what is said over the connection.

use crate::{alarm, clock};
use paceline_core::Tick;
use paceline_core::admission::{Admission, CloseReason, ConnectionId, Effect, Event, Source};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::sync::{Notify, oneshot};
use tokio::task::AbortHandle;

/// Bounds the log lines about strangers in one [`LOG_WINDOW`]: a storm of them must not fill the log.
const MAX_LOG_LINES: u32 = 10;
const LOG_WINDOW: Duration = Duration::from_secs(10);

/// Runs the admission control of one port.
#[derive(Default)]
pub(crate) struct Admissions {
    state: Mutex<State>,
    wake_changed: Notify,
}

#[derive(Default)]
struct State {
    core: Admission,
    arrived: u64,
    tasks: BTreeMap<ConnectionId, Task>,
    wake_at: Option<Tick>,
    log: LogBudget,
}

struct Task {
    abort: AbortHandle,
    /// Hears when its turn has come.
    turn: Option<oneshot::Sender<Turn>>,
}

/// Tells one that waits how it goes on.
enum Turn {
    Now,
    Denied { retry_in: Duration },
}

/// A password exchange may not take place now.
#[derive(Debug)]
pub(crate) struct GuessDenied {
    pub retry_in: Duration,
}

/// Counts log lines, and those that were left out.
#[derive(Default)]
struct LogBudget {
    window: Tick,
    lines: u32,
    left_out: u64,
}

impl LogBudget {
    /// Returns how many lines were left out before this one; none if it is left out, too.
    fn take(&mut self, now: Tick) -> Option<u64> {
        if now.since(self.window) >= LOG_WINDOW {
            (self.window, self.lines) = (now, 0);
        }
        if self.lines >= MAX_LOG_LINES {
            self.left_out += 1;
            return None;
        }
        self.lines += 1;
        Some(std::mem::take(&mut self.left_out))
    }
}

impl Admissions {
    /// Takes a new connection; `serve` makes the task that talks to it. Call it inside a tokio runtime.
    pub(crate) fn arrive<F: Future<Output = ()> + Send + 'static>(
        self: &Arc<Self>,
        source: Source,
        serve: impl FnOnce(Pending) -> F,
    ) {
        let connection = {
            let mut state = self.state.lock();
            state.arrived += 1;
            ConnectionId(state.arrived)
        };
        self.step(Event::Arrived { connection, source });
        let pending = Pending { admissions: Arc::downgrade(self), connection };
        let abort = tokio::spawn(serve(pending)).abort_handle();
        // The task runs on this thread, so it has not run yet.
        self.state.lock().tasks.insert(connection, Task { abort, turn: None });
    }

    fn step(&self, event: Event) {
        let mut state = self.state.lock();
        let mut effects = Vec::new();
        let now = Tick(clock::now());
        state.core.handle(now, event, &mut effects);
        for effect in effects {
            match effect {
                Effect::Close { connection, reason } => {
                    if let Some(task) = state.tasks.remove(&connection) {
                        // It is dropped by the runtime, later: not while the state is locked.
                        task.abort.abort();
                    }
                    if let Some(left_out) = state.log.take(now) {
                        let reason = match reason {
                            CloseReason::Evicted => "another needs its place",
                            CloseReason::TimedOut => "nothing proved in time",
                        };
                        tracing::info!(reason, left_out, "unauthenticated connection closed");
                    }
                }
                Effect::BeginHandshake { connection } | Effect::BeginGuess { connection } => {
                    state.tell(connection, Turn::Now);
                }
                Effect::DenyGuess { connection, retry_in } => {
                    state.tell(connection, Turn::Denied { retry_in });
                }
                Effect::GuessFailed { source, failures, retry_in } => {
                    tracing::warn!(%source, failures, ?retry_in, "password refused");
                }
                Effect::WakeAt(at) => {
                    state.wake_at = Some(at);
                    self.wake_changed.notify_one();
                }
            }
        }
    }

    /// Lets time pass, for ever.
    pub(crate) async fn keep_time(&self) {
        loop {
            let wake_at = self.state.lock().wake_at;
            tokio::select! {
                () = alarm::reached(wake_at.map(|at| at.0)) => {
                    self.forget_reached();
                    self.step(Event::Tick);
                }
                () = self.wake_changed.notified() => {}
            }
        }
    }

    /// Forgets the wake-up whose time has come. A later one, asked for since the last was waited for, stays: the core does
    /// not ask for it again.
    fn forget_reached(&self) {
        let now = Tick(clock::now());
        let mut state = self.state.lock();
        state.wake_at = state.wake_at.filter(|at| *at > now);
    }

    /// Notes that one was not let in.
    pub(crate) fn log_refusal(&self, source: Source, why: &dyn std::fmt::Debug) {
        if let Some(left_out) = self.state.lock().log.take(Tick(clock::now())) {
            tracing::info!(%source, ?why, left_out, "unauthenticated connection refused");
        }
    }
}

impl State {
    fn tell(&mut self, connection: ConnectionId, turn: Turn) {
        if let Some(sender) = self.tasks.get_mut(&connection).and_then(|task| task.turn.take()) {
            let _ = sender.send(turn);
        }
    }
}

/// An unauthenticated connection that has its place. It gives the place back when dropped.
pub(crate) struct Pending {
    admissions: Weak<Admissions>,
    connection: ConnectionId,
}

impl Pending {
    /// Waits until its handshake may begin. Its header is complete.
    pub(crate) async fn handshake_turn(&self) {
        let connection = self.connection;
        self.wait(Event::HeaderComplete { connection }).await;
    }

    /// Waits until its password exchange may begin.
    pub(crate) async fn guess_turn(&self) -> Result<(), GuessDenied> {
        let connection = self.connection;
        match self.wait(Event::GuessWanted { connection }).await {
            Turn::Now => Ok(()),
            Turn::Denied { retry_in } => Err(GuessDenied { retry_in }),
        }
    }

    async fn wait(&self, event: Event) -> Turn {
        match self.ask_for_turn(event) {
            Some(turn) => match turn.await {
                Ok(turn) => turn,
                // It has to go: its task ends before this does.
                Err(_closed) => std::future::pending().await,
            },
            None => std::future::pending().await,
        }
    }

    /// None: the port is closed, or the connection has to go.
    fn ask_for_turn(&self, event: Event) -> Option<oneshot::Receiver<Turn>> {
        let admissions = self.admissions.upgrade()?;
        let (sender, turn) = oneshot::channel();
        admissions.state.lock().tasks.get_mut(&self.connection)?.turn = Some(sender);
        admissions.step(event);
        Some(turn)
    }

    /// Tells that it has proved who it is: from now on nobody takes its place.
    pub(crate) fn authenticated(&self) {
        if let Some(admissions) = self.admissions.upgrade() {
            admissions.state.lock().tasks.remove(&self.connection);
            admissions.step(Event::Authenticated { connection: self.connection });
        }
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if let Some(admissions) = self.admissions.upgrade() {
            admissions.state.lock().tasks.remove(&self.connection);
            admissions.step(Event::Closed { connection: self.connection });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wake_up_asked_for_meanwhile_is_not_forgotten() {
        let admissions = Admissions::default();
        let later = Tick(clock::now() + 60_000_000_000);
        admissions.state.lock().wake_at = Some(later);
        admissions.forget_reached();
        assert_eq!(admissions.state.lock().wake_at, Some(later));
        admissions.state.lock().wake_at = Some(Tick(1));
        admissions.forget_reached();
        assert_eq!(admissions.state.lock().wake_at, None);
    }
}
