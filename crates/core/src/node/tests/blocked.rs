//! Tasks that wait for others.

use super::*;

/// What comes of what a slot says, but for the slots that are made for those that are waited for.
fn on(bench: &mut Bench, slot: u64, message: SlotToNode) -> Vec<Effect> {
    let mut effects = bench.handle(Event::FromSlot(SlotId(slot), message));
    effects.retain(|effect| !matches!(effect, Effect::Fork { .. }));
    effects
}

fn says(bench: &mut Bench, slot: u64, blocked: bool) -> Vec<Effect> {
    on(bench, slot, SlotToNode::Blocked { lease: LeaseId(u128::from(slot)), blocked })
}

fn told(slot: u64, blocked: bool, full: bool) -> Effect {
    Effect::ToHead(NodeToHead::Blocked { lease: LeaseId(u128::from(slot)), blocked, full })
}

fn too_deep(slot: u64) -> Effect {
    to_slot(slot, NodeToSlot::TooDeep { lease: LeaseId(u128::from(slot)) })
}

/// Three slots with leases of their own numbers; of four tasks that may wait, two are those that must.
fn nested() -> Bench {
    let mut bench = Bench::ready(3);
    bench.node.config.max_blocked = 4;
    (1..=3).for_each(|slot| drop(bench.place(slot, A, one())));
    bench
}

#[test]
fn one_too_many_gets_on_by_itself_or_else_waits_like_the_rest() {
    let mut bench = nested();
    assert_eq!(says(&mut bench, 1, true), [told(1, true, false)]);
    assert_eq!(says(&mut bench, 2, true), [told(2, true, true)]);
    assert_eq!(says(&mut bench, 3, true), [too_deep(3)], "ND-7");
    let waits = SlotToNode::Waits { lease: LeaseId(3) };
    assert_eq!(on(&mut bench, 3, waits.clone()), [told(3, true, true)]);
    assert_eq!(on(&mut bench, 3, waits), [], "ND-4");
    assert_eq!(says(&mut bench, 1, false), [told(1, false, true)]);
    assert_eq!(says(&mut bench, 1, true), [too_deep(1)], "one that was there first has no more right to it");
    assert_eq!(says(&mut bench, 3, false), [told(3, false, false)]);
}

#[test]
fn what_is_said_of_another_lease_means_nothing() {
    let mut bench = nested();
    let waits = SlotToNode::Waits { lease: LeaseId(9) };
    assert_eq!(on(&mut bench, 1, waits), [], "ND-4");
}
