//! The program as its own zygote and slots.
//!
//! A node starts this same program again, with a word that no user types as its first argument and a variable, and
//! with its link as standard input. [`init`] sees that and never returns (RS-1).

use super::task::{self, Run};
use super::{current, nested};
use crate::exchange::{self, ARGUMENT, Failure, NAMED, VARIABLE, chunk};
use crate::{Here, Outcome, Start, Ticket};
use paceline_net::fork::{self, Forked};
use paceline_proto::data::{Call, Environment, Status};
use paceline_proto::{Bytes, FunctionId, Seq};
use paceline_slot::zygote::{Birth, Wanted, Zygote};
use paceline_slot::{Next, Runtime};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{Mode, OFlags, open};
use rustix::stdio::dup2_stdin;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::convert::Infallible;
use std::io::{self, Write};
use std::panic::{self, AssertUnwindSafe};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, Ordering};

static INITIALISED: AtomicBool = AtomicBool::new(false);

/// Let this program be its own slots: make it the first line of `main`, before any thread is started and any argument
/// looked at. In the program that the user started it returns at once; in its slot processes it never does.
pub fn init() {
    if INITIALISED.swap(true, Ordering::SeqCst) {
        return;
    }
    if !is_zygote() {
        return fork::call_in_children(crate::after_fork_in_child);
    }
    let Err(error) = be_zygote();
    eprintln!("paceline: the zygote has failed: {error}");
    std::process::exit(1)
}

pub(crate) fn initialised() -> bool {
    INITIALISED.load(Ordering::SeqCst)
}

/// How a node starts the zygote: the program that runs now, whatever has become of its file since.
pub(crate) fn command() -> Vec<String> {
    vec!["/proc/self/exe".into(), ARGUMENT.into()]
}

pub(crate) fn variables() -> Vec<(String, String)> {
    vec![(VARIABLE.into(), "1".into())]
}

/// The same for nodes that know the program by its path.
pub(crate) fn start() -> Start {
    let mut command = command();
    if let (Some(program), Ok(path)) = (command.first_mut(), std::env::current_exe()) {
        *program = path.to_string_lossy().into_owned();
    }
    Start { command, variables: variables() }
}

pub(crate) fn name_bytes(name: &str) -> Bytes {
    [&[NAMED], name.as_bytes()].concat().into()
}

/// The variable alone says nothing: what a task starts inherits it.
fn is_zygote() -> bool {
    let arguments = std::env::args_os().skip(1);
    std::env::var_os(VARIABLE).is_some() && arguments.eq([ARGUMENT, "0"])
}

fn be_zygote() -> io::Result<Infallible> {
    let _ = rustix::thread::set_name(c"zygote");
    let mut zygote = Zygote::new(take_input()?)?;
    while let Wanted::Fork(birth) = zygote.next(None)? {
        match fork::fork() {
            Ok(Forked::Parent(pid)) => zygote.forked(birth, pid)?,
            Ok(Forked::Child) => be_slot(zygote, birth),
            Err(error) => {
                eprintln!("paceline: a slot could not be forked: {error}");
                zygote.not_forked(birth, error.raw_os_error().unwrap_or(1));
            }
        }
    }
    std::process::exit(0)
}

