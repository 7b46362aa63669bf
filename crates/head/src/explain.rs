//! Why something is where it is, or why it waits, in sentences.

use crate::report::{client_name, resources};
use paceline_core::head::{LeaseStatus, Status, Waits};
use paceline_proto::question::{Answer, lease_name, node_name};
use serde_json::{Value, json};

/// About whatever waits, or about one thing as a status names it.
pub(crate) fn answer(what: Option<&str>, status: &Status, waits: &[Waits]) -> Answer {
    let lines = match what {
        None => waiting(waits),
        Some(what) => about(what, status, waits)?,
    };
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
            "{what} is no lease, client or node of this cluster; tasks are known to the program that submitted them"
        ));
    }
    Ok(lines)
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
