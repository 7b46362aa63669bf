//! The way of a slot to the head, when the head is elsewhere: over a connection of the node's, because a slot has no key.
//!
//! What the two say is passed on message by message; it is not looked at.

use super::join::Dial;
use paceline_net::control::{self, Carries, Receiver, Sender};
use paceline_proto::control::{ClientToHead, HeadToClient};
use std::os::fd::OwnedFd;

/// What may wait on its way to one that does not read.
const ENOUGH: usize = 256 << 10;

/// Pass on what the slot at the other end of this socket and the head say to each other, until one of them is gone.
pub async fn pass_on(slot: OwnedFd, dial: Dial) {
    let head = match dial.as_client().await {
        Ok(dialed) => dialed.secured,
        Err(error) => return tracing::warn!(%error, "a slot cannot reach the head"),
    };
    let (Ok((to_slot, from_slot)), Ok((to_head, from_head))) = (
        control::channel::<HeadToClient, ClientToHead>(slot),
        control::channel::<ClientToHead, HeadToClient>(head),
    ) else {
        return;
    };
    tokio::select! {
        () = copy(from_slot, to_head) => {}
        () = copy(from_head, to_slot) => {}
    }
}

async fn copy<M: Carries>(mut from: Receiver<M>, to: Sender<M>) {
    while let Ok(Some((message, _))) = from.next().await {
        to.send(&message, Vec::new());
        to.drained_to(ENOUGH).await;
    }
    // The last words of one that is gone.
    let _ = tokio::time::timeout(std::time::Duration::from_secs(1), to.drained_to(0)).await;
}
