//! Starting a program that is nobody's child, so that code that waits for all its children never meets it.
//!
//! A child starts the program and is gone before the call returns; what it started then belongs to init. That child
//! itself raises no signal and is invisible to a plain `waitpid(-1)`, because its exit signal is none.
//!
//! Both share this process's memory until they are gone or another program, as in `posix_spawn`: nothing is copied,
//! however large this process is, and the calling thread stands still meanwhile.

use crate::kept::Kept;
use rustix::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use rustix::fs::{Mode, OFlags, open};
use rustix::process::{Pid, Signal, pidfd_send_signal};
use std::env::{split_paths, vars_os};
use std::ffi::{CString, OsString};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// More than the few system calls on it need, with room for what a debug build adds.
const STACK: usize = 64 << 10;

/// What opens a cluster, and is no business of those who run code for others.
pub const SECRETS: [&str; 3] = ["PACELINE_KEY", "PACELINE_PASSWORD", "PACELINE_TOKEN"];

/// A program that runs, or has run.
pub struct Detached {
    pid: Pid,
    /// Readable once it has ended.
    pub process: Kept,
}

/// What the two processes on the way need. Nothing here is allocated or freed by them.
struct Plan {
    program: CString,
    arguments: Vec<*const libc::c_char>,
    environment: Vec<*const libc::c_char>,
    stdin: RawFd,
    stdout: RawFd,
    stack: *mut libc::c_void,
    pid: libc::c_int,
    process: libc::c_int,
    error: libc::c_int,
}

/// Start a program with these arguments and, on top of ours but for secrets, these variables. It gets `stdin`, no standard output, our
/// error output, and leads a process group of its own, so that a terminal's signals do not reach it.
pub fn start(command: &[String], variables: &[(String, String)], stdin: OwnedFd) -> io::Result<Detached> {
    let (program, _) = command.split_first().ok_or(io::ErrorKind::InvalidInput)?;
    let null = open(c"/dev/null", OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
    // Out of the way of the numbers they will get there.
    let stdin = rustix::io::fcntl_dupfd_cloexec(&stdin, 3)?;
    let stdout = rustix::io::fcntl_dupfd_cloexec(&null, 3)?;
    let arguments = command.iter().map(|text| CString::new(text.as_str())).collect::<Result<Vec<_>, _>>()?;
    let environment = environment(variables)?;
    let mut stacks = [vec![0u8; STACK], vec![0u8; STACK]];
    let [first, second] = stacks.each_mut().map(|stack| top(stack));
    let mut plan = Plan {
        program: CString::new(find(program).into_os_string().into_vec())?,
        arguments: pointers(&arguments),
        environment: pointers(&environment),
        stdin: stdin.as_raw_fd(),
        stdout: stdout.as_raw_fd(),
        stack: second,
        pid: -1,
        process: -1,
        error: 0,
    };
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::CLONE_FILES;
    // A handler of this process must not run in one that shares its memory. Execution resets handlers.
    let _blocked = Blocked::all();
    // SAFETY: the plan and both stacks outlive the two processes, because this thread stands still until the first is
    // gone, which stands still until the second is gone or another program. Neither allocates, unwinds or returns into
    // code of ours.
    let between = unsafe { libc::clone(launch, first, flags, (&raw mut plan).cast()) };
    if between < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: no status is asked for. It is a child that only this kind of wait sees.
    unsafe { libc::waitpid(between, std::ptr::null_mut(), libc::__WCLONE) };
    if plan.pid < 0 {
        return Err(io::Error::from_raw_os_error(plan.error));
    }
    // SAFETY: the kernel made it for us, in the descriptors that the process between shared.
    let process = Kept::new(unsafe { OwnedFd::from_raw_fd(plan.process) });
    if plan.error != 0 {
        return Err(io::Error::from_raw_os_error(plan.error));
    }
    let pid = Pid::from_raw(plan.pid).ok_or(io::ErrorKind::Other)?;
    Ok(Detached { pid, process })
}

impl Detached {
    pub fn pid(&self) -> Pid {
        self.pid
    }

    pub fn kill(&self) {
        let _ = pidfd_send_signal(&self.process, Signal::KILL);
    }

    /// After its end: if this process is the one that inherits orphans, as the first in a container is, take it off the
    /// list of the dead. Elsewhere it is not ours to take.
    pub fn reap(&self) {
        crate::reap::reap_inherited(&self.process);
    }
}

/// The process between: starts the other and goes.
extern "C" fn launch(plan: *mut libc::c_void) -> libc::c_int {
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::CLONE_PIDFD | libc::SIGCHLD;
    // SAFETY: see `start`; the plan is ours alone while the caller stands still.
    unsafe {
        let plan = plan.cast::<Plan>();
        let process = &raw mut (*plan).process;
        let pid = libc::clone(become_program, (*plan).stack, flags, plan.cast(), process);
        if pid < 0 {
            (*plan).error = *libc::__errno_location();
        }
        (*plan).pid = pid;
        libc::_exit(0)
    }
}

/// The other: becomes the program.
extern "C" fn become_program(plan: *mut libc::c_void) -> libc::c_int {
    // SAFETY: as above. Descriptors and signal actions are this process's own.
    unsafe {
        let plan = plan.cast::<Plan>();
        libc::setpgid(0, 0);
        libc::signal(libc::SIGPIPE, libc::SIG_DFL);
        if libc::dup2((*plan).stdin, 0) >= 0 && libc::dup2((*plan).stdout, 1) >= 0 {
            let (arguments, environment) = ((*plan).arguments.as_ptr(), (*plan).environment.as_ptr());
            libc::execve((*plan).program.as_ptr(), arguments, environment);
        }
        (*plan).error = *libc::__errno_location();
        libc::_exit(127)
    }
}

/// All signals blocked in this thread, for a while.
struct Blocked {
    before: libc::sigset_t,
}

impl Blocked {
    fn all() -> Blocked {
        // SAFETY: both sets are plain memory that the calls fill; a mask only concerns the calling thread.
        unsafe {
            let mut all = std::mem::zeroed();
            let mut before = std::mem::zeroed();
            libc::sigfillset(&mut all);
            libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before);
            Blocked { before }
        }
    }
}

