//! What submitted programs print on this machine: a log for each, by its name.
//!
//! * PG-1: there are at most [`MOST`] of them for a node, each as long as any log may be; the oldest goes first.

use super::disk;
use super::log::{self, Log};
use super::plan::LogPlan;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

const MOST: usize = 64;

/// Clones are of the same.
#[derive(Clone)]
pub struct Programs(Arc<Shared>);

struct Shared {
    logs: Mutex<Logs>,
    /// Pieces of text that had no place in the queue.
    dropped: AtomicU64,
}

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
        let logs = Mutex::new(Logs { directory, plan, open: BTreeMap::new(), opened: 0 });
        Programs(Arc::new(Shared { logs, dropped: AtomicU64::new(0) }))
    }

    pub fn print(&self, name: &str, text: &[u8]) {
        let (programs, name, owned) = (self.clone(), name.to_owned(), text.to_owned());
        let print = move || {
            let dropped = programs.0.dropped.swap(0, Ordering::Relaxed);
            if dropped > 0 {
                tracing::warn!(
                    pieces = dropped,
                    "what programs printed is lost: the disk did not take it in time"
                );
            }
            match programs.logs().of(&name) {
                Ok(log) => log.write_here(&owned),
                Err(error) => tracing::warn!(%error, program = name, "what a program printed is lost"),
            }
        };
        if !disk::submit(text.len(), print) {
            self.0.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub fn tail(&self, name: &str, lines: u32) -> String {
        let (programs, name) = (self.clone(), name.to_owned());
        let read = disk::ask(move || {
            let logs = programs.logs();
            log::tail(&logs.path(&name), logs.plan.files.max(1), lines)
        });
        read.unwrap_or_else(|| "the disk of this log does not answer\n".into())
    }

    /// Throw everything away.
    pub fn clean(&self) {
        let programs = self.clone();
        let clean = move || {
            let mut logs = programs.logs();
            logs.open.clear();
            let _ = std::fs::remove_dir_all(&logs.directory);
        };
        disk::ask(clean);
    }

    fn logs(&self) -> MutexGuard<'_, Logs> {
        self.0.logs.lock().unwrap_or_else(PoisonError::into_inner)
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
