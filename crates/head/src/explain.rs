//! Why something is where it is, or why it waits, in sentences.

use crate::ask::View;
use crate::links::Peer;
use crate::report::resources;
use paceline_core::head::{LeaseStatus, Status, Waits};
use paceline_proto::question::{Answer, client_name, lease_name, node_name};
use paceline_proto::{ClientId, TaskId};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// About whatever waits, or about one thing as a status names it.
pub(crate) fn answer(
    what: Option<&str>,
    status: &Status,
    waits: &[Waits],
    journal: Option<String>,
) -> Answer {
    let mut lines = match what {
        None => waiting(waits),
        Some(what) => about(what, status, waits)?,
    };
    lines.extend(journal);
    let waits: Vec<Value> = waits.iter().map(|waits| told(waits, status)).collect();
    Ok(json!({"about": what, "lines": lines, "waits": waits}).to_string())
}

fn waiting(waits: &[Waits]) -> Vec<String> {
    if waits.is_empty() {
        return vec!["nothing waits".into()];
    }
    waits.iter().map(sentence).collect()
}

fn sentence(waits: &Waits) -> String {
    let Waits { needs, has, wants, why, .. } = waits;
    format!("client {} has {has} of {wants} leases of {needs} that it could use: {why}", title(waits))
}

fn title(waits: &Waits) -> String {
    let number = client_name(waits.client);
    if waits.name.is_empty() { number } else { format!("{} ({number})", waits.name) }
}

fn told(waits: &Waits, status: &Status) -> Value {
    json!({
        "client": client_name(waits.client),
        "name": waits.name,
        "needs": resources(&waits.needs, &status.names),
        "has": waits.has,
        "wants": waits.wants,
        "why": waits.why,
    })
}

fn about(what: &str, status: &Status, waits: &[Waits]) -> Result<Vec<String>, String> {
    let mut lines = Vec::new();
    for node in status.nodes.iter().filter(|node| node.name == what || node_name(node.node) == what) {
        let state = match (node.reachable, node.leaving) {
            (false, _) => "is out of reach",
            (true, true) => "finishes what it runs and leaves",
            (true, false) => "is here",
        };
        lines.push(format!("node {} {state}: {} of {} free", node.name, node.free, node.total));
        let leases = status.leases.iter().filter(|lease| lease.node == node.node);
        lines.extend(leases.map(|lease| format!("  {}", placed(lease, status))));
    }
    for (id, name) in status.clients.iter().filter(|(id, name)| name == what || client_name(*id) == what) {
        let leases: Vec<&LeaseStatus> = status.leases.iter().filter(|lease| lease.client == *id).collect();
        lines.push(format!("client {name} ({}) has {} leases", client_name(*id), leases.len()));
        lines.extend(leases.iter().map(|lease| format!("  {}", placed(lease, status))));
        lines.extend(waits.iter().filter(|waits| waits.client == *id).map(sentence));
    }
    let begins = |lease: &&LeaseStatus| what.len() >= 4 && lease_name(lease.lease).starts_with(what);
    lines.extend(status.leases.iter().filter(begins).map(|lease| placed(lease, status)));
    if lines.is_empty() {
        return Err(format!(
            "{what} is no lease, client, node or task of this cluster; paceline status --verbose shows what there is"
        ));
    }
    Ok(lines)
}

/// The task that is meant, and which clients may know of it: `42`, or `name/42` of one client.
pub(crate) fn task_of(what: &str, status: &Status, here: &[ClientId]) -> Option<(TaskId, Vec<ClientId>)> {
    let (client, number) =
        what.rsplit_once('/').map_or((None, what), |(client, number)| (Some(client), number));
    let task = TaskId(number.parse().ok()?);
    let meant = |id: &ClientId| {
        let named = status.clients.iter().any(|(other, name)| other == id && Some(name.as_str()) == client);
        client.is_none() || named || client == Some(&client_name(*id))
    };
    Some((task, here.iter().copied().filter(meant).collect()))
}

