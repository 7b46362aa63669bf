//! A Rust program that works on the cluster at an address: `cargo run --example connect_to -- 10.0.0.5:7077`.

use paceline::{Cluster, Credentials};

#[paceline::task]
fn square(x: u64) -> u64 {
    x * x
}

fn main() -> paceline::Result<()> {
    paceline::init();
    let address = std::env::args().nth(1).unwrap_or_else(|| "auto".into());
    let cluster = Cluster::connect_to(&address, Credentials::Found)?;
    println!("{} CPUs", cluster.cpus());
    let squares = square::map(&cluster, 0..100)?;
    println!("{}", squares.into_iter().sum::<u64>());
    Ok(())
}
