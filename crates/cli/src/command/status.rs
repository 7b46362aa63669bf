//! `paceline status`.

use crate::args::Status;
use crate::ask::{self, DeadHead};
use crate::failure::Failure;
use crate::settings::Settings;
use crate::show;
use paceline_proto::question::Question;
use paceline_registry::Home;
use serde_json::json;

pub fn run(args: &Status, json: bool) -> Result<(), Failure> {
    let settings = Settings::gather(args.which.flags())?;
    let home = Home::find()?;
    let (targets, dead) = if settings.is_default("name") && settings.given("address").is_none() {
        (ask::all(&home), ask::dead_heads(&home))
    } else {
        let mut dead = ask::dead_heads(&home);
        dead.retain(|dead| settings.given("address").is_none() && dead.place.name() == settings.text("name"));
        match ask::target(&home, &settings) {
            Ok(target) => (vec![target], Vec::new()),
            Err(_) if !dead.is_empty() => (Vec::new(), dead),
            Err(failure) => return Err(failure),
        }
    };
    let asked = targets.len() + dead.len();
    let mut clusters = Vec::new();
    let mut failures = Vec::new();
    for target in &targets {
        match target.ask(Question::Status) {
            Ok(status) => clusters.push(status),
            Err(failure) => {
                let Failure { message, code, hint, .. } = &failure;
                let name = json!({"name": target.name});
                clusters.push(json!({"cluster": name, "error": message, "code": code.name(), "hint": hint}));
                failures.push(failure);
            }
        }
    }
    clusters.extend(dead.iter().map(DeadHead::status));
    failures.extend(dead.iter().map(DeadHead::failure));
    if json {
        show::json(&json!({"clusters": clusters}));
        return all_answered(failures, asked);
    }
    if clusters.is_empty() {
        show::line("no active cluster");
    }
    for status in &clusters {
        show::line(&show::status::summary(status));
        if args.verbose {
            show::status::details(status).iter().for_each(|line| show::line(line));
        }
    }
    all_answered(failures, asked)
}

/// Fails as the first cluster did that did not answer, so that scripts notice.
fn all_answered(failures: Vec<Failure>, asked: usize) -> Result<(), Failure> {
    let silent = failures.len();
    let Some(first) = failures.into_iter().next() else { return Ok(()) };
    let message = match asked {
        1 => first.message.clone(),
        _ => format!("{silent} of {asked} clusters did not answer; the first: {}", first.message),
    };
    Err(Failure { message, ..first }.printed())
}
