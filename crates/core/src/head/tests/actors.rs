//! Actors that others call.

use super::*;
use paceline_proto::ActorId;

const ACTOR: ActorId = ActorId(77);

fn says(lease: Option<LeaseId>) -> ClientToHead {
    ClientToHead::Actor {
        actor: ACTOR,
        name: Some("x".into()),
        about: b"about".to_vec(),
        lease,
        gone: None,
        program: None,
    }
}

fn visit(held: Option<LeaseId>) -> ClientToHead {
    ClientToHead::Visit { actor: ACTOR, stay: true, held }
}

fn known() -> Effect {
    Effect::ToClient(A, HeadToClient::ActorKnown { actor: ACTOR, refused: None })
}

fn admit(guest: u64) -> Effect {
    let (host, secret) = (lease(1), secret(guest));
    Effect::ToNode(N1, HeadToNode::Admit { lease: lease(guest), host, secret, again: false })
}

fn visiting(guest: u64) -> Effect {
    let (lease, secret) = (lease(guest), secret(guest));
    let (node, slot) = (N1, SlotId(1));
    Effect::ToClient(B, HeadToClient::Visiting { actor: ACTOR, lease, node, slot, secret })
}

fn gone(why: &str) -> Effect {
    Effect::ToClient(B, HeadToClient::ActorGone { actor: ACTOR, why: why.into() })
}

fn placed(bench: &mut Bench, number: u64) -> Vec<Effect> {
    bench.node_says(N1, NodeToHead::Placed { lease: lease(number), slot: SlotId(1) })
}

fn ended(bench: &mut Bench, number: u64, death: Option<Death>) -> Vec<Effect> {
    bench.node_says(N1, NodeToHead::Ended { lease: lease(number), death })
}

/// The client `A` has a lease that hosts the actor, and `B` is here.
fn hosting() -> Bench {
    let mut bench = Bench::new();
    bench.hello(A, &[]);
    bench.hello(B, &[]);
    bench.join(N1, 2, &[]);
    bench.want(A, Shape::cpus(1), 1);
    placed(&mut bench, 1);
    assert_eq!(bench.client_says(A, says(Some(lease(1)))), [known()]);
    bench
}

/// And `B` visits it.
fn visited() -> Bench {
    let mut bench = hosting();
    bench.client_says(B, visit(None));
    placed(&mut bench, 2);
    bench
}

#[test]
fn a_visitor_gets_a_lease_when_the_node_has_admitted_it() {
    let mut bench = hosting();
    assert_eq!(bench.client_says(B, visit(None)), [admit(2)]);
    assert_eq!(placed(&mut bench, 2), [visiting(2)], "AC-3");
    assert_eq!(placed(&mut bench, 2), [], "HD-5");
    let status = bench.head.actors();
    assert_eq!(status.len(), 1);
    assert_eq!((status[0].owner, &status[0].visitors), (Some(A), &vec![B]));
}

#[test]
fn who_asks_before_the_owner_has_spoken_waits() {
    let mut bench = Bench::new();
    bench.hello(A, &[]);
    bench.hello(B, &[]);
    bench.join(N1, 2, &[]);
    bench.want(A, Shape::cpus(1), 1);
    placed(&mut bench, 1);
    assert_eq!(bench.client_says(B, visit(None)), []);
    assert_eq!(bench.client_says(A, says(Some(lease(1)))), [known(), admit(2)]);
}

#[test]
fn an_actor_that_nobody_has_is_gone() {
    let mut bench = Bench::new();
    bench.hello(B, &[]);
    bench.client_says(B, visit(None));
    let told = bench.pass(Duration::from_secs(7));
    assert!(
        matches!(&told[..], [Effect::ToClient(B, HeadToClient::ActorGone { actor: ACTOR, .. })]),
        "{told:?}"
    );
    let again = bench.client_says(B, visit(None));
    assert!(
        matches!(&again[..], [Effect::ToClient(B, HeadToClient::ActorGone { .. })]),
        "at once: {again:?}"
    );
}

#[test]
fn a_death_is_told_to_the_visitor_who_gets_another_lease_when_it_is_rebuilt() {
    let mut bench = visited();
    let death = Death {
        cause: DeathCause::Signal(9),
        out_of_memory: OutOfMemory::No,
        running: Some(Seq(4)),
        finished: Seq(3),
    };
    let told = Effect::ToClient(B, HeadToClient::Ended { lease: lease(2), death: death.clone() });
    assert_eq!(ended(&mut bench, 2, Some(death.clone())), [told]);
    bench.client_says(A, ClientToHead::Release { lease: lease(1) });
    ended(&mut bench, 1, Some(death));
    assert_eq!(bench.client_says(A, says(None)), [known()]);
    bench.want(A, Shape::cpus(1), 2);
    let next = bench.head.granted;
    placed(&mut bench, next);
    let out = bench.client_says(A, says(Some(lease(next))));
    let admitted = out.iter().any(
        |effect| matches!(effect, Effect::ToNode(N1, HeadToNode::Admit { host, .. }) if *host == lease(next)),
    );
    assert!(admitted, "AC-3: {out:?}");
}

