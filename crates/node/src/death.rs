//! How a slot ended: its pidfd says that it did, its zygote says how.

use crate::news::{Desk, News};
use paceline_net::reap::reap_inherited;
use paceline_net::watch;
use paceline_proto::{DeathCause, SlotId};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::time::Duration;
use tokio::sync::{oneshot, watch as signal};
use tokio::task::JoinHandle;

/// How long the zygote may take to say how a slot ended that has.
const ZYGOTE_LIMIT: Duration = Duration::from_secs(1);
/// How long the last words of a slot may take to be handed on.
const LAST_WORDS: Duration = Duration::from_millis(300);

/// What ends with a slot's death.
pub(crate) struct Vigil {
    pub slot: SlotId,
    /// Tells the readers of its output.
    pub dead: signal::Sender<bool>,
    pub readers: Vec<JoinHandle<()>>,
    pub desk: Desk,
}

impl Vigil {
    /// Wait for the end of this process. `told` is what the zygote says, and fails when it dies.
    pub(crate) async fn keep(self, pid: u32, told: oneshot::Receiver<DeathCause>) {
        let process = i32::try_from(pid).ok().and_then(Pid::from_raw);
        // If there is no such process any more, the zygote has reaped it and says so.
        let process = process.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
        let process = process.and_then(|process| watch::to_read(process).ok());
        let cause = cause(process, told).await;
        self.close(cause).await;
    }

    /// The slot is gone: hand on its last words (NS-2), then say so.
    pub(crate) async fn close(self, cause: DeathCause) {
        let _ = self.dead.send(true);
        let last_words = async {
            for reader in self.readers {
                let _ = reader.await;
            }
        };
        let _ = tokio::time::timeout(LAST_WORDS, last_words).await;
        self.desk.tell(News::Gone(self.slot, cause));
    }
}

async fn cause(process: Option<watch::Watched>, mut told: oneshot::Receiver<DeathCause>) -> DeathCause {
    let unknown = DeathCause::Signal(9);
    let Some(process) = process else { return told.await.unwrap_or(unknown) };
    tokio::select! {
        biased;
        cause = &mut told => match cause {
            Ok(cause) => cause,
            // The zygote died, and its slots with it: only the process itself can tell when.
            Err(_) => {
                let _ = process.readable().await;
                reap_inherited(process.get_ref());
                unknown
            }
        },
        _ = process.readable() => {
            match tokio::time::timeout(ZYGOTE_LIMIT, told).await {
                Ok(Ok(cause)) => cause,
                Ok(Err(_)) | Err(_) => {
                    reap_inherited(process.get_ref());
                    unknown
                }
            }
        }
    }
}
