//! The zygote on real processes: this program is the node, and starts itself again as the zygote.

mod player;

use paceline_net::control::{Inbox, Outbox};
use paceline_net::{Page, clock, fds, poll};
use paceline_proto::control::{NodeToSlot, NodeToZygote, SlotToNode, ZygoteToNode};
use paceline_proto::{DeathCause, LeaseId, SlotId};
use rustix::event::{PollFd, PollFlags};
use rustix::fd::{AsFd, OwnedFd};
use rustix::process::{Pid, Signal, kill_process, set_child_subreaper, test_kill_process};
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(10);

struct Nursery {
    process: Child,
    link: OwnedFd,
    inbox: Inbox<ZygoteToNode>,
}

struct Slot {
    control: OwnedFd,
    inbox: Inbox<SlotToNode>,
    stdout: File,
    page: Page,
}

fn wait_for(descriptor: impl AsFd, what: &str) {
    let mut source = [PollFd::from_borrowed_fd(descriptor.as_fd(), PollFlags::IN)];
    assert!(poll::wait(&mut source, Some(LIMIT)).unwrap(), "waited for {what}");
}

impl Nursery {
    fn start() -> Nursery {
        let (ours, theirs) = fds::pair().unwrap();
        let command = player::command();
        let process = Command::new(&command[0])
            .args(&command[1..])
            .arg("0")
            .envs([player::variable()])
            .stdin(Stdio::from(theirs))
            .spawn()
            .unwrap();
        let mut nursery = Nursery { process, link: ours, inbox: Inbox::default() };
        assert_eq!(nursery.next(), ZygoteToNode::Hello);
        nursery
    }

    fn fork(&mut self, slot: u64) -> Slot {
        let (control, theirs) = fds::pair().unwrap();
        let (out, out_end) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).unwrap();
        let err_end = rustix::io::fcntl_dupfd_cloexec(std::io::stderr(), 3).unwrap();
        let (page, memory) = Page::create().unwrap();
        let mut outbox = Outbox::default();
        outbox.push(&NodeToZygote::Fork { slot: SlotId(slot) }, vec![theirs, out_end, err_end, memory]);
        outbox.flush(&self.link).unwrap();
        Slot { control, inbox: Inbox::default(), stdout: File::from(out), page }
    }

    fn next(&mut self) -> ZygoteToNode {
        loop {
            if let Some((message, _)) = self.inbox.next().unwrap() {
                return message;
            }
            wait_for(&self.link, "the zygote");
            assert_ne!(self.inbox.fill(&self.link).unwrap(), 0, "the zygote is gone");
        }
    }

    fn pid_of(&mut self, slot: u64) -> u32 {
        match self.next() {
            ZygoteToNode::Forked { slot: SlotId(born), pid } if born == slot => pid,
            other => panic!("{other:?} instead of the birth of slot {slot}"),
        }
    }

    fn assert_exited(&mut self, slot: u64, pid: u32, cause: DeathCause) {
        let ZygoteToNode::Exited { slot: gone, pid: of, cause: how, peak } = self.next() else {
            panic!("slot {slot} has not ended");
        };
        assert_eq!((gone, of, how), (SlotId(slot), pid, cause));
        assert!(peak > 100 << 10, "it had memory: {peak} bytes");
    }
}

impl Drop for Nursery {
    fn drop(&mut self) {
        // It ends everything with itself, unlike one that is killed.
        self.link = File::open("/dev/null").unwrap().into();
        let _ = self.process.wait();
    }
}

impl Slot {
    fn say(&self, message: &NodeToSlot, descriptors: Vec<OwnedFd>) {
        let mut outbox = Outbox::default();
        outbox.push(message, descriptors);
        outbox.flush(&self.control).unwrap();
    }

