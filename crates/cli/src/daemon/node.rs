//! The node of a daemon.

use super::log::Log;
use super::plan::{NodePlan, Plan, Up};
use super::{End, door, head, python, random, seconds_since_1970};
use crate::failure::{Code, Failure, failed};
use paceline_core::node::Config;
use paceline_net::fds;
use paceline_node::{Answers, Handle, Options};
use paceline_proto::question::NodeQuestion;
use paceline_proto::{Incarnation, NodeId, Resources};
use paceline_registry::{Lock, Node as Record, Place, machine};
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::UnboundedSender;
use tokio::task::JoinHandle;

/// Slots kept ready beyond the CPUs.
const SPARES: u64 = 1;

pub struct Running {
    handle: Handle,
    service: JoinHandle<()>,
    lock: Lock,
    place: Place,
    name: String,
}

pub async fn start(
    plan: &Plan,
    place: &Place,
    log: &Log,
    head: Option<&head::Running>,
    ended: &UnboundedSender<End>,
    up: &mut Up,
) -> Result<Running, Failure> {
    let wanted = plan.node.as_ref().expect("a node was planned");
    let Some(lock) = place.lock_node(&wanted.name)? else {
        let text = format!("a node {} of cluster {} runs already", wanted.name, place.name());
        return Err(Failure::new(Code::InUse, text));
    };
    let python = python::ask(&wanted.python)?;
    let total = resources(wanted, &python)?;
    let before = place.last_node(&wanted.name);
    let number = before.as_ref().and_then(|record| u64::from_str_radix(&record.node, 16).ok());
    let number = number.map_or_else(|| random().map(u64::from_le_bytes), Ok)?;
    let incarnation = before.map_or(1, |record| record.incarnation + 1);
    let config = Config {
        name: wanted.name.clone(),
        spares: SPARES,
        heartbeat: plan.heartbeat,
        head_lost: plan.head_lost,
        ..Config::new(NodeId(number), Incarnation(incarnation), total)
    };
    let head = head.ok_or_else(|| failed("a node needs a head"))?.handle.clone();
    let unix = door::unix_name()?;
    let listener = door::bind(&unix).map_err(|error| failed(format!("the node's socket: {error}")))?;
    let options = Options {
        config,
        command: python.command,
        variables: Vec::new(),
        uplink: Arc::new({
            let head = head.clone();
            move |link| head.accept(link)
        }),
        headless: Arc::new(|| ()),
        answers: Some(answers(log.clone(), std::process::id())),
    };
    let (service, handle) = paceline_node::service(options);
    let (ours, theirs) = fds::pair()?;
    head.accept(theirs);
    handle.join(ours);
    let service = tokio::spawn({
        let ended = ended.clone();
        async move {
            service.run().await;
            let _ = ended.send(End::Node);
        }
    });
    let door = handle.clone();
    tokio::spawn(door::serve(listener, move |socket| {
        let _ = door.offer(socket);
    }));
    let record = Record {
        name: wanted.name.clone(),
        node: format!("{number:016x}"),
        incarnation,
        cluster: up.cluster.clone(),
        head: up.address.clone(),
        address: None,
        unix: unix.clone(),
        pid: std::process::id(),
        machine: machine(),
        started: seconds_since_1970(),
    };
    place.write_node(&record)?;
    up.node = Some(record.name);
    up.resources = Some(total.to_string());
    if up.unix.is_empty() {
        up.unix = unix;
    }
    Ok(Running { handle, service, lock, place: place.clone(), name: wanted.name.clone() })
}

impl Running {
    pub fn leave(&self, within: Duration) {
        self.handle.leave(within);
    }

    pub async fn finish(self) {
        self.handle.close();
        let _ = self.service.await;
        self.place.remove_node(&self.name);
        self.lock.remove();
    }
}

fn resources(plan: &NodePlan, python: &python::Python) -> Result<Resources, Failure> {
    let cpus = plan.cpus.unwrap_or(python.cpus);
    Resources::fractional_cpus(cpus)
        .ok_or_else(|| failed(format!("{cpus} CPUs are more than a node can have")))
}

/// What the process around a node adds to its answers.
fn answers(log: Log, pid: u32) -> Answers {
    Arc::new(move |question| match question {
        NodeQuestion::Status => Ok(json!({"pid": pid, "host": super::plan::host_name()}).to_string()),
        NodeQuestion::Logs { lines } => Ok(log.tail(*lines)),
        NodeQuestion::CleanLogs => {
            log.clean().map(|()| String::new()).map_err(|error| format!("the node's log: {error}"))
        }
    })
}
