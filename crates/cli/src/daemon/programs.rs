//! What submitted programs print on this machine: a log for each, by its name.
//!
//! * PG-1: there are at most [`MOST`] of them for a node, each as long as any log may be; the oldest goes first.

use super::log::{self, Log};
use super::plan::LogPlan;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

const MOST: usize = 64;

/// Clones are of the same.
#[derive(Clone)]
pub struct Programs(Arc<Mutex<Logs>>);

struct Logs {
    directory: PathBuf,
    plan: LogPlan,
    /// Those that were written to, and how many were before.
    open: BTreeMap<String, (u64, Log)>,
    opened: u64,
}

impl Programs {
    /// Each node has its own, for there may be several on one machine.
    pub fn new(logs: PathBuf, node: &str, plan: LogPlan) -> Programs {
        let directory = logs.join(format!("programs-{node}"));
        Programs(Arc::new(Mutex::new(Logs { directory, plan, open: BTreeMap::new(), opened: 0 })))
    }

    pub fn print(&self, name: &str, text: &[u8]) {
        let mut logs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(error) = logs.of(name).and_then(|log| log.write_all(text)) {
            tracing::warn!(%error, program = name, "what a program printed is lost");
        }
    }

    pub fn tail(&self, name: &str, lines: u32) -> String {
        let logs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        log::tail(&logs.path(name), logs.plan.files.max(1), lines)
    }

    /// Throw everything away.
    pub fn clean(&self) {
        let mut logs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        logs.open.clear();
        let _ = std::fs::remove_dir_all(&logs.directory);
    }
}

impl Logs {
    fn path(&self, name: &str) -> PathBuf {
        self.directory.join(format!("{name}.log"))
    }

    fn of(&mut self, name: &str) -> std::io::Result<&mut Log> {
        self.opened += 1;
        if !self.open.contains_key(name) {
            std::fs::create_dir_all(&self.directory)?;
            make_room(&self.directory, self.plan.files.max(1));
            if self.open.len() >= MOST
                && let Some(oldest) =
                    self.open.iter().min_by_key(|(_, (used, _))| *used).map(|(name, _)| name.clone())
            {
                self.open.remove(&oldest);
            }
            let log = Log::open(self.path(name), &self.plan, false)?;
            self.open.insert(name.into(), (self.opened, log));
        }
        let (used, log) = self.open.get_mut(name).expect("it is there now");
        *used = self.opened;
        Ok(log)
    }
}

/// PG-1.
fn make_room(directory: &Path, files: u64) {
    let Ok(entries) = std::fs::read_dir(directory) else { return };
    let mut found: Vec<_> = entries
        .flatten()
        .filter_map(|entry| Some((entry.metadata().ok()?.modified().ok()?, entry.path())))
        .collect();
    found.sort();
    let most = (MOST - 1) * files as usize;
    for (_, path) in found.iter().take(found.len().saturating_sub(most)) {
        let _ = std::fs::remove_file(path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_logs_go_first() {
        let directory = tempfile::tempdir().unwrap();
        let plan = LogPlan { level: "info".into(), size: 8192, files: 1 };
        let programs = Programs::new(directory.path().to_owned(), "a", plan);
        for number in 0..MOST + 20 {
            programs.print(&format!("p{number:03}"), b"hello\n");
        }
        assert_eq!(programs.tail("p083", 5), "hello\n");
        let left = std::fs::read_dir(directory.path().join("programs-a")).unwrap().count();
        assert!(left <= MOST, "PG-1: {left} logs");
        programs.clean();
        assert_eq!(programs.tail("p083", 5), "");
        programs.print("p001", b"again\n");
        assert_eq!(programs.tail("p001", 5), "again\n");
    }
}
