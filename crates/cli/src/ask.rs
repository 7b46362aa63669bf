//! Asking a head.

use crate::daemon::join;
use crate::daemon::plan::Plan;
use crate::failure::{Code, Failure, failed, usage};
use crate::settings::Settings;
use crate::show;
use paceline_net::control;
use paceline_net::secure::{self, Credential, Dialed, Introduction, Role};
use paceline_proto::Address;
use paceline_proto::control::{ClientToHead, HeadToClient};
use paceline_proto::question::Question;
use paceline_registry::{Head, Home, Node, Place};
use serde_json::{Value, json};
use std::time::{Duration, Instant, UNIX_EPOCH};

/// How long a head may take to be reached.
const REACHED: Duration = Duration::from_secs(5);
/// How long it may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long it may take to end a cluster.
const STOPPING: Duration = Duration::from_secs(15);

/// A cluster that can be asked.
pub struct Target {
    /// What it is called here.
    pub name: String,
    pub place: Option<Place>,
    /// Its head, if that is on this machine.
    pub head: Option<Head>,
    /// Its nodes on this machine.
    pub nodes: Vec<Node>,
    /// Where its head is.
    pub address: Address,
    credential: Option<Credential>,
}

impl Target {
    /// A cluster that has something on this machine.
    pub fn local(place: Place) -> Option<Target> {
        let head = place.head();
        Target::with_head(place, head)
    }

    /// The same, of a head whose record was read already: a second look may find that it has ended meanwhile.
    fn with_head(place: Place, head: Option<Head>) -> Option<Target> {
        let here = |machine: &String| Place::is_here(machine);
        let nodes: Vec<Node> = place.nodes().into_iter().filter(|node| here(&node.machine)).collect();
        let address = match &head {
            Some(head) if here(&head.machine) => Address::Unix(head.unix.clone()),
            Some(head) => head.address.as_ref()?.parse().ok()?,
            None => nodes.first()?.head.as_ref()?.parse().ok()?,
        };
        let credential = join::read_key(&place.key_file()).ok().map(Credential::Key);
        let head = head.filter(|head| here(&head.machine));
        Some(Target { name: place.name().into(), place: Some(place), head, nodes, address, credential })
    }

    /// A cluster that is elsewhere.
    fn distant(home: &Home, settings: &Settings) -> Result<Target, Failure> {
        let address: Address = settings.text("address").parse().map_err(|error| usage(format!("{error}")))?;
        if let Some((place, _)) = home.at(&address.to_string())
            && let Some(target) = Target::local(place)
        {
            return Ok(target);
        }
        let credential = join::credential(&Plan::new(settings)?.credentials, home, &address)?;
        let name = address.to_string();
        Ok(Target { name, place: None, head: None, nodes: Vec::new(), address, credential })
    }

    pub fn ask(&self, question: Question) -> Result<Value, Failure> {
        self.put(self.reach()?, question)
    }

    /// A connection to the head.
    pub fn reach(&self) -> Result<Dialed, Failure> {
        let me = Introduction::new(Role::Client, "paceline", None);
        let deadline = Instant::now() + REACHED;
        let dialed =
            secure::dial(std::slice::from_ref(&self.address), self.credential.as_ref(), &me, deadline);
        dialed.map_err(|error| {
            let failure = join::failure(&error);
            match self.dead_head().filter(|_| failure.code == Code::Unreachable) {
                Some(dead) => dead.failure(),
                None => failure,
            }
        })
    }

    /// Returns the head that was on this machine and is gone, of a cluster whose nodes here wait for it.
    fn dead_head(&self) -> Option<DeadHead> {
        let dead = DeadHead::of(self.place.as_ref()?)?;
        let is_its_node = |node: &Node| node.head == dead.head.address;
        self.nodes.iter().any(is_its_node).then_some(dead)
    }

    /// Ask over this connection.
    pub fn put(&self, dialed: Dialed, question: Question) -> Result<Value, Failure> {
        let patience = if question == Question::Stop { STOPPING } else { PATIENCE };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let (sender, mut receiver) = control::channel::<ClientToHead, HeadToClient>(dialed.secured)?;
            sender.send(&ClientToHead::Ask { number: 1, question }, Vec::new());
            let answer = async {
                loop {
                    match receiver.next().await {
                        Ok(Some((HeadToClient::Answer { number: 1, text }, _))) => {
                            return text.map_err(failed);
                        }
                        Ok(Some((HeadToClient::Refused { why }, _))) => return Err(failed(why)),
                        Ok(Some(_)) => {}
                        Ok(None) | Err(_) => return Err(self.gone()),
                    }
                }
            };
            let text = tokio::time::timeout(patience, answer).await.unwrap_or_else(|_| {
                let text = format!("the head of cluster {} did not answer within {patience:?}", self.name);
                Err(Failure::new(Code::TimedOut, text).hint("paceline logs head shows what it does"))
            })?;
            serde_json::from_str(&text).map_err(|error| failed(format!("an answer is no JSON: {error}")))
        })
    }

    fn gone(&self) -> Failure {
        Failure::new(Code::Unreachable, format!("the head of cluster {} is gone", self.name))
    }
}

/// A head that was on this machine and is gone, though nobody has stopped its cluster.
pub struct DeadHead {
    pub place: Place,
    pub head: Head,
    /// When it wrote to its log for the last time: seconds since 1970.
    last_sign: Option<u64>,
}

