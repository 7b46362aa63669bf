//! Coming, going, and coming back.

use super::*;

#[test]
fn a_lease_from_wish_to_end() {
    let mut bench = Bench::new();
    let one = Shape::cpus(1);
    assert_eq!(bench.hello(A, &[]), [welcome(A)]);
    assert_eq!(bench.want(A, one, 1), [], "no node yet, so it waits");
    assert_eq!(bench.join(N1, 2, &[]), [welcome_node(N1), place(N1, 1, A, one)]);
    assert_eq!(bench.placed(N1, 1), [granted(A, 1, N1, one)]);
    assert_eq!(bench.want(A, one, 0), []);
    assert_eq!(bench.release(A, 1), [end(N1, 1)]);
    assert_eq!(bench.ended(N1, 1, None), []);
    assert!(bench.head.leases.is_empty());
}

#[test]
fn a_slot_that_dies_is_told_and_replaced() {
    let mut bench = Bench::holding(A, 1);
    let effects = bench.ended(N1, 1, Some(killed()));
    assert_eq!(effects, [ended(A, 1, killed()), place(N1, 2, A, Shape::cpus(1))]);
}

#[test]
fn a_death_before_the_client_knew_is_not_told() {
    let mut bench = Bench::new();
    bench.hello(A, &[]);
    bench.join(N1, 1, &[]);
    bench.want(A, Shape::cpus(1), 1);
    assert_eq!(bench.ended(N1, 1, Some(killed())), [place(N1, 2, A, Shape::cpus(1))]);
}

#[test]
fn repeated_and_late_messages_do_nothing() {
    let mut bench = Bench::holding(A, 2);
    assert_eq!(bench.hello(A, &[]), [welcome(A)], "HD-5: the empty list of leases is old");
    assert_eq!(bench.want(A, Shape::cpus(1), 2), []);
    assert_eq!(bench.join(N1, 2, &[]), [welcome_node(N1)], "HD-5");
    assert_eq!(bench.placed(N1, 1), []);
    assert_eq!(bench.release(B, 1), [], "not B's to give back");
    assert_eq!(bench.ended(N2, 1, None), [], "not on N2");
    bench.want(A, Shape::cpus(1), 0);
    assert_eq!(bench.release(A, 1), [end(N1, 1)]);
    assert_eq!(bench.release(A, 1), []);
    assert_eq!(bench.ended(N1, 1, None), []);
    assert_eq!(bench.ended(N1, 1, None), []);
    assert_eq!(bench.placed(N1, 1), [end(N1, 1)], "the node has one that the head has not");
    assert_eq!(bench.want(C, Shape::cpus(1), 1), [], "C never said hello");
}

#[test]
fn output_goes_to_its_client() {
    let mut bench = Bench::holding(A, 1);
    let (slot, stream) = (SlotId(1), Stream::Err);
    let text = b"hi\n".to_vec();
    let line = |client| NodeToHead::Output { client, slot, stream, text: text.clone() };
    let relayed = HeadToClient::Output { slot, stream, text: text.clone() };
    assert_eq!(bench.node_says(N1, line(A)), [Effect::ToClient(A, relayed)]);
    assert_eq!(bench.node_says(N1, line(B)), [], "nobody to tell");
}

#[test]
fn a_silent_node_is_lost_after_three_heartbeats() {
    let mut bench = Bench::holding(A, 2);
    assert_eq!(bench.pass(Duration::from_millis(5999)), []);
    let lost = [ended(A, 1, node_lost()), ended(A, 2, node_lost()), Effect::DropNode(N1)];
    let mut told = bench.pass(Duration::from_millis(1));
    told.sort_by_key(|effect| format!("{effect:?}"));
    let mut lost = lost.to_vec();
    lost.sort_by_key(|effect| format!("{effect:?}"));
    assert_eq!(told, lost);
    let back = bench.join(N1, 2, &[(1, A), (2, A)]);
    assert_eq!(back, [welcome_node(N1), end(N1, 1), end(N1, 2)], "what is lost stays lost");
    let one = Shape::cpus(1);
    assert_eq!(bench.ended(N1, 1, None), [place(N1, 3, A, one)], "HD-3: not before it is over there, too");
    assert_eq!(bench.ended(N1, 2, None), [place(N1, 4, A, one)]);
}

#[test]
fn a_node_that_beats_stays() {
    let mut bench = Bench::holding(A, 1);
    assert_eq!(bench.pass_beating(N1, seconds(100)), []);
}

#[test]
fn a_link_that_comes_back_in_time_changes_nothing() {
    let mut bench = Bench::holding(A, 1);
    assert_eq!(bench.handle(Event::NodeDown(N1)), []);
    assert_eq!(bench.pass(seconds(5)), []);
    assert_eq!(bench.join(N1, 1, &[(1, A)]), [welcome_node(N1)]);
    assert_eq!(bench.pass_beating(N1, seconds(10)), []);
}

#[test]
fn a_link_that_does_not_come_back_is_a_lost_node() {
    let mut bench = Bench::holding(A, 1);
    bench.handle(Event::NodeDown(N1));
    assert_eq!(bench.pass(Duration::from_millis(5999)), []);
    assert_eq!(bench.pass(Duration::from_millis(1)), [ended(A, 1, node_lost())]);
}

