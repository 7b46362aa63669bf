use super::Use::{Large, Small};
use super::*;

const NOW: Tick = Tick(0);
const A: LinkId = LinkId(1);
const B: LinkId = LinkId(2);

fn arena(pages: u64) -> Arena {
    let mut arena = Arena::default();
    arena.add(NOW, pages * PAGE, Large);
    arena.open(A);
    arena.open(B);
    arena
}

fn spot(page: u64) -> Spot {
    Spot { segment: SegmentId(0), offset: page * PAGE }
}

fn effects(step: impl FnOnce(&mut Vec<Effect>)) -> Vec<Effect> {
    let mut out = Vec::new();
    step(&mut out);
    out
}

#[test]
fn a_range_is_written_again_when_all_have_returned_it() {
    let mut arena = arena(2);
    assert_eq!(arena.place(NOW, PAGE + 1, Large), Some(spot(0)));
    assert_eq!(arena.lend(spot(0), A), Some(Lent::New));
    assert_eq!(arena.lend(spot(0), B), Some(Lent::New));
    let mut out = Vec::new();
    arena.release(NOW, spot(0), &mut out);
    assert!(arena.give_back(NOW, A, spot(0), false, &mut out));
    assert_eq!(arena.place(NOW, 1, Large), None, "SG-2");
    assert!(arena.give_back(NOW, B, spot(0), false, &mut out));
    assert_eq!(arena.place(NOW, 1, Large), Some(spot(0)), "SG-2");
    assert_eq!(out, []);
    arena.check().unwrap();
}

#[test]
fn what_was_retired_is_never_written_again() {
    let mut arena = arena(4);
    for page in 0..3 {
        arena.place(NOW, 1, Large);
        arena.lend(spot(page), A).unwrap();
    }
    let out = effects(|out| {
        arena.release(NOW, spot(0), out);
        arena.give_back(NOW, A, spot(0), true, out);
    });
    assert_eq!(out, []);
    assert_eq!(arena.place(NOW, 1, Large), None, "SG-3");
    let out = effects(|out| {
        arena.release(NOW, spot(1), out);
        arena.release(NOW, spot(2), out);
        arena.end(NOW, A, out);
    });
    assert_eq!(out, [Effect::Drop(SegmentId(0))], "SG-3");
    arena.check().unwrap();
}

#[test]
fn a_link_that_ends_retires_what_it_held() {
    let mut arena = arena(1);
    arena.place(NOW, 1, Large);
    arena.lend(spot(0), A).unwrap();
    arena.lend(spot(0), B).unwrap();
    let mut out = Vec::new();
    arena.end(NOW, A, &mut out);
    arena.release(NOW, spot(0), &mut out);
    assert_eq!(out, []);
    arena.give_back(NOW, B, spot(0), false, &mut out);
    assert_eq!(out, [Effect::Drop(SegmentId(0)), Effect::Forget(B, SegmentId(0))], "SG-3");
}

#[test]
fn a_link_is_not_lent_the_same_twice() {
    let mut arena = arena(1);
    arena.place(NOW, 1, Large);
    assert_eq!(arena.lend(spot(0), A), Some(Lent::New));
    assert_eq!(arena.lend(spot(0), A), None, "SG-4");
    assert!(arena.give_back(NOW, A, spot(0), false, &mut Vec::new()));
    assert_eq!(arena.lend(spot(0), A), Some(Lent::Known), "SG-4");
    assert!(!arena.give_back(NOW, B, spot(0), false, &mut Vec::new()));
}

#[test]
fn a_link_knows_so_many_segments() {
    let mut arena = Arena::default();
    arena.open(A);
    for number in 0..=MOST_KNOWN as u32 {
        arena.add(NOW, PAGE, Large);
        let spot = arena.place(NOW, PAGE, Large).unwrap();
        assert_eq!(arena.lend(spot, A).is_some(), number < MOST_KNOWN as u32, "SG-5");
    }
    arena.check().unwrap();
}

#[test]
fn what_is_not_used_goes() {
    let mut arena = arena(1);
    arena.place(NOW, 1, Large);
    arena.lend(spot(0), A).unwrap();
    let mut out = Vec::new();
    arena.release(NOW, spot(0), &mut out);
    arena.give_back(NOW + KEEP, A, spot(0), false, &mut out);
    assert!(arena.trim(NOW + KEEP + KEEP / 2, &mut out));
    assert_eq!(out, [], "SG-6");
    assert!(!arena.trim(NOW + KEEP + KEEP, &mut out));
    assert_eq!(out, [Effect::Drop(SegmentId(0)), Effect::Forget(A, SegmentId(0))], "SG-6");
}

#[test]
fn segments_grow() {
    let mut arena = Arena::default();
    assert_eq!(arena.next_size(1, Large), FIRST);
    assert_eq!(arena.next_size(3 * LARGEST + 1, Large), 3 * LARGEST + PAGE);
    for _ in 0..10 {
        arena.add(NOW, arena.next_size(1, Large), Large);
    }
    assert_eq!(arena.next_size(1, Large), LARGEST);
}

#[test]
fn small_ones_are_never_in_the_way() {
    let mut arena = arena(FIRST / PAGE);
    assert_eq!(arena.place(NOW, PAGE, Small), None, "SG-7");
    let size = arena.next_size(PAGE, Small);
    assert_eq!(size, FIRST_SMALL);
    let segment = arena.add(NOW, size, Small);
    assert_eq!(arena.place(NOW, PAGE, Small), Some(Spot { segment, offset: 0 }), "SG-7");
    assert_eq!(arena.place(NOW, FIRST, Large), Some(spot(0)), "SG-7");
    assert_eq!(arena.place(NOW, PAGE, Large), None, "SG-7");
    arena.check().unwrap();
}

#[test]
fn what_cannot_be_is_refused() {
    let mut borrowed = Borrowed::default();
    assert_eq!(borrowed.on_range(spot(0), 1, 0), Err(Wrong::Unknown(SegmentId(0))), "BO-1");
    borrowed.on_segment(SegmentId(0), 4 * PAGE).unwrap();
    assert_eq!(borrowed.on_segment(SegmentId(0), PAGE), Err(Wrong::Known(SegmentId(0))));
    borrowed.on_range(spot(1), PAGE + 1, 0).unwrap();
    for (page, length) in [(2, 1), (0, PAGE + 1), (1, 1), (3, PAGE + 1), (5, 1), (3, 0), (3, u64::MAX)] {
        assert_eq!(borrowed.on_range(spot(page), length, 0), Err(Wrong::Range(spot(page))), "BO-1");
    }
    borrowed.on_range(spot(0), PAGE, 0).unwrap();
    borrowed.on_range(spot(3), PAGE, 0).unwrap();
    assert_eq!(borrowed.give_back(spot(3), 0), Some(false));
    assert_eq!(borrowed.give_back(spot(0), 1), Some(true), "BO-2");
    assert_eq!(borrowed.give_back(spot(0), 1), None);
}
