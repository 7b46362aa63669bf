//! `paceline logs`.

use crate::args::Logs;
use crate::failure::Failure;
use crate::show;
use paceline_proto::question::Question;
use serde_json::Value;

pub fn run(args: &Logs, json: bool) -> Result<(), Failure> {
    let target = super::target(&args.which)?;
    if args.clean {
        let answer = target.ask(Question::CleanLogs)?;
        if json {
            show::json(&answer);
        }
        show::note(&format!("the logs of cluster {} are gone", target.name));
        return Ok(());
    }
    let answer = target.ask(Question::Logs { of: args.of.clone(), lines: args.lines })?;
    if json {
        show::json(&answer);
        return Ok(());
    }
    let logs: Vec<&Value> = answer["logs"].as_array().into_iter().flatten().collect();
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
    Ok(())
}
