//! The head of a daemon.

use super::door::{self, Open};
use super::join::{key_of, read_key};
use super::log::Log;
use super::plan::{Plan, Up};
use super::python::Python;
use super::{End, random, seconds_since_1970};
use crate::failure::{Code, Failure, failed, usage};
use paceline_core::head::Config;
use paceline_head::journal::{Begun, Journal, JournalError};
use paceline_head::{End as Over, Handle, Reading, Steward};
use paceline_net::secure::{
    Accepted, Door, Introduction, Key, Keys, MIN_PASSWORD_CHARS, Password, Role, Serves,
};
use paceline_proto::control::Timing;
use paceline_proto::question::{Answer, Question};
use paceline_registry::{Head as Record, Lock, Place, machine};
use serde_json::{Map, Value, json};
use std::sync::Arc;
use tokio::sync::mpsc::UnboundedSender;
use tokio::task::JoinHandle;

pub struct Running {
    pub handle: Handle,
    service: JoinHandle<Over>,
    door: JoinHandle<()>,
    lock: Lock,
    place: Place,
    record: Record,
}

/// Start it, and write its record once it can be reached.
pub async fn start(
    plan: &Plan,
    place: &Place,
    log: &Log,
    python: Option<&Python>,
    ended: &UnboundedSender<End>,
    up: &mut Up,
) -> Result<Running, Failure> {
    let wanted = plan.head.as_ref().expect("a head was planned");
    let Some(lock) = place.lock_head()? else {
        return Err(Failure::new(Code::InUse, format!("a head of cluster {} runs already", place.name())));
    };
    let keys = Arc::new(keys(plan, place)?);
    let timing = plan.timing;
    let me = Introduction::new(Role::Head, place.name(), python.map(|python| python.python));
    let me = Introduction { timing: Some(timing), ..me };
    let door = Door { me, keys: Some(keys.clone()), serves: Serves::Head };
    let Open { mut listener, unix, port } = door::open(&wanted.listen, door, "--port")?;
    let address = door::told(&wanted.listen, port, None).first().map(ToString::to_string);
    let (journal, Begun { cluster, epoch, earlier_head_lost }) = journal(place, timing)?;
    tracing::info!(start = epoch.number(), "this head starts");
    let mut config = Config::new(cluster, epoch, random()?);
    config.settle = timing.head_lost;
    config.heartbeat = timing.heartbeat;
    config.head_lost = timing.head_lost;
    config.earlier_head_lost = earlier_head_lost;
    config.client_lost = plan.client_lost;
    wanted.limits.apply(&mut config);
    let (service, handle) = paceline_head::service(config);
    let service = service.with_journal(journal).map_err(|error| failed(error.to_string()))?;
    let record = Record {
        name: place.name().into(),
        cluster: format!("{:032x}", cluster.0),
        epoch: epoch.number(),
        address,
        unix,
        pid: std::process::id(),
        machine: machine(),
        version: env!("CARGO_PKG_VERSION").into(),
        started: seconds_since_1970(),
        ended: None,
    };
    // On disk before anything is granted in its name.
    place.write_head(&record)?;
    let butler =
        Butler { record: record.clone(), log: log.clone(), keys: keys.clone(), ended: ended.clone() };
    let service = service.with_steward(Box::new(butler));
    let service = tokio::spawn({
        let ended = ended.clone();
        async move {
            let over = service.run().await;
            let _ = ended.send(End::Head);
            over
        }
    });
    let door = tokio::spawn({
        let handle = handle.clone();
        async move {
            loop {
                if let Accepted::Peer { secured, introduction } = listener.accept().await {
                    tracing::info!(role = ?introduction.role, name = introduction.name, "came in");
                    match introduction.role {
                        Role::Slot => handle.accept_slot(secured, ()),
                        Role::Head | Role::Node | Role::Client => handle.accept(secured),
                    }
                }
            }
        }
    });
    paceline_net::fault::on_written("PACELINE_FAULT_CRASH_HEAD", {
        let handle = handle.clone();
        move || handle.crash()
    });
    up.cluster = record.cluster.clone();
    up.address = record.address.clone();
    up.unix = record.unix.clone();
    up.token = Some(keys.issue(false)?.to_string());
    Ok(Running { handle, service, door, lock, place: place.clone(), record })
}

