//! What one client may make the head remember.

use super::*;
use paceline_proto::placement::Member;
use paceline_proto::{ActorId, Rule, Start};

fn bench(adjust: impl FnOnce(&mut Config)) -> Bench {
    let mut bench = Bench::with(adjust);
    bench.hello(A, &[]);
    bench.join(N1, 2, &[]);
    bench
}

/// Why a request was refused, if it was.
fn refused(effects: &[Effect]) -> Option<&str> {
    effects.iter().find_map(|effect| match effect {
        Effect::ToClient(_, HeadToClient::Unplaceable { why, .. }) => Some(why.as_str()),
        Effect::ToClient(_, HeadToClient::ActorKnown { refused: Some(why), .. }) => Some(why),
        Effect::ToClient(_, HeadToClient::ActorGone { why, .. }) => Some(&why.why),
        _ => None,
    })
}

fn shape(number: u64) -> Shape {
    Shape { placement: PlacementId(number), ..Shape::cpus(1) }
}

fn group(bench: &mut Bench, number: u64, counts: &[u32]) {
    let member = |&count| Member { needs: Resources::cpus(1), program: ProgramId::OWN, count };
    let rule = Rule { gang: counts.iter().map(member).collect(), ..Rule::default() };
    bench.client_says(A, ClientToHead::Placement { id: PlacementId(number), rule });
}

#[test]
fn group_larger_than_the_limit_is_refused() {
    let mut bench = bench(|config| config.max_group_members = 2);
    group(&mut bench, 1, &[u32::MAX]);
    group(&mut bench, 2, &[u32::MAX, 3]);
    group(&mut bench, 3, &[2]);
    for number in [1, 2] {
        let effects = bench.want(A, shape(number), 1);
        assert!(refused(&effects).unwrap().contains("max_group_members"), "{effects:?}");
    }
    assert_eq!(refused(&bench.want(A, shape(3), 2)), None);
}

#[test]
fn requests_beyond_the_limit_are_refused_one_by_one() {
    let mut bench = bench(|config| {
        (config.max_shapes, config.max_placements, config.max_programs) = (2, 3, 1);
    });
    for number in 1..=4 {
        group(&mut bench, number, &[]);
    }
    let effects = bench.want(A, shape(4), 1);
    assert!(refused(&effects).unwrap().contains("max_placements"), "{effects:?}");
    assert_eq!(refused(&bench.want(A, shape(1), 1)), None);
    assert_eq!(refused(&bench.want(A, shape(2), 1)), None);
    let effects = bench.want(A, shape(3), 1);
    assert!(refused(&effects).unwrap().contains("max_shapes"), "{effects:?}");
    assert_eq!(refused(&bench.want(A, shape(2), 7)), None, "it has that one already");
    bench.want(A, shape(1), 0);
    for program in [1, 2] {
        bench.client_says(A, ClientToHead::Program { program: ProgramId(program), start: Start::default() });
    }
    let of = |program| Shape { program: ProgramId(program), ..Shape::cpus(1) };
    assert!(refused(&bench.want(A, of(2), 1)).unwrap().contains("max_programs"));
    assert_eq!(refused(&bench.want(A, of(1), 1)), None);
}

#[test]
fn rule_that_was_dropped_behind_an_oversized_group_is_refused() {
    let mut bench = bench(|config| (config.max_group_members, config.max_placements) = (2, 2));
    group(&mut bench, 1, &[3]);
    group(&mut bench, 2, &[]);
    group(&mut bench, 3, &[]);
    let effects = bench.want(A, shape(3), 1);
    assert!(refused(&effects).unwrap().contains("max_placements"), "{effects:?}");
    assert_eq!(refused(&bench.want(A, shape(2), 1)), None);
}