/// The link is standard input, which user code is to find empty.
fn take_input() -> io::Result<OwnedFd> {
    let link = io::stdin().as_fd().try_clone_to_owned()?;
    dup2_stdin(open(c"/dev/null", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?)?;
    Ok(link)
}

fn be_slot(zygote: Zygote, birth: Birth) -> ! {
    let _ = rustix::thread::set_name(c"slot");
    let started = birth.become_slot(zygote).and_then(|(slot, control, page)| {
        fork::hear_interrupts();
        fork::call_in_children(after_fork_in_slot);
        keep_panics();
        current::is_slot(slot);
        Runtime::start(slot, control, page)
    });
    match started {
        Ok(runtime) => {
            Slot { runtime: current::be(runtime), known: HashMap::new(), bound: false }.serve();
            std::process::exit(0)
        }
        Err(error) => {
            eprintln!("paceline: a slot could not start: {error}");
            std::process::exit(1)
        }
    }
}

/// Neither the slot nor what it has submitted is the child's.
fn after_fork_in_slot() {
    paceline_slot::after_fork_in_child();
    crate::after_fork_in_child();
}

struct Slot {
    runtime: &'static Runtime,
    known: HashMap<FunctionId, Option<Run>>,
    /// It has been told where it is.
    bound: bool,
}

impl Slot {
    fn serve(mut self) {
        let mut finished = None;
        loop {
            match self.runtime.advance(finished.take()) {
                Some(Next::Call(call)) => {
                    finished = Some(self.run(&call));
                    if paceline_slot::is_forked_child() {
                        // The function forked and returned in the child, too. Only its parent answers.
                        return;
                    }
                }
                Some(Next::Environment(environment)) => self.bind(&environment),
                Some(Next::Exit) => return,
                None => self.runtime.wait(),
            }
        }
    }

    fn bind(&mut self, environment: &Environment) {
        current::is_bound(environment);
        if let Some(session) = nested::opened() {
            session.set_environment(environment.clone());
        }
        if !self.runtime.is_far() {
            enter(environment.directory.as_ref());
        } else if !self.bound {
            match paceline_slot::private_directory() {
                Ok(own) => enter(&own),
                Err(error) => eprintln!("paceline: no directory can be made for this slot: {error}"),
            }
        }
        if std::mem::replace(&mut self.bound, true) {
            // User code may have threads by now, so its variables stay what they are.
            return;
        }
        for (name, value) in self.runtime.device_variables() {
            fork::set_variable(name, &value);
        }
        // The client names those that its user has not set; how many there are is known only here.
        let threads = self.runtime.needs().map_or(1, |needs| needs.threads()).to_string();
        for (name, value) in &environment.variables {
            let ours = value.is_empty() && paceline_slot::THREAD_COUNTS.contains(&name.as_str());
            fork::set_variable(name, if ours { &threads } else { value });
        }
    }

    fn run(&mut self, call: &Call) -> (Seq, Status, Bytes) {
        current::runs(Some((call.task, call.attempt)));
        let result = match self.task(call.function) {
            Some(run) => apply(run, &call.payload),
            None => Err(Failure::NoSuchTask { known: task::exported() }),
        };
        current::runs(None);
        if let Some(session) = nested::opened()
            && !self.runtime.keeps()
        {
            // What the task did not wait for ends with it; what an object submitted, with the object.
            session.cancel_pending();
        }
        // What a task has printed is not to wait for the next one.
        let _ = io::stdout().flush();
        let (status, payload) = ended(result);
        (call.seq, status, payload)
    }

    fn task(&mut self, id: FunctionId) -> Option<Run> {
        if let Some(known) = self.known.get(&id) {
            return *known;
        }
        let run = find(&self.runtime.function(id)?);
        self.known.insert(id, run);
        run
    }
}

/// What the bytes of a function name.
fn find(bytes: &[u8]) -> Option<Run> {
    static TASKS: LazyLock<HashMap<&'static str, Run>> =
        LazyLock::new(|| task::registry().unwrap_or_default());
    let name = std::str::from_utf8(bytes.strip_prefix(&[NAMED])?).ok()?;
    TASKS.get(name).copied()
}

/// What to answer.
fn ended(result: Result<Bytes, Failure>) -> (Status, Bytes) {
    match result {
        Ok(value) => (Status::Value, value),
        Err(failure) => match failure.encode() {
            Ok(bytes) => (Status::Raised, bytes.into()),
            Err(message) => (Status::Unsendable, message.into()),
        },
    }
}

/// Run a task in the middle of another that waits for it.
pub(crate) fn run_here(here: &Here<Ticket>) -> Outcome {
    let outer = current::runs(Some((here.task, here.attempt)));
    let result = match find(&here.bytes) {
        Some(run) => apply(run, &here.payload),
        None => Err(Failure::NoSuchTask { known: task::exported() }),
    };
    current::runs(outer);
    match ended(result) {
        (Status::Value, value) => Outcome::Value(value),
        (Status::Raised, failure) => Outcome::Raised(failure),
        (_, message) => Outcome::Unsendable(message),
    }
}

/// Call the function as the payload says.
fn apply(run: Run, payload: &[u8]) -> Result<Bytes, Failure> {
    match payload.split_first() {
        Some((&exchange::CALL, arguments)) => caught(run, arguments),
        Some((&exchange::EACH, each)) => apply_each(run, each),
        _ => Err(Failure::Arguments { message: "the call is malformed".into() }),
    }
}

fn apply_each(run: Run, each: &[u8]) -> Result<Bytes, Failure> {
    let mut values = Vec::new();
    for arguments in chunk::iter(each) {
        let arguments =
            arguments.ok_or_else(|| Failure::Arguments { message: "the list of calls is cut off".into() })?;
        let value = caught(run, arguments)?;
        let write = |out: &mut Vec<u8>| {
            out.extend_from_slice(&value);
            Ok(())
        };
        chunk::push(&mut values, write, || Failure::Value { message: "it has more than 4 GiB".into() })?;
        if current::is_cancelled() {
            // Nobody waits for the rest.
            break;
        }
    }
    Ok(values.into())
}

thread_local! {
    /// Where the last panic of this thread was.
    static PANICKED_AT: RefCell<String> = const { RefCell::new(String::new()) };
    /// A call runs in this thread.
    static CALLS: Cell<bool> = const { Cell::new(false) };
}

/// Panics of tasks are told to the caller; those of other threads are printed as ever.
fn keep_panics() {
    let print = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        if !CALLS.get() {
            return print(info);
        }
        let location = info.location().map(ToString::to_string).unwrap_or_default();
        PANICKED_AT.with_borrow_mut(|at| *at = location);
    }));
}

/// RS-2: whatever the function does short of ending the process, the slot goes on.
fn caught(run: Run, arguments: &[u8]) -> Result<Bytes, Failure> {
    // One that waits may run another in between.
    let outer = CALLS.replace(true);
    let result = panic::catch_unwind(AssertUnwindSafe(|| run(arguments)));
    CALLS.set(outer);
    result.unwrap_or_else(|payload| {
        let message = match (payload.downcast_ref::<&str>(), payload.downcast_ref::<String>()) {
            (Some(text), _) => (*text).to_owned(),
            (None, Some(text)) => text.clone(),
            (None, None) => "a value that is no text".to_owned(),
        };
        // Dropping a payload may panic once more.
        std::mem::forget(payload);
        Err(Failure::Panicked { message, location: PANICKED_AT.take() })
    })
}

fn enter(directory: &std::path::Path) {
    if let Err(error) = std::env::set_current_dir(directory) {
        eprintln!("paceline: cannot go to {}: {error}", directory.display());
    }
}
