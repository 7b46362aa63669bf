//! Work of the head's.

use super::*;
use paceline_proto::ExclusiveId;
use std::time::Duration;

impl Bench {
    fn run(&mut self, lease: u128) -> Vec<Effect> {
        self.handle(Event::FromHead(HeadToNode::Run {
            lease: LeaseId(lease),
            holder: A,
            shape: one(),
            devices: Devices::default(),
            name: "train".into(),
            start: b"start".to_vec(),
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

impl Bench {
    /// A lease of something that must exist once.
    fn place_once(&mut self, lease: u128) -> Vec<Effect> {
        self.handle(Event::FromHead(HeadToNode::Place {
            lease: LeaseId(lease),
            client: A,
            shape: one(),
            holder: A,
            secret: SECRET,
            devices: Devices::default(),
            once: true,
            exclusive: Some(ExclusiveId(5)),
        }))
    }
}

#[test]
fn actor_of_a_node_that_stood_still_gets_no_more_time() {
    let mut bench = Bench::ready(2);
    bench.place_once(7);
    bench.place(8, A, one());
    bench.pass(seconds(10));
    // Nothing wakes it for long.
    bench.now = bench.now + seconds(61);
    let effects = bench.handle(Event::Tick);
    assert!(effects.contains(&kill(1)), "EX-1: {effects:?}");
    assert!(!effects.contains(&kill(2)), "what may exist twice goes on: {effects:?}");
    assert_eq!(bench.place_once(9), [ended(9, None)], "EX-2");
}

#[test]
fn lease_that_waited_for_a_slot_for_too_long_is_refused() {
    for work in [false, true] {
        let mut bench = Bench::new(1, 0);
        bench.handle(Event::HeadUp);
        let _ = if work { bench.run(7) } else { bench.place_once(7) };
        // Nothing wakes it for long, and its link outlives that: the head stood still, too.
        bench.now = bench.now + seconds(61);
        let effects = bench.handle(Event::FromHead(HeadToNode::Heartbeat { beat: bench.now.0 }));
        assert!(effects.contains(&ended(7, None)), "EX-2: {effects:?}");
    }
}

#[test]
fn actor_of_an_earlier_head_ends_in_time_unless_its_holder_has_named_it() {
    for named in [false, true] {
        let mut bench = Bench::ready(2);
        bench.place_once(7);
        bench.place(8, A, one());
        bench.pass(seconds(10));
        bench.handle(Event::HeadDown);
        bench.pass_alone(seconds(20), false);
        bench.handle_only(Event::HeadUp);
        bench.welcome(2);
        if named {
            bench.handle(Event::FromHead(HeadToNode::HolderConfirmed { lease: LeaseId(7) }));
        }
        assert!(!bench.pass(seconds(37)).contains(&kill(1)));
        let effects = bench.pass(seconds(4));
        assert_eq!(effects.contains(&kill(1)), !named, "EX-4: {effects:?}");
        assert!(!bench.pass(seconds(100)).contains(&kill(2)), "what may exist twice goes on");
        assert_eq!(bench.kill_at[&SlotId(1)] > bench.now, named, "EX-3");
    }
}

#[test]
fn actor_without_a_head_ends_in_time() {
    let mut bench = Bench::ready(1);
    bench.place_once(7);
    bench.pass(seconds(10));
    bench.handle(Event::HeadDown);
    assert!(!bench.pass_alone(seconds(57), false).contains(&kill(1)));
    assert!(bench.pass_alone(seconds(4), false).contains(&kill(1)), "EX-1");
}

#[test]
fn zygote_knows_when_an_actor_has_to_have_ended() {
    let mut bench = Bench::ready(1);
    assert!(bench.kill_at.is_empty());
    bench.place_once(7);
    let first = bench.kill_at[&SlotId(1)];
    assert_eq!(first, bench.now + seconds(60), "EX-3");
    bench.pass(seconds(10));
    assert!(bench.kill_at[&SlotId(1)] > first + seconds(6), "EX-3: the head has answered meanwhile");
    let goes = Effect::ToSlot { slot: SlotId(1), message: NodeToSlot::Exit, connection: None };
    assert_eq!(bench.end(7)[0], goes, "its end is told when its process is gone");
    assert!(bench.exited(1).contains(&ended(7, None)));
}

#[test]
fn node_with_a_head_of_its_own_ends_nothing() {
    let mut config = Config::new(NodeId(1), Incarnation(1), Resources::cpus(1));
    config.has_own_head = true;
    let mut bench = Bench::new(1, 0);
    bench.node = Node::new(config);
    bench.handle(Event::HeadUp);
    bench.handle(Event::ZygoteUp);
    bench.slot_ready(1);
    bench.place_once(7);
    assert!(bench.kill_at.is_empty(), "a machine that is suspended suspends both");
    bench.now = bench.now + seconds(3600);
    assert!(!bench.handle(Event::Tick).contains(&kill(1)));
}

#[test]
fn end_of_work_is_told_until_it_was_heard() {
    let mut bench = Bench::ready(1);
    let holder = ClientId(1 << 63 | 7);
    bench.handle(Event::FromHead(HeadToNode::Run {
        lease: LeaseId(7),
        holder,
        shape: one(),
        devices: Devices::default(),
        name: "train".into(),
        start: b"start".to_vec(),
    }));
    bench.pass(seconds(10));
    bench.handle(Event::HeadDown);
    assert!(bench.pass_alone(seconds(70), false).contains(&kill(1)), "WK-1");
    bench.exited(1);
    let lost = Some(Death::of_lost_node());
    for _ in 0..2 {
        let effects = bench.handle(Event::HeadUp);
        assert!(effects.contains(&ended(7, lost.clone())), "DT-7: whichever head comes: {effects:?}");
        bench.handle(Event::HeadDown);
    }
}
