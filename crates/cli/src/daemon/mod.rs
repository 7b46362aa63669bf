//! The daemons: a head, a node, or both in one process.
//!
//! Owns: the process (its log, its record and lock, the signals it gets) and where it listens. Does not own: what head
//! and node do, which is theirs.
//!
//! * DA-1: nothing is told to be up before it can be reached.
//! * DA-2: when its cluster is stopped, its record, its lock and, with the last daemon of a cluster, everything else of
//!   it is gone.
//! * DA-4: a head that ends for another reason (SIGTERM, a crash, a kill) leaves what the next start goes on with: record,
//!   key and journal. One that ends in order says so in its record.
//! * DA-5: a node that ends because it has lost its head fails, and says so.
//! * CR-1: a panic in any thread ends the whole process ([`crash`]).
//! * DA-3: it cannot be read by other processes of its user: neither its memory nor its environment.

mod crash;
mod disk;
mod door;
mod end;
mod head;
pub mod join;
pub mod launch;
pub mod limits;
pub mod log;
mod node;
pub mod plan;
mod programs;
pub mod python;
mod uplink;

use crate::failure::{Code, Failure, failed};
use join::Dial;
use log::Log;
use node::HeadAt;
use paceline_net::secure::{Credential, Introduction, Key, Role, Secured};
use paceline_proto::Address;
use paceline_proto::control::Timing;
use paceline_registry::{Home, Place};
use plan::{Plan, Report, Up};
use python::Python;
use std::io::{Read, Write};
use std::sync::atomic::Ordering;
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
        leave_terminal(log.is_some());
    })
    // It was told through the report.
    .or(Ok(()))
}

