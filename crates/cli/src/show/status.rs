//! A status, as people read it.

use super::table;
use serde_json::Value;
use std::collections::BTreeMap;

/// One line of a cluster: what it has and what of it is used.
pub fn summary(status: &Value) -> String {
    let cluster = &status["cluster"];
    let name = cluster["name"].as_str().unwrap_or("?");
    if let Some(error) = status["error"].as_str() {
        return format!("{name}: {error}");
    }
    let address = cluster["address"].as_str().unwrap_or("this machine only");
    let nodes = list(status, "nodes");
    let here: Vec<&Value> = nodes.iter().filter(|node| node["state"] != "away").copied().collect();
    let away = nodes.len() - here.len();
    let mut parts = vec![format!("{name}  {address}"), plural(here.len(), "node")];
    if away > 0 {
        parts.push(format!("{away} away"));
    }
    for (resource, (used, total)) in sums(&here) {
        parts.push(format!("{resource} {} of {} used", amount(&resource, used), amount(&resource, total)));
    }
    parts.push(plural(list(status, "clients").len(), "client"));
    let programs = list(status, "programs").into_iter().filter(|program| program["state"] != "ended").count();
    if programs > 0 {
        parts.push(plural(programs, "program"));
    }
    if let Some(state @ ("stalled" | "failed")) = status["journal"]["state"].as_str() {
        parts.push(format!("journal {state}"));
    }
    parts.join("  ")
}

/// Tables of nodes, clients, programs and actors.
pub fn details(status: &Value) -> Vec<String> {
    let mut lines = Vec::new();
    let text = |value: &Value| match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => text.clone(),
        value => value.to_string(),
    };
    lines.extend(status["journal"]["trouble"].as_str().map(|trouble| format!("  {trouble}")));
    let nodes = list(status, "nodes");
    if !nodes.is_empty() {
        let rows = nodes.iter().map(|node| {
            let slots = list(node, "slots");
            let leased = slots.iter().filter(|slot| slot["state"] == "leased").count();
            let stopped = match slots.iter().filter(|slot| !slot["stopped"].is_null()).count() {
                0 => String::new(),
                stopped => format!(", {stopped} stopped"),
            };
            vec![
                text(&node["name"]),
                text(&node["state"]),
                text(&node["link"]),
                text(&node["address"]),
                usage(node),
                format!("{leased} of {}{stopped}", slots.len()),
                objects(&node["objects"]),
                text(&node["node"]),
            ]
        });
        let heads = ["  node", "state", "link", "address", "used", "slots", "objects", "number"];
        lines.extend(indented(&heads, rows.collect()));
    }
    let clients = list(status, "clients");
    if !clients.is_empty() {
        let rows = clients.iter().map(|client| {
            vec![
                text(&client["name"]),
                text(&client["link"]),
                text(&client["leases"]),
                text(&client["client"]),
            ]
        });
        lines.extend(indented(&["  client", "link", "leases", "number"], rows.collect()));
    }
    let programs = list(status, "programs");
    if !programs.is_empty() {
        let rows = programs.iter().map(|program| {
            vec![
                text(&program["program"]),
                text(&program["state"]),
                text(&program["node"]),
                text(&program["restarted"]),
                outcome(program),
            ]
        });
        lines.extend(indented(&["  program", "state", "node", "restarted", ""], rows.collect()));
    }
    let actors = list(status, "actors");
    if !actors.is_empty() {
        let rows = actors.iter().map(|actor| {
            let place = &actor["place"];
            vec![
                text(if actor["name"].is_null() { &actor["actor"] } else { &actor["name"] }),
                text(if actor["program"].is_null() { &actor["owner"] } else { &actor["program"] }),
                text(&place["node"]),
                text(&place["slot"]),
                actor["callers"].as_array().map_or(0, Vec::len).to_string(),
            ]
        });
        lines.extend(indented(&["  actor", "owner", "node", "slot", "callers"], rows.collect()));
    }
    lines
}

/// What a node keeps for references.
fn objects(kept: &Value) -> String {
    let number = |name: &str| kept[name].as_u64().unwrap_or_default();
    let size = |bytes: u64| format!("{:.1}G", bytes as f64 / f64::from(1 << 30));
    match (number("count"), number("disk")) {
        (0, _) => "-".to_owned(),
        (count, 0) => format!("{count}: {} of {}", size(number("memory")), size(number("limit"))),
        (count, disk) => {
            format!(
                "{count}: {} of {}, {} on disk",
                size(number("memory")),
                size(number("limit")),
                size(disk)
            )
        }
    }
}

/// How a program ended, or what it waits for.
fn outcome(program: &Value) -> String {
    match (program["exit_code"].as_i64(), program["signal"].as_i64(), program["reason"].as_str()) {
        (Some(code), _, _) => format!("exit code {code}"),
        (None, Some(signal), _) => format!("signal {signal}"),
        (None, None, Some(reason)) => reason.to_owned(),
        (None, None, None) => program["why"].as_str().unwrap_or_default().to_owned(),
    }
}

fn indented(heads: &[&str], mut rows: Vec<Vec<String>>) -> Vec<String> {
    for row in &mut rows {
        row[0] = format!("  {}", row[0]);
    }
    table(heads, rows)
}

fn usage(node: &Value) -> String {
    let parts = sums(&[node]).into_iter().map(|(resource, (used, total))| {
        format!("{resource} {} of {}", amount(&resource, used), amount(&resource, total))
    });
    parts.collect::<Vec<_>>().join(", ")
}

/// What nodes have together and what of it is used, by resource.
fn sums(nodes: &[&Value]) -> BTreeMap<String, (f64, f64)> {
    let mut sums: BTreeMap<String, (f64, f64)> = BTreeMap::new();
    for node in nodes {
        for (resource, total) in node["total"].as_object().into_iter().flatten() {
            let total = total.as_f64().unwrap_or(0.0);
            let free = node["free"][resource].as_f64().unwrap_or(0.0);
            let sum = sums.entry(resource.clone()).or_default();
            *sum = (sum.0 + (total - free), sum.1 + total);
        }
    }
    sums
}

fn amount(resource: &str, amount: f64) -> String {
    if resource == "memory" {
        return format!("{:.1}G", amount / f64::from(1 << 30));
    }
    let rounded = (amount * 10_000.0).round() / 10_000.0;
    format!("{rounded}")
}

fn list<'a>(value: &'a Value, name: &str) -> Vec<&'a Value> {
    value[name].as_array().into_iter().flatten().collect()
}

fn plural(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}
