//! Zygotes that stand still.

use super::*;
use crate::node::zygotes::ZYGOTE_STOPPED_LIMIT;

const KILL: Effect = Effect::KillZygote { program: ProgramId::OWN };

fn look(bench: &mut Bench, stopped: bool) -> Vec<Effect> {
    bench.handle(Event::ZygotesStopped(if stopped { vec![ProgramId::OWN] } else { Vec::new() }))
}

#[test]
fn zygote_that_stands_still_for_too_long_is_killed_once() {
    let mut bench = Bench::ready(2);
    bench.place(7, A, one());
    assert!(bench.node.needs_zygotes());
    assert_eq!(look(&mut bench, true), []);
    bench.pass(ZYGOTE_STOPPED_LIMIT - millis(1));
    assert_eq!(look(&mut bench, true), []);
    bench.pass(millis(1));
    assert_eq!(look(&mut bench, true), [KILL], "ZS-1");
    assert_eq!(look(&mut bench, true), [], "once");
    let effects = bench.handle(Event::ZygoteDied);
    assert!(effects.contains(&kill(1)), "ND-8");
}

#[test]
fn zygote_that_goes_on_has_all_the_time_when_it_is_stopped_again() {
    let mut bench = Bench::ready(1);
    bench.place(7, A, one());
    for _ in 0..3 {
        assert_eq!(look(&mut bench, true), []);
        bench.pass(ZYGOTE_STOPPED_LIMIT - millis(1));
        assert_eq!(look(&mut bench, false), []);
        bench.pass(millis(1));
    }
}

#[test]
fn zygote_that_nobody_needs_may_stand_still() {
    let mut bench = Bench::ready(1);
    assert!(!bench.node.needs_zygotes());
    assert_eq!(look(&mut bench, true), []);
    bench.pass(ZYGOTE_STOPPED_LIMIT * 2);
    bench.place(7, A, one());
    assert_eq!(look(&mut bench, true), [], "it counts from now on");
    bench.pass(ZYGOTE_STOPPED_LIMIT);
    assert_eq!(look(&mut bench, true), [KILL]);
}

#[test]
fn time_that_the_node_itself_stood_still_does_not_count_against_a_zygote() {
    let mut bench = Bench::ready(1);
    bench.place(7, A, one());
    assert_eq!(look(&mut bench, true), []);
    bench.now = bench.now + Duration::from_secs(60);
    assert_eq!(bench.handle(Event::Tick), [beat(bench.now)]);
    assert_eq!(look(&mut bench, true), [], "AL-1");
    bench.pass(ZYGOTE_STOPPED_LIMIT);
    assert_eq!(look(&mut bench, true), [KILL]);
}
