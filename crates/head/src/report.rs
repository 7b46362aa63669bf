//! A status as JSON: what the head knows, with what nodes told of themselves.
//!
//! The fields are a promise to programs; docs/cluster.md lists them.

use crate::ask::View;
use crate::links::{Peer, Way};
use paceline_core::head::{ActorStatus, LeaseStatus, NodeStatus, Status, WorkStatus};
use paceline_proto::question::{Answer, client_name, lease_name, node_name};
use paceline_proto::work::End;
use paceline_proto::{ClientId, DeathCause, Names, NodeId, Resources};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

pub(crate) fn status(view: &View<'_>, parts: &BTreeMap<Peer, Answer>) -> Value {
    let told: BTreeMap<NodeId, Value> = parts
        .iter()
        .filter_map(|(peer, part)| Some((peer.node()?, serde_json::from_str(part.as_ref().ok()?).ok()?)))
        .collect();
    let ways = lease_links(&told);
    let nodes: Vec<Value> =
        view.status.nodes.iter().map(|entry| node(view, entry, told.get(&entry.node))).collect();
    let clients: Vec<Value> = view.status.clients.iter().map(|(id, name)| client(view, *id, name)).collect();
    let leases: Vec<Value> = view.status.leases.iter().map(|entry| lease(view, entry, &ways)).collect();
    let programs: Vec<Value> =
        view.status.works.iter().map(|work| program(work, &view.status.names)).collect();
    let actors: Vec<Value> = view.actors.iter().map(|entry| actor(view, entry)).collect();
    json!({
        "cluster": view.about,
        "nodes": nodes,
        "clients": clients,
        "leases": leases,
        "programs": programs,
        "actors": actors,
        "journal": view.journal,
    })
}

/// An actor that others than its owner may call.
fn actor(view: &View<'_>, entry: &ActorStatus) -> Value {
    let place = entry.place.map(|(node, slot, lease)| {
        let named = view.status.nodes.iter().find(|it| it.node == node);
        let node = named.map_or_else(|| node_name(node), |it| it.name.clone());
        json!({"node": node, "slot": slot.0, "lease": lease_name(lease)})
    });
    json!({
        "actor": format!("{:032x}", entry.actor.0),
        "name": entry.name,
        "owner": entry.owner.map(client_name),
        "program": entry.program,
        "place": place,
        "callers": entry.visitors.iter().map(|client| client_name(*client)).collect::<Vec<_>>(),
    })
}

/// What was submitted.
pub(crate) fn programs(status: &Status) -> Value {
    let programs: Vec<Value> = status.works.iter().map(|work| program(work, &status.names)).collect();
    json!({"programs": programs})
}

fn program(work: &WorkStatus, names: &Names) -> Value {
    let mut found = json!({
        "program": work.name,
        "number": format!("{:016x}", work.work.0),
        "state": work.state,
        "node": work.node,
        "restarted": work.restarted,
        "submitted": work.submitted,
    });
    let mut more = Map::new();
    if let Some(needs) = &work.needs {
        more.insert("needs".into(), resources(needs, names));
    }
    if let Some(restarts) = work.restarts {
        more.insert("restarts".into(), json!(restarts));
    }
    if let Some(why) = &work.why {
        more.insert("why".into(), json!(why));
    }
    if let Some((end, at)) = work.end {
        more.insert("ended".into(), json!(at));
        let (exit_code, signal, reason) = match end {
            End::Died { cause: DeathCause::Exit(code), out_of_memory: false } => (Some(code), None, "exit"),
            End::Died { cause: DeathCause::Exit(code), .. } => (Some(code), None, "memory"),
            End::Died {
                cause: DeathCause::Signal(signal) | DeathCause::Stopped(signal),
                out_of_memory: false,
            } => (None, Some(signal), "signal"),
            End::Died { cause: DeathCause::Signal(signal) | DeathCause::Stopped(signal), .. } => {
                (None, Some(signal), "memory")
            }
            End::Died { cause: DeathCause::NodeLost | DeathCause::TimedOut, .. } | End::NodeLost => {
                (None, None, "node-lost")
            }
            End::Stopped => (None, None, "stopped"),
        };
        more.insert("exit_code".into(), json!(exit_code));
        more.insert("signal".into(), json!(signal));
        more.insert("reason".into(), json!(reason));
    }
    if let Some(object) = found.as_object_mut() {
        object.extend(more);
    }
    found
}

fn node(view: &View<'_>, entry: &NodeStatus, told: Option<&Value>) -> Value {
    let way = (view.links)(Peer::Node(entry.node));
    let state = match (entry.reachable, entry.leaving, told) {
        (false, _, _) => "away",
        (true, true, _) => "leaving",
        (true, false, None) => "silent",
        (true, false, Some(_)) => "up",
    };
    let tcp = entry.addresses.iter().filter(|address| !address.is_unix());
    let listens: Vec<String> = tcp.map(ToString::to_string).collect();
    let mut found = json!({
        "node": node_name(entry.node),
        "name": entry.name,
        "state": state,
        "link": link(&way),
        "address": way.and_then(|way| way.address),
        "listens": listens,
        "total": resources(&entry.total, &view.status.names),
        "free": resources(&entry.free, &view.status.names),
    });
    if let (Some(object), Some(Value::Object(more))) = (found.as_object_mut(), told) {
        for (name, value) in more {
            object.entry(name.clone()).or_insert_with(|| value.clone());
        }
    }
    found
}

fn client(view: &View<'_>, id: ClientId, name: &str) -> Value {
    let way = (view.links)(Peer::Client(id));
    let leases = view.status.leases.iter().filter(|lease| lease.client == id);
    json!({
        "client": client_name(id),
        "name": name,
        "link": link(&way),
        "address": way.and_then(|way| way.address),
        "leases": leases.count(),
    })
}

fn lease(view: &View<'_>, entry: &LeaseStatus, ways: &BTreeMap<String, Value>) -> Value {
    let named = view.status.nodes.iter().find(|node| node.node == entry.node);
    let name = lease_name(entry.lease);
    let link = ways.get(&name).cloned().unwrap_or(Value::Null);
    json!({
        "lease": name,
        "client": client_name(entry.client),
        "node": named.map_or_else(|| node_name(entry.node), |node| node.name.clone()),
        "needs": resources(&entry.shape.needs, &view.status.names),
        "state": entry.state,
        "link": link,
    })
}

/// How the client of each lease is linked to its slot, as far as nodes told.
fn lease_links(told: &BTreeMap<NodeId, Value>) -> BTreeMap<String, Value> {
    let slots = told.values().filter_map(|node| node.get("slots")?.as_array()).flatten();
    slots
        .filter_map(|slot| Some((slot.get("lease")?.as_str()?.to_owned(), slot.get("link")?.clone())))
        .collect()
}

fn link(way: &Option<Way>) -> Option<&'static str> {
    way.as_ref().map(|way| way.link)
}

pub(crate) fn resources(resources: &Resources, names: &Names) -> Value {
    let amounts = resources.amounts(names).into_iter().map(|(name, amount)| (name, number(amount)));
    Value::Object(amounts.collect::<Map<_, _>>())
}

/// Whole amounts without a fraction.
fn number(amount: f64) -> Value {
    if amount.fract() == 0.0 { json!(amount as u64) } else { json!(amount) }
}
