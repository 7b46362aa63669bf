//! Groups: all members or none, and what becomes of them.

use super::*;
use crate::client::{Charge, GroupLost, Within};
use paceline_proto::control::Timing;
use paceline_proto::{ClusterId, Epoch, ProgramId, Rule};

impl Bench {
    fn open(&mut self, size: u32) -> (Shape, Vec<Effect<u64>>) {
        let mut shape = Shape::default();
        let out = self.act(|client, _, out| {
            let needs = Resources::cpus(1);
            shape = client.open_group(size, needs, ProgramId::OWN, Rule::default(), out);
        });
        (shape, out)
    }

    fn close_group(&mut self, shape: Shape) -> Vec<Effect<u64>> {
        self.act(|client, _, out| client.close_group(&shape, out))
    }

    fn member_granted(&mut self, shape: Shape, lease: u64) -> Vec<Effect<u64>> {
        self.replies.resize(self.replies.len().max(lease as usize + 1), 0);
        self.head_says(HeadToClient::Granted {
            lease: LeaseId(lease.into()),
            node: NodeId(1),
            slot: SlotId(lease),
            shape,
            incarnation: Incarnation(1),
            secret: LeaseSecret::default(),
            exclusive: None,
        })
    }

    fn submit_to(&mut self, shape: Shape, member: u32) -> Vec<Effect<u64>> {
        self.submit_as(|spec| Spec { shape, within: Within::Member(member), ..spec })
    }

    /// A group of two whose links are up.
    fn pair() -> (Bench, Shape) {
        let mut bench = Bench::new();
        let (shape, _) = bench.open(2);
        for (lease, key) in [(1, A), (2, B)] {
            bench.member_granted(shape, lease);
            bench.up(key);
            bench.said(key);
        }
        (bench, shape)
    }
}

fn wants(shape: Shape, count: u32) -> Effect<u64> {
    Effect::ToHead(ClientToHead::Want { shape, count, exclusive: None })
}

fn release(lease: u64) -> Effect<u64> {
    Effect::ToHead(ClientToHead::Release { lease: LeaseId(lease.into()) })
}

fn lost(member: u32, slot: u64, cause: DeathCause) -> Outcome {
    let charge = Charge { slot: SlotId(slot), node: NodeId(1), cause, out_of_memory: OutOfMemory::No };
    Outcome::GroupLost(Box::new(GroupLost { member, size: 2, charge }))
}

fn outcomes(effects: &[Effect<u64>]) -> Vec<(u64, Outcome)> {
    let ends = effects.iter().filter_map(|effect| match effect {
        Effect::Finished { ticket, outcome, .. } => Some((*ticket, outcome.clone())),
        _ => None,
    });
    ends.collect()
}

#[test]
fn nothing_is_sent_before_all_members_are_there() {
    let mut bench = Bench::new();
    let (shape, effects) = bench.open(2);
    assert!(matches!(effects[0], Effect::ToHead(ClientToHead::Placement { .. })), "{effects:?}");
    assert_eq!(effects[1..], [wants(shape, 2)]);
    assert_eq!(bench.submit_to(shape, 0), []);
    bench.member_granted(shape, 1);
    bench.up(A);
    assert_eq!(bench.said(A), ["hello 0"], "GR-1");
    let whole = bench.member_granted(shape, 2);
    assert!(whole.contains(&wants(shape, 0)), "GR-2: {whole:?}");
    assert_eq!(bench.said(A), ["define f", "run 1=1"]);
    assert_eq!(bench.member_granted(shape, 3), [release(3)], "GR-4");
    bench.pass(ms(9_000));
    assert_eq!(bench.tick(), [], "GR-2: idle members are kept");
}

#[test]
fn a_task_runs_in_its_member() {
    let (mut bench, shape) = Bench::pair();
    (0..3).for_each(|_| drop(bench.submit_to(shape, 1)));
    bench.submit_to(shape, 0);
    assert_eq!(bench.said(A), ["define f", "run 1=4"]);
    assert_eq!(bench.said(B), ["define f", "run 1=1 2=2"]);
    assert_eq!(outcomes(&bench.submit_to(shape, 2)), [(5, Outcome::Cancelled)], "there is no such member");
    assert_eq!(bench.recall(1), [], "GR-2");
}

#[test]
fn with_a_member_the_group_is_lost() {
    let (mut bench, shape) = Bench::pair();
    (0..3).for_each(|_| drop(bench.submit_to(shape, 1)));
    bench.submit_to(shape, 0);
    bench.said(A);
    bench.said(B);
    let effects = bench.died(2, Some(1), 0);
    let end = lost(1, 2, DeathCause::Signal(9));
    let all = [1, 2, 4, 3].map(|ticket| (ticket, end.clone()));
    let mut ends = outcomes(&effects);
    ends.sort_by_key(|(ticket, _)| *ticket);
    let mut all = all.to_vec();
    all.sort_by_key(|(ticket, _)| *ticket);
    assert_eq!(ends, all, "GR-3: whatever its retries are");
    assert!(effects.contains(&release(1)) && effects.contains(&Effect::Close { key: A }));
    assert_eq!(outcomes(&bench.submit_to(shape, 0)), [(5, end)]);
    assert_eq!(bench.close_group(shape), []);
    assert_eq!(outcomes(&bench.submit_to(shape, 0)), [(6, Outcome::Cancelled)]);
    let (again, effects) = bench.open(2);
    assert_eq!((again, effects), (shape, vec![wants(shape, 2)]), "its number and queues are used again");
}

