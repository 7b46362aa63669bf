//! GPUs: who has them, and who had them last.

use super::*;
use paceline_proto::Part;

fn set(numbers: &[usize]) -> Devices {
    numbers.iter().copied().collect()
}

/// A CPU and so many GPUs, or so much of one.
fn with(gpus: f64) -> Shape {
    Shape::of(Resources::cpus(1).with(Part::Gpus(gpus)).unwrap())
}

/// A node with two CPUs and so many GPUs, whose slots 1 and 2 are ready.
fn with_gpus(count: u64) -> Bench {
    let mut bench = Bench::ready(2);
    bench.node.config.total = bench.node.config.total.and_gpus(count);
    bench
}

impl Bench {
    fn place_on(&mut self, lease: u128, client: ClientId, shape: Shape, numbers: &[usize]) -> Vec<Effect> {
        let (lease, devices) = (LeaseId(lease), set(numbers));
        let (holder, secret, once) = (client, SECRET, false);
        let place =
            HeadToNode::Place { lease, client, shape, holder, secret, devices, once, exclusive: None };
        self.handle(Event::FromHead(place))
    }
}

fn bind_to(slot: u64, client: ClientId, shape: Shape, numbers: &[usize]) -> Effect {
    let (needs, total, devices) = (shape.needs, Resources::default(), set(numbers));
    to_slot(slot, NodeToSlot::Bind { client, needs, total, own: true, devices, files: None })
}

#[test]
fn a_slot_hears_which_gpus_it_has() {
    let mut bench = with_gpus(2);
    bench.node.config.gpu_ids = vec![3, 5];
    let two = with(2.0);
    assert_eq!(bench.place_on(7, A, two, &[0, 1]), [bind_to(1, A, two, &[3, 5]), placed(7, 1)]);
    assert_eq!(
        bench.place(8, A, one()),
        [bind(2, A, one()), placed(8, 2)],
        "and one without any that it has none"
    );
}

#[test]
fn a_warm_slot_is_for_the_same_gpus_only() {
    let mut bench = with_gpus(2);
    let whole = with(1.0);
    bench.place_on(7, A, whole, &[0]);
    bench.end(7);
    bench.detached(1, 7);
    assert_eq!(bench.place_on(8, A, whole, &[1]), [bind_to(2, A, whole, &[1]), placed(8, 2)]);
    assert_eq!(bench.place_on(9, A, whole, &[0]), [placed(9, 1)], "it is warm for this one");
}

#[test]
fn whoever_had_a_gpu_is_gone_before_it_is_given_again() {
    let mut bench = with_gpus(1);
    let whole = with(1.0);
    bench.place_on(7, A, whole, &[0]);
    bench.end(7);
    bench.detached(1, 7);
    assert_eq!(
        bench.place_on(8, B, whole, &[0]),
        [exit(1), fork(3)],
        "ND-11: the warm one of another client goes first"
    );
    assert_eq!(
        bench.place(9, B, one()),
        [bind(2, B, one()), placed(9, 2)],
        "that is no reason for others to wait"
    );
    bench.slot_ready(3);
    assert_eq!(bench.exited(1), [forget(1), bind_to(3, B, whole, &[0]), placed(8, 3)]);
}

#[test]
fn parts_of_a_gpu_live_side_by_side_and_a_whole_one_waits_for_all_of_them() {
    let mut bench = with_gpus(1);
    let (half, whole) = (with(0.5), with(1.0));
    assert_eq!(bench.place_on(7, A, half, &[0]), [bind_to(1, A, half, &[0]), placed(7, 1)]);
    assert_eq!(bench.place_on(8, B, half, &[0]), [bind_to(2, B, half, &[0]), placed(8, 2)]);
    for (slot, lease) in [(1, 7), (2, 8)] {
        bench.end(lease);
        bench.detached(slot, lease);
    }
    let effects = bench.place_on(9, A, whole, &[0]);
    assert!(effects.contains(&exit(1)) && effects.contains(&exit(2)), "{effects:?}");
    let first = bench.exited(1);
    assert!(
        !first.iter().any(|effect| matches!(effect, Effect::ToHead(NodeToHead::Placed { .. }))),
        "ND-11: {first:?}"
    );
    let second = bench.exited(2);
    assert!(
        second.iter().any(|effect| matches!(effect, Effect::ToHead(NodeToHead::Placed { .. }))),
        "{second:?}"
    );
}

#[test]
fn no_more_warm_slots_go_than_must() {
    let mut bench = with_gpus(1);
    let (part, more) = (with(0.4), with(0.6));
    for (slot, lease, client) in [(1, 7, A), (2, 8, B)] {
        bench.place_on(lease, client, part, &[0]);
        bench.end(lease);
        bench.detached(slot, lease);
        bench.pass(millis(10));
    }
    let effects = bench.place_on(9, B, more, &[0]);
    assert!(effects.contains(&exit(1)) && !effects.contains(&exit(2)), "the colder one: {effects:?}");
}

#[test]
fn a_gpu_that_is_not_here_is_not_waited_for() {
    let mut bench = with_gpus(1);
    assert_eq!(bench.place_on(7, A, with(1.0), &[5]), [ended(7, None)]);
}

#[test]
fn the_head_hears_who_has_which() {
    let mut bench = with_gpus(2);
    bench.place_on(7, A, with(1.0), &[1]);
    bench.handle(Event::HeadDown);
    let effects = bench.handle(Event::HeadUp);
    let [Effect::ToHead(NodeToHead::Join { leases, .. })] = &effects[..] else { panic!("{effects:?}") };
    assert_eq!(leases[0].devices, set(&[1]));
}
