//! `paceline stop`.

use crate::args::Stop;
use crate::ask::{self, Target};
use crate::failure::{Code, Failure, failed};
use crate::settings::Settings;
use crate::show;
use paceline_proto::question::Question;
use paceline_registry::{Home, Place};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde_json::json;
use std::time::{Duration, Instant};

/// How long a daemon may take to be gone once its cluster is.
const GONE_WITHIN: Duration = Duration::from_secs(5);

pub fn run(args: &Stop, json: bool) -> Result<(), Failure> {
    let settings = Settings::gather(args.which.flags())?;
    let home = Home::find()?;
    let name = (!settings.is_default("name")).then(|| settings.text("name"));
    let mut stopped = Vec::new();
    if args.all {
        for target in ask::all(&home) {
            stop(&target)?;
            stopped.push(target.head.name);
        }
    } else {
        let target = match ask::target(&home, name) {
            // There is nothing to end: that is what was wanted.
            Err(failure) if failure.code == Code::NoCluster && name.is_none() => None,
            target => Some(target?),
        };
        if let Some(target) = target {
            stop(&target)?;
            stopped.push(target.head.name);
        }
    }
    if json {
        show::json(&json!({"stopped": stopped}));
    } else if stopped.is_empty() {
        show::note("no active cluster");
    }
    for name in &stopped {
        show::note(&format!("cluster {name} is stopped"));
    }
    Ok(())
}

fn stop(target: &Target) -> Result<(), Failure> {
    let answer = target.ask(Question::Stop)?;
    if let Some(place) = &target.place {
        wait_until_gone(place, target.head.pid)?;
    }
    let left: Vec<&str> =
        answer["left"].as_array().into_iter().flatten().filter_map(|node| node.as_str()).collect();
    if left.is_empty() {
        return Ok(());
    }
    let text =
        format!("cluster {} is stopped, but these nodes did not go: {}", target.name(), left.join(", "));
    Err(failed(text).hint("they end by themselves when they have been without a head for a minute"))
}

fn wait_until_gone(place: &Place, pid: u32) -> Result<(), Failure> {
    let until = Instant::now() + GONE_WITHIN;
    while place.is_head_alive() || place.path().exists() && is_alive(pid) {
        if Instant::now() > until {
            return Err(Failure::new(
                Code::TimedOut,
                format!("process {pid} of cluster {} does not end", place.name()),
            )
            .hint(format!("kill -9 {pid} ends it and everything it started")));
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    Ok(())
}

fn is_alive(pid: u32) -> bool {
    let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) else { return false };
    match pidfd_open(pid, PidfdFlags::empty()) {
        Ok(process) => pidfd_send_signal(&process, Signal::CONT).is_ok(),
        Err(_) => false,
    }
}
