//! How much memory this process may use.

use super::{NotASize, read, size};
use paceline_core::node::MemoryBound;
use paceline_net::cgroup::{self, Group};
use std::path::Path;
use std::str::FromStr;

/// Says how much memory slots may have, where nothing else does.
pub const SETTING: &str = "PACELINE_MEMORY_LIMIT";

/// How much of the memory slots may have together.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Memory {
    /// What `PACELINE_MEMORY_LIMIT` says, else what the machine, control groups and Slurm allow.
    #[default]
    Auto,
    Bytes(u64),
    /// Nobody looks.
    Unlimited,
}

/// More than any machine has, and little enough to be added up.
const ENDLESS: u64 = 1 << 50;

impl Memory {
    /// As much as can be promised to tasks, and what is looked at while they run.
    pub fn found(self) -> (u64, MemoryBound) {
        match if self == Memory::Auto { Memory::of_environment() } else { self } {
            Memory::Auto => (usable(), MemoryBound::Machine),
            Memory::Bytes(bytes) => (bytes, MemoryBound::Slots(bytes)),
            Memory::Unlimited => (ENDLESS, MemoryBound::Nothing),
        }
    }

    fn of_environment() -> Memory {
        let Ok(text) = std::env::var(SETTING) else { return Memory::Auto };
        text.parse().unwrap_or_else(|error| {
            tracing::warn!(%error, "{SETTING} says nothing");
            Memory::Auto
        })
    }
}

/// A number of bytes, `5GB`, `auto`, or `unlimited`.
impl FromStr for Memory {
    type Err = NotASize;

    fn from_str(text: &str) -> Result<Memory, NotASize> {
        match text.trim().to_ascii_lowercase().as_str() {
            "auto" => Ok(Memory::Auto),
            "unlimited" | "off" | "none" => Ok(Memory::Unlimited),
            other => match size(other)? {
                0 => Err(NotASize { text: text.to_owned() }),
                bytes => Ok(Memory::Bytes(bytes)),
            },
        }
    }
}

/// In bytes.
pub fn usable() -> u64 {
    usable_under(Path::new("/"), |name| std::env::var(name).ok())
}

fn usable_under(root: &Path, variable: impl Fn(&str) -> Option<String>) -> u64 {
    let groups = cgroup::of(root, "memory").into_iter().filter_map(|group| limit(&group));
    // In megabytes. What a job step may have is said per node or per CPU.
    let number = |name: &str| variable(name)?.trim().parse::<u64>().ok().filter(|count| *count > 0);
    let per_cpu = || Some(number("SLURM_MEM_PER_CPU")? * number("SLURM_CPUS_ON_NODE")?);
    let slurm = number("SLURM_MEM_PER_NODE").or_else(per_cpu).map(|megabytes| megabytes << 20);
    groups.chain(total(root)).chain(slurm).min().unwrap_or(ENDLESS).min(ENDLESS)
}

/// None if the group has no bound, which a version 1 group says with a huge number.
pub(super) fn limit(group: &Group) -> Option<u64> {
    let name = if group.second { "memory.max" } else { "memory.limit_in_bytes" };
    group.read(name).trim().parse().ok().filter(|limit| *limit < 1 << 60)
}

fn total(root: &Path) -> Option<u64> {
    let text = read(root.join("proc/meminfo"));
    let kibibytes = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    Some(kibibytes.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? << 10)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::path::PathBuf;

    /// A file system with these files, for as long as the test runs.
    struct Root(PathBuf);

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

        fn usable(&self) -> u64 {
            usable_under(&self.0, |_| None)
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
        assert_eq!(root.usable(), 1000 << 10);
        let root = Root::new(
            "max",
            &[MACHINE, ("proc/self/cgroup", "0::/a\n"), ("sys/fs/cgroup/a/memory.max", "max\n")],
        );
        assert_eq!(root.usable(), 1000 << 10);
    }

    #[test]
    fn the_least_of_all_groups_counts() {
        let files = [
            MACHINE,
            ("proc/self/cgroup", "0::/a/b\n"),
            ("sys/fs/cgroup/a/b/memory.max", "900000\n"),
            ("sys/fs/cgroup/a/memory.max", "500000\n"),
        ];
        assert_eq!(Root::new("v2", &files).usable(), 500_000);
        let files = [
            MACHINE,
            ("proc/self/cgroup", "4:cpu:/x\n3:memory:/on/the/host\n"),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "700000\n"),
        ];
        assert_eq!(Root::new("v1", &files).usable(), 700_000);
    }

    #[test]
    fn slurm_says_how_much_a_job_has() {
        let root = Root::new("slurm", &[("proc/meminfo", "MemTotal: 64000000 kB\n")]);
        let usable = |variables: &'static [(&str, &str)]| {
            let value = |name: &str| variables.iter().find(|it| it.0 == name).map(|it| it.1.to_owned());
            usable_under(&root.0, value)
        };
        assert_eq!(usable(&[("SLURM_MEM_PER_NODE", "2048")]), 2 << 30);
        assert_eq!(usable(&[("SLURM_MEM_PER_CPU", "512"), ("SLURM_CPUS_ON_NODE", "4")]), 2 << 30);
        assert_eq!(usable(&[("SLURM_MEM_PER_NODE", "0")]), 64_000_000 << 10, "all there is");
    }

    #[test]
    fn the_setting_of_a_node() {
        assert_eq!("auto".parse(), Ok(Memory::Auto));
        assert_eq!("Unlimited".parse(), Ok(Memory::Unlimited));
        assert_eq!("5GB".parse(), Ok(Memory::Bytes(5 << 30)));
        assert_eq!("123456".parse(), Ok(Memory::Bytes(123_456)));
        assert_eq!("0".parse::<Memory>(), Err(NotASize { text: "0".into() }));
        assert!("much".parse::<Memory>().is_err());
        assert_eq!(" 300 MB".parse(), Ok(Memory::Bytes(300 << 20)));
        assert_eq!(Memory::Bytes(7).found(), (7, MemoryBound::Slots(7)));
        assert_eq!(Memory::Unlimited.found(), (ENDLESS, MemoryBound::Nothing));
    }
}
