//! What the node's tasks tell its event loop.

use crate::places::LinkPlace;
use paceline_net::secure::Secured;
use paceline_proto::control::{HeadToNode, SlotToNode, Stream, ZygoteToNode};
use paceline_proto::question::Answer;
use paceline_proto::{ClientId, DeathCause, LeaseId, SlotId};
use std::os::fd::OwnedFd;
use tokio::sync::{OwnedSemaphorePermit, mpsc};

/// Something happened. Short and rare, so nobody waits to tell it.
pub(crate) enum News {
    /// The head said something over the link of this number; none when the link is gone.
    Head(u64, Option<HeadToNode>),
    /// The zygote of this number said something.
    Zygote(u64, ZygoteToNode),
    /// It is gone. If it said something that zygotes do not say, what was wrong with it.
    ZygoteGone(u64, Option<String>),
    /// A slot said something, and descriptors came along.
    /// It may say the next thing when the permit is gone.
    Slot(SlotId, SlotToNode, Vec<OwnedFd>, OwnedSemaphorePermit),
    /// A slot is gone, and everything it printed has been told.
    Gone(SlotId, DeathCause),
    /// A data connection has said which lease it is for.
    Opened(OwnedFd, LeaseId),
    /// A link to the store has ended.
    StoreLeft,
    /// The store of this client is at the other end of a connection.
    Owner(Secured, ClientId, Option<LinkPlace>),
    /// The process around the node has answered the head's question of this number.
    Answered(u64, Answer),
}

/// Something a slot printed. It may be much, so who tells it waits until it is taken.
pub(crate) struct Printed {
    pub slot: SlotId,
    pub stream: Stream,
    pub text: Vec<u8>,
}

/// Where to tell it.
#[derive(Clone)]
pub(crate) struct Desk {
    pub news: mpsc::UnboundedSender<News>,
    pub printed: mpsc::Sender<Printed>,
}

impl Desk {
    /// False: the node has ended.
    pub(crate) fn tell(&self, news: News) -> bool {
        self.news.send(news).is_ok()
    }
}
