//! Arbitrary bytes as every link would read them: no panic, and nothing depends on how they arrive.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| paceline_proto::exercise::exercise(bytes));
