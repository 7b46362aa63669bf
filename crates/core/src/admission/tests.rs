use super::guesses::{
    EXCHANGE_TIMEOUT, FAILURE_MEMORY, FIRST_DELAY, GUESS_BURST, GUESS_PATIENCE, GUESSES_PER_SECOND,
    MAX_DELAY, MAX_EXCHANGES, MAX_FAILING_SOURCES,
};
use super::*;
use crate::random::Random;
use std::net::IpAddr;

const HOLDER: Source = Source::V4([10, 1, 1, 1]);

fn stranger(number: u64) -> Source {
    Source::V4([10, 9, (number >> 8) as u8, number as u8])
}

/// A port, its clock, and what was said last.
#[derive(Default)]
struct Bench {
    admission: Admission,
    now: Tick,
    numbers: u64,
    effects: Vec<Effect>,
}

impl Bench {
    fn handle(&mut self, event: Event) -> Vec<Effect> {
        let mut effects = Vec::new();
        self.admission.handle(self.now, event, &mut effects);
        assert_eq!(self.admission.check(), Ok(()));
        self.effects = effects.clone();
        effects
    }

    fn pass(&mut self, span: Duration) -> Vec<Effect> {
        self.now = self.now + span;
        self.handle(Event::Tick)
    }

    fn arrive(&mut self, source: Source) -> ConnectionId {
        self.numbers += 1;
        let connection = ConnectionId(self.numbers);
        self.handle(Event::Arrived { connection, source });
        connection
    }

    /// Arrives with a full header.
    fn arrive_headed(&mut self, source: Source) -> ConnectionId {
        let connection = self.arrive(source);
        let evicted = self.evicted();
        self.handle(Event::HeaderComplete { connection });
        self.effects.extend(
            evicted.into_iter().map(|connection| Effect::Close { connection, reason: CloseReason::Evicted }),
        );
        connection
    }

    fn evicted(&self) -> Vec<ConnectionId> {
        let closed = self.effects.iter().filter_map(|effect| match effect {
            Effect::Close { connection, .. } => Some(*connection),
            _ => None,
        });
        closed.collect()
    }

    fn stage(&self, connection: ConnectionId) -> Option<Stage> {
        self.admission.connections.get(&connection).map(|one| one.stage)
    }

    fn guesses(&self, connection: ConnectionId) -> bool {
        matches!(self.stage(connection), Some(Stage::Guessing { .. }))
    }

    /// Asks for a password exchange.
    fn guess(&mut self, source: Source) -> ConnectionId {
        let connection = self.arrive_headed(source);
        self.admission.connections.get_mut(&connection).unwrap().stage = Stage::Handshaking;
        self.admission.awaiting_handshake.remove(&connection);
        self.handle(Event::GuessWanted { connection });
        connection
    }
}

#[test]
fn admission_storm_of_one_source_evicts_that_source() {
    let mut bench = Bench::default();
    let holder = bench.arrive_headed(HOLDER);
    for number in 0..2000 {
        if number % 3 == 0 {
            bench.arrive_headed(stranger(1))
        } else {
            bench.arrive(stranger(1))
        };
        assert!(!bench.evicted().contains(&holder), "AD-2");
    }
    assert_eq!(bench.admission.shares[&stranger(1)].connections, MAX_CONNECTIONS_PER_SOURCE, "AD-1");
}

#[test]
fn admission_storm_of_two_hundred_sources_keeps_a_headless_newcomer() {
    let mut bench = Bench::default();
    for number in 0..1000 {
        bench.arrive_headed(stranger(number % 200));
    }
    let holder = bench.arrive(HOLDER);
    for number in 0..1000 {
        bench.arrive_headed(stranger(number % 200));
        assert!(!bench.evicted().contains(&holder), "AD-2");
    }
}

