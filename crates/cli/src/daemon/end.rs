//! What tells a daemon to end: signals, and the end of its lifeline.

use super::End;
use super::plan::Plan;
use crate::failure::Failure;
use std::io::Read;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc::UnboundedSender;

/// Tells of each of them. A supervisor, a reboot or a closed terminal ends the process, and the cluster goes on with the
/// next start. Only who started a cluster in the foreground stops it with Ctrl-C, and a program the one that is its own.
pub fn watch(plan: &Plan, ends: UnboundedSender<End>) -> Result<(), Failure> {
    let kinds = [
        (SignalKind::terminate(), "SIGTERM", plan.lifeline),
        (SignalKind::interrupt(), "SIGINT", plan.lifeline || !plan.detached),
        (SignalKind::hangup(), "SIGHUP", plan.lifeline),
    ];
    for (kind, why, stops_cluster) in kinds {
        let mut signals = signal(kind)?;
        let ends = ends.clone();
        tokio::spawn(async move {
            while signals.recv().await.is_some() {
                if ends.send(End::Told { why, stops_cluster }).is_err() {
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
            let _ = ends.send(End::Told { why: "the end of standard input", stops_cluster: true });
        };
        std::thread::Builder::new().name("paceline-lifeline".into()).stack_size(64 << 10).spawn(reading)?;
    }
    Ok(())
}
