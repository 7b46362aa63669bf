//! The head over real sockets.

use paceline_core::head::Config;
use paceline_head::{Handle, service};
use paceline_net::control::{self, Receiver, Sender};
use paceline_net::fds;
use paceline_proto::control::{ClientToHead, HeadToClient, HeadToNode, Met, NodeToHead, Stream};
use paceline_proto::question::Question;
use paceline_proto::{ClientId, ClusterId, Epoch, Incarnation, NodeId, Resources, Shape, SlotId, WorkId};
use std::time::{Duration, Instant};

const A: ClientId = ClientId(1);
const B: ClientId = ClientId(2);
const NODE: NodeId = NodeId(1);

fn run<T>(test: impl AsyncFnOnce(Handle) -> T) -> T {
    run_with(Config::new(ClusterId(1), Epoch(1), [0; 32]), test)
}

fn run_with<T>(config: Config, test: impl AsyncFnOnce(Handle) -> T) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (service, handle) = service(config);
        let head = tokio::spawn(service.run());
        let limit = Duration::from_secs(10);
        let result =
            tokio::time::timeout(limit, test(handle.clone())).await.expect("the test is done in time");
        handle.close();
        tokio::time::timeout(limit, head).await.expect("the head ends").unwrap();
        result
    })
}

type Client = (Sender<ClientToHead>, Receiver<HeadToClient>);
type Node = (Sender<NodeToHead>, Receiver<HeadToNode>);

async fn client(head: &Handle, client: ClientId) -> Client {
    let (ours, theirs) = fds::pair().unwrap();
    head.accept(theirs);
    let (sender, mut receiver) = control::channel(ours).unwrap();
    sender.send(
        &ClientToHead::Hello {
            client,
            name: String::new(),
            leases: vec![],
            met: None,
            under: None,
            beats: false,
        },
        vec![],
    );
    assert!(matches!(next(&mut receiver).await, HeadToClient::Welcome { .. }));
    (sender, receiver)
}

async fn node(head: &Handle) -> Node {
    node_as(head, Incarnation(1)).await
}

async fn node_as(head: &Handle, incarnation: Incarnation) -> Node {
    let (ours, theirs) = fds::pair().unwrap();
    head.accept(theirs);
    let (sender, mut receiver) = control::channel(ours).unwrap();
    let total = Resources::cpus(2);
    let name = String::new();
    let (leases, met, addresses) = (vec![], None, vec![]);
    sender.send(
        &NodeToHead::Join {
            node: NODE,
            incarnation,
            name,
            total,
            leases,
            met,
            addresses,
            facts: Default::default(),
        },
        vec![],
    );
    assert!(matches!(next(&mut receiver).await, HeadToNode::Welcome { .. }));
    (sender, receiver)
}

async fn next<M: control::Carries>(receiver: &mut Receiver<M>) -> M {
    receiver.next().await.unwrap().expect("the link is open").0
}

fn hello(client: ClientId) -> ClientToHead {
    ClientToHead::Hello { client, name: String::new(), leases: vec![], met: None, under: None, beats: false }
}

/// A link that comes from a slot.
fn slot(head: &Handle) -> Client {
    let (ours, theirs) = fds::pair().unwrap();
    head.accept_slot(theirs, ());
    control::channel(ours).unwrap()
}

#[test]
fn slot_that_asks_what_is_not_for_tasks_is_refused() {
    run(async |head| {
        let (slot, mut to_slot) = slot(&head);
        slot.send(&hello(B), vec![]);
        assert!(matches!(next(&mut to_slot).await, HeadToClient::Welcome { .. }));
        let asked = [
            Question::Token { reusable: true },
            Question::Stop,
            Question::StopHead,
            Question::Drain { node: String::new() },
            Question::CleanLogs,
            Question::Logs { of: None, lines: 9 },
            Question::StopProgram { name: "x".into() },
        ];
        for (number, question) in (0..).zip(asked) {
            slot.send(&ClientToHead::Ask { number, question }, vec![]);
            let answer = HeadToClient::Answer { number, text: Question::refusal() };
            assert_eq!(next(&mut to_slot).await, answer, "LK-4");
        }
        slot.send(&ClientToHead::Ask { number: 99, question: Question::Programs }, vec![]);
        let told = next(&mut to_slot).await;
        assert!(matches!(told, HeadToClient::Answer { number: 99, text: Ok(_) }), "{told:?}");
    });
}

