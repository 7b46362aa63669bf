//! How many leases are asked for, kept, and given back.

use super::*;
use crate::client::Unplaceable;
use paceline_proto::control::Held;
use paceline_proto::{ProgramId, Start, StartError};

#[test]
fn leases_are_asked_for_in_powers_of_two() {
    let mut bench = Bench::new();
    let asked: Vec<Vec<Effect<u64>>> = (0..9).map(|_| bench.submit()).collect();
    let none = Vec::new;
    assert_eq!(
        asked,
        [
            vec![want(1)],
            vec![want(2)],
            vec![want(4)],
            none(),
            vec![want(8)],
            none(),
            none(),
            none(),
            vec![want(16)]
        ]
    );
}

#[test]
fn no_more_than_the_most_are_asked_for() {
    let mut bench = Bench::with(Config { max_leases: 3, ..Config::default() });
    assert_eq!([bench.submit(), bench.submit()], [[want(1)], [want(2)]]);
    assert_eq!(bench.submit(), [want(3)]);
    assert_eq!(bench.submit(), []);
}

#[test]
fn an_idle_lease_is_kept_for_a_while() {
    let mut bench = Bench::new();
    bench.submit();
    assert_eq!(bench.granted(1), [open(A, 1), wake(at(200))]);
    bench.up(A);
    bench.said(A);
    bench.pass(ms(10));
    assert_eq!(bench.values(A, us(5), &[1]), [value(1)], "an earlier wake-up is due already");
    bench.pass(ms(190));
    assert_eq!(bench.tick(), [wake(at(210))]);
    bench.pass(ms(10));
    assert_eq!(bench.tick(), [want(0), release(1), close(A)]);
    assert_eq!(bench.tick(), []);
}

#[test]
fn a_lease_that_is_used_again_is_kept() {
    let mut bench = Bench::with_leases(1);
    bench.teach(A, us(5));
    bench.pass(ms(150));
    bench.submit();
    bench.said(A);
    bench.pass(ms(100));
    assert_eq!(bench.tick(), [], "it works");
    assert_eq!(bench.values(A, ms(100), &[2]), [value(2), wake(at(450))]);
    bench.pass(ms(199));
    assert_eq!(bench.tick(), []);
    bench.pass(ms(1));
    assert_eq!(bench.tick(), [want(0), release(1), close(A)]);
}

#[test]
fn a_recalled_lease_is_given_back_after_its_task() {
    let mut bench = Bench::with_leases(1);
    bench.teach(A, ms(20));
    bench.submit_many(2);
    bench.said(A);
    assert_eq!(bench.recall(1), []);
    assert_eq!(bench.recall(1), [], "a repeated message changes nothing");
    assert_eq!(bench.recall(9), [], "nor does one about a lease that is not ours");
    assert_eq!(bench.values(A, ms(20), &[2]), [value(2), want(1), release(1), close(A)]);
    assert_eq!(bench.client.queued(), 1, "the other waits for another lease");
}

#[test]
fn an_idle_lease_is_given_back_at_once_when_recalled() {
    let mut bench = Bench::with_leases(1);
    assert_eq!(bench.recall(1), [want(0), release(1), close(A)]);
}

#[test]
fn a_lease_recalled_before_its_link_is_open_does_one_task_first() {
    let mut bench = Bench::new();
    bench.submit_many(3);
    bench.granted(1);
    assert_eq!(bench.recall(1), [], "or whoever is far away would never get anything done");
    bench.pass(ms(300));
    assert_eq!(bench.tick(), []);
    assert_eq!(bench.up(A), [send_now(A), send_now(A)]);
    assert_eq!(bench.said(A), ["hello 0", "define f", "run 1=1"]);
    assert_eq!(bench.values(A, us(5), &[1]), [value(1), want(2), release(1), close(A)]);
}