/// Nothing more is read from or written to where it was started. The log may have the error output already.
fn leave_terminal(has_log: bool) {
    let flags = rustix::fs::OFlags::RDWR | rustix::fs::OFlags::CLOEXEC;
    if let Ok(null) = rustix::fs::open("/dev/null", flags, rustix::fs::Mode::empty()) {
        let _ = rustix::stdio::dup2_stdin(&null);
        let _ = rustix::stdio::dup2_stdout(&null);
        if !has_log {
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
        disk::flush(log::FLUSH_TIMEOUT);
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
    /// The head is to end, and nothing else.
    HeadOnly,
    /// Told to, by a signal or by the end of its lifeline.
    Told { why: &'static str, stops_cluster: bool },
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
    /// A machine that has joined with its user's consent may join again without being asked.
    keeps_key: bool,
    /// Where its head is, and how long it goes on without it.
    address: Option<String>,
    head_lost: std::time::Duration,
}

/// The head of a cluster that is to be joined, reached.
struct Joined {
    secured: Secured,
    dial: Dial,
    name: String,
    key: Option<Key>,
    warning: Option<String>,
    timing: Option<Timing>,
}

impl Daemon {
    async fn start(plan: Plan) -> Result<(Daemon, Up), Failure> {
        let home = plan.home();
        let python = Daemon::python(&plan)?;
        let joined = match &plan.join {
            Some(_) => Some(Daemon::reach(&plan, &home, python.as_ref()).await?),
            None => None,
        };
        let place = Daemon::place(&plan, &home, joined.as_ref())?;
        let is_new = !place.path().exists();
        place.create()?;
        let log_path = match (&plan.head, &plan.node) {
            (None, Some(node)) => place.node_log(&node.name),
            _ => place.head_log(),
        };
        let log = Log::open(log_path, &plan.log, !plan.detached)?;
        log.install(&plan.log);
        crash::install(log.clone(), !plan.detached);
        if plan.detached {
            // Before there is a node: its zygote inherits the error output, and must not keep the caller's open.
            log.take_stderr()?;
        }
        let (ended, ends) = mpsc::unbounded_channel();
        end::watch(&plan, ended.clone())?;
        let keeps_key = joined.is_some() && !plan.lifeline;
        // What its head says counts.
        let head_lost = joined.as_ref().and_then(|joined| Some(joined.timing?.head_lost));
        match Daemon::start_parts(&plan, &place, &log, python, joined, &ended).await {
            Ok((head, node, up)) => {
                let (leave_within, head_lost) =
                    (plan.leave_within, head_lost.unwrap_or(plan.timing.head_lost));
                let address = up.address.clone();
                let daemon = Daemon {
                    home,
                    place,
                    log,
                    head,
                    node,
                    ends,
                    leave_within,
                    keeps_key,
                    address,
                    head_lost,
                };
                Ok((daemon, up))
            }
            Err(failure) => {
                // DA-2: nothing of a start that came to nothing, but what was there before.
                if is_new {
                    let _ = place.remove();
                    home.tidy();
                }
                Err(failure)
            }
        }
    }

    /// A node needs an interpreter; a head only likes to know which one its cluster has.
    fn python(plan: &Plan) -> Result<Option<Python>, Failure> {
        match (&plan.node, &plan.head) {
            (Some(node), _) => python::ask(&node.python).map(Some),
            (None, Some(head)) => Ok(python::ask(&head.python).ok()),
            (None, None) => Ok(None),
        }
    }

    /// Reach the head that is to be joined.
    async fn reach(plan: &Plan, home: &Home, python: Option<&Python>) -> Result<Joined, Failure> {
        let wanted = plan.join.as_ref().expect("there is a head to join");
        let address: Address =
            wanted.address.parse().map_err(|error| crate::failure::usage(format!("{error}")))?;
        let name = plan.node.as_ref().map_or("", |node| &node.name);
        let mut dial = Dial {
            credential: join::credential(&plan.credentials, home, &address)?,
            me: Introduction::new(Role::Node, name, python.map(|python| python.python)),
            address,
        };
        let dialed = join::first(&mut dial).await?;
        let key = match &dial.credential {
            Some(Credential::Key(key)) => Some(key.clone()),
            _ => None,
        };
        let timing = dialed.peer.timing;
        let name = plan.name.clone().unwrap_or(dialed.peer.name);
        Ok(Joined { secured: dialed.secured, dial, name, key, warning: dialed.warning, timing })
    }

    /// Where its files go. A cluster of the same name that is another one keeps its place.
    fn place(plan: &Plan, home: &Home, joined: Option<&Joined>) -> Result<Place, Failure> {
        let Some(joined) = joined else {
            return Ok(home.cluster(plan.name.as_deref().unwrap_or("default"))?);
        };
        let place = home.cluster(&joined.name)?;
        let address = joined.dial.address.to_string();
        let others = place.head().is_some_and(|head| head.address.as_deref() != Some(&address))
            || place.nodes().iter().any(|node| node.head.as_deref() != Some(&address));
        if !others || plan.name.is_some() {
            return Ok(place);
        }
        let plain = |letter: char| if letter.is_ascii_alphanumeric() { letter } else { '-' };
        let suffix: String = address.chars().map(plain).collect();
        Ok(home.cluster(&format!("{}-{}", joined.name, suffix.trim_matches('-')))?)
    }

    async fn start_parts(
        plan: &Plan,
        place: &Place,
        log: &Log,
        python: Option<Python>,
        joined: Option<Joined>,
        ended: &mpsc::UnboundedSender<End>,
    ) -> Result<(Option<head::Running>, Option<node::Running>, Up), Failure> {
        let mut up = Up { name: place.name().into(), pid: std::process::id(), ..Up::default() };
        let head = match &plan.head {
            Some(_) => Some(head::start(plan, place, log, python.as_ref(), ended, &mut up).await?),
            None => None,
        };
        let at = match (&head, joined) {
            (Some(head), _) => HeadAt::Here(head),
            (None, Some(joined)) => {
                up.address = Some(joined.dial.address.to_string());
                up.warnings.extend(joined.warning);
                if let (Some(key), false) = (joined.key, place.key_file().exists()) {
                    key.write(&place.key_file())?;
                }
                HeadAt::There { secured: joined.secured, dial: Box::new(joined.dial), timing: joined.timing }
            }
            (None, None) => return Err(failed("neither a head nor one to join")),
        };
        let node = match (&plan.node, python) {
            (Some(_), Some(python)) => Some(node::start(plan, place, log, python, at, ended, &mut up).await?),
            _ => None,
        };
        Ok((head, node, up))
    }

    async fn serve(mut self) -> Result<(), Failure> {
        let mut keep = false;
        let mut told = false;
        while let Some(end) = self.ends.recv().await {
            match end {
                End::Head => break,
                End::HeadOnly => {
                    keep = true;
                    break;
                }
                End::Node if self.head.is_none() => break,
                // It was asked to leave; the head goes on without it.
                End::Node => {
                    if let Some(node) = self.node.take() {
                        let _ = node.finish(false).await;
                    }
                }
                End::Told { why, stops_cluster } => {
                    tracing::info!(why, "told to end");
                    match (&self.head, &self.node) {
                        (Some(head), _) if stops_cluster => head.stop(why),
                        (Some(_), _) => {
                            keep = true;
                            break;
                        }
                        (None, Some(node)) if !told => node.leave(self.leave_within),
                        // Told twice: at once.
                        (None, Some(node)) => node.leave(std::time::Duration::ZERO),
                        (None, None) => break,
                    }
                    told = true;
                }
            }
        }
        let mut failure = None;
        if keep && let Some(head) = self.head.take() {
            // Before its node: what that ran is lost with it (DA-4), and has not failed by itself.
            failure = head.finish(true).await;
        }
        if let Some(node) = self.node {
            keep |= self.keeps_key && (told || node.headless.load(Ordering::Relaxed));
            let end = node.finish(keep).await;
            if end == node::Over::HeadLost && !told {
                // DA-5.
                failure = Some(head_lost(self.address.as_deref(), self.head_lost));
            }
        }
        if let Some(head) = self.head {
            failure = head.finish(keep).await;
            keep |= failure.is_some();
        }
        if let Some(failure) = &failure {
            tracing::error!("{failure}");
        }
        tracing::info!("over");
        // Before its files go, or what comes late makes them again.
        disk::flush(log::FLUSH_TIMEOUT);
        if !keep {
            let _ = self.place.remove();
            self.home.tidy();
        }
        failure.map_or(Ok(()), Err)
    }
}

/// DA-5.
fn head_lost(address: Option<&str>, within: std::time::Duration) -> Failure {
    let at = address.map_or(String::new(), |address| format!(" at {address}"));
    let text = format!("the head{at} has not answered for {within:?}, so this node has ended");
    Failure::new(Code::Unreachable, text)
        .hint("paceline start on the head's machine starts the head again; then join again")
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
