//! `paceline logs`.

use crate::args::Logs;
use crate::ask;
use crate::daemon::log;
use crate::failure::{Code, Failure, failed};
use crate::settings::Settings;
use crate::show;
use paceline_proto::question::Question;
use paceline_registry::{Home, Place};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

pub fn run(args: &Logs, json: bool) -> Result<(), Failure> {
    if args.clean {
        let target = super::target(&args.which)?;
        let answer = target.ask(Question::CleanLogs)?;
        if json {
            show::json(&answer);
        }
        all_cleaned(&answer)?;
        show::note(&format!("the logs of cluster {} are gone", target.name));
        return Ok(());
    }
    let answer = ask_or_read(args)?;
    let logs: Vec<&Value> = answer["logs"].as_array().into_iter().flatten().collect();
    if json {
        show::json(&answer);
        return some_told(&logs);
    }
    for log in &logs {
        let of = log["of"].as_str().unwrap_or_default();
        if logs.len() > 1 {
            show::note(&format!("{of}:"));
        }
        match (log["text"].as_str(), log["error"].as_str()) {
            (Some(text), _) => text.lines().for_each(show::line),
            (None, why) => show::note(&format!("{of} does not tell: {}", why.unwrap_or("no reason"))),
        }
    }
    some_told(&logs)
}

/// Asks the head; without one that answers, reads what this machine has.
fn ask_or_read(args: &Logs) -> Result<Value, Failure> {
    let settings = Settings::gather(args.which.flags())?;
    let home = Home::find()?;
    let is_away = |failure: &Failure| matches!(failure.code, Code::Unreachable | Code::TimedOut);
    let (place, failure) = match ask::target(&home, &settings) {
        Ok(target) => match target.ask(Question::Logs { of: args.of.clone(), lines: args.lines }) {
            Err(failure) if is_away(&failure) => (target.place, failure),
            answer => return answer,
        },
        Err(failure) if is_away(&failure) => {
            let mut dead = ask::dead_heads(&home);
            if !settings.is_default("name") {
                dead.retain(|dead| dead.place.name() == settings.text("name"));
            }
            (ask::the_dead(dead).map(|dead| dead.place), failure)
        }
        Err(failure) => return Err(failure),
    };
    let Some(place) = place.filter(|place| place.logs().exists()) else { return Err(failure) };
    show::note(&format!("{}: what follows is in the files on this machine", failure.message));
    let files = settings.count("log_files")?.unwrap_or(3).max(1);
    let logs = local_logs(&place, args.of.as_deref())?;
    let read = |(of, path): (String, PathBuf)| json!({"of": of, "text": log::tail(&path, files, args.lines)});
    Ok(json!({"logs": logs.into_iter().map(read).collect::<Vec<_>>()}))
}

/// Returns the logs that this machine has, each with whose it is: of head and nodes, or of the one that is named.
fn local_logs(place: &Place, of: Option<&str>) -> Result<Vec<(String, PathBuf)>, Failure> {
    let logs = names_in(&place.logs());
    let mut daemons = Vec::new();
    if logs.iter().any(|name| name == "head.log") {
        daemons.push(("head".to_owned(), place.head_log()));
    }
    let nodes = logs.iter().filter_map(|name| name.strip_prefix("node-")?.strip_suffix(".log"));
    let nodes: Vec<&str> = nodes.collect();
    // One that was put aside has a number before its ending.
    let is_aside = |name: &str| {
        let (stem, number) = name.rsplit_once('.').unwrap_or_default();
        number.parse::<u32>().is_ok() && nodes.contains(&stem)
    };
    let own = nodes.iter().filter(|name| !is_aside(name));
    daemons.extend(own.map(|name| (name.to_string(), place.node_log(name))));
    let Some(of) = of else { return Ok(daemons) };
    if let Some(found) = daemons.iter().find(|(name, _)| name == of) {
        return Ok(vec![found.clone()]);
    }
    if place.last_node(of).is_some() && place.head_log().exists() {
        // It was a part of the head's process.
        return Ok(vec![(of.to_owned(), place.head_log())]);
    }
    let programs = logs.iter().filter(|name| name.starts_with("programs-"));
    let found =
        programs.map(|name| place.logs().join(name).join(format!("{of}.log"))).find(|path| path.exists());
    found.map(|path| vec![(of.to_owned(), path)]).ok_or_else(|| {
        let known: Vec<&str> = daemons.iter().map(|(name, _)| name.as_str()).collect();
        failed(format!("this machine has no log of {of}"))
            .hint(format!("there are those of {}", known.join(", ")))
    })
}

fn names_in(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort();
    names
}

/// Fails if nobody who was asked has told anything.
fn some_told(logs: &[&Value]) -> Result<(), Failure> {
    let Some(first) = logs.iter().find(|log| log["text"].is_null()) else { return Ok(()) };
    if logs.iter().any(|log| !log["text"].is_null()) {
        return Ok(());
    }
    let (of, why) = (first["of"].as_str().unwrap_or("?"), first["error"].as_str().unwrap_or("no reason"));
    let code = if first["silent"] == true { Code::TimedOut } else { Code::Failed };
    let hint = "paceline status -v shows how each node is linked";
    Err(Failure::new(code, format!("no log of {of}: {why}")).hint(hint).printed())
}

/// Fails if some logs are still there.
fn all_cleaned(answer: &Value) -> Result<(), Failure> {
    let failed: Vec<&Value> = answer["failed"].as_array().into_iter().flatten().collect();
    let Some(first) = failed.first() else { return Ok(()) };
    let (node, why) = (first["node"].as_str().unwrap_or("?"), first["error"].as_str().unwrap_or("no reason"));
    let code = if first["silent"] == true { Code::TimedOut } else { Code::Failed };
    let text = format!("the logs of {} nodes are still there; of node {node}: {why}", failed.len());
    Err(Failure::new(code, text).hint("paceline status -v shows how each node is linked").printed())
}
