//! What is said to the node, and what it says.

use super::*;

#[test]
fn a_lease_from_place_to_end() {
    let mut bench = Bench::ready(1);
    assert_eq!(bench.place(7, A, one()), [bind(1, A, one()), placed(7, 1)]);
    assert_eq!(bench.connect(50, 7), [attach(1, 7, 50)]);
    assert_eq!(bench.connect(51, 7), [attach(1, 7, 51)], "a link that broke is replaced");
    assert_eq!(bench.end(7), [detach(1, 7)]);
    assert_eq!(bench.connect(52, 7), [Effect::Refuse { connection: 52 }]);
    assert_eq!(bench.detached(1, 7), [ended(7, None)]);
}

#[test]
fn repeated_and_late_messages_do_nothing() {
    let mut bench = Bench::ready(2);
    bench.place(7, A, one());
    assert_eq!(bench.place(7, A, one()), [placed(7, 1)], "ND-4: the answer may have been lost");
    assert_eq!(bench.detached(1, 7), [], "nobody told it to");
    bench.end(7);
    assert_eq!(bench.end(7), []);
    assert_eq!(bench.detached(1, 8), [], "another lease");
    assert_eq!(bench.detached(2, 7), [], "another slot");
    bench.detached(1, 7);
    assert_eq!(bench.end(7), [ended(7, None)], "the answer may have been lost");
    assert_eq!(bench.exited(9), []);
    assert_eq!(bench.forked(9), []);
    assert_eq!(bench.slot_ready(1), []);
    assert_eq!(bench.handle(Event::ZygoteUp), []);
}

#[test]
fn a_slot_that_does_not_let_go_is_killed_before_the_lease_ends() {
    let mut bench = Bench::ready(1);
    bench.place(7, A, one());
    bench.end(7);
    assert_eq!(bench.pass(millis(499)), []);
    assert_eq!(bench.pass(millis(1)), [kill(1), fork(2)]);
    assert_eq!(bench.detached(1, 7), [], "too late");
    assert_eq!(bench.pass(Duration::from_secs(60)), [], "ND-3: not before it is dead");
    assert_eq!(bench.exited(1), [ended(7, None), forget(1)], "the head asked for it: no death to tell");
}

#[test]
fn a_slot_without_a_process_is_killed_when_it_has_one() {
    let mut bench = Bench::new(1, 0);
    bench.handle(Event::HeadUp);
    bench.handle(Event::ZygoteUp);
    bench.place(7, A, one());
    bench.end(7);
    assert_eq!(bench.pass(millis(500)), [fork(2)]);
    assert_eq!(bench.forked(1), [kill(1)]);
    assert_eq!(bench.exited(1), [ended(7, None), forget(1)]);
}

#[test]
fn heartbeats_are_sent_while_the_head_is_there() {
    let mut bench = Bench::ready(1);
    bench.now = bench.wake.unwrap();
    assert_eq!(bench.now, Tick::ZERO + Duration::from_secs(2));
    assert_eq!(bench.handle(Event::Tick), [Effect::ToHead(NodeToHead::Heartbeat { beat: bench.now.0 })]);
}

#[test]
fn a_head_that_comes_back_hears_what_it_missed() {
    let mut bench = Bench::ready(2);
    bench.place(7, A, one());
    bench.place(8, B, one());
    assert_eq!(bench.handle(Event::HeadDown), []);
    assert_eq!(bench.pass(Duration::from_secs(59)), []);
    let death = died(Some(Seq(4)));
    let effects = bench.handle(Event::Exited { slot: SlotId(2), death: death.clone() });
    assert_eq!(effects, [forget(2), fork(3)]);
    let back = bench.handle(Event::HeadUp);
    assert_eq!(back, [join(2, &[(7, A, 1), (8, B, 2)]), ended(8, Some(death))], "ND-3");
    let heard = HeadToNode::Heard { lease: LeaseId(8) };
    assert_eq!(bench.handle(Event::FromHead(heard)), []);
    assert_eq!(bench.handle(Event::HeadUp), [join(2, &[(7, A, 1)])]);
}

#[test]
fn a_death_that_was_lost_on_its_way_is_told_again() {
    let mut bench = Bench::ready(1);
    bench.place(7, A, one());
    let death = died(Some(Seq(4)));
    let told = ended(7, Some(death.clone()));
    let effects = bench.handle(Event::Exited { slot: SlotId(1), death });
    assert_eq!(effects, [told.clone(), forget(1), fork(2)]);
    bench.handle(Event::HeadDown);
    assert_eq!(bench.handle(Event::HeadUp), [join(1, &[(7, A, 1)]), told.clone()], "ND-3");
    bench.handle(Event::FromHead(HeadToNode::Heard { lease: LeaseId(7) }));
    assert_eq!(bench.handle(Event::HeadUp), [join(1, &[])]);
}

