//! Those who may come in, and what they hear if they may not.

use crate::support::{Head, PYTHON, client, hello, soon};
use paceline_net::secure::{
    Credential, Error, Introduction, Key, Password, PeerInfo, Role, answer_data, dial, dial_data,
};
use paceline_net::{Link, Received, poll};
use paceline_proto::{Address, LeaseId, LeaseSecret, Way, frame, open};
use rustix::event::{PollFd, PollFlags};
use std::io::Read;
use std::net::TcpListener;
use std::time::Duration;

#[test]
fn the_key_opens_the_door() {
    let head = Head::start(None);
    let dialed = head.dial(Some(&head.key())).unwrap();
    assert_eq!((dialed.peer.role, dialed.peer.name.as_str()), (Role::Head, "alpha"));
    assert!(matches!(dialed.secured.peer, PeerInfo::Tls { .. }));
    assert!(dialed.secured.tls.is_some() && dialed.key.is_none() && dialed.warning.is_none());
    assert_eq!(head.introduced.recv_timeout(Duration::from_secs(5)).unwrap(), client());
    hello(dialed.secured);
}

#[test]
fn slot_whose_node_has_the_key_is_let_in() {
    let head = Head::start(None);
    let slot = Introduction::new(Role::Slot, "ada", client().python);
    let dialed = dial(std::slice::from_ref(&head.tcp), Some(&head.key()), &slot, soon()).unwrap();
    assert_eq!(head.introduced.recv_timeout(Duration::from_secs(5)).unwrap().role, Role::Slot);
    hello(dialed.secured);
}

#[test]
fn on_one_machine_the_user_is_enough() {
    let head = Head::start(None);
    let addresses = [head.tcp.clone(), head.unix.clone()];
    let dialed = dial(&addresses, None, &client(), soon()).unwrap();
    assert_eq!(dialed.address, head.unix, "DI-3");
    let uid = rustix::process::geteuid().as_raw();
    assert_eq!(dialed.secured.peer, PeerInfo::Unix { uid, pid: std::process::id() });
    assert!(dialed.secured.tls.is_none());
    hello(dialed.secured);
}

#[test]
fn a_token_is_good_once_and_brings_the_key() {
    let head = Head::start(None);
    let token = Credential::Token(head.keys.issue(false).unwrap());
    let dialed = head.dial(Some(&token)).unwrap();
    assert_eq!(dialed.key.as_ref(), Some(head.keys.key()));
    hello(dialed.secured);
    let error = head.dial(Some(&token)).unwrap_err();
    assert!(matches!(error, Error::Token { .. }) && error.to_string().contains("one join"), "{error}");
    let often = Credential::Token(head.keys.issue(true).unwrap());
    (0..2).for_each(|_| drop(head.dial(Some(&often)).unwrap()));
}

#[test]
fn a_password_works_and_a_wrong_one_does_not() {
    let head = Head::start(Some(Password::new("correct horse".into()).register()));
    let right = Credential::Password(Password::new("correct horse".into()));
    let dialed = head.dial(Some(&right)).unwrap();
    assert_eq!(dialed.key.as_ref(), Some(head.keys.key()));
    hello(dialed.secured);
    let wrong = Credential::Password(Password::new("correct house".into()));
    assert!(matches!(head.dial(Some(&wrong)), Err(Error::WrongPassword { .. })));
    let without = Head::start(None);
    assert!(matches!(without.dial(Some(&right)), Err(Error::NoPassword { .. })));
}

#[test]
fn a_wrong_key_and_no_key_are_told_apart() {
    let head = Head::start(None);
    let other = Credential::Key(Key::random().unwrap());
    let error = head.dial(Some(&other)).unwrap_err();
    assert!(matches!(error, Error::WrongKey { .. }), "{error}");
    let error = head.dial(None).unwrap_err();
    assert!(
        matches!(error, Error::NoCredential { .. }) && error.to_string().contains("PACELINE_KEY"),
        "{error}"
    );
    // Whoever has the key is let in all the same.
    hello(head.dial(Some(&head.key())).unwrap().secured);
}

