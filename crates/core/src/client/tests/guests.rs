//! Calls of actors of somebody else's.

use super::*;
use paceline_proto::ActorId;

const ACTOR: ActorId = ActorId(5);

fn visit(bench: &mut Bench) -> Vec<Effect<u64>> {
    bench.act(|client, _, out| client.visit(ACTOR, out))
}

fn leave(bench: &mut Bench) -> Vec<Effect<u64>> {
    bench.act(|client, _, out| client.leave_actor(ACTOR, out))
}

fn call(bench: &mut Bench) -> Vec<Effect<u64>> {
    bench.submit_as(|spec| Spec { within: Within::Guest(ACTOR), ..spec })
}

fn stays(stay: bool) -> Effect<u64> {
    Effect::ToHead(ClientToHead::Visit { actor: ACTOR, stay, held: None })
}

fn let_in(bench: &mut Bench, lease: u64) -> Vec<Effect<u64>> {
    bench.replies.resize(bench.replies.len().max(lease as usize + 1), 0);
    bench.head_says(HeadToClient::Visiting {
        actor: ACTOR,
        lease: LeaseId(lease.into()),
        node: NodeId(1),
        slot: SlotId(1),
        secret: LeaseSecret::default(),
    })
}

/// How these tasks have ended with the actor, and whether they ran.
fn gone(out: &[Effect<u64>]) -> Vec<(u64, bool)> {
    let of = |effect: &Effect<u64>| match effect {
        Effect::Finished { ticket, outcome: Outcome::ActorGone(gone), .. } => Some((*ticket, gone.ran)),
        _ => None,
    };
    out.iter().filter_map(of).collect()
}

/// A visit with a lease whose link is up, and so many calls sent.
fn visiting(calls: usize) -> Bench {
    let mut bench = Bench::new();
    assert_eq!(visit(&mut bench), [stays(true)]);
    (0..calls).for_each(|_| drop(call(&mut bench)));
    let_in(&mut bench, 1);
    bench.up(A);
    bench.said(A);
    bench
}

#[test]
fn calls_wait_for_the_actor_and_are_sent_in_order() {
    let mut bench = Bench::new();
    visit(&mut bench);
    assert_eq!(call(&mut bench), [], "nothing is wanted of the head but the visit");
    call(&mut bench);
    assert!(matches!(let_in(&mut bench, 1)[..], [Effect::Open { key: A, .. }]));
    bench.up(A);
    let said = bench.said(A).join(" ");
    assert!(said.contains("1, 2") || said.contains("1 2"), "GC-1: {said}");
}

#[test]
fn what_had_begun_ends_with_the_slot_and_what_had_not_waits_for_the_next() {
    let mut bench = visiting(4);
    assert_eq!(gone(&bench.died(1, Some(2), 1)), [(1, true), (2, true)], "GC-1");
    assert!(matches!(let_in(&mut bench, 2)[..], [Effect::Open { .. }]));
    let out = bench.head_says(HeadToClient::ActorGone { actor: ACTOR, why: "it was enough".into() });
    assert_eq!(gone(&out), [(3, false), (4, false)]);
    assert_eq!(gone(&call(&mut bench)), [(5, false)], "and so does what comes later");
}

#[test]
fn an_actor_of_which_nothing_is_known_takes_no_calls_until_it_is() {
    let mut bench = Bench::new();
    visit(&mut bench);
    call(&mut bench);
    let away = |out: &[Effect<u64>]| {
        out.iter()
            .filter(|it| matches!(it, Effect::Finished { outcome: Outcome::ActorAway { .. }, .. }))
            .count()
    };
    let told = HeadToClient::ActorAway { actor: ACTOR, why: "its node is silent".into() };
    assert_eq!(away(&bench.head_says(told)), 1);
    assert_eq!(away(&call(&mut bench)), 1);
    let_in(&mut bench, 1);
    assert_eq!(call(&mut bench), []);
}

#[test]
fn a_visit_ends_with_its_last_handle_and_its_last_call() {
    let mut bench = visiting(1);
    visit(&mut bench);
    assert_eq!(leave(&mut bench), []);
    assert_eq!(leave(&mut bench), [], "GC-2: a call is still there");
    let out = bench.values(A, us(10), &[1]);
    assert!(out.contains(&stays(false)) && out.contains(&Effect::Close { key: A }), "{out:?}");
}

