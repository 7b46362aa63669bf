//! A head in a process of its own, killed and started again from its journal, over real sockets.
//!
//! The process is this very test program, told by its environment to be a head.

use paceline_core::head::Config;
use paceline_head::journal::{Begun, Journal};
use paceline_head::service;
use paceline_net::control::{self, Receiver, Sender};
use paceline_proto::control::{ClientToHead, HeadToClient, HeadToNode, Held, Met, NodeToHead, Placement};
use paceline_proto::{ClientId, Epoch, Incarnation, LeaseId, NodeId, Resources, Shape, SlotId};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const HEAD_LOST: Duration = Duration::from_secs(60);

const DIRECTORY: &str = "PACELINE_TEST_HEAD_DIRECTORY";
const A: ClientId = ClientId(1);
const B: ClientId = ClientId(2);
const NODE: NodeId = NodeId(1);
const LIMIT: Duration = Duration::from_secs(20);

/// Not a test: the head, if the environment says so.
#[test]
fn be_a_head() {
    let Some(directory) = std::env::var_os(DIRECTORY).map(PathBuf::from) else { return };
    let mut random = [0; 52];
    rustix::rand::getrandom(&mut random[..], rustix::rand::GetRandomFlags::empty()).unwrap();
    let journal = match Journal::open(&directory.join("journal")) {
        Ok(journal) => journal,
        Err(error) => {
            eprintln!("{error}");
            std::process::exit(3);
        }
    };
    let Begun { cluster, epoch, .. } = journal.begin(random[..20].try_into().unwrap(), HEAD_LOST).unwrap();
    let config = Config::new(cluster, epoch, random[20..].try_into().unwrap());
    let path = directory.join("socket");
    let _ = std::fs::remove_file(&path);
    let listener = UnixListener::bind(&path).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (service, handle) = service(config);
        std::thread::spawn(move || {
            for socket in listener.incoming() {
                let socket = socket.unwrap();
                socket.set_nonblocking(true).unwrap();
                handle.accept(OwnedFd::from(socket));
            }
        });
        let end = service.run().await;
        eprintln!("the head ended: {end:?}");
        std::process::exit(4);
    });
}

/// A head's process. It is killed with the test.
struct Process(Child);

impl Process {
    fn start(directory: &Path) -> Process {
        let program = std::env::current_exe().unwrap();
        let mut command = Command::new(program);
        command.args(["--exact", "be_a_head", "--nocapture"]).env(DIRECTORY, directory);
        Process(command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap())
    }

    /// What it says when it ends by itself.
    fn last_words(mut self) -> String {
        let until = Instant::now() + LIMIT;
        while self.0.try_wait().unwrap().is_none() {
            assert!(Instant::now() < until, "it does not end");
            std::thread::sleep(Duration::from_millis(10));
        }
        std::io::read_to_string(self.0.stderr.take().unwrap()).unwrap()
    }

