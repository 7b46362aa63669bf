//! The store link over real sockets: sealed ones between machines, and plain ones on one.

use paceline_net::secure::{
    Accepted, Door, Introduction, Listener, Role, Serves, answer_data, dial_store, unix_name,
};
use paceline_net::store::{Client, Error, Incoming, Outgoing, Shelves, Thing, serve};
use paceline_proto::store::{CHUNK, Failure, Name, Space};
use paceline_proto::{Address, LeaseId, LeaseSecret, Way};
use std::collections::BTreeMap;
use std::io::{self, Cursor};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const SECRET: LeaseSecret = LeaseSecret([7; 32]);
const LEASE: LeaseId = LeaseId(42);

type Kept = Arc<Mutex<BTreeMap<Name, Vec<u8>>>>;

/// A node whose store keeps things in memory, and takes none that is larger than `room`.
struct Node {
    addresses: Vec<Address>,
    kept: Kept,
    said_bye: std::sync::mpsc::Receiver<bool>,
    _stop: tokio::sync::mpsc::Sender<()>,
}

impl Node {
    fn start(room: u64) -> Node {
        let kept = Kept::default();
        let (stop, mut stopped) = tokio::sync::mpsc::channel(1);
        let (ready, started) = std::sync::mpsc::channel();
        let (byes, said_bye) = std::sync::mpsc::channel();
        let shelf = kept.clone();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let me = Introduction::new(Role::Node, "ada", None);
                let door = Door { me, keys: None, serves: Serves::Node };
                let addresses = [Address::tcp("127.0.0.1", 0), unix_name().unwrap()];
                let mut listener = Listener::bind(&addresses, door).unwrap();
                ready.send(listener.addresses().to_vec()).unwrap();
                loop {
                    let accepted = tokio::select! {
                        accepted = listener.accept() => accepted,
                        _ = stopped.recv() => return,
                    };
                    let Accepted::Store { socket, lease, way } = accepted else { continue };
                    assert_eq!(lease, LEASE);
                    let (mut shelves, byes) = (Memory { kept: shelf.clone(), room }, byes.clone());
                    std::thread::spawn(move || {
                        let until = Instant::now() + Duration::from_secs(10);
                        let secured = match way {
                            Way::Unix => socket.into(),
                            _ => answer_data(socket, &SECRET, until)?,
                        };
                        let _ = byes.send(serve(secured, &mut shelves)?);
                        io::Result::Ok(())
                    });
                }
            });
        });
        let addresses = started.recv_timeout(Duration::from_secs(10)).unwrap();
        Node { addresses, kept, said_bye, _stop: stop }
    }

    fn client(&self, place: usize) -> Client {
        let until = Instant::now() + Duration::from_secs(10);
        Client::new(dial_store(&self.addresses[place..=place], false, LEASE, SECRET, until).unwrap())
    }
}

struct Memory {
    kept: Kept,
    room: u64,
}

struct Coming {
    kept: Kept,
    name: Name,
    bytes: Vec<u8>,
}

impl Incoming for Coming {
    fn write(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<(), Failure> {
        self.kept.lock().unwrap().insert(self.name, self.bytes);
        Ok(())
    }
}

struct Going(Vec<u8>);

impl Outgoing for Going {
    fn total(&self) -> u64 {
        self.0.len() as u64
    }

    fn read_at(&mut self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        into.copy_from_slice(&self.0[offset as usize..][..into.len()]);
        Ok(())
    }
}

impl Shelves for Memory {
    fn lacks(&mut self, _: Space, names: &[Name]) -> Vec<u32> {
        let kept = self.kept.lock().unwrap();
        (0..names.len() as u32).filter(|&place| !kept.contains_key(&names[place as usize])).collect()
    }

    fn take(&mut self, _: Space, name: Name, length: u64) -> Result<Box<dyn Incoming>, Failure> {
        if length > self.room {
            return Err(Failure::Full { text: "no room".into() });
        }
        Ok(Box::new(Coming { kept: self.kept.clone(), name, bytes: Vec::new() }))
    }

    fn open(&mut self, _: Space, name: Name) -> Result<Box<dyn Outgoing>, Failure> {
        let found = self.kept.lock().unwrap().get(&name).cloned();
        found.map(|bytes| Box::new(Going(bytes)) as Box<dyn Outgoing>).ok_or(Failure::Missing)
    }

    fn unpack(&mut self, manifest: Name) -> Result<String, Failure> {
        Ok(format!("/laid/out/{manifest}"))
    }
}

fn name(number: u32) -> Name {
    let mut name = [0; 32];
    name[..4].copy_from_slice(&number.to_le_bytes());
    Name(name)
}

fn thing(number: u32, length: usize) -> Result<Thing, Failure> {
    let bytes = vec![number as u8; length];
    Ok(Thing { name: name(number), length: length as u64, bytes: Box::new(Cursor::new(bytes)) })
}

#[test]
fn what_is_brought_is_there_and_is_sent_once() {
    let node = Node::start(u64::MAX);
    for place in [0, 1] {
        let mut client = node.client(place);
        let names: Vec<Name> = (0..500).map(name).collect();
        let lacking = client.lacks(Space::Files, &names).unwrap();
        assert_eq!(
            lacking.len(),
            if place == 0 { 500 } else { 0 },
            "the second finds what the first brought"
        );
        let sizes = |number: u32| if number == 7 { 5 * CHUNK + 3 } else { number as usize };
        client.put(Space::Files, lacking.into_iter().map(|at| thing(at as u32, sizes(at as u32)))).unwrap();
        let mut bytes = Vec::new();
        assert_eq!(client.get(Space::Files, name(7), 0, u64::MAX, &mut bytes).unwrap(), bytes.len() as u64);
        assert_eq!(bytes, vec![7; 5 * CHUNK + 3]);
        bytes.clear();
        assert_eq!(client.get(Space::Files, name(7), 10, 20, &mut bytes).unwrap(), 5 * CHUNK as u64 + 3);
        assert_eq!(bytes, vec![7; 20]);
        assert_eq!(client.unpack(name(1)).unwrap(), format!("/laid/out/{}", name(1)));
        client.bye();
        assert!(node.said_bye.recv_timeout(Duration::from_secs(5)).unwrap());
    }
    assert_eq!(node.kept.lock().unwrap().len(), 500);
}

#[test]
fn what_is_refused_spoils_nothing() {
    let node = Node::start(1000);
    let mut client = node.client(0);
    let things = [thing(1, 10), thing(2, 3 * CHUNK), thing(3, 10)];
    let refused = client.put(Space::Files, things.into_iter());
    assert!(matches!(refused, Err(Error::Refused(Failure::Full { .. }))), "SL-1: {refused:?}");
    let missing = client.get(Space::Files, name(2), 0, 1, &mut Vec::new());
    assert!(matches!(missing, Err(Error::Refused(Failure::Missing))));
    assert!(client.is_open());
    client.put(Space::Files, [thing(4, 1000)].into_iter()).unwrap();
    assert!(node.kept.lock().unwrap().contains_key(&name(4)));
    drop(client);
    assert!(!node.said_bye.recv_timeout(Duration::from_secs(5)).unwrap(), "it went without a word");
}

#[test]
fn one_that_does_not_know_the_secret_is_no_one() {
    let node = Node::start(1000);
    let until = Instant::now() + Duration::from_secs(5);
    let wrong = LeaseSecret([8; 32]);
    assert!(dial_store(&node.addresses[..1], false, LEASE, wrong, until).is_err());
}
