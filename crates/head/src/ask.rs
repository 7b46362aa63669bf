//! Questions to the head: who asked what, and which parts of the answer are still to come from nodes or clients.
//!
//! Owns: questions that are not answered yet. Does not own: what only the process around the head knows, which its
//! [`Steward`] tells; nor decisions, which are the core's.
//!
//! * AK-1: every question is answered once, at the latest after [`PATIENCE`], however many peers are silent.
//! * AK-3 (bounded): so many questions of one link are open at a time, and so many of all; the next is refused at once.
//! * AK-2: a peer whose link is gone is not waited for.

use crate::links::{LinkId, Peer};
use crate::{explain, report};
use paceline_core::head::{ActorStatus, Status, Waits};
use paceline_proto::question::{Answer, NodeQuestion, PATIENCE, Question, node_name};
use paceline_proto::{ClientId, NodeId, TaskId};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// The process around the head, as far as it is asked something.
pub trait Steward: Send {
    /// What a status says of the cluster itself: its name, its address, its version.
    fn about(&self) -> Map<String, Value>;

    /// Answers at once what is its to answer: tokens, and the end of the head alone.
    fn answer(&mut self, question: &Question) -> Answer;

    /// Returns what answers a question about the head's own logs. It waits for their disk, so it is called on another thread.
    fn read(&self, question: &Question) -> Reading;
}

/// Finds an answer out, and may take its time.
pub type Reading = Box<dyn FnOnce() -> Answer + Send>;

/// What the head is called among those whose logs are asked for.
pub(crate) const HEAD: &str = "head";

/// The most questions that wait for answers of peers, over one link and in all.
const MAX_OPEN_QUESTIONS_PER_LINK: usize = 64;
const MAX_OPEN_QUESTIONS: usize = 512;

/// Where an answer goes.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Asker {
    pub link: LinkId,
    pub number: u64,
}

/// A question whose answer has parts from several peers.
struct Gathering {
    asker: Asker,
    what: What,
    waiting: BTreeSet<Peer>,
    parts: BTreeMap<Peer, Answer>,
    /// What the head's own process has to say.
    own: Own,
    until: u64,
}

/// The part of an answer that the head's own process finds out.
#[derive(PartialEq)]
enum Own {
    Unasked,
    Awaited,
    Given(Answer),
}

enum What {
    Status,
    Logs,
    Cleaned,
    /// What this program printed, from all who have something of it.
    Printed(String),
    /// With what the head itself has to say of that name.
    Task(TaskId, Answer),
}

#[derive(Default)]
pub(crate) struct Gatherings {
    open: BTreeMap<u64, Gathering>,
    opened: u64,
}

/// What to do about a question.
pub(crate) enum Next {
    Answer(Asker, Answer),
    /// Ask these nodes, under this number.
    Nodes(u64, NodeQuestion, Vec<NodeId>),
    /// Ask these clients where a task is, and these nodes how their slots are.
    Task(u64, TaskId, Vec<ClientId>, Vec<NodeId>),
}

impl Gatherings {
    /// Returns why this question is not taken, if it is not (AK-3). So many more of its link wait for something else.
    pub(crate) fn refuse(&self, asker: Asker, waiting: usize) -> Option<String> {
        let own = self.open.values().filter(|gathering| gathering.asker.link == asker.link).count();
        match (own + waiting >= MAX_OPEN_QUESTIONS_PER_LINK, self.open.len() >= MAX_OPEN_QUESTIONS) {
            (true, _) => Some(format!(
                "{MAX_OPEN_QUESTIONS_PER_LINK} questions of this program wait for their answers: ask again later"
            )),
            (_, true) => {
                Some(format!("{MAX_OPEN_QUESTIONS} questions wait for their answers: ask again later"))
            }
            (false, false) => None,
        }
    }

    pub(crate) fn status(&mut self, asker: Asker, nodes: Vec<NodeId>, now: u64) -> Next {
        self.open(asker, What::Status, NodeQuestion::Status, nodes, now)
    }

