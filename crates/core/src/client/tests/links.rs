//! Data links that break and come back (CL-3).

use super::*;
use paceline_proto::control::Held;

/// One lease with calls 2 to 5 in flight, tasks 2 to 5, of a short function.
fn four_in_flight() -> Bench {
    let mut bench = Bench::with_leases(1);
    bench.teach(A, us(20));
    bench.submit_many(4);
    assert_eq!(bench.said(A), ["run 2=2 3=3 4=4 5=5"]);
    bench
}

#[test]
fn calls_that_did_not_arrive_are_sent_again_under_their_numbers() {
    let mut bench = four_in_flight();
    assert_eq!(bench.down(A), []);
    assert_eq!(bench.said(A), Vec::<String>::new());
    assert_eq!(bench.submit(), [want(8)], "nothing is sent into a broken link");
    assert_eq!(bench.up(A), [send_now(A)]);
    assert_eq!(bench.said(A), ["hello 1"], "until the slot has said what it has");
    assert_eq!(bench.resumed(A, 3), [send_now(A), send_soon(A)]);
    assert_eq!(bench.said(A), ["define f", "run 4=4 5=5 6=6"]);
    assert_eq!(bench.resumed(A, 3), [], "a repeated message changes nothing");
    let values: Vec<_> = (2..=6).map(value).collect();
    assert_eq!(bench.values(A, us(20), &[2, 3, 4, 5, 6])[..5], values, "CL-1");
}

#[test]
fn a_slot_that_has_everything_gets_nothing_again() {
    let mut bench = four_in_flight();
    bench.down(A);
    bench.up(A);
    assert_eq!(bench.resumed(A, 5), [send_now(A)]);
    assert_eq!(bench.said(A), ["hello 1"]);
}

/// Two leases on two nodes, a client that hears of its head, and a long task on each.
fn two_nodes() -> Bench {
    let mut bench = Bench::with(Config { heartbeat: Duration::from_secs(2), ..Config::default() });
    bench.handle(Event::HeadUp);
    for lease in [1, 2] {
        bench.granted_at(lease, lease, lease);
        bench.up(LeaseKey(lease as usize - 1));
    }
    bench.submit_many(2);
    [A, B].into_iter().for_each(|key| drop(bench.said(key)));
    bench
}

fn pass_seconds(bench: &mut Bench, count: u64) -> Vec<Effect<u64>> {
    let mut out = Vec::new();
    for _ in 0..count {
        bench.now = bench.now + Duration::from_secs(1);
        out.extend(bench.handle(Event::Tick));
    }
    out
}

#[test]
fn without_a_head_what_is_out_of_reach_for_three_heartbeats_runs_elsewhere() {
    let mut bench = two_nodes();
    bench.handle(Event::HeadDown);
    bench.down(A);
    let given_up = |effect: &Effect<u64>| matches!(effect, Effect::Abandoned { .. });
    assert!(!pass_seconds(&mut bench, 5).iter().any(given_up), "it may come back");
    let effects = pass_seconds(&mut bench, 2);
    let abandoned = Effect::Abandoned { lease: LeaseId(1), node: NodeId(1) };
    assert!(effects.contains(&abandoned) && effects.contains(&Effect::Close { key: A }), "HL-2: {effects:?}");
    bench.values(B, us(20), &[1]);
    assert_eq!(bench.said(B), ["run 2=2/2"], "as another run of its task");
    let effects = bench.handle(Event::HeadUp);
    let named = |lease: &Held| lease.lease == LeaseId(1);
    let hello = |effect: &Effect<u64>| matches!(effect, Effect::ToHead(ClientToHead::Hello { leases, .. }) if !leases.iter().any(named));
    assert!(effects.iter().any(hello), "the head ends what is not named: {effects:?}");
}

#[test]
fn with_a_head_it_says_what_becomes_of_them() {
    let mut bench = two_nodes();
    bench.down(A);
    for _ in 0..10 {
        let effects = pass_seconds(&mut bench, 1);
        assert!(
            !effects.iter().any(|effect| matches!(effect, Effect::Abandoned { .. })),
            "HL-2: {effects:?}"
        );
        bench.head_says(HeadToClient::Heartbeat { beat: 1 });
    }
    assert!(bench.client.leases[A.0].broken);
}

#[test]
fn what_waited_to_be_sent_when_the_link_broke_is_said_once() {
    let mut bench = Bench::with_leases(1);
    bench.submit();
    // Nothing of it has gone out: the function, the call, and that it is cancelled.
    bench.cancel(1, true);
    bench.down(A);
    bench.up(A);
    assert_eq!(bench.said(A), ["hello 0"], "not before the slot has said what it has");
    bench.resumed(A, 0);
    assert_eq!(bench.said(A), ["define f", "run 1=1", "cancel 1"]);
}