/// What clients say of their tasks of this number, and what those wait for.
pub(crate) fn task(
    task: TaskId,
    own: Answer,
    parts: &BTreeMap<Peer, Answer>,
    silent: usize,
    view: &View<'_>,
) -> Answer {
    let mut told = Vec::new();
    let mut lines: Vec<String> = Vec::new();
    for (peer, part) in parts {
        let (Peer::Client(id), Ok(text)) = (*peer, part) else { continue };
        let Ok(mut said) = serde_json::from_str::<Value>(text) else { continue };
        let name = view.status.clients.iter().find(|(other, _)| *other == id);
        let name = name.map(|(_, name)| name.as_str()).unwrap_or_default();
        let whose = format!("client {}", if name.is_empty() { client_name(id) } else { name.to_owned() });
        let own_lines = said["lines"].as_array().into_iter().flatten().filter_map(Value::as_str);
        lines.extend(own_lines.map(|line| format!("{whose}: {line}")));
        lines.extend(stopped(&said, parts, view).map(|line| format!("{whose}: {line}")));
        if said["state"] == "waiting" {
            let waits = view.waits.iter().filter(|waits| waits.client == id);
            lines.extend(waits.map(|waits| format!("{whose}: the head says: {}", waits.why)));
        }
        if let Some(object) = said.as_object_mut() {
            object.remove("lines");
            object.insert("client".into(), client_name(id).into());
            object.insert("name".into(), name.into());
        }
        told.push(said);
    }
    if let Ok(known) = own {
        // It is the name of something else, too.
        let known: Value = serde_json::from_str(&known).unwrap_or_default();
        let more = known["lines"].as_array().into_iter().flatten().filter_map(Value::as_str);
        lines.extend(more.map(str::to_owned));
    }
    if silent > 0 {
        let who = if silent == 1 { "one client".to_owned() } else { format!("{silent} clients") };
        lines.push(format!("{who} did not answer in time"));
    }
    if lines.is_empty() {
        return Err(format!(
            "no program of this cluster has a task {}: it has ended, or its program has gone",
            task.0
        ));
    }
    Ok(json!({"about": task.0, "lines": lines, "tasks": told}).to_string())
}

/// Whether the slot of a task stands still, as its node says.
fn stopped(said: &Value, parts: &BTreeMap<Peer, Answer>, view: &View<'_>) -> Option<String> {
    let (name, slot) = (said["node"].as_str()?, said["slot"].as_u64()?);
    let here = view.status.nodes.iter().filter(|node| node.name == name);
    here.filter_map(|node| parts.get(&Peer::Node(node.node))?.as_ref().ok())
        .filter_map(|text| serde_json::from_str::<Value>(text).ok())
        .find_map(|told| stands_still(&told["slots"], slot))
}

/// A sentence about a slot whose process was stopped, from the slots of its node as a status has them.
pub fn stands_still(slots: &Value, slot: u64) -> Option<String> {
    let found = slots.as_array()?.iter().find(|entry| entry["slot"] == slot)?;
    let (signal, pid) = (found["stopped"].as_str()?, found["pid"].as_u64()?);
    Some(format!(
        "slot {slot} stands still: its process ({pid}) was stopped by {signal}, and `kill -CONT {pid}` lets it go on"
    ))
}

fn placed(lease: &LeaseStatus, status: &Status) -> String {
    let node = status.nodes.iter().find(|node| node.node == lease.node);
    let node = node.map_or_else(|| node_name(lease.node), |node| node.name.clone());
    let state = match lease.state {
        "placing" => "waits for its slot to start",
        "held" => "is in use",
        "recalled" => "was asked back for others, and comes after what it runs",
        _ => "is over, and its slot finishes",
    };
    let name = lease_name(lease.lease);
    format!(
        "lease {name} on node {node}, {} of client {}: {state}",
        lease.shape.needs,
        client_name(lease.client)
    )
}