#[test]
fn admission_full_evicts_the_headless_first_then_the_oldest() {
    let mut bench = Bench::default();
    let unknown = MAX_CONNECTIONS - RESERVED_CONNECTIONS;
    let (headed, headless) = (bench.arrive_headed(stranger(0)), bench.arrive(stranger(0)));
    let second = bench.arrive_headed(stranger(0));
    for number in 3..unknown as u64 {
        bench.arrive_headed(stranger(number));
    }
    bench.arrive(HOLDER);
    assert_eq!(bench.evicted(), [headless], "AD-2");
    bench.arrive_headed(stranger(900));
    assert_eq!(bench.evicted(), [headed], "AD-2");
    assert!(bench.stage(second).is_some());
}

#[test]
fn admission_unix_peers_are_not_evicted_by_tcp() {
    let mut bench = Bench::default();
    let own = bench.arrive(Source::Unix);
    for number in 0..5000 {
        bench.arrive(stranger(number));
        assert!(!bench.evicted().contains(&own), "AD-3");
    }
    for _ in 0..2 * MAX_UNIX_CONNECTIONS {
        bench.arrive(Source::Unix);
    }
    assert_eq!(bench.admission.count(|source| source == Source::Unix), MAX_UNIX_CONNECTIONS, "AD-1");
}

#[test]
fn admission_authenticated_source_keeps_its_share() {
    let mut bench = Bench::default();
    let first = bench.arrive_headed(HOLDER);
    bench.handle(Event::Authenticated { connection: first });
    // More sources than there are places: all are alike but one.
    for number in 0..3000 {
        bench.arrive_headed(stranger(number));
    }
    let back: Vec<_> = (0..RESERVED_CONNECTIONS).map(|_| bench.arrive(HOLDER)).collect();
    for number in 0..3000 {
        bench.arrive_headed(stranger(number));
        assert!(back.iter().all(|one| !bench.evicted().contains(one)), "AD-4");
    }
    // It does not wait for handshakes behind them either.
    bench.handle(Event::HeaderComplete { connection: back[0] });
    assert_eq!(bench.stage(back[0]), Some(Stage::Handshaking), "AD-4");
    bench.pass(TRUST_DURATION);
    assert!(bench.admission.trusted.is_empty());
}

#[test]
fn admission_silent_connection_is_closed_in_time() {
    let mut bench = Bench::default();
    let connection = bench.arrive(HOLDER);
    assert!(bench.effects.contains(&Effect::WakeAt(bench.now + CONNECTION_TIMEOUT)));
    let effects = bench.pass(CONNECTION_TIMEOUT);
    assert_eq!(effects, [Effect::Close { connection, reason: CloseReason::TimedOut }], "AD-1");
}

#[test]
fn admission_handshakes_have_a_rate_and_go_in_turn_by_source() {
    let mut bench = Bench::default();
    let mut begun = 0;
    let mut waited = None;
    let mut holder = None;
    for step in 0..2000 {
        bench.now = bench.now + Duration::from_millis(1);
        // Two hundred sources, each of which asks all the time.
        bench.arrive_headed(stranger(step % 200));
        begun += bench.effects.iter().filter(|one| matches!(one, Effect::BeginHandshake { .. })).count();
        if step == 1000 {
            holder = Some(bench.arrive_headed(HOLDER));
        }
        if let (Some(holder), None) = (holder, waited)
            && bench.stage(holder) == Some(Stage::Handshaking)
        {
            waited = Some(step - 1000);
        }
    }
    let bound = 2 * HANDSHAKES_PER_SECOND + HANDSHAKE_BURST;
    assert!(begun <= bound as usize, "AD-5: {begun} handshakes in two seconds");
    assert!(begun >= HANDSHAKES_PER_SECOND as usize, "{begun}");
    assert!(waited.is_some_and(|waited| waited <= 20), "AD-5: a newcomer waited for {waited:?} ms");
}

