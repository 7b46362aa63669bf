//! How long a blocking call of a Rust task takes from a Rust program: `cargo run --release --example rust_rtt`.

use paceline::Cluster;
use std::time::{Duration, Instant};

const WARM_UP: u64 = 2_000;
const CALLS: u64 = 20_000;
const ROUNDS: usize = 7;
const ITEMS: u64 = 200_000;

#[paceline::task]
fn echo(x: u64) -> u64 {
    x
}

fn main() -> paceline::Result<()> {
    paceline::init();
    let cluster = Cluster::embedded().cpus(2).start()?;
    for x in 0..WARM_UP {
        echo::call(&cluster, x)?;
    }
    let mut rounds: Vec<[f64; 2]> = Vec::new();
    for _ in 0..ROUNDS {
        let mut times = Vec::with_capacity(CALLS as usize);
        for x in 0..CALLS {
            let began = Instant::now();
            assert_eq!(echo::call(&cluster, x)?, x);
            times.push(began.elapsed());
        }
        times.sort_unstable();
        let at = |share: f64| micros(times[(CALLS as f64 * share) as usize]);
        println!("call: p50 {:.1} us, p99 {:.1} us", at(0.5), at(0.99));
        rounds.push([at(0.5), at(0.99)]);
    }
    let middle = |which: usize| {
        let mut values: Vec<f64> = rounds.iter().map(|round| round[which]).collect();
        values.sort_unstable_by(f64::total_cmp);
        values[ROUNDS / 2]
    };
    println!("median of {ROUNDS} rounds: p50 {:.1} us, p99 {:.1} us", middle(0), middle(1));
    let began = Instant::now();
    assert_eq!(echo::map(&cluster, 0..ITEMS)?.len() as u64, ITEMS);
    println!("map: {:.0} tasks/s", ITEMS as f64 / began.elapsed().as_secs_f64());
    Ok(())
}

fn micros(time: Duration) -> f64 {
    time.as_nanos() as f64 / 1000.0
}
