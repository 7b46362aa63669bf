//! Pools: slots with state of their own, and actors.

use super::*;
use crate::client::{ActorDied, Card, PoolBroken, PoolId, PoolSpec, Standing, Within};
use paceline_proto::control::Timing;
use paceline_proto::{ActorId, ClusterId, Epoch, ExclusiveId, ProgramId, Rule};

fn spec(size: u32) -> PoolSpec {
    PoolSpec {
        size,
        eager: true,
        once: false,
        exclusive: None,
        restarts: None,
        owner_program: None,
        calls_per_slot: None,
        history: 1000,
        needs: Resources::default(),
        program: ProgramId::OWN,
        rule: Rule::default(),
    }
}

/// Of an actor.
fn actor(restarts: u32) -> PoolSpec {
    PoolSpec { once: true, restarts: Some(restarts), ..spec(1) }
}

impl Bench {
    fn open_pool(&mut self, spec: PoolSpec) -> (PoolId, Vec<Effect<u64>>) {
        let mut id = None;
        let out = self.act(|client, _, out| id = Some(client.open_pool(spec, out)));
        (id.unwrap(), out)
    }

    /// A pool whose slots are up, on leases 1, 2 and so on, and prepared by one call.
    fn pool(spec: PoolSpec) -> (Bench, PoolId) {
        let mut bench = Bench::new();
        let size = u64::from(spec.size);
        let (pool, _) = bench.open_pool(spec);
        bench.stand(&pool, None, None);
        for lease in 1..=size {
            bench.grant_to(&pool, lease);
            let key = bench.client.lease_keys[&LeaseId(lease.into())];
            bench.up(key);
            bench.said(key);
            bench.values(key, us(1), &[1]);
        }
        (bench, pool)
    }

    fn grant_to(&mut self, pool: &PoolId, lease: u64) -> Vec<Effect<u64>> {
        let exclusive = self.client.pool_key(pool).and_then(|key| self.client.exclusive_of(key));
        self.grant_for(pool, lease, exclusive)
    }

    /// The same of a lease that was asked for on behalf of this.
    fn grant_for(&mut self, pool: &PoolId, lease: u64, exclusive: Option<ExclusiveId>) -> Vec<Effect<u64>> {
        self.replies.resize(self.replies.len().max(lease as usize + 1), 0);
        self.head_says(HeadToClient::Granted {
            lease: LeaseId(lease.into()),
            node: NodeId(1),
            slot: SlotId(lease),
            shape: pool.shape,
            incarnation: Incarnation(1),
            secret: LeaseSecret::default(),
            exclusive,
        })
    }

    fn stand(&mut self, pool: &PoolId, ticket: Option<u64>, key: Option<&'static str>) -> Vec<Effect<u64>> {
        let call = Standing {
            function: self.functions[1],
            payload: Bytes::from("standing"),
            name: "prepare".into(),
            replaces: key.map(Bytes::from),
        };
        self.act(|client, now, out| {
            client.update_pool(now, pool, call, ticket, out).unwrap();
        })
    }

    fn submit_in(&mut self, pool: &PoolId) -> Vec<Effect<u64>> {
        let (shape, within) = (pool.shape, Within::Pool(pool.number));
        self.submit_as(|spec| Spec { shape, within, ..spec })
    }

    /// The numbers of the calls that go out on a lease.
    fn runs(&mut self, key: LeaseKey) -> Vec<u64> {
        let said = self.said(key);
        let runs = said.iter().filter_map(|said| said.strip_prefix("run "));
        let calls = runs.flat_map(|run| run.split(' '));
        calls.map(|call| call.split('=').next().unwrap().parse().unwrap()).collect()
    }
}

fn outcomes(effects: &[Effect<u64>]) -> Vec<(u64, Outcome)> {
    let ends = effects.iter().filter_map(|effect| match effect {
        Effect::Finished { ticket, outcome, .. } => Some((*ticket, outcome.clone())),
        _ => None,
    });
    ends.collect()
}

/// The same of an actor, which must exist once.
fn wants_once(pool: &PoolId, count: u32, exclusive: Option<ExclusiveId>) -> Effect<u64> {
    Effect::ToHead(ClientToHead::Want { shape: pool.shape, count, exclusive })
}

fn wants(pool: &PoolId, count: u32) -> Effect<u64> {
    wants_once(pool, count, None)
}

