//! The zygote's process and the link to it.
//!
//! The client's own is not a child of this process, so that user code that waits for all its children never meets it.
//! Another program's is one, because how it ended must be told to whoever asked for it.
//!
//! Its end of the link is its standard input: so it is inherited by it alone, whatever else this program starts at the
//! same moment. When this process is gone the link breaks, and the zygote ends everything. One that was stopped reads nothing,
//! so it has a lifeline as well, whose end lets it go on.
//!
//! * ZN-1: a zygote that is killed cannot end what its slots have started, and what has a session of its own outlives them.
//!   So everything that descends from it, which a mark in the environment tells, is killed by the node before their deaths
//!   are reported.
//! * ZN-2: of a node that is known by the same id after its next start everything has the node's mark as well: what a start
//!   has left is killed before the next one joins, which the head takes as proof that it is gone.

use crate::news::{Desk, News};
use crate::requests::Options;
use crate::words::Words;
use paceline_net::control::{self, Receiver, Sender};
use paceline_net::descent::Mark;
use paceline_net::detached::{self, Detached};
use paceline_net::kept::Kept;
use paceline_net::watch::{self, Watched};
use paceline_net::{fds, lifeline, poll, reap, signals};
use paceline_proto::control::{NodeToZygote, ZygoteToNode};
use paceline_proto::{DeathCause, SlotId, Start};
use rustix::event::{PollFd, PollFlags};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open, pidfd_send_signal};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tokio::task::JoinHandle;

/// How long a killed process may take to be gone.
const GONE_WITHIN: Duration = Duration::from_millis(200);
/// How long a process may take to be seen dead after its link has ended.
const DYING: Duration = Duration::from_millis(300);

/// All that a thread needs that waits for a process.
const REAPER_STACK: usize = 64 << 10;

/// How long it may take to kill what descends from a zygote that did not end it (ZN-1).
const DESCENT_TIMEOUT: Duration = Duration::from_millis(500);

pub(crate) struct Zygote {
    pub number: u64,
    mark: Mark,
    sender: Sender<NodeToZygote>,
    lifeline: Option<Kept>,
    process: Process,
    reader: JoinHandle<()>,
    /// What a program has to say for itself; the client's own is believed to be one.
    words: Option<Words>,
}

enum Process {
    Own(Detached),
    Other(Child),
}

impl Zygote {
    pub(crate) fn start(number: u64, options: &Options, desk: &Desk) -> io::Result<Zygote> {
        let (ours, theirs) = fds::pair()?;
        let command: Vec<String> = options.command.iter().cloned().chain(["0".into()]).collect();
        // Slots print to their node; what the zygote itself may have to complain about is for the user's eyes. A
        // terminal's signals are for the user's program alone.
        let mark = Mark::draw(options.descent.as_ref())?;
        let variables: Vec<(String, String)> =
            options.variables.iter().cloned().chain([mark.variable()]).collect();
        let process = Process::Own(detached::start(&command, &variables, theirs)?);
        Zygote::new(number, ours, process, mark, desk)
    }

    /// A program that may turn out to be none of ours.
    pub(crate) fn start_program(
        number: u64,
        start: &Start,
        node: Option<&Mark>,
        desk: &Desk,
    ) -> io::Result<Zygote> {
        let (ours, theirs) = fds::pair()?;
        let (program, arguments) = start.command.split_first().ok_or(io::ErrorKind::InvalidInput)?;
        let mut command = Command::new(program);
        for secret in detached::SECRETS {
            command.env_remove(secret);
        }
        let mark = Mark::draw(node)?;
        let mut process = command
            .args(arguments)
            .arg("0")
            .envs(start.variables.iter().map(|(name, value)| (name, value)))
            .envs([mark.variable()])
            .stdin(Stdio::from(theirs))
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()?;
        let words = process.stderr.take().map(|pipe| Words::of(pipe.into())).transpose()?;
        Ok(Zygote { words, ..Zygote::new(number, ours, Process::Other(process), mark, desk)? })
    }

