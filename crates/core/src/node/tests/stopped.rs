//! Slots that stand still.

use super::*;

const STOP: i32 = 19;

fn stopped(slot: u64, ends_at: Option<Tick>) -> Event {
    Event::Stopped { slot: SlotId(slot), signal: STOP, ends_at }
}

fn end_stopped(slot: u64, timed_out: bool) -> Effect {
    Effect::EndStopped { slot: SlotId(slot), signal: STOP, timed_out }
}

/// What the client is told, and everything else.
fn told(effects: Vec<Effect>) -> (Vec<String>, Vec<Effect>) {
    let mut texts = Vec::new();
    let mut others = Vec::new();
    for effect in effects {
        match effect {
            Effect::ToHead(NodeToHead::Output { text, stream: Stream::Err, .. }) => {
                texts.push(String::from_utf8(text).unwrap());
            }
            other => others.push(other),
        }
    }
    (texts, others)
}

fn busy() -> Bench {
    let mut bench = Bench::ready(2);
    bench.place(7, A, one());
    bench
}

#[test]
fn its_client_is_told_and_then_it_is_ended() {
    let mut bench = busy();
    assert_eq!(bench.handle(stopped(1, None)), []);
    assert_eq!(bench.pass(millis(900)), [], "somebody has a quick look");
    let (texts, others) = told(bench.pass(millis(200)));
    assert_eq!(others, []);
    let said = "paceline: this process (1001) was stopped by SIGSTOP and stands still; in 29 s it is ended, unless \
                `kill -CONT 1001` lets it go on\n";
    assert_eq!(texts, [said], "SD-1");
    assert_eq!(bench.handle(stopped(1, None)), [], "said again, it is no news");
    assert_eq!(bench.pass(millis(28_000)), []);
    assert_eq!(bench.pass(millis(1_000)), [end_stopped(1, false)], "SD-2");
    assert_eq!(bench.pass(millis(60_000)), [], "once");
    let death = Death { cause: DeathCause::Stopped(STOP), ..died(Some(Seq(4))) };
    let effects = bench.handle(Event::Exited { slot: SlotId(1), death: death.clone() });
    assert_eq!(effects[..2], [ended(7, Some(death)), forget(1)], "and its call is charged");
}

#[test]
fn one_that_goes_on_is_forgotten() {
    let mut bench = busy();
    bench.handle(stopped(1, None));
    bench.pass(millis(20_000));
    assert_eq!(bench.handle(Event::Continued { slot: SlotId(1) }), []);
    assert_eq!(bench.pass(millis(60_000)), []);
    // Every time anew.
    bench.handle(stopped(1, None));
    assert_eq!(told(bench.pass(millis(29_000))).1, []);
    assert_eq!(bench.pass(millis(1_000)), [end_stopped(1, false)]);
}

#[test]
fn a_call_that_has_had_its_time_does_not_wait_for_that() {
    let mut bench = busy();
    bench.handle(stopped(1, Some(bench.now + millis(3_000))));
    assert_eq!(told(bench.pass(millis(4_900))).1, [], "it would have had two seconds to stop");
    assert_eq!(bench.pass(millis(200)), [end_stopped(1, true)], "SD-2");
}

#[test]
fn a_limit_is_for_those_who_want_one() {
    let mut bench = busy();
    bench.node.config.stopped_limit = None;
    bench.handle(stopped(1, None));
    let (texts, others) = told(bench.pass(millis(100_000)));
    assert_eq!(others, []);
    assert!(texts[0].ends_with("stands still until `kill -CONT 1001` lets it go on\n"), "{texts:?}");
}

#[test]
fn a_node_that_stood_still_itself_holds_it_against_nobody() {
    let mut bench = busy();
    bench.handle(stopped(1, None));
    bench.pass(millis(500));
    bench.now = bench.now + Duration::from_secs(3600);
    assert_eq!(told(bench.handle(Event::Tick)).0, Vec::<String>::new());
}
