use super::*;
use paceline_proto::{ClientId, TaskId};

const LEASE: LeaseId = LeaseId(1);

fn call(seq: u64) -> Call {
    Call {
        seq: Seq(seq),
        task: TaskId(seq),
        attempt: 1,
        at_most_once: false,
        function: FunctionId(1),
        timeout: Duration::ZERO,
        payload: Bytes::from_static(b"x"),
    }
}

fn reply(seq: u64, status: Status) -> Reply {
    Reply { seq: Seq(seq), status, took: Duration::ZERO, payload: Bytes::new() }
}

fn run(seqs: impl IntoIterator<Item = u64>) -> ToSlot {
    ToSlot::Run { acked: 0, calls: seqs.into_iter().map(call).collect() }
}

struct Bench(Slot);

impl Bench {
    fn new() -> Bench {
        let mut slot = Slot::default();
        slot.attach(LEASE);
        Bench(slot)
    }

    fn take(&mut self, message: ToSlot) -> Vec<Effect> {
        let mut effects = Vec::new();
        self.0.on_message(message, &mut effects);
        self.0.check().unwrap();
        effects
    }

    fn run_next(&mut self) -> u64 {
        let call = self.0.claim().unwrap();
        self.0.finish(reply(call.seq.0, Status::Value));
        self.0.check().unwrap();
        call.seq.0
    }

    fn sent(&mut self) -> Option<(u64, Vec<(u64, Status)>)> {
        match self.0.replies_to_send()? {
            FromSlot::Replies { first, replies } => {
                Some((first, replies.iter().map(|reply| (reply.seq.0, reply.status)).collect()))
            }
            other => panic!("not replies: {other:?}"),
        }
    }
}

#[test]
fn calls_run_in_order_and_repeats_are_ignored() {
    let mut slot = Bench::new();
    slot.take(run([1, 2]));
    slot.take(run([1, 2, 3]));
    assert_eq!([slot.run_next(), slot.run_next(), slot.run_next()], [1, 2, 3], "SL-3");
    assert_eq!(slot.0.claim(), None);
    assert_eq!(
        slot.sent(),
        Some((0, vec![(1, Status::Value), (2, Status::Value), (3, Status::Value)])),
        "SL-2"
    );
    assert_eq!(slot.sent(), None);
}

#[test]
fn only_waiting_calls_are_withdrawn() {
    let mut slot = Bench::new();
    slot.take(run([1, 2, 3]));
    let running = slot.0.claim().unwrap();
    slot.take(ToSlot::Withdraw { calls: vec![Seq(1), Seq(3), Seq(9)] });
    assert_eq!(slot.sent(), Some((0, vec![(3, Status::Withdrawn)])));
    slot.0.finish(reply(running.seq.0, Status::Value));
    assert_eq!(slot.run_next(), 2, "SL-1: 3 never runs");
    assert_eq!(slot.0.claim(), None);
}

#[test]
fn a_running_call_is_interrupted_a_waiting_one_dropped() {
    let mut slot = Bench::new();
    slot.take(run([1, 2]));
    slot.0.claim().unwrap();
    let effects = slot.take(ToSlot::Cancel { calls: vec![Seq(1), Seq(2)] });
    assert_eq!(effects, [Effect::Interrupt { call: Seq(1) }]);
    assert_eq!(slot.sent(), Some((0, vec![(2, Status::Cancelled)])));
}

#[test]
fn a_call_that_must_not_go_on_takes_its_process_with_it() {
    let mut slot = Bench::new();
    slot.take(run([1, 2, 3]));
    slot.0.claim().unwrap();
    assert_eq!(slot.take(ToSlot::Kill { calls: vec![Seq(2)] }), [], "it only waited");
    assert_eq!(slot.take(ToSlot::Kill { calls: vec![Seq(1)] }), [Effect::Die { call: Seq(1) }]);
    assert_eq!(slot.sent(), Some((0, vec![(2, Status::Cancelled)])));
}

#[test]
fn unacknowledged_replies_survive_a_broken_link() {
    let mut slot = Bench::new();
    slot.take(run([1, 2, 3]));
    slot.run_next();
    slot.run_next();
    slot.sent();
    slot.0.attach(LEASE);
    let hello = ToSlot::Hello(Hello { client: ClientId(1), lease: LEASE, replies: 1, keeps: false });
    assert_eq!(slot.take(hello), [Effect::Send(FromSlot::Hello { received: Seq(3) })]);
    assert_eq!(slot.sent(), Some((1, vec![(2, Status::Value)])), "SL-4: the lost one, and only that");
}

