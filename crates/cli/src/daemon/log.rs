//! What daemons log: one file each, put aside when it is long, the oldest forgotten.
//!
//! * LG-1: a cluster's logs never take more than size x files bytes for each daemon, whatever is logged.
//! * LG-2: what the zygotes print to their error output is a part of the log.
//! * LG-3: who logs never waits for the disk ([`super::disk`] writes), and no error of it ends a daemon. What could not be
//!   written is counted, and the log says so where it goes on.

use super::disk;
use super::plan::LogPlan;
use rustix::fs::{Mode, OFlags};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};

/// More than this of a log is never read at once.
const MOST: u64 = 4 << 20;
/// How long a daemon that ends waits for its log's disk, and one that panics.
pub const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);

/// A log file that is put aside when it is long. Clones write to the same.
#[derive(Clone)]
pub struct Log(Arc<Shared>);

struct Shared {
    file: Mutex<Rotating>,
    /// Lines that had no place in the queue (LG-3).
    dropped: AtomicU64,
}

struct Rotating {
    path: PathBuf,
    file: File,
    length: u64,
    size: u64,
    files: u64,
    /// Also to the error output.
    aloud: bool,
    /// Lines that the disk did not take, and why.
    lost: Option<(u64, String)>,
}

impl Log {
    pub fn open(path: PathBuf, plan: &LogPlan, aloud: bool) -> io::Result<Log> {
        let file = append(&path)?;
        let length = file.metadata()?.len();
        // Its share of the bytes, so that all together stay below.
        let size = (plan.size / 2).max(1024);
        let files = plan.files.max(1);
        let file = Mutex::new(Rotating { path, file, length, size, files, aloud, lost: None });
        Ok(Log(Arc::new(Shared { file, dropped: AtomicU64::new(0) })))
    }

    /// Let everything that is traced go there.
    pub fn install(&self, plan: &LogPlan) {
        let level: LevelFilter = plan.level.parse().unwrap_or(LevelFilter::INFO);
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(level)
            .with_ansi(false)
            .with_target(level >= LevelFilter::DEBUG)
            .with_writer(self.clone())
            .finish();
        let _ = tracing::subscriber::set_global_default(subscriber);
    }

    /// Writes a line straight to the file, after what waits for it, for a process that is about to end. It returns after
    /// at most twice [`FLUSH_TIMEOUT`], whatever the disk does, and may be called from any thread.
    pub fn write_last(&self, text: &str) {
        disk::flush(FLUSH_TIMEOUT);
        let (log, mut line) = (self.clone(), time());
        line.push_str(text);
        line.push('\n');
        let (done, finished) = sync_channel(1);
        // Not by the thread that writes: it may be the one that has failed, or wait for the disk.
        let write = move || {
            if let Ok(mut file) = log.0.file.try_lock() {
                let _ = file.write(line.as_bytes());
            }
            let _ = done.try_send(());
        };
        if std::thread::Builder::new().name("paceline-last".into()).spawn(write).is_ok() {
            let _ = finished.recv_timeout(FLUSH_TIMEOUT);
        }
    }

    /// The last lines, out of the files that there are.
    pub fn tail(&self, lines: u32) -> String {
        let log = self.clone();
        let read = disk::ask(move || {
            let (path, files) = log.with_file(|file| (file.path.clone(), file.files));
            tail(&path, files, lines)
        });
        read.unwrap_or_else(|| "the disk of this log does not answer\n".into())
    }

    /// Throw everything away.
    pub fn clean(&self) -> io::Result<()> {
        let log = self.clone();
        disk::ask(move || log.with_file(Rotating::clean))
            .unwrap_or_else(|| Err(io::ErrorKind::TimedOut.into()))
    }

    /// Writes on the calling thread.
    pub(super) fn write_here(&self, bytes: &[u8]) {
        let dropped = self.0.dropped.swap(0, Ordering::Relaxed);
        self.with_file(|file| {
            if dropped > 0 {
                file.lose(dropped, "they came faster than the disk took them");
            }
            file.put(bytes);
        });
    }

