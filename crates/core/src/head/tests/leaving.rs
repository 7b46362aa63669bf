//! Nodes that are asked to go, and the end of the cluster.

use super::*;

fn bye(node: NodeId) -> Effect {
    Effect::ToNode(node, HeadToNode::Bye)
}

#[test]
fn a_node_that_leaves_finishes_what_it_runs() {
    let mut bench = Bench::holding(A, 2);
    bench.join(N2, 1, &[]);
    assert_eq!(bench.handle(Event::Drain(N1)), [recall(A, 1), recall(A, 2)], "LV-1");
    assert_eq!(bench.handle(Event::Drain(N1)), [], "said again");
    assert_eq!(bench.node_says(N1, NodeToHead::Leaving), [], "said by itself, too");
    let one = Shape::cpus(1);
    let effects = bench.release(A, 1);
    assert_eq!(effects, [end(N1, 1), place(N2, 3, A, one)], "LV-1: what comes next goes elsewhere");
    assert_eq!(bench.ended(N1, 1, None), [], "the other lease still runs");
    bench.want(A, one, 1);
    bench.release(A, 2);
    assert_eq!(bench.ended(N1, 2, None), [bye(N1)], "LV-2");
    assert_eq!(bench.handle(Event::NodeDown(N1)), []);
    assert!(!bench.head.nodes.contains_key(&N1), "LV-2: at once, not after three heartbeats");
    assert!(bench.head.departed.is_empty(), "it is not counted on");
}

#[test]
fn an_idle_node_goes_at_once() {
    let mut bench = Bench::new();
    bench.join(N1, 2, &[]);
    assert_eq!(bench.node_says(N1, NodeToHead::Leaving), [bye(N1)]);
    bench.hello(A, &[]);
    assert_eq!(bench.want(A, Shape::cpus(1), 1), [], "nothing more is placed there");
}

#[test]
fn a_lease_on_its_way_to_a_leaving_node_comes_back() {
    let mut bench = Bench::new();
    bench.hello(A, &[]);
    bench.join(N1, 1, &[]);
    let one = Shape::cpus(1);
    bench.want(A, one, 1);
    assert_eq!(bench.handle(Event::Drain(N1)), []);
    assert_eq!(bench.placed(N1, 1), [granted(A, 1, N1, one), recall(A, 1)], "LV-1");
}

#[test]
fn what_was_said_to_a_broken_link_is_said_again() {
    let mut bench = Bench::holding(A, 1);
    bench.handle(Event::Drain(N1));
    bench.handle(Event::NodeDown(N1));
    bench.want(A, Shape::cpus(1), 0);
    bench.release(A, 1);
    let effects = bench.join(N1, 1, &[(1, A)]);
    assert_eq!(effects, [welcome_node(N1), end(N1, 1)], "it has a lease");
    assert_eq!(bench.ended(N1, 1, None), [bye(N1)]);
}

#[test]
fn the_end_of_the_cluster() {
    let mut bench = Bench::holding(A, 1);
    bench.hello(B, &[]);
    let by = || String::from("its owner");
    let farewell = |client| Effect::ToClient(client, HeadToClient::Bye { by: by() });
    assert_eq!(bench.handle(Event::Close { by: by() }), [farewell(A), farewell(B), bye(N1)], "LV-3");
    assert_eq!(bench.handle(Event::Close { by: "somebody else".into() }), []);
    assert_eq!(bench.hello(C, &[]), [welcome(C), farewell(C)]);
    assert_eq!(bench.want(B, Shape::cpus(1), 1), []);
    assert_eq!(bench.join(N2, 4, &[]), [welcome_node(N2), bye(N2)], "LV-3");
    assert_eq!(bench.handle(Event::NodeDown(N1)), [ended(A, 1, node_lost())]);
    assert_eq!(bench.handle(Event::NodeDown(N2)), []);
    assert!(bench.head.nodes.is_empty());
}

#[test]
fn the_last_node_does_not_wait_for_tasks_that_cannot_go_on() {
    let mut bench = Bench::holding(A, 2);
    bench.handle(Event::Drain(N1));
    let blocked = |number| NodeToHead::Blocked { lease: lease(number), blocked: true, full: false };
    assert_eq!(bench.node_says(N1, blocked(1)), [], "the other still runs");
    assert_eq!(bench.node_says(N1, blocked(2)), [bye(N1)], "LV-4");
}