#[test]
fn a_slot_is_prepared_before_it_gets_a_call() {
    let mut bench = Bench::new();
    let (pool, effects) = bench.open_pool(spec(2));
    assert!(matches!(&effects[0], Effect::ToHead(ClientToHead::Placement { rule, .. }) if rule.kept));
    assert_eq!(effects[1..], [wants(&pool, 2)], "all are asked for");
    bench.stand(&pool, None, None);
    bench.submit_in(&pool);
    bench.grant_to(&pool, 1);
    bench.up(A);
    assert_eq!(bench.runs(A), [1], "PL-2: the standing call alone");
    bench.values(A, ms(1), &[1]);
    assert_eq!(bench.runs(A), [2]);
    bench.values(A, ms(1), &[2]);
    bench.pass(ms(9_000));
    assert_eq!(bench.tick(), [], "PL-4: idle slots are kept");
    bench.grant_to(&pool, 2);
    assert_eq!(bench.grant_to(&pool, 3), [release(3)], "PL-4");
}

#[test]
fn an_update_comes_between_calls() {
    let (mut bench, pool) = Bench::pool(spec(2));
    // Of a function that nothing is known of, two go to each slot.
    (0..6).for_each(|_| drop(bench.submit_in(&pool)));
    assert_eq!((bench.runs(A).len(), bench.runs(B).len()), (2, 2));
    assert_eq!(bench.stand(&pool, Some(70), None), [], "PL-3: two calls wait that came before it");
    bench.submit_in(&pool);
    let calls = bench.values(A, ms(20), &[2, 3]);
    assert_eq!(outcomes(&calls).len(), 2);
    bench.values(B, ms(20), &[2, 3]);
    let (a, b) = (bench.runs(A), bench.runs(B));
    assert_eq!((a, b), (vec![4, 5], vec![4, 5]), "the last calls before it, and then it, in both");
    assert_eq!(
        bench.values(A, ms(20), &[4, 5]).iter().filter(|it| matches!(it, Effect::Finished { .. })).count(),
        1
    );
    assert_eq!(bench.runs(A), [6], "the call behind it");
    let last = outcomes(&bench.values(B, ms(20), &[4, 5]));
    assert!(last.iter().any(|(ticket, _)| *ticket == 70), "all have applied it: {last:?}");
}

#[test]
fn a_late_slot_runs_what_counts_of_the_history() {
    let (mut bench, pool) = Bench::pool(PoolSpec { size: 2, ..spec(2) });
    bench.died(2, None, 1);
    bench.stand(&pool, None, Some("weights"));
    bench.stand(&pool, None, Some("weights"));
    bench.stand(&pool, None, None);
    assert_eq!(bench.runs(A), [2, 3, 4]);
    bench.grant_to(&pool, 3);
    bench.up(B);
    assert_eq!(bench.runs(B), [1, 2, 3], "the first of the two was made void by the second");
    assert_eq!(bench.client.pool_places(&pool).iter().filter(|place| place.2).count(), 0);
    bench.values(B, ms(1), &[1, 2, 3]);
    assert_eq!(bench.client.pool_places(&pool).iter().filter(|place| place.2).count(), 1);
}

#[test]
fn what_prepares_fails_three_times_and_no_more() {
    let mut bench = Bench::new();
    let (pool, _) = bench.open_pool(spec(1));
    bench.stand(&pool, None, None);
    bench.submit_in(&pool);
    for lease in 1..=2 {
        bench.grant_to(&pool, lease);
        bench.up(A);
        bench.runs(A);
        let effects = bench.replies(A, Status::Raised, ms(1), &[1]);
        assert_eq!(effects, [release(lease), close(A)], "another slot is to try it");
    }
    bench.grant_to(&pool, 3);
    bench.up(A);
    bench.runs(A);
    let effects = bench.replies(A, Status::Raised, ms(1), &[1]);
    let why = PoolBroken::Raised { call: "prepare".into(), error: Bytes::from("v"), tries: 3 };
    let broken = Outcome::PoolBroken(Box::new(why));
    assert_eq!(outcomes(&effects), [(1, broken.clone())]);
    assert!(effects.contains(&wants(&pool, 0)) && effects.contains(&release(3)), "PL-6: {effects:?}");
    assert_eq!(outcomes(&bench.submit_in(&pool)), [(2, broken)]);
}

