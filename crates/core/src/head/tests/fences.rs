//! What must exist once, and when it is rebuilt.

use super::actors::{ACTOR, EXCLUSIVE, ended, placed, says, visit, visited};
use super::*;
use paceline_proto::ExclusiveId;

/// Whether there is another slot for the actor.
pub(super) fn rebuilds(out: &[Effect]) -> bool {
    out.iter().any(|effect| matches!(effect, Effect::ToNode(_, HeadToNode::Place { client: A, .. })))
}

fn is_away(effect: &Effect) -> bool {
    matches!(effect, Effect::ToClient(B, HeadToClient::ActorAway { .. }))
}

/// The lease of the actor, as its owner knows it.
pub(super) fn held_once() -> Held {
    Held { exclusive: Some(EXCLUSIVE), ..held(lease(1)) }
}

/// The actor's node falls silent; another one is there. Its visitor is told that it is out of reach.
fn silent() -> Bench {
    let mut bench = visited();
    bench.join(N2, 2, &[]);
    let out = bench.pass_beating(N2, seconds(8));
    assert!(out.iter().any(is_away) && !rebuilds(&out), "{out:?}");
    bench
}

/// A head of the second start; the owner of the actor comes from the first, and the actor's node does not come.
pub(super) fn restarted(holds: bool) -> (Bench, Vec<Effect>) {
    let mut bench = Bench::with(|config| config.epoch = Epoch(2));
    bench.join_after(N2, Incarnation(1), 2, &[], Some(1));
    let leases = if holds { vec![held_once()] } else { Vec::new() };
    let hello = ClientToHead::Hello {
        client: A,
        name: "a".into(),
        leases,
        met: Some(met(1)),
        under: None,
        beats: false,
    };
    bench.client_says(A, hello);
    if !holds {
        bench.client_says(A, ClientToHead::Lost { lease: held_once() });
    }
    let out = bench.want_once(A);
    (bench, out)
}

#[test]
fn actor_on_a_silent_node_is_rebuilt_when_that_has_ended_it_by_its_own_clock() {
    let mut bench = silent();
    let [waits] = &bench.head.waits()[..] else { panic!("{:?}", bench.head.waits()) };
    assert!(waits.why.contains("does not answer"), "{}", waits.why);
    assert!(!rebuilds(&bench.pass_beating(N2, seconds(52))), "FE-2");
    assert!(rebuilds(&bench.pass_beating(N2, seconds(6))));
}

#[test]
fn actor_without_a_name_is_fenced_as_any_other() {
    let mut bench = Bench::new();
    bench.hello(A, &[]);
    bench.join(N1, 2, &[]);
    bench.want_once(A);
    placed(&mut bench, 1);
    bench.join(N2, 2, &[]);
    assert!(
        !rebuilds(&bench.pass_beating(N2, seconds(60))),
        "FE-1: the head knows nothing of it but its lease"
    );
    assert!(rebuilds(&bench.pass_beating(N2, seconds(6))));
}

#[test]
fn actor_on_a_silent_node_is_rebuilt_when_that_comes_back_without_it() {
    assert!(rebuilds(&silent().join(N1, 2, &[])), "FE-2");
}

#[test]
fn actor_on_a_silent_node_is_rebuilt_when_that_says_that_it_has_ended() {
    let mut bench = silent();
    assert!(!rebuilds(&bench.join(N1, 2, &[(1, A)])), "FE-2: it is there, still");
    assert!(
        !rebuilds(&bench.node_says(N2, NodeToHead::Ended { lease: lease(1), death: None })),
        "not its node"
    );
    assert!(rebuilds(&ended(&mut bench, 1, None)));
}

#[test]
fn earlier_start_of_the_node_proves_nothing_and_is_sent_away() {
    let mut bench = Bench::new();
    bench.hello(A, &[]);
    bench.join_as(N1, Incarnation(7), 2, &[]);
    bench.want_once(A);
    placed(&mut bench, 1);
    bench.join(N2, 2, &[]);
    let away = [welcome_node(N1), Effect::ToNode(N1, HeadToNode::Bye), Effect::DropNode(N1)];
    assert_eq!(bench.join_as(N1, Incarnation(6), 2, &[]), [], "FE-2: the later one is up");
    assert!(!rebuilds(&bench.pass_beating(N2, seconds(8))));
    assert_eq!(bench.join_as(N1, Incarnation(6), 2, &[]), away, "FE-2: the later one is silent");
    assert!(!rebuilds(&bench.pass_beating(N2, seconds(4))));
    assert!(
        rebuilds(&bench.join_as(N1, Incarnation(8), 2, &[])),
        "FE-2: a later start shows that it is gone"
    );
}

