//! What slots print, cut into lines.
//!
//! * OU-1: lines are handed on whole. A piece of a line waits [`PATIENCE`] for its rest.
//! * OU-2: no more than a pipe and one piece of [`LONGEST`] bytes is kept for a slot; then it has to wait.

use crate::news::Printed;
use paceline_net::watch::{self, Watched};
use paceline_proto::SlotId;
use paceline_proto::control::Stream;
use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;
use tokio::sync::{mpsc, watch as signal};
use tokio::time::Instant;

const PATIENCE: Duration = Duration::from_millis(100);
const LONGEST: usize = 64 << 10;
const AT_ONCE: usize = 16 << 10;

/// Reads one of a slot's outputs until nobody can write to it, or until the slot is known to be dead and the pipe is
/// empty.
pub(crate) struct Reader {
    slot: SlotId,
    stream: Stream,
    pipe: Watched,
    lines: Lines,
    printed: mpsc::Sender<Printed>,
}

impl Reader {
    pub(crate) fn new(
        slot: SlotId,
        stream: Stream,
        pipe: OwnedFd,
        printed: mpsc::Sender<Printed>,
    ) -> io::Result<Reader> {
        Ok(Reader { slot, stream, pipe: watch::to_read(pipe)?, lines: Lines::default(), printed })
    }

    pub(crate) async fn run(mut self, mut dead: signal::Receiver<bool>) {
        let mut due = None;
        loop {
            tokio::select! {
                biased;
                result = fill(&self.pipe, &mut self.lines) => match result {
                    Ok(0) | Err(_) => break,
                    Ok(_) => {
                        let text = self.lines.take_whole();
                        if !text.is_empty() {
                            due = None;
                        }
                        self.hand_on(text).await;
                    }
                },
                () = told(&mut dead) => {
                    self.last_words().await;
                    break;
                }
                () = until(due) => {
                    let text = self.lines.take_all();
                    self.hand_on(text).await;
                }
            }
            due = if self.lines.rest.is_empty() { None } else { due.or(Some(Instant::now() + PATIENCE)) };
        }
        let text = self.lines.take_all();
        self.hand_on(text).await;
    }

    /// Whatever is in the pipe of a slot that is dead. It may stay open: a process that the slot started may hold it.
    async fn last_words(&mut self) {
        while let Ok(1..) = self.lines.fill(self.pipe.get_ref()) {
            let text = self.lines.take_whole();
            self.hand_on(text).await;
        }
    }

    async fn hand_on(&self, text: Vec<u8>) {
        if !text.is_empty() {
            // Waits when nobody takes it (NS-3).
            let _ = self.printed.send(Printed { slot: self.slot, stream: self.stream, text }).await;
        }
    }
}

async fn told(dead: &mut signal::Receiver<bool>) {
    // Fails if nobody is left to tell: the node has forgotten the slot.
    let _ = dead.wait_for(|dead| *dead).await;
}

async fn until(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due).await,
        None => std::future::pending().await,
    }
}

async fn fill(pipe: &Watched, lines: &mut Lines) -> io::Result<usize> {
    loop {
        let mut ready = pipe.readable().await?;
        if let Ok(result) = ready.try_io(|pipe| lines.fill(pipe)) {
            return result;
        }
    }
}

/// Text that is cut after its last line.
#[derive(Default)]
struct Lines {
    rest: Vec<u8>,
}

impl Lines {
    fn fill(&mut self, pipe: impl std::os::fd::AsFd) -> io::Result<usize> {
        let before = self.rest.len();
        self.rest.resize(before + AT_ONCE, 0);
        let result = rustix::io::read(pipe, &mut self.rest[before..]);
        self.rest.truncate(before + *result.as_ref().unwrap_or(&0));
        Ok(result?)
    }

    /// Everything up to the last end of a line; all of it if it is too long to be kept.
    fn take_whole(&mut self) -> Vec<u8> {
        let end = self.rest.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1);
        if end == 0 && self.rest.len() >= LONGEST {
            return self.take_all();
        }
        let rest = self.rest.split_off(end);
        std::mem::replace(&mut self.rest, rest)
    }

    fn take_all(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run<T>(test: impl Future<Output = T>) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let limit = Duration::from_secs(10);
        runtime.block_on(async { tokio::time::timeout(limit, test).await.expect("the test is done in time") })
    }

    struct Pipe {
        end: OwnedFd,
        printed: mpsc::Receiver<Printed>,
        dead: signal::Sender<bool>,
    }

    impl Pipe {
        fn new() -> Pipe {
            let flags = rustix::pipe::PipeFlags::CLOEXEC | rustix::pipe::PipeFlags::NONBLOCK;
            let (read, end) = rustix::pipe::pipe_with(flags).unwrap();
            let (sender, printed) = mpsc::channel(1);
            let (dead, hears) = signal::channel(false);
            let reader = Reader::new(SlotId(1), Stream::Out, read, sender).unwrap();
            tokio::spawn(reader.run(hears));
            Pipe { end, printed, dead }
        }

        fn print(&self, text: &str) -> bool {
            rustix::io::write(&self.end, text.as_bytes()).is_ok()
        }

        async fn next(&mut self) -> Option<String> {
            self.printed.recv().await.map(|printed| String::from_utf8(printed.text).unwrap())
        }
    }

    #[test]
    fn lines_are_whole() {
        run(async {
            let mut pipe = Pipe::new();
            pipe.print("one\ntwo\nthr");
            assert_eq!(pipe.next().await.unwrap(), "one\ntwo\n");
            pipe.print("ee\n");
            assert_eq!(pipe.next().await.unwrap(), "three\n", "OU-1");
        });
    }

    #[test]
    fn a_piece_of_a_line_waits_a_little() {
        run(async {
            let mut pipe = Pipe::new();
            let began = std::time::Instant::now();
            pipe.print("name: ");
            assert_eq!(pipe.next().await.unwrap(), "name: ");
            assert!(began.elapsed() >= PATIENCE, "OU-1");
        });
    }

    #[test]
    fn the_last_words_are_heard() {
        run(async {
            let mut pipe = Pipe::new();
            pipe.print("last\nwords");
            pipe.dead.send(true).unwrap();
            let mut heard = String::new();
            // The pipe stays open: a grandchild may hold it.
            while let Some(text) = pipe.next().await {
                heard += &text;
            }
            assert_eq!(heard, "last\nwords");
        });
    }

    #[test]
    fn a_flood_makes_the_slot_wait() {
        run(async {
            let mut pipe = Pipe::new();
            let line = format!("{}\n", "x".repeat(1023));
            let mut written = 0;
            loop {
                if pipe.print(&line) {
                    written += line.len();
                } else {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                    if !pipe.print(&line) {
                        break;
                    }
                    written += line.len();
                }
                assert!(written < 10 << 20, "OU-2: {written} bytes were taken from a slot that nobody reads");
            }
            let mut read = 0;
            while read < written {
                read += pipe.next().await.unwrap().len();
            }
        });
    }
}