    fn new(number: u64, link: OwnedFd, process: Process, mark: Mark, desk: &Desk) -> io::Result<Zygote> {
        let (sender, receiver) = control::channel(link)?;
        let reader = tokio::spawn(read(number, receiver, process.watch(), desk.clone()));
        Ok(Zygote { number, mark, sender, lifeline: None, process, reader, words: None })
    }

    pub(crate) fn fork(&self, slot: SlotId, descriptors: Vec<OwnedFd>) {
        self.sender.send(&NodeToZygote::Fork { slot }, descriptors);
    }

    /// Have it kill these slots at these times.
    pub(crate) fn kill_at(&self, slots: Vec<(SlotId, u64)>) {
        self.sender.send(&NodeToZygote::KillAt { slots }, Vec::new());
    }

    /// It has said that it is one.
    pub(crate) fn on_hello(&mut self) {
        match lifeline::pair() {
            // A program may say it again.
            _ if self.lifeline.is_some() => {}
            Ok((ours, theirs)) => {
                self.sender.send(&NodeToZygote::Lifeline, vec![theirs]);
                self.lifeline = Some(ours);
            }
            Err(error) => tracing::warn!(%error, "a zygote has no lifeline"),
        }
        if let Some(words) = &self.words {
            words.pass_on();
        }
    }

    /// The last lines of its error output.
    pub(crate) fn words(&self) -> String {
        self.words.as_ref().map(Words::last).unwrap_or_default()
    }

    /// Whether a signal has stopped it.
    pub(crate) fn stands_still(&self) -> bool {
        reap::stands_still(match &self.process {
            Process::Own(process) => process.pid(),
            Process::Other(process) => Pid::from_child(process),
        })
    }

    /// It is heard of when it is gone, as if it had died by itself.
    pub(crate) fn kill(&self) {
        match &self.process {
            Process::Own(process) => process.kill(),
            Process::Other(process) => {
                let process = pidfd_open(Pid::from_child(process), PidfdFlags::empty());
                let _ = process.map(|process| pidfd_send_signal(process, Signal::KILL));
            }
        }
    }

    /// Let it end everything it has started, and itself; after `within` it is killed.
    pub(crate) async fn end(mut self, within: Duration) {
        let gone = self.process.watch();
        self.reader.abort();
        let _ = (&mut self.reader).await;
        // With the reader's end this closes the link.
        drop((self.sender, self.lifeline));
        let ended = tokio::time::timeout(within, wait(gone)).await;
        self.process.bury();
        if ended.is_err() {
            kill_descent(&self.mark);
        }
    }

    /// It is gone, or as good as. Says how it ended, if that can be known.
    pub(crate) fn bury(self) -> DeathCause {
        self.reader.abort();
        let Zygote { process, mark, .. } = self;
        let cause = process.bury();
        kill_descent(&mark);
        cause
    }
}

/// ZN-1.
fn kill_descent(mark: &Mark) {
    if !mark.kill_all(DESCENT_TIMEOUT) {
        tracing::warn!("what a zygote has left behind does not end");
    }
}

impl Process {
    fn watch(&self) -> Option<Watched> {
        let descriptor = match self {
            Process::Own(process) => rustix::io::fcntl_dupfd_cloexec(&process.process, 3).ok()?,
            Process::Other(process) => pidfd_open(Pid::from_child(process), PidfdFlags::empty()).ok()?,
        };
        watch::to_read(descriptor).ok()
    }

    fn bury(self) -> DeathCause {
        match self {
            Process::Own(process) => {
                bury(&process);
                DeathCause::Exit(-1)
            }
            Process::Other(process) => reap_group(process),
        }
    }
}

/// A descriptor of the process is not its number, so this never meets another. After a kill its end is a matter of
/// microseconds, which is waited for, or something could be seen of it after our own end.
fn bury(process: &Detached) {
    process.kill();
    let _ = poll::wait(&mut [PollFd::new(&process.process, PollFlags::IN)], Some(GONE_WITHIN));
    process.reap();
}

/// End its group, for what was started may have been a script, and say how the process itself ended.
fn reap_group(process: Child) -> DeathCause {
    reap_group_within(process, GONE_WITHIN)
}

