//! How much memory there is, how much of it is in use, and whether the kernel has ended something for want of it.
//!
//! The machine has a bound, and so may have the control group of this process and every one above it. What counts is the
//! one that is nearest, unless the node was told to look at its slots alone, or not at all.

use paceline_core::node::MemoryBound;
use paceline_net::cgroup::{self, Group};
use paceline_proto::{DeathCause, MemoryUse, OutOfMemory, SlotId};
use rustix::process::Pid;
use std::fs::read_to_string;
use std::path::Path;
use std::time::Duration;

/// As fast as memory can be filled, about. It is looked at again before that could have happened.
const BYTES_PER_MILLISECOND: u64 = 4 << 20;
const SOONEST: Duration = Duration::from_millis(20);
const LATEST: Duration = Duration::from_secs(1);

/// What a look at memory found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Reading {
    pub used: u64,
    pub limit: u64,
}

impl Reading {
    /// Whether it is worth asking who uses it.
    pub(crate) fn nearly_full(&self) -> bool {
        self.used / 9 >= self.limit / 10
    }

    /// How long until the next look.
    pub(crate) fn pause(&self) -> Duration {
        let left = self.limit.saturating_sub(self.used) / 2;
        Duration::from_millis(left / BYTES_PER_MILLISECOND).clamp(SOONEST, LATEST)
    }

    fn fuller(self, other: Reading) -> Reading {
        let is = u128::from(self.used) * u128::from(other.limit)
            >= u128::from(other.used) * u128::from(self.limit);
        if is { self } else { other }
    }
}

pub(crate) struct Memory {
    bound: MemoryBound,
    /// The control groups of this process, its own first.
    groups: Vec<Group>,
    /// How many processes the kernel had ended for want of memory: in our group, and on the machine.
    group_kills: u64,
    machine_kills: u64,
}

impl Memory {
    pub(crate) fn new(bound: MemoryBound) -> Memory {
        let groups = groups(Path::new("/"));
        let group_kills = groups.first().map_or(0, kills);
        Memory { bound, groups, group_kills, machine_kills: machine_kills() }
    }

    pub(crate) fn is_watched(&self) -> bool {
        self.bound != MemoryBound::Nothing
    }

    /// How full it is.
    pub(crate) fn look(&self, slots: &[(SlotId, Pid)]) -> Option<Reading> {
        match self.bound {
            MemoryBound::Nothing => None,
            MemoryBound::Slots(limit) => {
                Some(Reading { used: slots.iter().map(|(_, pid)| size_of_process(*pid)).sum(), limit })
            }
            MemoryBound::Machine => {
                let groups = self.groups.iter().filter_map(reading);
                groups.chain(machine()).reduce(Reading::fuller)
            }
        }
    }

    /// What to say of a death that nobody here brought about, of a process that had so much at most. A count of our own
    /// group's victims leaves no doubt; one of the whole machine's does.
    pub(crate) fn verdict(&mut self, cause: DeathCause, peak: u64) -> OutOfMemory {
        if cause != DeathCause::Signal(9) {
            return OutOfMemory::No;
        }
        let group = self.groups.first().map_or(0, kills);
        let machine = machine_kills();
        let in_group = std::mem::replace(&mut self.group_kills, group) < group;
        let anywhere = std::mem::replace(&mut self.machine_kills, machine) < machine;
        let memory = MemoryUse { peak, limit: if in_group || anywhere { self.limit() } else { 0 } };
        match (in_group, anywhere) {
            (true, _) => OutOfMemory::Yes(memory),
            (false, true) => OutOfMemory::Likely(memory),
            (false, false) => OutOfMemory::No,
        }
    }

    fn limit(&self) -> u64 {
        let groups = self.groups.iter().filter_map(reading);
        groups.chain(machine()).map(|reading| reading.limit).min().unwrap_or(0)
    }
}

/// What a process has for itself now.
pub(crate) fn size_of_process(pid: Pid) -> u64 {
    let pages = read(format!("/proc/{}/statm", pid.as_raw_nonzero()));
    let mut pages = pages.split_ascii_whitespace().skip(1).map(|count| count.parse::<u64>().unwrap_or(0));
    let (resident, shared) = (pages.next().unwrap_or(0), pages.next().unwrap_or(0));
    resident.saturating_sub(shared) * rustix::param::page_size() as u64
}

/// The most that a process has had.
pub(crate) fn peak_of_process(pid: Pid) -> u64 {
    kilobytes(&read(format!("/proc/{}/status", pid.as_raw_nonzero())), "VmHWM:")
}

