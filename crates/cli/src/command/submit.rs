//! `paceline submit`, and `paceline stop --program`.
//!
//! * SB-1: when it returns, the program is in the head's journal. A head that dies meanwhile is asked again when it is
//!   back, with the same token, so that nothing is submitted twice.

use crate::args::{Submit, Which};
use crate::ask::Target;
use crate::daemon;
use crate::failure::{Code, Failure, failed, usage};
use crate::show;
use paceline_node::hardware::Memory;
use paceline_proto::question::Question;
use paceline_proto::work::{self, Command, Directory, LONGEST_RECORD};
use paceline_proto::{Part, Resources, Work};
use serde_json::{Value, json};
use std::path::Path;
use std::time::{Duration, Instant};

/// How long a head that has been reached once may be away before we give up.
const PATIENCE: Duration = Duration::from_secs(120);
/// How often it is looked for, and asked.
const SHORTEST: Duration = Duration::from_millis(50);
const LONGEST: Duration = Duration::from_secs(1);
/// How long a program may take to end that was told to.
const STOPPED_WITHIN: Duration = Duration::from_secs(30);

pub fn run(args: &Submit, json: bool) -> Result<(), Failure> {
    let work = work(args)?;
    let which = args.which();
    let target = super::target(&which)?;
    // That there is a head is found out now, or never.
    let connection = target.reach()?;
    let question = Question::Submit { work };
    let answer = match target.put(connection, question.clone()) {
        Err(failure) if is_away(&failure) => {
            if let Some(trouble) = journal_trouble(&target) {
                show::note(&format!("waiting: {trouble}"));
            }
            surely(&which, &question)?
        }
        answer => answer?,
    };
    let name = answer["program"].as_str().unwrap_or_default().to_owned();
    if !args.wait {
        if json {
            show::json(&answer);
        } else {
            show::line(&name);
            show::note(&format!("program {name} is submitted; paceline logs {name} shows what it prints"));
        }
        return Ok(());
    }
    if !json {
        show::note(&format!("program {name} is submitted; waiting for its end"));
    }
    let ended = wait(&which, &name, json)?;
    if json {
        show::json(&ended);
    }
    leave_as(&name, &ended)
}

/// `paceline stop --program NAME`.
pub fn stop(which: &Which, name: &str, json: bool) -> Result<(), Failure> {
    super::target(which)?.ask(Question::StopProgram { name: name.into() })?;
    let until = Instant::now() + STOPPED_WITHIN;
    let mut pause = SHORTEST;
    loop {
        let found = find(&surely(which, &Question::Programs)?, name);
        match found.as_ref().and_then(|found| found["state"].as_str()) {
            Some("ended") | None => break,
            Some(_) if Instant::now() > until => {
                let text = format!("program {name} was told to end and has not yet");
                let hint =
                    "paceline status says where it is; a node out of reach hears of it when it is back";
                return Err(Failure::new(Code::TimedOut, text).hint(hint));
            }
            Some(_) => std::thread::sleep(pause),
        }
        pause = (pause * 2).min(LONGEST);
    }
    if json {
        show::json(&json!({"stopped": [name]}));
    } else {
        show::note(&format!("program {name} has ended"));
    }
    Ok(())
}

fn work(args: &Submit) -> Result<Work, Failure> {
    let mut needs = Some(Resources::default());
    needs = needs.and_then(|needs| needs.with(Part::Cpus(args.cpus)));
    needs = needs.and_then(|needs| needs.with(Part::Gpus(args.gpus)));
    if let Some(memory) = &args.memory {
        let Ok(Memory::Bytes(bytes)) = memory.parse() else {
            return Err(usage(format!("--memory {memory:?} is no amount, as 8G is")));
        };
        needs = needs.and_then(|needs| needs.with(Part::Memory(bytes)));
    }
    let mut resources = Vec::new();
    for pair in args.resources.iter().flat_map(|text| text.split(',')).filter(|pair| !pair.is_empty()) {
        let parsed =
            pair.split_once('=').and_then(|(name, amount)| Some((name.trim(), amount.trim().parse().ok()?)));
        let (name, amount): (&str, f64) =
            parsed.ok_or_else(|| usage(format!("--resources: {pair:?} is not NAME=NUMBER")))?;
        resources.push(name.to_owned());
        needs = needs.and_then(|needs| needs.with(Part::Custom(name, amount)));
    }
    let needs = needs.ok_or_else(|| usage("no node can have such amounts: they are negative, or absurd"))?;
    let token = u128::from_le_bytes(daemon::random()?);
    let name = args.name.clone().unwrap_or_else(|| name_of(&args.program, token));
    let directory = match &args.cwd {
        Some(path) => Directory::Only(path.clone()),
        None => std::env::current_dir()
            .ok()
            .and_then(|path| path.into_os_string().into_string().ok())
            .map_or(Directory::Any, Directory::Rather),
    };
    let (arguments, variables) = (args.program.clone(), variables(&args.env)?);
    let command = Command { arguments, directory, variables, input: Vec::new() };
    let start = work::to_bytes(&command);
    if start.len() > LONGEST_RECORD {
        let size = start.len();
        let text = format!("the start record of {name} has {size} bytes, and may have {LONGEST_RECORD}");
        return Err(usage(text).hint("put large arguments and variables into files"));
    }
    Ok(Work { token, name, needs, resources, restarts: args.restarts, start })
}

