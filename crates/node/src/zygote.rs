//! The zygote's process and the link to it.
//!
//! Its end of the link is its standard input: so it is inherited by it alone, whatever else this program starts at the
//! same moment. The link is also the lifeline: when this process is gone, it breaks, and the zygote ends everything.

use crate::news::{Desk, News};
use crate::requests::Options;
use paceline_net::control::{self, Receiver, Sender};
use paceline_net::fds;
use paceline_net::watch::{self, Watched};
use paceline_proto::SlotId;
use paceline_proto::control::{NodeToZygote, ZygoteToNode};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tokio::task::JoinHandle;

pub(crate) struct Zygote {
    pub number: u64,
    sender: Sender<NodeToZygote>,
    process: Child,
    reader: JoinHandle<()>,
}

impl Zygote {
    pub(crate) fn start(number: u64, options: &Options, desk: &Desk) -> io::Result<Zygote> {
        let (ours, theirs) = fds::pair()?;
        let (program, arguments) = options.command.split_first().ok_or(io::ErrorKind::InvalidInput)?;
        let process = Command::new(program)
            .args(arguments)
            .arg("0")
            .envs(options.variables.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::from(theirs))
            // Slots print to their node; what the zygote itself may have to complain about is for the user's eyes.
            .stdout(Stdio::null())
            // A terminal's signals are for the user's program alone.
            .process_group(0)
            .spawn()?;
        let (sender, receiver) = control::channel(ours)?;
        let reader = tokio::spawn(read(number, receiver, watch_process(&process), desk.clone()));
        Ok(Zygote { number, sender, process, reader })
    }

    pub(crate) fn fork(&self, slot: SlotId, descriptors: Vec<OwnedFd>) {
        self.sender.send(&NodeToZygote::Fork { slot }, descriptors);
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

    /// It is gone, or as good as.
    pub(crate) fn bury(self) {
        self.reader.abort();
        reap(self.process);
    }
}

fn reap(mut process: Child) {
    // If the user's own code has waited for all its children, this fails, and its number may be another's by now.
    if let Ok(None) = process.try_wait() {
        let _ = process.kill();
        let _ = process.wait();
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
    loop {
        // What it had said is heard before its death is.
        let message = tokio::select! {
            biased;
            message = receiver.next() => message,
            () = &mut gone => Ok(None),
        };
        let message = message.unwrap_or_default().map(|(message, _)| message);
        let last = message.is_none();
        if !desk.tell(News::Zygote(number, message)) || last {
            return;
        }
    }
}