#[test]
fn password_guesses_of_one_source_go_one_at_a_time_and_ever_slower() {
    let mut bench = Bench::default();
    let first = bench.guess(stranger(1));
    assert!(bench.guesses(first));
    let second = bench.guess(stranger(1));
    assert_eq!(bench.stage(second), Some(Stage::AwaitingGuess), "GU-1");
    let effects = bench.handle(Event::Closed { connection: first });
    let failed = Effect::GuessFailed { source: stranger(1), failures: 1, retry_in: FIRST_DELAY };
    assert!(effects.contains(&failed));
    assert_eq!(bench.stage(second), Some(Stage::AwaitingGuess), "GU-2");
    bench.pass(FIRST_DELAY);
    assert!(bench.guesses(second), "GU-2");
    let (mut delay, mut last) = (FIRST_DELAY, second);
    for _ in 0..10 {
        delay = (2 * delay).min(MAX_DELAY);
        bench.handle(Event::Closed { connection: last });
        let denied = bench.guess(stranger(1));
        if delay > GUESS_PATIENCE {
            assert_eq!(bench.stage(denied), Some(Stage::Denied), "GU-2");
            assert!(bench.effects.contains(&Effect::DenyGuess { connection: denied, retry_in: delay }));
        }
        bench.handle(Event::Closed { connection: denied });
        bench.pass(delay);
        last = bench.guess(stranger(1));
        assert!(bench.guesses(last), "GU-2");
    }
    bench.handle(Event::Closed { connection: last });
    bench.pass(FAILURE_MEMORY);
    let forgiven = bench.guess(stranger(1));
    assert!(bench.guesses(forgiven));
}

#[test]
fn password_exchange_that_keeps_still_makes_room() {
    let mut bench = Bench::default();
    let silent: Vec<_> = (0..MAX_EXCHANGES as u64).map(|number| bench.guess(stranger(number))).collect();
    let holder = bench.guess(HOLDER);
    assert_eq!(bench.stage(holder), Some(Stage::AwaitingGuess), "GU-1");
    bench.pass(EXCHANGE_TIMEOUT);
    assert!(silent.iter().all(|one| bench.stage(*one).is_none()), "GU-1");
    assert!(bench.guesses(holder));
}

#[test]
fn password_guesses_of_many_sources_are_bounded_and_the_right_one_gets_through() {
    let mut bench = Bench::default();
    let mut guesses = 0;
    let mut longest = Duration::ZERO;
    let mut holder: Option<(ConnectionId, Tick)> = None;
    let seconds = 60;
    for step in 0..seconds * 100 {
        bench.pass(Duration::from_millis(10));
        let connection = bench.guess(stranger(step % 200));
        // Exchanges take a moment, then fail.
        let ids: Vec<_> = bench.admission.exchanging.iter().copied().collect();
        for id in ids.into_iter().filter(|id| Some(*id) != holder.map(|(id, _)| id)) {
            guesses += 1;
            bench.handle(Event::Closed { connection: id });
        }
        if bench.stage(connection) == Some(Stage::Denied) {
            bench.handle(Event::Closed { connection });
        }
        match holder {
            // A user who mistypes nothing, now and then, each time from elsewhere.
            None if step % 500 == 0 && step > 2500 => {
                let source = Source::V4([10, 2, (step >> 8) as u8, step as u8]);
                holder = Some((bench.guess(source), bench.now));
            }
            Some((id, since)) if bench.guesses(id) => {
                longest = longest.max(bench.now.since(since));
                bench.handle(Event::Authenticated { connection: id });
                holder = None;
            }
            Some((id, _)) => assert!(bench.stage(id).is_some(), "the right password was kept out"),
            None => {}
        }
    }
    let bound = GUESSES_PER_SECOND * seconds as u32 + GUESS_BURST;
    assert!(guesses <= bound, "GU-3: {guesses}");
    assert!(longest <= Duration::from_secs(1), "the right password waited for {longest:?}");
}

#[test]
fn password_failures_of_a_source_outlast_a_flood_of_others() {
    let mut guesses = Guesses::default();
    let now = Tick::ZERO + Duration::from_secs(1);
    for _ in 0..5 {
        guesses.on_failure(now, HOLDER);
    }
    for number in 0..2 * MAX_FAILING_SOURCES as u64 {
        guesses.on_failure(now, stranger(number));
    }
    assert_eq!(guesses.failures(now, HOLDER), 5, "GU-4");
    assert_eq!(guesses.check(std::iter::empty()), Ok(()), "GU-4");
}

