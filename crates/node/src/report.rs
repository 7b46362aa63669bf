//! A node's own part of a status, as JSON.

use paceline_core::node::{SlotStatus, Status, stopping_signal};
use paceline_core::objects;
use paceline_proto::Way;
use paceline_proto::question::lease_name;
use serde_json::{Map, Value, json};

/// What the node knows of itself, with what the process around it adds.
pub(crate) fn status(status: &Status, objects: objects::Status, more: Option<&str>) -> String {
    let slots: Vec<Value> = status.slots.iter().map(slot).collect();
    let tired = status.backing_off.iter().map(|(place, deaths)| json!({"place": place, "deaths": deaths}));
    let mut found = Map::new();
    found.insert("slots".into(), slots.into());
    found.insert("waiting".into(), status.pending.into());
    found.insert("backing_off".into(), tired.collect());
    found.insert("zygote".into(), status.zygote_up.into());
    found.insert("objects".into(), kept(objects));
    if let Some(Ok(Value::Object(more))) = more.map(serde_json::from_str) {
        found.extend(more);
    }
    Value::Object(found).to_string()
}

fn kept(kept: objects::Status) -> Value {
    json!({
        "count": kept.objects,
        "memory": kept.used,
        "limit": kept.limit,
        "disk": kept.on_disk,
        "waiting": kept.waiting,
    })
}

fn slot(slot: &SlotStatus) -> Value {
    json!({
        "slot": slot.slot.0,
        "pid": slot.pid,
        "state": slot.state.name(),
        "client": slot.client.map(|client| format!("{:016x}", client.0)),
        "lease": slot.lease.map(lease_name),
        "blocked": slot.blocked,
        "stopped": slot.stopped.map(stopping_signal),
        "link": slot.way.map(Way::name),
    })
}
