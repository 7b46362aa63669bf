//! Peers that may still go back to an earlier start of the head, or have just come from it.

use super::actors::ended;
use super::fences::{held_once, joining, placement_once, rebuilds, restarted};
use super::*;

/// A head of the second start with another node, for the actor to be rebuilt there.
fn later_head() -> Bench {
    let mut bench = Bench::with(|config| config.epoch = Epoch(2));
    bench.join_after(N2, Incarnation(1), 2, &[], Some(1));
    bench
}

/// The owner of the actor comes from this epoch, with the actor's lease or without it.
fn owner_comes(bench: &mut Bench, holds: bool, epoch: u64) -> Vec<Effect> {
    let leases = if holds { vec![held_once()] } else { Vec::new() };
    let (name, met) = ("a".into(), Some(met(epoch)));
    bench.client_says(A, ClientToHead::Hello { client: A, name, leases, met, under: None, beats: false })
}

#[test]
fn actor_that_was_taken_back_to_an_earlier_head_is_fenced_as_one_that_nobody_reports() {
    let (mut bench, _) = restarted(true);
    bench.node_says(N1, joining(vec![placement_once()]));
    let out = bench.pass_beating(N2, seconds(8));
    assert!(out.contains(&super::ended(A, 1, node_lost())) && !rebuilds(&out), "{out:?}");
    assert!(
        !rebuilds(&bench.pass_beating(N2, seconds(90))),
        "FE-3: the earlier head keeps it for its client"
    );
    assert!(rebuilds(&bench.pass_beating(N2, seconds(4))), "FE-3: it has ended by its own clock");
}

#[test]
fn actor_that_was_lost_under_an_earlier_head_since_its_node_was_here_is_fenced_from_then_on() {
    let mut bench = later_head();
    bench.node_says(N1, joining(vec![placement_once()]));
    bench.pass_beating(N2, seconds(90));
    owner_comes(&mut bench, false, 1);
    bench.client_says(A, ClientToHead::Lost { lease: held_once() });
    assert!(!rebuilds(&bench.want_once(A)));
    assert!(!rebuilds(&bench.pass_beating(N2, seconds(92))), "FE-3");
    assert!(rebuilds(&bench.pass_beating(N2, seconds(4))), "FE-3");
}

#[test]
fn end_of_what_a_node_has_just_reported_leaves_no_fence() {
    for holds in [false, true] {
        let mut bench = later_head();
        bench.node_says(N1, joining(vec![placement_once()]));
        ended(&mut bench, 1, Some(killed()));
        owner_comes(&mut bench, holds, 1);
        if !holds {
            bench.client_says(A, ClientToHead::Lost { lease: held_once() });
        }
        assert!(!rebuilds(&bench.want_once(A)), "FE-5");
        let out = bench.node_says(N1, NodeToHead::Heartbeat { beat: 0 });
        assert!(rebuilds(&out), "FE-5: {out:?}");
        assert_eq!(out.contains(&super::ended(A, 1, node_lost())), holds, "HD-8: {out:?}");
    }
}

#[test]
fn lost_lease_counts_on_the_second_link_if_the_first_broke_too_early() {
    for away in [0, 40] {
        let mut bench = later_head();
        owner_comes(&mut bench, false, 1);
        bench.handle(Event::ClientDown { client: A, end: LinkEnd::Lost });
        // After so long the head has forgotten the client.
        bench.pass_beating(N2, seconds(away));
        owner_comes(&mut bench, false, 2);
        bench.client_says(A, ClientToHead::Lost { lease: held_once() });
        assert!(!rebuilds(&bench.want_once(A)), "FE-7: away for {away} s");
        assert!(!rebuilds(&bench.pass_beating(N2, seconds(92))), "FE-3");
        assert!(rebuilds(&bench.pass_beating(N2, seconds(4))), "FE-3");
    }
}

#[test]
fn lease_that_this_head_has_lost_is_fenced_once() {
    let mut bench = later_head();
    owner_comes(&mut bench, false, 1);
    bench.client_says(A, ClientToHead::Synced);
    bench.handle(Event::ClientDown { client: A, end: LinkEnd::Lost });
    owner_comes(&mut bench, false, 2);
    bench.client_says(A, ClientToHead::Lost { lease: held_once() });
    assert!(rebuilds(&bench.want_once(A)), "FE-7");
}

#[test]
fn node_hears_that_a_holder_is_confirmed_once_the_holder_has_heard_the_welcome() {
    let confirmed = Effect::ToNode(N1, HeadToNode::HolderConfirmed { lease: lease(1) });
    for node_first in [true, false] {
        let mut bench = later_head();
        let joins = |bench: &mut Bench| bench.node_says(N1, joining(vec![placement_once()]));
        let mut out = if node_first { joins(&mut bench) } else { Vec::new() };
        out.extend(owner_comes(&mut bench, true, 1));
        out.extend(bench.client_says(A, ClientToHead::Synced));
        if !node_first {
            out.extend(joins(&mut bench));
        }
        assert!(!out.contains(&confirmed), "FE-8: it may go back to the earlier head: {out:?}");
        assert_eq!(bench.client_says(A, ClientToHead::Welcomed), std::slice::from_ref(&confirmed), "FE-8");
        assert_eq!(bench.client_says(A, ClientToHead::Welcomed), [], "HD-5");
    }
}

#[test]
fn holder_that_comes_back_from_this_head_is_confirmed() {
    let confirmed = Effect::ToNode(N1, HeadToNode::HolderConfirmed { lease: lease(1) });
    let mut bench = later_head();
    bench.node_says(N1, joining(vec![placement_once()]));
    owner_comes(&mut bench, true, 1);
    bench.handle(Event::ClientDown { client: A, end: LinkEnd::Lost });
    // What it said on the first link was lost.
    assert!(owner_comes(&mut bench, true, 2).contains(&confirmed), "FE-8");
}
