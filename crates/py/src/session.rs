//! A connection to one cluster.

use crate::ending;
use crate::files;
use crate::function::{Function, Terms};
use crate::group::Group;
use crate::guest::{self, Guest};
use crate::pool::Pool;
use crate::wire::Wire;
use crate::{slot, waiting};
use paceline::remote::{self, Password};
use paceline::{
    Limits, Part, Patience, PoolSpec, ProgramId, Resources, Rule, Search, Shape, Start, Within, embedded,
    exchange, hardware,
};
use paceline_proto::control::Stream;
use paceline_proto::data::Environment;
use paceline_proto::placement::Order;
use paceline_proto::work::{self, Command, Directory};
use paceline_proto::{ExclusiveId, PlacementId, Work};
use pyo3::exceptions::{PyException, PyOSError, PyRuntimeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

pyo3::create_exception!(_native, Unreached, PyException, "No connection: why, and what to do about it.");
/// Order, one per node, labels, nodes, nodes that will not do, memory of GPUs.
type Placement = (String, bool, Vec<(String, String)>, Vec<String>, Vec<String>, u64);

/// Something that a user chose is longer than it may be: said before it is sent.
fn too_long(error: paceline_proto::Error) -> PyErr {
    PyValueError::new_err(error.to_string())
}

fn rule(placement: Placement) -> PyResult<Rule> {
    let (order, one_per_node, labels, nodes, not_nodes, gpu_memory) = placement;
    let order = if order == "pack" { Order::Pack } else { Order::Spread };
    let rule = Rule { order, one_per_node, labels, nodes, not_nodes, gpu_memory, ..Rule::default() };
    rule.check().map_err(too_long)?;
    Ok(rule)
}

/// What a task asks for, as Python says it.
struct Needs<'a> {
    cpus: f64,
    gpus: f64,
    memory: u64,
    resources: &'a [(String, f64)],
}

impl Needs<'_> {
    fn resources(&self) -> PyResult<Resources> {
        for (name, _) in self.resources {
            paceline_proto::limits::name("name of a resource", name).map_err(too_long)?;
        }
        let parts = [Part::Cpus(self.cpus), Part::Gpus(self.gpus), Part::Memory(self.memory)];
        let custom = self.resources.iter().map(|(name, amount)| Part::Custom(name, *amount));
        parts.into_iter().chain(custom).try_fold(Resources::default(), |needs, part| {
            needs
                .with(part)
                .ok_or_else(|| PyValueError::new_err(format!("this cannot be asked for: {part:?}")))
        })
    }
}

#[pyclass(frozen, module = "paceline._native")]
pub struct Session {
    inner: paceline::Session,
    variables: Vec<(String, String)>,
}

#[pymethods]
impl Session {
    #[staticmethod]
    #[pyo3(signature = (*, cpus, spares, command, directory, path, environment, queue_tasks, queue_bytes, result_bytes, gpus="auto", memory="auto", resources=vec![], object_memory=None))]
    #[expect(clippy::too_many_arguments, reason = "they are keywords on the other side")]
    fn embedded(
        cpus: u64,
        spares: u64,
        command: Vec<String>,
        directory: String,
        path: Vec<String>,
        environment: BTreeMap<String, String>,
        queue_tasks: Option<usize>,
        queue_bytes: Option<usize>,
        result_bytes: Option<usize>,
        gpus: &str,
        memory: &str,
        resources: Vec<(String, f64)>,
        object_memory: Option<&str>,
    ) -> PyResult<Session> {
        if cpus == 0 {
            return Err(PyValueError::new_err("a cluster needs at least one CPU"));
        }
        let variables: Vec<(String, String)> = environment.into_iter().collect();
        let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let name = if name.trim().is_empty() { "localhost" } else { name.trim() }.to_owned();
        let gpus = gpus.parse().map_err(|error: hardware::Error| PyValueError::new_err(error.to_string()))?;
        let memory =
            memory.parse().map_err(|error: hardware::NotASize| PyValueError::new_err(error.to_string()))?;
        let more = Needs { cpus: 0.0, gpus: 0.0, memory: 0, resources: &resources }.resources()?;
        let resources = resources.into_iter().map(|(name, _)| name).collect();
        let config = embedded::Config {
            cpus,
            gpus,
            memory,
            more,
            resources,
            spares,
            command,
            variables: Vec::new(),
            name,
            object_memory: object_memory
                .map(hardware::size)
                .transpose()
                .map_err(|error| PyValueError::new_err(error.to_string()))?,
        };
        let around = Environment { directory, path, variables: variables.clone(), files: 0 };
        let limits = limits(queue_tasks, queue_bytes, result_bytes);
        let inner = paceline::Session::embedded(config, around, Arc::new(enter), Arc::new(print), limits)
            .map_err(|error| match error.kind() {
                // The machine does not have what was asked for.
                io::ErrorKind::InvalidInput => PyValueError::new_err(error.to_string()),
                _ => PyOSError::new_err(error.to_string()),
            })?;
        Ok(Session { inner, variables })
    }

