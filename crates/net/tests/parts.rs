//! Payloads with large buffers beside them, over real sockets of both kinds.

use paceline_net::secure::{Secured, answer_data, dial_data};
use paceline_net::segments::{Part, View, parted, parts_of};
use paceline_net::{Link, Received, fds, poll};
use paceline_proto::data::{Call, ToSlot};
use paceline_proto::parts::{carried, inner};
use paceline_proto::{Address, Bytes, FunctionId, LeaseId, LeaseSecret, Seq, TaskId, open};
use rustix::event::{PollFd, PollFlags};
use std::io::Read;
use std::net::TcpListener;
use std::time::{Duration, Instant};

const SECRET: LeaseSecret = LeaseSecret([3; 32]);

fn sealed() -> (Secured, Secured) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = Address::tcp("127.0.0.1", listener.local_addr().unwrap().port());
    let far = std::thread::spawn(move || {
        let (mut socket, _) = listener.accept().unwrap();
        socket.read_exact(&mut [0; open::LENGTH]).unwrap();
        socket.set_nonblocking(true).unwrap();
        answer_data(socket.into(), &SECRET, Instant::now() + Duration::from_secs(10)).unwrap()
    });
    let soon = Instant::now() + Duration::from_secs(10);
    let (near, _) = dial_data(&[address], LeaseId(1), SECRET, soon).unwrap();
    (near, far.join().unwrap())
}

fn run(payloads: &[Bytes]) -> ToSlot {
    let call = |payload: &Bytes| Call {
        seq: Seq(1),
        task: TaskId(1),
        attempt: 1,
        at_most_once: false,
        function: FunctionId(1),
        timeout: Duration::ZERO,
        payload: payload.clone(),
    };
    ToSlot::Run { acked: 0, calls: payloads.iter().map(call).collect() }
}

/// Send until everything went, while the other end receives so many payloads.
fn pass(from: &mut Link, to: &mut Link, count: usize) -> Vec<Bytes> {
    let mut got = Vec::new();
    let until = Instant::now() + Duration::from_secs(20);
    while got.len() < count {
        assert!(Instant::now() < until, "it does not arrive");
        let _ = from.flush().unwrap();
        let received = to.receive().unwrap();
        assert_ne!(received, Received::Closed);
        while let Some(message) = to.next_message::<ToSlot>().unwrap() {
            let ToSlot::Run { calls, .. } = message else { panic!("a run was sent") };
            got.extend(calls.into_iter().map(|call| call.payload));
        }
        if received == Received::Nothing {
            let interest = PollFlags::IN;
            let _ = poll::wait(&mut [PollFd::new(to, interest)], Some(Duration::from_millis(1)));
        }
    }
    got
}

fn exchange((near, far): (Secured, Secured)) {
    let (mut near, mut far) = (Link::new(near), Link::new(far));
    for round in 0..6_u8 {
        let lengths = [3 << 20, 28_000, 128 << 10];
        let parts = lengths.iter().map(|length| Part::copy_of(&vec![round; *length]));
        let large = parted(b"pickle", parts);
        assert_eq!(carried(&large), large.len() + lengths.iter().sum::<usize>());
        let plain = Bytes::from_static(b"plain");
        near.put(&run(&[plain.clone(), large.clone(), plain.clone()])).unwrap();
        let got = pass(&mut near, &mut far, 3);
        assert_eq!((&got[0], &got[2], inner(&got[1])), (&plain, &plain, &b"pickle"[..]));
        let parts = parts_of(&got[1]).unwrap();
        assert_eq!(parts.len(), 3);
        for (part, length) in parts.iter().zip(lengths) {
            assert!(part.len() == length && part.bytes().iter().all(|byte| *byte == round));
            let view = View::of(part);
            // SAFETY: the view is ours to write, and as long.
            unsafe { view.begin().write_bytes(99, view.len()) };
        }
        // The sender still has what it sent.
        assert!(parts_of(&large).unwrap().iter().all(|part| part.bytes().iter().all(|byte| *byte == round)));
        drop((got, parts, large));
        // And hears that it may use the memory again.
        far.put(&run(&[Bytes::from_static(b"answer")])).unwrap();
        assert_eq!(pass(&mut far, &mut near, 1).len(), 1);
    }
}

#[test]
fn on_one_machine() {
    let (near, far) = fds::pair().unwrap();
    exchange((near.into(), far.into()));
}

#[test]
fn sealed_between_machines() {
    exchange(sealed());
}
