//! `paceline start`.

use crate::args::Start;
use crate::ask;
use crate::daemon::limits::ClientLimits;
use crate::daemon::plan::{HeadPlan, Listen, Plan, Up};
use crate::daemon::{self, launch};
use crate::failure::{Code, Failure};
use crate::settings::Settings;
use crate::show;
use paceline_registry::{Head, Place};
use serde_json::json;
use std::time::{Duration, Instant};

/// How long a head that somebody else starts at the same moment may take until it can be reached.
const START_LIMIT: Duration = Duration::from_secs(10);

pub fn run(args: &Start, json: bool) -> Result<(), Failure> {
    let settings = Settings::gather(args.flags())?;
    let mut plan = Plan::new(&settings)?;
    let name = settings.text("name").to_owned();
    plan.name = Some(name.clone());
    let place = plan.home().cluster(&name)?;
    place.check_owner()?;
    if let Some(head) = ask::living_head(&place)? {
        return already(&head, json);
    }
    let mut listen = Listen::of(&settings, "port")?;
    if let (true, Some(before)) = (settings.is_default("port"), place.last_head()) {
        // Where nodes and clients of the head that was killed look for it.
        let port = before.address.and_then(|address| address.rsplit(':').next()?.parse().ok());
        listen.port = port.unwrap_or(listen.port);
    }
    plan.head = Some(HeadPlan {
        listen,
        limits: ClientLimits::of(&settings)?,
        python: settings.given("python").unwrap_or("python3").to_owned(),
    });
    plan.node = Plan::node(&settings, args.has.node_name.as_deref())?;
    plan.lifeline = args.has.lifeline;
    let started = if args.has.foreground {
        daemon::run(plan, |result, _| {
            if let Ok(up) = result {
                tell(up, json);
                show::note("stop it with Ctrl-C");
            }
        })
    } else {
        launch::detached(plan).map(|up| tell(&up, json))
    };
    match started {
        // Of several that start at once one does, and the others are as late as any that come after it.
        Err(failure) if failure.code == Code::InUse => already(&other(&place, failure)?, json),
        started => started,
    }
}

/// Returns the head that somebody else has started meanwhile, once it answers. None: the failure is what it says.
fn other(place: &Place, failure: Failure) -> Result<Head, Failure> {
    let until = Instant::now() + START_LIMIT;
    while place.is_head_alive() && Instant::now() < until {
        if let Some(head) = ask::living_head(place)? {
            return Ok(head);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Err(failure)
}

/// Returns what to type on another machine. The environment of a process can be read by its own user only.
pub fn join_line(address: &str, token: &str) -> String {
    format!("PACELINE_TOKEN={token} paceline join {address}")
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
        lines.push(("join", join_line(address, token)));
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
