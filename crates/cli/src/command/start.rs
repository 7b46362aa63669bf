//! `paceline start`.

use crate::args::Start;
use crate::daemon::plan::{HeadPlan, Listen, Plan, Up};
use crate::daemon::{self, launch};
use crate::failure::Failure;
use crate::settings::Settings;
use crate::show;
use paceline_registry::Head;
use serde_json::json;

pub fn run(args: &Start, json: bool) -> Result<(), Failure> {
    let settings = Settings::gather(args.flags())?;
    let mut plan = Plan::new(&settings)?;
    let name = settings.text("name").to_owned();
    plan.name = Some(name.clone());
    let place = plan.home().cluster(&name)?;
    place.check_owner()?;
    if let Some(head) = place.head() {
        return already(&head, json);
    }
    let mut listen = Listen::of(&settings, "port")?;
    if let (true, Some(before)) = (settings.is_default("port"), place.last_head()) {
        // Where nodes and clients of the head that was killed look for it.
        let port = before.address.and_then(|address| address.rsplit(':').next()?.parse().ok());
        listen.port = port.unwrap_or(listen.port);
    }
    plan.head = Some(HeadPlan { listen, python: settings.given("python").unwrap_or("python3").to_owned() });
    plan.node = Plan::node(&settings, args.has.node_name.as_deref())?;
    plan.lifeline = args.has.lifeline;
    if args.has.foreground {
        return daemon::run(plan, |result, _| {
            if let Ok(up) = result {
                tell(up, json);
                show::note("stop it with Ctrl-C");
            }
        });
    }
    tell(&launch::detached(plan)?, json);
    Ok(())
}

fn already(head: &Head, json: bool) -> Result<(), Failure> {
    if json {
        show::json(&json!({
            "name": head.name, "cluster": head.cluster, "address": head.address, "unix": head.unix,
            "pid": head.pid, "already": true,
        }));
    }
    let place = head.address.as_deref().unwrap_or("this machine only");
    show::note(&format!("cluster {} runs already: {place}, process {}", head.name, head.pid));
    Ok(())
}

fn tell(up: &Up, json: bool) {
    if json {
        return show::json(&json!({
            "name": up.name, "cluster": up.cluster, "address": up.address, "unix": up.unix, "pid": up.pid,
            "node": up.node, "resources": up.resources, "token": up.token, "already": false,
            "warnings": up.warnings,
        }));
    }
    let name = if up.name == "default" { String::new() } else { format!(" --name {}", up.name) };
    let mut lines = Vec::new();
    if let (Some(address), Some(token)) = (&up.address, &up.token) {
        lines.push(("join", format!("paceline join {address} --token {token}")));
    }
    if let Some(address) = &up.address {
        lines.push(("connect", format!("pl.connect(\"{address}\")")));
    }
    lines.push(("status", format!("paceline status{name}")));
    lines.push(("stop", format!("paceline stop{name}")));
    let has = up.resources.as_deref().unwrap_or("no node");
    let place = up.address.as_deref().unwrap_or("this machine only");
    show::started(&format!("cluster {} is up: {place}, {has}", up.name), &lines);
    up.warnings.iter().for_each(|warning| show::note(warning));
}
