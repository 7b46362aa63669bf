//! The way of a slot to the head, when the head is elsewhere: over a connection of the node's, because a slot has no key.
//!
//! What the two say is passed on message by message. Only questions are looked at: those that are not for tasks are refused
//! here, and by the head as well.

use super::join::Dial;
use paceline_net::control::{self, Carries, Receiver, Sender};
use paceline_node::LinkPlace;
use paceline_proto::control::{ClientToHead, HeadToClient};
use paceline_proto::question::Question;
use std::os::fd::OwnedFd;

/// What may wait on its way to one that does not read.
const ENOUGH: usize = 256 << 10;

/// Pass on what the slot at the other end of this socket and the head say to each other, until one of them is gone.
/// The place is given back then.
pub async fn pass_on(slot: OwnedFd, dial: Dial, _place: LinkPlace) {
    let head = match dial.as_slot().await {
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
        () = copy_from_slot(from_slot, to_head, to_slot.clone()) => {}
        () = copy(from_head, to_slot) => {}
    }
}

/// As [`copy`], but for questions that are not for tasks, which it answers itself.
async fn copy_from_slot(
    mut from: Receiver<ClientToHead>,
    to: Sender<ClientToHead>,
    back: Sender<HeadToClient>,
) {
    while let Ok(Some((message, _))) = from.next().await {
        match message {
            ClientToHead::Ask { number, question } if !question.is_for_tasks() => {
                tracing::warn!(?question, "question of a task refused");
                back.send(&HeadToClient::Answer { number, text: Question::refusal() }, Vec::new());
            }
            message => to.send(&message, Vec::new()),
        }
        to.drained_to(ENOUGH).await;
    }
    finish(to).await;
}

async fn copy<M: Carries>(mut from: Receiver<M>, to: Sender<M>) {
    while let Ok(Some((message, _))) = from.next().await {
        to.send(&message, Vec::new());
        to.drained_to(ENOUGH).await;
    }
    finish(to).await;
}

/// Lets the last words of one that is gone go out.
async fn finish<M: Carries>(to: Sender<M>) {
    let _ = tokio::time::timeout(std::time::Duration::from_secs(1), to.drained_to(0)).await;
}