#[test]
fn password_success_clears_the_failures_and_costs_nothing() {
    let mut bench = Bench::default();
    for number in 0..5 * GUESS_BURST {
        // A crowd with the right password is not slowed down.
        let connection = bench.guess(stranger(number.into()));
        assert!(bench.guesses(connection), "{number}");
        bench.handle(Event::Authenticated { connection });
    }
    let connection = bench.guess(HOLDER);
    bench.handle(Event::Closed { connection });
    bench.pass(FIRST_DELAY);
    let connection = bench.guess(HOLDER);
    bench.handle(Event::Authenticated { connection });
    let again = bench.guess(HOLDER);
    assert!(bench.guesses(again));
}

#[test]
fn source_of_an_address_is_one_machine() {
    let of = |text: &str| Source::from(text.parse::<IpAddr>().unwrap());
    assert_eq!(of("10.1.1.1"), of("::ffff:10.1.1.1"));
    assert_ne!(of("10.1.1.1"), of("10.1.1.2"));
    assert_eq!(of("2001:db8::1"), of("2001:db8::2:3"));
    assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
    assert_eq!(of("2001:db8::1").to_string(), "2001:db8::/64");
}

#[test]
fn unknown_source_at_a_port_full_of_trusted_ones_keeps_the_bound() {
    let mut bench = Bench::default();
    let trusted: Vec<Source> = (0..2).map(stranger).collect();
    for source in &trusted {
        let connection = bench.arrive_headed(*source);
        bench.handle(Event::Authenticated { connection });
    }
    for source in trusted.iter().cycle().take(2 * MAX_CONNECTIONS_PER_SOURCE) {
        bench.arrive(*source);
    }
    assert_eq!(bench.admission.connections.len(), MAX_CONNECTIONS);
    for number in 10..500 {
        bench.arrive(stranger(number));
        assert_eq!(bench.admission.connections.len(), MAX_CONNECTIONS, "AD-1");
    }
    let kept = bench.admission.connections.values().filter(|one| trusted.contains(&one.source)).count();
    assert_eq!(kept, RESERVED_CONNECTIONS, "AD-4");
}

#[test]
fn source_that_authenticated_long_ago_is_a_stranger_again() {
    let mut bench = Bench::default();
    let connection = bench.arrive_headed(HOLDER);
    bench.handle(Event::Authenticated { connection });
    bench.now = bench.now + TRUST_DURATION;
    bench.arrive(HOLDER);
    assert!(!bench.admission.is_trusted(HOLDER), "no tick has come in between");
}

#[test]
fn admission_random_events_break_nothing() {
    for seed in 0..40 {
        let mut random = Random::new(seed);
        let mut bench = Bench::default();
        let sources = random.within(1..400);
        // A port fills up if connections come faster than they time out.
        let pause = if seed % 2 == 0 { 20_000 } else { 2_000 };
        for number in 0..seed % 20 {
            let connection = bench.arrive_headed(stranger(number));
            bench.handle(Event::Authenticated { connection });
        }
        for _ in 0..1500 {
            bench.now = bench.now + Duration::from_micros(random.below(pause));
            let connection = ConnectionId(bench.numbers.saturating_sub(random.below(300)));
            match random.below(12) {
                0..5 => {
                    let source =
                        if random.below(10) == 0 { Source::Unix } else { stranger(random.below(sources)) };
                    bench.arrive(source);
                }
                5..8 => drop(bench.handle(Event::HeaderComplete { connection })),
                8..10 => drop(bench.handle(Event::GuessWanted { connection })),
                10 => drop(bench.handle(Event::Authenticated { connection })),
                _ => drop(bench.handle(Event::Closed { connection })),
            }
            let has_wake = bench.admission.asked.is_some() || bench.admission.connections.is_empty();
            assert!(has_wake, "seed {seed}: one waits for ever");
        }
        let waiting = bench.pass(CONNECTION_TIMEOUT);
        assert!(bench.admission.connections.is_empty(), "AD-1: seed {seed}: {waiting:?}");
    }
}