#[test]
fn slot_that_ends_delays_the_next_one_of_the_same_actor() {
    let mut bench = Bench::new();
    bench.hello(A, &[]);
    bench.join(N1, 2, &[]);
    bench.want_once(A);
    placed(&mut bench, 1);
    assert!(!rebuilds(&bench.release(A, 1)), "FE-1: it is asked to end, and may live");
    assert!(rebuilds(&ended(&mut bench, 1, None)));
}

#[test]
fn actor_claimed_from_a_new_head_is_fenced_when_its_node_does_not_come() {
    let (mut bench, out) = restarted(true);
    assert!(!rebuilds(&out), "HD-8: it has one");
    bench.hello(B, &[]);
    bench.client_says(A, says(Some(lease(1))));
    bench.client_says(B, visit(None));
    let out = bench.pass_beating(N2, seconds(8));
    assert!(out.contains(&super::ended(A, 1, node_lost())) && !rebuilds(&out), "FE-3: {out:?}");
    assert!(out.iter().any(is_away), "who calls it hears why: {out:?}");
    assert!(!rebuilds(&bench.pass_beating(N2, seconds(84))), "FE-3");
    assert!(rebuilds(&bench.pass_beating(N2, seconds(4))), "FE-3: it has ended by its own clock");
}

#[test]
fn actor_lost_under_an_earlier_head_is_fenced_by_the_next_one() {
    let (mut bench, out) = restarted(false);
    assert!(!rebuilds(&out), "FE-3");
    assert!(!rebuilds(&bench.pass_beating(N2, seconds(92))), "FE-3");
    assert!(rebuilds(&bench.pass_beating(N2, seconds(4))), "FE-3: it has ended by its own clock");
    let (mut bench, _) = restarted(false);
    assert!(
        rebuilds(&bench.join_after(N1, Incarnation(1), 2, &[], Some(1))),
        "FE-2: its node comes without it"
    );
    let (mut bench, _) = restarted(false);
    bench.hello(B, &[]);
    bench.client_says(A, says(None));
    let out = bench.client_says(B, visit(None));
    assert!(out.iter().any(is_away), "who calls {ACTOR:?} hears why: {out:?}");
}

#[test]
fn earlier_start_of_a_node_opens_no_fence_of_a_later_one() {
    let (mut bench, _) = restarted(false);
    let out = bench.join_after(N1, Incarnation(0), 2, &[], Some(1));
    assert!(!rebuilds(&out), "FE-2: what the later start has is there all the same: {out:?}");
}

#[test]
fn actor_given_back_before_its_node_has_come_is_fenced() {
    let (mut bench, _) = restarted(true);
    assert!(!rebuilds(&bench.release(A, 1)), "FE-3: its node does not know, and has it");
    assert!(rebuilds(&bench.join_after(N1, Incarnation(1), 2, &[], Some(1))), "FE-2");
}

