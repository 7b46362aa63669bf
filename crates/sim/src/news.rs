//! What happened, in words that a test can compare.

use crate::world::Sim;
use paceline_core::client::{LostCause, Outcome};

/// Something worth telling.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum News {
    /// A task began on a node.
    Began { task: usize, attempt: u32, node: String },
    /// A node saw a slot of its die.
    SlotDied(String),
    /// A task ended.
    Ended { task: usize, how: How },
}

/// How a task ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum How {
    Value,
    Raised,
    Unsendable,
    Cancelled,
    SlotDied,
    NodeLost,
    Poison,
    Unplaceable,
    TimedOut,
    TooDeep,
    HeadLost,
    NotStarted,
    GroupLost,
    /// The actor that it is a call of is no more; `ran` if it had begun, as far as anybody knows.
    ActorGone {
        ran: bool,
    },
    ActorAway,
    PoolBroken,
    ActorDied,
}

impl From<&Outcome> for How {
    fn from(outcome: &Outcome) -> How {
        match outcome {
            Outcome::Value(_) => How::Value,
            Outcome::Raised(_) => How::Raised,
            Outcome::Unsendable(_) => How::Unsendable,
            Outcome::Cancelled | Outcome::Stopped { .. } | Outcome::Refused { .. } => How::Cancelled,
            Outcome::Unplaceable(_) | Outcome::NoRoom(_) => How::Unplaceable,
            Outcome::TimedOut { .. } => How::TimedOut,
            Outcome::TooDeep { .. } => How::TooDeep,
            Outcome::HeadLost { .. } => How::HeadLost,
            Outcome::GroupLost(_) => How::GroupLost,
            Outcome::ActorGone(gone) => How::ActorGone { ran: gone.ran },
            Outcome::ActorAway { .. } => How::ActorAway,
            Outcome::PoolBroken(_) => How::PoolBroken,
            Outcome::ActorDied(_) => How::ActorDied,
            Outcome::NotStarted(_) => How::NotStarted,
            Outcome::Lost(lost) => match lost.cause {
                LostCause::SlotDied => How::SlotDied,
                LostCause::NodeLost => How::NodeLost,
                LostCause::Poison => How::Poison,
            },
        }
    }
}

impl Sim {
    pub(crate) fn tell(&mut self, news: impl FnOnce(&Sim) -> News) {
        if self.tells {
            let news = news(self);
            self.news.push(news);
        }
    }

    /// What happened since this was last asked.
    pub fn news(&mut self) -> Vec<News> {
        std::mem::take(&mut self.news)
    }
}
