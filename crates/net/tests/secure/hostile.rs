//! Those who mean harm. Whatever they do, nothing of theirs is decoded, nothing breaks, and whoever has the key is let in.
//!
//! That nothing of variable length is decoded before a proof is seen by what comes of it: nobody is introduced but
//! those who have the key. (In the code only a proof makes what the decoding of an introduction asks for.)

use crate::support::{Head, client, hello, soon};
use paceline_net::secure::{Credential, Error, Key, dial};
use paceline_proto::open::{ANSWER, Answer, Header, Kind};
use paceline_proto::{Address, version::PROTOCOL};
use rustix::net::sockopt;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::mpsc;
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(10);

fn connect(head: &Head) -> TcpStream {
    let Address::Tcp { host, port } = &head.tcp else { unreachable!() };
    let socket = TcpStream::connect((host.as_str(), *port)).unwrap();
    socket.set_read_timeout(Some(LIMIT)).unwrap();
    socket
}

fn header(kind: Kind) -> Vec<u8> {
    Header { kind, id: 0 }.encode().to_vec()
}

/// Everything the head says until it closes the connection; none if it does not in time.
fn to_the_end(mut socket: TcpStream) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    match socket.read_to_end(&mut bytes) {
        Ok(_) => Some(bytes),
        Err(error) if error.kind() == ErrorKind::ConnectionReset => Some(bytes),
        Err(_) => None,
    }
}

/// Nobody was introduced but those that we know of, and the key still opens the door.
fn is_unharmed(head: &Head, introduced: usize) {
    let dialed = head.dial(Some(&head.key())).unwrap();
    hello(dialed.secured);
    assert_eq!(head.introduced.try_iter().count(), introduced + 1, "nothing else was decoded");
}

/// Numbers that are the same in every run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn bytes(&mut self, length: usize) -> Vec<u8> {
        (0..length).map(|_| self.next() as u8).collect()
    }
}

#[test]
fn random_bytes_are_shown_out() {
    let head = Head::start(None);
    // Handshakes of an address that is known have a higher rate.
    hello(head.dial(Some(&head.key())).unwrap().secured);
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    for case in 0..3000 {
        let mut socket = connect(&head);
        let length = random.next() as usize % 600;
        let bytes = match case % 3 {
            // From the first byte on, after a header, and as the record of a handshake of TLS.
            0 => random.bytes(length),
            1 => [header(Kind::Client), random.bytes(length)].concat(),
            _ => {
                let length = length as u16;
                let record = [&[22, 3, 1][..], &length.to_be_bytes()].concat();
                [header(Kind::Node), record, random.bytes(length.into())].concat()
            }
        };
        // It may be shown out while it still speaks.
        let _ = socket.write_all(&bytes);
        let _ = socket.shutdown(Shutdown::Write);
        assert!(to_the_end(socket).is_some(), "case {case} was not shown out");
    }
    is_unharmed(&head, 1);
}

#[test]
fn lengths_that_are_claimed_are_not_believed() {
    let head = Head::start(None);
    // The longest record of TLS, and one that is longer than any can be, with a handshake message that claims 16 MiB.
    for length in [u16::MAX, 16384] {
        let mut socket = connect(&head);
        let record = [&[22, 3, 1][..], &length.to_be_bytes(), &[1, 0xff, 0xff, 0xff]].concat();
        socket.write_all(&[header(Kind::Client), record].concat()).unwrap();
        let _ = socket.write_all(&vec![0; 1 << 20]);
        let _ = socket.shutdown(Shutdown::Write);
        assert!(to_the_end(socket).is_some());
    }
    is_unharmed(&head, 0);
}

/// One that sits between two sides, notes what each says, and passes it on.
fn eavesdrop(head: &Head) -> (Address, mpsc::Receiver<Vec<u8>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = Address::tcp("127.0.0.1", listener.local_addr().unwrap().port());
    let mut far = connect(head);
    let (tell, heard) = mpsc::channel();
    std::thread::spawn(move || {
        let (mut near, _) = listener.accept().unwrap();
        let (mut back, mut forth) = (far.try_clone().unwrap(), near.try_clone().unwrap());
        std::thread::spawn(move || std::io::copy(&mut back, &mut forth));
        let (mut all, mut some) = (Vec::new(), [0; 4096]);
        while let Ok(count @ 1..) = near.read(&mut some) {
            all.extend_from_slice(&some[..count]);
            let _ = far.write_all(&some[..count]);
        }
        let _ = tell.send(all);
    });
    (address, heard)
}

#[test]
fn what_was_heard_and_is_said_again_opens_nothing() {
    let head = Head::start(None);
    let (between, heard) = eavesdrop(&head);
    let dialed = dial(&[between], Some(&head.key()), &client(), soon()).unwrap();
    drop(dialed);
    let heard = heard.recv_timeout(LIMIT).unwrap();
    assert_eq!(head.introduced.recv_timeout(LIMIT).unwrap(), client());
    for _ in 0..20 {
        let mut socket = connect(&head);
        socket.write_all(&heard).unwrap();
        let _ = socket.shutdown(Shutdown::Write);
        assert!(to_the_end(socket).is_some());
    }
    // Every byte of it changed once, all the way through.
    for place in (0..heard.len()).step_by(7) {
        let mut bytes = heard.clone();
        bytes[place] ^= 1 << (place % 8);
        let mut socket = connect(&head);
        let _ = socket.write_all(&bytes);
        let _ = socket.shutdown(Shutdown::Write);
        assert!(to_the_end(socket).is_some());
    }
    is_unharmed(&head, 0);
}

