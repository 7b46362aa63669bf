//! Other clients that call what lives in a slot.

use super::*;

const HOST: u128 = 1;
const GUEST: u128 = 2;

fn admit(bench: &mut Bench, guest: u128, again: bool) -> Vec<Effect> {
    let (lease, host) = (LeaseId(guest), LeaseId(HOST));
    bench.handle(Event::FromHead(HeadToNode::Admit { lease, host, secret: SECRET, again }))
}

fn ended(lease: u128, death: Option<Death>) -> Effect {
    Effect::ToHead(NodeToHead::Ended { lease: LeaseId(lease), death })
}

fn to_slot(message: NodeToSlot, connection: Option<u64>) -> Effect {
    Effect::ToSlot { slot: SlotId(1), message, connection }
}

fn end(bench: &mut Bench, lease: u128) -> Vec<Effect> {
    bench.handle(Event::FromHead(HeadToNode::End { lease: LeaseId(lease) }))
}

fn hosting() -> Bench {
    let mut bench = Bench::ready(1);
    bench.place(HOST, A, Shape::cpus(1));
    bench
}

#[test]
fn a_guest_is_handed_to_the_slot_with_its_number() {
    let mut bench = hosting();
    let (lease, slot) = (LeaseId(GUEST), SlotId(1));
    let placed = Effect::ToHead(NodeToHead::Placed { lease, slot });
    assert_eq!(admit(&mut bench, GUEST, false), std::slice::from_ref(&placed));
    assert_eq!(admit(&mut bench, GUEST, true), [placed], "ND-4");
    let opened = bench.handle(Event::Connection { connection: 7, lease, way: Way::Tls });
    let guest = NodeToSlot::Guest { lease, number: 1, secret: Some(SECRET) };
    assert_eq!(opened, [to_slot(guest, Some(7))]);
    admit(&mut bench, 3, false);
    let opened = bench.handle(Event::Connection { connection: 8, lease: LeaseId(3), way: Way::Unix });
    let guest = NodeToSlot::Guest { lease: LeaseId(3), number: 2, secret: None };
    assert_eq!(opened, [to_slot(guest, Some(8))], "GU-1");
}

#[test]
fn nobody_is_a_guest_of_what_is_not_there() {
    let mut bench = Bench::ready(1);
    assert_eq!(admit(&mut bench, GUEST, false), [ended(GUEST, None)]);
    bench.place(HOST, A, Shape::cpus(1));
    assert_eq!(admit(&mut bench, GUEST, true), [ended(GUEST, None)], "it never was one here");
}

#[test]
fn the_end_of_a_guest_leaves_the_slot_alone() {
    let mut bench = hosting();
    admit(&mut bench, GUEST, false);
    assert_eq!(end(&mut bench, GUEST), [to_slot(NodeToSlot::Detach { lease: LeaseId(GUEST) }, None)], "GU-3");
    assert_eq!(end(&mut bench, GUEST), [ended(GUEST, None)]);
}

#[test]
fn a_slot_with_guests_ends_with_its_lease_and_they_hear_what_ran() {
    let mut bench = hosting();
    admit(&mut bench, GUEST, false);
    admit(&mut bench, 3, false);
    assert_eq!(end(&mut bench, HOST)[0], to_slot(NodeToSlot::Exit, None), "GU-2");
    let calls = vec![GuestCalls { lease: LeaseId(GUEST), running: Some(Seq(4)), finished: Seq(3) }];
    bench.handle(Event::GuestCalls { slot: SlotId(1), calls });
    let out = bench.exited(1);
    let first = Death { running: Some(Seq(4)), finished: Seq(3), ..died(None) };
    let second = Death { running: None, finished: Seq(0), ..died(None) };
    assert_eq!(out[..3], [ended(GUEST, Some(first)), ended(3, Some(second)), ended(HOST, None)], "GU-2");
}

#[test]
fn how_guests_ended_is_said_until_it_is_heard() {
    let mut bench = hosting();
    admit(&mut bench, GUEST, false);
    bench.handle(Event::HeadDown);
    bench.exited(1);
    let said = |out: &[Effect]| {
        let of = |effect: &&Effect| {
            matches!(effect, Effect::ToHead(NodeToHead::Ended { lease: LeaseId(GUEST), .. }))
        };
        out.iter().filter(of).count()
    };
    assert_eq!(said(&bench.handle(Event::HeadUp)), 1, "ND-3");
    bench.handle(Event::FromHead(HeadToNode::Heard { lease: LeaseId(GUEST) }));
    bench.handle(Event::HeadDown);
    assert_eq!(said(&bench.handle(Event::HeadUp)), 0);
}

#[test]
fn a_guest_has_not_run_what_an_earlier_one_of_its_number_ran() {
    let mut bench = hosting();
    admit(&mut bench, GUEST, false);
    end(&mut bench, GUEST);
    admit(&mut bench, 3, false);
    // The slot was dead by then: nobody has given the place on the page to the other one.
    let calls = vec![GuestCalls { lease: LeaseId(GUEST), running: Some(Seq(4)), finished: Seq(3) }];
    bench.handle(Event::GuestCalls { slot: SlotId(1), calls });
    let out = bench.exited(1);
    let nothing = Death { running: None, finished: Seq(0), ..died(None) };
    assert_eq!(out[0], ended(3, Some(nothing)), "GU-4");
}
