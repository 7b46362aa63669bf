//! How much memory a slot has, with the processes it has started (LM-1).

use rustix::process::Pid;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Nobody's descendants are followed further than this.
const MOST_PROCESSES: usize = 10_000;

/// What a look at a slot found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Size {
    /// In bytes; at most that much if it is not `exact`.
    pub bytes: u64,
    pub exact: bool,
}

/// How much a process and its descendants have for themselves. As long as everything they can see is within `enough`, who
/// it belongs to need not be asked, which takes the kernel a walk over all their pages.
pub(crate) fn size_of(pid: Pid, enough: u64) -> Size {
    let family = family(pid.as_raw_nonzero().get() as u32);
    let resident: u64 = family.iter().map(|pid| resident(*pid)).sum();
    if resident <= enough {
        return Size { bytes: resident, exact: false };
    }
    Size { bytes: family.iter().map(|pid| own(*pid)).sum(), exact: true }
}

/// The process and all that came of it. Slots inherit what their children leave behind, so nobody gets away.
fn family(pid: u32) -> BTreeSet<u32> {
    let mut known = BTreeSet::from([pid]);
    let mut unseen = vec![pid];
    while let Some(parent) = unseen.pop() {
        // Whichever of its threads the kernel gave them to.
        let Ok(threads) = fs::read_dir(process(parent).join("task")) else { continue };
        for thread in threads.flatten() {
            let children = fs::read_to_string(thread.path().join("children")).unwrap_or_default();
            let children = children.split_ascii_whitespace().filter_map(|child| child.parse().ok());
            unseen.extend(children.filter(|child| known.len() < MOST_PROCESSES && known.insert(*child)));
        }
    }
    known
}

fn process(pid: u32) -> PathBuf {
    Path::new("/proc").join(pid.to_string())
}

/// Everything it can see in memory, its own or not, and what is swapped out. Cheap to ask.
fn resident(pid: u32) -> u64 {
    let status = fs::read_to_string(process(pid).join("status")).unwrap_or_default();
    kilobytes(&status, "VmRSS:") + kilobytes(&status, "VmSwap:")
}

/// What it has for itself. Pages that it shares with others of its family count in parts, so that they add up; of those
/// that it has inherited from the zygote only a small part is its own.
fn own(pid: u32) -> u64 {
    match fs::read_to_string(process(pid).join("smaps_rollup")) {
        Ok(text) if !text.is_empty() => own_of(&text),
        // It is gone, or a kernel before 4.14.
        _ => {
            let status = fs::read_to_string(process(pid).join("status")).unwrap_or_default();
            kilobytes(&status, "RssAnon:") + kilobytes(&status, "VmSwap:")
        }
    }
}

/// Dirty pages of files count only if nobody else has them; anonymous ones are dirty, too, so the larger of the two has
/// both. Those that are shared within the family are in the first.
fn own_of(rollup: &str) -> u64 {
    let anonymous = kilobytes(rollup, "Pss_Anon:");
    anonymous.max(kilobytes(rollup, "Private_Dirty:")) + kilobytes(rollup, "SwapPss:")
}

fn kilobytes(text: &str, name: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|rest| rest.split_ascii_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0) << 10
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};
    use std::time::{Duration, Instant};

    const MEBIBYTE: u64 = 1 << 20;

    #[test]
    fn own_pages_count_and_others_do_not() {
        let pid = rustix::process::getpid();
        let before = size_of(pid, 0);
        let pages = vec![1u8; 64 << 20];
        let after = size_of(pid, 0);
        assert!(before.exact && after.exact);
        let grown = after.bytes.saturating_sub(before.bytes);
        // Other tests run in this process, too.
        assert!((60 * MEBIBYTE..200 * MEBIBYTE).contains(&grown), "{grown}");
        assert!(!size_of(pid, u64::MAX).exact, "enough is enough");
        drop(pages);
    }

    #[test]
    fn what_a_process_starts_counts() {
        // A shell, and another below it that keeps a long text.
        let script = "(text=$(head -c 60000000 /dev/zero | tr '\\0' x); sleep 60) & wait";
        let mut shell = Command::new("sh").args(["-c", script]).stdin(Stdio::null()).spawn().unwrap();
        let pid = Pid::from_child(&shell);
        let began = Instant::now();
        let mut most = 0;
        while most < 40 * MEBIBYTE && began.elapsed() < Duration::from_secs(20) {
            most = most.max(size_of(pid, 0).bytes);
        }
        let all = family(pid.as_raw_nonzero().get() as u32);
        for pid in all {
            let _ = rustix::process::kill_process(
                Pid::from_raw(pid as i32).unwrap(),
                rustix::process::Signal::KILL,
            );
        }
        let _ = shell.wait();
        assert!(most >= 40 * MEBIBYTE, "{most}");
    }

    #[test]
    fn pages_that_are_shared_and_such_as_are_only_dirty() {
        let alone = "Pss_Anon: 100 kB\nPrivate_Dirty: 140 kB\nSwapPss: 10 kB\n";
        assert_eq!(own_of(alone), 150 << 10);
        let with_children = "Pss_Anon: 50 kB\nShared_Dirty: 100 kB\nPrivate_Dirty: 0 kB\nSwapPss: 0 kB\n";
        assert_eq!(own_of(with_children), 50 << 10);
    }

    #[test]
    fn a_process_that_is_gone_has_nothing() {
        let mut child = Command::new("true").spawn().unwrap();
        let pid = Pid::from_child(&child);
        child.wait().unwrap();
        assert_eq!(size_of(pid, 0).bytes, 0);
    }
}
