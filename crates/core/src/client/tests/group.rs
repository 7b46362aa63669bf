//! Groups: all members or none, and what becomes of them.

use super::*;
use crate::client::{Charge, GroupLost, Within};
use paceline_proto::{ProgramId, Rule};

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
            secret: LeaseSecret::default(),
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
    Effect::ToHead(ClientToHead::Want { shape, count })
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
