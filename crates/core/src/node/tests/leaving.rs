//! A node that wants to go.

use super::*;

const LEAVING: Effect = Effect::ToHead(NodeToHead::Leaving);

fn leave() -> Event {
    Event::Leave { within: Duration::from_secs(5) }
}

#[test]
fn the_head_is_asked_first() {
    let mut bench = Bench::ready(1);
    bench.place(7, A, one());
    assert_eq!(bench.handle(leave()), [LEAVING], "NL-1");
    assert_eq!(bench.pass(Duration::from_secs(4)), [], "what runs goes on");
    bench.end(7);
    bench.detached(1, 7);
    bench.handle(Event::FromHead(HeadToNode::Bye));
    assert_eq!(bench.node.phase, Phase::Closing);
}

#[test]
fn it_does_not_wait_for_ever() {
    let mut bench = Bench::ready(1);
    bench.place(7, A, one());
    bench.handle(leave());
    bench.pass(Duration::from_secs(5));
    assert_eq!(bench.node.phase, Phase::Closing, "NL-1");
}

#[test]
fn without_a_head_it_goes_at_once() {
    let mut bench = Bench::ready(1);
    bench.handle(Event::HeadDown);
    bench.handle(leave());
    assert_eq!(bench.node.phase, Phase::Closing, "NL-1");
}

#[test]
fn a_head_that_comes_back_is_asked_again() {
    let mut bench = Bench::ready(1);
    bench.handle(leave());
    bench.handle(Event::HeadDown);
    assert_eq!(bench.handle(Event::HeadUp).last(), Some(&LEAVING));
}

#[test]
fn head_met_on_the_way_out_grants_nothing_there() {
    let mut bench = Bench::ready(1);
    bench.place(7, A, one());
    bench.handle(Event::HeadDown);
    bench.handle(leave());
    assert_eq!(bench.node.phase, Phase::Closing);
    assert_eq!(bench.handle(Event::HeadUp).last(), Some(&LEAVING), "NL-2");
}

#[test]
fn a_slot_that_is_for_one_lease_ends_with_it() {
    let mut bench = Bench::ready(1);
    let place = HeadToNode::Place {
        lease: LeaseId(1),
        client: A,
        shape: one(),
        holder: A,
        secret: SECRET,
        devices: Devices::default(),
        once: true,
        exclusive: None,
    };
    bench.handle(Event::FromHead(place));
    bench.end(1);
    let effects = bench.detached(1, 1);
    let goes = Effect::ToSlot { slot: SlotId(1), message: NodeToSlot::Exit, connection: None };
    assert!(effects.contains(&goes), "{effects:?}");
}