fn machine() -> Option<Reading> {
    let facts = read("/proc/meminfo");
    let limit = kilobytes(&facts, "MemTotal:") + kilobytes(&facts, "SwapTotal:");
    let free = kilobytes(&facts, "MemAvailable:") + kilobytes(&facts, "SwapFree:");
    (limit > 0).then(|| Reading { used: limit.saturating_sub(free), limit })
}

fn machine_kills() -> u64 {
    count(&read("/proc/vmstat"), "oom_kill")
}

/// How full a control group of memory is. None if it has no bound, which a version 1 group says with a huge number.
fn reading(group: &Group) -> Option<Reading> {
    let (limit, used) = if group.second {
        ("memory.max", "memory.current")
    } else {
        ("memory.limit_in_bytes", "memory.usage_in_bytes")
    };
    let limit = group.read(limit).trim().parse().ok().filter(|limit| *limit < 1 << 60)?;
    let used: u64 = group.read(used).trim().parse().ok()?;
    let mut reading = Reading { used, limit };
    if reading.nearly_full() {
        // Files that the kernel keeps in memory go first, when it needs them to.
        let name = if group.second { "inactive_file" } else { "total_inactive_file" };
        reading.used = used.saturating_sub(count(&group.read("memory.stat"), name));
    }
    Some(reading)
}

/// How many of its processes the kernel has ended.
fn kills(group: &Group) -> u64 {
    let name = if group.second { "memory.events" } else { "memory.oom_control" };
    count(&group.read(name), "oom_kill")
}

/// Those of this process, from its own upwards.
fn groups(root: &Path) -> Vec<Group> {
    let exists = |group: &Group| {
        let file = if group.second { "memory.current" } else { "memory.usage_in_bytes" };
        group.directory.join(file).exists()
    };
    cgroup::of(root, "memory").into_iter().filter(exists).collect()
}

/// The number behind a name at the beginning of a line.
fn count(text: &str, name: &str) -> u64 {
    let mut lines = text.lines().map(str::split_ascii_whitespace);
    lines.find_map(|mut words| (words.next() == Some(name)).then(|| words.next()?.parse().ok())?).unwrap_or(0)
}

fn kilobytes(text: &str, name: &str) -> u64 {
    count(text, name) << 10
}

fn read(path: impl AsRef<Path>) -> String {
    read_to_string(path).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_bound_counts_and_little_room_is_looked_at_often() {
        let (roomy, tight) = (Reading { used: 10, limit: 100 }, Reading { used: 95, limit: 100 });
        assert_eq!(roomy.fuller(tight), tight);
        assert!(tight.nearly_full() && !roomy.nearly_full());
        let gigabytes = |used: u64, limit: u64| Reading { used: used << 30, limit: limit << 30 };
        assert_eq!(gigabytes(1, 64).pause(), LATEST);
        assert_eq!(gigabytes(63, 64).pause(), Duration::from_millis(128));
        assert_eq!(gigabytes(64, 64).pause(), SOONEST);
    }

    #[test]
    fn this_machine_has_memory() {
        let reading = machine().expect("/proc/meminfo tells");
        assert!(reading.used > 0 && reading.used < reading.limit, "{reading:?}");
        let own = rustix::process::getpid();
        assert!(size_of_process(own) > 0 && peak_of_process(own) >= size_of_process(own));
    }

    #[test]
    fn groups_of_both_versions_are_found() {
        let root = std::env::temp_dir().join(format!("paceline-groups-{}", std::process::id()));
        let write = |path: &str, text: &str| {
            let path = root.join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write("proc/self/cgroup", "5:cpu:/x\n4:memory:/job/7\n0::/job/8\n");
        write("sys/fs/cgroup/memory/job/7/memory.usage_in_bytes", "900\n");
        write("sys/fs/cgroup/memory/job/7/memory.limit_in_bytes", "1000\n");
        write("sys/fs/cgroup/memory/job/7/memory.stat", "inactive_file 1\ntotal_inactive_file 300\n");
        write("sys/fs/cgroup/memory/job/7/memory.oom_control", "under_oom 0\noom_kill 4\n");
        write("sys/fs/cgroup/job/memory.current", "5\n");
        write("sys/fs/cgroup/job/memory.max", "max\n");
        write("sys/fs/cgroup/job/memory.events", "oom 3\noom_kill 2\n");
        let found = groups(&root);
        let readings: Vec<_> = found.iter().map(reading).collect();
        let kills: Vec<_> = found.iter().map(kills).collect();
        std::fs::remove_dir_all(&root).unwrap();
        assert_eq!(readings, [Some(Reading { used: 600, limit: 1000 }), None]);
        assert_eq!(kills, [4, 2]);
    }
}
