//! Strangers in great numbers, and those who have the key or the password meanwhile.

use crate::support::{Head, client, hello, soon};
use paceline_net::secure::{Credential, Error, Password, dial};
use paceline_proto::Address;
use rustix::net::{AddressFamily, SocketType, bind, connect, socket, sockopt};
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Connects to a head from this address of the loopback network, which counts as a source of its own.
fn connect_from(head: &Address, source: [u8; 4]) -> std::io::Result<TcpStream> {
    let Address::Tcp { port, .. } = head else { unreachable!() };
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    bind(&socket, &SocketAddr::new(IpAddr::V4(Ipv4Addr::from(source)), 0))?;
    connect(&socket, &SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), *port))?;
    Ok(socket.into())
}

/// Passes connections on to a head from another source, with every piece late by `delay`.
fn elsewhere(head: &Address, source: [u8; 4], delay: Duration) -> Address {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = Address::tcp("127.0.0.1", listener.local_addr().unwrap().port());
    let head = head.clone();
    std::thread::spawn(move || {
        for near in listener.incoming() {
            let (Ok(near), Ok(far)) = (near, connect_from(&head, source)) else { continue };
            pass_on(near.try_clone().unwrap(), far.try_clone().unwrap(), delay);
            pass_on(far, near, delay);
        }
    });
    address
}

fn pass_on(mut from: TcpStream, mut to: TcpStream, delay: Duration) {
    std::thread::spawn(move || {
        let mut bytes = [0; 16384];
        while let Ok(count @ 1..) = from.read(&mut bytes) {
            std::thread::sleep(delay);
            if to.write_all(&bytes[..count]).is_err() {
                break;
            }
        }
        let _ = to.shutdown(std::net::Shutdown::Both);
    });
}

/// Keeps doing something on another thread until dropped.
struct Background {
    stop: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Background {
    fn start(mut step: impl FnMut() + Send + 'static) -> Background {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = std::thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                step();
            }
        });
        Background { stop, thread: Some(thread) }
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = self.thread.take().unwrap().join();
    }
}

#[test]
fn storm_of_empty_connections_keeps_a_key_holder_far_away_in() {
    let head = Head::start(None);
    let far = elsewhere(&head.tcp, [127, 0, 0, 80], Duration::from_millis(40));
    let made = Arc::new(AtomicU32::new(0));
    let (tcp, count) = (head.tcp.clone(), made.clone());
    let mut held = std::collections::VecDeque::new();
    // As fast as one thread can: faster than the door has places for in the time of two round trips.
    let _storm = Background::start(move || {
        if let Ok(socket) = connect_from(&tcp, [127, 0, 0, 9]) {
            held.push_back(socket);
            count.fetch_add(1, Ordering::Relaxed);
        }
        if held.len() > 600 {
            held.pop_front();
        }
    });
    while made.load(Ordering::Relaxed) < 600 {
        std::thread::yield_now();
    }
    for _ in 0..5 {
        let (began, before) = (Instant::now(), made.load(Ordering::Relaxed));
        let dialed = dial(std::slice::from_ref(&far), Some(&head.key()), &client(), soon()).unwrap();
        assert!(began.elapsed() < Duration::from_secs(5), "AD-2: {:?}", began.elapsed());
        hello(dialed.secured);
        assert!(made.load(Ordering::Relaxed) > before, "it did storm");
    }
}

#[test]
fn password_guesses_of_one_address_are_delayed_and_keep_nobody_else_out() {
    let head = Head::start(Some(Password::new("correct horse".into()).register()));
    let tried = Arc::new(AtomicU32::new(0));
    let guessing: Vec<_> = (0..4)
        .map(|_| {
            let (address, tried) = (head.tcp.clone(), tried.clone());
            Background::start(move || {
                let wrong = Credential::Password(Password::new("correct house".into()));
                let address = std::slice::from_ref(&address);
                if let Err(Error::WrongPassword { .. }) = dial(address, Some(&wrong), &client(), soon()) {
                    tried.fetch_add(1, Ordering::Relaxed);
                }
            })
        })
        .collect();
    let began = Instant::now();
    while tried.load(Ordering::Relaxed) < 2 {
        std::thread::yield_now();
    }
    // One that knows it, from another address, is not kept waiting by those who do not.
    let right = Credential::Password(Password::new("correct horse".into()));
    let other = elsewhere(&head.tcp, [127, 0, 0, 70], Duration::ZERO);
    let asked = Instant::now();
    let dialed = dial(&[other], Some(&right), &client(), soon()).unwrap();
    assert!(asked.elapsed() < Duration::from_secs(3), "GU-1: {:?}", asked.elapsed());
    hello(dialed.secured);
    // And the key opens the door from where they guess.
    hello(head.dial(Some(&head.key())).unwrap().secured);
    let error = loop {
        match head.dial(Some(&right)) {
            Err(error @ Error::PasswordDelayed { .. }) => break error,
            Err(error) => panic!("{error}"),
            // It came in between two guesses, and what it proved is forgiven.
            Ok(dialed) => hello(dialed.secured),
        }
    };
    assert!(error.to_string().contains("try again in"), "{error}");
    drop(guessing);
    let (tried, took) = (tried.load(Ordering::Relaxed), began.elapsed().as_secs() as u32);
    assert!(tried <= took + 2, "GU-2: {tried} guesses in {took} s");
}

#[test]
fn unix_name_that_another_user_holds_does_not_hide_the_port() {
    if !rustix::process::geteuid().is_root() {
        assert!(std::env::var("CI").is_err(), "this test needs root");
        return;
    }
    let head = Head::start(None);
    let name = format!("paceline-squatted-{}", std::process::id());
    let text = "import os, socket, sys\nos.setuid(65534)\ns = socket.socket(socket.AF_UNIX)\n\
                s.bind('\\0' + sys.argv[1])\ns.listen()\nprint('up', flush=True)\nsys.stdin.read()";
    let mut squatter = Command::new("python3")
        .args(["-c", text, &name])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut up = [0; 3];
    squatter.stdout.as_mut().unwrap().read_exact(&mut up).unwrap();
    let squatted = Address::Unix(name);
    let dialed = dial(&[squatted.clone(), head.tcp.clone()], Some(&head.key()), &client(), soon()).unwrap();
    assert_eq!(dialed.address, head.tcp);
    hello(dialed.secured);
    let error = dial(&[squatted], Some(&head.key()), &client(), soon()).unwrap_err();
    assert!(matches!(error, Error::OtherUser { .. }), "{error}");
    drop(squatter.stdin.take());
    squatter.wait().unwrap();
}
