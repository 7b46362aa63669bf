//! Tasks that had better run on one node.

use super::*;
use crate::client::Near;

/// A bench with idle leases, each on the node of its number: `A` on 1, `B` on 2, ...
fn on_nodes(count: u64) -> Bench {
    let mut bench = Bench::new();
    for lease in 1..=count {
        bench.granted_at(lease, lease, lease);
        let key = LeaseKey(lease as usize - 1);
        bench.up(key);
        bench.said(key);
    }
    bench
}

impl Bench {
    fn submit_near(&mut self, node: u64, patience: Duration) -> Vec<Effect<u64>> {
        self.submit_as(|spec| Spec { near: Some(Near { nodes: [NodeId(node)].into(), patience }), ..spec })
    }

    /// The last thing that goes out on a lease now.
    fn last_said(&mut self, key: LeaseKey) -> Option<String> {
        self.said(key).pop()
    }
}

fn near(nodes: &[(u64, u32)]) -> Effect<u64> {
    let nodes = nodes.iter().map(|(node, count)| (NodeId(*node), *count)).collect();
    Effect::ToHead(ClientToHead::Near { shape: Shape::cpus(1), nodes })
}

#[test]
fn a_task_goes_to_its_node() {
    let mut bench = on_nodes(3);
    assert_eq!(bench.submit_near(1, ms(50)), [send_now(A), want(1)]);
    assert_eq!(bench.submit_near(2, ms(50)), [send_now(B), want(2)]);
    assert_eq!([A, B, C].map(|key| bench.last_said(key).is_some()), [true, true, false]);
}

#[test]
fn a_slot_elsewhere_waits_for_as_long_as_the_task_has_patience() {
    let mut bench = on_nodes(2);
    bench.submit_near(1, ms(50));
    assert_eq!(bench.submit_near(1, ms(50)), [wake(at(50)), near(&[(1, 2)]), want(2)]);
    assert_eq!(bench.said(B), [""; 0], "not ahead either, or it would be asked back at once");
    bench.pass(ms(49));
    bench.tick();
    assert_eq!(bench.said(B), [""; 0]);
    bench.pass(ms(1));
    assert!(bench.tick().contains(&send_now(B)));
    assert_eq!(bench.last_said(B).unwrap(), "run 1=2");
}

#[test]
fn its_own_slot_is_in_time() {
    let mut bench = on_nodes(2);
    bench.submit_near(1, ms(50));
    bench.submit_near(1, ms(50));
    bench.said(A);
    bench.pass(ms(10));
    bench.values(A, ms(10), &[1]);
    assert_eq!(bench.said(A), ["run 2=2"]);
    bench.pass(ms(60));
    bench.tick();
    assert_eq!(bench.said(B), [""; 0]);
}

#[test]
fn others_go_past_it_for_a_second_at_most() {
    let mut bench = on_nodes(1);
    bench.teach(A, ms(20));
    bench.submit();
    bench.submit_near(9, Duration::from_secs(100));
    bench.submit_many(200);
    let mut calls = 1;
    let mut went = Vec::new();
    while !went.contains(&3) {
        calls += 1;
        assert!(calls < 100, "it went never");
        bench.said(A);
        let task = bench.client.leases[A.0].in_flight().next().unwrap().task;
        went.push(bench.client.tasks[task.0].id.0);
        bench.pass(ms(20));
        bench.values(A, ms(20), &[calls]);
    }
    assert!((50..=53).contains(&went.len()), "{} tasks went first", went.len());
}

#[test]
fn among_those_that_a_slot_may_take_who_came_first_goes_first() {
    let mut bench = on_nodes(1);
    bench.teach(A, ms(20));
    bench.submit();
    bench.said(A);
    bench.submit_near(1, ms(50));
    bench.submit();
    bench.submit_near(1, ms(50));
    bench.submit_as(|spec| Spec { priority: 5, ..spec });
    let mut went = Vec::new();
    for call in 2..6 {
        bench.values(A, ms(20), &[call]);
        went.extend(bench.said(A).into_iter().filter(|said| said.starts_with("run")));
    }
    assert_eq!(went, ["run 3=6", "run 4=3", "run 5=4", "run 6=5"]);
}

