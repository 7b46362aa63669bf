//! Random clusters under random faults. `SIM_SEEDS=1000` runs more seeds, `SIM_FIRST=5000` others.

use paceline_sim::{Tally, run};
use std::sync::atomic::{AtomicU64, Ordering};

const STEPS: u64 = 10_000;

/// Seeds that failed once, and what they found.
const KEPT: [(u64, &str); 15] = [
    (700_203, "a group is refused, opened again and granted for ever"),
    (700_324, "a guest is charged the calls of an earlier one of its number"),
    (700_919, "a call of a pool ends with a lease that was given up without a word"),
    (700_990, "a claim is dropped without a word, and its client waits for ever"),
    (800_212, "a member of a group is given up without a word"),
    (1_000_133, "the same, with one member"),
    (1_004_611, "a group is withdrawn without a word while the head is lost, and granted for ever"),
    (1_005_350, "a node that goes meets a head, which grants there what it refuses, without end"),
    (1_006_291, "as 1004611, with a head that was started again"),
    (2_003_758, "two living copies: a node reported to a later head and went on to serve the earlier one"),
    (
        5_005_243,
        "a program runs twice: a node's old report arrives over an old link when the newer one is gone",
    ),
    (
        7_000_749,
        "an actor that ended at an earlier head lives on at the later one, and its callers wait for ever",
    ),
    (2_007_871, "two living copies: a later head kept alive what the earlier one took for ended"),
    (40, "the same, though the owner had not heard the later head's welcome"),
    (159, "two living copies: a node reported to a later head, went back, and was waited for too briefly"),
];

fn setting(name: &str, default: u64) -> u64 {
    match std::env::var(name) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{name} is not a number: {text}")),
        Err(_) => default,
    }
}

/// Run the seeds on all CPUs and count what they met.
fn sweep(first: u64, count: u64) -> Tally {
    let next = AtomicU64::new(first);
    let work = || {
        let mut tally = Tally::default();
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= first + count {
                return tally;
            }
            tally.add(&run(seed, STEPS).tally);
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        let mut tally = Tally::default();
        for worker in workers {
            match worker.join() {
                Ok(part) => tally.add(&part),
                Err(reason) => std::panic::resume_unwind(reason),
            }
        }
        tally
    })
}

#[test]
fn every_seed_keeps_the_promises() {
    let tally = sweep(setting("SIM_FIRST", 1), setting("SIM_SEEDS", 200));
    println!("{tally}");
    assert_eq!(tally.missing(), Vec::<&str>::new(), "cases that were never met");
}

#[test]
fn kept_seeds_keep_the_promises() {
    for (seed, found) in KEPT {
        println!("seed {seed}: {found}");
        run(seed, STEPS);
    }
}

#[test]
fn a_seed_is_the_same_run_every_time() {
    for seed in [3, 17, 42] {
        assert_eq!(run(seed, 3_000), run(seed, 3_000), "SM-1");
    }
    assert_ne!(run(1, 3_000), run(2, 3_000));
}
