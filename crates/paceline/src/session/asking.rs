//! What a client asks its head, and what it tells people of the answers.

use super::Session;
use paceline_proto::TaskId;
use paceline_proto::question::{Question, client_name};
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

/// How long the head may take to answer a question.
const ANSWER_LIMIT: Duration = Duration::from_secs(5);

/// How often whoever waits for an answer is asked whether it was interrupted: a signal that another thread got wakes nobody.
pub(crate) const WAIT_SLICE: Duration = Duration::from_millis(100);

/// Why there is no answer if whoever waits for it was interrupted.
pub(crate) const INTERRUPTED: &str = "whoever asked was interrupted";

/// What comes within this time, unless the sender is gone or the asker is interrupted before.
pub(crate) fn received<T>(
    answer: &Receiver<T>,
    within: Duration,
    interrupted: &mut dyn FnMut() -> bool,
) -> Option<T> {
    let until = Instant::now() + within;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        match answer.recv_timeout(left.min(WAIT_SLICE)) {
            Ok(answer) => return Some(answer),
            Err(RecvTimeoutError::Disconnected) => return None,
            Err(RecvTimeoutError::Timeout) if left <= WAIT_SLICE || interrupted() => return None,
            Err(RecvTimeoutError::Timeout) => {}
        }
    }
}

impl Session {
    /// Ask the head something, and wait for the answer. An error is a sentence that says why there is none. `interrupted` is
    /// asked again and again, and ends the wait.
    pub fn ask(
        &self,
        question: Question,
        within: Duration,
        interrupted: &mut dyn FnMut() -> bool,
    ) -> Result<String, String> {
        if self.shared.closed() {
            return Err("the cluster is closed".into());
        }
        let answer = self.shared.state.lock().inner.ask(question);
        received(&answer, within, interrupted).unwrap_or_else(|| Err("the head does not answer".into()))
    }

    /// How the cluster stands, as the head tells it in JSON.
    pub fn cluster_status(&self, interrupted: &mut dyn FnMut() -> bool) -> Result<String, String> {
        let status = self.ask(Question::Status, ANSWER_LIMIT, interrupted)?;
        if let Some(cpus) = cpus_of(&status) {
            self.shared.cpus.store(cpus.max(1), Ordering::Relaxed);
        }
        Ok(status)
    }

    /// Where a task is, and what it waits for, in lines for people. The head is asked, too, if it waits for slots.
    pub fn explain(
        &self,
        task: TaskId,
        interrupted: &mut dyn FnMut() -> bool,
    ) -> Result<Vec<String>, String> {
        if self.shared.closed() {
            return Err("the cluster is closed".into());
        }
        let (told, me) = {
            let state = self.shared.state.lock();
            (state.inner.explain(task)?, state.inner.core.id())
        };
        let mut lines: Vec<String> = texts(&told["lines"]);
        lines.extend(self.stands_still(&told, interrupted));
        if told["state"] == "waiting" {
            let client = client_name(me);
            // What it does not answer in time, it does not say.
            let said = self.ask(Question::Explain { what: None }, ANSWER_LIMIT, interrupted).ok();
            let said: serde_json::Value =
                said.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default();
            let waits = said["waits"].as_array().into_iter().flatten();
            let mine = waits.filter(|waits| waits["client"] == client.as_str());
            lines.extend(mine.filter_map(|waits| Some(format!("the head says: {}", waits["why"].as_str()?))));
            lines.dedup();
        }
        Ok(lines)
    }

    /// Whether the slot of a task was stopped, as its node tells the head.
    fn stands_still(
        &self,
        told: &serde_json::Value,
        interrupted: &mut dyn FnMut() -> bool,
    ) -> Option<String> {
        let slot = told["slot"].as_u64()?;
        let status = self.ask(Question::Status, ANSWER_LIMIT, interrupted).ok()?;
        let status: serde_json::Value = serde_json::from_str(&status).ok()?;
        let here = status["nodes"].as_array()?.iter().filter(|node| node["name"] == told["node"]);
        here.map(|node| &node["slots"]).find_map(|slots| paceline_head::stands_still(slots, slot))
    }
}

/// The texts of a list.
fn texts(list: &serde_json::Value) -> Vec<String> {
    list.as_array().into_iter().flatten().filter_map(|line| Some(line.as_str()?.to_owned())).collect()
}

/// How many CPUs the nodes have together, by the head's status.
fn cpus_of(status: &str) -> Option<u64> {
    let status: serde_json::Value = serde_json::from_str(status).ok()?;
    let nodes = status.get("nodes")?.as_array()?;
    let cpus = nodes.iter().filter_map(|node| node.get("total")?.get("cpus")?.as_f64());
    Some(cpus.sum::<f64>() as u64)
}