#[test]
fn a_new_link_to_the_head_hears_of_visits_and_of_those_that_ended() {
    let mut bench = visiting(1);
    bench.handle(Event::HeadDown);
    let held = Some(LeaseId(1));
    let out = bench.handle(Event::HeadUp);
    assert!(out.contains(&Effect::ToHead(ClientToHead::Visit { actor: ACTOR, stay: true, held })), "{out:?}");
    let Effect::ToHead(ClientToHead::Hello { leases, .. }) = &out[0] else { panic!("{out:?}") };
    assert_eq!(leases[..], [], "it is no lease of the client's own");
    bench.values(A, us(10), &[1]);
    bench.handle(Event::HeadDown);
    leave(&mut bench);
    assert!(bench.handle(Event::HeadUp).contains(&stays(false)));
}

#[test]
fn owners_say_where_their_actor_is_and_that_it_is_gone() {
    let mut bench = Bench::new();
    let card = Card { name: Some("x".into()), ..Card::default() };
    let lease = Some(LeaseId(1));
    bench.act(|client, _, out| client.host_actor(ACTOR, card, None, out));
    let said = |out: &[Effect<u64>]| match out {
        [Effect::ToHead(ClientToHead::Actor { lease, gone, .. })] => Some((*lease, gone.is_some())),
        _ => None,
    };
    assert_eq!(said(&bench.act(|client, _, out| client.move_actor(ACTOR, lease, out))), Some((lease, false)));
    assert_eq!(bench.act(|client, _, out| client.move_actor(ACTOR, lease, out)), [], "GC-3: it is no news");
    let ends = bench.act(|client, _, out| client.end_actor(ACTOR, "it is done", out));
    assert_eq!(said(&ends), Some((lease, true)));
    let again = bench.handle(Event::HeadUp);
    assert!(again.iter().any(|it| said(std::slice::from_ref(it)) == Some((lease, true))), "GC-3: {again:?}");
    bench.head_says(HeadToClient::ActorGone { actor: ACTOR, why: "it is done".into() });
    let again = bench.handle(Event::HeadUp);
    assert!(!again.iter().any(|it| said(std::slice::from_ref(it)).is_some()), "GC-3: {again:?}");
}

#[test]
fn a_visit_that_ends_with_its_earlier_lease_takes_no_other() {
    let mut bench = visiting(1);
    leave(&mut bench);
    // The end of the first lease was lost; of its call nobody knows whether it ran.
    let out = let_in(&mut bench, 2);
    assert_eq!(gone(&out), [(1, true)]);
    assert!(out.contains(&stays(false)), "GC-2: {out:?}");
    assert!(
        !out.iter().any(|effect| matches!(effect, Effect::Open { .. })),
        "nobody is left to use it: {out:?}"
    );
}

#[test]
fn destroyed_actor_of_another_is_said_to_be_so_on_each_link_until_it_is_gone() {
    let mut bench = visiting(0);
    let destroyed = |out: &[Effect<u64>]| {
        let said = |effect: &Effect<u64>| {
            matches!(effect, Effect::ToHead(ClientToHead::Actor { actor: ACTOR, gone: Some(_), .. }))
        };
        out.iter().any(said)
    };
    assert!(destroyed(&bench.act(|client, _, out| client.destroy_actor(ACTOR, "it was destroyed", out))));
    assert_eq!(leave(&mut bench), [], "GC-4");
    bench.handle(Event::HeadDown);
    let again = bench.handle(Event::HeadUp);
    assert!(
        destroyed(&again)
            && again
                .iter()
                .any(|effect| matches!(effect, Effect::ToHead(ClientToHead::Visit { stay: true, .. }))),
        "GC-4"
    );
    let why = "its owner has ended it".into();
    let out = bench.head_says(HeadToClient::ActorGone { actor: ACTOR, why });
    assert!(out.contains(&stays(false)), "GC-2: {out:?}");
    assert!(!destroyed(&bench.handle(Event::HeadUp)), "GC-4");
}
