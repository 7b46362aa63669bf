//! Starting a daemon in the background: it gets its plan through a pipe, leaves the terminal, and tells when it serves.

use super::plan::{Plan, Report, Up};
use crate::failure::{Failure, failed};
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

/// Start it and wait until it serves, or hear why it does not.
pub fn detached(mut plan: Plan) -> Result<Up, Failure> {
    plan.detached = true;
    let program = std::env::current_exe()?;
    let mut child = Command::new(&program)
        .arg("daemon")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        // What it has to say before it has a log is for the user.
        .stderr(Stdio::inherit())
        .spawn()
        .map_err(|error| failed(format!("{} cannot be run: {error}", program.display())))?;
    let text = serde_json::to_vec(&plan).expect("a plan is plain data");
    let mut stdin = child.stdin.take().expect("it was asked for");
    stdin.write_all(&text)?;
    drop(stdin);
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("it was asked for")).read_line(&mut line)?;
    match serde_json::from_str::<Report>(&line) {
        Ok(report) => report.result(),
        Err(_) => {
            let ended = child.wait()?;
            Err(failed(format!("the daemon ended before it served: {ended}"))
                .hint("run the same command with --foreground --debug to see why"))
        }
    }
}
