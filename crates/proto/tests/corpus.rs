//! The fuzzer's corpus, and a fixed number of mutations of each of its files, through every decoder.

use paceline_proto::exercise::exercise;
use std::path::Path;

const MUTATIONS: u64 = 2_000;

/// A small generator of numbers: the same ones every time.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self, below: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % below.max(1) as u64) as usize
    }
}

fn corpus() -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/frames");
    let files = std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut paths: Vec<_> = files.map(|file| file.unwrap().path()).collect();
    paths.sort();
    assert!(paths.len() >= 40, "the corpus is incomplete");
    paths.iter().map(|path| std::fs::read(path).unwrap()).collect()
}

#[test]
fn stored_frames_are_read_without_a_panic() {
    corpus().iter().for_each(|bytes| exercise(bytes));
}

#[test]
fn so_are_mutations_of_them() {
    let corpus = corpus();
    for (index, original) in corpus.iter().enumerate() {
        let mut numbers = Numbers(0x9e37_79b9_7f4a_7c15 ^ index as u64);
        for _ in 0..MUTATIONS {
            let mut bytes = original.clone();
            for _ in 0..=numbers.next(4) {
                mutate(&mut bytes, &corpus, &mut numbers);
            }
            exercise(&bytes);
        }
    }
}

fn mutate(bytes: &mut Vec<u8>, corpus: &[Vec<u8>], numbers: &mut Numbers) {
    let place = numbers.next(bytes.len());
    match numbers.next(6) {
        0 if !bytes.is_empty() => bytes[place] ^= 1 << numbers.next(8),
        1 if !bytes.is_empty() => bytes[place] = [0, 1, 127, 128, 255][numbers.next(5)],
        2 => bytes.truncate(place),
        3 => bytes.insert(place, numbers.next(256) as u8),
        4 => bytes.extend_from_slice(&corpus[numbers.next(corpus.len())]),
        _ => {
            let other = &corpus[numbers.next(corpus.len())];
            bytes.truncate(place);
            bytes.extend_from_slice(&other[numbers.next(other.len())..]);
        }
    }
    bytes.truncate(1 << 16);
}
