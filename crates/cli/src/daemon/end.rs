//! What tells a daemon to end: signals, and the end of its lifeline.

use super::End;
use super::plan::Plan;
use crate::failure::Failure;
use std::io::Read;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc::UnboundedSender;

/// Tell of each of them. A terminal that is closed ends what is in its foreground, and a daemon has left it.
pub fn watch(plan: &Plan, ends: UnboundedSender<End>) -> Result<(), Failure> {
    let kinds = [
        (SignalKind::terminate(), "SIGTERM"),
        (SignalKind::interrupt(), "SIGINT"),
        (SignalKind::hangup(), "SIGHUP"),
    ];
    for (kind, name) in kinds {
        let mut signals = signal(kind)?;
        let ends = ends.clone();
        tokio::spawn(async move {
            while signals.recv().await.is_some() {
                if ends.send(End::Told(name)).is_err() {
                    return;
                }
            }
        });
    }
    if plan.lifeline {
        // A thread, for standard input may be a file, which cannot be watched.
        let reading = move || {
            let mut bytes = [0; 64];
            while std::io::stdin().read(&mut bytes).is_ok_and(|length| length > 0) {}
            let _ = ends.send(End::Told("the end of standard input"));
        };
        std::thread::Builder::new().name("paceline-lifeline".into()).stack_size(64 << 10).spawn(reading)?;
    }
    Ok(())
}
