//! Rust functions on all CPUs, each call in a process of its own: `cargo run --release`.

use paceline::{Cluster, Error};
use std::collections::BTreeMap;

/// How many primes there are below a number.
#[paceline::task]
fn primes_below(limit: u64) -> u64 {
    (2..limit).filter(|n| (2..).take_while(|d| d * d <= *n).all(|d| n % d != 0)).count() as u64
}

/// A task may fail, and its error arrives.
#[paceline::task]
fn parse(text: String) -> Result<i64, std::num::ParseIntError> {
    text.trim().parse()
}

/// A task may even end its process. It is run again, but not for ever.
#[paceline::task]
fn crash() {
    std::process::abort();
}

/// An object that lives in a process of its own.
struct Tally {
    votes: BTreeMap<String, u64>,
}

#[paceline::actor]
impl Tally {
    fn new() -> Tally {
        Tally { votes: BTreeMap::new() }
    }

    fn vote(&mut self, name: String) -> u64 {
        let votes = self.votes.entry(name).or_default();
        *votes += 1;
        *votes
    }

    fn winner(&self) -> Option<String> {
        self.votes.iter().max_by_key(|(_, votes)| **votes).map(|(name, _)| name.clone())
    }
}

fn main() -> paceline::Result<()> {
    paceline::init();
    let cluster = Cluster::connect()?;

    println!("here:      {} primes below 1,000", primes_below(1_000));
    println!("in a slot: {} primes below 10,000", primes_below::call(&cluster, 10_000)?);

    let future = primes_below::submit(&cluster, 100_000);
    println!("meanwhile: {}", parse::call(&cluster, " 42 ".into())?);
    println!("submitted: {} primes below 100,000", future.wait()?);

    let counts = primes_below::map(&cluster, (1..=20).map(|n| n * 1_000))?;
    println!("map:       {counts:?}");

    let tally = Tally::spawn(&cluster)?;
    for name in ["ada", "grace", "ada"] {
        tally.vote(name.into())?;
    }
    println!("actor:     {} is ahead", tally.winner()?.unwrap_or_default());

    for error in [parse::call(&cluster, "forty-two".into()).map(drop), crash::call(&cluster)] {
        let error: Error = error.expect_err("both fail");
        println!("{}: {error}", error.code());
    }
    Ok(())
}