    fn next(&mut self) -> SlotToNode {
        loop {
            if let Some((message, _)) = self.inbox.next().unwrap() {
                return message;
            }
            wait_for(&self.control, "the slot");
            assert_ne!(self.inbox.fill(&self.control).unwrap(), 0, "the slot is gone");
        }
    }

    /// A data connection, and lines from it.
    fn attach(&self) -> BufReader<File> {
        let (ours, theirs) = rustix::net::socketpair(
            rustix::net::AddressFamily::UNIX,
            rustix::net::SocketType::STREAM,
            rustix::net::SocketFlags::CLOEXEC,
            None,
        )
        .unwrap();
        self.say(&NodeToSlot::Attach { lease: LeaseId(1), secret: None }, vec![theirs]);
        BufReader::new(File::from(ours))
    }
}

fn ask(data: &mut BufReader<File>, question: &str) -> String {
    writeln!(data.get_mut(), "{question}").unwrap();
    wait_for(data.get_ref(), question);
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

#[test]
fn slots_are_forked_print_to_the_node_and_are_reaped() {
    let mut nursery = Nursery::start();
    let mut slot = nursery.fork(1);
    let pid = nursery.pid_of(1);
    assert_eq!(slot.next(), SlotToNode::Ready { slot: SlotId(1), pid });
    assert_eq!(
        rustix::process::getpgid(Pid::from_raw(pid as i32)).unwrap().as_raw_nonzero().get(),
        pid as i32
    );
    let score = std::fs::read_to_string(format!("/proc/{pid}/oom_score_adj")).unwrap();
    assert_eq!(score.trim(), "800");
    let mut data = slot.attach();
    assert_eq!(ask(&mut data, "pid"), pid.to_string());
    writeln!(data.get_mut(), "print hello\nbegin 3\nend 3\nbegin 4\nexit 3").unwrap();
    nursery.assert_exited(1, pid, DeathCause::Exit(3));
    let mut text = String::new();
    slot.stdout.read_to_string(&mut text).unwrap();
    assert_eq!(text, "hello\n", "and nobody else holds the pipe");
    assert_eq!((slot.page.running().unwrap().0, slot.page.finished().0), (4, 3));
}

#[test]
fn signals_are_told_and_other_slots_go_on() {
    let mut nursery = Nursery::start();
    let mut slots = [nursery.fork(1), nursery.fork(2)];
    let pids = [nursery.pid_of(1), nursery.pid_of(2)];
    slots.iter_mut().for_each(|slot| assert!(matches!(slot.next(), SlotToNode::Ready { .. })));
    writeln!(slots[0].attach().get_mut(), "abort").unwrap();
    nursery.assert_exited(1, pids[0], DeathCause::Signal(6));
    let mut data = slots[1].attach();
    assert_eq!(ask(&mut data, "echo still here"), "still here");
    kill_process(Pid::from_raw(pids[1] as i32).unwrap(), Signal::KILL).unwrap();
    nursery.assert_exited(2, pids[1], DeathCause::Signal(9));
}

#[test]
fn the_end_of_a_slot_ends_what_it_started() {
    let mut nursery = Nursery::start();
    let mut slots = [nursery.fork(1), nursery.fork(2)];
    let pids = [nursery.pid_of(1), nursery.pid_of(2)];
    slots.iter_mut().for_each(|slot| assert!(matches!(slot.next(), SlotToNode::Ready { .. })));
    let mut data = slots.each_ref().map(Slot::attach);
    let started = data.each_mut().map(|data| ask(data, "children"));
    let ids = |index: usize| started[index].split(' ').map(|pid| pid.parse().unwrap()).collect::<Vec<u32>>();
    writeln!(data[0].get_mut(), "exit 0").unwrap();
    nursery.assert_exited(1, pids[0], DeathCause::Exit(0));
    ids(0).into_iter().for_each(|pid| assert_goes(pid, "a child of the dead slot"));
    ids(1).into_iter().for_each(|pid| assert!(!is_gone(pid), "a child of the living slot is gone"));
    assert_eq!(ask(&mut data[1], "echo fine"), "fine");
}

/// Everything the zygote started, gone in the way that `end` brings about.
fn everything_goes(end: impl FnOnce(&mut Nursery)) {
    // Whatever the zygote might leave behind becomes our child, and is seen.
    set_child_subreaper(Some(rustix::process::getpid())).unwrap();
    let mut nursery = Nursery::start();
    let mut slot = nursery.fork(1);
    let pid = nursery.pid_of(1);
    slot.next();
    let mut data = slot.attach();
    let started = ask(&mut data, "children");
    writeln!(data.get_mut(), "stuck").unwrap();
    end(&mut nursery);
    assert_goes(nursery.process.id(), "the zygote");
    assert_goes(pid, "the slot");
    started.split(' ').for_each(|pid| assert_goes(pid.parse().unwrap(), "what the slot started"));
}

#[test]
fn the_end_of_the_node_ends_everything() {
    everything_goes(|nursery| nursery.link = File::open("/dev/null").unwrap().into());
}

#[test]
fn a_request_to_exit_ends_everything() {
    everything_goes(|nursery| {
        let mut outbox = Outbox::default();
        outbox.push(&NodeToZygote::Exit, Vec::new());
        outbox.flush(&nursery.link).unwrap();
    });
}

#[test]
fn a_polite_signal_ends_everything() {
    everything_goes(|nursery| {
        kill_process(Pid::from_child(&nursery.process), Signal::TERM).unwrap();
    });
}

#[test]
fn slots_end_with_a_zygote_that_is_killed() {
    let mut nursery = Nursery::start();
    let mut slot = nursery.fork(1);
    let pid = nursery.pid_of(1);
    slot.next();
    kill_process(Pid::from_child(&nursery.process), Signal::KILL).unwrap();
    assert_goes(pid, "the slot");
}

#[test]
fn ctrl_c_is_not_the_zygotes_business() {
    let mut nursery = Nursery::start();
    let mut slot = nursery.fork(1);
    nursery.pid_of(1);
    slot.next();
    let zygote = Pid::from_child(&nursery.process);
    kill_process(zygote, Signal::INT).unwrap();
    nursery.fork(2);
    nursery.pid_of(2);
    test_kill_process(zygote).unwrap();
}

#[test]
fn slot_whose_time_has_come_is_killed_without_a_word_of_the_node() {
    let mut nursery = Nursery::start();
    let mut slots = [nursery.fork(1), nursery.fork(2), nursery.fork(3)];
    let pids = [nursery.pid_of(1), nursery.pid_of(2), nursery.pid_of(3)];
    slots.iter_mut().for_each(|slot| assert!(matches!(slot.next(), SlotToNode::Ready { .. })));
    let mut data = slots[0].attach();
    let started = ask(&mut data, "children");
    let kill_at = |nursery: &Nursery, slots: Vec<(SlotId, u64)>| {
        let mut outbox = Outbox::default();
        outbox.push(&NodeToZygote::KillAt { slots }, Vec::new());
        outbox.flush(&nursery.link).unwrap();
    };
    let soon = clock::now() + 200_000_000;
    kill_at(&nursery, vec![(SlotId(1), soon), (SlotId(2), soon)]);
    // The head has been heard meanwhile, of which one of them profits.
    kill_at(&nursery, vec![(SlotId(2), soon + 3_600_000_000_000)]);
    nursery.assert_exited(1, pids[0], DeathCause::Signal(9));
    assert!(clock::now() >= soon, "ZY-4: not before");
    started.split(' ').for_each(|pid| assert_goes(pid.parse().unwrap(), "what the slot started"));
    for at in [1, 2] {
        assert_eq!(ask(&mut slots[at].attach(), "echo fine"), "fine", "ZY-4: no other slot is");
        assert!(!is_gone(pids[at]));
    }
}
