//! Admission control of a port: which unauthenticated connections may stay, and which of them may cost CPU time.
//!
//! Owns: the places for connections that have proved nothing yet, their deadline, and the order in which handshakes and
//! password exchanges begin. Does not own: sockets, TLS, what a proof is.
//!
//! * AD-1 (bounded): at most [`MAX_CONNECTIONS`] by TCP and [`MAX_UNIX_CONNECTIONS`] by unix sockets, each for
//!   [`CONNECTION_TIMEOUT`]; one source has at most [`MAX_CONNECTIONS_PER_SOURCE`].
//! * AD-2 (fair eviction): a connection makes room for another only if no source has more connections than its own;
//!   within a source those without a full header go first, then the oldest.
//! * AD-3 (separate queues): connections by TCP never take the place of one by a unix socket.
//! * AD-4 (reserved share): sources that have never authenticated leave [`RESERVED_CONNECTIONS`] places to those that
//!   have, and wait for handshakes behind them.
//! * AD-5 (bounded CPU): handshakes begin at no more than [`HANDSHAKES_PER_SECOND`], in turn by source.
//! * AD-6 (passwords): see [`guesses`].

pub mod guesses;
mod rate;
mod source;
#[cfg(test)]
mod tests;
pub mod unproved;

pub use source::Source;

use crate::time::Tick;
use guesses::{Guesses, Turn};
use rate::Rate;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Bounds the unauthenticated connections by TCP.
pub const MAX_CONNECTIONS: usize = 256;
/// Bounds those of one source.
pub const MAX_CONNECTIONS_PER_SOURCE: usize = 128;
/// Bounds the unauthenticated connections by unix sockets.
pub const MAX_UNIX_CONNECTIONS: usize = 256;
/// Counts the places that only sources which have authenticated lately may take.
pub const RESERVED_CONNECTIONS: usize = 32;
/// Bounds the life of a connection that proves nothing.
pub const CONNECTION_TIMEOUT: Duration = Duration::from_secs(5);
/// Bounds the handshakes of unknown sources that begin in one second.
pub const HANDSHAKES_PER_SECOND: u32 = 200;
/// Bounds those that begin at once after a pause.
pub const HANDSHAKE_BURST: u32 = 200;
/// Bounds the handshakes of sources that have authenticated lately.
pub const TRUSTED_HANDSHAKES_PER_SECOND: u32 = 1000;
/// Bounds the time for which a source counts as one that has authenticated.
pub const TRUST_DURATION: Duration = Duration::from_secs(3600);
/// Bounds the sources that count as such; the one that authenticated longest ago is forgotten.
pub const MAX_TRUSTED_SOURCES: usize = 1024;

/// Numbers a connection of one port.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct ConnectionId(pub u64);

/// Tells what happened at the port.
#[derive(Clone, Debug)]
pub enum Event {
    /// A connection was made. Its number is higher than those before.
    Arrived { connection: ConnectionId, source: Source },
    /// Its header is complete, and a handshake is to follow.
    HeaderComplete { connection: ConnectionId },
    /// It wants to prove a password.
    GuessWanted { connection: ConnectionId },
    /// It has proved who it is.
    Authenticated { connection: ConnectionId },
    /// It is closed, or somebody else's.
    Closed { connection: ConnectionId },
    /// Time has passed.
    Tick,
}

/// Tells what to do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Effect {
    /// Close this connection.
    Close { connection: ConnectionId, reason: CloseReason },
    /// Let it begin its handshake.
    BeginHandshake { connection: ConnectionId },
    /// Let it begin its password exchange.
    BeginGuess { connection: ConnectionId },
    /// Tell it that there is no exchange now, and close it.
    DenyGuess { connection: ConnectionId, retry_in: Duration },
    /// A password exchange did not end well: to be logged.
    GuessFailed { source: Source, failures: u32, retry_in: Duration },
    /// Wake the machine then.
    WakeAt(Tick),
}

/// Tells why a connection has to go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CloseReason {
    /// Its source has the most connections, and another one needs the place.
    Evicted,
    /// It proved nothing in time.
    TimedOut,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    NoHeader,
    AwaitingHandshake,
    Handshaking,
    AwaitingGuess,
    Guessing {
        since: Tick,
    },
    /// It hears that it may not guess now.
    Denied,
}

#[derive(Clone, Debug)]
struct Connection {
    source: Source,
    came: Tick,
    stage: Stage,
}

impl Connection {
    fn is_guessing(&self) -> bool {
        matches!(self.stage, Stage::Guessing { .. })
    }

