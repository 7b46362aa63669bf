//! Objects that live in slots, on real processes: actors, pools of workers, executors. This program is its own slots.

#[path = "../support/harness.rs"]
mod harness;

mod actor_deaths;
mod actors;
mod executors;
mod nesting;
mod pools;
mod support;
mod updates;

fn main() {
    paceline::init();
    harness::run(
        &[actors::TESTS, actor_deaths::TESTS, pools::TESTS, updates::TESTS, executors::TESTS, nesting::TESTS]
            .concat(),
    );
}
