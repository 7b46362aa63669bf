//! Work of the head's.

use super::*;
use std::time::Duration;

const WITHIN: Duration = Duration::from_secs(60);

impl Bench {
    fn run(&mut self, lease: u128) -> Vec<Effect> {
        self.handle(Event::FromHead(HeadToNode::Run {
            lease: LeaseId(lease),
            holder: A,
            shape: one(),
            devices: Devices::default(),
            name: "train".into(),
            start: b"start".to_vec(),
            within: WITHIN,
        }))
    }
}

fn becomes(slot: u64) -> Effect {
    to_slot(slot, NodeToSlot::Become { start: b"start".to_vec(), variables: Vec::new() })
}

fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

fn left(code: i32) -> Death {
    Death { cause: DeathCause::Exit(code), out_of_memory: OutOfMemory::No, running: None, finished: Seq(0) }
}

#[test]
fn a_slot_becomes_it_and_its_end_is_told() {
    let mut bench = Bench::ready(1);
    assert_eq!(bench.run(7)[..3], [bind(1, A, one()), becomes(1), placed(7, 1)]);
    assert_eq!(bench.run(7), [placed(7, 1)], "ND-4: it begins once");
    let printed = bench.handle(Event::Output { slot: SlotId(1), stream: Stream::Out, text: b"hi".to_vec() });
    let own = Effect::Printed { name: "train".into(), stream: Stream::Out, text: b"hi".to_vec() };
    assert_eq!(printed, [own]);
    assert_eq!(bench.connect(3, 7), [Effect::Refuse { connection: 3 }]);
    let effects = bench.handle(Event::Exited { slot: SlotId(1), death: left(3) });
    assert_eq!(effects, [ended(7, Some(left(3))), forget(1), fork(2)], "its place is fit: {effects:?}");
}

#[test]
fn it_is_asked_to_end_and_then_killed() {
    let mut bench = Bench::ready(1);
    bench.run(7);
    assert_eq!(bench.end(7), [Effect::Terminate { slot: SlotId(1) }], "WK-3");
    assert_eq!(bench.pass(seconds(4)), []);
    assert!(bench.pass(seconds(2)).contains(&kill(1)), "WK-3");
    assert!(bench.exited(1).contains(&ended(7, None)));
}

#[test]
fn without_the_head_it_ends_in_time() {
    let mut bench = Bench::ready(1);
    bench.run(7);
    bench.pass(seconds(10));
    bench.handle(Event::HeadDown);
    assert!(!bench.pass_alone(seconds(57), false).contains(&kill(1)));
    assert!(bench.pass_alone(seconds(4), false).contains(&kill(1)), "WK-1");
}

#[test]
fn a_node_that_stood_still_gets_no_more_time() {
    let mut bench = Bench::ready(2);
    bench.run(7);
    bench.pass(seconds(10));
    // Nothing wakes it for long.
    bench.now = bench.now + seconds(61);
    let effects = bench.handle(Event::Tick);
    assert!(effects.contains(&kill(1)), "WK-1: {effects:?}");
    // What the head had sent before is in the socket, and is of a time that is over.
    let effects = bench.run(8);
    assert!(!effects.contains(&becomes(2)) && !effects.contains(&placed(8, 2)), "WK-2: {effects:?}");
}
