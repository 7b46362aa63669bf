//! Asking a head.

use crate::daemon;
use crate::failure::{Code, Failure, failed};
use paceline_net::control;
use paceline_proto::control::{ClientToHead, HeadToClient};
use paceline_proto::question::Question;
use paceline_registry::{Head, Home, Place};
use serde_json::Value;
use std::time::Duration;

/// How long a head may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long it may take to end a cluster.
const STOPPING: Duration = Duration::from_secs(15);

/// A head that can be asked.
pub struct Target {
    pub place: Option<Place>,
    pub head: Head,
}

impl Target {
    /// What people call it.
    pub fn name(&self) -> &str {
        &self.head.name
    }

    pub fn ask(&self, question: Question) -> Result<Value, Failure> {
        let patience = if question == Question::Stop { STOPPING } else { PATIENCE };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let asked = tokio::time::timeout(patience, self.exchange(question));
            asked.await.unwrap_or_else(|_| {
                let text = format!("the head of cluster {} did not answer within {patience:?}", self.name());
                Err(Failure::new(Code::TimedOut, text).hint("paceline logs head shows what it does"))
            })
        })
    }

    async fn exchange(&self, question: Question) -> Result<Value, Failure> {
        let gone = || Failure::new(Code::Unreachable, format!("the head of cluster {} is gone", self.name()));
        let socket = daemon::dial(&self.head.unix).map_err(|error| {
            let text = format!("the head of cluster {} cannot be reached: {error}", self.name());
            Failure::new(Code::Unreachable, text)
        })?;
        let (sender, mut receiver) = control::channel::<ClientToHead, HeadToClient>(socket)?;
        sender.send(&ClientToHead::Ask { number: 1, question }, Vec::new());
        while let Some((message, _)) = receiver.next().await.map_err(|_| gone())? {
            if let HeadToClient::Answer { number: 1, text } = message {
                let text = text.map_err(failed)?;
                return serde_json::from_str(&text)
                    .map_err(|error| failed(format!("an answer is no JSON: {error}")));
            }
        }
        Err(gone())
    }
}

/// Every cluster of this user on this machine whose head lives here.
pub fn all(home: &Home) -> Vec<Target> {
    let places = home.clusters().into_iter();
    places.filter_map(|place| place.head().map(|head| Target { place: Some(place), head })).collect()
}

/// The cluster that is meant: the named one, or the only one.
pub fn target(home: &Home, name: Option<&str>) -> Result<Target, Failure> {
    let mut found = all(home);
    let names = found.iter().map(|target| target.head.name.as_str()).collect::<Vec<_>>().join(", ");
    if let Some(name) = name {
        home.cluster(name)?.check_owner()?;
        let hint =
            if names.is_empty() { "paceline start starts one".into() } else { format!("there is {names}") };
        let index = found.iter().position(|target| target.head.name == name);
        let missing = || {
            Failure::new(Code::NoCluster, format!("there is no cluster {name} on this machine")).hint(hint)
        };
        return index.map(|index| found.swap_remove(index)).ok_or_else(missing);
    }
    let default = found.iter().position(|target| target.head.name == "default");
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