#[test]
fn an_actor_runs_calls_once_and_in_order() {
    let (mut bench, pool) = Bench::pool(actor(1));
    (0..5).for_each(|_| drop(bench.submit_in(&pool)));
    assert_eq!(bench.runs(A), [2, 3, 4, 5, 6], "all at once: they can go nowhere else");
    assert_eq!(bench.recall(1), [], "an actor stays where it is");
    let ends = outcomes(&bench.died(1, Some(4), 3));
    let died = |again| {
        let charge = charge(1, DeathCause::Signal(9));
        Outcome::ActorDied(Box::new(ActorDied { ran: true, charge, deaths: 1, again }))
    };
    let begun = [1, 2, 3].map(|ticket| (ticket, died(true)));
    assert_eq!(ends, begun, "PL-5: what was begun, answered or not");
    bench.grant_to(&pool, 2);
    bench.up(A);
    assert_eq!(bench.runs(A), [1]);
    bench.values(A, ms(1), &[1]);
    assert_eq!(bench.runs(A), [2, 3], "those that had not begun");
    let ends = outcomes(&bench.died(2, Some(2), 1));
    let ran = |outcome: &Outcome| matches!(outcome, Outcome::ActorDied(how) if how.ran && !how.again);
    assert!(ran(&ends[0].1) && !ran(&ends[1].1), "{ends:?}");
    let late = outcomes(&bench.submit_in(&pool));
    assert!(matches!(&late[..], [(_, Outcome::ActorDied(how))] if !how.ran), "{late:?}");
}

#[test]
fn a_slot_that_is_used_up_is_replaced() {
    let (mut bench, pool) = Bench::pool(PoolSpec { calls_per_slot: Some(2), ..spec(1) });
    (0..3).for_each(|_| drop(bench.submit_in(&pool)));
    assert_eq!(bench.runs(A), [2, 3]);
    let effects = bench.values(A, ms(1), &[2, 3]);
    assert!(effects.contains(&release(1)) && !effects.contains(&wants(&pool, 0)), "{effects:?}");
    bench.grant_to(&pool, 2);
    bench.up(A);
    assert_eq!(bench.runs(A), [1]);
    bench.values(A, ms(1), &[1]);
    assert_eq!(bench.runs(A), [2]);
}

#[test]
fn who_waits_for_slots_hears_of_them() {
    let mut bench = Bench::new();
    let (pool, _) = bench.open_pool(PoolSpec { eager: false, ..spec(3) });
    bench.stand(&pool, None, None);
    let effects = bench.act(|client, _, out| client.pool_ready(&pool, 2, 70, out));
    assert_eq!(effects, [wants(&pool, 2)]);
    for lease in 1..=2 {
        bench.grant_to(&pool, lease);
        let key = bench.client.lease_keys[&LeaseId(lease.into())];
        bench.up(key);
        bench.runs(key);
        let ends = outcomes(&bench.values(key, ms(1), &[1]));
        assert_eq!(ends.len(), usize::from(lease == 2), "{ends:?}");
    }
}

#[test]
fn a_finished_pool_gives_its_slots_back_as_they_run_dry() {
    let (mut bench, pool) = Bench::pool(spec(2));
    bench.submit_in(&pool);
    let busy = if bench.runs(A).is_empty() { B } else { A };
    let effects = bench.act(|client, _, out| client.finish_pool(&pool, out));
    assert_eq!(effects.len(), 3, "the idle one goes: {effects:?}");
    let effects = bench.act(|client, _, out| client.pool_drained(&pool, 70, out));
    assert_eq!(effects, []);
    assert_eq!(outcomes(&bench.submit_in(&pool)), [(2, Outcome::Cancelled)]);
    let ends = outcomes(&bench.values(busy, ms(1), &[2]));
    assert!(ends.len() == 2 && ends[1].0 == 70, "{ends:?}");
    bench.act(|client, _, out| client.close_pool(&pool, out));
}

#[test]
fn a_closed_pool_ends_what_it_has() {
    let (mut bench, pool) = Bench::pool(spec(2));
    (0..9).for_each(|_| drop(bench.submit_in(&pool)));
    bench.stand(&pool, Some(70), None);
    let effects = bench.act(|client, _, out| client.close_pool(&pool, out));
    assert_eq!(outcomes(&effects).len(), 10);
    assert!(outcomes(&effects).iter().all(|(_, outcome)| *outcome == Outcome::Cancelled));
    assert!(effects.contains(&release(1)) && effects.contains(&release(2)), "{effects:?}");
    assert_eq!(outcomes(&bench.submit_in(&pool)), [(10, Outcome::Cancelled)]);
    let (again, _) = bench.open_pool(spec(2));
    assert_eq!(again.shape, pool.shape, "what keeps rules apart is used again");
    assert_eq!(outcomes(&bench.submit_in(&pool)), [(11, Outcome::Cancelled)], "and it is another pool");
    assert_eq!(outcomes(&bench.submit_in(&again)), []);
}

