//! The daemons: a head, a node, or both in one process.
//!
//! Owns: the process (its log, its record and lock, the signals it gets) and where it listens. Does not own: what head
//! and node do, which is theirs.
//!
//! * DA-1: nothing is told to be up before it can be reached.
//! * DA-2: however it ends but by a kill, its record, its lock and, with the last daemon of a cluster, everything else of
//!   it is gone.
//! * DA-3: it cannot be read by other processes of its user: neither its memory nor its environment.

mod door;
mod end;
mod head;
pub mod launch;
pub mod log;
mod node;
pub mod plan;
mod python;

pub use door::dial;

use crate::failure::{Failure, failed};
use log::Log;
use paceline_registry::{Home, Place};
use plan::{Plan, Report, Up};
use std::io::{Read, Write};
use std::time::{SystemTime, UNIX_EPOCH};
use tokio::sync::mpsc;

/// Be the daemon whose plan comes from standard input.
pub fn from_stdin() -> Result<(), Failure> {
    let mut text = Vec::new();
    std::io::stdin().read_to_end(&mut text)?;
    let plan: Plan = serde_json::from_slice(&text).map_err(|error| failed(format!("no plan: {error}")))?;
    // The terminal's signals are not for it any more. It fails for the leader of a group, which a child is not.
    let _ = rustix::process::setsid();
    let _ = std::env::set_current_dir("/");
    run(plan, |result, log| {
        let mut line = serde_json::to_string(&Report::of(result)).expect("a report is plain data");
        line.push('\n');
        let mut stdout = std::io::stdout();
        let _ = stdout.write_all(line.as_bytes()).and_then(|()| stdout.flush());
        leave_terminal(log);
    })
    // It was told through the report.
    .or(Ok(()))
}

/// Nothing more is read from or written to where it was started.
fn leave_terminal(log: Option<&Log>) {
    let flags = rustix::fs::OFlags::RDWR | rustix::fs::OFlags::CLOEXEC;
    if let Ok(null) = rustix::fs::open("/dev/null", flags, rustix::fs::Mode::empty()) {
        let _ = rustix::stdio::dup2_stdin(&null);
        let _ = rustix::stdio::dup2_stdout(&null);
        let taken = log.is_some_and(|log| log.take_stderr().is_ok());
        if !taken {
            let _ = rustix::stdio::dup2_stderr(&null);
        }
    }
}

/// Be head, node or both until told to end. `report` hears once whether it serves.
pub fn run(plan: Plan, report: impl FnOnce(&Result<Up, Failure>, Option<&Log>)) -> Result<(), Failure> {
    harden();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut report = Some(report);
        let result = match Daemon::start(plan).await {
            Ok((daemon, up)) => {
                tracing::info!(name = up.name, address = up.address, node = up.node, "up");
                if let Some(report) = report.take() {
                    report(&Ok(up), Some(&daemon.log));
                }
                daemon.serve().await
            }
            Err(failure) => Err(failure),
        };
        if let (Err(failure), Some(report)) = (&result, report) {
            report(&Err(failure.clone()), None);
        }
        result
    })
}

/// DA-3, and as many descriptors as there may be.
fn harden() {
    use rustix::process::{DumpableBehavior, Resource, Rlimit, getrlimit, set_dumpable_behavior, setrlimit};
    let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
    rustix::process::umask(rustix::fs::Mode::RWXG | rustix::fs::Mode::RWXO);
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
}

/// What can make a daemon end.
pub(crate) enum End {
    /// The head is over.
    Head,
    /// The node is over.
    Node,
    /// Told to, by a signal or by the end of its lifeline.
    Told(&'static str),
}

/// A daemon that serves.
struct Daemon {
    home: Home,
    place: Place,
    log: Log,
    head: Option<head::Running>,
    node: Option<node::Running>,
    ends: mpsc::UnboundedReceiver<End>,
    leave_within: std::time::Duration,
}

impl Daemon {
    async fn start(plan: Plan) -> Result<(Daemon, Up), Failure> {
        let home = plan.home();
        let name = plan.name.clone().unwrap_or_else(|| "default".into());
        let place = home.cluster(&name)?;
        place.create()?;
        let role = if plan.head.is_some() { "head" } else { "node" };
        let log_name = match &plan.node {
            Some(node) if role == "node" => format!("node-{}.log", node.name),
            _ => format!("{role}.log"),
        };
        let log = Log::open(place.logs().join(log_name), &plan.log, !plan.detached)?;
        log.install(&plan.log);
        let (ended, ends) = mpsc::unbounded_channel();
        end::watch(&plan, ended.clone())?;
        let started = Daemon::start_parts(&plan, &place, &log, &ended).await;
        match started {
            Ok((head, node, up)) => {
                let leave_within = plan.leave_within;
                Ok((Daemon { home, place, log, head, node, ends, leave_within }, up))
            }
            Err(failure) => {
                // DA-2: nothing of a start that came to nothing.
                let _ = place.remove();
                home.tidy();
                Err(failure)
            }
        }
    }

    async fn start_parts(
        plan: &Plan,
        place: &Place,
        log: &Log,
        ended: &mpsc::UnboundedSender<End>,
    ) -> Result<(Option<head::Running>, Option<node::Running>, Up), Failure> {
        let mut up = Up { name: place.name().into(), pid: std::process::id(), ..Up::default() };
        let head = match &plan.head {
            Some(_) => Some(head::start(plan, place, log, ended, &mut up).await?),
            None => None,
        };
        let node = match &plan.node {
            Some(_) => Some(node::start(plan, place, log, head.as_ref(), ended, &mut up).await?),
            None => None,
        };
        Ok((head, node, up))
    }

    async fn serve(mut self) -> Result<(), Failure> {
        while let Some(end) = self.ends.recv().await {
            match end {
                End::Head => break,
                End::Node if self.head.is_none() => break,
                // It was asked to leave; the head goes on without it.
                End::Node => {
                    if let Some(node) = self.node.take() {
                        node.finish().await;
                    }
                }
                End::Told(why) => {
                    tracing::info!(why, "told to end");
                    match (&self.head, &self.node) {
                        (Some(head), _) => head.stop(),
                        (None, Some(node)) => node.leave(self.leave_within),
                        (None, None) => break,
                    }
                }
            }
        }
        let mut failure = None;
        if let Some(node) = self.node {
            node.finish().await;
        }
        if let Some(head) = self.head {
            failure = head.finish().await;
        }
        tracing::info!("over");
        let _ = self.place.remove();
        self.home.tidy();
        failure.map_or(Ok(()), Err)
    }
}

pub(crate) fn seconds_since_1970() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())
}

pub(crate) fn random<const N: usize>() -> Result<[u8; N], Failure> {
    let mut bytes = [0; N];
    let filled = rustix::rand::getrandom(&mut bytes[..], rustix::rand::GetRandomFlags::empty())
        .map_err(std::io::Error::from)?;
    if filled == N { Ok(bytes) } else { Err(failed("the kernel has no randomness")) }
}
