//! Whether the kernel has been short of memory.

use paceline_proto::{DeathCause, OutOfMemory};

/// Counts processes that the kernel ended for want of memory.
pub(crate) struct Shortage {
    seen: u64,
}

impl Shortage {
    pub(crate) fn new() -> Shortage {
        Shortage { seen: count() }
    }

    /// What to say of a death that nobody here brought about. The kernel's count is of the whole machine, so all it can
    /// make is likely.
    pub(crate) fn verdict(&mut self, cause: DeathCause) -> OutOfMemory {
        if cause != DeathCause::Signal(9) {
            return OutOfMemory::No;
        }
        let now = count();
        let more = now > self.seen;
        self.seen = now;
        if more { OutOfMemory::Likely } else { OutOfMemory::No }
    }
}

fn count() -> u64 {
    let counts = std::fs::read_to_string("/proc/vmstat").unwrap_or_default();
    let count = counts.lines().find_map(|line| line.strip_prefix("oom_kill ")?.parse().ok());
    count.unwrap_or(0)
}
