//! Prints what a step of the head and a task of the client cost in clusters of several sizes: `make scale`.

use paceline_sim::scale::{self, Figures};

fn main() {
    let events = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(1_000_000);
    println!("head: 1,000 clients that want more than there is");
    println!(
        "{:>8} {:>8} {:>10} {:>12} {:>10} {:>10}",
        "nodes", "leases", "events", "events/s", "ns/event", "MB"
    );
    for nodes in [100, 500, 1000, 5000] {
        show(scale::head(nodes, 1000, events));
    }
    println!("client:");
    println!(
        "{:>8} {:>8} {:>10} {:>12} {:>10} {:>10}",
        "leases", "leases", "tasks", "tasks/s", "ns/task", "MB"
    );
    for leases in [10, 100, 1000, 15_000] {
        show(scale::client(leases, events));
    }
}

fn show(figures: Figures) {
    let Figures { size, count, each, leases } = figures;
    let rate = 1.0 / each.as_secs_f64();
    println!(
        "{size:>8} {leases:>8} {count:>10} {rate:>12.0} {:>10} {:>10}",
        each.as_nanos(),
        resident() >> 20
    );
}

/// The most memory this process had, in bytes.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kilobytes =
        line.and_then(|line| line.split_whitespace().next()).and_then(|text| text.parse::<u64>().ok());
    kilobytes.unwrap_or(0) << 10
}
