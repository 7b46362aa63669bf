//! Names of actors after a restart of the head.

use super::actors::{ACTOR, says};
use super::*;
use paceline_proto::ActorId;

const OTHER: ActorId = ActorId(78);

/// A head of this start, with two clients that have never met another.
fn head_of_start(number: u64) -> Bench {
    let mut bench = Bench::with(|config| (config.epoch, config.settle) = (Epoch(number << 32), seconds(60)));
    bench.hello(A, &[]);
    bench.hello(B, &[]);
    bench
}

/// The same name for another actor.
fn rival() -> ClientToHead {
    match says(None) {
        ClientToHead::Actor { name, about, lease, gone, program, named, .. } => {
            ClientToHead::Actor { actor: OTHER, name, about, lease, gone, program, named }
        }
        other => other,
    }
}

fn known(client: ClientId, actor: ActorId) -> Effect {
    Effect::ToClient(client, HeadToClient::ActorKnown { actor, refused: None })
}

fn is_held(effects: &[Effect], by: ClientId) -> bool {
    matches!(effects, [Effect::ToClient(client, HeadToClient::NameHeld { .. })] if *client == by)
}

fn is_refused(effect: &Effect, by: ClientId) -> bool {
    matches!(effect, Effect::ToClient(client, HeadToClient::ActorKnown { refused: Some(_), .. }) if *client == by)
}

fn finds(bench: &mut Bench) -> (Option<ActorId>, bool) {
    match &bench.client_says(B, ClientToHead::Find { number: 1, name: "x".into() })[..] {
        [Effect::ToClient(_, HeadToClient::Found { actor, comes, .. })] => (*actor, *comes),
        other => panic!("{other:?}"),
    }
}

#[test]
fn new_name_at_the_first_start_is_given_at_once() {
    let mut bench = head_of_start(1);
    assert_eq!(finds(&mut bench), (None, false));
    assert_eq!(bench.client_says(A, says(None)), [known(A, ACTOR)]);
}

#[test]
fn new_name_after_a_restart_is_given_when_nothing_of_before_can_live() {
    let mut bench = head_of_start(2);
    assert!(is_held(&bench.client_says(B, rival()), B), "AC-8");
    assert_eq!(finds(&mut bench), (None, true), "AC-8: somebody may have it");
    assert_eq!(bench.pass(seconds(59)), []);
    assert_eq!(bench.pass(seconds(2)), [known(B, OTHER)]);
    assert_eq!(finds(&mut bench), (Some(OTHER), false));
}

#[test]
fn new_name_waits_for_as_long_as_actors_may_live_under_the_timing_of_before() {
    let mut bench = Bench::with(|config| {
        (config.epoch, config.settle) = (Epoch(2 << 32), seconds(10));
        (config.head_lost, config.earlier_head_lost) = (seconds(10), seconds(60));
    });
    bench.hello(A, &[]);
    bench.hello(B, &[]);
    let out = bench.client_says(B, rival());
    let [Effect::ToClient(B, HeadToClient::NameHeld { within, .. })] = &out[..] else { panic!("{out:?}") };
    assert!(*within >= seconds(93), "AC-8: {within:?}");
    assert_eq!(bench.pass(seconds(92)), [], "AC-8");
    assert_eq!(finds(&mut bench), (None, true), "AC-8: somebody may have it");
    assert!(bench.pass(seconds(2)).contains(&known(B, OTHER)));
}

#[test]
fn name_goes_to_the_owner_who_had_it_and_the_other_is_refused_at_once() {
    let mut bench = head_of_start(2);
    assert!(is_held(&bench.client_says(B, rival()), B));
    let ClientToHead::Actor { actor, name, about, lease, gone, program, .. } = says(None) else {
        unreachable!()
    };
    let back = ClientToHead::Actor { actor, name, about, lease, gone, program, named: true };
    let out = bench.client_says(A, back);
    assert!(
        matches!(&out[..], [first, second] if *first == known(A, ACTOR) && is_refused(second, B)),
        "{out:?}"
    );
    assert_eq!(bench.pass(seconds(70)), []);
    assert_eq!(finds(&mut bench), (Some(ACTOR), false));
}

#[test]
fn name_that_waits_is_forgotten_with_its_actor_and_its_client() {
    let mut bench = head_of_start(2);
    bench.client_says(B, rival());
    let ClientToHead::Actor { name, about, lease, program, .. } = says(None) else { unreachable!() };
    let gone = Some("it was not needed".into());
    bench.client_says(
        B,
        ClientToHead::Actor { actor: OTHER, name, about, lease, gone, program, named: false },
    );
    assert!(is_held(&bench.client_says(A, says(None)), A));
    bench.client_says(A, ClientToHead::Bye);
    assert_eq!(bench.pass(seconds(70)), []);
    assert_eq!(finds(&mut bench), (None, false));
}

#[test]
fn name_of_a_lost_owner_is_free_and_says_why() {
    let mut bench = head_of_start(1);
    bench.client_says(A, says(None));
    assert_eq!(finds(&mut bench), (Some(ACTOR), false));
    let why = |bench: &mut Bench| match &bench
        .client_says(B, ClientToHead::Find { number: 1, name: "x".into() })[..]
    {
        [Effect::ToClient(_, HeadToClient::Found { actor: None, comes: false, gone, .. })] => gone.clone(),
        other => panic!("{other:?}"),
    };
    bench.handle(Event::ClientDown { client: A, end: LinkEnd::Lost });
    assert_eq!(finds(&mut bench), (Some(ACTOR), false), "it may come back");
    bench.pass(seconds(31));
    let told = why(&mut bench).expect("AC-9");
    assert!(told.contains("its owner, the client test"), "AC-9: {told}");
    assert_eq!(bench.client_says(B, rival()), [known(B, OTHER)], "AC-9: the name is free");
    bench.client_says(B, ClientToHead::Bye);
    bench.hello(B, &[]);
}

/// Another actor of the same name, of client `B`.
fn another() -> ClientToHead {
    let (actor, name, about) = (ActorId(78), Some("x".into()), Vec::new());
    ClientToHead::Actor { actor, name, about, lease: None, gone: None, program: None, named: false }
}

fn is_known(out: &[Effect]) -> bool {
    let known = |effect: &Effect| {
        matches!(effect, Effect::ToClient(B, HeadToClient::ActorKnown { refused: None, .. }))
    };
    out.iter().any(known)
}

#[test]
fn name_of_an_actor_whose_process_may_live_waits_for_its_end() {
    let mut bench = actors::visited();
    bench.client_says(A, ClientToHead::Bye);
    assert_eq!(bench.client_says(B, another()), [], "AC-12");
    let out = bench.pass_beating(N1, Duration::from_secs(5));
    let told = |effect: &Effect| matches!(effect, Effect::ToClient(B, HeadToClient::NameHeld { .. }));
    assert_eq!(out.iter().filter(|effect| told(effect)).count(), 1, "AC-12: {out:?}");
    assert!(is_known(&actors::ended(&mut bench, 1, None)), "AC-12");
}

#[test]
fn name_of_an_actor_on_a_node_that_stays_silent_is_free_when_its_fence_is_open() {
    let mut bench = actors::visited();
    bench.client_says(A, ClientToHead::Bye);
    bench.client_says(B, another());
    let mut out = bench.pass(Duration::from_secs(30));
    assert!(!is_known(&out), "AC-12: {out:?}");
    out.extend(bench.pass(Duration::from_secs(60)));
    assert!(is_known(&out), "AC-12: {out:?}");
}
