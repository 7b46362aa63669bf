//! `paceline status`.

use crate::args::Status;
use crate::ask;
use crate::failure::Failure;
use crate::settings::Settings;
use crate::show;
use paceline_proto::question::Question;
use paceline_registry::Home;
use serde_json::json;

pub fn run(args: &Status, json: bool) -> Result<(), Failure> {
    let settings = Settings::gather(args.which.flags())?;
    let home = Home::find()?;
    let targets = if settings.is_default("name") && settings.given("address").is_none() {
        ask::all(&home)
    } else {
        vec![ask::target(&home, &settings)?]
    };
    let mut clusters = Vec::new();
    for target in &targets {
        match target.ask(Question::Status) {
            Ok(status) => clusters.push(status),
            Err(failure) => {
                clusters.push(json!({"cluster": {"name": target.name}, "error": failure.message}));
            }
        }
    }
    if json {
        show::json(&json!({"clusters": clusters}));
        return Ok(());
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
    Ok(())
}
