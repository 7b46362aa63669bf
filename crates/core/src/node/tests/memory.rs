//! Short of memory.

use super::*;

const GB: u64 = 1 << 30;

fn memory(used: u64, sizes: &[(u64, u64)]) -> Event {
    let slots = sizes.iter().map(|&(slot, bytes)| (SlotId(slot), bytes)).collect();
    Event::Memory { used, limit: 100 * GB, slots }
}

fn end_for_memory(slot: u64) -> Effect {
    Effect::EndForMemory { slot: SlotId(slot), limit: 100 * GB }
}

fn busy() -> Bench {
    let mut bench = Bench::ready(3);
    bench.place(7, A, one());
    bench.place(8, A, one());
    bench
}

#[test]
fn the_largest_slot_at_work_is_ended_and_its_call_charged() {
    let mut bench = busy();
    // The third is nobody's.
    let sizes = [(1, 20 * GB), (2, 50 * GB), (3, 60 * GB)];
    assert_eq!(bench.handle(memory(94 * GB, &sizes)), [], "it is not tight yet");
    assert_eq!(bench.handle(memory(95 * GB, &sizes)), [end_for_memory(2)], "MM-1");
    assert_eq!(bench.handle(memory(99 * GB, &sizes)), [], "MM-1: it has not gone yet");
    let death = died(Some(Seq(4)));
    let effects = bench.handle(Event::Exited { slot: SlotId(2), death: death.clone() });
    assert_eq!(effects, [ended(8, Some(death)), forget(2), fork(4)]);
    assert_eq!(bench.handle(memory(97 * GB, &[(1, 30 * GB)])), [end_for_memory(1)]);
}

#[test]
fn memory_of_others_is_not_the_slots_fault() {
    let mut bench = busy();
    assert_eq!(bench.handle(memory(99 * GB, &[(1, 10 * GB), (2, 14 * GB)])), [], "MM-2");
}

/// So many bytes beside a CPU.
fn limited(bytes: u64) -> Shape {
    Shape::of(Resources::cpus(1).and_memory(bytes))
}

/// A node with so many CPUs, all with ready slots, and some memory.
fn with_memory(cpus: u64) -> Bench {
    let mut bench = Bench::ready(cpus);
    bench.node.config.total = bench.node.config.total.and_memory(1000);
    bench
}

#[test]
fn a_slot_that_has_more_than_it_asked_for_is_ended_once() {
    let mut bench = with_memory(2);
    let confine = Effect::Confine { slot: SlotId(1), limit: 100 };
    assert_eq!(bench.place(7, A, limited(100)), [confine, bind(1, A, limited(100)), placed(7, 1)]);
    bench.place(8, A, one());
    assert_eq!(bench.node.limits().collect::<Vec<_>>(), [(SlotId(1), 100)], "others have all there is");
    assert_eq!(bench.handle(Event::Sizes(vec![(SlotId(1), 100), (SlotId(2), 999)])), [], "as much as it may");
    let exceeded = Effect::Exceeded { slot: SlotId(1), used: 101, limit: 100 };
    assert_eq!(bench.handle(Event::Sizes(vec![(SlotId(1), 101)])), [exceeded], "MM-3");
    assert_eq!(bench.handle(Event::Sizes(vec![(SlotId(1), 102)])), [], "MM-3: it ends already");
    assert_eq!(bench.node.limits().count(), 0);
    let death = died(Some(Seq(3)));
    let effects = bench.handle(Event::Exited { slot: SlotId(1), death: death.clone() });
    assert_eq!(effects[..2], [ended(7, Some(death)), forget(1)], "and its call is charged");
}

#[test]
fn a_warm_slot_has_no_limit_and_gets_it_back_with_a_lease() {
    let mut bench = with_memory(1);
    bench.place(7, A, limited(100));
    bench.end(7);
    bench.detached(1, 7);
    assert_eq!(bench.node.limits().count(), 0);
    assert_eq!(bench.place(8, A, limited(100)), [placed(8, 1)], "it is confined already");
    assert_eq!(bench.node.limits().count(), 1);
}