#[test]
fn who_may_wait_only_so_long_does_not_wait_for_the_constructor() {
    let mut bench = Bench::new();
    let (pool, _) = bench.open_pool(actor(0));
    bench.stand(&pool, None, None);
    let (shape, within) = (pool.shape, Within::Pool(pool.number));
    bench.submit_as(|spec| Spec { shape, within, wait: ms(50), ..spec });
    bench.grant_to(&pool, 1);
    bench.up(A);
    assert_eq!(bench.runs(A), [1]);
    assert_eq!(outcomes(&bench.pass(ms(60)).tick()), [], "SG-2: it has its room");
    bench.values(A, ms(60), &[1]);
    assert_eq!(bench.runs(A), [2]);
    let mut bench = Bench::new();
    let (pool, _) = bench.open_pool(spec(1));
    bench.stand(&pool, None, None);
    let (shape, within) = (pool.shape, Within::Pool(pool.number));
    bench.submit_as(|spec| Spec { shape, within, wait: ms(50), ..spec });
    bench.grant_to(&pool, 1);
    bench.up(A);
    bench.runs(A);
    bench.pass(ms(60)).tick();
    bench.node_lost(1);
    let effects = bench.pass(ms(300)).tick();
    assert!(matches!(outcomes(&effects)[..], [(1, Outcome::NoRoom(_))]), "and has it no more: {effects:?}");
}

#[test]
fn who_waits_for_the_end_of_a_pool_hears_how_it_ended() {
    let mut bench = Bench::new();
    let (pool, _) = bench.open_pool(actor(0));
    bench.stand(&pool, None, None);
    bench.act(|client, _, out| client.pool_ended(&pool, 70, out));
    bench.grant_to(&pool, 1);
    bench.up(A);
    bench.runs(A);
    assert_eq!(outcomes(&bench.values(A, ms(1), &[1])), [], "it is there, and nothing has ended");
    let effects = bench.died(1, None, 1);
    assert!(matches!(outcomes(&effects)[..], [(70, Outcome::ActorDied(_))]), "{effects:?}");
    let late = bench.act(|client, _, out| client.pool_ended(&pool, 71, out));
    assert!(matches!(outcomes(&late)[..], [(71, Outcome::ActorDied(_))]), "{late:?}");
    bench.act(|client, _, out| client.close_pool(&pool, out));
    let late = bench.act(|client, _, out| client.pool_ended(&pool, 72, out));
    assert_eq!(outcomes(&late), [(72, Outcome::Cancelled)]);
}

#[test]
fn what_outlives_nodes_is_rebuilt_after_the_loss_of_one_and_not_after_a_death() {
    let (mut bench, pool) = Bench::pool(PoolSpec { owner_program: Some("actor.x".into()), ..actor(0) });
    bench.submit_in(&pool);
    bench.runs(A);
    let ends = outcomes(&bench.node_lost(1));
    assert!(matches!(&ends[..], [(1, Outcome::ActorDied(died))] if died.ran && died.again), "{ends:?}");
    bench.grant_to(&pool, 2);
    bench.up(A);
    assert_eq!(bench.runs(A).len(), 1, "its constructor");
    bench.values(A, ms(1), &[1]);
    bench.submit_in(&pool);
    let ends = outcomes(&bench.died(2, Some(2), 1));
    assert!(matches!(&ends[..], [(2, Outcome::ActorDied(died))] if !died.again), "{ends:?}");
}

#[test]
fn call_that_went_nowhere_before_its_node_was_lost_had_not_begun() {
    let (mut bench, pool) = Bench::pool(actor(0));
    let last = bench.client.last_sent_once(A).expect("PL-5: an actor's calls run once");
    bench.submit_in(&pool);
    bench.runs(A);
    bench.client.unsend(A, last);
    let ends = outcomes(&bench.node_lost(1));
    assert!(matches!(&ends[..], [(1, Outcome::ActorDied(died))] if !died.ran), "PL-5: {ends:?}");
}

