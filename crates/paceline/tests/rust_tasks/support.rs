//! What several topics use: small clusters, tasks, and ways to see processes.

use paceline::Cluster;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::{Duration, Instant};

pub const LIMIT: Duration = Duration::from_secs(10);
/// Makes this program play another part than the tests.
pub const ROLE: &str = "PACELINE_TEST_ROLE";

pub fn one() -> Cluster {
    Cluster::embedded().cpus(1).start().unwrap()
}

pub fn two() -> Cluster {
    Cluster::embedded().cpus(2).start().unwrap()
}

#[paceline::task]
pub fn square(x: u64) -> u64 {
    x * x
}

#[paceline::task]
pub fn pid() -> u32 {
    std::process::id()
}

#[paceline::task]
pub fn divide(a: u64, b: u64) -> u64 {
    a / b
}

/// A file that does not exist yet, and goes with this.
pub struct Mark(pub PathBuf);

impl Mark {
    pub fn new(name: &str) -> Mark {
        let path = std::env::temp_dir().join(format!("paceline-{name}-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        Mark(path)
    }

    pub fn wait(&self, what: &str) {
        let until = Instant::now() + LIMIT;
        while !self.0.exists() {
            assert!(Instant::now() < until, "waited for {what}");
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

impl Drop for Mark {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Goes on until it is cancelled, or for ever if it does not look.
#[paceline::task]
pub fn dawdle(begun: PathBuf, looks: bool, ended: PathBuf) {
    std::fs::write(begun, std::process::id().to_string()).unwrap();
    while !(looks && paceline::is_cancelled()) {
        std::thread::sleep(Duration::from_millis(5));
    }
    std::fs::write(ended, "").unwrap();
}

/// A task that runs, and the marks of its beginning and its end.
pub fn dawdling(cluster: &Cluster, looks: bool) -> (paceline::Future<()>, Mark, Mark) {
    let (begun, ended) = (Mark::new("begun"), Mark::new("ended"));
    let future = dawdle::submit(cluster, begun.0.clone(), looks, ended.0.clone());
    begun.wait("the task to begin");
    (future, begun, ended)
}

#[paceline::task]
pub fn nap(time: Duration) -> u8 {
    std::thread::sleep(time);
    7
}

pub fn is_gone(pid: u32) -> bool {
    let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else { return true };
    stat.rsplit(')').next().unwrap().trim_start().starts_with('Z')
}

/// The processes that these slots were forked from. The program's own is no child of ours.
pub fn zygotes(slots: &[u32]) -> BTreeSet<u32> {
    let parent = |pid: &u32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        stat.rsplit(')').next().unwrap().split_whitespace().nth(1).unwrap().parse().unwrap()
    };
    slots.iter().map(parent).collect()
}