    /// Returns when it has to go.
    fn deadline(&self) -> Tick {
        let deadline = self.came + CONNECTION_TIMEOUT;
        match self.stage {
            Stage::Guessing { since } => deadline.min(since + guesses::EXCHANGE_TIMEOUT),
            _ => deadline,
        }
    }
}

/// Remembers of a source that has connections how it was served.
#[derive(Clone, Copy, Default, Debug)]
struct Share {
    connections: usize,
    /// When one of its connections last began a handshake.
    served: Option<Tick>,
}

/// Decides which unauthenticated connections of a port stay.
pub struct Admission {
    /// In the order of arrival, since numbers grow.
    connections: BTreeMap<ConnectionId, Connection>,
    awaiting_handshake: BTreeSet<ConnectionId>,
    awaiting_guess: BTreeSet<ConnectionId>,
    exchanging: BTreeSet<ConnectionId>,
    shares: BTreeMap<Source, Share>,
    /// When these sources last authenticated.
    trusted: BTreeMap<Source, Tick>,
    unknown_rate: Rate,
    trusted_rate: Rate,
    guesses: Guesses,
    asked: Option<Tick>,
}

impl Default for Admission {
    fn default() -> Admission {
        Admission {
            connections: BTreeMap::new(),
            awaiting_handshake: BTreeSet::new(),
            awaiting_guess: BTreeSet::new(),
            exchanging: BTreeSet::new(),
            shares: BTreeMap::new(),
            trusted: BTreeMap::new(),
            unknown_rate: Rate::new(HANDSHAKES_PER_SECOND, HANDSHAKE_BURST),
            trusted_rate: Rate::new(TRUSTED_HANDSHAKES_PER_SECOND, HANDSHAKE_BURST),
            guesses: Guesses::default(),
            asked: None,
        }
    }
}

impl Admission {
    /// Takes one event; what is to be done is appended in order.
    pub fn handle(&mut self, now: Tick, event: Event, effects: &mut Vec<Effect>) {
        self.asked = self.asked.filter(|asked| *asked > now);
        match event {
            Event::Arrived { connection, source } => self.on_arrived(now, connection, source, effects),
            Event::HeaderComplete { connection } => self.enter(connection, Stage::AwaitingHandshake),
            Event::GuessWanted { connection } => self.enter(connection, Stage::AwaitingGuess),
            Event::Authenticated { connection } => self.on_authenticated(now, connection),
            Event::Closed { connection } => self.remove(now, connection, effects),
            Event::Tick => self.trusted.retain(|_, since| now.since(*since) < TRUST_DURATION),
        }
        self.close_late(now, effects);
        self.begin_handshakes(now, effects);
        self.begin_guesses(now, effects);
        self.ask_for_wake(effects);
        debug_assert_eq!(self.check(), Ok(()));
    }

    fn on_arrived(&mut self, now: Tick, id: ConnectionId, source: Source, effects: &mut Vec<Effect>) {
        if self.connections.last_key_value().is_some_and(|(last, _)| *last >= id) {
            return;
        }
        if self.trusted.get(&source).is_some_and(|since| now.since(*since) >= TRUST_DURATION) {
            // Nothing ticks while there are no connections.
            self.trusted.remove(&source);
        }
        while let Some(victim) = self.victim_for(source) {
            effects.push(Effect::Close { connection: victim, reason: CloseReason::Evicted });
            self.remove(now, victim, effects);
        }
        self.connections.insert(id, Connection { source, came: now, stage: Stage::NoHeader });
        self.shares.entry(source).or_default().connections += 1;
    }

    /// Returns who must go before one more of this source has a place; none if there is one.
    fn victim_for(&self, source: Source) -> Option<ConnectionId> {
        if source == Source::Unix {
            let full = self.count(|one| one == Source::Unix) >= MAX_UNIX_CONNECTIONS;
            return full.then(|| self.worst(|one| one == Source::Unix)).flatten();
        }
        let own = self.shares.get(&source).map_or(0, |share| share.connections);
        if own >= MAX_CONNECTIONS_PER_SOURCE {
            return self.worst(|one| one == source);
        }
        let is_tcp = |one: Source| one != Source::Unix;
        let is_unknown = |one: Source| is_tcp(one) && !self.trusted.contains_key(&one);
        if !self.trusted.contains_key(&source) {
            if self.count(is_unknown) >= MAX_CONNECTIONS - RESERVED_CONNECTIONS {
                return self.worst(is_unknown);
            }
            let full = self.count(is_tcp) >= MAX_CONNECTIONS;
            return full.then(|| self.worst(is_tcp)).flatten();
        }
        if self.count(is_tcp) < MAX_CONNECTIONS {
            return None;
        }
        self.worst(is_unknown).or_else(|| self.worst(is_tcp))
    }

