//! Processes that descend from one that is gone, wherever they belong by now: found by a mark in the environment that they
//! have inherited.
//!
//! Whoever starts a session of its own and loses its parent belongs to init, and no group, session or parent tells where it
//! comes from. Only one that was started with another environment, or by another user, is not found.
//!
//! * DE-1: a process is killed only while it has the mark: its number may be another's in the next moment.

use rustix::fd::OwnedFd;
use rustix::process::{Pid, PidfdFlags, Signal, geteuid, pidfd_open, pidfd_send_signal};
use std::ffi::OsString;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};

/// Holds the marks of all those that a process descends from, the last one last.
pub const VARIABLE: &str = "PACELINE_DESCENT";

/// Between two looks for those that were just started by others of them.
const PAUSE: Duration = Duration::from_millis(2);

/// Marks what descends from one process.
pub struct Mark(String);

impl Mark {
    /// Draws one that nothing else has.
    pub fn draw() -> io::Result<Mark> {
        Ok(Mark(format!("{:032x}", u128::from_le_bytes(crate::secure::keys::random()?))))
    }

    /// Returns the variable that the process is to be started with.
    pub fn variable(&self) -> (String, String) {
        let value = match std::env::var(VARIABLE) {
            Ok(ours) => format!("{ours}:{}", self.0),
            Err(_) => self.0.clone(),
        };
        (VARIABLE.into(), value)
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
        value.is_some_and(|value| value.split(|byte| *byte == b':').any(|mark| mark == self.0.as_bytes()))
    }
}

/// The processes of this user.
fn own_processes() -> impl Iterator<Item = Pid> {
    let user = geteuid().as_raw();
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let number = |name: OsString| Pid::from_raw(name.to_str()?.parse().ok()?);
    entries
        .filter_map(move |entry| Some((number(entry.file_name())?, entry.metadata().ok()?.uid())))
        .filter(move |(_, owner)| *owner == user)
        .map(|(pid, _)| pid)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::{CommandExt, ExitStatusExt};
    use std::process::Command;

    #[test]
    fn marked_processes_are_killed_and_no_others() {
        let (mark, other) = (Mark::draw().unwrap(), Mark::draw().unwrap());
        let sleep = |variable: (String, String)| {
            Command::new("sleep").arg("600").envs([variable]).process_group(0).spawn().unwrap()
        };
        let nested = (VARIABLE.to_owned(), format!("{}:{}", mark.0, other.0));
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