impl DeadHead {
    /// Returns the one of this cluster. None: its head lives, or has never been here.
    pub fn of(place: &Place) -> Option<DeadHead> {
        let head = place.last_head().filter(|_| !place.is_head_alive())?;
        let changed = std::fs::metadata(place.head_log()).and_then(|log| log.modified()).ok();
        let last_sign = changed.and_then(|at| Some(at.duration_since(UNIX_EPOCH).ok()?.as_secs()));
        Some(DeadHead { place: place.clone(), head, last_sign })
    }

    /// Says what has happened to it and how the cluster goes on.
    pub fn failure(&self) -> Failure {
        let name = self.place.name();
        let text = match (self.head.ended, self.last_sign) {
            (Some(ended), _) => format!(
                "the head of cluster {name} has ended, at {}, and was not started again",
                show::time(ended)
            ),
            (None, Some(last)) => format!(
                "the head of cluster {name}, process {}, died; its log ends at {}",
                self.head.pid,
                show::time(last)
            ),
            (None, None) => format!("the head of cluster {name}, process {}, died", self.head.pid),
        };
        let named = if name == "default" { String::new() } else { format!(" --name {name}") };
        let hint = format!(
            "paceline start{named} starts it again, paceline logs{named} shows its last lines, paceline stop{named} \
             removes the cluster"
        );
        Failure::new(Code::Unreachable, text).hint(hint)
    }

    /// Returns its entry in a status.
    pub fn status(&self) -> Value {
        let Failure { message, code, hint, .. } = self.failure();
        let Head { name, cluster, address, pid, started, ended, .. } = &self.head;
        json!({
            "cluster": {"name": name, "id": cluster, "address": address, "pid": pid, "started": started},
            "error": message,
            "code": code.name(),
            "hint": hint,
            "head": if ended.is_some() { "ended" } else { "died" },
            "ended": ended,
            "last_sign": self.last_sign,
        })
    }
}

/// Returns the heads that are gone of clusters of which nothing lives on this machine.
pub fn dead_heads(home: &Home) -> Vec<DeadHead> {
    let places = home.clusters().into_iter().filter(|place| place.check_owner().is_ok());
    let dead = places.filter_map(|place| DeadHead::of(&place));
    dead.filter(|dead| !dead.place.is_in_use()).collect()
}

/// The head of a cluster on this machine, once it has answered. None: there is none, or it has ended meanwhile, as one
/// that crashes does.
pub fn living_head(place: &Place) -> Result<Option<Head>, Failure> {
    let until = Instant::now() + REACHED;
    loop {
        let Some(head) = place.head() else { return Ok(None) };
        if !Place::is_here(&head.machine) {
            return Ok(Some(head));
        }
        let Some(target) = Target::with_head(place.clone(), Some(head.clone())) else {
            return Ok(Some(head));
        };
        match target.reach() {
            Err(failure) if !matches!(failure.code, Code::Unreachable | Code::TimedOut) => {
                return Ok(Some(head));
            }
            Ok(_) => return Ok(Some(head)),
            Err(_) if Instant::now() < until => std::thread::sleep(Duration::from_millis(5)),
            Err(_) => {
                let text =
                    format!("process {} is the head of cluster {} and does not answer", head.pid, head.name);
                return Err(Failure::new(Code::TimedOut, text).hint(format!(
                    "kill -9 {} ends it; then paceline start goes on with the cluster",
                    head.pid
                )));
            }
        }
    }
}

/// Every cluster of this user that has something on this machine.
pub fn all(home: &Home) -> Vec<Target> {
    home.clusters().into_iter().filter_map(Target::local).collect()
}

/// The cluster that is meant: the one at an address, the named one, or the only one.
pub fn target(home: &Home, settings: &Settings) -> Result<Target, Failure> {
    if settings.given("address").is_some() {
        return Target::distant(home, settings);
    }
    let name = (!settings.is_default("name")).then(|| settings.text("name"));
    let mut found = all(home);
    let names = found.iter().map(|target| target.name.as_str()).collect::<Vec<_>>().join(", ");
    if let Some(name) = name {
        home.cluster(name)?.check_owner()?;
        let hint =
            if names.is_empty() { "paceline start starts one".into() } else { format!("there is {names}") };
        let missing = || {
            Failure::new(Code::NoCluster, format!("there is no cluster {name} on this machine")).hint(hint)
        };
        let index = found.iter().position(|target| target.name == name);
        let missing = || {
            dead_heads(home)
                .iter()
                .find(|dead| dead.place.name() == name)
                .map_or_else(missing, DeadHead::failure)
        };
        return index.map(|index| found.swap_remove(index)).ok_or_else(missing);
    }
    let default = found.iter().position(|target| target.name == "default");
    match (found.len(), default) {
        (0, _) => Err(the_dead(dead_heads(home)).map_or_else(none, |dead| dead.failure())),
        (1, _) => Ok(found.remove(0)),
        (_, Some(index)) => Ok(found.swap_remove(index)),
        (_, None) => {
            let text = format!("there are several clusters on this machine: {names}");
            Err(Failure::new(Code::NoCluster, text).hint("say which one with --name"))
        }
    }
}

/// Returns the one that is meant if none is named: the only one, or the one that is called `default`.
pub fn the_dead(mut dead: Vec<DeadHead>) -> Option<DeadHead> {
    match dead.iter().position(|dead| dead.place.name() == "default") {
        Some(index) => Some(dead.swap_remove(index)),
        None => dead.pop().filter(|_| dead.is_empty()),
    }
}

pub fn none() -> Failure {
    Failure::new(Code::NoCluster, "no active cluster").hint("paceline start starts one")
}