    fn count(&self, of: impl Fn(Source) -> bool) -> usize {
        self.shares.iter().filter(|(source, _)| of(**source)).map(|(_, share)| share.connections).sum()
    }

    /// Returns the connection that goes first among these sources (AD-2).
    fn worst(&self, of: impl Fn(Source) -> bool) -> Option<ConnectionId> {
        let most = self
            .shares
            .iter()
            .filter(|(source, _)| of(**source))
            .map(|(_, share)| share.connections)
            .max()?;
        let candidates = self
            .connections
            .iter()
            .filter(|(_, one)| of(one.source) && self.shares[&one.source].connections == most);
        candidates.min_by_key(|(id, one)| (one.stage != Stage::NoHeader, **id)).map(|(id, _)| *id)
    }

    fn enter(&mut self, id: ConnectionId, stage: Stage) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let expected = match stage {
            Stage::AwaitingHandshake => Stage::NoHeader,
            _ => Stage::Handshaking,
        };
        if connection.stage == expected {
            connection.stage = stage;
            match stage {
                Stage::AwaitingHandshake => self.awaiting_handshake.insert(id),
                _ => self.awaiting_guess.insert(id),
            };
        }
    }

    fn on_authenticated(&mut self, now: Tick, id: ConnectionId) {
        let Some(connection) = self.forget(id) else { return };
        if connection.is_guessing() {
            self.guesses.on_success(connection.source);
        }
        if connection.source == Source::Unix {
            return;
        }
        self.trusted.insert(connection.source, now);
        if self.trusted.len() > MAX_TRUSTED_SOURCES {
            let oldest = self.trusted.iter().min_by_key(|(_, since)| **since).map(|(source, _)| *source);
            oldest.and_then(|oldest| self.trusted.remove(&oldest));
        }
    }

    fn forget(&mut self, id: ConnectionId) -> Option<Connection> {
        let connection = self.connections.remove(&id)?;
        self.awaiting_handshake.remove(&id);
        self.awaiting_guess.remove(&id);
        self.exchanging.remove(&id);
        let share = self.shares.get_mut(&connection.source).expect("it has a connection");
        share.connections -= 1;
        if share.connections == 0 {
            self.shares.remove(&connection.source);
        }
        Some(connection)
    }

    fn remove(&mut self, now: Tick, id: ConnectionId, effects: &mut Vec<Effect>) {
        let Some(connection) = self.forget(id) else { return };
        if connection.is_guessing() {
            // Whoever has the head's answer knows whether the guess was right: an exchange without an end is a guess.
            let (failures, retry_in) = self.guesses.on_failure(now, connection.source);
            effects.push(Effect::GuessFailed { source: connection.source, failures, retry_in });
        }
    }

    fn close_late(&mut self, now: Tick, effects: &mut Vec<Effect>) {
        while let Some((deadline, id)) = self.next_deadline() {
            if deadline > now {
                return;
            }
            effects.push(Effect::Close { connection: id, reason: CloseReason::TimedOut });
            self.remove(now, id, effects);
        }
    }

    fn next_deadline(&self) -> Option<(Tick, ConnectionId)> {
        let exchanging = self.exchanging.iter().map(|id| (self.connections[id].deadline(), *id));
        let oldest = self.connections.first_key_value().map(|(id, one)| (one.deadline(), *id));
        exchanging.chain(oldest).min()
    }

    fn is_trusted(&self, source: Source) -> bool {
        source == Source::Unix || self.trusted.contains_key(&source)
    }

    fn begin_handshakes(&mut self, now: Tick, effects: &mut Vec<Effect>) {
        for trusted in [true, false] {
            while self.rate(trusted).next() <= now
                && let Some(id) = self.next_handshake(trusted)
            {
                let rate = if trusted { &mut self.trusted_rate } else { &mut self.unknown_rate };
                rate.take(now);
                self.awaiting_handshake.remove(&id);
                let connection = self.connections.get_mut(&id).expect("found just now");
                connection.stage = Stage::Handshaking;
                self.shares.get_mut(&connection.source).expect("it has a connection").served = Some(now);
                effects.push(Effect::BeginHandshake { connection: id });
            }
        }
    }

    /// Returns whose turn it is: the source that was served longest ago comes first (AD-5).
    fn next_handshake(&self, trusted: bool) -> Option<ConnectionId> {
        let waiting = self.awaiting_handshake.iter().map(|id| (id, self.connections[id].source));
        let waiting = waiting.filter(|(_, source)| self.is_trusted(*source) == trusted);
        waiting.min_by_key(|(id, source)| (self.shares[source].served, **id)).map(|(id, _)| *id)
    }

    fn rate(&self, trusted: bool) -> &Rate {
        if trusted { &self.trusted_rate } else { &self.unknown_rate }
    }

    fn begin_guesses(&mut self, now: Tick, effects: &mut Vec<Effect>) {
        let waiting = self.awaiting_guess.iter().map(|id| (id, &self.connections[id]));
        let mut waiting: Vec<(bool, u32, Tick, ConnectionId, Source)> = waiting
            .map(|(id, one)| {
                let failures = self.guesses.failures(now, one.source);
                (!self.is_trusted(one.source), failures, one.came, *id, one.source)
            })
            .collect();
        waiting.sort();
        for (_, _, came, id, source) in waiting {
            let stage = match self.guesses.turn(now, source, came + guesses::GUESS_PATIENCE) {
                Turn::Now => {
                    effects.push(Effect::BeginGuess { connection: id });
                    self.exchanging.insert(id);
                    Stage::Guessing { since: now }
                }
                Turn::Wait => continue,
                Turn::Never { retry_in } => {
                    effects.push(Effect::DenyGuess { connection: id, retry_in });
                    Stage::Denied
                }
            };
            self.awaiting_guess.remove(&id);
            self.connections.get_mut(&id).expect("found just now").stage = stage;
        }
    }

    fn ask_for_wake(&mut self, effects: &mut Vec<Effect>) {
        let deadline = self.next_deadline().map(|(deadline, _)| deadline);
        let is_awaited = |trusted| {
            let mut sources = self.awaiting_handshake.iter().map(|id| self.connections[id].source);
            sources.any(|source| self.is_trusted(source) == trusted)
        };
        let turn = [true, false].into_iter().filter(|trusted| is_awaited(*trusted));
        let turn = turn.map(|trusted| self.rate(trusted).next());
        let guesses = self.awaiting_guess.iter().map(|id| &self.connections[id]);
        let guesses = guesses.map(|one| self.guesses.next(one.source, one.came + guesses::GUESS_PATIENCE));
        let Some(next) = deadline.into_iter().chain(turn).chain(guesses).min() else { return };
        if self.asked.is_none_or(|asked| next < asked) {
            self.asked = Some(next);
            effects.push(Effect::WakeAt(next));
        }
    }

    /// Names the first broken invariant.
    pub fn check(&self) -> Result<(), String> {
        let unix = self.count(|source| source == Source::Unix);
        let tcp = self.connections.len() - unix;
        if tcp > MAX_CONNECTIONS || unix > MAX_UNIX_CONNECTIONS {
            return Err(format!("AD-1: {tcp} connections by TCP, {unix} by unix sockets"));
        }
        let mut counts: BTreeMap<Source, usize> = BTreeMap::new();
        for connection in self.connections.values() {
            *counts.entry(connection.source).or_default() += 1;
        }
        for (source, share) in &self.shares {
            let counted = counts.get(source).copied().unwrap_or_default();
            if counted != share.connections || counted == 0 {
                return Err(format!("AD-1: {source} has {counted} connections, not {}", share.connections));
            }
            if *source != Source::Unix && counted > MAX_CONNECTIONS_PER_SOURCE {
                return Err(format!("AD-1: {source} has {counted} connections"));
            }
        }
        for (set, stage) in [
            (&self.awaiting_handshake, Stage::AwaitingHandshake),
            (&self.awaiting_guess, Stage::AwaitingGuess),
        ] {
            let found = self.connections.iter().filter(|(_, one)| one.stage == stage).map(|(id, _)| id);
            if !found.eq(set) {
                return Err(format!("AD-5: {set:?} are noted in stage {stage:?}"));
            }
        }
        let exchanging = self.connections.iter().filter(|(_, one)| one.is_guessing());
        if !exchanging.clone().map(|(id, _)| id).eq(&self.exchanging) {
            return Err(format!("GU-1: {:?} are noted as exchanges", self.exchanging));
        }
        self.guesses.check(exchanging.map(|(_, one)| one.source))
    }
}