    /// A client of the cluster at an address.
    #[staticmethod]
    #[pyo3(signature = (*, address, name, password, key_file, python, directory, path, environment, files, queue_tasks, queue_bytes, result_bytes))]
    #[expect(clippy::too_many_arguments, reason = "they are keywords on the other side")]
    fn remote(
        py: Python<'_>,
        address: &str,
        name: String,
        password: Option<String>,
        key_file: Option<PathBuf>,
        python: (u8, u8, u8),
        directory: String,
        path: Vec<String>,
        environment: BTreeMap<String, String>,
        files: Option<Py<PyAny>>,
        queue_tasks: Option<usize>,
        queue_bytes: Option<usize>,
        result_bytes: Option<usize>,
    ) -> PyResult<Session> {
        let credentials = match (password, key_file) {
            (Some(password), _) => remote::Credentials::Password(Password::new(password)),
            (None, Some(path)) => remote::Credentials::KeyFile(path),
            (None, None) => remote::Credentials::Found,
        };
        let python = [python.0, python.1, python.2];
        let target = remote::Target::new(address, credentials, name, Some(python)).map_err(unreached)?;
        let variables: Vec<(String, String)> = environment.into_iter().collect();
        let around = Environment { directory, path, variables: variables.clone(), files: 0 };
        let limits = limits(queue_tasks, queue_bytes, result_bytes);
        let files = files.map(files::of_client);
        let connect =
            || paceline::Session::remote(target, around, files, Arc::new(enter), Arc::new(print), limits);
        let inner = ending::detach(py, connect).map_err(unreached)?;
        Ok(Session { inner, variables })
    }

    /// How the cluster stands, as its head tells it: JSON.
    fn cluster_status(&self, py: Python<'_>) -> PyResult<String> {
        let status = waiting::interruptible(py, |interrupted| self.inner.cluster_status(interrupted))?;
        status.map_err(|why| Unreached::new_err((why, String::new())))
    }

    /// The objects that this program has references to.
    fn objects(&self, py: Python<'_>) -> PyResult<crate::objects::Store> {
        crate::objects::of_session(py, &self.inner)
    }

    #[getter]
    fn cpus(&self) -> u64 {
        self.inner.cpus()
    }

    /// The session of this slot, for tasks that submit tasks. There is one, whoever asks.
    #[staticmethod]
    fn nested(
        directory: String,
        path: Vec<String>,
        environment: BTreeMap<String, String>,
        files: Option<Py<PyAny>>,
    ) -> PyResult<Session> {
        let variables: Vec<(String, String)> = environment.into_iter().collect();
        let inner = match slot::NESTED.get() {
            Some(session) => session.clone(),
            None => {
                let runtime = slot::runtime().ok_or_else(|| {
                    PyRuntimeError::new_err("this process is no slot, so nothing can be nested in it")
                })?;
                if !runtime.is_own() {
                    return Err(PyRuntimeError::new_err(
                        "a function that another language called cannot submit tasks yet",
                    ));
                }
                let around = Environment { directory, path, variables: variables.clone(), files: 0 };
                let files = files::of_slot(runtime, files);
                let made = paceline::Session::nested(runtime.clone(), around, files, Arc::new(enter))
                    .map_err(|error| PyOSError::new_err(error.to_string()))?;
                slot::NESTED.get_or_init(|| made).clone()
            }
        };
        Ok(Session { inner, variables })
    }

