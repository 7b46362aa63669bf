//! The head over real sockets.

use paceline_core::head::Config;
use paceline_head::{Handle, service};
use paceline_net::control::{self, Receiver, Sender};
use paceline_net::fds;
use paceline_proto::control::{ClientToHead, HeadToClient, HeadToNode, NodeToHead, Stream};
use paceline_proto::{ClientId, ClusterId, Epoch, Incarnation, NodeId, Resources, Shape, SlotId};
use std::time::{Duration, Instant};

const A: ClientId = ClientId(1);
const B: ClientId = ClientId(2);
const NODE: NodeId = NodeId(1);

fn run<T>(test: impl AsyncFnOnce(Handle) -> T) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (service, handle) = service(Config::new(ClusterId(1), Epoch(1), [0; 32]));
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
        &ClientToHead::Hello { client, name: String::new(), leases: vec![], met: None, under: None },
        vec![],
    );
    assert!(matches!(next(&mut receiver).await, HeadToClient::Welcome { .. }));
    (sender, receiver)
}

async fn node(head: &Handle) -> Node {
    let (ours, theirs) = fds::pair().unwrap();
    head.accept(theirs);
    let (sender, mut receiver) = control::channel(ours).unwrap();
    let total = Resources::cpus(2);
    let (incarnation, name) = (Incarnation(1), String::new());
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

#[test]
fn a_wish_becomes_a_grant() {
    run(async |head| {
        let (client, mut to_client) = client(&head, A).await;
        let (node, mut to_node) = node(&head).await;
        let shape = Shape::cpus(1);
        client.send(&ClientToHead::Want { shape, count: 1 }, vec![]);
        let HeadToNode::Place { lease, client: A, secret, .. } = next(&mut to_node).await else {
            panic!("not placed")
        };
        node.send(&NodeToHead::Placed { lease, slot: SlotId(7) }, vec![]);
        let granted = HeadToClient::Granted { lease, node: NODE, slot: SlotId(7), shape, secret };
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
fn a_peer_that_does_not_introduce_itself_is_dropped() {
    run(async |head| {
        for first in [ClientToHead::Bye, ClientToHead::Want { shape: Shape::cpus(1), count: 1 }] {
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
