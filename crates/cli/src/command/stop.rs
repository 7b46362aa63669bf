//! `paceline stop`.
//!
//! * SP-1: what ends is this cluster's and its owner's; nothing else is touched.
//! * SP-3: what ends with a part that is named, but is not named itself, is said before anything ends.
//! * SP-2: when it returns, nothing of it is left on this machine, and every node was told to go and is gone.

use crate::args::Stop;
use crate::ask::{self, Target};
use crate::failure::{Code, Failure, failed, usage};
use crate::settings::Settings;
use crate::show;
use paceline_proto::question::Question;
use paceline_registry::{Home, Node, Place, machine};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
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
    // What a crashed head has left is removed with its cluster, never for the sake of a part of it.
    let whole = args.node.is_none() && !args.head;
    let named = !settings.is_default("name") || settings.given("address").is_some();
    let targets = match ask::target(&home, &settings) {
        _ if args.all => ask::all(&home),
        Ok(target) => vec![target],
        // There is nothing to end: that is what was wanted. What a killed head has left goes, too.
        Err(failure)
            if whole
                && matches!(failure.code, Code::NoCluster | Code::Unreachable)
                && (!named || sweep(&home, settings.text("name"))) =>
        {
            Vec::new()
        }
        Err(failure) => return Err(failure),
    };
    if whole && args.all {
        home.clusters().iter().for_each(|place| _ = sweep(&home, place.name()));
    } else if whole && !named {
        // Never another cluster than the one that is meant: a head that was told to end keeps what it had for its next start.
        let meant = ask::the_dead(ask::dead_heads(&home)).filter(|_| targets.is_empty());
        let nobodys = home.clusters().into_iter().filter(|place| place.last_head().is_none());
        for place in nobodys.chain(meant.map(|dead| dead.place)) {
            sweep(&home, place.name());
        }
    }
    let mut told = Vec::new();
    let mut failures = Vec::new();
    for target in &targets {
        let stopped = match (&args.node, args.head) {
            (node, true) => stop_head(target, node.as_deref()),
            (Some(node), _) => stop_node(target, node),
            (None, false) if target.head.is_none() && settings.given("address").is_none() => leave(target),
            (None, false) => stop(&home, target),
        };
        match stopped {
            Ok(text) if !json => show::note(&text),
            Ok(_) => {}
            // The others are to end all the same.
            Err(failure) => {
                failures.push(failure);
                continue;
            }
        }
        told.push(target.name.clone());
    }
    if let Some(first) = failures.into_iter().next() {
        // As JSON, the failure says it; but what has ended is not to be forgotten.
        if !json && targets.len() > 1 {
            show::note(&format!("stopped {} of {} clusters", told.len(), targets.len()));
        }
        return Err(first);
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
        if let Some(head) = place.last_head() {
            let text =
                format!("the head of cluster {name}, process {}, has ended without being stopped", head.pid);
            show::note(&format!(
                "{text}: its files are removed, with the programs that were submitted to it"
            ));
        }
        let _ = place.remove();
        home.tidy();
    }
    dead
}

/// The whole cluster.
fn stop(home: &Home, target: &Target) -> Result<String, Failure> {
    let dead = target.place.as_ref().map_or_else(Vec::new, dead_nodes);
    let answer = match target.ask(Question::Stop) {
        Ok(answer) => answer,
        Err(failure) if failure.code == Code::Unreachable && has_ended(target) => {
            return clear(home, target).ok_or(failure)?;
        }
        Err(failure) => return Err(failure),
    };
    if let (Some(place), Some(head)) = (&target.place, &target.head) {
        wait_until(GONE_WITHIN, || !place.is_head_alive() && !is_alive(head.pid))
            .map_err(|()| stuck(target, head.pid))?;
        for node in &target.nodes {
            wait_until(GONE_WITHIN, || !is_alive(node.pid)).map_err(|()| stuck(target, node.pid))?;
        }
    }
    let left = answer["left"].as_array().into_iter().flatten().filter_map(Value::as_str);
    // The head may not have noticed yet that one was killed.
    let left: Vec<&str> = left.filter(|node| !dead.iter().any(|dead| dead == node)).collect();
    if left.is_empty() {
        return Ok(format!("cluster {} is stopped", target.name));
    }
    let text = format!("cluster {} is stopped, but these nodes did not go: {}", target.name, left.join(", "));
    Err(failed(text)
        .hint("they end by themselves when they have been without a head for as long as head_lost says"))
}

