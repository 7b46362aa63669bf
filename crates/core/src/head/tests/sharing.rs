//! Who gets what, and who has to give back.

use super::*;

const ONE: fn() -> Shape = || Shape::cpus(1);

/// How many leases each client has.
fn shares(bench: &Bench) -> Vec<usize> {
    let leases = |client: &Client| client.leases.values().flatten().count();
    bench.head.clients.values().map(leases).collect()
}

#[test]
fn clients_get_equal_shares_in_turn() {
    let mut bench = Bench::new();
    bench.hello(A, &[]);
    bench.hello(B, &[]);
    bench.want(A, ONE(), 9);
    bench.want(B, ONE(), 9);
    let effects = bench.join(N1, 3, &[]);
    let places = [place(N1, 1, A, ONE()), place(N1, 2, B, ONE()), place(N1, 3, A, ONE())];
    assert_eq!(effects[1..], places, "SH-1");
}

#[test]
fn leases_spread_over_nodes() {
    let mut bench = Bench::new();
    bench.hello(A, &[]);
    bench.join(N1, 2, &[]);
    bench.join(N2, 2, &[]);
    let effects = bench.want(A, ONE(), 3);
    assert_eq!(effects, [place(N1, 1, A, ONE()), place(N2, 2, A, ONE()), place(N1, 3, A, ONE())]);
}

#[test]
fn a_newcomer_gets_its_share_back_from_who_has_more() {
    let mut bench = Bench::holding(A, 4);
    bench.hello(B, &[]);
    let recalled = bench.want(B, ONE(), 4);
    assert_eq!(recalled.len(), 2, "RC-1: two of four, and no more");
    assert!(recalled.iter().all(|effect| matches!(effect, Effect::ToClient(A, HeadToClient::Recall { .. }))));
    assert_eq!(bench.want(B, ONE(), 4), [], "RC-3");
    let Effect::ToClient(_, HeadToClient::Recall { lease }) = recalled[0] else { unreachable!() };
    let ended = bench.client_says(A, ClientToHead::Release { lease });
    assert_eq!(ended, [Effect::ToNode(N1, HeadToNode::End { lease })]);
    let freed = bench.node_says(N1, NodeToHead::Ended { lease, death: None });
    assert_eq!(freed, [place(N1, 5, B, ONE())], "to B, although A still wants four");
}

#[test]
fn an_odd_lease_stays_where_it_is() {
    let mut bench = Bench::holding(A, 2);
    bench.hello(B, &[]);
    bench.join(N2, 1, &[]);
    assert_eq!(bench.want(B, ONE(), 2), [place(N2, 3, B, ONE())]);
    bench.placed(N2, 3);
    for _ in 0..5 {
        assert_eq!(bench.pass(Duration::from_millis(500)), [], "two and one is as even as it gets");
    }
    assert_eq!(shares(&bench), [2, 1]);
}

#[test]
fn one_place_is_used_in_turns() {
    let mut bench = Bench::holding(A, 1);
    bench.hello(B, &[]);
    assert_eq!(bench.want(B, ONE(), 1), [], "RC-2: not at once");
    assert_eq!(bench.pass(Duration::from_millis(200)), [recall(A, 1)]);
    bench.release(A, 1);
    assert_eq!(bench.ended(N1, 1, None), [place(N1, 2, B, ONE())]);
    bench.placed(N1, 2);
    assert_eq!(bench.pass(Duration::from_millis(199)), []);
    assert_eq!(bench.pass(Duration::from_millis(1)), [recall(B, 2)], "and back");
}

#[test]
fn two_shapes_of_one_client_take_turns() {
    let mut bench = Bench::holding(A, 2);
    let two = Shape::cpus(2);
    assert_eq!(bench.want(A, two, 1), [crowded(A, two)], "SH-3: it may not use them");
    let mut recalled = bench.pass(Duration::from_millis(200));
    recalled.sort_by_key(|effect| *effect == recall(A, 2));
    assert_eq!(recalled, [recall(A, 1), recall(A, 2)]);
    bench.release(A, 1);
    assert_eq!(bench.ended(N1, 1, None), [], "SH-2: half the room is kept for it");
    bench.release(A, 2);
    assert_eq!(bench.ended(N1, 2, None), [place(N1, 3, A, two), crowded(A, ONE())], "the tables are turned");
}

#[test]
fn small_requests_do_not_starve_a_large_one() {
    let mut bench = Bench::holding(A, 2);
    bench.hello(B, &[]);
    let two = Shape::cpus(2);
    assert_eq!(bench.want(B, two, 1), []);
    assert_eq!(bench.pass(Duration::from_millis(200)).len(), 2, "both are recalled");
    bench.release(A, 1);
    assert_eq!(bench.ended(N1, 1, None), [], "SH-2: A wants it, but it is kept for B");
    bench.release(A, 2);
    assert_eq!(bench.ended(N1, 2, None), [place(N1, 3, B, two)]);
}

#[test]
fn a_recall_is_said_again_to_a_client_that_lost_its_link() {
    let mut bench = Bench::holding(A, 2);
    bench.hello(B, &[]);
    let recalled = bench.want(B, ONE(), 1);
    assert_eq!(recalled.len(), 1);
    bench.handle(Event::ClientDown { client: A, end: LinkEnd::Lost });
    let back = bench.hello(A, &[lease(1), lease(2)]);
    assert_eq!(back, [vec![welcome(A)], recalled].concat());
}

#[test]
fn leases_without_needs_are_bounded_too() {
    let mut bench = Bench::with(|config| config.max_leases = 3);
    bench.hello(A, &[]);
    bench.join(N1, 1, &[]);
    assert_eq!(bench.want(A, Shape::default(), 100).len(), 3);
}

#[test]
fn a_silent_node_gets_no_leases() {
    let mut bench = Bench::new();
    bench.hello(A, &[]);
    bench.join(N1, 1, &[]);
    bench.handle(Event::NodeDown(N1));
    assert_eq!(bench.want(A, ONE(), 1), []);
    assert_eq!(bench.join(N1, 1, &[]), [welcome_node(N1), place(N1, 1, A, ONE())]);
}

#[test]
fn lease_ids_differ_by_secret() {
    let first = |secret: u8| {
        let mut bench = Bench::with(|config| config.secret = [secret; 32]);
        bench.hello(A, &[]);
        bench.join(N1, 1, &[]);
        bench.want(A, ONE(), 1)
    };
    assert_eq!(first(1), first(1), "HD-2");
    assert_ne!(first(1), first(2));
}

#[test]
fn a_lease_is_granted_where_it_is_of_use_if_there_is_room() {
    let mut bench = Bench::new();
    bench.hello(A, &[]);
    bench.join(N1, 4, &[]);
    bench.join(N2, 2, &[]);
    let near = |nodes: &[(NodeId, u32)]| ClientToHead::Near { shape: ONE(), nodes: nodes.to_vec() };
    assert_eq!(bench.client_says(A, near(&[(NodeId(77), 9), (N2, 1)])), []);
    let effects = bench.want(A, ONE(), 2);
    assert_eq!(
        effects,
        [place(N2, 1, A, ONE()), place(N1, 2, A, ONE())],
        "one there, as it said, and no more"
    );
    bench.client_says(A, near(&[(N2, 9)]));
    let effects = bench.want(A, ONE(), 4);
    assert_eq!(effects, [place(N2, 3, A, ONE()), place(N1, 4, A, ONE())], "there was room for one more");
    bench.client_says(A, near(&[]));
    assert_eq!(bench.want(A, ONE(), 5), [place(N1, 5, A, ONE())]);
}
