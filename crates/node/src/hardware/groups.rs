//! The control groups that this process is in, of either version.

use super::read;
use std::path::{Path, PathBuf};

/// A directory that may be one of our groups. It may not exist: then reading from it gives nothing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Group {
    pub directory: PathBuf,
    /// Of version 2.
    pub second: bool,
}

/// The groups of this controller, our own first, then those above it. `root` stands in for the file system in tests.
pub(crate) fn of(root: &Path, controller: &str) -> Vec<Group> {
    let mounts = root.join("sys/fs/cgroup");
    let mut found = Vec::new();
    for line in read(root.join("proc/self/cgroup")).lines() {
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

impl Group {
    pub fn read(&self, name: &str) -> String {
        read(self.directory.join(name))
    }
}
