//! A cluster inside this process: head and node as one background thread, and only the slots as processes.
//!
//! * EM-1: client, head and node talk over socket pairs with the messages they would exchange between machines.
//! * EM-2: starting returns at once; the rest happens in the background.
//! * EM-3: when this process ends, however it ends, so does everything it started.
//! * EM-5: when the control thread ends before it was told to, by a defect, everything that waits for the cluster ends with an
//!   error that says so.
//! * EM-4: a forked child of this process has no part in the cluster: what it does with its copy changes nothing.

use crate::host::{Host, Opened};
use paceline_core::node::stopping_signal;
use paceline_core::{head, node, objects};
use paceline_net::{fds, signals};
use paceline_node::{default_object_memory, hardware};
use paceline_proto::{ClusterId, Epoch, Facts, Incarnation, LeaseId, NodeId, Resources, SlotId, open};
use rustix::fd::OwnedFd;
use std::io;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

/// The node's number: there is one.
const NODE: NodeId = NodeId(1);

/// The control thread's stack; it calls nothing deep.
const STACK: usize = 512 << 10;

/// Head and node are one thread, so one that is not heard of in time is only busy, and so is the other: starting a thousand
/// slots on a machine that has other things to do takes its time. Nobody would open their link again.
const SILENCE: Duration = Duration::from_secs(3600);
/// The same in heartbeats.
const BEATS: u32 = 1800;

/// The parts bound their own ends to less than this together.
const SHUTDOWN_LIMIT: Duration = Duration::from_millis(2500);

/// How long the control thread may take to answer a question.
const ANSWER_LIMIT: Duration = Duration::from_secs(1);

/// The size of an embedded cluster.
#[derive(Clone, Debug)]
pub struct Config {
    pub cpus: u64,
    /// Which GPUs of this machine its tasks may have.
    pub gpus: hardware::Gpus,
    /// How much memory they may have together.
    pub memory: hardware::Memory,
    /// What else it has: custom resources.
    pub more: Resources,
    /// What its custom resources are called.
    pub resources: Vec<String>,
    /// Slots kept ready beyond the CPUs.
    pub spares: u64,
    /// Starts the zygote; the number of its socket is appended.
    pub command: Vec<String>,
    /// What the zygote finds in its environment on top of ours.
    pub variables: Vec<(String, String)>,
    pub name: String,
    /// How many bytes objects may have in memory; by default a part of what there is.
    pub object_memory: Option<u64>,
}

/// How things stand.
#[derive(Clone, Debug, Default)]
pub struct Status {
    pub name: String,
    pub slots: Vec<SlotStatus>,
    pub objects: objects::Status,
}

#[derive(Clone, Debug)]
pub struct SlotStatus {
    pub slot: SlotId,
    pub pid: Option<u32>,
    pub state: &'static str,
    /// The signal that its process was stopped by, if it stands still.
    pub stopped: Option<String>,
}

/// A running cluster. It ends with this.
pub struct Embedded {
    name: String,
    node: paceline_node::Handle,
    control: Option<OwnedFd>,
    thread: Option<Thread>,
}

/// The control thread.
struct Thread {
    /// The process it is a thread of.
    owner: u32,
    handle: JoinHandle<()>,
    /// Fails when it has ended.
    ended: mpsc::Receiver<()>,
}

/// What `PACELINE_STOPPED_LIMIT` says; 0 is for ever.
fn stopped_limit() -> Option<Duration> {
    let limit = crate::session::variable_seconds("PACELINE_STOPPED_LIMIT").unwrap_or(node::STOPPED_LIMIT);
    Some(limit).filter(|limit| !limit.is_zero())
}

