//! A head that was started again, and heads that are none any more.

use super::*;

/// A head that was started for the fifth time.
fn fifth() -> Bench {
    Bench::with(|config| config.epoch = Epoch(5))
}

#[test]
fn a_lease_is_its_holders_again_when_both_have_named_it() {
    for client_first in [false, true] {
        let mut bench = fifth();
        if client_first {
            bench.hello_after(A, &[lease(101)], Some(4));
        }
        bench.join_after(N1, Incarnation(1), 2, &[(101, A)], Some(4));
        if !client_first {
            assert_eq!(bench.head.status().leases[0].state, "unclaimed");
            bench.hello_after(A, &[lease(101)], Some(4));
        }
        assert_eq!(bench.head.status().leases[0].state, "held", "HD-8");
        bench.hello(B, &[]);
        bench.want(B, Shape::cpus(1), 2);
        let free = bench.head.status().nodes[0].free;
        assert_eq!(free, Resources::default(), "only one of two CPUs was left to grant");
        assert_eq!(bench.head.status().leases.len(), 2);
    }
}

#[test]
fn claimed_lease_is_its_holders_again_when_its_node_comes_back_to_this_head() {
    let mut bench = fifth();
    bench.join_after(N1, Incarnation(1), 1, &[(101, A)], Some(4));
    bench.pass(seconds(7));
    assert_eq!(bench.head.status().leases, [], "its node is lost");
    bench.hello_after(A, &[lease(101)], Some(4));
    bench.come_back_with(&[(101, A)], Some(5), 4);
    assert_eq!(bench.head.status().leases[0].state, "held", "HD-8");
}

#[test]
fn claim_that_its_node_does_not_bear_out_is_refused() {
    let mut bench = fifth();
    bench.hello_after(A, &[lease(101)], Some(4));
    let effects = bench.come_back_with(&[(101, A)], Some(5), 5);
    assert!(effects.contains(&ended(A, 101, node_lost())), "HD-8: the client hears of it: {effects:?}");
    assert!(effects.contains(&end(N1, 101)), "{effects:?}");
}

#[test]
fn what_its_holder_does_not_name_is_over() {
    let mut bench = fifth();
    bench.join_after(N1, Incarnation(1), 1, &[(101, A)], Some(4));
    let effects = bench.hello_after(A, &[], Some(4));
    assert!(effects.contains(&end(N1, 101)), "HD-8: it was given back while there was no head: {effects:?}");
}

#[test]
fn a_holder_that_does_not_come_back_loses_its_leases() {
    let mut bench = fifth();
    bench.join_after(N1, Incarnation(1), 1, &[(101, A)], Some(4));
    assert!(!bench.pass_beating(N1, seconds(29)).contains(&end(N1, 101)));
    assert!(bench.pass_beating(N1, seconds(2)).contains(&end(N1, 101)), "HD-8");
}

#[test]
fn a_lease_that_no_node_reports_is_lost() {
    let mut bench = fifth();
    let effects = bench.hello_after(A, &[lease(101)], Some(4));
    assert!(!effects.contains(&ended(A, 101, node_lost())), "its node may be on its way");
    assert_eq!(bench.pass(seconds(7)), [ended(A, 101, node_lost())], "HD-8: three heartbeats");
    let mut bench = fifth();
    bench.hello_after(A, &[lease(101)], Some(4));
    let effects = bench.join_after(N1, Incarnation(2), 1, &[], None);
    assert!(effects.contains(&ended(A, 101, node_lost())), "its node is there without it: {effects:?}");
}

#[test]
fn what_a_client_claims_is_not_granted_to_it_a_second_time() {
    let mut bench = fifth();
    bench.hello_after(A, &[lease(101), lease(102)], Some(4));
    bench.join_after(N2, Incarnation(1), 4, &[], Some(4));
    assert_eq!(bench.want(A, Shape::cpus(1), 2), [], "it has two, on a node that is on its way");
    assert_eq!(bench.want(A, Shape::cpus(1), 3), [place(N2, 1, A, Shape::cpus(1))]);
    bench.placed(N2, 1);
    assert_eq!(bench.release(A, 102), [place(N2, 2, A, Shape::cpus(1))], "it claims one of three");
    bench.placed(N2, 2);
    let effects = bench.pass_beating(N2, seconds(7));
    assert_eq!(effects, [ended(A, 101, node_lost()), place(N2, 3, A, Shape::cpus(1))], "HD-8");
}

#[test]
fn leases_of_another_cluster_or_given_up_by_this_head_are_ended() {
    let mut bench = fifth();
    let effects = bench.join_after(N1, Incarnation(1), 1, &[(101, A)], Some(5));
    assert!(effects.contains(&end(N1, 101)), "this very head has given it up: {effects:?}");
    let mut bench = fifth();
    let other = Met { cluster: ClusterId(8), epoch: Epoch(4) };
    let hello = ClientToHead::Hello {
        client: A,
        name: String::new(),
        leases: vec![held(lease(101))],
        met: Some(other),
        under: None,
        beats: false,
    };
    assert!(bench.client_says(A, hello).contains(&ended(A, 101, node_lost())));
}

#[test]
fn a_head_that_meets_a_later_one_ends() {
    let mut bench = fifth();
    let effects = bench.join_after(N1, Incarnation(1), 1, &[], Some(6));
    assert_eq!(effects, [Effect::Superseded { by: Epoch(6) }], "HD-9");
    assert_eq!(bench.hello(A, &[]), [], "it is none any more");
    let mut bench = fifth();
    assert_eq!(bench.hello_after(A, &[], Some(7)), [Effect::Superseded { by: Epoch(7) }], "HD-9");
}

#[test]
fn a_lease_out_of_its_clients_reach_ends_before_it_is_granted_again() {
    let mut bench = Bench::holding(A, 1);
    bench.hello(B, &[]);
    bench.want(B, Shape::cpus(1), 1);
    let broken = ClientToHead::Broken { lease: lease(1) };
    assert_eq!(bench.client_says(A, broken.clone()), [end(N1, 1)]);
    assert_eq!(bench.client_says(A, broken), [], "HD-5");
    let effects = bench.ended(N1, 1, None);
    assert!(effects.contains(&ended(A, 1, node_lost())), "HD-4: {effects:?}");
}

#[test]
fn a_client_that_beats_and_falls_silent_is_given_up() {
    let mut bench = Bench::holding(A, 1);
    let echo = Effect::ToClient(A, HeadToClient::Heartbeat { beat: 77 });
    assert_eq!(bench.client_says(A, ClientToHead::Heartbeat { beat: 77 }), [echo]);
    bench.pass_beating(N1, seconds(29));
    let effects = bench.pass_beating(N1, seconds(2));
    assert!(effects.contains(&end(N1, 1)) && effects.contains(&Effect::DropClient(A)), "{effects:?}");
}
