//! How much memory this process may use: the least of what the machine has and what any control group allows.

use std::fs;
use std::path::Path;

/// In bytes.
pub(crate) fn usable() -> u64 {
    usable_under(Path::new("/"))
}

/// `root` stands in for the file system in tests.
fn usable_under(root: &Path) -> u64 {
    let limits = groups(root).into_iter().filter_map(|file| read(&file)?.trim().parse().ok());
    limits.chain(total(root)).min().unwrap_or(u64::MAX)
}

fn total(root: &Path) -> Option<u64> {
    let text = read(&root.join("proc/meminfo"))?;
    let kibibytes = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    Some(kibibytes.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? << 10)
}

/// The files that may hold a limit: of our group and of each one above it, whichever version the kernel mounts.
fn groups(root: &Path) -> Vec<std::path::PathBuf> {
    let mounts = root.join("sys/fs/cgroup");
    let mut files = Vec::new();
    for line in read(&root.join("proc/self/cgroup")).unwrap_or_default().lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(group)) = (fields.next(), fields.next()) else { continue };
        let (mount, name) = match controllers {
            "" => (mounts.clone(), "memory.max"),
            _ if controllers.split(',').any(|one| one == "memory") => {
                (mounts.join("memory"), "memory.limit_in_bytes")
            }
            _ => continue,
        };
        // Inside a container the path may be the host's and not exist here: the mount itself is our own group then.
        let group = Path::new(group.trim_start_matches('/'));
        files.extend(group.ancestors().map(|group| mount.join(group).join(name)));
    }
    files
}

fn read(path: &Path) -> Option<String> {
    fs::read_to_string(path).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file system with these files, for as long as the test runs.
    struct Root(std::path::PathBuf);

    impl Root {
        fn new(name: &str, files: &[(&str, &str)]) -> Root {
            let root = std::env::temp_dir().join(format!("paceline-memory-{name}-{}", std::process::id()));
            for (path, text) in files {
                let path = root.join(path);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, text).unwrap();
            }
            Root(root)
        }
    }

    impl Drop for Root {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    const MACHINE: (&str, &str) = ("proc/meminfo", "MemTotal:        1000 kB\nMemFree: 1 kB\n");

    #[test]
    fn without_limits_it_is_the_machine() {
        let root = Root::new("machine", &[MACHINE]);
        assert_eq!(usable_under(&root.0), 1000 << 10);
        let root = Root::new(
            "max",
            &[MACHINE, ("proc/self/cgroup", "0::/a\n"), ("sys/fs/cgroup/a/memory.max", "max\n")],
        );
        assert_eq!(usable_under(&root.0), 1000 << 10);
    }

    #[test]
    fn the_least_of_all_groups_counts() {
        let files = [
            MACHINE,
            ("proc/self/cgroup", "0::/a/b\n"),
            ("sys/fs/cgroup/a/b/memory.max", "900000\n"),
            ("sys/fs/cgroup/a/memory.max", "500000\n"),
        ];
        assert_eq!(usable_under(&Root::new("v2", &files).0), 500_000);
        let files = [
            MACHINE,
            ("proc/self/cgroup", "4:cpu:/x\n3:memory:/on/the/host\n"),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "700000\n"),
        ];
        assert_eq!(usable_under(&Root::new("v1", &files).0), 700_000);
    }
}
