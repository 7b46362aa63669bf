//! What daemons log: one file each, put aside when it is long, the oldest forgotten.
//!
//! * LG-1: a cluster's logs never take more than size x files bytes for each daemon, whatever is logged.
//! * LG-2: what the zygotes print to their error output is a part of the log.

use super::plan::LogPlan;
use rustix::fs::{Mode, OFlags};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use tracing::level_filters::LevelFilter;
use tracing_subscriber::fmt::MakeWriter;

/// More than this of a log is never read at once.
const MOST: u64 = 4 << 20;

/// A log file that is put aside when it is long. Clones write to the same.
#[derive(Clone)]
pub struct Log(Arc<Mutex<Rotating>>);

struct Rotating {
    path: PathBuf,
    file: File,
    length: u64,
    size: u64,
    files: u64,
    /// Also to the error output.
    aloud: bool,
}

impl Log {
    pub fn open(path: PathBuf, plan: &LogPlan, aloud: bool) -> io::Result<Log> {
        let file = append(&path)?;
        let length = file.metadata()?.len();
        // Its share of the bytes, so that all together stay below.
        let size = (plan.size / 2).max(1024);
        let files = plan.files.max(1);
        Ok(Log(Arc::new(Mutex::new(Rotating { path, file, length, size, files, aloud }))))
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
        std::panic::set_hook(Box::new(|panic| tracing::error!(%panic, "this is a defect of Paceline")));
    }

    /// The last lines, out of the files that there are.
    pub fn tail(&self, lines: u32) -> String {
        let log = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        tail(&log.path, log.files, lines)
    }

    /// Throw everything away.
    pub fn clean(&self) -> io::Result<()> {
        let mut log = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for number in 1..log.files {
            let _ = std::fs::remove_file(aside(&log.path, number));
        }
        log.file.set_len(0)?;
        log.length = 0;
        Ok(())
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
        let mut log = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if log.aloud {
            let _ = io::stderr().write_all(bytes);
        }
        // A full disk must not end a cluster.
        let _ = log.write(bytes);
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
}
