//! A zygote and slots without a language, for tests on real processes.
//!
//! The test program starts itself again, with [`variable`] set, to be the zygote. Slots do what is written to their data
//! connection, a word a line:
//!
//! `pid` answers with the slot's process id, `echo x` with x, `children` starts a child that sleeps and a daemon that
//! left the group and answers with their ids, `print x` and `complain x` print, `begin n` and `end n` write the page,
//! `exit n` leaves, `abort` dies by a signal, `stuck` hears nothing any more, `flood` prints for ever.

use paceline_net::Page;
use paceline_net::control::{Inbox, Outbox};
use paceline_proto::control::{NodeToSlot, SlotToNode};
use paceline_proto::{Seq, SlotId};
use paceline_slot::zygote::{Birth, Wanted, Zygote};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::{FromRawFd, OwnedFd};
use std::fs::File;
use std::io::{self, Read, Write};
use std::process::{Command, Stdio};
use std::time::Duration;

/// Tells a started program that it is to be the zygote.
const VARIABLE: &str = "PACELINE_TEST_ZYGOTE";

/// A zygote needs the main thread, which in a test program is the harness's: so it begins before that does.
#[used]
#[unsafe(link_section = ".init_array")]
static PLAY: extern "C" fn() = play;

/// How to start the zygote; the descriptor's number is appended.
pub fn command() -> Vec<String> {
    vec![std::env::current_exe().unwrap().to_str().unwrap().to_owned()]
}

/// The variable to start it with.
pub fn variable() -> (String, String) {
    (VARIABLE.into(), "1".into())
}

extern "C" fn play() {
    if std::env::var_os(VARIABLE).is_none() {
        return;
    }
    let number = std::env::args().next_back().unwrap().parse().unwrap();
    // SAFETY: the number was handed to this program for this purpose.
    let mut zygote = Zygote::new(unsafe { OwnedFd::from_raw_fd(number) }).unwrap();
    while let Wanted::Fork(birth) = zygote.next(None).unwrap() {
        // SAFETY: the child is single-threaded and only goes on with what this thread had.
        match unsafe { libc::fork() } {
            0 => live(zygote, birth),
            pid => zygote.forked(birth, pid as u32).unwrap(),
        }
    }
    std::process::exit(0);
}

fn live(zygote: Zygote, birth: Birth) -> ! {
    let (slot, control, page) = birth.become_slot(zygote).unwrap();
    let (inbox, page) = (Inbox::default(), Page::open(page).unwrap());
    let mut player = Player { control, inbox, data: None, heard: String::new(), page };
    player.say(&SlotToNode::Ready { slot, pid: std::process::id() });
    while player.turn(slot).is_ok() {}
    std::process::exit(0)
}

struct Player {
    control: OwnedFd,
    inbox: Inbox<NodeToSlot>,
    data: Option<File>,
    heard: String,
    page: Page,
}

impl Player {
    fn say(&self, message: &SlotToNode) {
        let mut outbox = Outbox::default();
        outbox.push(message, Vec::new());
        // A node that is gone shows when we read.
        let _ = outbox.flush(&self.control);
    }

    fn turn(&mut self, slot: SlotId) -> io::Result<()> {
        let mut sources = vec![PollFd::new(&self.control, PollFlags::IN)];
        if let Some(data) = &self.data {
            sources.push(PollFd::new(data, PollFlags::IN));
        }
        poll(&mut sources, None)?;
        let ready: Vec<bool> = sources.iter().map(|source| !source.revents().is_empty()).collect();
        if ready[0] {
            if self.inbox.fill(&self.control)? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            while let Some((message, descriptors)) = self.inbox.next()? {
                self.on_node(message, descriptors)?;
            }
        }
        if ready.get(1) == Some(&true) {
            let mut text = [0; 4096];
            match self.data.as_mut().unwrap().read(&mut text) {
                Ok(0) | Err(_) => self.data = None,
                Ok(length) => {
                    self.heard.push_str(&String::from_utf8_lossy(&text[..length]));
                    while let Some((line, rest)) = self.heard.split_once('\n') {
                        let line = line.to_owned();
                        self.heard = rest.to_owned();
                        self.on_line(slot, &line);
                    }
                }
            }
        }
        Ok(())
    }

    fn on_node(&mut self, message: NodeToSlot, descriptors: Vec<OwnedFd>) -> io::Result<()> {
        match message {
            NodeToSlot::Bind { .. }
            | NodeToSlot::TooDeep { .. }
            | NodeToSlot::Become { .. }
            | NodeToSlot::Guest { .. } => {}
            NodeToSlot::Attach { .. } => self.data = descriptors.into_iter().next().map(File::from),
            NodeToSlot::Detach { lease } => {
                self.data = None;
                self.say(&SlotToNode::Detached { lease });
            }
            NodeToSlot::Exit => return Err(io::ErrorKind::UnexpectedEof.into()),
        }
        Ok(())
    }

    fn on_line(&mut self, slot: SlotId, line: &str) {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        match word {
            "pid" => self.answer(&std::process::id().to_string()),
            "slot" => self.answer(&slot.to_string()),
            "echo" => self.answer(rest),
            "children" => {
                let ids = [children(false), children(true)];
                self.answer(&format!("{} {}", ids[0], ids[1]));
            }
            "print" => put(1, rest),
            "complain" => put(2, rest),
            "begin" => self.page.begin(Seq(rest.parse().unwrap()), 0),
            "end" => self.page.end(Seq(rest.parse().unwrap())),
            "exit" => std::process::exit(rest.parse().unwrap()),
            "abort" => std::process::abort(),
            "stuck" => loop {
                std::thread::sleep(Duration::from_secs(1));
            },
            "flood" => loop {
                put(1, &"x".repeat(999));
            },
            _ => self.answer("what?"),
        }
    }

    fn answer(&mut self, text: &str) {
        writeln!(self.data.as_mut().unwrap(), "{text}").unwrap();
    }
}

/// A raw write: the test harness would catch `println!`.
fn put(descriptor: i32, line: &str) {
    // SAFETY: both standard outputs are open for the life of the process.
    let output = unsafe { rustix::fd::BorrowedFd::borrow_raw(descriptor) };
    let line = format!("{line}\n");
    let mut rest = line.as_bytes();
    while !rest.is_empty() {
        rest = &rest[rustix::io::write(output, rest).unwrap()..];
    }
}

/// Start a process that sleeps: in our group, or as a daemon that is nobody's child and in a session of its own.
fn children(daemon: bool) -> u32 {
    let nothing = Stdio::null;
    if !daemon {
        let mut sleep = Command::new("sleep");
        return sleep.arg("100").stdout(nothing()).stderr(nothing()).spawn().unwrap().id();
    }
    let script = "setsid sleep 100 >/dev/null 2>&1 & echo $!";
    let output = Command::new("sh").args(["-c", script]).output().unwrap();
    String::from_utf8(output.stdout).unwrap().trim().parse().unwrap()
}