#[test]
fn a_long_call_is_announced_again_on_a_new_link() {
    let mut slot = Bench::new();
    slot.take(run([1]));
    slot.0.claim().unwrap();
    slot.0.announce_running();
    let hello = ToSlot::Hello(Hello { client: ClientId(1), lease: LEASE, replies: 0, keeps: false });
    assert_eq!(
        slot.take(hello),
        [
            Effect::Send(FromSlot::Hello { received: Seq(1) }),
            Effect::Send(FromSlot::Running { call: Seq(1) })
        ],
        "the first word of it may be lost"
    );
}

#[test]
fn another_lease_starts_afresh() {
    let mut slot = Bench::new();
    slot.take(run([1, 2]));
    slot.0.claim().unwrap();
    slot.0.attach(LeaseId(2));
    slot.0.finish(reply(1, Status::Value));
    assert_eq!(slot.sent(), None, "nobody hears of the old lease's call");
    slot.take(run([1]));
    assert_eq!(slot.run_next(), 1);
}

#[test]
fn a_long_call_is_announced_once() {
    let mut slot = Bench::new();
    slot.take(run([1]));
    assert_eq!(slot.0.announce_running(), None);
    slot.0.claim().unwrap();
    assert_eq!(slot.0.announce_running(), Some(FromSlot::Running { call: Seq(1) }));
    assert_eq!(slot.0.announce_running(), None);
}

#[test]
fn deferred_calls_are_answered_in_any_order_while_others_run() {
    let mut slot = Bench::new();
    slot.take(run([1, 2, 3]));
    for seq in [1, 2] {
        assert_eq!(slot.0.claim().unwrap().seq, Seq(seq), "SL-3: they begin in order");
        assert!(slot.0.defer(Seq(seq)));
        slot.0.check().unwrap();
    }
    slot.take(ToSlot::Withdraw { calls: vec![Seq(1), Seq(2)] });
    assert_eq!(slot.sent(), None, "SL-1: what has begun is not given back");
    assert_eq!(slot.run_next(), 3);
    for seq in [2, 1] {
        assert!(slot.0.answer(reply(seq, Status::Value)));
        slot.0.check().unwrap();
    }
    assert!(!slot.0.answer(reply(1, Status::Value)), "SL-2: once");
    assert_eq!(slot.sent(), Some((0, vec![(3, Status::Value), (2, Status::Value), (1, Status::Value)])));
}

#[test]
fn only_so_many_calls_are_deferred() {
    let mut slot = Bench::new();
    slot.0.allow_deferred(2);
    slot.take(run([1, 2, 3]));
    for seq in [1, 2] {
        slot.0.claim().unwrap();
        slot.0.defer(Seq(seq));
    }
    assert_eq!(slot.0.claim(), None, "SL-6");
    slot.0.answer(reply(2, Status::Value));
    assert_eq!(slot.0.claim().unwrap().seq, Seq(3));
}

#[test]
fn a_deferred_call_is_told_once_on_a_link_and_stops_when_cancelled() {
    let mut slot = Bench::new();
    slot.take(run([1, 2, 3]));
    for seq in [1, 2] {
        slot.0.claim().unwrap();
        slot.0.defer(Seq(seq));
    }
    assert_eq!(slot.0.announce_deferred(), Some(FromSlot::Begun { calls: vec![Seq(1), Seq(2)] }));
    assert_eq!(slot.0.announce_deferred(), None);
    slot.take(ToSlot::Hello(Hello { client: ClientId(1), lease: LEASE, replies: 0, keeps: true }));
    assert_eq!(slot.0.announce_deferred(), Some(FromSlot::Begun { calls: vec![Seq(1), Seq(2)] }));
    let effects = slot.take(ToSlot::Cancel { calls: vec![Seq(2), Seq(3)] });
    assert_eq!(effects, [Effect::Interrupt { call: Seq(2) }]);
    assert_eq!(slot.take(ToSlot::Kill { calls: vec![Seq(1)] }), [Effect::Die { call: Seq(1) }]);
}

#[test]
fn calls_for_this_slot_alone_are_not_given_back() {
    let mut slot = Bench::new();
    slot.take(ToSlot::Hello(Hello { client: ClientId(1), lease: LEASE, replies: 0, keeps: true }));
    slot.take(run([1, 2]));
    slot.0.claim().unwrap();
    slot.0.block();
    slot.take(run([3]));
    assert_eq!(slot.sent(), None, "SL-5");
    slot.0.finish(reply(1, Status::Value));
    assert_eq!([slot.run_next(), slot.run_next()], [2, 3]);
}
