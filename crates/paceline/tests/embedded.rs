//! An embedded cluster on real processes. This program starts itself again as the zygote; see the player.

#[path = "../../slot/tests/player/mod.rs"]
mod player;

use paceline::embedded::{Config, Embedded};
use paceline_net::control::{Inbox, Outbox};
use paceline_net::poll;
use paceline_proto::control::{ClientToHead, HeadToClient, Stream};
use paceline_proto::{ClientId, Death, DeathCause, LeaseId, Resources, Seq, Shape, SlotId};
use rustix::event::{PollFd, PollFlags};
use rustix::fd::{AsFd, OwnedFd};
use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(10);
const CLIENT: ClientId = ClientId(1);

struct Cluster {
    embedded: Embedded,
    control: OwnedFd,
    inbox: Inbox<HeadToClient>,
    /// What slots printed while something else was waited for.
    printed: Vec<(SlotId, Stream, String)>,
}

type Data = BufReader<UnixStream>;

fn config(cpus: u64, spares: u64) -> Config {
    Config {
        more: Resources::default(),
        resources: Vec::new(),
        cpus,
        gpus: paceline::hardware::Gpus::Auto,
        memory: paceline::hardware::Memory::Auto,
        spares,
        command: player::command(),
        variables: vec![player::variable()],
        name: "test".into(),
        object_memory: None,
    }
}

impl Cluster {
    fn start(cpus: u64, spares: u64) -> Cluster {
        Cluster::of(Embedded::start(config(cpus, spares)).unwrap())
    }

    fn of(mut embedded: Embedded) -> Cluster {
        let control = embedded.control();
        let cluster = Cluster { embedded, control, inbox: Inbox::default(), printed: Vec::new() };
        cluster.say(&ClientToHead::Hello {
            client: CLIENT,
            name: "test".into(),
            leases: vec![],
            met: None,
            under: None,
            beats: false,
        });
        cluster
    }

    fn say(&self, message: &ClientToHead) {
        let mut outbox = Outbox::default();
        outbox.push(message, Vec::new());
        outbox.flush(&self.control).unwrap();
    }

    /// The next message that is not a welcome or output.
    fn next(&mut self, what: &str) -> HeadToClient {
        loop {
            match self.next_of_all(what).unwrap_or_else(|| panic!("waited for {what}, and the link ended")) {
                HeadToClient::Welcome { .. } => {}
                HeadToClient::Output { slot, stream, text } => {
                    self.printed.push((slot, stream, String::from_utf8(text).unwrap()));
                }
                message => return message,
            }
        }
    }

    fn next_of_all(&mut self, what: &str) -> Option<HeadToClient> {
        loop {
            if let Some((message, _)) = self.inbox.next().unwrap() {
                return Some(message);
            }
            wait_for(&self.control, what, &self.embedded);
            if self.inbox.fill(&self.control).unwrap() == 0 {
                return None;
            }
        }
    }

    fn want(&self, count: u32) {
        self.say(&ClientToHead::Want { shape: Shape::cpus(1), count, exclusive: None });
    }

    fn granted(&mut self) -> (LeaseId, SlotId) {
        match self.next("a grant") {
            HeadToClient::Granted { lease, slot, .. } => (lease, slot),
            other => panic!("{other:?} instead of a grant"),
        }
    }

    fn ended(&mut self, expected: LeaseId) -> Death {
        match self.next("the end of a lease") {
            HeadToClient::Ended { lease, death } if lease == expected => death,
            other => panic!("{other:?} instead of the end of {expected:?}"),
        }
    }

    fn connect(&self, lease: LeaseId) -> Data {
        let stream = UnixStream::from(self.embedded.connect(lease).unwrap());
        stream.set_nonblocking(false).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        BufReader::new(stream)
    }

    /// A lease, its slot, and a connection.
    fn slot(&mut self) -> (LeaseId, SlotId, Data) {
        let (lease, slot) = self.granted();
        let data = self.connect(lease);
        (lease, slot, data)
    }

