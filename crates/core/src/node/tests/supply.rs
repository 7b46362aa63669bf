//! Slots are there before they are asked for.

use super::*;

#[test]
fn every_cpu_has_its_slot_at_once_and_spares_come_later() {
    let mut bench = Bench::new(2, 1);
    assert_eq!(bench.handle(Event::HeadUp)[1..], [Effect::StartZygote]);
    assert_eq!(bench.handle(Event::ZygoteUp), [fork(1), fork(2)]);
    bench.forked(1);
    bench.forked(2);
    assert_eq!(bench.pass(millis(100)), [], "PL-2: they are still starting");
    bench.slot_ready(1);
    bench.slot_ready(2);
    assert_eq!(bench.pass(millis(29)), []);
    assert_eq!(bench.pass(millis(1)), [fork(3)], "PL-2");
}

#[test]
fn a_lease_that_comes_first_gets_a_slot_that_is_still_starting() {
    let mut bench = Bench::new(2, 1);
    bench.handle(Event::HeadUp);
    assert_eq!(bench.place(7, A, one()), [], "there is nothing to fork from");
    let effects = bench.handle(Event::ZygoteUp);
    assert_eq!(effects, [fork(1), bind(1, A, one()), placed(7, 1), fork(2)]);
    assert_eq!(bench.connect(50, 7), [attach(1, 7, 50)], "it waits in the slot's own socket");
    assert_eq!(bench.connect(51, 8), [Effect::Refuse { connection: 51 }]);
}

#[test]
fn a_ready_slot_is_better_than_a_starting_one_and_a_warm_one_better_still() {
    let mut bench = Bench::new(3, 0);
    bench.handle(Event::HeadUp);
    bench.handle(Event::ZygoteUp);
    bench.slot_ready(2);
    bench.slot_ready(3);
    assert_eq!(bench.place(7, A, one()), [bind(2, A, one()), placed(7, 2)]);
    bench.end(7);
    assert_eq!(bench.detached(2, 7), [ended(7, None)]);
    assert_eq!(bench.place(8, B, one()), [bind(3, B, one()), placed(8, 3)], "ND-2");
    assert_eq!(bench.place(9, A, one()), [placed(9, 2)], "bound already");
}

#[test]
fn a_dead_slot_is_replaced_at_once_and_its_call_is_charged() {
    let mut bench = Bench::ready(2);
    bench.place(7, A, one());
    let death = died(Some(Seq(4)));
    let effects = bench.handle(Event::Exited { slot: SlotId(1), death: death.clone() });
    assert_eq!(effects, [ended(7, Some(death)), forget(1), fork(3)]);
    assert_eq!(bench.exited(2), [forget(2), fork(4)], "a generic one is nobody's loss");
}

#[test]
fn a_place_whose_slots_die_young_backs_off() {
    let mut bench = Bench::ready(1);
    assert_eq!(bench.exited(1), [forget(1), fork(2)]);
    assert_eq!(bench.exited(2), [forget(2), fork(3)]);
    assert_eq!(bench.exited(3), [forget(3)], "PL-1");
    assert_eq!(bench.place(7, A, one()), [], "waits like everything else");
    assert_eq!(bench.node.status().backing_off, [(0, 3)]);
    assert_eq!(bench.pass(millis(249)), []);
    assert_eq!(bench.pass(millis(1)), [fork(4), bind(4, A, one()), placed(7, 4)]);
    assert_eq!(bench.exited(4), [ended(7, Some(died(None))), forget(4)]);
    assert_eq!(bench.pass(millis(499)), []);
    assert_eq!(bench.pass(millis(1)), [fork(5)]);
    bench.slot_ready(5);
    bench.pass(Duration::from_secs(10));
    assert_eq!(bench.exited(5), [forget(5), fork(6)], "it had lived long enough");
    assert_eq!(bench.node.status().backing_off, []);
}

#[test]
fn deaths_of_calls_are_not_the_places_fault() {
    let mut bench = Bench::ready(1);
    for slot in 1..10 {
        bench.place(slot.into(), A, one());
        let effects = bench.handle(Event::Exited { slot: SlotId(slot), death: died(Some(Seq(1))) });
        assert_eq!(effects[2..], [fork(slot + 1)]);
    }
}

#[test]
fn a_slot_that_has_run_a_call_is_replaced_at_once_however_young_it_dies() {
    let mut bench = Bench::ready(1);
    for slot in 1..10 {
        bench.place(slot.into(), A, one());
        // Between two calls: nothing runs, and something did.
        let death = Death { finished: Seq(1), ..died(None) };
        let effects = bench.handle(Event::Exited { slot: SlotId(slot), death });
        assert_eq!(effects[2..], [fork(slot + 1)], "PL-1");
    }
}

