//! What several topics use.

use paceline::Cluster;
use std::path::PathBuf;
use std::time::{Duration, Instant};

pub const LIMIT: Duration = Duration::from_secs(10);

pub fn two() -> Cluster {
    Cluster::embedded().cpus(2).start().unwrap()
}

/// Wait for a condition that has a name.
pub fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let until = Instant::now() + LIMIT;
    while !is_so() {
        assert!(Instant::now() < until, "waited for {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

pub fn is_gone(pid: u32) -> bool {
    let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else { return true };
    stat.rsplit(')').next().unwrap().trim_start().starts_with('Z')
}

/// `kill -9`
pub fn kill(pid: u32) {
    // SAFETY: a signal to a slot of ours.
    assert_eq!(unsafe { libc::kill(pid as i32, libc::SIGKILL) }, 0);
}

/// A file that does not exist yet, and goes with this.
pub struct Mark(pub PathBuf);

impl Mark {
    pub fn new(name: &str) -> Mark {
        let path = std::env::temp_dir().join(format!("paceline-objects-{name}-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        Mark(path)
    }

    /// One that somebody else has made.
    pub fn at(path: PathBuf) -> std::mem::ManuallyDrop<Mark> {
        std::mem::ManuallyDrop::new(Mark(path))
    }

    pub fn wait(&self) {
        until(&format!("{}", self.0.display()), || self.0.exists());
    }
}

impl Drop for Mark {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}
