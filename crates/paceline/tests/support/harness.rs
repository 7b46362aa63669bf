//! As much of the usual test harness as `cargo test` and `cargo nextest` need, for a program with its own `main`.

use std::panic::catch_unwind;
use std::time::Instant;

pub fn run(tests: &[(&str, fn())]) {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let has = |flag: &str| arguments.iter().any(|argument| argument == flag);
    if has("--list") {
        // None is ignored, so that list is empty.
        let listed = if has("--ignored") { &[] } else { tests };
        listed.iter().for_each(|(name, _)| println!("{name}: test"));
        return;
    }
    let mut filters = arguments.iter().filter(|argument| !argument.starts_with("--")).peekable();
    let all = filters.peek().is_none();
    let filters: Vec<&String> = filters.collect();
    let chosen = |name: &str| {
        let matches =
            |filter: &&String| if has("--exact") { name == *filter } else { name.contains(*filter) };
        all || filters.iter().any(matches)
    };
    let mut failed = Vec::new();
    for (name, test) in tests.iter().filter(|(name, _)| chosen(name)) {
        let began = Instant::now();
        let passed = catch_unwind(test).is_ok();
        println!("test {name} ... {} ({:.2?})", if passed { "ok" } else { "FAILED" }, began.elapsed());
        if !passed {
            failed.push(*name);
        }
    }
    if !failed.is_empty() {
        eprintln!("failed: {failed:?}");
        std::process::exit(1);
    }
}
