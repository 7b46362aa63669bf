//! The control groups that this process is in, of either version, and those that are made below them for slots.
//!
//! * CG-1: a slot's group has the number of its node's process in its name. It is the node that makes and removes it;
//!   should the node be killed, its zygote removes it, and should that be killed as well, the next node does.

use rustix::process::{Pid, test_kill_process};
use std::fs;
use std::path::{Path, PathBuf};

const PREFIX: &str = "paceline-slot-";

/// A directory that may be one of our groups. It may not exist: then reading from it gives nothing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Group {
    pub directory: PathBuf,
    /// Of version 2.
    pub second: bool,
}

/// The groups of this controller, our own first, then those above it. `root` stands in for the file system in tests.
pub fn of(root: &Path, controller: &str) -> Vec<Group> {
    let mounts = root.join("sys/fs/cgroup");
    let mut found = Vec::new();
    for line in fs::read_to_string(root.join("proc/self/cgroup")).unwrap_or_default().lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else { continue };
        let second = controllers.is_empty();
        let places = match second {
            true => [mounts.clone(), mounts.join("unified")],
            false if controllers.split(',').any(|name| name == controller) => {
                [mounts.join(controllers), mounts.join(controller)]
            }
            false => continue,
        };
        // Inside a container the path may be the host's and not exist here: what is left then is the mount itself, which
        // is our own group.
        let inner: PathBuf = path.split('/').filter(|part| !matches!(*part, "" | "..")).collect();
        for mount in places.iter().take(if places[0] == places[1] { 1 } else { 2 }) {
            let groups = inner.ancestors().map(|group| mount.join(group));
            found.extend(groups.map(|directory| Group { directory, second }));
        }
    }
    found
}

/// What this process's group of a slot is called.
pub fn name_for_slot(slot: u64) -> String {
    format!("{PREFIX}{}-{slot}", std::process::id())
}

/// This process's own group of memory, if there is one.
pub fn own_of_memory(root: &Path) -> Option<Group> {
    of(root, "memory").into_iter().find(|group| {
        let file = if group.second { "memory.current" } else { "memory.usage_in_bytes" };
        group.directory.join(file).exists()
    })
}

/// Remove the groups of slots whose node was this process, or is no more (CG-1). One with processes in it stays: the
/// kernel refuses.
pub fn sweep(group: &Group, gone: Option<Pid>) {
    for entry in fs::read_dir(&group.directory).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let owner = name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.split('-').next()?.parse().ok());
        let Some(owner) = owner.and_then(Pid::from_raw) else { continue };
        if gone == Some(owner) || test_kill_process(owner) == Err(rustix::io::Errno::SRCH) {
            let _ = fs::remove_dir(entry.path());
        }
    }
}

impl Group {
    pub fn read(&self, name: &str) -> String {
        fs::read_to_string(self.directory.join(name)).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_dead_nodes_left_is_removed() {
        let root = std::env::temp_dir().join(format!("paceline-sweep-{}", std::process::id()));
        let (gone, ours) = (root.join(format!("{PREFIX}4194305-1")), root.join(name_for_slot(1)));
        let parent = Group { directory: root.clone(), second: true };
        let left = |gone_too| {
            fs::create_dir_all(&gone).unwrap();
            fs::create_dir_all(&ours).unwrap();
            sweep(&parent, gone_too);
            (gone.exists(), ours.exists())
        };
        let found = (left(None), left(Some(rustix::process::getpid())));
        fs::remove_dir_all(&root).unwrap();
        assert_eq!(found, ((false, true), (false, false)), "CG-1");
    }
}