#[test]
fn slot_that_says_it_is_somebody_else_is_dropped() {
    run(async |head| {
        let (client_link, mut to_client) = client(&head, A).await;
        let (thief, mut to_thief) = slot(&head);
        thief.send(&hello(A), vec![]);
        assert!(to_thief.next().await.unwrap().is_none(), "LK-4");
        let quiet = tokio::time::timeout(Duration::from_millis(50), to_client.next()).await;
        assert!(quiet.is_err(), "the client keeps its link");
        // Nor while the client is away: it may come back.
        drop((client_link, to_client));
        let (thief, mut to_thief) = slot(&head);
        thief.send(&hello(A), vec![]);
        assert!(to_thief.next().await.unwrap().is_none(), "LK-4");
        let (ours, theirs) = fds::pair().unwrap();
        head.accept_slot(theirs, ());
        let (node, mut to_node) = control::channel::<NodeToHead, HeadToNode>(ours).unwrap();
        node.send(&NodeToHead::Leaving, vec![]);
        assert!(to_node.next().await.unwrap().is_none(), "LK-4");
    });
}

#[test]
fn slot_that_says_it_met_a_later_head_ends_nothing() {
    run(async |head| {
        let (liar, mut to_liar) = slot(&head);
        let met = Some(Met { cluster: ClusterId(1), epoch: Epoch(1 << 63) });
        let hello = ClientToHead::Hello {
            client: A,
            name: String::new(),
            leases: vec![],
            met,
            under: None,
            beats: false,
        };
        liar.send(&hello, vec![]);
        assert!(to_liar.next().await.unwrap().is_none(), "LK-4");
        let _other = client(&head, B).await;
    });
}

#[test]
fn client_with_the_id_of_work_is_dropped() {
    run(async |head| {
        let (ours, theirs) = fds::pair().unwrap();
        head.accept(theirs);
        let (sender, mut receiver) = control::channel::<_, HeadToClient>(ours).unwrap();
        sender.send(&hello(ClientId::of_work(WorkId(1 << 32 | 1))), vec![]);
        assert!(receiver.next().await.unwrap().is_none());
    });
}

#[test]
fn peer_that_does_not_read_is_dropped() {
    let config = Config { max_unread_bytes: 64 << 10, ..Config::new(ClusterId(1), Epoch(1), [0; 32]) };
    run_with(config, async |head| {
        let (asker, mut to_asker) = client(&head, A).await;
        for number in 0..40_000 {
            asker.send(&ClientToHead::Ask { number, question: Question::Programs }, vec![]);
            asker.drained_to(64 << 10).await;
        }
        // Ends because the head has dropped the link (LK-5).
        while let Ok(Some(_)) = to_asker.next().await {}
        // Nobody else is any the worse for it.
        let _other = client(&head, B).await;
    });
}

#[test]
fn a_wish_becomes_a_grant() {
    run(async |head| {
        let (client, mut to_client) = client(&head, A).await;
        let (node, mut to_node) = node(&head).await;
        let shape = Shape::cpus(1);
        client.send(&ClientToHead::Want { shape, count: 1, exclusive: None }, vec![]);
        let HeadToNode::Place { lease, client: A, secret, .. } = next(&mut to_node).await else {
            panic!("not placed")
        };
        node.send(&NodeToHead::Placed { lease, slot: SlotId(7) }, vec![]);
        let granted = HeadToClient::Granted {
            lease,
            node: NODE,
            slot: SlotId(7),
            shape,
            incarnation: Incarnation(1),
            secret,
            exclusive: None,
        };
        assert_eq!(next(&mut to_client).await, granted);
    });
}

#[test]
fn a_new_link_of_a_peer_takes_the_place_of_the_old() {
    run(async |head| {
        let (_first, mut to_first) = client(&head, A).await;
        let (_second, _to_second) = client(&head, A).await;
        assert!(to_first.next().await.unwrap().is_none(), "LK-1");
    });
}

#[test]
fn earlier_start_of_a_node_is_told_to_end_and_the_later_one_keeps_its_link() {
    run(async |head| {
        let (later, mut to_later) = node_as(&head, Incarnation(2)).await;
        let (_earlier, mut to_earlier) = node_as(&head, Incarnation(1)).await;
        assert_eq!(next(&mut to_earlier).await, HeadToNode::Bye, "it ends");
        later.send(&NodeToHead::Heartbeat { beat: 5 }, vec![]);
        assert_eq!(next(&mut to_later).await, HeadToNode::Heartbeat { beat: 5 });
        let (_latest, _to_latest) = node_as(&head, Incarnation(3)).await;
        assert!(to_later.next().await.unwrap().is_none(), "LK-1");
    });
}