#[test]
fn what_comes_back_runs_anywhere() {
    let mut bench = on_nodes(2);
    bench.submit_near(1, ms(500));
    bench.said(A);
    bench.died(1, Some(1), 0);
    assert_eq!(bench.last_said(B).unwrap(), "run 1=1/2");
}

#[test]
fn a_cancelled_one_is_gone() {
    let mut bench = on_nodes(1);
    bench.submit_near(2, ms(500));
    assert_eq!(bench.client.queued(), 1);
    assert!(bench.cancel(1, false).0);
    assert_eq!((bench.client.queued(), bench.client.pending()), (0, 0));
    bench.submit_near(2, ms(500));
    bench.act(|client, _, out| client.cancel_all(|_| true, out));
    assert_eq!((bench.client.queued(), bench.client.pending()), (0, 0));
}

#[test]
fn the_head_hears_where_a_lease_is_of_use() {
    let mut bench = Bench::new();
    assert_eq!(bench.submit_near(4, ms(50)), [near(&[(4, 1)]), want(1)], "before it grants one");
    bench.granted_at(1, 2, 1);
    bench.up(A);
    assert_eq!(bench.said(A).len(), 1, "it says hello, and no more");
    let again = bench.handle(Event::HeadUp);
    assert!(again.contains(&near(&[(4, 1)])), "{again:?}");
    let asked = bench.submit_near(4, ms(50));
    assert_eq!(asked, [near(&[(4, 2)]), want(2)]);
    bench.pass(ms(50));
    bench.tick();
    assert_eq!(bench.last_said(A).unwrap(), "run 1=1");
}

#[test]
fn one_more_lease_is_asked_for_where_there_is_none() {
    let mut bench = on_nodes(1);
    bench.teach(A, ms(20));
    assert_eq!(bench.submit_near(2, ms(50)), [wake(at(50)), near(&[(2, 1)]), want(2)]);
    bench.granted_at(2, 2, 1);
    bench.up(B);
    assert_eq!(bench.last_said(B).unwrap(), "run 1=2");
}

#[test]
fn a_lease_is_kept_for_what_it_may_have_to_take() {
    let mut bench = on_nodes(1);
    bench.submit_near(2, ms(400));
    bench.pass(ms(300));
    bench.tick();
    assert_eq!(bench.client.leases.len(), 1);
    bench.pass(ms(100));
    bench.tick();
    assert_eq!(bench.last_said(A).unwrap(), "run 1=1");
}

#[test]
fn several_nodes_may_be_as_good() {
    let mut bench = on_nodes(3);
    let near = Near { nodes: [NodeId(1), NodeId(2)].into(), patience: ms(50) };
    for _ in 0..3 {
        let near = Some(near.clone());
        bench.submit_as(|spec| Spec { near, ..spec });
    }
    assert_eq!([A, B, C].map(|key| bench.last_said(key).is_some()), [true, true, false]);
    bench.values(B, ms(1), &[1]);
    assert_eq!(bench.last_said(B).unwrap(), "run 2=3");
}

#[test]
fn the_nodes_that_have_most_are_the_ones() {
    let mib = |count: u64| count << 20;
    let (a, b, c) = (NodeId(1), NodeId(2), NodeId(3));
    let near = |inputs: &[(u64, &[NodeId])]| {
        Near::to(inputs.iter().copied()).map(|near| (near.nodes.to_vec(), near.patience.as_millis()))
    };
    assert_eq!(near(&[]), None);
    assert_eq!(near(&[(mib(10), &[])]), None);
    assert_eq!(near(&[(1000, &[a])]), None, "few bytes are nothing to wait for");
    assert_eq!(near(&[(mib(64), &[a]), (mib(100), &[b])]), Some((vec![b], 97)));
    assert_eq!(near(&[(mib(64), &[a, c]), (mib(100), &[b]), (mib(64), &[c])]), Some((vec![c], 125)));
    assert_eq!(near(&[(mib(64), &[a, c]), (mib(2), &[c])]), Some((vec![a, c], 64)));
    assert_eq!(near(&[(u64::MAX, &[b])]), Some((vec![b], 500)));
    let many: Vec<NodeId> = (0..40).map(NodeId).collect();
    assert_eq!(near(&[(mib(64), &many)]), None, "they are everywhere");
}
