//! How many CPUs this process may use.

use paceline_net::cgroup::{self, Group};
use std::path::Path;

/// The least that affinity, control groups and Slurm allow.
pub fn usable() -> u64 {
    let affinity = rustix::thread::sched_getaffinity(None).map_or_else(
        // A machine with more CPUs than fit the mask.
        |_| std::thread::available_parallelism().map_or(1, |count| count.get() as u64),
        |set| u64::from(set.count()),
    );
    usable_under(Path::new("/"), affinity, |name| std::env::var(name).ok())
}

/// The same on a machine made of files, for tests.
pub fn usable_under(root: &Path, affinity: u64, variable: impl Fn(&str) -> Option<String>) -> u64 {
    let slurm = ["SLURM_CPUS_PER_TASK", "SLURM_CPUS_ON_NODE"]
        .into_iter()
        .filter_map(|name| variable(name)?.trim().parse::<u64>().ok().filter(|count| *count > 0));
    let quotas = cgroup::of(root, "cpu").into_iter().filter_map(|group| quota(&group));
    quotas.chain(slurm).fold(affinity, u64::min).max(1)
}

/// In whole CPUs: a part of one is none that a slot could have.
fn quota(group: &Group) -> Option<u64> {
    let (quota, period) = match group.second {
        true => {
            let text = group.read("cpu.max");
            let (quota, period) = text.trim().split_once(' ')?;
            (quota.parse::<u64>().ok()?, period.parse::<u64>().ok()?)
        }
        false => {
            let number = |name| group.read(name).trim().parse::<u64>().ok();
            (number("cpu.cfs_quota_us")?, number("cpu.cfs_period_us")?)
        }
    };
    if quota == 0 { None } else { quota.checked_div(period) }
}
