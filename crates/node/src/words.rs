//! The last words of a program that is to be a zygote: why it could not become one is mostly in them.
//!
//! * WO-1: until it is a zygote its error output is kept for the error that may come of it; then it goes where ours goes.
//! * WO-2: no more than [`MOST`] bytes of it are kept.

use paceline_net::watch::{self, Watched};
use std::collections::VecDeque;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use tokio::task::JoinHandle;

const MOST: usize = 4 << 10;
/// So many lines are told.
const LINES: usize = 20;

pub(crate) struct Words {
    kept: Arc<Kept>,
    reader: JoinHandle<()>,
}

struct Kept {
    pipe: Watched,
    text: Mutex<VecDeque<u8>>,
    passes_on: AtomicBool,
}

impl Words {
    pub(crate) fn of(pipe: OwnedFd) -> io::Result<Words> {
        rustix::io::ioctl_fionbio(&pipe, true)?;
        let kept = Arc::new(Kept {
            pipe: watch::to_read(pipe)?,
            text: Mutex::default(),
            passes_on: AtomicBool::new(false),
        });
        let reader = tokio::spawn(read(kept.clone()));
        Ok(Words { kept, reader })
    }

    /// It has become a zygote: what it says from now on is for the user's eyes.
    pub(crate) fn pass_on(&self) {
        self.kept.passes_on.store(true, Ordering::Relaxed);
    }

    /// The last lines, with all that is in the pipe by now.
    pub(crate) fn last(&self) -> String {
        while matches!(self.kept.fill(), Ok(1..)) {}
        let text: Vec<u8> = lock(&self.kept.text).iter().copied().collect();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.trim_end().lines().collect();
        lines[lines.len().saturating_sub(LINES)..].join("\n")
    }
}

impl Drop for Words {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

impl Kept {
    fn fill(&self) -> io::Result<usize> {
        let mut bytes = [0; 1024];
        let count = rustix::io::read(self.pipe.get_ref(), &mut bytes)?;
        if self.passes_on.load(Ordering::Relaxed) {
            let _ = io::stderr().write_all(&bytes[..count]);
        }
        let mut text = lock(&self.text);
        text.extend(&bytes[..count]);
        let surplus = text.len().saturating_sub(MOST);
        text.drain(..surplus);
        Ok(count)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

async fn read(kept: Arc<Kept>) {
    while let Ok(mut ready) = kept.pipe.readable().await {
        if let Ok(Ok(0) | Err(_)) = ready.try_io(|_| kept.fill()) {
            return;
        }
    }
}
