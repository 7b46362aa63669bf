//! Actors that others call.

use super::*;
use paceline_proto::{ActorId, ExclusiveId};

pub(super) const ACTOR: ActorId = ActorId(77);
/// The same, as something that must exist once.
pub(super) const EXCLUSIVE: ExclusiveId = ExclusiveId(77);

pub(super) fn says(lease: Option<LeaseId>) -> ClientToHead {
    ClientToHead::Actor {
        actor: ACTOR,
        name: Some("x".into()),
        about: b"about".to_vec(),
        lease,
        gone: None,
        program: None,
        named: false,
    }
}

pub(super) fn visit(held: Option<LeaseId>) -> ClientToHead {
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

pub(super) fn placed(bench: &mut Bench, number: u64) -> Vec<Effect> {
    bench.node_says(N1, NodeToHead::Placed { lease: lease(number), slot: SlotId(1) })
}

pub(super) fn ended(bench: &mut Bench, number: u64, death: Option<Death>) -> Vec<Effect> {
    bench.node_says(N1, NodeToHead::Ended { lease: lease(number), death })
}

/// The client `A` has a lease that hosts the actor, and `B` is here.
fn hosting() -> Bench {
    hosting_at(vec![])
}

/// The same, where nodes have addresses.
fn hosting_at(addresses: Vec<Address>) -> Bench {
    let mut bench = Bench { addresses, ..Bench::new() };
    bench.hello(A, &[]);
    bench.hello(B, &[]);
    bench.join(N1, 2, &[]);
    bench.want_once(A);
    placed(&mut bench, 1);
    assert_eq!(bench.client_says(A, says(Some(lease(1)))), [known()]);
    bench
}

/// And `B` visits it.
pub(super) fn visited() -> Bench {
    visited_at(vec![])
}

pub(super) fn visited_at(addresses: Vec<Address>) -> Bench {
    let mut bench = hosting_at(addresses);
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
        named: false,
    };
    let refused = bench.client_says(B, other.clone());
    let [Effect::ToClient(B, HeadToClient::ActorKnown { refused: Some(why), .. })] = &refused[..] else {
        panic!("AC-2: {refused:?}")
    };
    assert!(why.contains("the client test"), "{why}");
    let find = ClientToHead::Find { number: 3, name: "x".into() };
    let (number, comes) = (3, false);
    let found =
        |actor, about, gone| Effect::ToClient(B, HeadToClient::Found { number, actor, about, comes, gone });
    assert_eq!(bench.client_says(B, find.clone()), [found(Some(ACTOR), b"about".to_vec(), None)]);
    let ends = ClientToHead::Actor {
        actor: ACTOR,
        name: None,
        about: Vec::new(),
        lease: None,
        gone: Some("it has done its work".into()),
        program: None,
        named: false,
    };
    let heard = HeadToClient::ActorGone { actor: ACTOR, why: "it has done its work".into() };
    assert_eq!(bench.client_says(A, ends), [Effect::ToClient(A, heard)], "GC-3");
    assert_eq!(
        bench.client_says(B, find),
        [found(None, Vec::new(), Some("it has done its work".into()))],
        "AC-9"
    );
    assert_eq!(bench.client_says(B, other), [], "AC-12: its process may live");
    bench.release(A, 1);
    let known = ended(&mut bench, 1, None);
    let known: Vec<_> = known.into_iter().filter(|effect| matches!(effect, Effect::ToClient(B, _))).collect();
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

#[test]
fn guest_lease_not_named_on_a_new_link_is_replaced() {
    let mut bench = visited();
    bench.handle(Event::ClientDown { client: B, end: LinkEnd::Reset });
    // It left and came back meanwhile, or the word of its lease was lost: the slot may know calls that it does not.
    bench.hello(B, &[]);
    let lost = Effect::ToClient(B, HeadToClient::Ended { lease: lease(2), death: Death::of_lost_node() });
    let fresh = bench.head.granted + 1;
    assert_eq!(bench.client_says(B, visit(None)), [end(N1, 2), lost, admit(fresh)], "AC-7");
    assert_eq!(bench.client_says(B, visit(None)), [], "HD-5");
    assert_eq!(placed(&mut bench, fresh), [visiting(fresh)]);
}

#[test]
fn guest_lease_named_to_a_later_head_and_not_on_the_next_link_is_replaced() {
    let mut bench = Bench::with(|config| config.epoch = Epoch(2));
    bench.hello_after(B, &[], Some(1));
    bench.client_says(B, visit(Some(lease(9))));
    bench.hello_after(A, &[lease(1)], Some(1));
    bench.join_after(N1, Incarnation(1), 2, &[(1, A)], Some(1));
    bench.client_says(A, says(Some(lease(1))));
    bench.handle(Event::ClientDown { client: B, end: LinkEnd::Reset });
    bench.hello_after(B, &[], Some(2));
    let out = bench.client_says(B, visit(None));
    let fresh = admit(bench.head.granted);
    assert!(out.contains(&fresh), "AC-7: nobody would tell it of the lease that it has given up: {out:?}");
}

#[test]
fn guest_lease_ends_with_its_host_when_the_actor_has_moved_on() {
    let mut bench = visited();
    bench.want(A, Shape::cpus(1), 2);
    let second = bench.head.granted;
    placed(&mut bench, second);
    bench.client_says(A, says(Some(lease(second))));
    bench.client_says(A, ClientToHead::Release { lease: lease(1) });
    bench.handle(Event::NodeDown(N1));
    // The node has ended everything meanwhile, and says no more of it.
    let out = bench.join(N1, 2, &[]);
    let lost = Effect::ToClient(B, HeadToClient::Ended { lease: lease(2), death: Death::of_lost_node() });
    assert!(out.contains(&lost), "AC-1: {out:?}");
}

#[test]
fn visitor_that_names_another_lease_as_its_own_does_not_get_it() {
    let mut bench = visited();
    bench.hello(C, &[]);
    for named in [1, 2] {
        let out = bench.client_says(C, visit(Some(lease(named))));
        let lost =
            Effect::ToClient(C, HeadToClient::Ended { lease: lease(named), death: Death::of_lost_node() });
        assert_eq!(out, [lost, admit(bench.head.granted)], "AC-1");
        let leave = ClientToHead::Visit { actor: ACTOR, stay: false, held: None };
        bench.client_says(C, leave);
    }
    // The host and the other visitor have what they had.
    let told = Effect::ToClient(B, HeadToClient::Ended { lease: lease(2), death: killed() });
    assert_eq!(ended(&mut bench, 2, Some(killed())), [told]);
    let told = Effect::ToClient(A, HeadToClient::Ended { lease: lease(1), death: killed() });
    assert!(ended(&mut bench, 1, Some(killed())).contains(&told));
}

#[test]
fn lease_that_a_visitor_named_as_its_own_is_adopted_from_the_node_that_has_it() {
    let mut bench = Bench::with(|config| config.epoch = Epoch(2));
    bench.hello_after(A, &[lease(1)], Some(1));
    bench.join_after(N1, Incarnation(1), 2, &[(1, A)], Some(1));
    bench.client_says(A, says(Some(lease(1))));
    bench.hello(B, &[]);
    bench.client_says(B, visit(Some(lease(9))));
    bench.hello_after(C, &[lease(9)], Some(1));
    bench.join_after(N2, Incarnation(1), 2, &[(9, C)], Some(1));
    let out = bench.node_says(N2, NodeToHead::Ended { lease: lease(9), death: Some(killed()) });
    assert!(!bench.head.leases.contains_key(&lease(9)), "AC-1: {out:?}");
}

#[test]
fn an_actor_that_its_owner_does_not_name_on_a_new_link_is_gone() {
    let mut bench = visited();
    bench.handle(Event::ClientDown { client: A, end: LinkEnd::Lost });
    bench.hello(A, &[lease(1)]);
    let out = bench.client_says(A, ClientToHead::Synced);
    // Its visitor is told when its lease is over.
    assert_eq!(out, []);
    assert!(bench.head.actors().is_empty(), "AC-10");
}

#[test]
fn an_actor_that_is_named_on_a_new_link_stays() {
    let mut bench = visited();
    bench.handle(Event::ClientDown { client: A, end: LinkEnd::Lost });
    bench.hello(A, &[lease(1)]);
    bench.client_says(A, says(Some(lease(1))));
    assert_eq!(bench.client_says(A, ClientToHead::Synced), [], "AC-10");
    // Of what it says later nothing is missing.
    assert_eq!(bench.client_says(A, ClientToHead::Synced), [], "HD-5");
    assert_eq!(bench.head.actors().len(), 1);
}

#[test]
fn a_visit_that_is_not_named_on_a_new_link_is_over() {
    let mut bench = visited();
    bench.handle(Event::ClientDown { client: B, end: LinkEnd::Lost });
    bench.hello(B, &[]);
    let out = bench.client_says(B, ClientToHead::Synced);
    assert_eq!(out, [Effect::ToNode(N1, HeadToNode::End { lease: lease(2) })], "AC-10");
    assert!(bench.head.actors()[0].visitors.is_empty());
}

/// What `B` says of the actor of `A` that it has destroyed.
fn destroys() -> ClientToHead {
    let gone = Some("it was destroyed".into());
    let (name, about, lease, program) = (None, Vec::new(), None, None);
    ClientToHead::Actor { actor: ACTOR, name, about, lease, gone, program, named: false }
}

fn is_told_to_destroy(out: &[Effect]) -> bool {
    let told =
        |effect: &Effect| matches!(effect, Effect::ToClient(A, HeadToClient::ActorGone { actor: ACTOR, .. }));
    out.iter().any(told)
}

#[test]
fn owner_of_a_destroyed_actor_that_is_away_is_told_when_it_comes_back() {
    let mut bench = visited();
    bench.handle(Event::ClientDown { client: A, end: LinkEnd::Lost });
    bench.client_says(B, destroys());
    bench.hello(A, &[lease(1)]);
    assert!(is_told_to_destroy(&bench.client_says(A, says(Some(lease(1))))), "AC-11");
}

#[test]
fn owner_of_a_destroyed_actor_that_the_head_does_not_know_yet_is_told_when_it_comes() {
    let mut bench = Bench::new();
    bench.hello(B, &[]);
    bench.client_says(B, visit(None));
    bench.client_says(B, destroys());
    bench.hello(A, &[]);
    assert!(is_told_to_destroy(&bench.client_says(A, says(None))), "AC-11");
}

#[test]
fn owner_of_a_destroyed_actor_that_was_given_up_is_told_when_it_comes_all_the_same() {
    let mut bench = Bench::new();
    bench.hello(B, &[]);
    bench.client_says(B, visit(None));
    bench.client_says(B, destroys());
    let out = bench.pass(Duration::from_secs(30));
    assert!(
        out.iter().any(|effect| matches!(effect, Effect::ToClient(B, HeadToClient::ActorGone { .. }))),
        "{out:?}"
    );
    bench.hello(A, &[]);
    assert!(is_told_to_destroy(&bench.client_says(A, says(None))), "AC-11");
    let (name, about, lease, program, gone) = (None, Vec::new(), None, None, Some("it was destroyed".into()));
    bench.client_says(
        A,
        ClientToHead::Actor { actor: ACTOR, name, about, lease, gone, program, named: false },
    );
    assert!(bench.head.actors().is_empty());
}
