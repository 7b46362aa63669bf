//! The zygote's process and the link to it.
//!
//! Its end of the link is its standard input: so it is inherited by it alone, whatever else this program starts at the
//! same moment. The link is also the lifeline: when this process is gone, it breaks, and the zygote ends everything.

use crate::news::{Desk, News};
use crate::requests::Options;
use crate::words::Words;
use paceline_net::control::{self, Receiver, Sender};
use paceline_net::fds;
use paceline_net::watch::{self, Watched};
use paceline_proto::control::{NodeToZygote, ZygoteToNode};
use paceline_proto::{DeathCause, SlotId, Start};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tokio::task::JoinHandle;

/// How long a process may take to be seen dead after its link has ended.
const DYING: Duration = Duration::from_millis(300);

pub(crate) struct Zygote {
    pub number: u64,
    sender: Sender<NodeToZygote>,
    process: Child,
    reader: JoinHandle<()>,
    /// What a program has to say for itself; the client's own is believed to be one.
    words: Option<Words>,
}

impl Zygote {
    pub(crate) fn start(number: u64, options: &Options, desk: &Desk) -> io::Result<Zygote> {
        // What our own zygote may have to complain about is for the user's eyes.
        spawn(number, &options.command, &options.variables, Stdio::inherit(), desk)
    }

    /// A program that may turn out to be none of ours.
    pub(crate) fn start_program(number: u64, start: &Start, desk: &Desk) -> io::Result<Zygote> {
        let mut zygote = spawn(number, &start.command, &start.variables, Stdio::piped(), desk)?;
        zygote.words = match zygote.process.stderr.take().map(|pipe| Words::of(pipe.into())) {
            Some(words) => Some(words?),
            None => None,
        };
        Ok(zygote)
    }

    pub(crate) fn fork(&self, slot: SlotId, descriptors: Vec<OwnedFd>) {
        self.sender.send(&NodeToZygote::Fork { slot }, descriptors);
    }

    /// It has said that it is one.
    pub(crate) fn on_hello(&self) {
        if let Some(words) = &self.words {
            words.pass_on();
        }
    }

    /// The last lines of its error output.
    pub(crate) fn words(&self) -> String {
        self.words.as_ref().map(Words::last).unwrap_or_default()
    }

    /// Let it end everything it has started, and itself; after `within` it is killed.
    pub(crate) async fn end(mut self, within: Duration) {
        let gone = watch_process(&self.process);
        self.reader.abort();
        let _ = (&mut self.reader).await;
        // With the reader's end this closes the link.
        drop(self.sender);
        let _ = tokio::time::timeout(within, wait(gone)).await;
        reap(self.process);
    }

    /// It is gone, or as good as. Says how it ended.
    pub(crate) fn bury(self) -> DeathCause {
        self.reader.abort();
        reap(self.process)
    }
}

fn spawn(
    number: u64,
    command: &[String],
    variables: &[(String, String)],
    errors: Stdio,
    desk: &Desk,
) -> io::Result<Zygote> {
    let (ours, theirs) = fds::pair()?;
    let (program, arguments) = command.split_first().ok_or(io::ErrorKind::InvalidInput)?;
    let process = Command::new(program)
        .args(arguments)
        .arg("0")
        .envs(variables.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::from(theirs))
        // Slots print to their node.
        .stdout(Stdio::null())
        .stderr(errors)
        // A terminal's signals are for the user's program alone.
        .process_group(0)
        .spawn()?;
    let (sender, receiver) = control::channel(ours)?;
    let reader = tokio::spawn(read(number, receiver, watch_process(&process), desk.clone()));
    Ok(Zygote { number, sender, process, reader, words: None })
}

/// End its group, for what was started may have been a script, and say how the process itself ended.
fn reap(mut process: Child) -> DeathCause {
    let ended = match process.try_wait() {
        Ok(None) => {
            let _ = kill_process_group(Pid::from_child(&process), Signal::KILL);
            process.wait()
        }
        // If the user's own code has waited for all its children, this fails, and its number may be another's by now.
        Ok(Some(status)) => Ok(status),
        Err(error) => Err(error),
    };
    match ended.map(|status| (status.signal(), status.code())) {
        Ok((Some(signal), _)) => DeathCause::Signal(signal),
        Ok((None, code)) => DeathCause::Exit(code.unwrap_or(-1)),
        Err(_) => DeathCause::Exit(-1),
    }
}

fn watch_process(process: &Child) -> Option<Watched> {
    let descriptor = pidfd_open(Pid::from_child(process), PidfdFlags::empty()).ok()?;
    watch::to_read(descriptor).ok()
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
