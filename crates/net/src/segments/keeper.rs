//! A thread that sees to what nobody else comes by for: ranges to return over links that are quiet, segments that nobody
//! uses any more, and what the other ends say of memory over links that nobody reads. It is started when there is such a
//! thing.
//!
//! * KE-1: while memory is lent over a link, in either direction, its owner is asked to read it every [`TRIM`]: a client
//!   without pending tasks reads nothing, and what its slots say of memory would wait for the next call.

use super::store::Store;
use super::wire::Wire;
use parking_lot::{Condvar, Mutex};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A range is returned this long after it was let go of, if nothing else is said over its link.
const GATHER: Duration = Duration::from_millis(5);
/// How often it looks for segments without use, and has links read over which memory is lent.
const TRIM: Duration = Duration::from_secs(3);

#[derive(Default)]
pub(super) struct Keeper {
    state: Mutex<State>,
    wake: Condvar,
}

#[derive(Default)]
struct State {
    wires: Vec<Arc<Wire>>,
    /// There are segments of ours, or others' are mapped here.
    trims: bool,
    runs: bool,
}

impl Keeper {
    /// Something is to be said over this link.
    pub fn look_after(&self, wire: &Arc<Wire>) {
        let mut state = self.state.lock();
        state.wires.push(wire.clone());
        self.start(&mut state);
        self.wake.notify_one();
    }

    /// There are segments now, ours or mapped ones.
    pub fn trim(&self) {
        let mut state = self.state.lock();
        if !std::mem::replace(&mut state.trims, true) {
            self.start(&mut state);
            self.wake.notify_one();
        }
    }

    fn start(&self, state: &mut State) {
        if !state.runs {
            // The store that has been in use, whatever is current when the thread gets there.
            let store = Store::current();
            let thread = std::thread::Builder::new().name("paceline-keeper".into()).stack_size(128 << 10);
            // Without it, ranges are returned with the next message, and segments stay.
            state.runs = thread.spawn(move || run(store)).is_ok();
        }
    }
}

fn run(store: &'static Store) {
    crate::signals::block_all();
    let keeper = &store.keeper;
    let mut looked = Instant::now();
    loop {
        let mut state = keeper.state.lock();
        if state.wires.is_empty() {
            match state.trims {
                true => drop(keeper.wake.wait_for(&mut state, TRIM)),
                false => keeper.wake.wait(&mut state),
            }
        }
        let any = !state.wires.is_empty();
        drop(state);
        if any {
            std::thread::sleep(GATHER);
            let wires = std::mem::take(&mut keeper.state.lock().wires);
            wires.iter().for_each(|wire| wire.say_now());
        }
        // First, so that a segment that is made while this looks is not overlooked.
        keeper.state.lock().trims = false;
        if store.trim() {
            keeper.state.lock().trims = true;
        }
        if looked.elapsed() >= TRIM {
            looked = Instant::now();
            store.lending_wires().iter().for_each(|wire| wire.look());
        }
    }
}