impl Drop for Blocked {
    fn drop(&mut self) {
        // SAFETY: `before` was filled by the kernel.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.before, std::ptr::null_mut()) };
    }
}

/// Stacks grow downwards, from an address that is a multiple of 16.
fn top(stack: &mut [u8]) -> *mut libc::c_void {
    let end = stack.as_mut_ptr_range().end;
    let past = end.addr() % 16;
    end.wrapping_sub(past).cast()
}

fn pointers(texts: &[CString]) -> Vec<*const libc::c_char> {
    texts.iter().map(|text| text.as_ptr()).chain([std::ptr::null()]).collect()
}

fn environment(variables: &[(String, String)]) -> io::Result<Vec<CString>> {
    let ours = vars_os().filter(|(name, _)| !variables.iter().any(|(other, _)| name == other.as_str()));
    let ours = ours.filter(|(name, _)| !SECRETS.iter().any(|secret| name == secret));
    let theirs = variables.iter().map(|(name, value)| (OsString::from(name), OsString::from(value)));
    let entry = |(name, value): (OsString, OsString)| {
        CString::new([name.as_bytes(), b"=", value.as_bytes()].concat()).map_err(io::Error::from)
    };
    ours.chain(theirs).map(entry).collect()
}

/// A name without a directory is looked for where the user's programs are.
fn find(program: &str) -> PathBuf {
    if !program.contains('/')
        && let Some(found) = std::env::var_os("PATH")
            .and_then(|path| split_paths(&path).map(|place| place.join(program)).find(|file| file.is_file()))
    {
        return found;
    }
    Path::new(program).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::poll;
    use rustix::event::{PollFd, PollFlags};
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
    use rustix::process::{WaitOptions, waitpid};
    use std::time::Duration;

    fn sh(script: &str) -> (io::Result<Detached>, OwnedFd) {
        let (ours, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap();
        let command = ["sh", "-c", script].map(String::from);
        let variables = [("PACELINE_DETACHED_TEST".into(), "yes".into())];
        (start(&command, &variables, theirs), ours)
    }

    fn read_all(socket: &OwnedFd) -> String {
        let mut text = Vec::new();
        let mut piece = [0; 256];
        loop {
            match rustix::io::read(socket, &mut piece).unwrap() {
                0 => return String::from_utf8(text).unwrap(),
                length => text.extend_from_slice(&piece[..length]),
            }
        }
    }

    #[test]
    fn it_is_not_our_child_and_leads_a_group() {
        let (started, socket) =
            sh("echo $PACELINE_DETACHED_TEST $$ $(ps -o pgid= -p $$ 2>/dev/null || echo -) >&0");
        let started = started.unwrap();
        let said = read_all(&socket);
        let words: Vec<&str> = said.split_whitespace().collect();
        assert_eq!(words[..2], ["yes", &started.pid().as_raw_nonzero().to_string()]);
        assert!(words.get(2).is_none_or(|group| *group == "-" || *group == words[1]), "{said}");
        let mut ended = [PollFd::new(&started.process, PollFlags::IN)];
        poll::wait(&mut ended, Some(Duration::from_secs(10))).unwrap();
        assert!(!ended[0].revents().is_empty(), "its end is seen");
        assert!(waitpid(Some(started.pid()), WaitOptions::NOHANG).is_err(), "it is no child of ours");
    }

    #[test]
    fn it_can_be_killed() {
        let (started, _socket) = sh("sleep 60");
        let started = started.unwrap();
        started.kill();
        let mut ended = [PollFd::new(&started.process, PollFlags::IN)];
        poll::wait(&mut ended, Some(Duration::from_secs(10))).unwrap();
        assert!(!ended[0].revents().is_empty());
    }

    #[test]
    fn a_program_that_is_not_there_is_an_error() {
        let (_ours, theirs) = crate::fds::pair().unwrap();
        let error = start(&["/no/such/program".into()], &[], theirs).err().unwrap();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }
}
