//! A control group for one slot, so that the kernel itself sees to its limit (LM-3).
//!
//! Made below the node's own group, which takes the right to write there: root has it with version 1, and with version 2
//! where the memory controller is handed on to groups below ours. Elsewhere there is none, and measuring must do.
//!
//! * GR-1: a group is gone soon after its slot, also if the node is killed (CG-1).
//! * GR-2: the kernel's bound is a little above the limit, for it also counts what is not the slot's own doing.
//! * GR-3: all processes of a slot end, or none. Version 1 of control groups would end one of them, and the task could go on
//!   and return before the node noticed; so there who asks for more waits, and the node ends the slot.

use paceline_net::cgroup;
use rustix::process::Pid;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

/// How often, and how long apart, it is tried to remove a group whose processes are still ending.
const TRIES: u32 = 40;
const BETWEEN: Duration = Duration::from_millis(25);

/// A slot's group. Removed when dropped.
pub(crate) struct Group {
    directory: PathBuf,
    second: bool,
}

impl Group {
    /// A group with this limit for this process and all that comes of it; none where that cannot be done.
    pub(crate) fn confine(slot: u64, pid: Pid, limit: u64) -> Option<Group> {
        static PARENT: OnceLock<Option<cgroup::Group>> = OnceLock::new();
        let parent = PARENT.get_or_init(|| parent(Path::new("/"))).as_ref()?;
        match Group::make(parent, slot, pid, limit) {
            Ok(group) => Some(group),
            Err(error) => {
                tracing::debug!(%error, slot, "no control group for this slot");
                None
            }
        }
    }

    fn make(parent: &cgroup::Group, slot: u64, pid: Pid, limit: u64) -> io::Result<Group> {
        let directory = parent.directory.join(cgroup::name_for_slot(slot));
        fs::create_dir(&directory)?;
        // From here on it is removed if anything goes wrong.
        let group = Group { directory, second: parent.second };
        let bound = limit.saturating_add((limit / 16).max(16 << 20)).to_string();
        if group.second {
            group.write("memory.max", &bound)?;
            // Half a task is no use: all of its processes end, or none.
            let _ = group.write("memory.oom.group", "1");
            let _ = group.write("memory.swap.max", "0");
        } else {
            group.write("memory.limit_in_bytes", &bound)?;
            // GR-3.
            let _ = group.write("memory.oom_control", "1");
        }
        group.write("cgroup.procs", &pid.as_raw_nonzero().to_string())?;
        Ok(group)
    }

    /// The most it had, if the kernel has ended something in it for want of memory, or has something in it wait.
    pub(crate) fn exceeded(&self) -> Option<u64> {
        let (events, peak) = match self.second {
            true => ("memory.events", "memory.peak"),
            false => ("memory.oom_control", "memory.max_usage_in_bytes"),
        };
        let events = fs::read_to_string(self.directory.join(events)).unwrap_or_default();
        let count = |name: &str| {
            let value = events.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
            value.and_then(|value| value.trim().parse::<u64>().ok()).unwrap_or(0)
        };
        if count("oom_kill") == 0 && count("under_oom") == 0 {
            return None;
        }
        let peak = fs::read_to_string(self.directory.join(peak)).unwrap_or_default();
        Some(peak.trim().parse().unwrap_or(0))
    }

    fn write(&self, file: &str, text: &str) -> io::Result<()> {
        fs::write(self.directory.join(file), text)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if fs::remove_dir(&self.directory).is_ok() {
            return;
        }
        // Its last processes are still ending.
        let directory = std::mem::take(&mut self.directory);
        let removing = async move {
            for _ in 0..TRIES {
                tokio::time::sleep(BETWEEN).await;
                if fs::remove_dir(&directory).is_ok() {
                    return;
                }
            }
        };
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(removing);
        }
    }
}

/// Our own group, if groups can be made below it.
fn parent(root: &Path) -> Option<cgroup::Group> {
    let parent = cgroup::own_of_memory(root)?;
    cgroup::sweep(&parent, None);
    if parent.second {
        // Refused while there are processes in the group itself, unless somebody has handed the controller on before.
        let handed_on = parent.read("cgroup.subtree_control");
        if !handed_on.split_ascii_whitespace().any(|name| name == "memory") {
            fs::write(parent.directory.join("cgroup.subtree_control"), "+memory").ok()?;
        }
    }
    Some(parent)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_group_is_removed_with_its_slot() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let Some(group) = Group::confine(u64::from(child.id()), Pid::from_child(&child), 64 << 20) else {
            // Not root, or a hierarchy that cannot be written to: measuring must do here.
            child.kill().unwrap();
            child.wait().unwrap();
            return;
        };
        let directory = group.directory.clone();
        let members = fs::read_to_string(directory.join("cgroup.procs")).unwrap();
        assert_eq!(members.trim(), child.id().to_string());
        assert_eq!(group.exceeded(), None);
        child.kill().unwrap();
        child.wait().unwrap();
        drop(group);
        assert!(!directory.exists(), "GR-1");
    }
}