#[test]
fn a_lease_for_which_there_is_no_room_is_refused() {
    let mut bench = Bench::ready(1);
    bench.place(7, A, one());
    assert_eq!(bench.place(8, B, one()), [ended(8, None)], "ND-9");
    bench.end(7);
    assert_eq!(bench.place(9, B, one()), [ended(9, None)], "ND-9: its slot may still run something");
    bench.detached(1, 7);
    assert!(bench.place(10, B, one()).contains(&placed(10, 2)));
}

#[test]
fn an_earlier_start_of_the_head_is_not_obeyed() {
    let mut bench = Bench::ready(1);
    bench.welcome(5);
    assert_eq!(bench.welcome(4), [Effect::DropHead], "ND-10");
    assert_eq!(bench.place(7, A, one()), [], "whatever it says");
    bench.handle_only(Event::HeadUp);
    assert_eq!(bench.place(7, A, one()), [], "nobody has said who is there");
    assert_eq!(bench.welcome(6), [beat(bench.now)], "the head hears that it is obeyed");
    assert_eq!(bench.welcome(6), [], "once is enough");
    assert_eq!(bench.place(7, A, one()), [bind(1, A, one()), placed(7, 1)]);
}

#[test]
fn a_head_that_is_silent_is_left_and_in_the_end_given_up() {
    let mut bench = Bench::ready(1);
    bench.place(7, A, one());
    let beat = |seconds: u64| beat(Tick::ZERO + Duration::from_secs(seconds));
    assert_eq!(bench.pass_alone(Duration::from_secs(5), false), [beat(2), beat(4)]);
    assert_eq!(bench.pass_alone(Duration::from_secs(1), false), [Effect::DropHead], "three heartbeats");
    // A beat that was answered long ago proves nothing about now, however late the answer comes.
    bench.now = bench.now + Duration::from_secs(1);
    bench.handle(Event::HeadUp);
    bench.handle(Event::FromHead(HeadToNode::Heartbeat { beat: 0 }));
    bench.handle(Event::HeadDown);
    assert_eq!(bench.pass(Duration::from_secs(59)), [], "ND-10: from the seventh second on");
    assert_eq!(bench.pass(Duration::from_secs(1)), [kill(1), fork(2)]);
}

#[test]
fn without_its_head_for_long_a_node_ends_what_runs() {
    let mut bench = Bench::ready(3);
    bench.place(7, A, one());
    bench.place(8, B, one());
    bench.end(8);
    bench.detached(2, 8);
    bench.handle(Event::HeadDown);
    let effects = bench.pass(Duration::from_secs(10));
    assert_eq!(effects, [exit(2), fork(4)], "the warm one cooled");
    assert_eq!(bench.exited(2), [forget(2)]);
    assert_eq!(bench.pass(Duration::from_secs(50)), [kill(1), fork(5)]);
    assert_eq!(bench.exited(1), [forget(1)]);
    assert_eq!(bench.handle(Event::HeadUp), [join(3, &[])]);
}

#[test]
fn a_head_that_dies_before_its_first_word_is_soon_missed() {
    let mut config = Config::new(NodeId(1), Incarnation(1), Resources::cpus(1));
    config.ends_without_head = true;
    let mut bench = Bench { node: Node::new(config), now: Tick::ZERO, wake: None, kill_at: BTreeMap::new() };
    bench.handle_only(Event::HeadUp);
    bench.handle(Event::HeadDown);
    assert_eq!(bench.pass(Duration::from_secs(9)), []);
    assert_eq!(bench.pass(Duration::from_secs(1)), [Effect::Closed], "ND-10");
    assert!(bench.node.has_lost_head());
}

#[test]
fn output_goes_to_whom_the_slot_belongs() {
    let mut bench = Bench::ready(1);
    let output = || Event::Output { slot: SlotId(1), stream: Stream::Out, text: b"hi\n".to_vec() };
    assert_eq!(bench.handle(output()), [Effect::Stray { slot: SlotId(1), text: b"hi\n".to_vec() }]);
    bench.place(7, A, one());
    let text = b"hi\n".to_vec();
    let told = NodeToHead::Output { client: A, slot: SlotId(1), stream: Stream::Out, text };
    assert_eq!(bench.handle(output()), [Effect::ToHead(told.clone())]);
    bench.end(7);
    bench.detached(1, 7);
    assert_eq!(bench.handle(output()), [Effect::ToHead(told)], "still A's");
}