    #[pyo3(signature = (payload, name, *, cpus, gpus, memory, resources, placement, wait, retries, retry_on, timeout, priority, program=None, env=vec![]))]
    #[expect(clippy::too_many_arguments, reason = "they are keywords on the other side")]
    fn function(
        &self,
        payload: &Bound<'_, PyBytes>,
        name: &str,
        cpus: f64,
        gpus: f64,
        memory: u64,
        resources: Vec<(String, f64)>,
        placement: Option<Placement>,
        wait: Option<f64>,
        retries: u32,
        retry_on: Vec<String>,
        timeout: Option<f64>,
        priority: i32,
        program: Option<&str>,
        env: Vec<(String, String)>,
    ) -> PyResult<Function> {
        let needs = Needs { cpus, gpus, memory, resources: &resources }.resources()?;
        resources.iter().for_each(|(name, _)| self.inner.resource_name(name));
        let rule = placement.map(rule).transpose()?;
        let placement = rule.map_or(PlacementId::ANY, |rule| self.inner.placement(rule));
        let (program, wire) = match program {
            None => (self.own_program(env)?, Wire::Pickle),
            Some(path) => {
                let mut start = exchange::start_of(path);
                start.variables.extend(env);
                start.check().map_err(too_long)?;
                (self.inner.program(start), Wire::Message)
            }
        };
        let shape = Shape { needs, program, placement };
        let terms = Terms { wait, retries, retry_on, timeout, priority };
        let made = terms.function(&self.inner, payload, name, shape, Within::Any)?;
        Ok(Function { wire, ..made })
    }

    #[pyo3(signature = (size, *, cpus, gpus, memory, resources, placement, env=vec![]))]
    #[expect(clippy::too_many_arguments, reason = "they are keywords on the other side")]
    fn group(
        &self,
        size: u32,
        cpus: f64,
        gpus: f64,
        memory: u64,
        resources: Vec<(String, f64)>,
        placement: Option<Placement>,
        env: Vec<(String, String)>,
    ) -> PyResult<Group> {
        let needs = Needs { cpus, gpus, memory, resources: &resources }.resources()?;
        resources.iter().for_each(|(name, _)| self.inner.resource_name(name));
        let rule = placement.map(rule).transpose()?.unwrap_or_default();
        Ok(Group::new(self.inner.clone(), self.inner.open_group(size, needs, self.own_program(env)?, rule)))
    }

    #[pyo3(signature = (size, *, eager, once=false, identity=None, restarts=None, owner_program=None, calls_per_slot=None, history=256_000_000, cpus, gpus, memory, resources, placement, env=vec![]))]
    #[expect(clippy::too_many_arguments, reason = "they are keywords on the other side")]
    fn pool(
        &self,
        size: u32,
        eager: bool,
        once: bool,
        identity: Option<&[u8]>,
        restarts: Option<u32>,
        owner_program: Option<String>,
        calls_per_slot: Option<u32>,
        history: usize,
        cpus: f64,
        gpus: f64,
        memory: u64,
        resources: Vec<(String, f64)>,
        placement: Option<Placement>,
        env: Vec<(String, String)>,
    ) -> PyResult<Pool> {
        if size == 0 || once && size != 1 || calls_per_slot == Some(0) {
            return Err(PyValueError::new_err("a pool has at least one slot, and an actor exactly one"));
        }
        let needs = Needs { cpus, gpus, memory, resources: &resources }.resources()?;
        resources.iter().for_each(|(name, _)| self.inner.resource_name(name));
        let rule = placement.map(rule).transpose()?.unwrap_or_default();
        let program = self.own_program(env)?;
        let actor = identity.map(guest::actor_of).transpose()?;
        let exclusive = actor.map(|actor| ExclusiveId(actor.0));
        let spec = PoolSpec {
            size,
            eager,
            once,
            exclusive,
            restarts,
            owner_program,
            calls_per_slot,
            history,
            needs,
            program,
            rule,
        };
        Ok(Pool::new(self.inner.clone(), self.inner.open_pool(spec)))
    }

    /// Have a program run, whatever becomes of this one.
    #[pyo3(signature = (name, arguments, *, directory, variables, input, restarts))]
    #[expect(clippy::too_many_arguments, reason = "they are keywords on the other side")]
    fn submit_program(
        &self,
        py: Python<'_>,
        name: String,
        arguments: Vec<String>,
        directory: String,
        variables: Vec<(String, String)>,
        input: Vec<u8>,
        restarts: u32,
    ) -> PyResult<()> {
        let directory = Directory::Rather(directory);
        let start = work::to_bytes(&Command { arguments, directory, variables, input });
        let mut token = [0; 16];
        embedded::fill_random(&mut token).map_err(|error| PyOSError::new_err(error.to_string()))?;
        let token = u128::from_le_bytes(token);
        let (needs, resources) = (Resources::default(), Vec::new());
        let work = Work { token, name, needs, resources, restarts, start };
        let submitted =
            waiting::interruptible(py, |interrupted| self.inner.submit_program(work, interrupted))?;
        submitted.map(drop).map_err(|why| guest::refused(py, why))
    }