/// The nodes of this machine that have ended without leaving.
fn dead_nodes(place: &Place) -> Vec<String> {
    let own = place.known_nodes().into_iter().filter(|node| node.machine == machine());
    own.map(|node| node.name).filter(|name| !place.is_node_alive(name)).collect()
}

/// Whether a head that could not be asked was about to end, as one that crashes is.
fn has_ended(target: &Target) -> bool {
    let (Some(place), Some(_)) = (&target.place, &target.head) else { return false };
    wait_until(GONE_WITHIN, || !place.is_head_alive()).is_ok()
}

/// End what a head that is gone has left here. None: there is another one already.
fn clear(home: &Home, target: &Target) -> Option<Result<String, Failure>> {
    let place = target.place.clone()?;
    match Target::local(place) {
        Some(rest) if rest.head.is_some() => None,
        Some(rest) => Some(leave(&rest)),
        None => {
            sweep(home, &target.name);
            Some(Ok(format!("cluster {} is stopped", target.name)))
        }
    }
}

/// The head alone; or with the node in its process, if that is meant (SP-3).
fn stop_head(target: &Target, node: Option<&str>) -> Result<String, Failure> {
    let own = node_of_head(target)?;
    let named = match &target.place {
        Some(place) if place.name() != "default" => format!(" --name {}", place.name()),
        _ => String::new(),
    };
    match (&own, node) {
        (Some(own), None) => {
            let text = format!(
                "node {own} is a part of the head's process: it would end too, with everything that it runs"
            );
            let hint = format!(
                "paceline stop --head --node{named} ends both; paceline stop --node {own}{named} lets the node finish \
                 what it runs and leave first"
            );
            return Err(usage(text).hint(hint));
        }
        (own, Some(node)) if !node.is_empty() && own.as_deref() != Some(node) => {
            let text = format!("node {node} is not a part of the head's process of cluster {}", target.name);
            return Err(usage(text).hint(format!("paceline stop --node {node}{named} lets it leave")));
        }
        _ => {}
    }
    match target.ask(Question::StopHead) {
        Err(failure) if failure.code != Code::Unreachable || !has_ended(target) => return Err(failure),
        _ => {}
    }
    if let (Some(place), Some(head)) = (&target.place, &target.head) {
        wait_until(GONE_WITHIN, || !place.is_head_alive() && !is_alive(head.pid))
            .map_err(|()| stuck(target, head.pid))?;
    }
    let with = own.map_or(String::new(), |own| format!(" and node {own}, a part of its process,"));
    let are = if with.is_empty() { "is" } else { "are" };
    Ok(format!(
        "the head of cluster {}{with} {are} stopped; paceline start with the same name goes on with it",
        target.name
    ))
}

/// Returns the name of the node that is a part of the head's process, if there is one.
fn node_of_head(target: &Target) -> Result<Option<String>, Failure> {
    if let Some(head) = &target.head {
        let own = target.nodes.iter().find(|node| node.pid == head.pid);
        return Ok(own.map(|node| node.name.clone()));
    }
    let status = target.ask(Question::Status)?;
    let nodes = status["nodes"].as_array().into_iter().flatten();
    let own = |node: &&Value| node["link"] == "unix" && node["pid"] == status["cluster"]["pid"];
    Ok(nodes.clone().find(own).and_then(|node| node["name"].as_str()).map(str::to_owned))
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

/// Ended but not yet reaped counts as ended; one of whose threads some still run does not, for they hold its locks.
fn is_alive(pid: u32) -> bool {
    let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) else { return false };
    let Ok(process) = pidfd_open(pid, PidfdFlags::empty()) else { return false };
    let mut ended = [PollFd::new(&process, PollFlags::IN)];
    !matches!(poll(&mut ended, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })), Ok(1))
}

fn signal(pid: u32) {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    if let Some(Ok(process)) = pid.map(|pid| pidfd_open(pid, PidfdFlags::empty())) {
        let _ = pidfd_send_signal(&process, Signal::TERM);
    }
}