#[test]
fn repeated_replies_are_passed_over() {
    let mut bench = four_in_flight();
    bench.values(A, us(20), &[2, 3]);
    let again = |seqs: &[u64], first| {
        let reply = |seq: &u64| Reply {
            seq: Seq(*seq),
            status: Status::Value,
            took: us(20),
            payload: Bytes::from("v"),
        };
        Event::FromSlot(A, FromSlot::Replies { first, replies: seqs.iter().map(reply).collect() })
    };
    assert_eq!(bench.handle(again(&[2, 3], 1)), []);
    assert_eq!(bench.handle(again(&[3, 4], 2)), [value(4)], "only what is new");
    assert_eq!(bench.handle(again(&[5], 9)), [], "a gap: the slot sends all again once it hears our hello");
    bench.down(A);
    bench.up(A);
    assert_eq!(bench.said(A), ["hello 4"], "none was counted twice");
}

#[test]
fn what_was_cancelled_meanwhile_is_ended_on_the_new_link() {
    let mut bench = four_in_flight();
    bench.running(A, 2);
    bench.down(A);
    assert!(bench.cancel(2, true).0);
    assert!(bench.cancel(4, false).0);
    assert_eq!(bench.said(A), Vec::<String>::new());
    bench.up(A);
    assert_eq!(bench.said(A), ["hello 1", "cancel 2", "withdraw 4"]);
    bench.resumed(A, 3);
    assert_eq!(bench.said(A), ["define f", "run 4=4 5=5", "withdraw 4", "cancel 2"], "now it knows them all");
}

#[test]
fn many_replies_are_acknowledged_without_a_call() {
    let mut bench = Bench::with_leases(1);
    bench.teach(A, us(1));
    bench.submit_many(1);
    bench.said(A);
    let payload = Bytes::from(vec![0; 70_000]);
    let reply = Reply { seq: Seq(2), status: Status::Value, took: us(1), payload: payload.clone() };
    let effects = bench.handle(Event::FromSlot(A, FromSlot::Replies { first: 1, replies: vec![reply] }));
    assert_eq!(effects, [finished(2, Outcome::Value(payload)), send_now(A)]);
    assert_eq!(bench.said(A), ["ack 2"]);
}

#[test]
fn messages_about_leases_that_are_over_change_nothing() {
    let mut bench = Bench::with_leases(1);
    bench.recall(1);
    assert_eq!(bench.up(A), []);
    assert_eq!(bench.down(A), []);
    assert_eq!(bench.running(A, 1), []);
    assert_eq!(bench.resumed(A, 1), []);
    assert_eq!(bench.granted(2), [open(A, 2)]);
    assert_eq!(bench.granted(2), [], "a repeated grant changes nothing");
}

#[test]
fn timing_of_the_head_that_is_believed_counts() {
    let second = Duration::from_secs(1);
    let welcome = |heartbeat, head_lost| {
        let (cluster, epoch) = (paceline_proto::ClusterId(9), paceline_proto::Epoch(1));
        let timing = paceline_proto::control::Timing { heartbeat, head_lost };
        Event::FromHead(HeadToClient::Welcome { cluster, epoch, timing })
    };
    let mut bench = Bench::with(Config { heartbeat: second, ..Config::default() });
    bench.handle(welcome(second * 5, second * 20));
    assert_eq!(
        (bench.client.config.heartbeat, bench.client.config.head_lost),
        (second * 5, second * 20),
        "HL-5"
    );
    let mut bench =
        Bench::with(Config { heartbeat: second, own_heartbeat: Some(second), ..Config::default() });
    bench.handle(welcome(second * 5, second * 20));
    assert_eq!((bench.client.config.heartbeat, bench.client.config.head_lost), (second, second * 20), "HL-5");
    let mut bench = Bench::with(Config::default());
    bench.handle(welcome(second * 5, second * 20));
    assert_eq!(bench.client.config.heartbeat, Duration::ZERO, "nothing is timed where the head is");
}

#[test]
fn the_head_hears_that_it_is_obeyed_when_it_was_heard() {
    let (cluster, epoch) = (paceline_proto::ClusterId(9), paceline_proto::Epoch(1));
    let timing = paceline_proto::control::Timing { heartbeat: us(1), head_lost: us(1) };
    let welcome = || Event::FromHead(HeadToClient::Welcome { cluster, epoch, timing });
    let welcomed = Effect::ToHead(ClientToHead::Welcomed);
    // Also from a client that says nothing else by itself.
    let mut bench = Bench::new();
    for _ in 0..2 {
        assert!(!bench.handle(Event::HeadUp).contains(&welcomed), "HL-6");
        assert_eq!(bench.handle(welcome()), std::slice::from_ref(&welcomed), "HL-6");
        assert_eq!(bench.handle(welcome()), [], "HL-6: once on each link");
        bench.handle(Event::HeadDown);
    }
    bench.handle(Event::HeadUp);
    let earlier = HeadToClient::Welcome { cluster, epoch: paceline_proto::Epoch(0), timing };
    let out = bench.head_says(earlier);
    assert!(out.contains(&Effect::DropHead) && !out.contains(&welcomed), "HL-3: {out:?}");
}