    pub(crate) fn logs(&mut self, asker: Asker, lines: u32, nodes: Vec<NodeId>, now: u64) -> Next {
        self.open(asker, What::Logs, NodeQuestion::Logs { lines }, nodes, now)
    }

    /// The head's own process has a part of the answer to this question, too.
    pub(crate) fn await_own(&mut self, number: u64) {
        if let Some(gathering) = self.open.get_mut(&number) {
            gathering.own = Own::Awaited;
        }
    }

    pub(crate) fn on_own_answer(&mut self, number: u64, text: Answer) {
        if let Some(gathering) = self.open.get_mut(&number) {
            gathering.own = Own::Given(text);
        }
    }

    pub(crate) fn program_log(
        &mut self,
        asker: Asker,
        name: &str,
        lines: u32,
        nodes: Vec<NodeId>,
        now: u64,
    ) -> Next {
        let question = NodeQuestion::ProgramLog { name: name.into(), lines };
        self.open(asker, What::Printed(name.into()), question, nodes, now)
    }

    pub(crate) fn clean_logs(&mut self, asker: Asker, nodes: Vec<NodeId>, now: u64) -> Next {
        self.open(asker, What::Cleaned, NodeQuestion::CleanLogs, nodes, now)
    }

    fn open(
        &mut self,
        asker: Asker,
        what: What,
        question: NodeQuestion,
        nodes: Vec<NodeId>,
        now: u64,
    ) -> Next {
        let waiting = nodes.iter().copied().map(Peer::Node).collect();
        Next::Nodes(self.gather(asker, what, waiting, now), question, nodes)
    }

    /// Ask clients where a task of this number is.
    pub(crate) fn task(
        &mut self,
        asker: Asker,
        task: TaskId,
        own: Answer,
        (clients, nodes): (Vec<ClientId>, Vec<NodeId>),
        now: u64,
    ) -> Next {
        let peers = clients.iter().copied().map(Peer::Client);
        let waiting = peers.chain(nodes.iter().copied().map(Peer::Node)).collect();
        let number = self.gather(asker, What::Task(task, own), waiting, now);
        Next::Task(number, task, clients, nodes)
    }

    fn gather(&mut self, asker: Asker, what: What, waiting: BTreeSet<Peer>, now: u64) -> u64 {
        self.opened += 1;
        let until = now + PATIENCE.as_nanos() as u64;
        let (parts, own) = (BTreeMap::new(), Own::Unasked);
        self.open.insert(self.opened, Gathering { asker, what, waiting, parts, own, until });
        self.opened
    }

    pub(crate) fn on_answer(&mut self, peer: Peer, number: u64, text: Answer) {
        if let Some(gathering) = self.open.get_mut(&number)
            && gathering.waiting.remove(&peer)
        {
            gathering.parts.insert(peer, text);
        }
    }

    /// AK-2.
    pub(crate) fn on_gone(&mut self, peer: Peer) {
        for gathering in self.open.values_mut() {
            gathering.waiting.remove(&peer);
        }
    }

    /// When a question has waited long enough.
    pub(crate) fn wake(&self) -> Option<u64> {
        self.open.values().map(|gathering| gathering.until).min()
    }

    /// Returns whether an answer is complete, or as complete as it will be.
    pub(crate) fn has_finished(&self, now: u64) -> bool {
        self.open.values().any(|gathering| gathering.is_done(now))
    }

    /// Answers that are complete, or as complete as they will be (AK-1).
    pub(crate) fn finished(&mut self, now: u64, view: &View<'_>) -> Vec<(Asker, Answer)> {
        let ready: Vec<u64> = self
            .open
            .iter()
            .filter(|(_, gathering)| gathering.is_done(now))
            .map(|(&number, _)| number)
            .collect();
        let take = |number| self.open.remove(&number).expect("listed just now");
        ready.into_iter().map(take).map(|gathering| (gathering.asker, gathering.compose(view))).collect()
    }
}