#[test]
fn a_peer_that_does_not_introduce_itself_is_dropped() {
    run(async |head| {
        for first in
            [ClientToHead::Bye, ClientToHead::Want { shape: Shape::cpus(1), count: 1, exclusive: None }]
        {
            let (ours, theirs) = fds::pair().unwrap();
            head.accept(theirs);
            let (sender, mut receiver) = control::channel::<_, HeadToClient>(ours).unwrap();
            sender.send(&first, vec![]);
            assert!(receiver.next().await.unwrap().is_none());
        }
        let (ours, theirs) = fds::pair().unwrap();
        head.accept(theirs);
        fds::send_with_fds(&ours, b"GET / HTTP/1.1\r\n\r\n", &[]).unwrap();
        let (_sender, mut receiver) = control::channel::<ClientToHead, HeadToClient>(ours).unwrap();
        assert!(receiver.next().await.unwrap().is_none());
    });
}

#[test]
fn a_client_that_sleeps_delays_others_only_for_a_moment() {
    run(async |head| {
        let (_sleeper, _unread) = client(&head, A).await;
        let (_client, mut to_client) = client(&head, B).await;
        let (node, _to_node) = node(&head).await;
        let line = |client| NodeToHead::Output {
            client,
            slot: SlotId(1),
            stream: Stream::Out,
            text: vec![b'x'; 50_000],
        };
        let began = Instant::now();
        for _ in 0..100 {
            node.send(&line(A), vec![]);
        }
        node.send(&line(B), vec![]);
        assert!(matches!(next(&mut to_client).await, HeadToClient::Output { .. }));
        let took = began.elapsed();
        assert!(took > Duration::from_millis(900) && took < Duration::from_secs(3), "LK-2: it took {took:?}");
    });
}

#[test]
fn clients_that_sleep_together_delay_a_node_for_one_moment() {
    let heartbeat = Duration::from_millis(400);
    run_with(config(|config| config.heartbeat = heartbeat), async |head| {
        let mut sleepers = Vec::new();
        for number in 0..7 {
            sleepers.push(client(&head, ClientId(10 + number)).await);
        }
        let (node, mut to_node) = node(&head).await;
        // More than the socket of a client takes in, and what may wait for it, for each of them.
        for _ in 0..20 {
            for number in 0..7 {
                let text = vec![b'x'; 50_000];
                let client = ClientId(10 + number);
                node.send(&NodeToHead::Output { client, slot: SlotId(1), stream: Stream::Out, text }, vec![]);
            }
        }
        let began = Instant::now();
        node.send(&NodeToHead::Heartbeat { beat: 7 }, vec![]);
        assert_eq!(next(&mut to_node).await, HeadToNode::Heartbeat { beat: 7 });
        let took = began.elapsed();
        assert!(took < heartbeat * 3, "LK-2: its heartbeat waited for {took:?}");
        assert!(took > heartbeat / 4, "LK-2: lines that nobody reads hold it up: {took:?}");
    });
}

#[test]
fn an_ending_head_says_what_nodes_said_last() {
    run(async |head| {
        let (_client, mut to_client) = client(&head, A).await;
        let (node, to_node) = node(&head).await;
        let text = b"last words\n".to_vec();
        node.send(&NodeToHead::Output { client: A, slot: SlotId(1), stream: Stream::Out, text }, vec![]);
        head.close();
        drop((node, to_node));
        assert!(matches!(next(&mut to_client).await, HeadToClient::Output { .. }));
        assert!(to_client.next().await.unwrap().is_none());
    });
}

fn config(adjust: impl FnOnce(&mut Config)) -> Config {
    let mut config = Config::new(ClusterId(1), Epoch(1), [0; 32]);
    adjust(&mut config);
    config
}

#[test]
fn clients_of_one_machine_have_so_many_links() {
    run_with(config(|config| config.max_client_links = 2), async |head| {
        let (first, second) = (client(&head, A).await, client(&head, B).await);
        let (ours, theirs) = fds::pair().unwrap();
        head.accept(theirs);
        let (third, mut to_third) = control::channel::<ClientToHead, HeadToClient>(ours).unwrap();
        third.send(&hello(ClientId(3)), vec![]);
        let told = next(&mut to_third).await;
        assert!(
            matches!(&told, HeadToClient::Refused { why } if why.contains("max_client_links")),
            "LK-8: {told:?}"
        );
        assert!(to_third.next().await.unwrap().is_none(), "LK-8");
        // Tasks and nodes are no clients.
        let (slot, mut to_slot) = slot(&head);
        slot.send(&hello(ClientId(4)), vec![]);
        assert!(matches!(next(&mut to_slot).await, HeadToClient::Welcome { .. }));
        let _node = node(&head).await;
        drop(first);
        // It is known for a while, unless it says that it goes: so there is no way around the limit.
        let (ours, theirs) = fds::pair().unwrap();
        head.accept(theirs);
        let (third, mut to_third) = control::channel::<ClientToHead, HeadToClient>(ours).unwrap();
        third.send(&hello(ClientId(3)), vec![]);
        assert!(matches!(next(&mut to_third).await, HeadToClient::Refused { .. }), "LK-8");
        second.0.send(&ClientToHead::Bye, vec![]);
        let mut to_second = second.1;
        while next(&mut to_second).await != HeadToClient::Over {}
        drop((second.0, to_second));
        tokio::time::sleep(Duration::from_millis(50)).await;
        let _third = client(&head, ClientId(3)).await;
    });
}