    fn kill(mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Directory {
        let path = std::env::temp_dir().join(format!("paceline-restart-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Directory(path)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

async fn dial(directory: &Path) -> OwnedFd {
    let until = Instant::now() + LIMIT;
    loop {
        match UnixStream::connect(directory.join("socket")) {
            Ok(socket) => {
                socket.set_nonblocking(true).unwrap();
                return socket.into();
            }
            Err(error) => assert!(Instant::now() < until, "no head: {error}"),
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

type Client = (Sender<ClientToHead>, Receiver<HeadToClient>, Met);
type Node = (Sender<NodeToHead>, Receiver<HeadToNode>, Met);

async fn client(directory: &Path, client: ClientId, leases: Vec<LeaseId>, met: Option<Met>) -> Client {
    let (sender, mut receiver) = control::channel(dial(directory).await).unwrap();
    let leases = leases
        .into_iter()
        .map(|lease| Held {
            lease,
            node: NODE,
            incarnation: Incarnation(1),
            shape: Shape::cpus(1),
            exclusive: None,
        })
        .collect();
    let hello = ClientToHead::Hello { client, name: String::new(), leases, met, under: None, beats: false };
    sender.send(&hello, vec![]);
    let HeadToClient::Welcome { cluster, epoch, .. } = next(&mut receiver).await else {
        panic!("no welcome")
    };
    (sender, receiver, Met { cluster, epoch })
}

async fn node(directory: &Path, leases: Vec<Placement>, met: Option<Met>) -> Node {
    let (sender, mut receiver) = control::channel(dial(directory).await).unwrap();
    sender.send(
        &NodeToHead::Join {
            node: NODE,
            incarnation: Incarnation(1),
            name: "a".into(),
            total: Resources::cpus(2),
            leases,
            met,
            addresses: vec![],
            facts: Default::default(),
        },
        vec![],
    );
    let HeadToNode::Welcome { cluster, epoch, .. } = next(&mut receiver).await else { panic!("no welcome") };
    (sender, receiver, Met { cluster, epoch })
}

async fn next<M: control::Carries>(receiver: &mut Receiver<M>) -> M {
    let message = tokio::time::timeout(LIMIT, receiver.next()).await.expect("it comes in time");
    message.unwrap().expect("the link is open").0
}

fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime
        .block_on(async { tokio::time::timeout(LIMIT * 3, test).await.expect("the test is done in time") });
}

fn placement(lease: LeaseId, epoch: Epoch) -> Placement {
    let (slot, shape) = (SlotId(1), Shape::cpus(1));
    Placement {
        lease,
        client: A,
        slot,
        shape,
        blocked: false,
        holder: A,
        epoch,
        devices: Default::default(),
        exclusive: None,
    }
}

/// The lease that the node is asked to place next.
async fn placed(node: &mut Node) -> LeaseId {
    loop {
        if let HeadToNode::Place { lease, .. } = next(&mut node.1).await {
            node.0.send(&NodeToHead::Placed { lease, slot: SlotId(lease.0 as u64) }, vec![]);
            return lease;
        }
    }
}

async fn granted(client: &mut Client) -> LeaseId {
    loop {
        if let HeadToClient::Granted { lease, .. } = next(&mut client.1).await {
            return lease;
        }
    }
}

#[test]
fn a_head_that_was_killed_goes_on_with_what_its_peers_have() {
    let directory = Directory::new("kill");
    let path = directory.0.as_path();
    run(async {
        let first = Process::start(path);
        let mut a = client(path, A, vec![], None).await;
        let mut machine = node(path, vec![], None).await;
        a.0.send(&ClientToHead::Want { shape: Shape::cpus(1), count: 1, exclusive: None }, vec![]);
        let lease = placed(&mut machine).await;
        assert_eq!(granted(&mut a).await, lease);
        let before = a.2;
        first.kill();
        assert!(matches!(machine.1.next().await, Ok(None)), "the node sees that the head is gone");

        let _second = Process::start(path);
        // One that waits while the head is away asks before anybody has told what there is.
        let mut b = client(path, B, vec![], None).await;
        b.0.send(&ClientToHead::Want { shape: Shape::cpus(1), count: 2, exclusive: None }, vec![]);
        assert_eq!(b.2.cluster, before.cluster, "it is the same cluster");
        assert!(b.2.epoch > before.epoch, "and a later start");
        let mut machine = node(path, vec![placement(lease, before.epoch)], Some(before)).await;
        let other = placed(&mut machine).await;
        assert_eq!(granted(&mut b).await, other, "the one that waited is served");
        let a = client(path, A, vec![lease], Some(before)).await;
        machine.0.send(&NodeToHead::Heartbeat { beat: 7 }, vec![]);
        loop {
            match next(&mut machine.1).await {
                HeadToNode::Heartbeat { beat: 7 } => break,
                HeadToNode::Place { .. } => panic!("two CPUs have two leases"),
                HeadToNode::End { lease: ended } => panic!("{ended:?} was adopted"),
                _ => {}
            }
        }
        drop(a);
    });
}

#[test]
fn a_second_head_on_the_same_journal_says_why_it_ends() {
    let directory = Directory::new("second");
    let path = directory.0.as_path();
    run(async {
        let _first = Process::start(path);
        drop(client(path, A, vec![], None).await);
        let words = Process::start(path).last_words();
        assert!(words.contains("in use") && words.contains("runs already"), "{words}");
    });
}

#[test]
fn a_head_that_meets_a_later_start_ends_and_says_why() {
    let directory = Directory::new("superseded");
    let path = directory.0.as_path();
    run(async {
        let head = Process::start(path);
        let met = client(path, A, vec![], None).await.2;
        let later = Met { epoch: met.epoch.next(0), ..met };
        let (sender, _receiver) = control::channel::<NodeToHead, HeadToNode>(dial(path).await).unwrap();
        let join = NodeToHead::Join {
            node: NODE,
            incarnation: Incarnation(1),
            name: "a".into(),
            total: Resources::cpus(2),
            leases: vec![],
            met: Some(later),
            addresses: vec![],
            facts: Default::default(),
        };
        sender.send(&join, vec![]);
        let words = tokio::task::spawn_blocking(move || head.last_words()).await.unwrap();
        assert!(words.contains("Superseded"), "{words}");
    });
}
