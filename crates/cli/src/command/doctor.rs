//! `paceline doctor`: what could keep clusters from working here, and what to do about it.

use crate::args::Which;
use crate::ask;
use crate::daemon::{python, random};
use crate::failure::{Failure, failed};
use crate::settings::Settings;
use crate::show;
use paceline_proto::question::Question;
use paceline_registry::Home;
use rustix::process::{Resource, getrlimit};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

/// How long a node may take to be reached.
const KNOCK: Duration = Duration::from_secs(2);

/// Fewer open files than this are too few for a node with many slots.
const FILES: u64 = 4096;

struct Check {
    name: &'static str,
    found: Result<String, Failure>,
}

pub fn run(args: &Which, json: bool) -> Result<(), Failure> {
    let settings = Settings::gather(args.flags())?;
    let mut checks = vec![
        Check { name: "python", found: interpreter(&settings) },
        Check { name: "home", found: home() },
        Check { name: "open files", found: files() },
        Check { name: "clock", found: clock() },
    ];
    checks.extend(clusters(&settings));
    if json {
        let rows: Vec<_> = (checks.iter())
            .map(|check| match &check.found {
                Ok(text) => json!({"check": check.name, "ok": true, "found": text}),
                Err(failure) => {
                    json!({"check": check.name, "ok": false, "found": failure.message, "hint": failure.hint})
                }
            })
            .collect();
        show::json(&json!({"checks": rows}));
    } else {
        let rows = checks.iter().flat_map(|check| match &check.found {
            Ok(text) => vec![vec!["ok".to_owned(), check.name.to_owned(), text.clone()]],
            Err(failure) => {
                let hint = failure
                    .hint
                    .iter()
                    .map(|hint| vec![String::new(), String::new(), format!("hint: {hint}")]);
                std::iter::once(vec!["no".to_owned(), check.name.to_owned(), failure.message.clone()])
                    .chain(hint)
                    .collect()
            }
        });
        show::table(&["", "", ""], rows.collect()).iter().skip(1).for_each(|line| show::line(line));
    }
    match checks.iter().filter(|check| check.found.is_err()).count() {
        0 => Ok(()),
        count => Err(failed(format!("{count} of {} checks failed", checks.len())).printed()),
    }
}

fn interpreter(settings: &Settings) -> Result<String, Failure> {
    let program = settings.given("python").unwrap_or("python3");
    let told = python::ask(program)?;
    let [major, minor, patch] = told.python;
    Ok(format!("{program}: Python {major}.{minor}.{patch}, paceline {}, {} CPUs", told.paceline, told.cpus))
}

fn home() -> Result<String, Failure> {
    let home = Home::find()?;
    // Of its own: two that look at the same time do not meet.
    let place = home.cluster(&format!("doctor-{:016x}", u64::from_le_bytes(random()?)))?;
    place.create()?;
    let lock = place.lock_head()?;
    drop(lock);
    place.remove()?;
    home.tidy();
    Ok(format!("{} can be written", home.path().display()))
}

fn files() -> Result<String, Failure> {
    let limit = getrlimit(Resource::Nofile).maximum;
    match limit {
        Some(limit) if limit < FILES => Err(failed(format!("at most {limit} files may be open at once"))
            .hint(format!("raise the limit to {FILES} or more: ulimit -Hn, or LimitNOFILE in systemd"))),
        Some(limit) => Ok(format!("up to {limit} at once")),
        None => Ok("as many as there are".into()),
    }
}

/// Certificates live for a moment around now.
fn clock() -> Result<String, Failure> {
    match crate::daemon::seconds_since_1970() {
        now if now > 1_700_000_000 => Ok("the date is plausible".into()),
        _ => Err(failed("this machine's date is long past").hint("set its clock: encrypted links need it")),
    }
}