impl Embedded {
    pub fn start(config: Config) -> io::Result<Embedded> {
        let mut random = [0; 48];
        fill_random(&mut random)?;
        let (cluster, secret) = random.split_first_chunk::<16>().expect("it is longer");
        let secret: [u8; 32] = secret.try_into().expect("the rest is as long");
        let cluster = ClusterId(u128::from_le_bytes(*cluster));
        let head_config = head::Config { beats: BEATS, ..head::Config::new(cluster, Epoch(1), secret) };
        let (head_service, head) = paceline_head::service(head_config);
        let settings = hardware::Settings {
            cpus: Some(config.cpus as f64),
            gpus: config.gpus,
            memory: config.memory,
            ..hardware::Settings::default()
        };
        let refused = |error| io::Error::new(io::ErrorKind::InvalidInput, error);
        let machine = hardware::find(&settings).map_err(refused)?;
        let mut node_config = node::Config {
            name: config.name.clone(),
            facts: Facts { resources: config.resources, ..Facts::default() },
            spares: config.spares,
            beats: BEATS,
            head_lost: SILENCE,
            stopped_limit: stopped_limit(),
            has_own_head: true,
            ..node::Config::new(NODE, Incarnation(1), config.more)
        };
        machine.describe(&mut node_config).map_err(refused)?;
        let memory = machine.memory;
        let options = paceline_node::Options {
            config: node_config,
            command: config.command,
            variables: config.variables,
            uplink: Arc::new({
                let head = head.clone();
                move |link, place| head.accept_slot(link, place)
            }),
            // There is one link, which ends with this process.
            headless: Arc::new(|| ()),
            answers: None,
            printed: None,
            limits: paceline_node::LinkLimits::default(),
            object_memory: config.object_memory.unwrap_or_else(|| default_object_memory(memory)),
            // It ends with this process, and no other has its id.
            descent: None,
            store: None,
        };
        let (node_service, node) = paceline_node::service(options);
        let (ours, theirs) = fds::pair()?;
        head.accept(theirs);
        let (node_end, head_end) = fds::pair()?;
        head.accept(head_end);
        node.join(node_end);
        paceline_net::fault::on_written("PACELINE_FAULT_CRASH_HEAD", {
            let head = head.clone();
            move || head.crash()
        });
        paceline_net::fault::on_written("PACELINE_FAULT_CRASH_NODE", {
            let node = node.clone();
            move || node.crash()
        });
        let (alive, ended) = mpsc::channel::<()>();
        let thread = std::thread::Builder::new().name("paceline-control".into()).stack_size(STACK);
        let handle = thread.spawn(move || {
            signals::block_all();
            run(head_service, head, node_service);
            drop(alive);
        })?;
        let thread = Thread { owner: std::process::id(), handle, ended };
        Ok(Embedded { name: config.name, node, control: Some(ours), thread: Some(thread) })
    }

    /// The client's end of its link to the head. There is one.
    pub fn control(&mut self) -> OwnedFd {
        self.control.take().expect("the client takes its end once")
    }

    /// A data connection for a lease.
    pub fn connect(&self, lease: LeaseId) -> io::Result<OwnedFd> {
        let (ours, theirs) = fds::pair()?;
        // A fresh socket takes so few bytes at once.
        rustix::io::write(&ours, &open::encode(lease))?;
        if self.node.offer(theirs) { Ok(ours) } else { Err(io::ErrorKind::NotConnected.into()) }
    }

    pub fn status(&self) -> Status {
        let (answer, status) = mpsc::channel();
        self.node.status(move |status, objects| drop(answer.send((status.slots, objects))));
        // The node answers at once, or is gone and the sender with it.
        let (slots, objects) = status.recv_timeout(ANSWER_LIMIT).unwrap_or_default();
        let slots = slots.into_iter().map(|slot| SlotStatus {
            slot: slot.slot,
            pid: slot.pid,
            state: slot.state.name(),
            stopped: slot.stopped.map(stopping_signal),
        });
        Status { name: self.name.clone(), slots: slots.collect(), objects }
    }

    /// Begin to end the cluster, without waiting. What slots still print comes over the control link, then its end.
    pub fn close(&self) {
        self.node.close();
    }

    /// End slots, zygote and thread. Bounded: what does not go is killed. Harmless when repeated.
    pub fn shutdown(&mut self) {
        let Some(Thread { owner, handle, ended }) = self.thread.take() else { return };
        if owner != std::process::id() {
            // EM-4: the thread is the parent's, and there is nothing here to wait for.
            std::mem::forget((handle, ended));
            return;
        }
        self.close();
        match ended.recv_timeout(SHUTDOWN_LIMIT) {
            Err(mpsc::RecvTimeoutError::Timeout) => {
                tracing::error!("the control thread does not end: its processes end with this one");
            }
            Ok(()) | Err(mpsc::RecvTimeoutError::Disconnected) => drop(handle.join()),
        }
    }
}

impl Host for Embedded {
    fn open(&mut self, lease: LeaseId) -> Opened {
        self.connect(lease).into()
    }

    fn reach_store(&mut self) -> Option<io::Result<OwnedFd>> {
        let link = fds::pair().and_then(|(ours, theirs)| match self.node.objects(theirs) {
            true => Ok(ours),
            false => Err(io::ErrorKind::NotConnected.into()),
        });
        Some(link)
    }

    fn status(&self) -> Status {
        Embedded::status(self)
    }

    fn close(&self) {
        Embedded::close(self);
    }

    fn shutdown(&mut self) {
        Embedded::shutdown(self);
    }
}

impl Drop for Embedded {
    fn drop(&mut self) {
        self.shutdown();
    }
}

/// The control thread: be head and node until the node ends.
fn run(
    head_service: paceline_head::Service,
    head: paceline_head::Handle,
    node_service: paceline_node::Service,
) {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        // The client sees the end of its control link.
        Err(error) => return tracing::error!(%error, "the control thread could not start"),
    };
    runtime.block_on(async {
        let node = async {
            node_service.run().await;
            // The node has said all it had to say; the head passes it on and ends too.
            head.close();
        };
        tokio::join!(head_service.run(), node);
    });
}

/// Random bytes from the kernel.
pub fn fill_random(bytes: &mut [u8]) -> io::Result<()> {
    let filled = rustix::rand::getrandom(&mut *bytes, rustix::rand::GetRandomFlags::empty())?;
    if filled == bytes.len() { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
}
