//! Where a task is and what it waits for, in sentences.

use crate::state::{State, tick};
use paceline_core::client::{TaskPlace, TaskStatus};
use paceline_proto::{NodeId, TaskId};
use serde_json::{Value, json};

impl State {
    /// What is known here of a task: for programs, and as lines for people. An error says that there is no such task.
    pub(crate) fn explain(&self, task: TaskId) -> Result<Value, String> {
        let status = self.core.task_status(tick(), task);
        let status = status.ok_or_else(|| format!("task {} has ended, or never was", task.0))?;
        let name = |node| self.names.get(&node).cloned().unwrap_or_else(|| self.own_name.clone());
        Ok(told(&status, &name))
    }
}

fn told(status: &TaskStatus, name: &dyn Fn(NodeId) -> String) -> Value {
    let (state, node, slot) = match &status.place {
        TaskPlace::Queued { .. } => ("waiting", None, None),
        TaskPlace::Sent { node, slot, started: true, .. } => ("running", Some(name(*node)), Some(slot.0)),
        TaskPlace::Sent { node, slot, .. } => ("sent", Some(name(*node)), Some(slot.0)),
    };
    let mut lines = vec![sentence(status, name)];
    lines.extend(before(status));
    json!({
        "task": status.task.0,
        "state": state,
        "needs": status.needs.to_string(),
        "node": node,
        "slot": slot,
        "attempts": status.attempts,
        "retries": status.retries,
        "deaths": status.deaths,
        "lines": lines,
    })
}

fn sentence(status: &TaskStatus, name: &dyn Fn(NodeId) -> String) -> String {
    let task = format!("task {}", status.task.0);
    match &status.place {
        TaskPlace::Sent { node, slot, before, started, since, linked, .. } => {
            let whereabouts = format!("slot {} on node {}", slot.0, name(*node));
            let link = if *linked { "" } else { "; the connection to it is down, and being made again" };
            match (started, before) {
                (true, _) => format!("{task} runs in {whereabouts}, for {:.1} s{link}", since.as_secs_f64()),
                (false, 0) => format!("{task} was sent to {whereabouts} and runs there or is about to{link}"),
                (false, before) => {
                    format!("{task} waits in {whereabouts}, behind {}{link}", counted(*before, "other task"))
                }
            }
        }
        TaskPlace::Queued { before, leases, busy, wanted, why, near, group, alone } => {
            let ahead = match before {
                0 => "first in its queue".to_owned(),
                before => format!("behind {} in its queue", counted(*before, "other task")),
            };
            let slots = match (group, leases) {
                (Some((there, size)), _) => {
                    format!("its group has {there} of {size} members, and begins when all are there")
                }
                (None, 0) => format!("its program has no slot with {}", status.needs),
                (None, 1) if *busy > 0 => {
                    format!("its program has one slot with {}, which is at work", status.needs)
                }
                (None, _) => {
                    let of = format!("{busy} of {leases} slots with {} that its program has", status.needs);
                    format!("{of} are at work, and it could use {wanted}")
                }
            };
            let head = if *alone { "; there is no link to the head, which gives out slots" } else { "" };
            let why = if why.is_empty() { String::new() } else { format!("; {why}") };
            let near: Vec<String> = near.iter().map(|node| name(*node)).collect();
            let near = match near.join(", ") {
                names if names.is_empty() => names,
                names => format!("; what it needs is on {names}, so it waits a little for a slot there"),
            };
            format!("{task} waits, {ahead}: {slots}{near}{why}{head}")
        }
    }
}

/// What it has behind it.
fn before(status: &TaskStatus) -> Option<String> {
    if status.attempts == 0 {
        return None;
    }
    let deaths = match status.deaths {
        0 => String::new(),
        deaths => format!(", and {} died under it", counted(deaths, "slot")),
    };
    let left = match status.retries {
        0 => "no retry is left".to_owned(),
        1 => "one retry is left".to_owned(),
        retries => format!("{retries} retries are left"),
    };
    Some(format!("it was begun {} before{deaths}; {left}", counted(status.attempts as usize, "time")))
}

fn counted(count: usize, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use paceline_proto::{LeaseId, Resources, SlotId};
    use std::time::Duration;

    fn lines(place: TaskPlace, attempts: u32, deaths: usize) -> String {
        let needs = Resources::cpus(2);
        let status = TaskStatus { task: TaskId(7), needs, attempts, retries: 1, deaths, place };
        let told = told(&status, &|node| format!("n{}", node.0));
        told["lines"]
            .as_array()
            .unwrap()
            .iter()
            .map(|line| line.as_str().unwrap())
            .collect::<Vec<_>>()
            .join(" | ")
    }

    fn queued(before: usize, leases: usize, group: Option<(usize, usize)>) -> TaskPlace {
        let (busy, wanted, why, alone) = (leases, 4, String::new(), false);
        TaskPlace::Queued { before, leases, busy, wanted, why, near: Vec::new(), group, alone }
    }

    #[test]
    fn sentences_say_where_and_why() {
        let sent = |before, started, linked| TaskPlace::Sent {
            lease: LeaseId(1),
            node: NodeId(3),
            slot: SlotId(5),
            before,
            started,
            since: Duration::from_millis(1_250),
            linked,
        };
        let cases = [
            (sent(0, true, true), "task 7 runs in slot 5 on node n3, for 1.2 s"),
            (sent(1, false, true), "task 7 waits in slot 5 on node n3, behind 1 other task"),
            (
                sent(0, true, false),
                "task 7 runs in slot 5 on node n3, for 1.2 s; the connection to it is down, and being made again",
            ),
            (queued(0, 0, None), "task 7 waits, first in its queue: its program has no slot with 2 CPUs"),
            (
                queued(2, 3, None),
                "task 7 waits, behind 2 other tasks in its queue: 3 of 3 slots with 2 CPUs that its program has are \
                 at work, and it could use 4",
            ),
            (
                queued(0, 1, Some((1, 3))),
                "task 7 waits, first in its queue: its group has 1 of 3 members, and begins when all are there",
            ),
        ];
        let mut near = queued(0, 1, None);
        if let TaskPlace::Queued { near, .. } = &mut near {
            near.push(NodeId(3));
        }
        let said = lines(near, 0, 0);
        assert!(said.ends_with("; what it needs is on n3, so it waits a little for a slot there"), "{said}");
        for (place, said) in cases {
            assert_eq!(lines(place, 0, 0), said);
        }
        let again = lines(queued(0, 0, None), 2, 1);
        assert!(
            again.ends_with("it was begun 2 times before, and 1 slot died under it; one retry is left"),
            "{again}"
        );
    }
}