fn clusters(settings: &Settings) -> Vec<Check> {
    let Ok(home) = Home::find() else { return Vec::new() };
    let targets = if settings.given("address").is_some() {
        match ask::target(&home, settings) {
            Ok(target) => vec![target],
            Err(failure) => return vec![Check { name: "cluster", found: Err(failure) }],
        }
    } else {
        ask::all(&home)
    };
    let look = |target: &ask::Target| {
        let status = target.ask(Question::Status)?;
        let nodes: Vec<_> = status["nodes"].as_array().into_iter().flatten().collect();
        let ill: Vec<&str> = (nodes.iter())
            .filter(|node| node["state"] == "away" || node["state"] == "silent" || node["zygote"] == false)
            .filter_map(|node| node["name"].as_str())
            .collect();
        if !ill.is_empty() {
            return Err(failed(format!("{}: nodes that cannot be used: {}", target.name, ill.join(", ")))
                .hint("paceline logs NODE says why, paceline status -v how each is linked"));
        }
        Ok(status)
    };
    let mut checks = Vec::new();
    if settings.given("address").is_none() {
        let dead = ask::dead_heads(&home);
        checks.extend(dead.iter().map(|dead| Check { name: "cluster", found: Err(dead.failure()) }));
    }
    for target in &targets {
        match look(target) {
            Err(failure) => checks.push(Check { name: "cluster", found: Err(failure) }),
            Ok(status) => {
                let nodes = list(&status, "nodes");
                let text = format!("{} answers, and its {} nodes can be used", target.name, nodes.len());
                checks.push(Check { name: "cluster", found: Ok(text) });
                checks.extend(journal(&status["journal"]));
                checks.extend(nodes.iter().filter_map(|node| reach(node)));
                checks.extend(relayed(&status));
            }
        }
    }
    checks
}

/// Whether what is submitted gets to the head's disk.
fn journal(report: &Value) -> Option<Check> {
    let path = report["path"].as_str()?;
    let found = match report["trouble"].as_str() {
        Some(trouble) => Err(failed(trouble).hint("free or repair the disk: the head tries again by itself")),
        None => Ok(format!("{path} is written")),
    };
    Some(Check { name: "journal", found })
}

fn list<'a>(value: &'a Value, name: &str) -> Vec<&'a Value> {
    value[name].as_array().into_iter().flatten().collect()
}

/// Whether programs on this machine can open data connections to a node. One of this machine has a shorter way.
fn reach(node: &Value) -> Option<Check> {
    let name = node["name"].as_str()?;
    let listens: Vec<&str> = list(node, "listens").into_iter().filter_map(Value::as_str).collect();
    if listens.is_empty() || node["link"] == "unix" {
        return None;
    }
    let mut failed_at = Vec::new();
    for address in &listens {
        match knock(address) {
            Ok(()) => {
                let found = Ok(format!("{name} can be reached from here, at {address}"));
                return Some(Check { name: "node", found });
            }
            Err(why) => failed_at.push(format!("{address}: {why}")),
        }
    }
    let text = format!("{name} cannot be reached from here: {}", failed_at.join(", "));
    let hint = "open the node's port in firewalls between here and there, or start the node with --advertise and \
                a name or address that works from here; until then programs here go through another node, which is \
                slower (relayed)";
    Some(Check { name: "node", found: Err(failed(text).hint(hint)) })
}

fn knock(address: &str) -> Result<(), String> {
    let mut why = "there is no such host".to_owned();
    for found in address.to_socket_addrs().map_err(|error| error.to_string())? {
        match TcpStream::connect_timeout(&found, KNOCK) {
            Ok(_) => return Ok(()),
            Err(error) => why = error.to_string(),
        }
    }
    Err(why)
}

/// Leases whose clients cannot reach their node by themselves.
fn relayed(status: &Value) -> Vec<Check> {
    let mut pairs = BTreeSet::new();
    for lease in list(status, "leases").into_iter().filter(|lease| lease["link"] == "relayed") {
        let client = list(status, "clients").into_iter().find(|client| client["client"] == lease["client"]);
        let name = client.and_then(|client| client["name"].as_str()).filter(|name| !name.is_empty());
        let client = name.or(lease["client"].as_str()).unwrap_or_default();
        pairs.insert((client.to_owned(), lease["node"].as_str().unwrap_or_default().to_owned()));
    }
    let say = |(client, node): (String, String)| {
        let entry = list(status, "nodes").into_iter().find(|entry| entry["name"] == node.as_str());
        let listens: Vec<&str> = entry
            .map(|entry| list(entry, "listens"))
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect();
        let text = format!(
            "client {client} reaches no address of node {node} ({}), and goes through another node",
            listens.join(", ")
        );
        let hint = "run paceline doctor on the client's machine to see why; a firewall in between, or an address that \
                    works inside the node's network only, for which there is --advertise";
        Check { name: "relayed", found: Err(failed(text).hint(hint)) }
    };
    pairs.into_iter().map(say).collect()
}