    /// Wait until the slots are in these states.
    fn wait_for_states(&self, expected: &[&str]) {
        let until = Instant::now() + LIMIT;
        loop {
            let status = self.embedded.status();
            let mut states: Vec<&str> = status.slots.iter().map(|slot| slot.state).collect();
            states.sort_unstable();
            if states == expected {
                return;
            }
            assert!(Instant::now() < until, "waited for {expected:?}, last: {status:?}");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    fn pids(&self) -> Vec<u32> {
        self.embedded.status().slots.iter().filter_map(|slot| slot.pid).collect()
    }
}

fn wait_for(descriptor: impl AsFd, what: &str, embedded: &Embedded) {
    let mut source = [PollFd::from_borrowed_fd(descriptor.as_fd(), PollFlags::IN)];
    let ready = poll::wait(&mut source, Some(LIMIT)).unwrap();
    assert!(ready, "waited for {what}, last: {:?}", embedded.status());
}

fn tell(data: &mut Data, text: &str) {
    data.get_mut().write_all(format!("{text}\n").as_bytes()).unwrap();
}

fn ask(data: &mut Data, question: &str) -> String {
    tell(data, question);
    hear(data)
}

fn hear(data: &mut Data) -> String {
    let mut line = String::new();
    data.read_line(&mut line).unwrap();
    line.trim().to_owned()
}

fn is_gone(pid: u32) -> bool {
    let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else { return true };
    // A zombie is gone as far as anybody can tell; who reaps it is another question.
    stat.rsplit(')').next().unwrap().trim_start().starts_with('Z')
}

fn assert_goes(pid: u32, what: &str) {
    let until = Instant::now() + LIMIT;
    while !is_gone(pid) {
        assert!(Instant::now() < until, "{what} ({pid}) is still there");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// The processes that these slots were forked from. They are no children of ours.
fn zygotes(slots: &[u32]) -> BTreeSet<u32> {
    let parent = |pid: &u32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        stat.rsplit(')').next().unwrap().split_whitespace().nth(1).unwrap().parse().unwrap()
    };
    slots.iter().map(parent).collect()
}

#[test]
fn it_starts_at_once_and_serves() {
    let began = Instant::now();
    let embedded = Embedded::start(config(2, 1)).unwrap();
    let took = began.elapsed();
    assert!(took < Duration::from_millis(20), "EM-2: starting took {took:?}");
    let mut cluster = Cluster::of(embedded);
    cluster.want(2);
    let (_, _, mut one) = cluster.slot();
    let (_, _, mut two) = cluster.slot();
    assert_ne!(ask(&mut one, "pid"), ask(&mut two, "pid"));
    eprintln!("started in {took:?}, first results after {:?}", began.elapsed());
    cluster.wait_for_states(&["leased", "leased", "ready"]);
}

#[test]
fn a_lease_given_back_leaves_its_slot_warm() {
    let mut cluster = Cluster::start(1, 0);
    cluster.want(1);
    let (lease, slot, mut data) = cluster.slot();
    let pid = ask(&mut data, "pid");
    cluster.want(0);
    cluster.say(&ClientToHead::Release { lease });
    cluster.wait_for_states(&["warm"]);
    cluster.want(1);
    let (_, again, mut data) = cluster.slot();
    assert_eq!((again, ask(&mut data, "pid")), (slot, pid));
}

#[test]
fn a_death_is_told_with_its_cause_and_the_slot_replaced() {
    let mut cluster = Cluster::start(1, 0);
    cluster.want(1);
    for (command, cause) in [("exit 3", DeathCause::Exit(3)), ("abort", DeathCause::Signal(6))] {
        let (lease, _, mut data) = cluster.slot();
        tell(&mut data, "begin 6\nend 6\nbegin 7");
        tell(&mut data, command);
        let death = cluster.ended(lease);
        assert_eq!((death.cause, death.running, death.finished), (cause, Some(Seq(7)), Seq(6)));
    }
    let (lease, _, mut data) = cluster.slot();
    let pid: i32 = ask(&mut data, "pid").parse().unwrap();
    let began = Instant::now();
    kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
    assert_eq!(cluster.ended(lease).cause, DeathCause::Signal(9));
    let (_, _, mut data) = cluster.slot();
    assert_eq!(ask(&mut data, "echo new"), "new");
    assert!(began.elapsed() < Duration::from_millis(500), "it took {:?}", began.elapsed());
}

#[test]
fn output_arrives_in_lines_and_before_the_death() {
    let mut cluster = Cluster::start(1, 0);
    cluster.want(1);
    let (lease, slot, mut data) = cluster.slot();
    tell(&mut data, "print one\nprint two\ncomplain three\nexit 0");
    cluster.ended(lease);
    let heard = |stream: Stream| -> String {
        let lines = cluster.printed.iter().filter(|(from, which, _)| *from == slot && *which == stream);
        lines.map(|(_, _, text)| text.as_str()).collect()
    };
    assert_eq!((heard(Stream::Out).as_str(), heard(Stream::Err).as_str()), ("one\ntwo\n", "three\n"));
}

#[test]
fn a_flood_of_output_stops_nobody_else() {
    let mut cluster = Cluster::start(2, 0);
    cluster.want(2);
    let (_, _, mut loud) = cluster.slot();
    let (quiet, _, mut data) = cluster.slot();
    tell(&mut loud, "flood");
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(ask(&mut data, "echo hello"), "hello");
    let memory = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = memory.split(' ').nth(1).unwrap().parse().unwrap();
    assert!(pages * 4 < 100 << 10, "{} KiB are resident", pages * 4);
    tell(&mut data, "exit 0");
    cluster.ended(quiet);
}

#[test]
fn a_slot_that_does_not_let_go_is_replaced() {
    let mut cluster = Cluster::start(1, 0);
    cluster.want(1);
    let (lease, slot, mut data) = cluster.slot();
    let pid: u32 = ask(&mut data, "pid").parse().unwrap();
    assert_eq!(ask(&mut data, "echo from now on\nstuck"), "from now on");
    cluster.say(&ClientToHead::Release { lease });
    let (_, again, mut data) = cluster.slot();
    assert_ne!(again, slot);
    assert_eq!(ask(&mut data, "echo fresh"), "fresh");
    assert!(is_gone(pid), "the lease was granted again before its slot was dead");
}

#[test]
fn strangers_are_turned_away() {
    let cluster = Cluster::start(1, 0);
    let mut data = cluster.connect(LeaseId(12345));
    assert_eq!(hear(&mut data), "", "closed");
}

#[test]
fn what_can_never_be_placed_is_refused() {
    let mut cluster = Cluster::start(2, 0);
    let shape = Shape::cpus(3);
    cluster.say(&ClientToHead::Want { shape, count: 1, exclusive: None });
    let refusal = cluster.next("a refusal");
    let HeadToClient::Unplaceable { shape: refused, why, .. } = refusal else { panic!("{refusal:?}") };
    assert_eq!((refused, &*why), (shape, "no node has more than 2 CPUs"));
}

#[test]
fn a_killed_zygote_is_replaced() {
    let mut cluster = Cluster::start(1, 0);
    cluster.want(1);
    let (lease, _, mut data) = cluster.slot();
    let pid: i32 = ask(&mut data, "pid").parse().unwrap();
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let parent: i32 = stat.rsplit(')').next().unwrap().split_whitespace().nth(1).unwrap().parse().unwrap();
    kill_process(Pid::from_raw(parent).unwrap(), Signal::KILL).unwrap();
    assert_eq!(cluster.ended(lease).cause, DeathCause::Signal(9));
    let (_, _, mut data) = cluster.slot();
    assert_eq!(ask(&mut data, "echo again"), "again");
}

#[test]
fn shutdown_leaves_nothing_and_loses_nothing() {
    let mut cluster = Cluster::start(2, 1);
    cluster.want(1);
    let (_, _, mut data) = cluster.slot();
    cluster.wait_for_states(&["leased", "ready", "ready"]);
    let started = ask(&mut data, "children");
    let pids = cluster.pids();
    assert_eq!(pids.len(), 3);
    tell(&mut data, "print last words");
    assert_eq!(ask(&mut data, "echo heard"), "heard");
    cluster.say(&ClientToHead::Bye);
    let began = Instant::now();
    cluster.embedded.shutdown();
    assert!(began.elapsed() < Duration::from_millis(400), "it took {:?}", began.elapsed());
    pids.iter().for_each(|&pid| assert!(is_gone(pid), "slot {pid} is still there"));
    started.split(' ').for_each(|pid| assert_goes(pid.parse().unwrap(), "what a slot started"));
    let mut heard = String::new();
    while let Some(message) = cluster.next_of_all("the end of the link") {
        if let HeadToClient::Output { text, .. } = message {
            heard += &String::from_utf8(text).unwrap();
        }
    }
    assert_eq!(heard, "last words\n");
    assert!(cluster.embedded.connect(LeaseId(1)).is_err());
    assert!(cluster.embedded.status().slots.is_empty());
    cluster.embedded.shutdown();
}

#[test]
fn shutdown_does_not_wait_for_user_code() {
    let mut cluster = Cluster::start(1, 0);
    cluster.want(1);
    let (_, _, mut data) = cluster.slot();
    let pid: u32 = ask(&mut data, "pid").parse().unwrap();
    assert_eq!(ask(&mut data, "echo from now on\nstuck"), "from now on");
    let began = Instant::now();
    cluster.embedded.shutdown();
    assert!(began.elapsed() < Duration::from_secs(2), "it took {:?}", began.elapsed());
    assert!(is_gone(pid));
}

#[test]
fn shutdown_before_anything_is_up() {
    for delay in [0, 1, 5, 20] {
        let cluster = Cluster::start(2, 1);
        cluster.want(2);
        std::thread::sleep(Duration::from_millis(delay));
        drop(cluster);
    }
}

#[test]
fn a_zygote_that_cannot_start_is_no_reason_to_hang() {
    let command = vec!["/nonexistent/zygote".into()];
    let mut embedded = Embedded::start(Config { command, ..config(1, 0) }).unwrap();
    std::thread::sleep(Duration::from_millis(50));
    embedded.shutdown();
}

/// The role of a program that is killed while its cluster runs.
#[test]
fn victim_role() {
    if std::env::var_os("PACELINE_TEST_VICTIM").is_none() {
        return;
    }
    let mut cluster = Cluster::start(2, 1);
    cluster.want(1);
    let (_, _, mut data) = cluster.slot();
    cluster.wait_for_states(&["leased", "ready", "ready"]);
    let started = ask(&mut data, "children");
    let slots = cluster.pids();
    let all: Vec<String> = slots.iter().chain(&zygotes(&slots)).map(u32::to_string).collect();
    // Not by `println!`, which the harness would keep.
    let mut output = std::fs::File::options().write(true).open("/proc/self/fd/1").unwrap();
    output.write_all(format!("@ {} {started}\n", all.join(" ")).as_bytes()).unwrap();
    loop {
        std::thread::sleep(Duration::from_secs(1));
    }
}

#[test]
fn nothing_outlives_a_killed_program() {
    let mut victim = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "victim_role", "--nocapture"])
        .env("PACELINE_TEST_VICTIM", "1")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(victim.stdout.take().unwrap()).lines();
    let pids =
        lines.find_map(|line| line.unwrap().split_once("@ ").map(|(_, pids)| pids.to_owned())).unwrap();
    let pids: Vec<u32> = pids.split(' ').map(|pid| pid.parse().unwrap()).collect();
    assert_eq!(pids.len(), 6, "three slots, a zygote, two children of user code: {pids:?}");
    victim.kill().unwrap();
    victim.wait().unwrap();
    pids.into_iter().for_each(|pid| assert_goes(pid, "something of the killed program"));
}