#[test]
fn dead_process_of_a_node_is_a_lost_node_at_once() {
    let mut bench = Bench::holding(A, 1);
    bench.handle(Event::NodeDown(N1));
    assert_eq!(bench.handle(Event::NodeDied(N1)), [ended(A, 1, node_lost())]);
    assert_eq!(bench.handle(Event::NodeDied(N1)), [], "it is known");
    // The start after it is used as any other.
    let again = bench.join_as(N1, Incarnation(2), 1, &[]);
    assert_eq!(again, [welcome_node(N1), place(N1, 2, A, Shape::cpus(1))]);
}

#[test]
fn dead_process_of_a_node_is_no_proof_for_what_it_ran() {
    let mut bench = Bench::holding(A, 1);
    bench.handle(Event::NodeDied(N1));
    // It was not dead after all: what it has was given up, and ends.
    assert_eq!(bench.join(N1, 1, &[(1, A)]), [welcome_node(N1), end(N1, 1)]);
}

#[test]
fn a_node_that_comes_back_is_reconciled() {
    let mut bench = Bench::new();
    let one = Shape::cpus(1);
    bench.hello(A, &[]);
    bench.join(N1, 5, &[]);
    bench.want(A, one, 5);
    (1..=3).for_each(|number| drop(bench.placed(N1, number)));
    bench.handle(Event::NodeDown(N1));
    bench.want(A, one, 4);
    assert_eq!(bench.release(A, 2), [], "the node is out of reach");
    // Held and there, held and gone, ending and there, placing and placed, placing and never heard of, unknown.
    let back = bench.join(N1, 5, &[(1, A), (2, A), (4, A), (77, A)]);
    let (welcome, rest) = back.split_first().unwrap();
    assert_eq!(*welcome, welcome_node(N1));
    let mut rest = rest.to_vec();
    let mut expected =
        vec![end(N1, 2), ended(A, 3, node_lost()), granted(A, 4, N1, one), end(N1, 77), place(N1, 6, A, one)];
    rest.sort_by_key(|effect| format!("{effect:?}"));
    expected.sort_by_key(|effect| format!("{effect:?}"));
    assert_eq!(rest, expected);
    assert_eq!(
        bench.ended(N1, 77, None),
        [place(N1, 7, A, one)],
        "HD-3: what is unknown here takes room there"
    );
}

#[test]
fn another_start_of_a_node_has_none_of_the_old_leases() {
    let mut bench = Bench::holding(A, 1);
    bench.handle(Event::NodeDown(N1));
    let effects = bench.join_as(N1, Incarnation(2), 1, &[]);
    assert_eq!(effects, [ended(A, 1, node_lost()), welcome_node(N1), place(N1, 2, A, Shape::cpus(1))]);
}

#[test]
fn a_lost_client_keeps_its_leases_for_a_while() {
    let mut bench = Bench::holding(A, 1);
    assert_eq!(bench.handle(Event::ClientDown { client: A, end: LinkEnd::Lost }), []);
    assert_eq!(bench.pass_beating(N1, seconds(29)), []);
    assert_eq!(bench.hello(A, &[lease(1)]), [welcome(A)]);
    assert_eq!(bench.pass_beating(N1, seconds(60)), []);
    bench.handle(Event::ClientDown { client: A, end: LinkEnd::Lost });
    assert_eq!(bench.pass_beating(N1, seconds(30)), [end(N1, 1)]);
    assert!(bench.head.clients.is_empty());
    assert_eq!(bench.hello(A, &[lease(1)]), [welcome(A), ended(A, 1, node_lost())], "HD-4");
}

#[test]
fn silence_of_a_client_counts_from_its_last_word() {
    let mut bench = Bench::holding(A, 1);
    bench.client_says(A, ClientToHead::Heartbeat { beat: 1 });
    assert_eq!(bench.pass_beating(N1, seconds(20)), []);
    bench.handle(Event::ClientDown { client: A, end: LinkEnd::Lost });
    assert_eq!(bench.pass_beating(N1, seconds(9)), []);
    assert_eq!(bench.pass_beating(N1, seconds(1)), [end(N1, 1)]);
}

#[test]
fn a_client_whose_machine_closed_its_link_comes_back_at_once_or_is_dead() {
    for (how, patience) in [(LinkEnd::Closed, 2), (LinkEnd::Reset, 6)] {
        let mut bench = Bench::holding(A, 1);
        bench.handle(Event::ClientDown { client: A, end: how });
        assert_eq!(bench.pass_beating(N1, seconds(patience - 1)), []);
        assert_eq!(bench.hello(A, &[lease(1)]), [welcome(A)], "it was the link alone");
        bench.handle(Event::ClientDown { client: A, end: how });
        assert_eq!(bench.pass_beating(N1, seconds(patience)), [end(N1, 1)], "{how:?}");
        assert!(bench.head.clients.is_empty());
    }
}

