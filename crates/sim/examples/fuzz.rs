//! Fuzzes one core without any tool: pseudo-random inputs under a seed, for so many seconds. Goes on after a finding, and
//! lists the different ones at the end.
//!
//! usage: cargo run --release -p paceline-sim --example fuzz -- head|node|client [--seconds N] [--first SEED]

use paceline_sim::fuzz::{TARGETS, random_bytes};
use std::collections::BTreeMap;
use std::panic;
use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Findings are told apart by where they are and so much of what they say.
const TEXT_LENGTH: usize = 110;
/// So much of the first of a kind is shown.
const SHOWN_LENGTH: usize = 600;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let option = |name: &str, default: u64| {
        let at = arguments.iter().position(|argument| argument == name);
        at.and_then(|at| arguments.get(at + 1)?.parse().ok()).unwrap_or(default)
    };
    let wanted = arguments.first().map_or("", String::as_str);
    let Some((_, target)) = TARGETS.into_iter().find(|(name, _)| *name == wanted) else {
        let names: Vec<&str> = TARGETS.iter().map(|(name, _)| *name).collect();
        eprintln!("name a target: {}", names.join(", "));
        return ExitCode::from(2);
    };
    let last = Arc::new(Mutex::new(String::new()));
    panic::set_hook(Box::new({
        let last = last.clone();
        move |info| {
            let text = info.to_string().replace('\n', " ");
            *last.lock().expect("nobody panics with it") = text.chars().take(SHOWN_LENGTH).collect();
        }
    }));
    let (seconds, first) = (option("--seconds", 60), option("--first", 1));
    let (begin, mut seed) = (Instant::now(), first);
    let mut findings: BTreeMap<String, (u64, u64, String)> = BTreeMap::new();
    while begin.elapsed() < Duration::from_secs(seconds) {
        let started = Instant::now();
        if panic::catch_unwind(|| target(&random_bytes(seed))).is_err() {
            let text = last.lock().expect("nobody panics with it").clone();
            let kind = text.chars().take(TEXT_LENGTH).collect();
            findings.entry(kind).or_insert((seed, 0, text)).1 += 1;
        }
        if started.elapsed() > Duration::from_secs(5) {
            let slow = "takes longer than 5 s".to_owned();
            findings.entry(slow.clone()).or_insert((seed, 0, slow)).1 += 1;
        }
        seed += 1;
    }
    println!("{wanted}: {} inputs from seed {first} on, {} findings", seed - first, findings.len());
    for (seed, count, text) in findings.values() {
        println!("  seed {seed}, {count} times: {text}");
    }
    if findings.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
