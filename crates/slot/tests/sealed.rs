//! A slot whose client is on another machine: the connection comes as the node hands it on, its header read.

use bytes::Bytes;
use paceline_net::control::Outbox;
use paceline_net::secure::{Error, dial_data};
use paceline_net::{Link, Page, Received, fds, poll};
use paceline_proto::control::NodeToSlot;
use paceline_proto::data::{Call, FromSlot, Hello, Status, ToSlot};
use paceline_proto::{Address, ClientId, FunctionId, LeaseId, LeaseSecret, Seq, SlotId, TaskId, open};
use paceline_slot::{Next, Runtime};
use rustix::event::{PollFd, PollFlags};
use rustix::fd::OwnedFd;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

const LEASE: LeaseId = LeaseId(7);
const SECRET: LeaseSecret = LeaseSecret([9; 32]);
const LIMIT: Duration = Duration::from_secs(10);

/// A node that hands on every connection for the lease, without asking. Its process is the test's, so that it lives.
fn start() -> (Runtime, Address) {
    let (node, control) = fds::pair().unwrap();
    let (page, memory) = Page::create().unwrap();
    std::mem::forget(page);
    let runtime = Runtime::start(SlotId(1), control, memory).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = Address::tcp("127.0.0.1", listener.local_addr().unwrap().port());
    std::thread::spawn(move || {
        for socket in listener.incoming() {
            let mut socket = socket.unwrap();
            let mut header = [0; open::LENGTH];
            socket.read_exact(&mut header).unwrap();
            assert_eq!(open::Header::decode(&header).unwrap().lease(), Some(LEASE));
            socket.set_nonblocking(true).unwrap();
            let mut outbox = Outbox::default();
            let attach = NodeToSlot::Attach { lease: LEASE, secret: Some(SECRET) };
            outbox.push(&attach, vec![OwnedFd::from(socket)]);
            outbox.flush(&node).unwrap();
        }
    });
    (runtime, address)
}

fn send(link: &mut Link, message: &ToSlot) {
    message.encode(link.out()).unwrap();
    while !link.flush().unwrap() {
        poll::wait(&mut [PollFd::new(link, PollFlags::OUT)], Some(LIMIT)).unwrap();
    }
}

/// Connect and say hello, having got so many replies.
fn client(address: &Address, replies: u64) -> Link {
    let addresses = std::slice::from_ref(address);
    let (secured, _) = dial_data(addresses, LEASE, SECRET, Instant::now() + LIMIT).unwrap();
    let mut link = Link::new(secured);
    send(&mut link, &ToSlot::Hello(Hello { client: ClientId(1), lease: LEASE, replies, keeps: false }));
    link
}

/// Have one call answered over this link.
fn call(link: &mut Link, runtime: &Runtime, seq: u64) {
    let (function, timeout, payload) = (FunctionId(1), Duration::ZERO, Bytes::from(vec![5; 3 << 20]));
    let call = Call {
        seq: Seq(seq),
        task: TaskId(seq),
        attempt: 1,
        at_most_once: false,
        function,
        timeout,
        payload: payload.clone(),
    };
    let main = {
        let runtime = runtime.clone();
        std::thread::spawn(move || {
            loop {
                match runtime.advance(None) {
                    Some(Next::Call(call)) => {
                        break runtime.advance(Some((call.seq, Status::Value, call.payload)));
                    }
                    Some(other) => panic!("not a call: {other:?}"),
                    None => runtime.wait(),
                }
            }
        })
    };
    send(link, &ToSlot::Run { acked: 0, calls: vec![call] });
    main.join().unwrap();
    loop {
        while let Some(frame) = link.next_frame().unwrap() {
            if let FromSlot::Replies { replies, .. } = FromSlot::decode(frame).unwrap() {
                assert_eq!(replies[0].seq, Seq(seq));
                assert!(replies[0].payload == payload, "what was sent comes back");
                return;
            }
        }
        match link.receive().unwrap() {
            Received::Closed => panic!("the slot closed the link"),
            Received::Nothing => {
                // What the main thread could not write at once.
                let _ = runtime.advance(None);
                poll::wait(&mut [PollFd::new(link, PollFlags::IN)], Some(Duration::from_millis(20))).unwrap();
            }
            Received::All | Received::More => {}
        }
    }
}

#[test]
fn calls_travel_sealed_and_a_new_link_takes_over() {
    let (runtime, address) = start();
    let mut link = client(&address, 0);
    call(&mut link, &runtime, 1);
    let mut again = client(&address, 1);
    call(&mut again, &runtime, 2);
}

#[test]
fn who_only_knows_the_lease_takes_nothing_away() {
    let (runtime, address) = start();
    let mut link = client(&address, 0);
    call(&mut link, &runtime, 1);
    let wrong = LeaseSecret([1; 32]);
    let addresses = std::slice::from_ref(&address);
    for _ in 0..3 {
        let refused = dial_data(addresses, LEASE, wrong, Instant::now() + LIMIT);
        assert!(matches!(refused, Err(Error::Lease { .. })), "{refused:?}");
    }
    let Address::Tcp { host, port } = &address else { unreachable!() };
    let mut strangers = Vec::new();
    for number in 0..40 {
        let mut stranger = TcpStream::connect((host.as_str(), *port)).unwrap();
        stranger.write_all(&open::encode(LEASE)).unwrap();
        stranger.write_all(&vec![number; usize::from(number) * 50]).unwrap();
        strangers.push(stranger);
    }
    call(&mut link, &runtime, 2);
    drop(strangers);
    call(&mut link, &runtime, 3);
}
