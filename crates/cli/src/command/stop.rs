//! `paceline stop`.
//!
//! * SP-1: what ends is this cluster's and its owner's; nothing else is touched.
//! * SP-2: when it returns, nothing of it is left on this machine, and every node was told to go and is gone.

use crate::args::Stop;
use crate::ask::{self, Target};
use crate::failure::{Code, Failure, failed};
use crate::settings::Settings;
use crate::show;
use paceline_proto::question::Question;
use paceline_registry::{Home, Node};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// How long a daemon may take to be gone once its cluster is.
const GONE_WITHIN: Duration = Duration::from_secs(5);
/// How long a node may take to finish what it runs.
const LEFT_WITHIN: Duration = Duration::from_secs(30);

pub fn run(args: &Stop, json: bool) -> Result<(), Failure> {
    if let Some(name) = &args.program {
        return super::submit::stop(&args.which, name, json);
    }
    let settings = Settings::gather(args.which.flags())?;
    let home = Home::find()?;
    let named = !settings.is_default("name") || settings.given("address").is_some();
    let targets = match ask::target(&home, &settings) {
        _ if args.all => ask::all(&home),
        Ok(target) => vec![target],
        // There is nothing to end: that is what was wanted. What a killed head has left goes, too.
        Err(failure)
            if failure.code == Code::NoCluster && (!named || sweep(&home, settings.text("name"))) =>
        {
            Vec::new()
        }
        Err(failure) => return Err(failure),
    };
    if !named || args.all {
        for place in home.clusters() {
            sweep(&home, place.name());
        }
    }
    let mut told = Vec::new();
    for target in &targets {
        let text = match (&args.node, args.head) {
            (Some(node), _) => stop_node(target, node)?,
            (None, true) => stop_head(target)?,
            (None, false) if target.head.is_none() && settings.given("address").is_none() => leave(target)?,
            (None, false) => stop(target)?,
        };
        if !json {
            show::note(&text);
        }
        told.push(target.name.clone());
    }
    if json {
        show::json(&json!({"stopped": told}));
    } else if told.is_empty() {
        show::note("no active cluster");
    }
    Ok(())
}

/// Remove the files of a cluster of which nothing lives. False: there are none, or something lives.
fn sweep(home: &Home, name: &str) -> bool {
    let Ok(place) = home.cluster(name) else { return false };
    let dead = place.check_owner().is_ok() && place.path().exists() && !place.is_in_use();
    // A key that is kept for the next join is not of a dead cluster.
    let dead = dead && (place.last_head().is_some() || place.known_nodes().is_empty());
    if dead {
        let _ = place.remove();
        home.tidy();
    }
    dead
}

/// The whole cluster.
fn stop(target: &Target) -> Result<String, Failure> {
    let answer = target.ask(Question::Stop)?;
    if let (Some(place), Some(head)) = (&target.place, &target.head) {
        wait_until(GONE_WITHIN, || !place.is_head_alive() && !is_alive(head.pid))
            .map_err(|()| stuck(target, head.pid))?;
        for node in &target.nodes {
            wait_until(GONE_WITHIN, || !is_alive(node.pid)).map_err(|()| stuck(target, node.pid))?;
        }
    }
    let left: Vec<&str> = answer["left"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    if left.is_empty() {
        return Ok(format!("cluster {} is stopped", target.name));
    }
    let text = format!("cluster {} is stopped, but these nodes did not go: {}", target.name, left.join(", "));
    Err(failed(text)
        .hint("they end by themselves when they have been without a head for as long as head_lost says"))
}

/// The head alone.
fn stop_head(target: &Target) -> Result<String, Failure> {
    target.ask(Question::StopHead)?;
    if let (Some(place), Some(head)) = (&target.place, &target.head) {
        wait_until(GONE_WITHIN, || !place.is_head_alive() && !is_alive(head.pid))
            .map_err(|()| stuck(target, head.pid))?;
    }
    Ok(format!(
        "the head of cluster {} is stopped; paceline start with the same name goes on with it",
        target.name
    ))
}

/// One node: the named one, or this machine's.
fn stop_node(target: &Target, name: &str) -> Result<String, Failure> {
    if !name.is_empty() {
        target.ask(Question::Drain { node: name.into() })?;
        return Ok(format!("node {name} of cluster {} finishes what it runs and leaves", target.name));
    }
    if target.nodes.is_empty() {
        let text = format!("cluster {} has no node on this machine", target.name);
        return Err(Failure::new(Code::NoCluster, text));
    }
    leave(target)
}

/// This machine's nodes, and what the machine knows of the cluster.
fn leave(target: &Target) -> Result<String, Failure> {
    for node in &target.nodes {
        // In the head's own process only the head can tell it to go; and it lets work finish in any case.
        if target.ask(Question::Drain { node: node.node.clone() }).is_err() {
            signal(node.pid);
        }
    }
    if let Some(place) = &target.place {
        for node in &target.nodes {
            wait_until(LEFT_WITHIN, || !place.is_node_alive(&node.name)).map_err(|()| {
                let text = format!("node {} of cluster {} still runs something", node.name, target.name);
                Failure::new(Code::TimedOut, text).hint(format!("kill {} ends it within seconds", node.pid))
            })?;
        }
        // One beside the head is a part of its process.
        let own = |node: &&Node| target.head.as_ref().is_none_or(|head| head.pid != node.pid);
        for node in target.nodes.iter().filter(own) {
            wait_until(GONE_WITHIN, || !is_alive(node.pid)).map_err(|()| stuck(target, node.pid))?;
        }
        if !place.is_in_use() {
            let _ = place.remove();
        }
    }
    let names: Vec<&str> = target.nodes.iter().map(|node: &Node| node.name.as_str()).collect();
    Ok(format!("node {} has left cluster {}", names.join(", "), target.name))
}

fn stuck(target: &Target, pid: u32) -> Failure {
    Failure::new(Code::TimedOut, format!("process {pid} of cluster {} does not end", target.name))
        .hint(format!("kill -9 {pid} ends it and everything it started"))
}

fn wait_until(limit: Duration, done: impl Fn() -> bool) -> Result<(), ()> {
    let until = Instant::now() + limit;
    while !done() {
        if Instant::now() > until {
            return Err(());
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    Ok(())
}

/// Ended but not yet reaped counts as ended.
fn is_alive(pid: u32) -> bool {
    let Ok(text) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else { return false };
    let state = text.rsplit(')').next().and_then(|rest| rest.split_ascii_whitespace().next());
    !matches!(state, Some("Z" | "X") | None)
}

fn signal(pid: u32) {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    if let Some(Ok(process)) = pid.map(|pid| pidfd_open(pid, PidfdFlags::empty())) {
        let _ = pidfd_send_signal(&process, Signal::TERM);
    }
}