#[test]
fn a_slot_that_has_been_through_a_lease_is_no_failure_of_its_place() {
    let mut bench = Bench::ready(1);
    for slot in 1..10 {
        bench.place(slot.into(), A, one());
        bench.end(slot.into());
        bench.detached(slot, slot.into());
        assert_eq!(bench.exited(slot), [forget(slot), fork(slot + 1)], "PL-1");
    }
}

#[test]
fn a_call_that_was_run_clears_what_went_before() {
    let mut bench = Bench::ready(1);
    bench.exited(1);
    bench.exited(2);
    bench.place(7, A, one());
    bench.handle(Event::Exited { slot: SlotId(3), death: died(Some(Seq(1))) });
    assert_eq!(bench.exited(4), [forget(4), fork(5)]);
    assert_eq!(bench.exited(5), [forget(5), fork(6)]);
    assert_eq!(bench.exited(6), [forget(6)], "PL-1: three in a row again");
}

#[test]
fn warm_slots_cool_and_make_place_for_fresh_ones() {
    let mut bench = Bench::ready(1);
    bench.place(7, A, one());
    bench.end(7);
    bench.detached(1, 7);
    assert_eq!(bench.pass(millis(9_999)), []);
    assert_eq!(bench.pass(millis(1)), [exit(1), fork(2)]);
    assert_eq!(bench.pass(millis(499)), []);
    assert_eq!(bench.pass(millis(1)), [kill(1)]);
    assert_eq!(bench.exited(1), [forget(1)]);
}

#[test]
fn what_is_warm_for_a_client_goes_when_that_says_goodbye() {
    let mut bench = Bench::ready(2);
    bench.place(7, A, one());
    bench.place(8, B, one());
    bench.end(7);
    bench.detached(1, 7);
    assert_eq!(bench.handle(Event::ClientLeft(B)), [], "what is leased is the head's to end");
    assert_eq!(bench.handle(Event::ClientLeft(A)), [exit(1), fork(3)]);
}

#[test]
fn warm_slots_give_way_to_leases_of_others() {
    let mut bench = Bench::ready(2);
    for lease in [7, 8] {
        bench.place(lease, A, one());
    }
    for (slot, lease) in [(1, 7), (2, 8)] {
        bench.end(lease);
        bench.detached(slot, lease);
        bench.now = bench.now + millis(1);
    }
    assert_eq!(bench.place(9, B, one()), [fork(3), bind(3, B, one()), placed(9, 3), exit(1)], "ND-6");
}

#[test]
fn a_lease_of_two_cpus_takes_two_places() {
    let mut bench = Bench::ready(2);
    let two = Shape::cpus(2);
    assert_eq!(bench.place(7, A, two), [bind(1, A, two), placed(7, 1)]);
    assert_eq!(bench.exited(2), [forget(2)], "no place is free for another");
    bench.end(7);
    bench.detached(1, 7);
    assert_eq!(bench.pass(Duration::from_secs(10)), [exit(1), fork(3), fork(4)]);
}

#[test]
fn more_leases_than_cpus_get_slots_of_their_own() {
    let mut bench = Bench::ready(1);
    let none = Shape::default();
    assert_eq!(bench.place(7, A, none), [bind(1, A, none), placed(7, 1), fork(2)]);
    assert_eq!(bench.place(8, A, none), [bind(2, A, none), placed(8, 2), fork(3)]);
}

#[test]
fn slots_end_with_their_zygote() {
    let mut bench = Bench::new(3, 0);
    bench.handle(Event::HeadUp);
    bench.handle(Event::ZygoteUp);
    bench.slot_ready(1);
    bench.slot_ready(2);
    bench.place(7, A, one());
    bench.place(8, B, one());
    bench.place(9, B, one());
    bench.end(8);
    bench.detached(2, 8);
    // Leased, warm, and leased but not yet forked.
    let effects = bench.handle(Event::ZygoteDied);
    assert_eq!(effects, [kill(1), kill(2), ended(9, Some(died(None))), forget(3), Effect::StartZygote]);
    assert_eq!(bench.handle(Event::ZygoteUp), [fork(4), fork(5)]);
    assert_eq!(bench.exited(1), [ended(7, Some(died(None))), forget(1), fork(6)]);
    assert_eq!(bench.exited(2), [forget(2)]);
}

#[test]
fn a_zygote_that_cannot_start_backs_off() {
    let mut bench = Bench::new(1, 0);
    bench.handle(Event::HeadUp);
    assert_eq!(bench.handle(Event::ZygoteDied), [Effect::StartZygote]);
    assert_eq!(bench.handle(Event::ZygoteDied), [Effect::StartZygote]);
    assert_eq!(bench.handle(Event::ZygoteDied), []);
    assert_eq!(bench.handle(Event::ZygoteDied), [], "ND-4");
    assert_eq!(bench.pass(millis(249)), []);
    assert_eq!(bench.pass(millis(1)), [Effect::StartZygote]);
}
