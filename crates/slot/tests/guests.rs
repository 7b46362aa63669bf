//! A slot that several clients call, over real sockets.

use bytes::Bytes;
use paceline_net::control::Outbox;
use paceline_net::{Link, Page, Received, fds, poll};
use paceline_proto::control::NodeToSlot;
use paceline_proto::data::{Call, FromSlot, Hello, Reply, Status, ToSlot};
use paceline_proto::{ClientId, FunctionId, LeaseId, Seq, SlotId, TaskId};
use paceline_slot::{Next, Runtime};
use rustix::event::{PollFd, PollFlags};
use rustix::fd::OwnedFd;
use std::time::Duration;

/// The node's end of the slot, and the page it reads.
struct Node {
    control: OwnedFd,
    page: Page,
}

impl Node {
    fn start() -> (Runtime, Node) {
        let (ours, control) = fds::pair().unwrap();
        let (page, memory) = Page::create().unwrap();
        (Runtime::start(SlotId(1), control, memory).unwrap(), Node { control: ours, page })
    }

    fn say(&self, message: &NodeToSlot, descriptors: Vec<OwnedFd>) {
        let mut outbox = Outbox::default();
        outbox.push(message, descriptors);
        outbox.flush(&self.control).unwrap();
    }

    /// The client that the slot is leased to, or a guest of this number.
    fn client(&self, number: u32) -> Client {
        let (ours, theirs) = fds::pair().unwrap();
        let lease = LeaseId(100 + u128::from(number));
        let message = match number {
            0 => NodeToSlot::Attach { lease, secret: None },
            number => NodeToSlot::Guest { lease, number, secret: None },
        };
        self.say(&message, vec![theirs]);
        let mut client = Client { link: Link::new(ours), lease };
        client.hello();
        client
    }
}

struct Client {
    link: Link,
    lease: LeaseId,
}

impl Client {
    fn send(&mut self, message: &ToSlot) {
        message.encode(self.link.out()).unwrap();
        assert!(self.link.flush().unwrap());
    }

    fn run(&mut self, calls: impl IntoIterator<Item = u64>) {
        let payload = Bytes::from(self.lease.0.to_le_bytes().to_vec());
        let call = |seq| Call {
            seq: Seq(seq),
            task: TaskId(seq),
            attempt: 1,
            at_most_once: false,
            function: FunctionId(1),
            timeout: Duration::ZERO,
            payload: payload.clone(),
        };
        self.send(&ToSlot::Run { acked: 0, calls: calls.into_iter().map(call).collect() });
    }

    fn hello(&mut self) {
        let client = ClientId((self.lease.0 - 100) as u64);
        self.send(&ToSlot::Hello(Hello { client, lease: self.lease, replies: 0, keeps: true }));
    }

    /// The next thing the slot says, or nothing if it has closed the link.
    fn hear(&mut self) -> Option<FromSlot> {
        loop {
            if let Some(frame) = self.link.next_frame().unwrap() {
                return Some(FromSlot::decode(frame).unwrap());
            }
            match self.link.receive() {
                Ok(Received::All | Received::More) => {}
                Ok(Received::Closed) | Err(_) => return None,
                Ok(Received::Nothing) => {
                    let mut one = [PollFd::new(&self.link, PollFlags::IN)];
                    let said = poll::wait(&mut one, Some(Duration::from_secs(10))).unwrap();
                    assert!(said, "the slot says nothing");
                }
            }
        }
    }

    /// Wait until the slot has taken in all calls up to this one. It says so when it is greeted again.
    fn is_taken(&mut self, last: u64) {
        self.hello();
        while self.hear().expect("the link is open") != (FromSlot::Hello { received: Seq(last) }) {}
    }

    /// Wait until the slot has closed the link.
    fn is_closed(&mut self) {
        while self.hear().is_some() {}
    }

    /// So many replies.
    fn replies(&mut self, count: usize) -> Vec<(u64, Status)> {
        let mut all: Vec<Reply> = Vec::new();
        while all.len() < count {
            if let FromSlot::Replies { replies, .. } = self.hear().expect("the link is open") {
                all.extend(replies);
            }
        }
        all.iter().map(|reply| (reply.seq.0, reply.status)).collect()
    }
}

