//! `paceline node`.

use crate::args::Node;
use crate::ask::Target;
use crate::failure::{Code, Failure};
use crate::show;
use paceline_proto::question::Question;
use std::time::{Duration, Instant};

/// How long `--wait` waits for a node to finish what it runs.
const DRAINED_WITHIN: Duration = Duration::from_secs(3600);

pub fn run(node: &Node, json: bool) -> Result<(), Failure> {
    let Node::Drain { node, wait, which } = node;
    let target = super::target(which)?;
    let answer = target.ask(Question::Drain { node: node.clone() })?;
    if *wait {
        wait_until_gone(&target, answer["node"].as_str().unwrap_or_default())?;
    }
    if json {
        show::json(&answer);
    }
    show::note(&if *wait {
        format!("node {node} has left")
    } else {
        format!("node {node} finishes what it runs and leaves")
    });
    Ok(())
}

fn wait_until_gone(target: &Target, number: &str) -> Result<(), Failure> {
    let until = Instant::now() + DRAINED_WITHIN;
    loop {
        let status = target.ask(Question::Status)?;
        let mut nodes = status["nodes"].as_array().into_iter().flatten();
        if !nodes.any(|node| node["node"].as_str() == Some(number)) {
            return Ok(());
        }
        if Instant::now() > until {
            let text = format!("node {number} still runs something, and leaves when that is through");
            return Err(Failure::new(Code::TimedOut, text).hint("paceline explain NODE shows what it runs"));
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}