#[test]
fn a_member_that_is_lost_on_the_way_is_replaced() {
    let mut bench = Bench::new();
    let (shape, _) = bench.open(2);
    bench.submit_to(shape, 0);
    bench.member_granted(shape, 1);
    assert_eq!(bench.died(1, None, 0), [Effect::Close { key: A }]);
    bench.member_granted(shape, 2);
    assert_eq!(bench.recall(2), [release(2), Effect::Close { key: A }], "nobody sits on a part of a group");
    bench.member_granted(shape, 3);
    bench.member_granted(shape, 4);
    bench.up(A);
    assert_eq!(bench.said(A), ["hello 0", "define f", "run 1=1"]);
}

#[test]
fn what_was_to_run_in_a_group_that_is_closed_is_cancelled() {
    let (mut bench, shape) = Bench::pair();
    bench.submit_to(shape, 0);
    bench.said(A);
    let effects = bench.close_group(shape);
    assert_eq!(outcomes(&effects), [(1, Outcome::Cancelled)]);
    assert!(effects.contains(&release(1)) && effects.contains(&release(2)), "{effects:?}");
    assert_eq!(bench.member_granted(shape, 7), [release(7)], "GR-4");
    assert_eq!(bench.client.group_places(&shape), None);
}

#[test]
fn a_group_that_fits_nowhere_ends_what_waits_for_it() {
    let mut bench = Bench::new();
    let (shape, _) = bench.open(2);
    bench.submit_to(shape, 1);
    let (largest, why) = (Resources::cpus(1), "all nodes together cannot".to_owned());
    let effects = bench.head_says(HeadToClient::Unplaceable { shape, largest, why });
    assert!(matches!(outcomes(&effects)[..], [(1, Outcome::Unplaceable(_))]), "{effects:?}");
    let late = bench.submit_to(shape, 0);
    assert!(matches!(outcomes(&late)[..], [(2, Outcome::Unplaceable(_))]), "the word came first: {late:?}");
}

#[test]
fn refused_group_is_not_wanted_any_more() {
    let mut bench = Bench::new();
    let (shape, _) = bench.open(2);
    bench.close_group(shape);
    let (same, _) = bench.open(2);
    assert_eq!(shape, same, "numbers are used again");
    // Of the first one. The head has heard of the second by the time that this is here.
    let (largest, why) = (Resources::cpus(1), "all nodes together cannot".to_owned());
    let refusal = HeadToClient::Unplaceable { shape, largest, why };
    assert_eq!(bench.head_says(refusal.clone()), [wants(shape, 0)], "GR-4");
    assert_eq!(bench.head_says(refusal), []);
}

#[test]
fn group_that_waits_is_wanted_again_when_a_lost_head_is_heard() {
    let mut bench = Bench::with(Config {
        heartbeat: Duration::from_secs(2),
        head_lost: Duration::from_secs(5),
        ..Config::default()
    });
    bench.handle(Event::HeadUp);
    let (shape, _) = bench.open(2);
    bench.handle(Event::HeadDown);
    (0..5).for_each(|_| drop(bench.pass(Duration::from_secs(1)).tick()));
    // It is opened again, and has not answered: what is wanted there is withdrawn as well.
    bench.handle(Event::HeadUp);
    let (other, _) = bench.open(1);
    assert!(bench.pass(Duration::from_secs(1)).tick().contains(&wants(other, 0)), "HL-1");
    let config = &bench.client.config;
    let timing = Timing { heartbeat: config.heartbeat, head_lost: config.head_lost };
    let effects = bench.head_says(HeadToClient::Welcome { cluster: ClusterId(1), epoch: Epoch(1), timing });
    let welcomed = Effect::ToHead(ClientToHead::Welcomed);
    assert_eq!(effects, [welcomed, wants(shape, 2), wants(other, 1)], "GR-5");
    assert_eq!(bench.head_says(HeadToClient::Heartbeat { beat: 1 }), [], "once");
}

#[test]
fn member_that_neither_head_nor_slot_tells_of_is_abandoned() {
    let mut bench = Bench::with(Config {
        heartbeat: Duration::from_secs(2),
        head_lost: Duration::from_secs(5),
        ..Config::default()
    });
    bench.handle(Event::HeadUp);
    let (shape, _) = bench.open(1);
    bench.member_granted(shape, 1);
    bench.up(A);
    bench.submit_to(shape, 0);
    bench.handle(Event::HeadDown);
    let second = Duration::from_secs(1);
    (0..5).for_each(|_| drop(bench.pass(second).tick()));
    bench.down(A);
    let effects: Vec<_> = (0..7).flat_map(|_| bench.pass(second).tick()).collect();
    let abandoned = Effect::Abandoned { lease: LeaseId(1), node: NodeId(1) };
    let at = effects.iter().position(|effect| *effect == abandoned);
    let ended = effects.iter().position(|effect| matches!(effect, Effect::Finished { .. }));
    assert!(at.is_some() && at < ended, "HL-1: {effects:?}");
}

#[test]
fn who_waits_for_a_group_no_longer_than_it_may_hears_what_for() {
    let mut bench = Bench::new();
    let (shape, _) = bench.open(2);
    bench.submit_as(|spec| Spec { shape, within: Within::Member(0), wait: ms(5), ..spec });
    bench.head_says(HeadToClient::Waits { shape, why: "b is full".into() });
    let effects = bench.pass(ms(6)).tick();
    assert!(
        matches!(&outcomes(&effects)[..], [(1, Outcome::NoRoom(room))] if room.why == "b is full"),
        "{effects:?}"
    );
}