/// The next call, waiting for it as a slot's main thread does, and the lease of its caller.
fn claim(runtime: &Runtime, finished: Option<Seq>) -> (u128, Seq) {
    let mut next = runtime.advance(finished.map(|seq| (seq, Status::Value, Bytes::new())));
    loop {
        match next {
            Some(Next::Call(call)) => {
                let lease = <[u8; 16]>::try_from(&call.payload[..]).unwrap();
                return (u128::from_le_bytes(lease), call.seq);
            }
            Some(other) => panic!("not a call: {other:?}"),
            None => runtime.wait(),
        }
        next = runtime.advance(None);
    }
}

#[test]
fn callers_are_served_in_turn_and_each_in_order() {
    let (runtime, node) = Node::start();
    let (mut own, mut first, mut second) = (node.client(0), node.client(1), node.client(2));
    own.run(1..=3);
    let mut begun = vec![claim(&runtime, None)];
    first.run(1..=3);
    second.run(1..=3);
    // While user code runs the companion takes the calls of all callers in.
    first.is_taken(3);
    second.is_taken(3);
    while begun.len() < 9 {
        let last = begun.last().unwrap().1;
        begun.push(claim(&runtime, Some(last)));
    }
    for caller in 100..103 {
        let of: Vec<u64> = begun.iter().filter(|it| it.0 == caller).map(|it| it.1.0).collect();
        assert_eq!(of, [1, 2, 3], "SL-3");
    }
    let turns: Vec<u128> = begun.iter().map(|it| it.0).collect();
    assert_eq!(turns, [100, 101, 102, 100, 101, 102, 100, 101, 102], "GS-1");
    assert!(runtime.advance(Some((begun[8].1, Status::Value, Bytes::new()))).is_none());
    for caller in [&mut own, &mut first, &mut second] {
        assert_eq!(caller.replies(3), [1, 2, 3].map(|seq| (seq, Status::Value)), "SL-2");
    }
}

#[test]
fn the_page_tells_whose_call_ran() {
    let (runtime, node) = Node::start();
    let (mut own, mut guest) = (node.client(0), node.client(5));
    own.run([1]);
    assert_eq!(claim(&runtime, None), (100, Seq(1)));
    guest.run([1, 2]);
    guest.is_taken(2);
    assert_eq!(claim(&runtime, Some(Seq(1))), (105, Seq(1)));
    assert_eq!(claim(&runtime, Some(Seq(1))), (105, Seq(2)));
    assert_eq!(
        (node.page.running(), node.page.finished()),
        (None, Seq(1)),
        "GS-3: its own caller's have ended"
    );
    assert_eq!(node.page.guests(), [(LeaseId(105), Some(Seq(2)), Seq(1))], "GS-3");
}

#[test]
fn a_guest_that_leaves_or_speaks_nonsense_disturbs_nobody() {
    let (runtime, node) = Node::start();
    let (mut own, mut first, mut second) = (node.client(0), node.client(1), node.client(2));
    first.run([1, 2]);
    assert_eq!(claim(&runtime, None), (101, Seq(1)));
    node.say(&NodeToSlot::Detach { lease: first.lease }, vec![]);
    second.link.out().extend_from_slice(b"GET / HTTP/1.1\r\n\r\n");
    second.link.flush().unwrap();
    first.is_closed();
    second.is_closed();
    own.run([1]);
    assert_eq!(claim(&runtime, Some(Seq(1))), (100, Seq(1)), "GS-2");
    assert!(runtime.advance(Some((Seq(1), Status::Value, Bytes::new()))).is_none());
    assert_eq!(own.replies(1), [(1, Status::Value)]);
    // Its number is free for another, who counts from 1.
    let mut third = node.client(1);
    third.run([1]);
    assert_eq!(claim(&runtime, None), (101, Seq(1)));
    assert_eq!(node.page.guests(), [(LeaseId(101), Some(Seq(1)), Seq(0))]);
}
