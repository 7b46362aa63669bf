//! `paceline join`.

use crate::args::Join;
use crate::daemon::plan::{JoinPlan, Plan, Up};
use crate::daemon::{self, join, launch};
use crate::failure::{Code, Failure, usage};
use crate::settings::Settings;
use crate::show;
use paceline_proto::Address;
use serde_json::json;
use std::io::BufRead;

pub fn run(args: &Join, json: bool) -> Result<(), Failure> {
    let settings = Settings::gather(args.flags())?;
    let address: Address = args.address.parse().map_err(|error| usage(format!("{error}")))?;
    let mut plan = Plan::new(&settings)?;
    plan.join = Some(JoinPlan { address: address.to_string() });
    plan.node = Plan::node(&settings, args.has.node_name.as_deref())?;
    let Some(node) = &plan.node else { return Err(usage("a machine cannot join with --cpus 0")) };
    match args.token.as_deref() {
        Some("-") => plan.credentials.token = Some(token_from(std::io::stdin().lock())?),
        Some(token) => plan.credentials.token = Some(token.to_owned()),
        None => {}
    }
    if let Some((name, pid)) = running(&plan, &address.to_string(), &node.name) {
        if json {
            show::json(
                &json!({"name": name, "address": address.to_string(), "node": node.name, "pid": pid, "already": true}),
            );
        }
        show::note(&format!("node {} of cluster {name} runs already, process {pid}", node.name));
        return Ok(());
    }
    plan.lifeline = args.has.lifeline;
    // Before anything that takes its time: somebody may have seen the token.
    let redeemed = join::redeem(&mut plan.credentials, &address, &node.name)?;
    let note = |failure: Failure| {
        if !redeemed {
            return failure;
        }
        let used = "the token is used up: `paceline token` at the head makes another one";
        let hint = failure.hint.as_ref().map_or(used.into(), |hint| format!("{hint}; {used}"));
        failure.hint(hint)
    };
    if args.has.foreground {
        return daemon::run(plan, |result, _| {
            if let Ok(up) = result {
                tell(up, json);
                show::note("stop it with Ctrl-C");
            }
        })
        .map_err(note);
    }
    match launch::detached(plan) {
        Ok(up) => tell(&up, json),
        Err(failure) if failure.code == Code::InUse && failure.message.ends_with("runs already") => {
            show::note(&failure.message);
        }
        Err(failure) => return Err(note(failure)),
    }
    Ok(())
}

/// Reads a token from the first line.
fn token_from(mut input: impl BufRead) -> Result<String, Failure> {
    let mut line = String::new();
    input.read_line(&mut line)?;
    match line.trim() {
        "" => Err(usage("--token -: there is no token on standard input")),
        token => Ok(token.to_owned()),
    }
}

/// A node of this name that has joined that head already.
fn running(plan: &Plan, address: &str, name: &str) -> Option<(String, u32)> {
    plan.home().clusters().into_iter().find_map(|place| {
        let node = place.nodes().into_iter().find(|node| node.name == name)?;
        (node.head.as_deref() == Some(address)).then(|| (place.name().to_owned(), node.pid))
    })
}

fn tell(up: &Up, json: bool) {
    let address = up.address.as_deref().unwrap_or_default();
    if json {
        return show::json(&json!({
            "name": up.name, "address": address, "node": up.node, "resources": up.resources, "pid": up.pid,
            "already": false, "warnings": up.warnings,
        }));
    }
    let name = if up.name == "default" { String::new() } else { format!(" --name {}", up.name) };
    let node = up.node.as_deref().unwrap_or_default();
    let has = up.resources.as_deref().unwrap_or_default();
    let lines = [("status", format!("paceline status{name}")), ("leave", format!("paceline stop{name}"))];
    show::started(&format!("node {node} has joined cluster {} at {address}: {has}", up.name), &lines);
    up.warnings.iter().for_each(|warning| show::note(&format!("note: {warning}")));
}
