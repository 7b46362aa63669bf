//! A head's door, and those who come to it.

use paceline_net::control;
use paceline_net::secure::{
    Accepted, Credential, Dialed, Door, Error, Introduction, Key, Keys, Listener, PasswordRecord, Role,
    Secured, Serves, dial, unix_name,
};
use paceline_proto::control::{ClientToHead, HeadToClient, Timing};
use paceline_proto::{Address, ClusterId, Epoch, ProgramId, Start};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

pub const PYTHON: [u8; 3] = [3, 11, 4];

/// Everything in a test that waits is done long before.
pub fn soon() -> Instant {
    Instant::now() + Duration::from_secs(10)
}

pub fn run<T>(test: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let limit = Duration::from_secs(50);
    runtime.block_on(async { tokio::time::timeout(limit, test).await.expect("the test is done in time") })
}

/// A head that says welcome to everybody it lets in, in a runtime of its own.
pub struct Head {
    pub keys: Arc<Keys>,
    pub tcp: Address,
    pub unix: Address,
    pub introduced: std::sync::mpsc::Receiver<Introduction>,
    _stop: mpsc::Sender<()>,
}

impl Head {
    pub fn start(password: Option<PasswordRecord>) -> Head {
        let keys = Arc::new(Keys::new(Key::random().unwrap(), password));
        let (stop, mut stopped) = mpsc::channel(1);
        let (ready, started) = std::sync::mpsc::channel();
        let (tell, introduced) = std::sync::mpsc::channel();
        let (door_keys, unix) = (keys.clone(), unix_name().unwrap());
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let me = Introduction::new(Role::Head, "alpha", Some(PYTHON));
                let door = Door { me, keys: Some(door_keys), serves: Serves::Head };
                let addresses = [Address::tcp("127.0.0.1", 0), unix];
                let mut listener = Listener::bind(&addresses, door).unwrap();
                ready.send(listener.addresses().to_vec()).unwrap();
                loop {
                    tokio::select! {
                        accepted = listener.accept() => if let Accepted::Peer { secured, introduction } = accepted {
                            let _ = tell.send(introduction);
                            tokio::spawn(welcome(secured));
                        },
                        _ = stopped.recv() => return,
                    }
                }
            });
        });
        let addresses: Vec<Address> = started.recv_timeout(Duration::from_secs(10)).unwrap();
        let [tcp, unix] = <[Address; 2]>::try_from(addresses).unwrap();
        Head { keys, tcp, unix, introduced, _stop: stop }
    }

    pub fn key(&self) -> Credential {
        Credential::Key(self.keys.key().clone())
    }

    pub fn dial(&self, credential: Option<&Credential>) -> Result<Dialed, Error> {
        dial(std::slice::from_ref(&self.tcp), credential, &client(), soon())
    }
}

const WELCOME: HeadToClient = HeadToClient::Welcome {
    cluster: ClusterId(7),
    epoch: Epoch(1),
    timing: Timing { heartbeat: Duration::from_secs(2), head_lost: Duration::from_secs(60) },
};

/// Answer every word that is long enough to come in pieces.
async fn welcome(secured: Secured) {
    let (sender, mut receiver) = control::channel::<HeadToClient, ClientToHead>(secured).unwrap();
    while let Ok(Some((message, _))) = receiver.next().await {
        if let ClientToHead::Program { .. } = message {
            sender.send(&WELCOME, vec![]);
        }
    }
}

pub fn client() -> Introduction {
    Introduction::new(Role::Client, "nightly", Some(PYTHON))
}

/// Say something long over a connection, and wait for the welcome.
pub fn hello(secured: Secured) {
    run(async {
        let (sender, mut receiver) = control::channel::<ClientToHead, HeadToClient>(secured).unwrap();
        let start = Start { command: vec!["x".repeat(300_000)], ..Start::default() };
        sender.send(&ClientToHead::Program { program: ProgramId(7), start }, vec![]);
        let (message, _) = receiver.next().await.unwrap().unwrap();
        assert_eq!(message, WELCOME);
    });
}