#[test]
fn actors_beyond_the_limit_are_refused() {
    let mut bench = bench(|config| (config.max_actors, config.max_called_actors) = (2, 1));
    bench.hello(B, &[]);
    let own = |client, number, bench: &mut Bench| {
        bench.client_says(
            client,
            ClientToHead::Actor {
                actor: ActorId(number),
                name: None,
                about: Vec::new(),
                lease: None,
                gone: None,
                program: None,
                named: false,
            },
        )
    };
    assert_eq!(refused(&own(A, 1, &mut bench)), None);
    assert_eq!(refused(&own(A, 2, &mut bench)), None);
    assert!(refused(&own(A, 3, &mut bench)).unwrap().contains("max_actors"));
    assert_eq!(refused(&own(A, 2, &mut bench)), None, "it has that one already");
    assert_eq!(refused(&own(B, 3, &mut bench)), None, "another client has its own");
    let visit = |number, stay| ClientToHead::Visit { actor: ActorId(number), stay, held: None };
    assert_eq!(refused(&bench.client_says(B, visit(1, true))), None);
    assert!(refused(&bench.client_says(B, visit(2, true))).unwrap().contains("max_called_actors"));
    bench.client_says(B, visit(1, false));
    assert_eq!(refused(&bench.client_says(B, visit(4, true))), None, "its owner may not have come yet");
    let told = own(A, 4, &mut bench);
    let gone = |effect: &Effect| matches!(effect, Effect::ToClient(B, HeadToClient::ActorGone { why, .. }) if why.why.contains("max_actors"));
    assert!(told.iter().any(gone), "who waits for it hears why: {told:?}");
    assert!(bench.client_says(B, visit(4, true)).iter().any(gone), "and who asks later");
    bench.client_says(B, visit(1, true));
    bench.client_says(B, visit(1, false));
    assert_eq!(refused(&bench.client_says(B, visit(2, true))), None);
}

fn program(number: u64, bytes: usize) -> ClientToHead {
    let start = Start { command: vec!["x".repeat(bytes)], variables: Vec::new() };
    ClientToHead::Program { program: ProgramId(number), start }
}

fn of_program(number: u64) -> Shape {
    Shape { program: ProgramId(number), ..Shape::cpus(1) }
}

/// A shape for each number.
fn small(number: u64) -> Shape {
    let needs = Resources::fractional_cpus(number as f64 / 1000.0).unwrap();
    Shape { needs, ..Shape::cpus(1) }
}

fn named_actor(number: u128, about: usize) -> ClientToHead {
    ClientToHead::Actor {
        actor: ActorId(number),
        name: Some(format!("actor-{number}")),
        about: vec![0; about],
        lease: None,
        gone: None,
        program: None,
        named: false,
    }
}

fn kept(bench: &Bench, root: ClientId) -> usize {
    bench.head.books.of_root(root)
}

#[test]
fn programs_beyond_the_bytes_of_a_client_are_refused() {
    let mut bench = bench(|config| config.max_client_state = 20_000);
    for number in 1..=3 {
        bench.client_says(A, program(number, 8_000));
    }
    assert!(kept(&bench, A) <= 20_000, "BK-1: {}", kept(&bench, A));
    assert_eq!(refused(&bench.want(A, of_program(2), 1)), None);
    let effects = bench.want(A, of_program(3), 1);
    assert!(refused(&effects).unwrap().contains("max_client_state"), "{effects:?}");
    bench.hello(B, &[]);
    bench.client_says(B, program(3, 8_000));
    assert_eq!(refused(&bench.want(B, of_program(3), 1)), None, "another client has its own");
}

#[test]
fn the_last_byte_of_a_client_is_its_own() {
    let start = |bytes| match program(1, bytes) {
        ClientToHead::Program { start, .. } => start,
        _ => unreachable!("a program is declared"),
    };
    let weight = |bytes| crate::head::books::program_weight(&start(bytes));
    for (more, fits) in [(0, true), (1, false)] {
        let mut bench = bench(|config| config.max_client_state = 20_000);
        let rest = 20_000 - kept(&bench, A) - weight(0);
        bench.client_says(A, program(1, rest + more));
        assert_eq!(kept(&bench, A) == 20_000, fits, "BK-1: {}", kept(&bench, A));
    }
}

#[test]
fn rules_requests_and_preferred_nodes_count() {
    let mut bench = bench(|config| config.max_client_state = 30_000);
    let long = Rule { nodes: vec!["n".repeat(20_000)], ..Rule::default() };
    bench.client_says(A, ClientToHead::Placement { id: PlacementId(1), rule: long.clone() });
    bench.client_says(A, ClientToHead::Placement { id: PlacementId(2), rule: long });
    assert!(refused(&bench.want(A, shape(2), 1)).unwrap().contains("max_client_state"));
    let near = ClientToHead::Near { shape: Shape::cpus(1), nodes: vec![(N1, 1); 1000] };
    let before = kept(&bench, A);
    bench.client_says(A, near);
    assert_eq!(kept(&bench, A), before, "BK-1: there is no room for a wish");
    let wants = (1..100).map(|number| bench.want(A, small(number), 1)).collect::<Vec<_>>();
    let told = wants.iter().filter_map(|effects| refused(effects)).collect::<Vec<_>>();
    assert!(told.iter().any(|why| why.contains("max_client_state")), "{told:?}");
    assert!(kept(&bench, A) <= 30_000, "BK-1: {}", kept(&bench, A));
    let full = kept(&bench, A);
    for number in 1..100 {
        bench.want(A, small(number), 0);
    }
    assert!(kept(&bench, A) < full, "BK-2: what is not wanted any more is not counted");
}