#[test]
fn tasks_of_one_machine_have_so_many_links() {
    run_with(config(|config| config.max_task_links = 2), async |head| {
        let mut slots = Vec::new();
        for number in 0..5 {
            let (sender, mut receiver) = slot(&head);
            sender.send(&hello(ClientId(100 + number)), vec![]);
            let told = next(&mut receiver).await;
            match number < 2 {
                true => assert!(matches!(told, HeadToClient::Welcome { .. }), "{told:?}"),
                false => assert!(
                    matches!(&told, HeadToClient::Refused { why } if why.contains("max_task_links")),
                    "LK-8: {told:?}"
                ),
            }
            slots.push((sender, receiver));
        }
        let _client = client(&head, A).await;
    });
}

#[test]
fn links_that_say_nothing_make_room() {
    run_with(config(|config| config.max_client_links = 2), async |head| {
        let mut silent = Vec::new();
        for _ in 0..200 {
            let (ours, theirs) = fds::pair().unwrap();
            head.accept(theirs);
            silent.push(control::channel::<ClientToHead, HeadToClient>(ours).unwrap());
        }
        let _node = node(&head).await;
        let _client = client(&head, A).await;
        let mut open = 0;
        for (_, receiver) in &mut silent {
            let next = tokio::time::timeout(Duration::from_millis(1), receiver.next()).await;
            open += usize::from(next.is_err());
        }
        assert!(open <= 2 + 16, "LK-8: {open} are open");
    });
}

#[test]
fn answers_that_nobody_reads_are_bounded_for_all_links_together() {
    let most = 1 << 20;
    run_with(config(|config| config.max_unread_bytes = most), async |head| {
        let mut askers = Vec::new();
        for _ in 0..8 {
            let (ours, theirs) = fds::pair().unwrap();
            head.accept(theirs);
            askers.push(control::channel::<ClientToHead, HeadToClient>(ours).unwrap());
        }
        // None of them reaches the limit by itself, but together they do.
        for number in 0..10_000 {
            for (asker, _) in &askers {
                asker.send(&ClientToHead::Ask { number, question: Question::Programs }, vec![]);
                let _ = tokio::time::timeout(Duration::from_millis(50), asker.drained_to(64 << 10)).await;
            }
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
        let mut dropped = 0;
        for (_, receiver) in &mut askers {
            let ended = async { while let Ok(Some(_)) = receiver.next().await {} };
            dropped += usize::from(tokio::time::timeout(Duration::from_millis(300), ended).await.is_ok());
        }
        assert!((1..8).contains(&dropped), "LK-5: {dropped} were dropped");
        let _other = client(&head, B).await;
    });
}

#[test]
fn message_with_a_field_that_is_too_long_ends_its_link() {
    run(async |head| {
        let (liar, mut to_liar) = client(&head, A).await;
        let resources = vec!["x".repeat(10 << 20)];
        liar.send(&ClientToHead::Named { resources }, vec![]);
        assert!(to_liar.next().await.unwrap().is_none(), "LM-1");
        let _other = client(&head, B).await;
    });
}

#[test]
fn questions_of_one_link_are_bounded() {
    run(async |head| {
        // A node that does not answer.
        let _node = node(&head).await;
        let (asker, mut to_asker) = client(&head, A).await;
        for number in 0..100 {
            asker.send(&ClientToHead::Ask { number, question: Question::Status }, vec![]);
        }
        for _ in 0..36 {
            let told = next(&mut to_asker).await;
            assert!(matches!(told, HeadToClient::Answer { number: 64.., text: Err(_) }), "AK-3: {told:?}");
        }
        for _ in 0..64 {
            let told = next(&mut to_asker).await;
            assert!(matches!(told, HeadToClient::Answer { number: ..64, text: Ok(_) }), "AK-1");
        }
    });
}