#[test]
fn slot_that_ends_because_its_call_was_stopped_breaks_no_pool() {
    let (mut bench, pool) = Bench::pool(PoolSpec { restarts: Some(0), ..spec(1) });
    bench.submit_in(&pool);
    bench.runs(A);
    let ends = outcomes(&bench.act(|client, _, out| client.cancel_pool(&pool, out)));
    assert_eq!(ends, [(1, Outcome::Cancelled)]);
    bench.died(1, Some(2), 1);
    assert_eq!(bench.client.pool_broken(&pool), None, "PL-8");
    bench.grant_to(&pool, 2);
    bench.up(A);
    bench.runs(A);
    bench.values(A, ms(1), &[1]);
    bench.submit_in(&pool);
    assert_eq!(bench.runs(A), [2]);
    bench.died(2, Some(2), 1);
    assert!(bench.client.pool_broken(&pool).is_some(), "this one was not told to");
}

#[test]
fn actor_lost_with_its_node_is_named_to_every_head_until_it_has_another_slot() {
    let (mut bench, pool) = Bench::pool(PoolSpec { exclusive: Some(ExclusiveId(9)), ..actor(3) });
    let lost = |effects: &[Effect<u64>]| {
        let said = effects.iter().filter_map(|effect| match effect {
            Effect::ToHead(ClientToHead::Lost { lease }) => Some((lease.lease, lease.node, lease.exclusive)),
            _ => None,
        });
        said.collect::<Vec<_>>()
    };
    assert_eq!(lost(&bench.handle(Event::HeadUp)), [], "it holds its lease");
    bench.head_says(HeadToClient::Ended { lease: LeaseId(1), death: Death::of_lost_node() });
    for _ in 0..2 {
        bench.handle(Event::HeadDown);
        let effects = bench.handle(Event::HeadUp);
        assert_eq!(lost(&effects), [(LeaseId(1), NodeId(1), Some(ExclusiveId(9)))], "FE-3");
        let place = |is_one: fn(&Effect<u64>) -> bool| effects.iter().position(is_one);
        let said = place(|effect| matches!(effect, Effect::ToHead(ClientToHead::Lost { .. })));
        let wants = place(|effect| matches!(effect, Effect::ToHead(ClientToHead::Want { .. })));
        assert!(said < wants, "before it could be granted another: {effects:?}");
    }
    bench.grant_to(&pool, 2);
    bench.handle(Event::HeadDown);
    assert_eq!(lost(&bench.handle(Event::HeadUp)), [], "it has another");
}

#[test]
fn actor_whose_slot_is_given_back_is_named_to_a_new_head_until_it_has_another() {
    let (mut bench, pool) = Bench::pool(PoolSpec { calls_per_slot: Some(1), ..actor(0) });
    let call = bench.submit_as(|spec| Spec { shape: pool.shape, within: Within::Pool(pool.number), ..spec });
    assert!(!call.is_empty());
    let key = bench.client.lease_keys[&LeaseId(1)];
    bench.said(key);
    let effects = bench.values(key, us(1), &[2]);
    let released = Effect::ToHead(ClientToHead::Release { lease: LeaseId(1) });
    assert!(effects.contains(&released), "its slot is used up: {effects:?}");
    bench.handle(Event::HeadDown);
    let effects = bench.handle(Event::HeadUp);
    let named = |effect: &Effect<u64>| matches!(effect, Effect::ToHead(ClientToHead::Lost { lease }) if lease.lease == LeaseId(1));
    assert!(effects.iter().any(named), "FE-3: that it was given back may be lost with the head: {effects:?}");
}

#[test]
fn actors_of_one_client_are_told_apart() {
    let mut bench = Bench::new();
    let wanted = |effects: &[Effect<u64>]| {
        let mut wants = effects.iter().filter_map(|effect| match effect {
            Effect::ToHead(ClientToHead::Want { exclusive, .. }) => Some(*exclusive),
            _ => None,
        });
        wants.next().expect("it asks for a slot")
    };
    let (first, effects) = bench.open_pool(actor(0));
    let one = wanted(&effects);
    bench.act(|client, _, out| client.close_pool(&first, out));
    let (_, effects) = bench.open_pool(actor(0));
    assert!(one.is_some() && wanted(&effects).is_some() && one != wanted(&effects), "it is another one");
    let (_, effects) = bench.open_pool(spec(2));
    assert_eq!(wanted(&effects), None, "of workers there may be any number");
}