    /// End a submitted program. Why nobody has said that it will, if so; the head is told in any case that can hear it.
    #[pyo3(signature = (name, within=5.0))]
    fn stop_program(&self, py: Python<'_>, name: &str, within: f64) -> PyResult<Option<String>> {
        let within = waiting::timeout(Some(within)).unwrap_or(Duration::ZERO);
        let stop = |interrupted: &mut dyn FnMut() -> bool| self.inner.stop_program(name, within, interrupted);
        Ok(waiting::interruptible(py, stop)?.err())
    }

    /// Have a name for an actor that is about to be made.
    #[pyo3(signature = (actor, *, name, about=vec![], program=None))]
    fn claim_actor(
        &self,
        py: Python<'_>,
        actor: &[u8],
        name: &str,
        about: Vec<u8>,
        program: Option<String>,
    ) -> PyResult<()> {
        guest::claim(py, &self.inner, actor, name, about, program)
    }

    /// End an actor, whoever has it.
    fn actor_gone(&self, actor: &[u8], why: &str) -> PyResult<()> {
        self.inner.end_actor(guest::actor_of(actor)?, why);
        Ok(())
    }

    /// A handle to an actor of somebody else's.
    fn visit(&self, actor: &[u8]) -> PyResult<Guest> {
        Ok(Guest::new(self.inner.clone(), guest::actor_of(actor)?))
    }

    /// The actor of this name, and what its owner says of it.
    #[pyo3(signature = (name, within=10.0))]
    fn find_actor<'py>(
        &self,
        py: Python<'py>,
        name: &str,
        within: f64,
    ) -> PyResult<Option<(Bound<'py, PyBytes>, Bound<'py, PyBytes>)>> {
        let within = waiting::timeout(Some(within)).unwrap_or(Duration::ZERO);
        let bytes = |bytes: &[u8]| PyBytes::new(py, bytes);
        Ok(match self.search_actor(py, name, within)? {
            Search::Found((actor, about)) => Some((bytes(&actor.0.to_le_bytes()), bytes(&about))),
            Search::Coming | Search::Absent { .. } => None,
        })
    }

    /// Whether an actor of this name is about to come, though nobody has it now.
    fn actor_comes(&self, py: Python<'_>, name: &str) -> PyResult<bool> {
        Ok(self.search_actor(py, name, Duration::ZERO)? == Search::Coming)
    }

    /// What became of the last actor of this name, if there is none now and the head knows.
    fn why_actor_gone(&self, py: Python<'_>, name: &str) -> PyResult<Option<String>> {
        Ok(match self.search_actor(py, name, Duration::ZERO)? {
            Search::Absent { gone } => gone,
            Search::Found(_) | Search::Coming => None,
        })
    }

    /// How much this program counts when there is not enough for all.
    fn set_standing(&self, weight: u32, priority: i32) {
        self.inner.set_standing(weight, priority);
    }

    /// Tell slots about the directory and the path; `files`: how often the files of the code have changed.
    fn refresh(&self, directory: String, path: Vec<String>, files: u64) {
        let variables = self.variables.clone();
        self.inner.set_environment(Environment { directory, path, variables, files });
    }

    /// Look at the files of the code again, and deliver what is new where others were delivered. False: nowhere.
    fn refresh_files(&self, py: Python<'_>) -> bool {
        ending::detach(py, || self.inner.refresh_files())
    }

    fn status<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let status = self.inner.status();
        let slots = status
            .slots
            .iter()
            .map(|slot| {
                let entry = PyDict::new(py);
                entry.set_item("slot", slot.slot.0)?;
                entry.set_item("pid", slot.pid)?;
                entry.set_item("state", slot.state)?;
                if let Some(signal) = &slot.stopped {
                    entry.set_item("stopped", signal)?;
                }
                Ok(entry)
            })
            .collect::<PyResult<Vec<_>>>()?;
        let node = PyDict::new(py);
        node.set_item("name", &status.name)?;
        node.set_item("cpus", self.inner.cpus())?;
        node.set_item("slots", slots)?;
        let objects = PyDict::new(py);
        objects.set_item("count", status.objects.objects)?;
        objects.set_item("memory", status.objects.used)?;
        objects.set_item("limit", status.objects.limit)?;
        objects.set_item("disk", status.objects.on_disk)?;
        objects.set_item("waiting", status.objects.waiting)?;
        node.set_item("objects", objects)?;
        let all = PyDict::new(py);
        all.set_item("nodes", vec![node])?;
        all.set_item("queued", self.inner.queued())?;
        Ok(all)
    }

    #[getter]
    fn closed(&self) -> bool {
        self.inner.is_closed()
    }

    /// Waits for the callbacks that are there. The first signal whose handler raises ends all but the one that runs, the
    /// second leaves that behind; the first error is raised.
    fn close(&self, py: Python<'_>) -> PyResult<usize> {
        let (mut raised, mut count) = (None, 0);
        let patience = || {
            if let Err(error) = ending::attach(|py| py.check_signals()) {
                raised.get_or_insert(error);
                count += 1;
            }
            match count {
                // Nothing of Python runs in other threads any more.
                _ if ending::is_finalizing() => Patience::None,
                0 => Patience::All,
                1 => Patience::Running,
                _ => Patience::None,
            }
        };
        let cancelled = ending::detach(py, || self.inner.close_with(patience));
        raised.map_or(Ok(cancelled), Err)
    }
}

