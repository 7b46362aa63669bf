//! The node of a daemon.

use super::door::{self, Open};
use super::join::{self, Dial};
use super::log::Log;
use super::plan::{NodePlan, Plan, Up};
use super::programs::Programs;
use super::python::Python;
use super::{End, head, random, seconds_since_1970, uplink};
use crate::failure::{Code, Failure, usage};
use paceline_core::node::Config;
use paceline_net::descent::Mark;
use paceline_net::fds;
use paceline_net::secure::{Accepted, Door, Introduction, Role, Secured, Serves};
pub use paceline_node::End as Over;
use paceline_node::hardware::{self, Gpus, Memory};
use paceline_node::{Answers, Handle, Headless, Options, Store, Uplink};
use paceline_proto::control::Timing;
use paceline_proto::question::NodeQuestion;
use paceline_proto::{Address, Incarnation, NodeId, Part, Resources};
use paceline_registry::{Lock, Node as Record, Place, machine};
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinHandle;

/// Slots kept ready beyond the CPUs.
const SPARES: u64 = 1;

/// How long what an earlier start has left may take to end, before that is said.
const LEFT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long the head may take to welcome the node, before the node is said to have joined all the same. It goes on trying.
const WELCOME_TIMEOUT: Duration = Duration::from_secs(5);
const WELCOME_POLL: Duration = Duration::from_millis(2);

pub struct Running {
    handle: Handle,
    service: JoinHandle<Over>,
    others: Vec<JoinHandle<()>>,
    lock: Lock,
    place: Place,
    name: String,
    /// The head was out of reach when last heard of.
    pub headless: Arc<AtomicBool>,
}

/// Where the head is: in this process, or at the other end of a connection.
pub enum HeadAt<'a> {
    Here(&'a head::Running),
    There { secured: Secured, dial: Box<Dial>, timing: Option<Timing> },
}