#[test]
fn actors_count_by_their_bytes() {
    let mut bench = bench(|config| config.max_client_state = 20_000);
    assert_eq!(refused(&bench.client_says(A, named_actor(1, 10_000))), None);
    let effects = bench.client_says(A, named_actor(2, 10_000));
    assert!(refused(&effects).unwrap().contains("max_client_state"), "{effects:?}");
    assert_eq!(refused(&bench.client_says(A, named_actor(1, 10_000))), None, "it is there already");
    assert!(refused(&bench.client_says(A, named_actor(1, 20_000))).is_some(), "BK-1: nor does it grow");
    let mut gone = named_actor(1, 0);
    if let ClientToHead::Actor { gone, .. } = &mut gone {
        *gone = Some("over".into());
    }
    bench.client_says(A, gone);
    assert_eq!(refused(&bench.client_says(A, named_actor(2, 10_000))), None, "there is room again");
    bench.hello(B, &[]);
    let visits = (10..100).map(|number| {
        let visit = ClientToHead::Visit { actor: ActorId(number), stay: true, held: None };
        bench.client_says(B, visit)
    });
    let told: Vec<String> = visits.filter_map(|effects| refused(&effects).map(str::to_owned)).collect();
    assert!(told.iter().any(|why| why.contains("max_client_state")), "{told:?}");
}

#[test]
fn slots_that_are_clients_count_for_their_root() {
    let mut bench = bench(|config| config.max_client_state = 30_000);
    bench.want(A, Shape::cpus(1), 1);
    bench.placed(N1, 1);
    let lease = lease(1);
    let hello = |client| ClientToHead::Hello {
        client: ClientId(client),
        name: "slot".into(),
        leases: vec![],
        met: None,
        under: Some(lease),
        beats: false,
    };
    let alone = kept(&bench, A);
    let mut told = Vec::new();
    for client in 100..200 {
        let effects = bench.client_says(ClientId(client), hello(client));
        told.extend(effects.into_iter().filter(|effect| matches!(effect, Effect::DropClient(_))));
    }
    assert!(!told.is_empty(), "BK-1: there is an end to it");
    assert!(kept(&bench, A) > alone && kept(&bench, A) <= 30_000, "BK-1: {}", kept(&bench, A));
    let first = ClientId(100);
    assert!(refused(&bench.client_says(first, program(1, 30_000))).is_none());
    bench.handle(Event::ClientDown { client: first, end: LinkEnd::Dead });
    assert!(kept(&bench, A) <= 30_000);
}

#[test]
fn reasons_of_actors_that_are_gone_are_bounded() {
    let mut bench = Bench::new();
    bench.hello(A, &[]);
    for number in 0..600 {
        let gone = ClientToHead::Actor {
            actor: ActorId(number),
            name: None,
            about: Vec::new(),
            lease: None,
            gone: Some("x".repeat(64 << 10).into()),
            program: None,
            named: false,
        };
        // `check` compares with the limit.
        bench.client_says(A, gone);
    }
}

#[test]
fn records_of_programs_beyond_their_bytes_are_refused() {
    let mut bench = bench(|config| config.max_submitted_bytes = 10_000);
    let mut submit = |name: &str, bytes| {
        let work = Work {
            token: bytes as u128,
            name: name.into(),
            needs: Resources::cpus(1),
            start: vec![0; bytes],
            ..Work::default()
        };
        bench.handle(Event::Submit { asker: 1, work })
    };
    let told = |effects: &[Effect]| {
        effects.iter().find_map(|effect| match effect {
            Effect::Told { told: Err(why), .. } => Some(why.clone()),
            _ => None,
        })
    };
    assert_eq!(told(&submit("first", 6_000)), None);
    assert!(told(&submit("second", 4_000)).unwrap().contains("max_submitted_bytes"));
    assert_eq!(told(&submit("third", 3_990)), None);
}