#[test]
fn with_its_owner_the_actor_is_gone_once_the_visitor_knows_what_became_of_its_calls() {
    let mut bench = visited();
    let out = bench.handle(Event::ClientDown { client: A, end: LinkEnd::Dead });
    assert_eq!(out, [Effect::ToNode(N1, HeadToNode::End { lease: lease(1) })], "AC-4");
    let death = Death { running: Some(Seq(1)), ..Death::of_lost_node() };
    let told = Effect::ToClient(B, HeadToClient::Ended { lease: lease(2), death: death.clone() });
    let why = "its owner, the client test, has ended";
    assert_eq!(ended(&mut bench, 2, Some(death)), [told, gone(why)], "AC-5");
    assert_eq!(bench.client_says(B, visit(None)), [gone(why)]);
}

#[test]
fn a_name_is_of_one_actor() {
    let mut bench = hosting();
    let other = ClientToHead::Actor {
        actor: ActorId(5),
        name: Some("x".into()),
        about: Vec::new(),
        lease: None,
        gone: None,
        program: None,
    };
    let refused = bench.client_says(B, other.clone());
    let [Effect::ToClient(B, HeadToClient::ActorKnown { refused: Some(why), .. })] = &refused[..] else {
        panic!("AC-2: {refused:?}")
    };
    assert!(why.contains("the client test"), "{why}");
    let find = ClientToHead::Find { number: 3, name: "x".into() };
    let (number, comes) = (3, false);
    let found = |actor, about| Effect::ToClient(B, HeadToClient::Found { number, actor, about, comes });
    assert_eq!(bench.client_says(B, find.clone()), [found(Some(ACTOR), b"about".to_vec())]);
    let ends = ClientToHead::Actor {
        actor: ACTOR,
        name: None,
        about: Vec::new(),
        lease: None,
        gone: Some("it has done its work".into()),
        program: None,
    };
    let heard = HeadToClient::ActorGone { actor: ACTOR, why: "it has done its work".into() };
    assert_eq!(bench.client_says(A, ends), [Effect::ToClient(A, heard)], "GC-3");
    assert_eq!(bench.client_says(B, find), [found(None, Vec::new())]);
    let known = bench.client_says(B, other);
    assert!(matches!(&known[..], [Effect::ToClient(B, HeadToClient::ActorKnown { refused: None, .. })]));
}

#[test]
fn who_leaves_takes_its_lease_along() {
    let mut bench = visited();
    let leave = ClientToHead::Visit { actor: ACTOR, stay: false, held: None };
    assert_eq!(bench.client_says(B, leave), [Effect::ToNode(N1, HeadToNode::End { lease: lease(2) })]);
    assert_eq!(ended(&mut bench, 2, None), []);
}

#[test]
fn a_head_that_starts_again_finds_guests_where_they_were() {
    let mut bench = Bench::with(|config| config.epoch = Epoch(2));
    bench.hello_after(B, &[], Some(1));
    assert_eq!(bench.client_says(B, visit(Some(lease(9)))), []);
    bench.hello_after(A, &[lease(1)], Some(1));
    bench.join_after(N1, Incarnation(1), 2, &[(1, A)], Some(1));
    let out = bench.client_says(A, says(Some(lease(1))));
    let (guest, host, secret) = (lease(9), lease(1), secret(9));
    let again = Effect::ToNode(N1, HeadToNode::Admit { lease: guest, host, secret, again: true });
    assert_eq!(out, [known(), again]);
    assert_eq!(placed(&mut bench, 9), [], "it has it already");
    let lost = Effect::ToClient(B, HeadToClient::Ended { lease: guest, death: Death::of_lost_node() });
    let out = ended(&mut bench, 9, None);
    assert_eq!(out[0], lost, "if the node knows nothing of it after all");
}

/// Whether there is another slot for the actor.
fn rebuilds(out: &[Effect]) -> bool {
    out.iter().any(|effect| matches!(effect, Effect::ToNode(_, HeadToNode::Place { client: A, .. })))
}

/// The actor's node falls silent; another one is there. Its visitor is told that it is out of reach.
fn silent() -> Bench {
    let mut bench = visited();
    bench.join(N2, 2, &[]);
    let out = bench.pass_beating(N2, seconds(8));
    let away = |effect: &Effect| matches!(effect, Effect::ToClient(B, HeadToClient::ActorAway { .. }));
    assert!(out.iter().any(away) && !rebuilds(&out), "{out:?}");
    bench
}

#[test]
fn an_actor_on_a_silent_node_is_rebuilt_when_that_has_ended_it_by_its_own_clock() {
    let mut bench = silent();
    let [waits] = &bench.head.waits()[..] else { panic!("{:?}", bench.head.waits()) };
    assert!(waits.why.contains("is silent"), "{}", waits.why);
    assert!(!rebuilds(&bench.pass_beating(N2, seconds(50))), "FE-1");
    assert!(rebuilds(&bench.pass_beating(N2, seconds(6))));
}

#[test]
fn an_actor_on_a_silent_node_is_rebuilt_when_that_comes_back_without_it() {
    assert!(rebuilds(&silent().join(N1, 2, &[])), "FE-1");
}

#[test]
fn an_actor_on_a_silent_node_is_rebuilt_when_that_says_that_it_has_ended() {
    let mut bench = silent();
    assert!(!rebuilds(&bench.join(N1, 2, &[(1, A)])), "FE-1: it is there, still");
    assert!(rebuilds(&ended(&mut bench, 1, None)));
}

#[test]
fn what_is_no_actor_runs_elsewhere_at_once() {
    let mut bench = Bench::new();
    bench.hello(A, &[]);
    bench.join(N1, 2, &[]);
    bench.want(A, Shape::cpus(1), 1);
    placed(&mut bench, 1);
    bench.join(N2, 2, &[]);
    assert!(rebuilds(&bench.pass_beating(N2, seconds(8))));
}