pub async fn start(
    plan: &Plan,
    place: &Place,
    log: &Log,
    python: Python,
    head: HeadAt<'_>,
    ended: &UnboundedSender<End>,
    up: &mut Up,
) -> Result<Running, Failure> {
    let wanted = plan.node.as_ref().expect("a node was planned");
    let Some(lock) = place.lock_node(&wanted.name)? else {
        let text = format!("node {} of cluster {} runs already", wanted.name, place.name());
        return Err(Failure::new(Code::InUse, text).hint("--node-name lets a machine have several"));
    };
    let copied = place.copied_node(&wanted.name)?;
    if let (Some(record), HeadAt::There { .. }) = (&copied, &head) {
        // It must not speak for the node whose record that is, which may live, and run what must exist once.
        let text = format!(
            "node {} of cluster {} was not made here: {} is a copy of the record of another node, which may still run",
            wanted.name,
            place.name(),
            record.display()
        );
        return Err(Failure::new(Code::Refused, text).hint("--node-name lets this be a node of its own"));
    }
    // A head that was started from a copy has a node of its own.
    let before = place.last_node(&wanted.name).filter(|_| copied.is_none());
    let number = before.as_ref().and_then(|record| u64::from_str_radix(&record.node, 16).ok());
    let number = number.map_or_else(|| random().map(u64::from_le_bytes), Ok)?;
    // A later start has a higher number, whatever became of the one before.
    let before = Incarnation(before.map_or(0, |record| record.incarnation));
    let incarnation = before.next(u32::from_le_bytes(random()?));
    let descent = Mark::of_node(NodeId(number));
    // That this start reports without it is proof to the head that it is gone (ZN-2).
    let nothing_left = before == Incarnation(0) || end_left(&descent).await;

    let seen = match &head {
        HeadAt::Here(_) => None,
        HeadAt::There { secured, .. } => door::own_end(&secured.socket),
    };
    let mut listen = wanted.listen.clone();
    if let (true, Some(seen)) = (listen.bind_is_default && matches!(head, HeadAt::There { .. }), seen) {
        // Whoever reaches the head over that network reaches us there, too.
        listen.bind = seen.to_string();
    }
    let me = Introduction::new(Role::Node, &wanted.name, Some(python.python));
    let door = Door { me, keys: None, serves: Serves::Node };
    let Open { mut listener, unix, port } = door::open(&listen, door, "--node-port")?;
    let addresses = door::told(&listen, port, seen);
    let record = Record {
        name: wanted.name.clone(),
        node: format!("{number:016x}"),
        incarnation: incarnation.0,
        cluster: up.cluster.clone(),
        head: up.address.clone(),
        address: addresses.first().map(ToString::to_string),
        unix: unix.clone(),
        pid: std::process::id(),
        machine: machine(),
        started: seconds_since_1970(),
        directory: place.nodes_directory_id()?,
    };

    // Before the head hears of this start: the next one must have a higher number, however this one ends.
    place.write_node(&record)?;
    let timing = match head {
        HeadAt::Here(_) => None,
        HeadAt::There { timing, .. } => timing,
    };
    // What the head takes for over must be over: its cluster's settings count, not this machine's. Later heads say theirs in
    // their welcome.
    let Timing { heartbeat, head_lost } = timing.unwrap_or(plan.timing);
    let headless = Arc::new(AtomicBool::new(false));
    let ended_link = Arc::new(Notify::new());
    let mut config = Config {
        name: wanted.name.clone(),
        // Those on this machine find the socket that costs least.
        addresses: std::iter::once(Address::Unix(unix.clone())).chain(addresses).collect(),
        spares: SPARES,
        heartbeat,
        head_lost,
        stopped_limit: Some(plan.stopped_limit).filter(|limit| !limit.is_zero()),
        ends_without_head: matches!(head, HeadAt::There { .. }),
        has_own_head: matches!(head, HeadAt::Here(_)),
        ..Config::new(NodeId(number), incarnation, Resources::default())
    };
    equip(&mut config, wanted)?;
    // So that programs which the cluster runs can use it.
    config.variables =
        up.address.iter().map(|address| ("PACELINE_ADDRESS".into(), address.clone())).collect();
    let store = Store::new()?;
    config.files = store.base().to_str().map(str::to_owned);
    let total = config.total;
    let programs = Programs::new(place.logs(), &wanted.name, plan.log.clone());
    let options = Options {
        config,
        command: python.command,
        variables: Vec::new(),
        uplink: way_up(&head),
        headless: on_headless(&headless, &ended_link),
        answers: Some(answers(log.clone(), programs.clone(), &record, &wanted.labels)),
        descent: Some(descent.clone()),
        store: Some(store),
        printed: Some(Arc::new(move |name, text| programs.print(name, text))),
        limits: wanted.limits.links(),
        object_memory: object_memory(wanted)?,
    };
    let (service, handle) = paceline_node::service(options);
    let mut others = Vec::new();
    let join: Box<dyn FnOnce() + Send> = match head {
        HeadAt::Here(head) => {
            let (ours, theirs) = fds::pair()?;
            let (head, handle) = (head.handle.clone(), handle.clone());
            Box::new(move || {
                head.accept(theirs);
                handle.join(ours);
            })
        }
        HeadAt::There { secured, dial, .. } => {
            others.push(tokio::spawn(join::keep(*dial, handle.clone(), ended_link, headless.clone())));
            let handle = handle.clone();
            Box::new(move || handle.join(secured))
        }
    };
    if nothing_left {
        join();
    } else {
        up.warnings.push(STILL_THERE.into());
        others.push(tokio::spawn(async move {
            tracing::warn!("{STILL_THERE}");
            while !end_left(&descent).await {
                tracing::warn!("{STILL_THERE}");
            }
            tracing::info!("nothing is left of an earlier start of this node: it joins");
            join();
        }));
    }
    let service = tokio::spawn({
        let ended = ended.clone();
        async move {
            let over = service.run().await;
            let _ = ended.send(End::Node);
            over
        }
    });
    others.push(tokio::spawn({
        let handle = handle.clone();
        async move {
            loop {
                match listener.accept().await {
                    Accepted::Data { socket, lease, way } => {
                        handle.offer_opened(socket, lease, way);
                    }
                    Accepted::Store { socket, lease, way } => {
                        handle.offer_store(socket, lease, way);
                    }
                    Accepted::Objects { socket, lease, way } => {
                        handle.offer_owner(socket, lease, way);
                    }
                    Accepted::Peer { .. } => {}
                }
            }
        }
    }));
    paceline_net::fault::on_written("PACELINE_FAULT_CRASH_NODE", {
        let handle = handle.clone();
        move || handle.crash()
    });
    if nothing_left && !is_welcomed(&handle, WELCOME_TIMEOUT).await {
        up.warnings.push(NOT_WELCOMED.into());
    }
    up.node = Some(record.name);
    up.resources = Some(total.to_string());
    if up.unix.is_empty() {
        up.unix = unix;
    }
    Ok(Running { handle, service, others, lock, place: place.clone(), name: wanted.name.clone(), headless })
}

const STILL_THERE: &str = "processes that an earlier start of this node has left do not end though they were killed: \
    the node joins when they have ended";

