//! A cluster as a Rust program uses it.

use super::nested::{self, Nested};
use super::runner::{Functions, Runner};
use super::target::Target as Call;
use super::task::{self, Task};
use super::{Configured, Error, Future, Options, Result, current, slot_main};
use crate::embedded::{Config, Status};
use crate::remote::{Credentials, Target};
use crate::{Limits, ProgramId, Resources, Session};
use paceline_node::hardware::{self, Gpus, Memory};
use paceline_proto::SlotId;
use paceline_proto::control::Stream;
use paceline_proto::data::Environment;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;

/// Slots kept ready beyond the CPUs, so that one that dies is replaced at once.
const SPARES: u64 = 1;

/// A cluster inside this process: its slots are processes of this same program. Share it by reference or in an `Arc`;
/// dropping it cancels what is pending and ends every process it has started.
pub struct Cluster {
    pub(crate) session: Session,
    pub(crate) functions: Arc<Functions>,
    /// What runs Python functions, if somebody said so.
    pub(crate) interpreter: Option<PathBuf>,
    /// What its tasks are functions of: this program, as the cluster knows it.
    pub(crate) program: ProgramId,
    /// It ends with this. That of a task does not.
    owned: bool,
}

/// How large a cluster is to be.
#[derive(Clone, Default, Debug)]
#[must_use = "start() starts it"]
pub struct Builder {
    cpus: Option<u64>,
    gpus: Gpus,
    memory: Memory,
    name: Option<String>,
    queue_tasks: Option<usize>,
    queue_bytes: Option<usize>,
    result_bytes: Option<usize>,
    python: Option<PathBuf>,
}

impl Builder {
    /// How many tasks run at once, each in a process of its own. All CPUs this process may use, unless told.
    pub fn cpus(self, cpus: u64) -> Builder {
        Builder { cpus: Some(cpus), ..self }
    }

    /// Which GPUs of this machine tasks may have; by default all.
    pub fn gpus(self, gpus: Gpus) -> Builder {
        Builder { gpus, ..self }
    }

    /// How much memory tasks may have together; by default as much as this process may use.
    pub fn memory(self, memory: Memory) -> Builder {
        Builder { memory, ..self }
    }

    /// What the cluster is called in its status.
    pub fn name(self, name: impl Into<String>) -> Builder {
        Builder { name: Some(name.into()), ..self }
    }

    /// How many tasks may wait to be sent to a slot (100,000). Beyond, submitting waits.
    pub fn queue_tasks(self, tasks: usize) -> Builder {
        Builder { queue_tasks: Some(tasks), ..self }
    }

    /// How many bytes their arguments may have together (256,000,000). Beyond, submitting waits.
    pub fn queue_bytes(self, bytes: usize) -> Builder {
        Builder { queue_bytes: Some(bytes), ..self }
    }

    /// How many bytes of results may be in memory before somebody asks for them (a quarter of the memory that this
    /// process may use). Beyond, large ones are in a file without a name, under `TMPDIR`.
    pub fn result_bytes(self, bytes: usize) -> Builder {
        Builder { result_bytes: Some(bytes), ..self }
    }

    fn limits(&self) -> Limits {
        let Limits { queue_tasks, queue_bytes, warn, .. } = Limits::default();
        Limits {
            queue_tasks: self.queue_tasks.unwrap_or(queue_tasks).max(1),
            queue_bytes: self.queue_bytes.unwrap_or(queue_bytes),
            result_bytes: self.result_bytes,
            warn,
        }
    }

    /// The interpreter that runs Python functions; see [`Cluster::python`].
    pub fn python(self, interpreter: impl Into<PathBuf>) -> Builder {
        Builder { python: Some(interpreter.into()), ..self }
    }

    /// Start it. Returns at once: slots come up in the background.
    pub fn start(self) -> Result<Cluster> {
        prepare()?;
        let cpus = self.cpus.unwrap_or_else(hardware::usable_cpus);
        if cpus == 0 {
            return Err(Error::NotANumberOfCpus { cpus: 0.0 });
        }
        let limits = self.limits();
        let config = Config {
            more: Resources::default(),
            resources: Vec::new(),
            cpus,
            gpus: self.gpus,
            memory: self.memory,
            spares: SPARES,
            command: slot_main::command(),
            variables: slot_main::variables(),
            name: self.name.unwrap_or_else(|| "embedded".into()),
            object_memory: None,
        };
        let around = surroundings()?;
        let session = Session::embedded(config, around, Arc::new(|run| run()), Arc::new(print), limits)
            .map_err(|error| Error::Start(Arc::new(error)))?;
        Ok(Cluster::new(session, self.python, ProgramId::OWN))
    }
}

impl Cluster {
    fn new(session: Session, interpreter: Option<PathBuf>, program: ProgramId) -> Cluster {
        Cluster { session, functions: Arc::default(), interpreter, program, owned: true }
    }

    /// The cluster that this task, or the actor whose method this is, runs on: tasks submit tasks and make actors there. What a
    /// task has submitted and does not wait for ends with it. While it waits, its CPUs are others'.
    ///
    /// ```rust,standalone_crate
    /// use paceline::Cluster;
    ///
    /// #[paceline::task]
    /// fn fibonacci(n: u64) -> paceline::Result<u64> {
    ///     if n < 2 {
    ///         return Ok(n);
    ///     }
    ///     let cluster = Cluster::current()?;
    ///     let first = fibonacci::submit(&cluster, n - 1);
    ///     Ok(fibonacci::call(&cluster, n - 2)? + first.wait()?)
    /// }
    ///
    /// fn main() -> paceline::Result<()> {
    ///     paceline::init();
    ///     let cluster = Cluster::embedded().cpus(2).start()?;
    ///     assert_eq!(fibonacci::call(&cluster, 6)?, 8);
    ///     Ok(())
    /// }
    /// ```
    pub fn current() -> Result<Cluster> {
        let Nested { session, program, functions } = nested::open()?;
        let (session, functions) = (session.clone(), functions.clone());
        Ok(Cluster { session, functions, interpreter: None, program: *program, owned: false })
    }

