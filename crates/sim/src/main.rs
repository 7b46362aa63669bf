//! Replay a seed of the simulation: `paceline-sim --seed 42 --steps 10000 [--verbose]`, or several with `--seeds`.
#![forbid(unsafe_code)]

use paceline_sim::{Tally, Tracing, run, run_traced};
use std::process::ExitCode;

const USAGE: &str = "usage: paceline-sim [--seed N] [--seeds COUNT] [--steps M] [--verbose]";

struct Arguments {
    seed: u64,
    seeds: u64,
    steps: u64,
    verbose: bool,
}

fn main() -> ExitCode {
    let arguments = match parse(std::env::args().skip(1)) {
        Ok(arguments) => arguments,
        Err(problem) => {
            eprintln!("{problem}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    let mut total = Tally::default();
    for seed in arguments.seed..arguments.seed + arguments.seeds {
        let report = if arguments.verbose {
            run_traced(seed, arguments.steps, Tracing::All)
        } else {
            run(seed, arguments.steps)
        };
        total.add(&report.tally);
        if arguments.seeds == 1 {
            println!(
                "seed {seed}: {} steps, {:.3} s of virtual time",
                report.steps,
                report.lasted.as_secs_f64()
            );
        }
    }
    println!("{total}");
    ExitCode::SUCCESS
}

fn parse(mut words: impl Iterator<Item = String>) -> Result<Arguments, String> {
    let mut arguments = Arguments { seed: 1, seeds: 1, steps: 10_000, verbose: false };
    while let Some(word) = words.next() {
        let mut number = || {
            let value = words.next().ok_or(format!("a number is missing after {word}"))?;
            value.parse().map_err(|_| format!("not a number: {value}"))
        };
        match word.as_str() {
            "--seed" => arguments.seed = number()?,
            "--seeds" => arguments.seeds = number()?,
            "--steps" => arguments.steps = number()?,
            "--verbose" => arguments.verbose = true,
            _ => return Err(format!("unknown argument: {word}")),
        }
    }
    Ok(arguments)
}