#[test]
fn new_actor_is_placed_at_once_after_a_restart() {
    let (mut bench, _) = restarted(false);
    let other = Some(ExclusiveId(78));
    let shape = Shape { placement: PlacementId(3), ..Shape::cpus(1) };
    let rule = Rule { kept: true, ..Rule::default() };
    bench.client_says(A, ClientToHead::Placement { id: PlacementId(3), rule });
    assert!(rebuilds(&bench.client_says(A, ClientToHead::Want { shape, count: 1, exclusive: other })));
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

/// A head with a short `head_lost` after one with a long one.
pub(super) fn hastier(config: &mut Config) {
    config.epoch = Epoch(2);
    config.head_lost = seconds(10);
    config.earlier_head_lost = seconds(60);
}

#[test]
fn earlier_head_lost_holds_for_what_was_lost_under_it() {
    let mut bench = Bench::with(hastier);
    bench.join_after(N2, Incarnation(1), 2, &[], Some(1));
    let (name, leases) = ("a".into(), Vec::new());
    let hello = ClientToHead::Hello { client: A, name, leases, met: Some(met(1)), under: None, beats: false };
    bench.client_says(A, hello);
    bench.client_says(A, ClientToHead::Lost { lease: held_once() });
    assert!(!rebuilds(&bench.want_once(A)));
    assert!(!rebuilds(&bench.pass_beating(N2, seconds(92))), "FE-4");
    assert!(rebuilds(&bench.pass_beating(N2, seconds(4))), "FE-4");
}

/// The lease of the actor, as its node reports it.
pub(super) fn placement_once() -> Placement {
    Placement {
        lease: lease(1),
        client: A,
        slot: SlotId(1),
        shape: Shape::cpus(1),
        blocked: false,
        devices: Devices::default(),
        holder: A,
        epoch: Epoch(1),
        exclusive: Some(EXCLUSIVE),
    }
}

/// The first node comes from an earlier start of the head, and has not heard this one's welcome yet.
pub(super) fn joining(leases: Vec<Placement>) -> NodeToHead {
    NodeToHead::Join {
        node: N1,
        incarnation: Incarnation(1),
        name: "test".into(),
        total: Resources::cpus(2),
        leases,
        met: Some(met(1)),
        addresses: Vec::new(),
        facts: Facts::default(),
    }
}

#[test]
fn report_of_a_node_that_may_obey_an_earlier_head_proves_nothing() {
    for holds in [false, true] {
        let (mut bench, _) = restarted(holds);
        let out = bench.node_says(N1, joining(Vec::new()));
        assert!(!rebuilds(&out) && !out.contains(&super::ended(A, 1, node_lost())), "FE-5: {out:?}");
        let out = bench.node_says(N1, NodeToHead::Heartbeat { beat: 0 });
        assert!(rebuilds(&out), "FE-2: {out:?}");
        assert_eq!(out.contains(&super::ended(A, 1, node_lost())), holds, "HD-8: {out:?}");
    }
}

#[test]
fn node_hears_when_the_holder_of_an_actor_has_named_it() {
    let claimed = Effect::ToNode(N1, HeadToNode::HolderConfirmed { lease: lease(1) });
    let (mut bench, _) = restarted(true);
    bench.client_says(A, ClientToHead::Welcomed);
    assert!(bench.node_says(N1, joining(vec![placement_once()])).contains(&claimed), "it came first");
    // That may be lost with the link, and the node says that its lease is still of the earlier head.
    bench.handle(Event::NodeDown(N1));
    assert!(bench.node_says(N1, joining(vec![placement_once()])).contains(&claimed));
    bench.handle(Event::NodeDown(N1));
    let told = Placement { epoch: Epoch(2), ..placement_once() };
    assert!(!bench.node_says(N1, joining(vec![told])).contains(&claimed), "once it knows that is enough");

    let mut bench = Bench::with(|config| config.epoch = Epoch(2));
    assert!(!bench.node_says(N1, joining(vec![placement_once()])).contains(&claimed), "nobody has named it");
    let hello = ClientToHead::Hello {
        client: A,
        name: "a".into(),
        leases: vec![held_once()],
        met: Some(met(1)),
        under: None,
        beats: false,
    };
    bench.client_says(A, hello);
    assert!(bench.client_says(A, ClientToHead::Welcomed).contains(&claimed));
}

#[test]
fn earlier_head_lost_holds_for_a_node_that_has_not_heard_of_another() {
    let mut bench = Bench::with(hastier);
    bench.join_after(N2, Incarnation(1), 2, &[], Some(1));
    bench.node_says(N1, joining(vec![placement_once()]));
    let (name, leases) = ("a".into(), vec![held_once()]);
    let hello = ClientToHead::Hello { client: A, name, leases, met: Some(met(1)), under: None, beats: false };
    bench.client_says(A, hello);
    // Its welcome may be lost with its link.
    bench.handle(Event::NodeDown(N1));
    bench.want_once(A);
    assert!(!rebuilds(&bench.pass_beating(N2, seconds(98))), "FE-3, FE-4");
    assert!(rebuilds(&bench.pass_beating(N2, seconds(4))), "FE-3, FE-4");
}

#[test]
fn earlier_head_lost_is_forgotten_when_nothing_runs_under_it() {
    let mut bench = Bench::with(hastier);
    bench.join_after(N2, Incarnation(1), 2, &[], Some(1));
    let longest = |out: Vec<Effect>| {
        let writes = out.into_iter().filter_map(|effect| match effect {
            Effect::Write { write: crate::head::Write::HeadLost(longest), .. } => Some(longest),
            _ => None,
        });
        writes.collect::<Vec<_>>()
    };
    assert_eq!(longest(bench.pass_beating(N2, seconds(92))), [], "FE-4");
    assert_eq!(longest(bench.pass_beating(N2, seconds(4))), [seconds(10)], "FE-4");
    assert_eq!(longest(bench.pass_beating(N2, seconds(200))), [], "once is enough");
}
