//! Faults that tests ask for. A process harms itself when its own environment says so; nobody else can ask for it.

use std::ffi::OsStr;
use std::thread;

const STACK_BYTES: usize = 64 << 10;

/// Runs `act` once somebody writes to the FIFO that this environment variable names. Without the variable it does nothing.
pub fn on_written(variable: impl AsRef<OsStr>, act: impl FnOnce() + Send + 'static) {
    let Some(path) = std::env::var_os(variable) else { return };
    let waiting = move || {
        if std::fs::read(path).is_ok() {
            act();
        }
    };
    let thread = thread::Builder::new().name("paceline-fault".into()).stack_size(STACK_BYTES);
    if let Err(error) = thread.spawn(waiting) {
        tracing::error!(%error, "fault not armed");
    }
}