/// What the starts before have left, and which start this is. It is on disk before anybody hears of it.
fn journal(place: &Place, timing: Timing) -> Result<(Journal, Begun), Failure> {
    let told = |error: JournalError| match error {
        JournalError::InUse { .. } => Failure::new(Code::InUse, error.to_string()),
        error => failed(error.to_string()),
    };
    let journal = Journal::open(&place.journal()).map_err(told)?;
    let begun = journal.begin(random()?, timing.ends_within()).map_err(told)?;
    Ok((journal, begun))
}

/// The cluster's key: the one that was given, the one it has, or a new one.
fn keys(plan: &Plan, place: &Place) -> Result<Keys, Failure> {
    // Before anything is written.
    let password = plan.credentials.password.as_ref().map(|text| Password::new(text.clone()));
    if password.as_ref().is_some_and(|password| !password.is_long_enough()) {
        let text = format!("the password is too short: it needs at least {MIN_PASSWORD_CHARS} characters");
        return Err(usage(text).hint("whoever guesses it runs code as you: three random words will do"));
    }
    let own = place.key_file();
    let key = match (&plan.credentials.key_file, &plan.credentials.key) {
        (Some(path), _) if path.exists() => read_key(path)?,
        (Some(path), _) => fresh(path)?,
        (None, Some(text)) => key_of(text)?,
        (None, None) if own.exists() => read_key(&own)?,
        (None, None) => fresh(&own)?,
    };
    if !own.exists() {
        // This user's programs on this machine look for it here.
        key.write(&own)?;
    }
    Ok(Keys::new(key, password.map(|password| password.register())))
}

fn fresh(path: &std::path::Path) -> Result<Key, Failure> {
    Key::create(path)
        .map_err(|error| failed(format!("the key cannot be written to {}: {error}", path.display())))
}

impl Running {
    /// End the cluster.
    pub fn stop(&self, why: &str) {
        self.handle.stop(format!("its head, which was told to end by {why}"));
    }

    pub async fn finish(self, keep: bool) -> Option<Failure> {
        self.handle.close();
        let over = self.service.await;
        self.door.abort();
        let superseded = matches!(over, Ok(Over::Superseded { .. }));
        if keep || superseded {
            if !superseded {
                // DA-4. The record is the later head's otherwise.
                let ended = Some(seconds_since_1970());
                let _ = self.place.write_head(&Record { ended, ..self.record });
            }
            // The next head of this cluster takes its place.
            drop(self.lock);
        } else {
            let _ = std::fs::remove_file(self.place.path().join("cluster.json"));
            self.lock.remove();
        }
        match over {
            Ok(Over::Superseded { by }) => {
                let name = self.place.name();
                let text = format!(
                    "another head of cluster {name} was started after this one, as start {}",
                    by.number()
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
    keys: Arc<Keys>,
    ended: UnboundedSender<End>,
}

impl Steward for Butler {
    fn about(&self) -> Map<String, Value> {
        let about = json!({
            "name": self.record.name,
            "id": self.record.cluster,
            "epoch": self.record.epoch,
            "address": self.record.address,
            "version": self.record.version,
            "pid": self.record.pid,
            "started": self.record.started,
        });
        about.as_object().cloned().unwrap_or_default()
    }

    fn answer(&mut self, question: &Question) -> Answer {
        match question {
            Question::Token { reusable } => {
                let token = self.keys.issue(*reusable).map_err(|error| error.to_string())?;
                Ok(json!({"token": token.to_string(), "address": self.record.address}).to_string())
            }
            Question::StopHead => {
                let _ = self.ended.send(End::HeadOnly);
                Ok(json!({"stopped": true}).to_string())
            }
            _ => Err("the head does not know".into()),
        }
    }

    fn read(&self, question: &Question) -> Reading {
        let log = self.log.clone();
        match *question {
            Question::Logs { lines, .. } => Box::new(move || Ok(log.tail(lines))),
            Question::CleanLogs => Box::new(move || {
                log.clean().map(|()| String::new()).map_err(|error| format!("the head's log: {error}"))
            }),
            _ => Box::new(|| Err("the head does not know".into())),
        }
    }
}
