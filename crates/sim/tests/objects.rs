//! Seeds of the world of objects.

use paceline_sim::{run_copies, run_losses, run_objects};

fn number(name: &str, usual: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(usual)
}

#[test]
fn every_seed_keeps_its_promises() {
    let first = number("SIM_FIRST", 1);
    let mut met = [0; 7];
    for seed in first..first + number("SIM_SEEDS", 200) {
        let one = run_objects(seed, 4000).unwrap_or_else(|why| panic!("{why}"));
        let counts = [one.puts, one.gets, one.results, one.deaths, one.spilled, one.refused, one.owners_lost];
        met.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
    }
    assert!(met.iter().all(|&count| count > 0), "every case is met: {met:?}");
}

#[test]
fn every_seed_keeps_its_promises_in_a_cluster() {
    let first = number("SIM_FIRST", 1);
    let mut met = [0; 9];
    for seed in first..first + number("SIM_SEEDS", 100) {
        let one = run_copies(seed, 8000).unwrap_or_else(|why| panic!("{why}"));
        let counts = [
            one.puts,
            one.gets,
            one.results,
            one.deaths,
            one.refused,
            one.owners_lost,
            one.fetched,
            one.unfetched,
            one.passed_on,
        ];
        met.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
    }
    assert!(met.iter().all(|&count| count > 0), "every case is met: {met:?}");
}

#[test]
fn every_seed_keeps_its_promises_when_nodes_die() {
    let first = number("SIM_FIRST", 1);
    let mut met = [0; 8];
    for seed in first..first + number("SIM_SEEDS", 100) {
        let one = run_losses(seed, 8000).unwrap_or_else(|why| panic!("{why}"));
        let counts = [
            one.puts,
            one.gets,
            one.results,
            one.passed_on,
            one.nodes_lost,
            one.lost,
            one.made_again,
            one.in_vain,
        ];
        met.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
    }
    assert!(met.iter().all(|&count| count > 0), "every case is met: {met:?}");
}

#[test]
fn the_same_seed_is_the_same_run() {
    let runs = [run_objects(7, 3000).unwrap(), run_objects(7, 3000).unwrap()];
    assert_eq!(format!("{:?}", runs[0]), format!("{:?}", runs[1]));
}