#[test]
fn grant_for_a_pool_that_is_closed_goes_to_no_other() {
    let mut bench = Bench::new();
    let (first, _) = bench.open_pool(actor(0));
    let own = bench.client.pool_key(&first).and_then(|key| bench.client.exclusive_of(key));
    bench.act(|client, _, out| client.close_pool(&first, out));
    let (second, _) = bench.open_pool(actor(0));
    assert_eq!(first.shape, second.shape, "the rule of one that is closed is used again");
    let back = |lease: u128| [Effect::ToHead(ClientToHead::Release { lease: LeaseId(lease) })];
    assert_eq!(
        bench.grant_for(&second, 1, own),
        back(1),
        "the head would grant the second another beside it"
    );
    assert_eq!(bench.grant_for(&second, 2, None), back(2));
    assert!(matches!(bench.grant_to(&second, 3)[..], [Effect::Open { .. }]));
    bench.act(|client, _, out| client.close_pool(&second, out));
    let (workers, _) = bench.open_pool(spec(2));
    assert_eq!(bench.grant_for(&workers, 4, own), back(4));
}

#[test]
fn pool_is_wanted_again_when_a_lost_head_is_heard() {
    let mut bench = Bench::with(Config {
        heartbeat: Duration::from_secs(2),
        head_lost: Duration::from_secs(5),
        ..Config::default()
    });
    bench.handle(Event::HeadUp);
    let (pool, _) = bench.open_pool(spec(2));
    bench.handle(Event::HeadDown);
    (0..5).for_each(|_| drop(bench.pass(Duration::from_secs(1)).tick()));
    bench.handle(Event::HeadUp);
    let config = &bench.client.config;
    let timing = Timing { heartbeat: config.heartbeat, head_lost: config.head_lost };
    let effects = bench.head_says(HeadToClient::Welcome { cluster: ClusterId(1), epoch: Epoch(1), timing });
    assert_eq!(effects, [Effect::ToHead(ClientToHead::Welcomed), wants(&pool, 2)]);
}

#[test]
fn an_actor_whose_name_was_claimed_lives_where_its_constructor_has_run() {
    let claimed = ActorId(5);
    let mut bench = Bench::new();
    let card = Card { name: Some("x".into()), ..Card::default() };
    bench.act(|client, _, out| client.host_actor(claimed, card, None, out));
    let (pool, _) = bench.open_pool(actor(0));
    let host = |bench: &mut Bench| {
        let mut hosted = None;
        let out = bench.act(|client, _, out| hosted = Some(client.host_pool(claimed, None, &pool, out)));
        (hosted.unwrap(), out)
    };
    bench.grant_to(&pool, 1);
    bench.up(A);
    bench.stand(&pool, None, None);
    assert_eq!(
        host(&mut bench),
        (true, vec![]),
        "GC-5: the head has heard of it, and its constructor has not run"
    );
    let place = |out: &[Effect<u64>]| {
        let mut said = out.iter().filter_map(|effect| match effect {
            Effect::ToHead(ClientToHead::Actor { name, lease, .. }) => Some((name.clone(), *lease)),
            _ => None,
        });
        said.next()
    };
    bench.runs(A);
    let out = bench.values(A, ms(1), &[1]);
    assert_eq!(place(&out), Some((Some("x".into()), Some(LeaseId(1)))), "GC-3");
}

#[test]
fn an_actor_that_is_ended_before_it_has_a_pool_gets_none() {
    let claimed = ActorId(5);
    let mut bench = Bench::new();
    let (pool, _) = bench.open_pool(actor(0));
    bench.act(|client, _, out| client.host_actor(claimed, Card::default(), None, out));
    bench.head_says(HeadToClient::ActorGone { actor: claimed, why: "somebody wants it to end".into() });
    let host = |bench: &mut Bench| {
        let mut hosted = None;
        bench.act(|client, _, out| hosted = Some(client.host_pool(claimed, None, &pool, out)));
        hosted
    };
    assert_eq!(host(&mut bench), Some(false), "GC-5");
    bench.head_says(HeadToClient::ActorGone { actor: claimed, why: "somebody wants it to end".into() });
    assert_eq!(host(&mut bench), Some(false), "GC-5: the head has forgotten it");
}
