//! Programs beside the clients' own.

use super::*;

const P: ProgramId = ProgramId(5);
const Q: ProgramId = ProgramId(6);

fn shape(program: ProgramId) -> Shape {
    Shape { program, ..one() }
}

fn fork_of(slot: u64, program: ProgramId) -> Effect {
    Effect::Fork { slot: SlotId(slot), program }
}

fn starts(program: ProgramId) -> Effect {
    Effect::StartProgram { program, start: start() }
}

fn start() -> Start {
    Start { command: vec!["/bin/shapes".into()], variables: vec![] }
}

fn why() -> StartError {
    StartError::Ended { cause: DeathCause::Exit(2), words: "usage".into() }
}

fn failed(program: ProgramId, why: StartError) -> Effect {
    Effect::ToHead(NodeToHead::ProgramFailed { program, why })
}

impl Bench {
    fn place_of(&mut self, lease: u128, program: ProgramId) -> Vec<Effect> {
        self.handle(Event::FromHead(HeadToNode::Program { program, start: start() }));
        self.place(lease, A, shape(program))
    }

    /// Two CPUs, and a program whose slot 3 has lease 7.
    fn with_program() -> Bench {
        let mut bench = Bench::ready(2);
        bench.place_of(7, P);
        bench.handle(Event::ProgramUp(P));
        bench.slot_ready(3);
        bench
    }
}

#[test]
fn a_program_is_started_when_a_lease_needs_it_and_no_sooner() {
    let mut bench = Bench::ready(3);
    assert_eq!(bench.handle(Event::FromHead(HeadToNode::Program { program: P, start: start() })), []);
    assert_eq!(bench.place_of(7, P), [starts(P)]);
    assert_eq!(bench.place_of(8, P), [], "once");
    assert_eq!(bench.place(9, A, one()), [bind(1, A, one()), placed(9, 1)], "others do not wait for it");
    assert_eq!(
        bench.handle(Event::ProgramUp(P)),
        [fork_of(4, P), bind(4, A, one()), placed(7, 4), fork_of(5, P), bind(5, A, one()), placed(8, 5)]
    );
    assert_eq!(bench.place(10, A, shape(Q)), [ended(10, None)], "nobody has said how that is started");
}

#[test]
fn a_slot_serves_its_own_program_only() {
    let mut bench = Bench::with_program();
    bench.end(7);
    bench.detached(3, 7);
    assert_eq!(bench.place(8, A, one()), [bind(1, A, one()), placed(8, 1)], "ND-7");
    assert_eq!(bench.place_of(9, P), [placed(9, 3)], "it was warm");
}

#[test]
fn a_program_that_cannot_start_is_told_at_once() {
    let mut bench = Bench::ready(2);
    bench.place_of(7, P);
    bench.place_of(8, P);
    let effects = bench.handle(Event::ProgramDown(P, why()));
    assert_eq!(effects, [failed(P, why()), ended(7, None), ended(8, None)], "PR-3");
    assert_eq!(bench.handle(Event::ProgramDown(P, why())), [], "ND-4");
    assert_eq!(bench.place_of(9, P), [starts(P)], "who asks again has it tried again");
}

#[test]
fn a_program_that_says_nothing_is_given_up() {
    let mut bench = Bench::ready(2);
    bench.place_of(7, P);
    assert_eq!(bench.pass(millis(9_999)), []);
    let silent = StartError::Silent { after: Duration::from_secs(10), words: String::new() };
    let over = [failed(P, silent), ended(7, None), Effect::EndProgram { program: P }];
    assert_eq!(bench.pass(millis(1)), over, "PR-1");
    assert_eq!(bench.handle(Event::ProgramUp(P)), [], "too late");
}

#[test]
fn only_its_own_slots_end_with_a_zygote() {
    let mut bench = Bench::with_program();
    bench.place(8, A, one());
    assert_eq!(bench.handle(Event::ProgramDown(P, why())), [kill(3)], "ND-7");
    assert_eq!(bench.exited(3), [ended(7, Some(died(None))), forget(3)]);
    assert_eq!(bench.place_of(9, P), [starts(P)]);
    let effects = bench.handle(Event::ProgramUp(P));
    assert_eq!(effects, [fork_of(4, P), bind(4, A, one()), placed(9, 4)], "it is replaced");
    let mut bench = Bench::with_program();
    let effects = bench.handle(Event::ZygoteDied);
    assert_eq!(effects, [kill(1), kill(2), Effect::StartZygote], "ND-7");
}

#[test]
fn slots_that_die_before_they_have_done_anything_are_the_programs_fault() {
    let mut bench = Bench::with_program();
    let idle = || Death { finished: Seq(0), ..died(None) };
    for (slot, lease) in [(3, 7), (4, 8)] {
        let effects = bench.handle(Event::Exited { slot: SlotId(slot), death: idle() });
        assert_eq!(effects[..2], [ended(lease, Some(idle())), forget(slot)]);
        bench.place_of(lease + 1, P);
    }
    let effects = bench.handle(Event::Exited { slot: SlotId(5), death: idle() });
    let why = StartError::SlotsDie { cause: DeathCause::Signal(9), words: String::new() };
    assert_eq!(effects, [ended(9, Some(idle())), forget(5), failed(P, why)], "PR-2");
    bench.place_of(10, P);
    let death = died(Some(Seq(4)));
    for slot in 6..12 {
        let effects = bench.handle(Event::Exited { slot: SlotId(slot), death: death.clone() });
        assert_eq!(effects.len(), 2, "the death of a call is the call's: {effects:?}");
        bench.place_of(u128::from(slot) + 10, P);
    }
}

#[test]
fn a_program_without_use_ends_after_a_while() {
    let mut bench = Bench::with_program();
    bench.end(7);
    bench.detached(3, 7);
    assert_eq!(bench.pass(Duration::from_secs(10)), [exit(3)]);
    bench.exited(3);
    assert_eq!(bench.pass(millis(59_999)), []);
    assert_eq!(bench.pass(millis(1)), [Effect::EndProgram { program: P }]);
    assert_eq!(bench.place_of(8, P), [starts(P)]);
}
