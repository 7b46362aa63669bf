//! What the node can tell about itself.

use super::places::PATIENCE;
use super::{HeadLink, Node, State, Zygote};
use paceline_proto::{ClientId, LeaseId, Resources, SlotId, Way};

/// The node's slots, in the order of their ids.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Status {
    pub slots: Vec<SlotStatus>,
    /// Leases that wait for a slot.
    pub pending: usize,
    /// Places that back off because their slots died young, with the number of deaths in a row.
    pub backing_off: Vec<(usize, u32)>,
    pub zygote_up: bool,
    /// The head has welcomed this node on the link that is up.
    pub welcomed: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub struct SlotStatus {
    pub slot: SlotId,
    pub pid: Option<u32>,
    pub state: SlotState,
    pub client: Option<ClientId>,
    pub needs: Option<Resources>,
    /// How the data connection of its lease came, if one did.
    pub way: Option<Way>,
    pub lease: Option<LeaseId>,
    /// Its task waits for others.
    pub blocked: bool,
    /// The signal that its process was stopped by, if it stands still.
    pub stopped: Option<i32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotState {
    Forking,
    Ready,
    Leased,
    Detaching,
    Warm,
    Ending,
}

impl SlotState {
    /// The name people see.
    pub fn name(self) -> &'static str {
        match self {
            SlotState::Forking => "forking",
            SlotState::Ready => "ready",
            SlotState::Leased => "leased",
            SlotState::Detaching => "detaching",
            SlotState::Warm => "warm",
            SlotState::Ending => "ending",
        }
    }
}

impl Node {
    pub fn status(&self) -> Status {
        let slots = self.slots.iter().map(|(&slot, entry)| {
            let (state, needs) = match entry.state {
                State::Generic if entry.ready => (SlotState::Ready, None),
                State::Generic => (SlotState::Forking, None),
                State::Leased(lease) => (SlotState::Leased, Some(lease.shape.needs)),
                State::Detaching { lease, .. } => (SlotState::Detaching, Some(lease.shape.needs)),
                State::Warm { needs, .. } => (SlotState::Warm, Some(needs)),
                State::Ending { .. } => (SlotState::Ending, None),
            };
            let way = entry.way.filter(|_| matches!(entry.state, State::Leased(_)));
            let lease = entry.state.lease().map(|lease| lease.lease);
            let (pid, client, blocked) = (entry.pid, entry.client, entry.blocked.is_some());
            let stopped = entry.stopped.map(|stopped| stopped.signal);
            SlotStatus { slot, pid, state, client, needs, lease, blocked, stopped, way }
        });
        let tired = self.places.iter().filter(|(_, backoff)| backoff.deaths() >= PATIENCE);
        Status {
            slots: slots.collect(),
            pending: self.pending.len(),
            backing_off: tired.map(|(&place, backoff)| (place, backoff.deaths())).collect(),
            zygote_up: matches!(self.zygote, Zygote::Up { .. }),
            welcomed: matches!(self.head, HeadLink::Up { obeyed: true, .. }),
        }
    }
}