/// It may have left its group, so it is killed by itself as well. What is not gone in time is reaped by a thread: a process
/// that hangs in the kernel must not hold up the node.
fn reap_group_within(mut process: Child, within: Duration) -> DeathCause {
    let ended = match process.try_wait() {
        Ok(None) => {
            let pid = Pid::from_child(&process);
            let _ = kill_process_group(pid, Signal::KILL);
            if let Ok(descriptor) = pidfd_open(pid, PidfdFlags::empty()) {
                let _ = pidfd_send_signal(&descriptor, Signal::KILL);
                let _ = poll::wait(&mut [PollFd::new(&descriptor, PollFlags::IN)], Some(within));
            }
            process.try_wait()
        }
        // If the user's own code has waited for all its children, this fails, and its number may be another's by now.
        ended => ended,
    };
    match ended.map(|status| status.map(|status| (status.signal(), status.code()))) {
        Ok(Some((Some(signal), _))) => DeathCause::Signal(signal),
        Ok(Some((None, code))) => DeathCause::Exit(code.unwrap_or(-1)),
        Ok(None) => {
            reap_later(process);
            DeathCause::Signal(Signal::KILL.as_raw())
        }
        Err(_) => DeathCause::Exit(-1),
    }
}

fn reap_later(mut process: Child) {
    let thread = std::thread::Builder::new().name("paceline-reaper".into()).stack_size(REAPER_STACK);
    let pid = process.id();
    let started = thread.spawn(move || {
        signals::block_all();
        let _ = process.wait();
    });
    match started {
        Ok(_) => tracing::warn!(pid, "a zygote was killed and is not gone yet"),
        Err(error) => tracing::warn!(pid, %error, "a zygote was killed and is not waited for"),
    }
}

async fn wait(process: Option<Watched>) {
    match process {
        Some(process) => drop(process.readable().await),
        None => std::future::pending().await,
    }
}

async fn read(number: u64, mut receiver: Receiver<ZygoteToNode>, process: Option<Watched>, desk: Desk) {
    let gone = wait(process);
    tokio::pin!(gone);
    let wrong = loop {
        // What it had said is heard before its death is.
        let message = tokio::select! {
            biased;
            message = receiver.next() => message,
            () = &mut gone => break None,
        };
        match message {
            Ok(Some((message, _))) => {
                if !desk.tell(News::Zygote(number, message)) {
                    return;
                }
            }
            Ok(None) => {
                // The link of a process that ends is closed a moment before it can be asked how it did.
                let _ = tokio::time::timeout(DYING, &mut gone).await;
                break None;
            }
            Err(error) if error.kind() == io::ErrorKind::InvalidData => break Some(error.to_string()),
            Err(_) => break None,
        }
    };
    desk.tell(News::ZygoteGone(number, wrong));
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::test_kill_process;
    use std::time::Instant;

    /// A process that is in another group than its own, as one that has left it.
    fn sleeper() -> Child {
        Command::new("sleep").arg("20").spawn().unwrap()
    }

    #[test]
    fn program_that_has_left_its_group_is_killed_all_the_same() {
        let began = Instant::now();
        assert_eq!(reap_group(sleeper()), DeathCause::Signal(9));
        assert!(began.elapsed() < Duration::from_secs(5), "the node waits for nobody");
    }

    #[test]
    fn program_that_is_not_gone_in_time_is_reaped_later() {
        let process = sleeper();
        let pid = Pid::from_child(&process);
        reap_later(process);
        assert_eq!(test_kill_process(pid), Ok(()), "nobody has waited for it");
        rustix::process::kill_process(pid, Signal::KILL).unwrap();
        let until = Instant::now() + Duration::from_secs(5);
        while test_kill_process(pid).is_ok() {
            assert!(Instant::now() < until, "it is a zombie");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn how_a_program_ended_is_said() {
        let process = Command::new("false").spawn().unwrap();
        let gone = pidfd_open(Pid::from_child(&process), PidfdFlags::empty()).unwrap();
        poll::wait(&mut [PollFd::new(&gone, PollFlags::IN)], Some(Duration::from_secs(5))).unwrap();
        assert_eq!(reap_group_within(process, Duration::ZERO), DeathCause::Exit(1));
        assert_eq!(reap_group_within(sleeper(), Duration::from_secs(5)), DeathCause::Signal(9));
    }
}