    /// A cluster on this machine, with as many slots as there are usable CPUs.
    pub fn connect() -> Result<Cluster> {
        Cluster::embedded().start()
    }

    /// The cluster at an address, such as `10.0.0.5:7077`, or `auto` for the one of this user on this machine. Its nodes
    /// start this program by the path it has here, for slots that are processes of it.
    ///
    /// ```no_run
    /// # fn main() -> paceline::Result<()> {
    /// let cluster = paceline::Cluster::connect_to("10.0.0.5:7077", paceline::Credentials::Found)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn connect_to(address: &str, credentials: Credentials) -> Result<Cluster> {
        prepare()?;
        let name = std::env::current_exe().ok().and_then(|path| Some(path.file_name()?.to_owned()));
        let name = name.map_or_else(String::new, |name| name.to_string_lossy().into_owned());
        let failed = |error| Error::Connect(Arc::new(error));
        let target = Target::new(address, credentials, name, None).map_err(failed)?;
        let (around, limits) = (surroundings()?, Limits::default());
        let session = Session::remote(target, around, None, Arc::new(|run| run()), Arc::new(print), limits);
        let session = session.map_err(failed)?;
        let program = session.program(slot_main::start());
        Ok(Cluster::new(session, None, program))
    }

    /// A cluster inside this process, of a size to be chosen.
    pub fn embedded() -> Builder {
        Builder::default()
    }

    /// Run a task and wait for its value.
    pub fn call<T: Task>(&self, arguments: T::Arguments) -> Result<T::Output> {
        Configured::<T>::new().call(self, arguments)
    }

    /// Have a task run; its value comes with the future. What stands in the way of submitting it does, too. Waits while
    /// more tasks than may be have not been sent to a slot ([`Builder::queue_tasks`]); in a callback or a task, which
    /// must not wait, that is [`Error::QueueFull`].
    pub fn submit<T: Task>(&self, arguments: T::Arguments) -> Future<T::Output> {
        Configured::<T>::new().submit(self, arguments)
    }

    /// As [`Cluster::submit`], but never waits: with no room for one more, this fails with [`Error::QueueFull`].
    pub fn try_submit<T: Task>(&self, arguments: T::Arguments) -> Result<Future<T::Output>> {
        Configured::<T>::new().try_submit(self, arguments)
    }

    /// Run a task for each of these arguments and wait for all values, in the order of the arguments. The first that
    /// fails, in that order, ends the rest.
    pub fn map<T: Task>(&self, items: impl IntoIterator<Item = T::Arguments>) -> Result<Vec<T::Output>> {
        Configured::<T>::new().map(self, items)
    }

    /// How many CPUs it was started with.
    pub fn cpus(&self) -> u64 {
        self.session.cpus()
    }

    /// How things stand: its slots, their processes and states.
    pub fn status(&self) -> Status {
        self.session.status()
    }

    /// End it: what is pending is cancelled, and every process it has started is gone when this returns. Returns how
    /// many tasks were cancelled. Dropping it does the same. Nothing happens to that of a task.
    pub fn close(self) -> usize {
        if self.owned { self.session.close() } else { 0 }
    }
}

impl Runner for Cluster {
    fn target<T: Task>(&self, options: Options) -> Result<Call> {
        if self.session.is_closed() {
            return Err(Error::Closed);
        }
        let mut submission = options.submission(self.functions.of::<T>(&self.session))?;
        submission.shape.program = self.program;
        let (chunk, slots) = (options.chunk(), self.session.cpus() as usize);
        Ok(Call { session: self.session.clone(), submission, name: T::NAME, chunk, slots })
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if self.owned {
            self.session.close();
        }
    }
}

/// Whether this process may be the client of a cluster at all.
fn prepare() -> Result<()> {
    if current::in_slot() {
        return Err(Error::InSlot);
    }
    if !slot_main::initialised() {
        // Started again as a zygote, this program would start yet another one.
        return Err(Error::NotInitialised);
    }
    task::registry().map(drop).map_err(|name| Error::SameName { name })
}

/// Where user code finds itself.
pub(crate) fn surroundings() -> Result<Environment> {
    let directory = std::env::current_dir().map_err(|error| Error::Start(Arc::new(error)))?;
    let directory = directory.to_string_lossy().into_owned();
    // Python slots fill in how many there are, where the user has not said.
    let unset = paceline_slot::THREAD_COUNTS.iter().filter(|name| std::env::var_os(name).is_none());
    let variables = unset.map(|name| ((*name).to_owned(), String::new())).collect();
    Ok(Environment { directory, variables, ..Environment::default() })
}

/// Show what tasks print, with the number of the slot before each line.
fn print(slot: SlotId, stream: Stream, text: Vec<u8>) {
    let mut lines = Vec::with_capacity(text.len() + 16);
    for line in text.strip_suffix(b"\n").unwrap_or(&text).split(|byte| *byte == b'\n') {
        lines.extend_from_slice(format!("[slot {}] ", slot.0).as_bytes());
        lines.extend_from_slice(line);
        lines.push(b'\n');
    }
    // A terminal that is gone must not end the thread that also wakes everybody's futures.
    let _ = match stream {
        Stream::Out => io::stdout().write_all(&lines),
        Stream::Err => io::stderr().write_all(&lines),
    };
}