fn variables(given: &[String]) -> Result<Vec<(String, String)>, Failure> {
    let pair = |text: &String| match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        Some(_) => Err(usage(format!("--env {text:?} has no name"))),
        None => match std::env::var(text) {
            Ok(value) => Ok((text.clone(), value)),
            Err(_) => Err(usage(format!("--env {text}: there is no such variable here"))),
        },
    };
    given.iter().map(pair).collect()
}

/// After its script, or after itself; with a few digits, so that it can be submitted again.
fn name_of(program: &[String], token: u128) -> String {
    let stem = |path: &String| Path::new(path).file_stem().map(|stem| stem.to_string_lossy().into_owned());
    let script = program.iter().skip(1).find(|argument| !argument.starts_with('-'));
    let first = program.first().and_then(stem).unwrap_or_default();
    let script = script.filter(|_| first.starts_with("python")).and_then(stem);
    let plain = |letter: char| if letter.is_ascii_alphanumeric() { letter } else { '-' };
    let base: String = script.unwrap_or(first).chars().map(plain).take(40).collect();
    let base = base.trim_matches('-');
    format!("{}-{:06x}", if base.is_empty() { "program" } else { base }, token & 0xff_ffff)
}

/// Ask until there is an answer: the head may be starting again (SB-1).
fn surely(which: &Which, question: &Question) -> Result<Value, Failure> {
    let until = Instant::now() + PATIENCE;
    let mut pause = SHORTEST;
    loop {
        // Where it is now: a head that was started again has another local socket.
        match super::target(which).and_then(|target: Target| target.ask(question.clone())) {
            Err(failure) if is_away(&failure) && Instant::now() < until => std::thread::sleep(pause),
            Err(failure) => {
                let target = super::target(which).ok().filter(|_| failure.code == Code::TimedOut);
                let trouble = target.as_ref().and_then(journal_trouble);
                return Err(trouble.map_or(failure.clone(), |trouble| failure.hint(trouble)));
            }
            answer => return answer,
        }
        pause = (pause * 2).min(LONGEST);
    }
}

/// Returns what is wrong with the journal of a head that does not answer a submission, if it says so.
fn journal_trouble(target: &Target) -> Option<String> {
    target.ask(Question::Status).ok()?["journal"]["trouble"].as_str().map(str::to_owned)
}

fn is_away(failure: &Failure) -> bool {
    matches!(failure.code, Code::Unreachable | Code::TimedOut | Code::NoCluster)
}

/// Wait for its end, and say once what it waits for.
fn wait(which: &Which, name: &str, quiet: bool) -> Result<Value, Failure> {
    let mut pause = SHORTEST;
    let mut told = None;
    loop {
        let answer = surely(which, &Question::Programs)?;
        let Some(found) = find(&answer, name) else {
            return Err(failed(format!("the cluster knows of no program {name} any more"))
                .hint("it ended long ago, or the cluster was stopped"));
        };
        if found["state"] == "ended" {
            return Ok(found);
        }
        let why = found["why"].as_str().map(str::to_owned);
        if pause == LONGEST && why != told && !quiet {
            if let Some(why) = &why {
                show::note(&format!(
                    "program {name} is {}: {why}",
                    found["state"].as_str().unwrap_or("waiting")
                ));
            }
            told = why;
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(LONGEST);
    }
}

/// The program of this name: the one that lives, or the one that ended last.
fn find(answer: &Value, name: &str) -> Option<Value> {
    let programs: Vec<&Value> = answer["programs"].as_array().into_iter().flatten().collect();
    programs.into_iter().rev().find(|program| program["program"] == name).cloned()
}

/// End with the program's own exit code.
fn leave_as(name: &str, ended: &Value) -> Result<(), Failure> {
    let on = ended["node"].as_str().map_or(String::new(), |node| format!(" on {node}"));
    if let Some(code) = ended["exit_code"].as_i64() {
        if code == 0 {
            return Ok(());
        }
        show::note(&format!(
            "program {name} ended{on} with exit code {code}; paceline logs {name} shows what it printed"
        ));
        std::process::exit(i32::try_from(code).unwrap_or(1));
    }
    if let Some(signal) = ended["signal"].as_i64() {
        let memory = if ended["reason"] == "memory" { ", for it had more memory than it may" } else { "" };
        show::note(&format!("program {name} was ended{on} by signal {signal}{memory}"));
        std::process::exit(128 + i32::try_from(signal).unwrap_or(0));
    }
    match ended["reason"].as_str() {
        Some("stopped") => Err(failed(format!("program {name} was stopped"))),
        _ => Err(failed(format!("program {name} was lost with its node{on}"))
            .hint("--restarts lets it be started again elsewhere")),
    }
}