const NOT_WELCOMED: &str =
    "the head has taken the connection and has not answered yet: the node joins when it does";

/// Waits until the head knows of the node, so that whoever looks next finds it. Returns whether it does.
async fn is_welcomed(handle: &Handle, within: Duration) -> bool {
    let look = async {
        loop {
            let (tell, told) = oneshot::channel();
            handle.status(move |status, _| _ = tell.send(status.welcomed));
            match told.await {
                Ok(true) => return true,
                Ok(false) => tokio::time::sleep(WELCOME_POLL).await,
                // It has ended: that is reported elsewhere.
                Err(_) => return false,
            }
        }
    };
    tokio::time::timeout(within, look).await.unwrap_or(false)
}

/// Ends what earlier starts of the node have left on this machine (ZN-2). Returns whether nothing of it is left.
async fn end_left(descent: &Mark) -> bool {
    let descent = descent.clone();
    let ended = tokio::task::spawn_blocking(move || descent.kill_all_left(LEFT_TIMEOUT));
    ended.await.unwrap_or(false)
}

fn way_up(head: &HeadAt<'_>) -> Uplink {
    match head {
        HeadAt::Here(head) => {
            let head = head.handle.clone();
            Arc::new(move |link, place| head.accept_slot(link, place))
        }
        HeadAt::There { dial, .. } => {
            let dial = Dial::clone(dial);
            Arc::new(move |link, place| drop(tokio::spawn(uplink::pass_on(link, dial.clone(), place))))
        }
    }
}

fn on_headless(headless: &Arc<AtomicBool>, ended: &Arc<Notify>) -> Headless {
    let (headless, ended) = (headless.clone(), ended.clone());
    Arc::new(move || {
        headless.store(true, Ordering::Relaxed);
        ended.notify_one();
    })
}

impl Running {
    pub fn leave(&self, within: Duration) {
        self.handle.leave(within);
    }

    /// Waits for its end, and returns why it has ended. A record that is kept says where its head was.
    pub async fn finish(self, keep: bool) -> Over {
        self.handle.close();
        let over = self.service.await.unwrap_or(Over::Told);
        self.others.iter().for_each(JoinHandle::abort);
        if !keep {
            self.place.remove_node(&self.name);
        }
        self.lock.remove();
        over
    }
}

/// Let the node have what the machine has and the plan wants of it.
fn equip(config: &mut Config, plan: &NodePlan) -> Result<(), Failure> {
    let wrong = |error: &dyn std::fmt::Display| usage(error.to_string());
    let wanted = hardware::Settings {
        cpus: plan.cpus,
        gpus: plan.gpus.as_deref().map_or(Ok(Gpus::Auto), str::parse).map_err(|error| wrong(&error))?,
        memory: plan.memory.as_deref().map_or(Ok(Memory::Auto), str::parse).map_err(|error| wrong(&error))?,
        ..hardware::Settings::default()
    };
    for (name, amount) in &plan.resources {
        let with = config.total.with(Part::Custom(name, *amount));
        config.total = with.ok_or_else(|| usage(format!("a node cannot have {amount} of {name}")))?;
    }
    config.facts.labels.clone_from(&plan.labels);
    config.facts.resources = plan.resources.iter().map(|(name, _)| name.clone()).collect();
    let machine = hardware::find(&wanted).map_err(|error| wrong(&error))?;
    machine.describe(config).map_err(|error| wrong(&error))
}

/// How many bytes objects may have in memory here.
fn object_memory(plan: &NodePlan) -> Result<u64, Failure> {
    match &plan.object_memory {
        Some(text) => hardware::size(text).map_err(|error| usage(format!("object_memory: {error}"))),
        None => Ok(paceline_node::default_object_memory(hardware::usable_memory())),
    }
}

/// What the process around a node adds to its answers.
fn answers(log: Log, programs: Programs, record: &Record, labels: &[(String, String)]) -> Answers {
    let about = json!({
        "pid": record.pid,
        "host": super::plan::host_name(),
        "serves": record.address,
        "labels": labels.iter().cloned().collect::<std::collections::BTreeMap<String, String>>(),
        "started": record.started,
    });
    Arc::new(move |question| match question {
        NodeQuestion::Status => Ok(about.to_string()),
        NodeQuestion::Logs { lines } => Ok(log.tail(*lines)),
        NodeQuestion::ProgramLog { name, lines } => Ok(programs.tail(name, *lines)),
        NodeQuestion::CleanLogs => {
            programs.clean();
            log.clean().map(|()| String::new()).map_err(|error| format!("the node's log: {error}"))
        }
    })
}
