//! Rust tasks on real processes. This program is its own slots, so it needs its own `main`, and with it a small harness.

#[path = "../support/harness.rs"]
mod harness;

mod calls;
mod deaths;
mod ending;
mod failures;
mod life;
mod programs;
mod support;

use paceline::Cluster;
use support::{ROLE, one};

fn main() {
    if std::env::var_os(ROLE).is_some_and(|role| role == "uninitialised") {
        let error = Cluster::connect().err().expect("a cluster without init()");
        println!("{}: {error}", error.code());
        return;
    }
    paceline::init();
    match std::env::var(ROLE).as_deref() {
        Ok("child") => println!("not a zygote"),
        Ok("talker") => drop(life::talk::call(&one(), "hello\nworld".into())),
        Ok("victim") => life::victim(),
        Ok(other) => panic!("no such role: {other}"),
        Err(_) => harness::run(
            &[calls::TESTS, deaths::TESTS, ending::TESTS, failures::TESTS, life::TESTS, programs::TESTS]
                .concat(),
        ),
    }
}
