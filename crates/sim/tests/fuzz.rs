//! The fuzz targets of the cores over the stored corpus, and over pseudo-random inputs under a seed.
//! `FUZZ_INPUTS=10000 FUZZ_FIRST=5000` runs more, and others.

use paceline_sim::fuzz::{TARGETS, random_bytes};
use std::path::Path;

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

#[test]
fn cores_over_the_stored_corpus_keep_every_invariant() {
    for (name, target) in TARGETS {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(name);
        let mut paths: Vec<_> =
            std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        paths.sort();
        assert!(!paths.is_empty(), "there is no corpus of {name}");
        for path in paths {
            println!("{}", path.display());
            target(&std::fs::read(&path).unwrap());
        }
    }
}

#[test]
fn cores_over_random_inputs_keep_every_invariant() {
    let (first, count) = (setting("FUZZ_FIRST", 1), setting("FUZZ_INPUTS", 300));
    for (name, target) in TARGETS {
        for seed in first..first + count {
            println!("{name}: seed {seed}");
            target(&random_bytes(seed));
        }
    }
}
