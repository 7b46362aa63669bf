//! Tasks that keep what the tasks they wait for need.

use super::*;

const GPU: fn() -> Shape = || Shape::of(Resources::cpus(1).and_gpus(1));
const TWO: fn() -> Shape = || Shape::of(Resources::cpus(1).and_gpus(2));

/// Two clients with a task each that has so many GPUs, all there are, and a slot each that is a client: C and D.
const D: ClientId = ClientId(4);

fn holding(shape: Shape, gpus: u64) -> Bench {
    let mut bench = Bench::new();
    let join = NodeToHead::Join {
        node: N1,
        incarnation: Incarnation(1),
        name: "large".into(),
        total: Resources::cpus(8).and_gpus(gpus),
        leases: Vec::new(),
        met: None,
        addresses: Vec::new(),
        facts: Facts::default(),
    };
    bench.node_says(N1, join);
    for (number, (client, slot)) in [(1, (A, C)), (2, (B, D))] {
        bench.hello(client, &[]);
        bench.want(client, shape, 1);
        bench.placed(N1, number);
        bench.hello(slot, &[]);
        bench.client_says(slot, ClientToHead::Under { lease: lease(number) });
    }
    bench
}

impl Bench {
    fn waits(&mut self, number: u64) -> Vec<Effect> {
        self.node_says(N1, NodeToHead::Blocked { lease: lease(number), blocked: true, full: false })
    }
}

fn too_deep(number: u64) -> Effect {
    Effect::ToNode(N1, HeadToNode::TooDeep { lease: lease(number) })
}

#[test]
fn those_that_wait_for_each_other_run_it_themselves() {
    let mut bench = holding(GPU(), 2);
    bench.waits(1);
    assert_eq!(bench.want(C, GPU(), 1), []);
    assert_eq!(bench.pass(Duration::from_millis(700)), [], "TA-1: the other one runs, and may end");
    bench.want(D, GPU(), 1);
    bench.waits(2);
    assert_eq!(bench.pass(Duration::from_millis(90)), [], "TA-4");
    assert_eq!(bench.pass(Duration::from_millis(70)), [too_deep(1), too_deep(2)], "TA-2");
    for number in [1, 2] {
        bench.node_says(N1, NodeToHead::Blocked { lease: lease(number), blocked: false, full: false });
    }
    assert_eq!(bench.pass(Duration::from_millis(700)), [], "said once if it is heeded");
}

#[test]
fn one_that_only_its_own_task_is_in_the_way_of_runs_there() {
    let mut bench = holding(GPU(), 2);
    bench.release(B, 2);
    bench.want(B, GPU(), 0);
    bench.ended(N1, 2, None);
    // Two GPUs: the child has the other one.
    bench.waits(1);
    let placed = bench.want(C, GPU(), 1);
    assert!(matches!(placed[..], [Effect::ToNode(N1, HeadToNode::Place { .. })]), "{placed:?}");
    bench.placed(N1, 3);
    // The child's child has none left.
    bench.hello(ClientId(5), &[]);
    bench.client_says(ClientId(5), ClientToHead::Under { lease: lease(3) });
    assert_eq!(bench.want(ClientId(5), GPU(), 1), [], "NV-3: not refused");
    bench.waits(3);
    let effects = bench.pass(Duration::from_millis(170));
    assert_eq!(effects, [too_deep(3)], "TA-2: the last of the chain, not the first");
}

#[test]
fn what_no_task_can_run_itself_is_refused_and_says_why() {
    let mut bench = holding(TWO(), 4);
    let large = Shape::of(Resources::cpus(2).and_gpus(2));
    bench.want(C, large, 1);
    bench.want(D, large, 1);
    bench.waits(1);
    bench.waits(2);
    assert_eq!(bench.pass(Duration::from_millis(950)), []);
    let effects = bench.pass(Duration::from_millis(200));
    let [Effect::ToClient(client, HeadToClient::Unplaceable { shape, why, .. })] = &effects[..] else {
        panic!("TA-3: one is refused, not {effects:?}")
    };
    assert!([C, D].contains(client) && *shape == large);
    assert!(why.contains("2 GPUs") && why.contains("wait for each other") && why.contains("test"), "{why}");
    assert_eq!(bench.pass(Duration::from_millis(700)), [], "then the other is looked at again");
}

#[test]
fn a_node_that_is_to_leave_does_not_wait_for_what_only_it_could_hold() {
    let mut bench = holding(Shape::cpus(1), 0);
    bench.join(N2, 1, &[]);
    bench.handle(Event::Drain(N1));
    bench.want(C, Shape::cpus(2), 1);
    bench.want(D, Shape::cpus(1), 1);
    bench.placed(N2, 3);
    bench.waits(1);
    assert_eq!(bench.pass(Duration::from_millis(950)), []);
    let effects = bench.pass(Duration::from_millis(200));
    let [Effect::ToClient(client, HeadToClient::Unplaceable { why, .. })] = &effects[..] else {
        panic!("{effects:?}")
    };
    assert_eq!(*client, C, "TA-3");
    assert!(why.contains("nodes that are to leave"), "{why}");
}