/// What the head knows when it composes an answer.
pub(crate) struct View<'a> {
    pub about: Map<String, Value>,
    pub status: &'a Status,
    pub waits: &'a [Waits],
    pub actors: &'a [ActorStatus],
    /// How the journal is.
    pub journal: Value,
    /// How each peer is linked, and from where.
    pub links: &'a dyn Fn(crate::links::Peer) -> Option<crate::links::Way>,
}

impl Gathering {
    fn is_done(&self, now: u64) -> bool {
        self.waiting.is_empty() && self.own != Own::Awaited || self.until <= now
    }

    fn compose(self, view: &View<'_>) -> Answer {
        let parts = self.parts;
        match self.what {
            What::Status => Ok(report::status(view, &parts).to_string()),
            What::Logs => {
                let mut logs = match self.own {
                    Own::Unasked => Vec::new(),
                    Own::Awaited => vec![silence(json!({"of": HEAD}))],
                    Own::Given(Ok(text)) => vec![json!({"of": HEAD, "text": text})],
                    Own::Given(Err(why)) => vec![json!({"of": HEAD, "error": why})],
                };
                let of_nodes = parts.into_iter().filter_map(|(peer, part)| Some((peer.node()?, part)));
                for (node, part) in of_nodes {
                    let named = view.status.nodes.iter().find(|entry| entry.node == node);
                    let name = named.map_or_else(|| node_name(node), |entry| entry.name.clone());
                    logs.push(match part {
                        Ok(text) => json!({"of": name, "text": text}),
                        Err(why) => json!({"of": name, "error": why}),
                    });
                }
                logs.extend(silent(&self.waiting, view).map(|name| silence(json!({"of": name}))));
                Ok(json!({"logs": logs}).to_string())
            }
            What::Printed(program) => {
                // It may have run on those that do not answer.
                let unheard = (parts.is_empty() && !self.waiting.is_empty())
                    .then(|| silence(json!({"of": program.clone()})));
                let logs = parts.into_iter().filter_map(|(peer, part)| {
                    let node = peer.node()?;
                    let text = part.ok().filter(|text| !text.is_empty())?;
                    let named = view.status.nodes.iter().find(|entry| entry.node == node);
                    let node = named.map_or_else(|| node_name(node), |entry| entry.name.clone());
                    Some(json!({"of": program, "node": node, "text": text}))
                });
                Ok(json!({"logs": logs.chain(unheard).collect::<Vec<Value>>()}).to_string())
            }
            What::Cleaned => {
                let mut failed: Vec<Value> = parts
                    .into_iter()
                    .filter_map(|(peer, part)| {
                        Some(json!({"node": node_name(peer.node()?), "error": part.err()?}))
                    })
                    .collect();
                failed.extend(silent(&self.waiting, view).map(|name| silence(json!({"node": name}))));
                match self.own {
                    Own::Unasked | Own::Given(Ok(_)) => {}
                    Own::Awaited => failed.push(silence(json!({"node": HEAD}))),
                    Own::Given(Err(why)) => failed.push(json!({"node": HEAD, "error": why})),
                }
                Ok(json!({"cleaned": failed.is_empty(), "failed": failed}).to_string())
            }
            What::Task(task, own) => {
                let silent = self.waiting.iter().filter(|peer| peer.node().is_none()).count();
                explain::task(task, own, &parts, silent, view)
            }
        }
    }
}

/// Returns the names of the nodes that have not answered.
fn silent<'a>(waiting: &'a BTreeSet<Peer>, view: &'a View<'_>) -> impl Iterator<Item = String> + 'a {
    waiting.iter().filter_map(|peer| peer.node()).map(|node| {
        let named = view.status.nodes.iter().find(|entry| entry.node == node);
        named.map_or_else(|| node_name(node), |entry| entry.name.clone())
    })
}

/// Says of somebody that no answer came.
fn silence(mut of: Value) -> Value {
    of["error"] = "no answer in time".into();
    of["silent"] = true.into();
    of
}
