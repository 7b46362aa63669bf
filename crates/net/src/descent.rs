//! Processes that descend from one that is gone, wherever they belong by now: found by a mark in the environment that they
//! have inherited.
//!
//! Whoever starts a session of its own and loses its parent belongs to init, and no group, session or parent tells where it
//! comes from. Only one that was started with another environment, or by another user, is not found.
//!
//! * DE-1: a process is killed only while it has the mark: its number may be another's in the next moment.
//! * DE-2: whoever kills is spared, though it may have the mark itself: a node can be started by what it once ran.

use paceline_proto::NodeId;
use rustix::fd::OwnedFd;
use rustix::process::{Pid, PidfdFlags, Signal, geteuid, getpid, pidfd_open, pidfd_send_signal};
use std::ffi::OsString;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};

/// Holds the marks of all those that a process descends from, the last one last.
pub const VARIABLE: &str = "PACELINE_DESCENT";

/// Between two looks for those that were just started by others of them.
const PAUSE: Duration = Duration::from_millis(2);

/// Marks what descends from one process, or from all starts of one node.
#[derive(Clone)]
pub struct Mark {
    text: String,
    /// That of the node, which all its zygotes have in common.
    node: Option<String>,
}

impl Mark {
    /// The mark of everything that any start of this node has started on this machine.
    pub fn of_node(node: NodeId) -> Mark {
        Mark { text: format!("node-{:016x}", node.0), node: None }
    }

    /// Draws one that nothing else has, for a process of this node.
    pub fn draw(node: Option<&Mark>) -> io::Result<Mark> {
        let text = format!("{:032x}", u128::from_le_bytes(crate::secure::keys::random()?));
        Ok(Mark { text, node: node.map(|node| node.text.clone()) })
    }

    /// Returns the variable that the process is to be started with.
    pub fn variable(&self) -> (String, String) {
        let inherited = std::env::var(VARIABLE).ok();
        let marks = [inherited.as_ref(), self.node.as_ref(), Some(&self.text)];
        (VARIABLE.into(), marks.into_iter().flatten().map(String::as_str).collect::<Vec<_>>().join(":"))
    }

    /// The same as [`Mark::kill_all`], where nobody knows when the last of them was started: one that was started behind
    /// the back of a look, by one that was gone before the look came to it, is seen by the next.
    pub fn kill_all_left(&self, within: Duration) -> bool {
        let until = Instant::now() + within;
        self.kill_all(within) && {
            std::thread::sleep(PAUSE);
            self.kill_all(until.saturating_duration_since(Instant::now()))
        }
    }

    /// Kills everything that has the mark, and what it starts meanwhile, within this time. Returns whether nothing is left.
    pub fn kill_all(&self, within: Duration) -> bool {
        let until = Instant::now() + within;
        loop {
            let left: Vec<OwnedFd> = own_processes().filter_map(|pid| self.find(pid)).collect();
            if left.is_empty() {
                return true;
            }
            for process in left {
                let _ = pidfd_send_signal(&process, Signal::KILL);
            }
            if Instant::now() >= until {
                return false;
            }
            std::thread::sleep(PAUSE);
        }
    }

    /// Returns the process if it has the mark (DE-1).
    fn find(&self, pid: Pid) -> Option<OwnedFd> {
        self.is_of(pid).then_some(())?;
        let process = pidfd_open(pid, PidfdFlags::empty()).ok()?;
        self.is_of(pid).then_some(process)
    }

    /// One that has ended and was not reaped has no environment any more.
    fn is_of(&self, pid: Pid) -> bool {
        let Ok(environment) = std::fs::read(format!("/proc/{}/environ", pid.as_raw_nonzero())) else {
            return false;
        };
        let value = environment.split(|byte| *byte == 0).find_map(|entry| {
            let (name, value) = entry.split_at_checked(VARIABLE.len())?;
            (name == VARIABLE.as_bytes()).then_some(value.strip_prefix(b"=")?)
        });
        value.is_some_and(|value| value.split(|byte| *byte == b':').any(|mark| mark == self.text.as_bytes()))
    }
}

/// The processes of this user, but for this one (DE-2).
fn own_processes() -> impl Iterator<Item = Pid> {
    let user = geteuid().as_raw();
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let number = |name: OsString| Pid::from_raw(name.to_str()?.parse().ok()?);
    entries
        .filter_map(move |entry| Some((number(entry.file_name())?, entry.metadata().ok()?.uid())))
        .filter(move |(_, owner)| *owner == user)
        .map(|(pid, _)| pid)
        .filter(|pid| *pid != getpid())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::kill_process;
    use std::os::unix::process::{CommandExt, ExitStatusExt};
    use std::process::{Child, Command};

    fn sleep(variable: (String, String)) -> Child {
        Command::new("sleep").arg("600").envs([variable]).process_group(0).spawn().unwrap()
    }

    #[test]
    fn processes_of_all_starts_of_a_node_are_killed_and_those_of_no_other() {
        let node = NodeId(u64::from_le_bytes(crate::secure::keys::random().unwrap()));
        let other = Mark::of_node(NodeId(node.0 ^ 1));
        let start = |node: &Mark| sleep(Mark::draw(Some(node)).unwrap().variable());
        let mut ours = [start(&Mark::of_node(node)), start(&Mark::of_node(node))];
        kill_process(Pid::from_child(&ours[0]), Signal::STOP).unwrap();
        let mut stranger = start(&other);
        assert!(Mark::of_node(node).kill_all_left(Duration::from_secs(10)));
        for process in &mut ours {
            assert_eq!(process.wait().unwrap().signal(), Some(9));
        }
        assert!(stranger.try_wait().unwrap().is_none(), "DE-1");
        assert!(other.kill_all_left(Duration::from_secs(10)));
        stranger.wait().unwrap();
    }

    #[test]
    fn marked_processes_are_killed_and_no_others() {
        let (mark, other) = (Mark::draw(None).unwrap(), Mark::draw(None).unwrap());
        let nested = (VARIABLE.to_owned(), format!("{}:{}", mark.text, other.text));
        let mut marked = [sleep(mark.variable()), sleep(nested)];
        let mut stranger = sleep(other.variable());
        assert!(mark.kill_all(Duration::from_secs(10)));
        for process in &mut marked {
            assert_eq!(process.wait().unwrap().signal(), Some(9));
        }
        assert!(stranger.try_wait().unwrap().is_none(), "DE-1");
        stranger.kill().unwrap();
        stranger.wait().unwrap();
    }
}