#[test]
fn closing_lets_user_code_go_in_peace() {
    let mut bench = Bench::new(3, 0);
    bench.handle(Event::HeadUp);
    bench.handle(Event::ZygoteUp);
    bench.slot_ready(1);
    bench.slot_ready(2);
    bench.place(7, A, one());
    assert_eq!(bench.handle(Event::FromHead(HeadToNode::Bye)), [exit(1), kill(2), forget(3)]);
    assert!(!bench.node.has_lost_head(), "it was told to go");
    assert_eq!(bench.handle(Event::Close), [], "ND-4");
    assert_eq!(bench.place(8, A, one()), [ended(8, None)]);
    assert_eq!(bench.exited(2), [forget(2)]);
    assert_eq!(bench.pass(millis(500)), [kill(1)]);
    assert_eq!(bench.exited(1), [ended(7, None), forget(1), Effect::Closed]);
    assert_eq!(bench.handle(Event::ZygoteDied), []);
}

#[test]
fn closing_with_nothing_to_wait_for_is_immediate() {
    let mut bench = Bench::new(1, 0);
    bench.handle(Event::HeadUp);
    assert_eq!(bench.handle(Event::Close), [Effect::Closed]);
}

#[test]
fn time_that_stood_still_is_nobodys_fault() {
    let mut bench = Bench::ready(1);
    bench.place(7, A, one());
    bench.end(7);
    bench.now = bench.now + Duration::from_secs(3600);
    assert_eq!(bench.handle(Event::Tick), [Effect::ToHead(NodeToHead::Heartbeat { beat: bench.now.0 })]);
    assert_eq!(bench.detached(1, 7), [ended(7, None)]);
}

#[test]
fn connections_for_another_nodes_lease_are_passed_on_until_it_is_over() {
    let mut bench = Bench::ready(1);
    let addresses = vec![Address::tcp("there", 7078)];
    let (lease, relay) =
        (LeaseId(70), HeadToNode::Relay { lease: LeaseId(70), addresses: addresses.clone() });
    assert_eq!(bench.handle(Event::FromHead(relay)), []);
    assert_eq!(bench.connect(50, 70), [Effect::Relay { connection: 50, lease, addresses }]);
    assert_eq!(bench.end(70), [], "its end is its own node's to tell");
    assert_eq!(bench.connect(51, 70), [Effect::Refuse { connection: 51 }]);
}

#[test]
fn a_slot_is_told_the_secret_of_connections_from_elsewhere_only() {
    let mut bench = Bench::ready(1);
    bench.place(7, A, one());
    let secrets = [(Way::Unix, None), (Way::Tls, Some(SECRET)), (Way::Relayed, Some(SECRET))];
    for (connection, (way, secret)) in (1..).zip(secrets) {
        let lease = LeaseId(7);
        let message = NodeToSlot::Attach { lease, secret };
        let attach = Effect::ToSlot { slot: SlotId(1), message, connection: Some(connection) };
        assert_eq!(bench.handle(Event::Connection { connection, lease, way }), [attach]);
        assert_eq!(bench.node.status().slots[0].way, Some(way));
    }
    let unknown = Event::Connection { connection: 9, lease: LeaseId(8), way: Way::Tls };
    assert_eq!(bench.handle(unknown), [Effect::Refuse { connection: 9 }]);
}

#[test]
fn timing_of_the_head_that_is_obeyed_counts() {
    let mut bench = Bench::new(1, 0);
    bench.handle_only(Event::HeadUp);
    let second = Duration::from_secs(1);
    bench.welcome_with(1, Timing { heartbeat: second / 5, head_lost: second * 8 });
    let beats = |out: &[Effect]| {
        out.iter().filter(|effect| matches!(effect, Effect::ToHead(NodeToHead::Heartbeat { .. }))).count()
    };
    assert_eq!(beats(&bench.pass_alone(second, true)), 5, "ND-12");
    bench.handle(Event::HeadDown);
    assert_eq!(bench.node.head_lost(), second * 8, "ND-12");
    bench.handle_only(Event::HeadUp);
    assert_eq!(bench.node.head_lost(), second * 8, "ND-12: it has said nothing yet");
    bench.welcome_with(2, Timing { heartbeat: second * 4, head_lost: Duration::ZERO });
    assert_eq!(bench.node.head_lost(), second * 16, "ND-12: what nobody can work with is not taken over");
}
