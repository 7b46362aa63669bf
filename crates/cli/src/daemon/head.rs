//! The head of a daemon.

use super::door;
use super::log::Log;
use super::plan::{Plan, Up};
use super::{End, random, seconds_since_1970};
use crate::failure::{Code, Failure, failed};
use paceline_core::head::Config;
use paceline_head::{End as Over, Handle, Steward};
use paceline_proto::question::{Answer, Question};
use paceline_proto::{ClusterId, Epoch};
use paceline_registry::{Head as Record, Lock, Place, machine};
use serde_json::{Map, Value, json};
use tokio::sync::mpsc::UnboundedSender;
use tokio::task::JoinHandle;

pub struct Running {
    pub handle: Handle,
    service: JoinHandle<Over>,
    lock: Lock,
    place: Place,
}

/// Start it, and write its record once it can be reached.
pub async fn start(
    plan: &Plan,
    place: &Place,
    log: &Log,
    ended: &UnboundedSender<End>,
    up: &mut Up,
) -> Result<Running, Failure> {
    let Some(lock) = place.lock_head()? else {
        return Err(Failure::new(Code::InUse, format!("a head of cluster {} runs already", place.name())));
    };
    let cluster = ClusterId(u128::from_le_bytes(random()?));
    let mut config = Config::new(cluster, Epoch(1), random()?);
    config.heartbeat = plan.heartbeat;
    config.head_lost = plan.head_lost;
    config.client_lost = plan.client_lost;
    let (service, handle) = paceline_head::service(config);
    let unix = door::unix_name()?;
    let listener = door::bind(&unix).map_err(|error| failed(format!("the head's socket: {error}")))?;
    let record = Record {
        name: place.name().into(),
        cluster: format!("{:032x}", cluster.0),
        address: None,
        unix: unix.clone(),
        pid: std::process::id(),
        machine: machine(),
        version: env!("CARGO_PKG_VERSION").into(),
        started: seconds_since_1970(),
    };
    let about = Butler { record: record.clone(), log: log.clone() };
    let service = service.with_steward(Box::new(about));
    let service = tokio::spawn({
        let ended = ended.clone();
        async move {
            let over = service.run().await;
            let _ = ended.send(End::Head);
            over
        }
    });
    let door = handle.clone();
    tokio::spawn(door::serve(listener, move |socket| door.accept(socket)));
    place.write_head(&record)?;
    up.cluster = record.cluster;
    up.address = record.address;
    up.unix = unix;
    Ok(Running { handle, service, lock, place: place.clone() })
}

impl Running {
    /// End the cluster.
    pub fn stop(&self) {
        self.handle.stop();
    }

    pub async fn finish(self) -> Option<Failure> {
        self.handle.close();
        let over = self.service.await;
        let _ = std::fs::remove_file(self.place.path().join("cluster.json"));
        self.lock.remove();
        match over {
            Ok(Over::Superseded { by }) => {
                let text = format!(
                    "another head of cluster {} has been started after this one, as its start {by}",
                    self.place.name()
                );
                Some(Failure::new(Code::Refused, text).hint("only the one that was started last may go on"))
            }
            Ok(Over::Closed) | Err(_) => None,
        }
    }
}

/// Answers what only the process around the head knows.
struct Butler {
    record: Record,
    log: Log,
}

impl Steward for Butler {
    fn about(&self) -> Map<String, Value> {
        let about = json!({
            "name": self.record.name,
            "id": self.record.cluster,
            "address": self.record.address,
            "version": self.record.version,
            "pid": self.record.pid,
            "started": self.record.started,
        });
        about.as_object().cloned().unwrap_or_default()
    }

    fn answer(&mut self, question: &Question) -> Answer {
        match question {
            Question::Logs { lines, .. } => Ok(self.log.tail(*lines)),
            Question::CleanLogs => {
                self.log.clean().map(|()| String::new()).map_err(|error| format!("the head's log: {error}"))
            }
            Question::Token { .. } => Err("this head cannot be joined from other machines".into()),
            _ => Err("the head does not know".into()),
        }
    }
}