#[test]
fn after_a_break_the_head_hears_how_things_stand() {
    let mut bench = Bench::with_leases(2);
    bench.submit_many(3);
    let hello = ClientToHead::Hello {
        client: ClientId(1),
        name: "bench".into(),
        leases: [1, 2]
            .map(|lease| Held {
                lease: LeaseId(lease),
                node: NodeId(1),
                incarnation: Incarnation(1),
                shape: Shape::cpus(1),
                exclusive: None,
            })
            .to_vec(),
        met: None,
        under: None,
        beats: false,
    };
    let synced = Effect::ToHead(ClientToHead::Synced);
    assert_eq!(bench.handle(Event::HeadUp), [Effect::ToHead(hello), want(4), synced]);
}

#[test]
fn standing_that_is_the_usual_one_again_is_said_on_a_new_link() {
    let mut bench = Bench::with_leases(1);
    let mut out = Vec::new();
    bench.client.set_standing(5, 2, &mut out);
    bench.client.set_standing(1, 0, &mut out);
    let usual = Effect::ToHead(ClientToHead::Standing { weight: 1, priority: 0 });
    assert!(bench.handle(Event::HeadUp).contains(&usual));
}

#[test]
fn what_can_never_be_placed_is_refused_and_may_be_asked_again() {
    let mut bench = Bench::new();
    bench.submit_many(2);
    let largest = Resources::default();
    let why = "no node has more than 0 CPUs".to_owned();
    let needs = Shape::cpus(1).needs;
    let refused = Outcome::Unplaceable(Box::new(Unplaceable { needs, largest, why: why.clone() }));
    let effects = bench.head_says(HeadToClient::Unplaceable { shape: Shape::cpus(1), largest, why });
    assert_eq!(effects, [want(0), finished(1, refused.clone()), finished(2, refused)]);
    assert_eq!(bench.submit(), [want(1)]);
}

#[test]
fn closing_ends_everything() {
    let mut bench = Bench::with_leases(1);
    bench.submit_many(3);
    let mut count = 0;
    let effects = bench.act(|client, _, out| count = client.close(out));
    assert_eq!(
        effects,
        [cancelled(1), cancelled(2), cancelled(3), close(A), Effect::ToHead(ClientToHead::Bye)]
    );
    assert_eq!((count, bench.client.pending()), (3, 0));
    assert_eq!(bench.submit(), [cancelled(4)]);
    assert_eq!(bench.granted(7), [release(7)]);
    assert_eq!(bench.tick(), []);
    assert_eq!(bench.died(1, Some(1), 0), []);
}

#[test]
fn idle_leases_of_other_shapes_make_room() {
    let mut bench = Bench::with_leases(2);
    let two = Shape::cpus(2);
    bench.submit_as(|spec| Spec { shape: two, ..spec });
    let crowded = || HeadToClient::Crowded { shape: two };
    assert_eq!(
        bench.head_says(crowded()),
        [want(1), release(1), close(A), want(0), release(2), close(B)],
        "both are idle, and it takes both"
    );
    assert_eq!(bench.head_says(HeadToClient::Crowded { shape: Shape::cpus(1) }), [], "nothing waits");
}

#[test]
fn a_program_that_fails_ends_what_waits_for_it_and_may_be_tried_again() {
    let mut bench = Bench::new();
    let start = Start { command: vec!["/bin/shapes".into()], variables: vec![] };
    let mut program = ProgramId::OWN;
    let said = bench.act(|client, _, out| program = client.add_program(start.clone(), out));
    assert_eq!(said, [Effect::ToHead(ClientToHead::Program { program, start: start.clone() })]);
    assert_eq!(bench.act(|client, _, out| program = client.add_program(start, out)), [], "said already");
    let shape = Shape { program, ..Shape::cpus(1) };
    let wants = [Effect::ToHead(ClientToHead::Want { shape, count: 1, exclusive: None })];
    assert_eq!(bench.submit_as(|spec| Spec { shape, ..spec }), wants);
    let why = StartError::NotRun { reason: "no such file".into() };
    let outcome = Outcome::NotStarted(Box::new(NotStarted { path: "/bin/shapes".into(), why: why.clone() }));
    let failed = bench.head_says(HeadToClient::ProgramFailed { program, why });
    let none = Effect::ToHead(ClientToHead::Want { shape, count: 0, exclusive: None });
    assert_eq!(failed, [none, finished(1, outcome)]);
    assert_eq!(bench.submit_as(|spec| Spec { shape, ..spec }), wants);
}