#[test]
fn a_client_that_lets_go_of_its_link_is_not_dead() {
    let mut bench = Bench::holding(A, 1);
    bench.client_says(A, ClientToHead::Reopening);
    bench.handle(Event::ClientDown { client: A, end: LinkEnd::Closed });
    assert_eq!(bench.pass_beating(N1, seconds(29)), []);
    assert_eq!(bench.hello(A, &[lease(1)]), [welcome(A)]);
    // That was about the other link.
    bench.handle(Event::ClientDown { client: A, end: LinkEnd::Closed });
    assert_eq!(bench.pass_beating(N1, seconds(2)), [end(N1, 1)]);
}

#[test]
fn a_client_that_comes_back_is_reconciled() {
    let mut bench = Bench::holding(A, 2);
    bench.handle(Event::ClientDown { client: A, end: LinkEnd::Lost });
    assert_eq!(bench.ended(N1, 1, Some(killed())), [], "nobody to tell");
    let back = bench.hello(A, &[lease(1)]);
    assert_eq!(
        back,
        [welcome(A), ended(A, 1, node_lost()), end(N1, 2)],
        "HD-4, and it lost 2 or gave it back"
    );
}

#[test]
fn goodbye_and_death_end_leases_at_once() {
    let mut bench = Bench::holding(A, 1);
    assert_eq!(bench.client_says(A, ClientToHead::Bye), [end(N1, 1)]);
    assert_eq!(bench.want(A, Shape::cpus(1), 1), [], "it is leaving");
    let (slot, stream) = (SlotId(1), Stream::Out);
    let output = NodeToHead::Output { client: A, slot, stream, text: b"bye\n".to_vec() };
    assert_eq!(bench.node_says(N1, output).len(), 1, "its slots' last words are heard");
    assert_eq!(bench.handle(Event::ClientDown { client: A, end: LinkEnd::Lost }), []);
    assert!(bench.head.clients.is_empty());
    let mut bench = Bench::holding(A, 1);
    assert_eq!(bench.handle(Event::ClientDown { client: A, end: LinkEnd::Dead }), [end(N1, 1)]);
    assert_eq!(bench.ended(N1, 1, None), []);
}

#[test]
fn what_no_node_could_hold_is_refused_at_once() {
    let mut bench = Bench::new();
    let huge = Shape::cpus(3);
    let refusal = |cpus| {
        let largest = Resources::cpus(cpus);
        let why = format!("no node has more than {cpus} CPUs");
        Effect::ToClient(A, HeadToClient::Unplaceable { shape: huge, largest, why })
    };
    bench.hello(A, &[]);
    assert_eq!(bench.want(A, huge, 1), [], "with no node nothing is impossible");
    assert_eq!(bench.join(N1, 2, &[]), [welcome_node(N1), refusal(2)]);
    assert_eq!(bench.want(A, huge, 1), [refusal(2)]);
    bench.join(N2, 4, &[]);
    assert_eq!(bench.want(A, huge, 1), [place(N2, 1, A, huge)]);
    bench.handle(Event::NodeDown(N2));
    assert_eq!(bench.pass_beating(N1, seconds(30)), [], "lost before it was placed, and may be back");
    assert_eq!(bench.pass_beating(N1, seconds(60)), [refusal(2)]);
}

#[test]
fn nothing_is_impossible_while_the_cluster_gathers() {
    let mut bench = Bench::with(|config| config.settle = Duration::from_secs(60));
    bench.hello(A, &[]);
    bench.join(N1, 1, &[]);
    assert_eq!(bench.want(A, Shape::cpus(2), 1), []);
    assert_eq!(bench.pass_beating(N1, seconds(4)), []);
    let told = bench.pass_beating(N1, seconds(2));
    assert!(matches!(told[..], [Effect::ToClient(A, HeadToClient::Waits { .. })]), "WT-1: {told:?}");
    assert_eq!(bench.pass_beating(N1, seconds(53)), [], "WT-1: once, and not that it is impossible");
    assert_eq!(bench.pass_beating(N1, seconds(2)).len(), 1);
}

#[test]
fn time_that_stood_still_is_nobodys_silence() {
    let mut bench = Bench::holding(A, 1);
    bench.now = bench.now + seconds(3600);
    assert_eq!(bench.handle(Event::Tick), []);
    assert_eq!(bench.pass(seconds(5)), []);
    assert_eq!(bench.pass(seconds(2)), [ended(A, 1, node_lost()), Effect::DropNode(N1)]);
}

#[test]
fn client_that_beats_and_falls_silent_before_its_first_heartbeat_is_given_up() {
    let mut bench = Bench::new();
    let hello = |beats| {
        let (name, leases) = ("test".into(), Vec::new());
        ClientToHead::Hello { client: A, name, leases, met: None, under: None, beats }
    };
    bench.client_says(A, hello(true));
    assert!(!bench.pass(seconds(29)).contains(&Effect::DropClient(A)));
    assert!(
        bench.pass(seconds(2)).contains(&Effect::DropClient(A)),
        "its silence counts from its first word"
    );
    bench.client_says(A, hello(false));
    assert!(
        !bench.pass(seconds(300)).contains(&Effect::DropClient(A)),
        "one that sends none is never silent"
    );
}