impl Session {
    fn search_actor(&self, py: Python<'_>, name: &str, within: Duration) -> PyResult<Search> {
        let found =
            waiting::interruptible(py, |interrupted| self.inner.find_actor(name, within, interrupted))?;
        found.map_err(|why| Unreached::new_err((why, String::new())))
    }

    /// This program, with these variables in the environment of its slots.
    fn own_program(&self, env: Vec<(String, String)>) -> PyResult<ProgramId> {
        if env.is_empty() {
            return Ok(ProgramId::OWN);
        }
        let start = Start { command: Vec::new(), variables: env };
        start.check().map_err(too_long)?;
        Ok(self.inner.program(start))
    }
}

/// This process has the session. In one that was forked from it nobody would ever answer, and a lock of the session's may
/// be held by a thread that is not there.
#[inline]
pub fn check_own(py: Python<'_>, session: &paceline::Session) -> PyResult<()> {
    if session.is_foreign() { Err(forked(py)) } else { Ok(()) }
}

/// Something of the process that this one was forked from was used here.
#[cold]
pub fn forked(py: Python<'_>) -> PyErr {
    let made = py.import(intern!(py, "paceline.errors")).and_then(|errors| {
        let options = PyDict::new(py);
        options.set_item("hint", FORKED_HINT)?;
        errors.getattr(intern!(py, "NotConnected"))?.call((FORKED,), Some(&options))
    });
    made.map_or_else(|error| error, PyErr::from_value)
}

const FORKED: &str = "this process was forked from the one that is connected, whose futures, actors and references cannot be \
                      used here";
const FORKED_HINT: &str = "make new ones here: the first call connects this process by itself; or use them in the process that made them";

fn limits(queue_tasks: Option<usize>, queue_bytes: Option<usize>, result_bytes: Option<usize>) -> Limits {
    let usual = Limits::default();
    Limits {
        queue_tasks: queue_tasks.unwrap_or(usual.queue_tasks),
        queue_bytes: queue_bytes.unwrap_or(usual.queue_bytes),
        result_bytes,
        warn: Arc::new(warn),
    }
}

/// What happened, and what to do about it, apart.
fn unreached(error: remote::Error) -> PyErr {
    let text = error.to_string();
    let (message, hint) = text.split_once("\nhint: ").unwrap_or((&text, ""));
    Unreached::new_err((message.to_owned(), hint.to_owned()))
}

/// The text of an address as everybody writes it. Looks nothing up.
#[pyfunction]
pub fn parse_address(text: &str) -> PyResult<String> {
    let target = remote::Target::new(text, remote::Credentials::Found, "", None);
    target.map(|target| target.address()).map_err(|error| PyValueError::new_err(error.to_string()))
}

/// One entry into Python for a round of callbacks.
fn enter(run: &mut dyn FnMut()) {
    ending::attach(|_| run());
}

fn print(slot: paceline_proto::SlotId, stream: Stream, text: Vec<u8>) {
    let stream = match stream {
        Stream::Out => 1,
        Stream::Err => 2,
    };
    ending::attach(|py| {
        let printed = py.import(intern!(py, "paceline._output")).and_then(|module| {
            module.getattr(intern!(py, "emit"))?.call1((slot.0, stream, PyBytes::new(py, &text)))
        });
        if let Err(error) = printed {
            error.write_unraisable(py, None);
        }
    });
}

pub fn warn(text: &str) {
    ending::attach(|py| {
        let warned = py
            .import(intern!(py, "paceline._output"))
            .and_then(|module| module.getattr(intern!(py, "warn"))?.call1((text,)));
        if let Err(error) = warned {
            error.write_unraisable(py, None);
        }
    });
}

/// Close what a forked child must not hold, and forget every session of the parent.
#[pyfunction]
pub fn after_fork_in_child() {
    paceline::after_fork_in_child();
}