    fn with_file<T>(&self, act: impl FnOnce(&mut Rotating) -> T) -> T {
        act(&mut self.0.file.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Take over our own error output, which zygotes inherit (LG-2).
    pub fn take_stderr(&self) -> io::Result<()> {
        let (read, write) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
        rustix::stdio::dup2_stderr(&write)?;
        drop(write);
        let reading = move || {
            for line in BufReader::new(File::from(read)).split(b'\n').map_while(Result::ok) {
                tracing::warn!("{}", String::from_utf8_lossy(&line));
            }
        };
        std::thread::Builder::new().name("paceline-stderr".into()).stack_size(128 << 10).spawn(reading)?;
        Ok(())
    }
}

/// The time, as log lines begin.
fn time() -> String {
    let mut text = String::new();
    let _ = SystemTime.format_time(&mut tracing_subscriber::fmt::format::Writer::new(&mut text));
    text.push(' ');
    text
}

/// The last lines of a log that nobody writes to any more, or somebody else.
pub fn tail(path: &Path, files: u64, lines: u32) -> String {
    let mut text = String::new();
    for number in (1..files).rev() {
        text.push_str(&last_bytes(&aside(path, number)).unwrap_or_default());
    }
    text.push_str(&last_bytes(path).unwrap_or_default());
    let found: Vec<&str> = text.lines().rev().take(lines as usize).collect();
    found.into_iter().rev().flat_map(|line| [line, "\n"]).collect()
}

fn last_bytes(path: &Path) -> io::Result<String> {
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(MOST)))?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn aside(path: &Path, number: u64) -> PathBuf {
    path.with_extension(format!("{number}.log"))
}

fn append(path: &Path) -> io::Result<File> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::APPEND | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    Ok(rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR)?.into())
}

impl Rotating {
    /// Writes these lines, after a word about those that are missing before them (LG-3).
    fn put(&mut self, bytes: &[u8]) {
        if self.aloud {
            let _ = io::stderr().write_all(bytes);
        }
        if let Some((count, why)) = self.lost.take() {
            let text = format!("{}WARN {count} lines of this log are missing here: {why}\n", time());
            if let Err(error) = self.write(text.as_bytes()) {
                return self.lose(count + 1, &error.to_string());
            }
        }
        if let Err(error) = self.write(bytes) {
            self.lose(1, &error.to_string());
        }
    }

    fn lose(&mut self, count: u64, why: &str) {
        let before = self.lost.take().map_or(0, |(before, _)| before);
        self.lost = Some((before + count, why.into()));
    }

    fn clean(&mut self) -> io::Result<()> {
        for number in 1..self.files {
            let _ = std::fs::remove_file(aside(&self.path, number));
        }
        self.file.set_len(0)?;
        self.length = 0;
        Ok(())
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.length > 0 && self.length + bytes.len() as u64 > self.size {
            for number in (1..self.files.saturating_sub(1)).rev() {
                let _ = std::fs::rename(aside(&self.path, number), aside(&self.path, number + 1));
            }
            if self.files > 1 {
                std::fs::rename(&self.path, aside(&self.path, 1))?;
                self.file = append(&self.path)?;
            } else {
                self.file.set_len(0)?;
            }
            self.length = 0;
        }
        self.file.write_all(bytes)?;
        self.length += bytes.len() as u64;
        Ok(())
    }
}

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let (log, owned) = (self.clone(), bytes.to_vec());
        if !disk::submit(bytes.len(), move || log.write_here(&owned)) {
            self.0.dropped.fetch_add(1, Ordering::Relaxed);
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Log {
    type Writer = Log;

    fn make_writer(&'a self) -> Log {
        self.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_never_takes_more_than_its_share() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("head.log");
        let plan = LogPlan { level: "info".into(), size: 8192, files: 3 };
        let mut log = Log::open(path, &plan, false).unwrap();
        for number in 0..2000 {
            log.write_all(format!("line {number}\n").as_bytes()).unwrap();
        }
        assert!(disk::flush(Duration::from_secs(20)));
        let sizes: Vec<u64> = std::fs::read_dir(directory.path())
            .unwrap()
            .map(|entry| entry.unwrap().metadata().unwrap().len())
            .collect();
        assert_eq!(sizes.len(), 3);
        assert!(sizes.iter().sum::<u64>() <= plan.size * plan.files, "LG-1: {sizes:?}");
        assert_eq!(log.tail(2), "line 1998\nline 1999\n");
        assert_eq!(log.tail(500).lines().next(), Some("line 1500"), "across files");
        log.clean().unwrap();
        assert_eq!(log.tail(5), "");
    }

    #[test]
    fn lost_lines_are_counted_where_the_log_goes_on() {
        let directory = tempfile::tempdir().unwrap();
        let plan = LogPlan { level: "info".into(), size: 8192, files: 1 };
        let log = Log::open(directory.path().join("head.log"), &plan, false).unwrap();
        // It cannot be written for a while.
        let file = log.with_file(|file| std::mem::replace(&mut file.file, File::open("/dev/null").unwrap()));
        log.write_here(b"one\n");
        log.write_here(b"two\n");
        log.0.dropped.store(3, Ordering::Relaxed);
        log.with_file(|rotating| rotating.file = file);
        log.write_here(b"three\n");
        let text = log.tail(9);
        assert!(text.contains("WARN 5 lines of this log are missing here: "), "LG-3: {text}");
        assert!(text.ends_with("\nthree\n"), "{text}");
        log.write_last("the end");
        assert!(log.tail(1).ends_with(" the end\n"), "{}", log.tail(1));
    }
}
