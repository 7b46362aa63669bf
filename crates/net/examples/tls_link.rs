//! How fast a data link is, sealed and not: 64 MiB frames one way, and small frames back and forth.
//!
//! `cargo run --release -p paceline-net --example tls_link`

use paceline_net::secure::{Secured, answer_data, dial_data};
use paceline_net::{Link, Received, fds, poll};
use paceline_proto::{Address, LeaseId, LeaseSecret, frame, open};
use rustix::event::{PollFd, PollFlags};
use std::io::Read;
use std::net::TcpListener;
use std::time::{Duration, Instant};

const LARGE: usize = 64 << 20;
const SECRET: LeaseSecret = LeaseSecret([3; 32]);
const ROUNDS: usize = 9;
const TRIPS: usize = 20_000;

fn sealed() -> (Secured, Secured) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = Address::tcp("127.0.0.1", listener.local_addr().unwrap().port());
    let far = std::thread::spawn(move || {
        let (mut socket, _) = listener.accept().unwrap();
        socket.read_exact(&mut [0; open::LENGTH]).unwrap();
        socket.set_nonblocking(true).unwrap();
        socket.set_nodelay(true).unwrap();
        answer_data(socket.into(), &SECRET, Instant::now() + Duration::from_secs(5)).unwrap()
    });
    let (near, _) =
        dial_data(&[address], LeaseId(1), SECRET, Instant::now() + Duration::from_secs(5)).unwrap();
    (near, far.join().unwrap())
}

fn wait(link: &Link, interest: PollFlags) {
    poll::wait(&mut [PollFd::new(link, interest)], Some(Duration::from_secs(10))).unwrap();
}

fn send(link: &mut Link, bytes: &[u8]) {
    link.make_room(bytes.len());
    frame::encode(1, &[], link.out(), |out| out.extend_from_slice(bytes)).unwrap();
    while !link.flush().unwrap() {
        wait(link, PollFlags::OUT);
    }
}

fn receive(link: &mut Link) -> Option<usize> {
    loop {
        if let Some(frame) = link.next_frame().unwrap() {
            return Some(frame.body.len());
        }
        match link.receive().unwrap() {
            Received::Closed => return None,
            Received::Nothing => wait(link, PollFlags::IN),
            Received::All | Received::More => {}
        }
    }
}

fn measure(name: &str, (near, far): (Secured, Secured)) {
    // Answers every frame with its first byte.
    let answering = std::thread::spawn(move || {
        let mut link = Link::new(far);
        while receive(&mut link).is_some() {
            send(&mut link, b"!");
        }
    });
    let mut link = Link::new(near);
    let large = vec![7; LARGE];
    let mut rates: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let began = Instant::now();
            send(&mut link, &large);
            receive(&mut link).unwrap();
            LARGE as f64 / began.elapsed().as_secs_f64() / 1e9
        })
        .collect();
    rates.sort_by(f64::total_cmp);
    let began = Instant::now();
    for _ in 0..TRIPS {
        send(&mut link, b"ping");
        receive(&mut link).unwrap();
    }
    let trip = began.elapsed() / TRIPS as u32;
    let (low, median, high) = (rates[0], rates[ROUNDS / 2], rates[ROUNDS - 1]);
    println!("{name}: 64 MiB {median:.2} GB/s ({low:.2} to {high:.2}), round trip {trip:?}");
    drop(link);
    answering.join().unwrap();
}

fn main() {
    let (near, far) = fds::pair().unwrap();
    measure("unix socket", (near.into(), far.into()));
    measure("tcp+tls", sealed());
}
