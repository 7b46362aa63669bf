//! The zygote's process and the link to it.
//!
//! The process is not a child of this one, so that user code that waits for all its children never meets it.
//!
//! Its end of the link is its standard input: so it is inherited by it alone, whatever else this program starts at the
//! same moment. The link is also the lifeline: when this process is gone, it breaks, and the zygote ends everything.

use crate::news::{Desk, News};
use crate::requests::Options;
use paceline_net::control::{self, Receiver, Sender};
use paceline_net::detached::{self, Detached};
use paceline_net::watch::{self, Watched};
use paceline_net::{fds, poll};
use paceline_proto::SlotId;
use paceline_proto::control::{NodeToZygote, ZygoteToNode};
use rustix::event::{PollFd, PollFlags};
use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;
use tokio::task::JoinHandle;

/// How long a killed process may take to be gone.
const GONE_WITHIN: Duration = Duration::from_millis(200);

pub(crate) struct Zygote {
    pub number: u64,
    sender: Sender<NodeToZygote>,
    process: Detached,
    reader: JoinHandle<()>,
}

impl Zygote {
    pub(crate) fn start(number: u64, options: &Options, desk: &Desk) -> io::Result<Zygote> {
        let (ours, theirs) = fds::pair()?;
        let command: Vec<String> = options.command.iter().cloned().chain(["0".into()]).collect();
        // Slots print to their node; what the zygote itself may have to complain about is for the user's eyes. A
        // terminal's signals are for the user's program alone.
        let process = detached::start(&command, &options.variables, theirs)?;
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
        bury(&self.process);
    }

    /// It is gone, or as good as.
    pub(crate) fn bury(self) {
        self.reader.abort();
        bury(&self.process);
    }
}

/// A descriptor of the process is not its number, so this never meets another. After a kill its end is a matter of
/// microseconds, which is waited for, or something could be seen of it after our own end.
fn bury(process: &Detached) {
    process.kill();
    let _ = poll::wait(&mut [PollFd::new(&process.process, PollFlags::IN)], Some(GONE_WITHIN));
    process.reap();
}

fn watch_process(process: &Detached) -> Option<Watched> {
    watch::to_read(rustix::io::fcntl_dupfd_cloexec(&process.process, 3).ok()?).ok()
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