#[test]
fn another_python_is_refused_and_another_patch_is_not() {
    let head = Head::start(None);
    let of = |python| Introduction::new(Role::Client, "nightly", python);
    let addresses = [head.tcp.clone()];
    let error = dial(&addresses, Some(&head.key()), &of(Some([3, 13, 1])), soon()).unwrap_err().to_string();
    assert!(error.contains("client nightly has Python 3.13.1, head alpha has Python 3.11.4"), "{error}");
    let dialed = dial(&addresses, Some(&head.key()), &of(Some([3, 11, 9])), soon()).unwrap();
    assert!(dialed.warning.unwrap().contains("3.11.9"));
    let dialed = dial(&addresses, Some(&head.key()), &of(None), soon()).unwrap();
    assert_eq!((dialed.warning, dialed.peer.python), (None, Some(PYTHON)));
}

#[test]
fn nobody_there_is_said_with_every_address() {
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let addresses = [Address::tcp("127.0.0.1", free), Address::Unix("paceline-nobody".into())];
    let error = dial(&addresses, None, &client(), soon()).unwrap_err();
    let text = error.to_string();
    assert!(matches!(error, Error::Unreachable { .. }), "{text}");
    assert!(text.contains(&free.to_string()) && text.contains("paceline-nobody"), "{text}");
}

#[test]
fn one_that_answers_is_found_behind_one_that_does_not() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let silent = (silent.local_addr().unwrap().port(), silent);
    let head = Head::start(None);
    let addresses = [Address::tcp("127.0.0.1", silent.0), head.tcp.clone()];
    let dialed = dial(&addresses, Some(&head.key()), &client(), soon()).unwrap();
    assert_eq!(dialed.address, head.tcp, "DI-2");
}

/// A slot that takes one connection for this lease.
fn slot(secret: LeaseSecret) -> (Address, std::thread::JoinHandle<std::io::Result<Link>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = Address::tcp("127.0.0.1", listener.local_addr().unwrap().port());
    let serving = std::thread::spawn(move || {
        let (mut socket, _) = listener.accept().unwrap();
        let mut header = [0; open::LENGTH];
        socket.read_exact(&mut header).unwrap();
        assert_eq!(open::Header::decode(&header).unwrap().lease(), Some(LeaseId(77)));
        socket.set_nonblocking(true).unwrap();
        answer_data(socket.into(), &secret, soon()).map(Link::new)
    });
    (address, serving)
}

/// Send a frame of this many bytes and get as many back.
fn exchange(link: &mut Link, length: usize) {
    frame::encode(1, &[], link.out(), |out| out.resize(out.len() + length, 7)).unwrap();
    let mut got = None;
    loop {
        let done = link.flush().unwrap();
        while link.receive().unwrap() == Received::More {}
        got = got.or(link.next_frame().unwrap());
        if let (true, Some(frame)) = (done, &got) {
            assert!(frame.body.len() == length && frame.body.iter().all(|byte| *byte == 7));
            return;
        }
        let interest = if done { PollFlags::IN } else { PollFlags::IN | PollFlags::OUT };
        let mut one = [PollFd::new(link, interest)];
        assert!(poll::wait(&mut one, Some(Duration::from_secs(10))).unwrap(), "LK-1: the link stalled");
    }
}

#[test]
fn two_large_messages_cross_under_a_leases_secret() {
    let secret = LeaseSecret([3; 32]);
    let (address, serving) = slot(secret);
    let (secured, way) = dial_data(&[address], LeaseId(77), secret, soon()).unwrap();
    assert_eq!(way, Way::Tls);
    let mut link = Link::new(secured);
    let far = std::thread::spawn(move || {
        let mut link = serving.join().unwrap().unwrap();
        [1, 100, 40 << 20].into_iter().for_each(|length| exchange(&mut link, length));
        // Until the other side has everything.
        while link.receive().unwrap() != Received::Closed {
            let _ = poll::wait(&mut [PollFd::new(&link, PollFlags::IN)], Some(Duration::from_secs(5)));
        }
    });
    [1, 100, 40 << 20].into_iter().for_each(|length| exchange(&mut link, length));
    assert_eq!(link.pending(), 0);
    drop(link);
    far.join().unwrap();
}

#[test]
fn another_leases_secret_does_not_open_it() {
    let (address, serving) = slot(LeaseSecret([3; 32]));
    let result = dial_data(&[address], LeaseId(77), LeaseSecret([4; 32]), soon());
    assert!(matches!(result, Err(Error::Lease { .. })), "{result:?}");
    let error = serving.join().unwrap().err().unwrap();
    assert_eq!(error.kind(), std::io::ErrorKind::PermissionDenied);
}
