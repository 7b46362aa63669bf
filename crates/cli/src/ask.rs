//! Asking a head.

use crate::daemon::join;
use crate::daemon::plan::Plan;
use crate::failure::{Code, Failure, failed, usage};
use crate::settings::Settings;
use paceline_net::control;
use paceline_net::secure::{self, Credential, Dialed, Introduction, Role};
use paceline_proto::Address;
use paceline_proto::control::{ClientToHead, HeadToClient};
use paceline_proto::question::Question;
use paceline_registry::{Head, Home, Node, Place};
use serde_json::Value;
use std::time::{Duration, Instant};

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
    fn local(home: &Home, place: Place) -> Option<Target> {
        let here = |machine: &String| Place::is_here(machine);
        let nodes: Vec<Node> = place.nodes().into_iter().filter(|node| here(&node.machine)).collect();
        let head = place.head();
        let address = match &head {
            Some(head) if here(&head.machine) => Address::Unix(head.unix.clone()),
            Some(head) => head.address.as_ref()?.parse().ok()?,
            None => nodes.first()?.head.as_ref()?.parse().ok()?,
        };
        let _ = home;
        let credential = join::read_key(&place.key_file()).ok().map(Credential::Key);
        let head = head.filter(|head| here(&head.machine));
        Some(Target { name: place.name().into(), place: Some(place), head, nodes, address, credential })
    }

    /// A cluster that is elsewhere.
    fn distant(home: &Home, settings: &Settings) -> Result<Target, Failure> {
        let address: Address = settings.text("address").parse().map_err(|error| usage(format!("{error}")))?;
        if let Some((place, _)) = home.at(&address.to_string())
            && let Some(target) = Target::local(home, place)
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
        dialed.map_err(|error| join::failure(&error))
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

/// Every cluster of this user that has something on this machine.
pub fn all(home: &Home) -> Vec<Target> {
    home.clusters().into_iter().filter_map(|place| Target::local(home, place)).collect()
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
        return index.map(|index| found.swap_remove(index)).ok_or_else(missing);
    }
    let default = found.iter().position(|target| target.name == "default");
    match (found.len(), default) {
        (0, _) => Err(none()),
        (1, _) => Ok(found.remove(0)),
        (_, Some(index)) => Ok(found.swap_remove(index)),
        (_, None) => {
            let text = format!("there are several clusters on this machine: {names}");
            Err(Failure::new(Code::NoCluster, text).hint("say which one with --name"))
        }
    }
}

pub fn none() -> Failure {
    Failure::new(Code::NoCluster, "no active cluster").hint("paceline start starts one")
}
