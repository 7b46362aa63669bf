//! Prints what a step of the head and a task of the client cost in clusters of several sizes: `make scale`.

use paceline_sim::scale::{self, Figures, World};

const HEAD: [&str; 6] = ["nodes", "leases", "events", "events/s", "ns/event", "MB"];
const CLIENT: [&str; 6] = ["leases", "leases", "tasks", "tasks/s", "ns/task", "MB"];

fn main() {
    let events = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(1_000_000);
    let sizes = [(100, 10), (100, 1000), (500, 1000), (1000, 1000), (5000, 10), (5000, 1000)];
    for (nodes, clients) in sizes {
        println!("head: {nodes} nodes join, and {clients} clients want more than there is");
        title(HEAD);
        let mut world = World::new(nodes, clients);
        show(world.start);
        println!("head: they give leases back and get others");
        show(world.churn(events));
    }
    println!("client: so many leases, a task at a time on each");
    title(CLIENT);
    for leases in [10, 100, 1000, 15_000] {
        show(scale::client(leases, events));
    }
}

fn title(words: [&str; 6]) {
    let [size, leases, count, rate, each, memory] = words;
    println!("{size:>8} {leases:>8} {count:>10} {rate:>12} {each:>10} {memory:>10}");
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

/// The most memory this process has had, in bytes.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kilobytes =
        line.and_then(|line| line.split_whitespace().next()).and_then(|text| text.parse::<u64>().ok());
    kilobytes.unwrap_or(0) << 10
}