#[test]
fn what_is_heard_on_the_way_has_neither_key_nor_names() {
    let head = Head::start(None);
    let (between, heard) = eavesdrop(&head);
    let dialed = dial(&[between], Some(&head.key()), &client(), soon()).unwrap();
    hello(dialed.secured);
    let heard = heard.recv_timeout(LIMIT).unwrap();
    assert!(heard.len() > 300_000, "what was said did cross");
    let key = head.keys.key();
    for secret in [&key.bytes()[..], key.text().as_bytes(), b"nightly", &[b'x'; 32]] {
        assert!(!heard.windows(secret.len()).any(|window| window == secret));
    }
}

#[test]
fn a_guess_takes_its_time() {
    let head = Head::start(None);
    let began = Instant::now();
    let wrong = Credential::Key(Key::random().unwrap());
    let guesses: Vec<_> = (0..8)
        .map(|_| {
            let (address, wrong) = (head.tcp.clone(), wrong.clone());
            std::thread::spawn(move || dial(&[address], Some(&wrong), &client(), soon()).unwrap_err().code())
        })
        .collect();
    for guess in guesses {
        assert_eq!(guess.join().unwrap(), "wrong-key");
    }
    assert!(began.elapsed() >= Duration::from_secs(1), "PR-3");
    is_unharmed(&head, 0);
}

#[test]
fn another_version_is_told_ours() {
    let head = Head::start(None);
    let mut socket = connect(&head);
    let mut newer = header(Kind::Client);
    newer[2] = PROTOCOL + 1;
    socket.write_all(&newer).unwrap();
    let answer = to_the_end(socket).unwrap();
    assert_eq!(answer, Answer::Version.encode());
    // And the other way round: a head of another version, as this one would meet it.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = Address::tcp("127.0.0.1", listener.local_addr().unwrap().port());
    let other = std::thread::spawn(move || {
        let (mut socket, _) = listener.accept().unwrap();
        let mut answer: [u8; ANSWER] = Answer::Version.encode();
        answer[2] = PROTOCOL + 3;
        socket.write_all(&answer).unwrap();
        let _ = socket.read_to_end(&mut Vec::new());
    });
    let error = dial(&[address], Some(&head.key()), &client(), soon()).unwrap_err().to_string();
    let (ours, theirs) = (PROTOCOL, PROTOCOL + 3);
    assert!(error.contains(&format!("speaks protocol version {theirs}, this side speaks {ours}")), "{error}");
    other.join().unwrap();
}

#[test]
fn one_that_is_no_paceline_is_called_so() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = Address::tcp("127.0.0.1", listener.local_addr().unwrap().port());
    let other = std::thread::spawn(move || {
        let (mut socket, _) = listener.accept().unwrap();
        socket.write_all(b"SSH-2.0-OpenSSH_9.2p1\r\n").unwrap();
        let _ = socket.read_to_end(&mut Vec::new());
    });
    let key = Credential::Key(Key::random().unwrap());
    let error = dial(&[address], Some(&key), &client(), soon()).unwrap_err();
    assert!(matches!(error, Error::Stranger { .. }), "{error}");
    other.join().unwrap();
}

#[test]
fn a_nodes_business_is_none_of_a_heads() {
    let head = Head::start(None);
    let mut socket = connect(&head);
    socket.write_all(&header(Kind::Data)).unwrap();
    assert_eq!(to_the_end(socket).unwrap(), Answer::Kind.encode());
    is_unharmed(&head, 0);
}

#[test]
fn a_thousand_that_say_nothing_keep_nobody_out() {
    // Both ends are here.
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).unwrap();
    let head = Head::start(None);
    let mut idle: Vec<TcpStream> = Vec::new();
    for number in 0..1000 {
        let mut socket = connect(&head);
        match number % 3 {
            0 => {}
            // Half a header, and one that is whole with the beginning of a handshake.
            1 => socket.write_all(&header(Kind::Client)[..7]).unwrap(),
            _ => socket.write_all(&[header(Kind::Client), vec![22, 3, 1]].concat()).unwrap(),
        }
        idle.push(socket);
        if number % 50 == 0 {
            // Work goes on while they come.
            hello(head.dial(Some(&head.key())).unwrap().secured);
        }
    }
    let began = Instant::now();
    hello(head.dial(Some(&head.key())).unwrap().secured);
    assert!(began.elapsed() < Duration::from_secs(3), "LI-1: {:?}", began.elapsed());
    // None stays for longer than it may.
    for socket in idle {
        assert!(to_the_end(socket).is_some(), "LI-1: one that says nothing is shown out");
    }
    is_unharmed(&head, 21);
}

#[test]
fn one_that_speaks_slowly_has_no_longer_than_others() {
    let head = Head::start(None);
    let mut socket = connect(&head);
    let began = Instant::now();
    let mut speaking = socket.try_clone().unwrap();
    std::thread::spawn(move || {
        for byte in header(Kind::Client).into_iter().chain(std::iter::repeat(0)) {
            if speaking.write_all(&[byte]).is_err() {
                return;
            }
            std::thread::sleep(Duration::from_millis(300));
        }
    });
    let _ = socket.read_to_end(&mut Vec::new());
    let took = began.elapsed();
    assert!(took < Duration::from_secs(8), "LI-1: {took:?}");
    is_unharmed(&head, 0);
}

#[test]
fn one_that_vanishes_in_the_middle_leaves_nothing() {
    let head = Head::start(None);
    for _ in 0..200 {
        let mut socket = connect(&head);
        socket.write_all(&[header(Kind::Client), vec![22, 3, 1, 0, 200, 1]].concat()).unwrap();
        // Its end is a reset, not a goodbye.
        sockopt::set_socket_linger(&socket, Some(Duration::ZERO)).unwrap();
    }
    is_unharmed(&head, 0);
}
