//! Connections: bytes in order while one lives, nothing after its end.
//!
//! Everything goes through the real codec: a message is encoded as it is sent, cut into pieces, and decoded as it
//! arrives.
//!
//! * LK-1: within one connection messages arrive in order, each after a delay of its own.
//! * LK-2: a connection that breaks loses a suffix of what was on its way, in each direction another one; then each end
//!   sees the end of it, in its own time.

use crate::random::Random;
use crate::world::{Event, Sim};
use paceline_core::Tick;
use paceline_core::client::LeaseKey;
use paceline_proto::LeaseId;
use paceline_proto::frame::{Decoder, Frame};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct LinkId(pub u64);

/// One end of a link. Near is who opened it: the client or the node; far is the head, the slot or the zygote.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum End {
    Near,
    Far,
}

/// What a link is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Client { client: usize, head: usize },
    Node { node: usize, head: usize },
    Slot { process: usize },
    Zygote { node: usize, zygote: u64 },
    Data(Data),
}

impl Kind {
    /// The head at its other end.
    pub fn head(self) -> Option<usize> {
        match self {
            Kind::Client { head, .. } | Kind::Node { head, .. } => Some(head),
            Kind::Slot { .. } | Kind::Zygote { .. } | Kind::Data(_) => None,
        }
    }

    /// Whose link to a head it is.
    pub fn is_of_node(self, it: usize) -> bool {
        matches!(self, Kind::Node { node, .. } if node == it)
    }

    pub fn is_of_client(self, it: usize) -> bool {
        matches!(self, Kind::Client { client, .. } if client == it)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Data {
    pub client: usize,
    pub key: LeaseKey,
    pub lease: LeaseId,
    pub node: usize,
    /// The slot that got the connection.
    pub process: Option<usize>,
}

/// Whether a message may come a second time without harm.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Repeat {
    Never,
    /// Right after itself: it says how things stand, and later ones say it anew.
    AtOnce,
    /// Whenever the link lives.
    Later,
}

/// How long messages take on a link.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Delay {
    pub least: Duration,
    pub most: Duration,
}

impl Delay {
    pub fn draw(&self, random: &mut Random) -> Duration {
        if self.least == self.most { self.least } else { random.span(self.least..self.most) }
    }
}

pub(crate) struct Link {
    pub kind: Kind,
    pub delay: Delay,
    /// Whether anything sent still gets onto it.
    pub open: bool,
    /// What is sent gets nowhere, and nobody notices.
    silent: bool,
    pub stalled_until: Tick,
    near: Pipe,
    far: Pipe,
    /// Which ends have seen the end of the link, or made it.
    near_left: bool,
    far_left: bool,
}

/// One direction.
#[derive(Default)]
struct Pipe {
    packets: VecDeque<Packet>,
    decoder: Decoder,
    last: Tick,
}

struct Packet {
    at: Tick,
    repeat: Repeat,
    /// A connection whose descriptor travels along.
    connection: Option<LinkId>,
    /// None: the end of the link.
    bytes: Option<Vec<u8>>,
}

/// What arrives.
pub(crate) enum Arrival {
    Frame { frame: Frame, connection: Option<LinkId>, repeat: Repeat },
    End,
}

#[derive(Default)]
pub(crate) struct Links {
    links: BTreeMap<LinkId, Link>,
    count: u64,
}

impl Links {
    pub fn add(&mut self, kind: Kind, delay: Delay) -> LinkId {
        self.count += 1;
        let id = LinkId(self.count);
        let link = Link {
            kind,
            delay,
            open: true,
            silent: false,
            stalled_until: Tick::ZERO,
            near: Pipe::default(),
            far: Pipe::default(),
            near_left: false,
            far_left: false,
        };
        self.links.insert(id, link);
        id
    }

    pub fn get(&self, id: LinkId) -> Option<&Link> {
        self.links.get(&id)
    }

    pub fn get_mut(&mut self, id: LinkId) -> Option<&mut Link> {
        self.links.get_mut(&id)
    }

    /// One end has seen the end of the link, or made it.
    pub fn leave(&mut self, id: LinkId, end: End) {
        let Some(link) = self.links.get_mut(&id) else { return };
        match end {
            End::Near => link.near_left = true,
            End::Far => link.far_left = true,
        }
        if link.near_left && link.far_left {
            self.links.remove(&id);
        }
    }

    /// Both ends are gone at once.
    pub fn remove(&mut self, id: LinkId) {
        self.links.remove(&id);
    }

    pub fn iter(&self) -> impl Iterator<Item = (LinkId, &Link)> {
        self.links.iter().map(|(id, link)| (*id, link))
    }
}

impl Link {
    fn pipe(&mut self, to: End) -> &mut Pipe {
        match to {
            End::Near => &mut self.near,
            End::Far => &mut self.far,
        }
    }

    /// The next thing that has arrived at this end by now. `piece` cuts its bytes in two.
    pub fn take(&mut self, now: Tick, to: End, piece: usize) -> Option<Arrival> {
        let pipe = self.pipe(to);
        if pipe.packets.front()?.at > now {
            return None;
        }
        let packet = pipe.packets.pop_front()?;
        let Some(bytes) = packet.bytes else { return Some(Arrival::End) };
        let frame = pipe.decode(&bytes, piece % bytes.len());
        Some(Arrival::Frame { frame, connection: packet.connection, repeat: packet.repeat })
    }

    /// The next message on its way to this end, however late it would have come.
    pub fn take_early(&mut self, to: End) -> Option<Frame> {
        let pipe = self.pipe(to);
        pipe.packets.front()?.bytes.as_ref()?;
        let bytes = pipe.packets.pop_front()?.bytes?;
        Some(pipe.decode(&bytes, 0))
    }

    /// When each packet that waits at this end arrives.
    fn arrivals(&mut self, to: End) -> Vec<Tick> {
        self.pipe(to).packets.iter().map(|packet| packet.at).collect()
    }

    fn drop_some(&mut self, to: End, random: &mut Random) {
        let packets = &mut self.pipe(to).packets;
        let keep = random.below(packets.len() + 1);
        packets.truncate(keep);
    }

    fn drop_all(&mut self, to: End) {
        self.pipe(to).packets.clear();
    }

    pub fn is_silent(&self) -> bool {
        self.silent
    }

    /// Whoever is at this end is gone, and the other end does not see it.
    pub fn fall_silent(&mut self, end: End) {
        self.silent = true;
        self.drop_all(end);
    }
}

impl Pipe {
    fn decode(&mut self, bytes: &[u8], piece: usize) -> Frame {
        let (first, second) = bytes.split_at(piece);
        self.decoder.feed(first);
        assert_eq!(self.decoder.next_frame(), Ok(None), "half a frame is no frame");
        self.decoder.feed(second);
        let frame = self.decoder.next_frame().expect("what was encoded can be decoded");
        assert!(!self.decoder.is_partial(), "one message is one frame");
        frame.expect("a whole frame has arrived")
    }
}

impl Sim {
    /// Send encoded bytes.
    pub(crate) fn post(
        &mut self,
        id: LinkId,
        to: End,
        bytes: Vec<u8>,
        connection: Option<LinkId>,
        repeat: Repeat,
    ) {
        if self.links.get(id).is_some_and(|link| link.open && !link.silent) {
            self.put(id, to, Some(bytes), connection, repeat);
        }
    }

    fn put(
        &mut self,
        id: LinkId,
        to: End,
        bytes: Option<Vec<u8>>,
        connection: Option<LinkId>,
        repeat: Repeat,
    ) {
        let Some(link) = self.links.get_mut(id) else { return };
        let delay = link.delay.draw(&mut self.random);
        let pipe = link.pipe(to);
        let at = (self.now + delay).max(pipe.last);
        pipe.last = at;
        pipe.packets.push_back(Packet { at, repeat, connection, bytes });
        self.agenda.add(at, Event::Deliver { link: id, to });
    }

    /// An end that could not read before can now.
    pub(crate) fn start_reading(&mut self, id: LinkId, to: End) {
        let Some(link) = self.links.get_mut(id) else { return };
        for at in link.arrivals(to) {
            self.agenda.add(at.max(self.now), Event::Deliver { link: id, to });
        }
    }

    /// The link breaks in the middle (LK-2).
    pub(crate) fn break_link(&mut self, id: LinkId) {
        let Some(link) = self.links.get_mut(id).filter(|link| link.open) else { return };
        link.drop_some(End::Near, &mut self.random);
        link.drop_some(End::Far, &mut self.random);
        link.open = false;
        self.put(id, End::Near, None, None, Repeat::Never);
        self.put(id, End::Far, None, None, Repeat::Never);
    }

    /// The link breaks when the far end has heard what the near one had to say: no answer arrives.
    pub(crate) fn break_unanswered(&mut self, id: LinkId) {
        let Some(link) = self.links.get_mut(id).filter(|link| link.open) else { return };
        link.drop_all(End::Near);
        link.open = false;
        self.put(id, End::Near, None, None, Repeat::Never);
        self.put(id, End::Far, None, None, Repeat::Never);
    }

    /// One end is closed by its owner: what it sent still arrives, what was sent to it does not.
    pub(crate) fn close_end(&mut self, id: LinkId, closed: End) {
        let Some(link) = self.links.get_mut(id) else { return };
        let was_open = std::mem::replace(&mut link.open, false);
        link.drop_all(closed);
        if was_open {
            let other = if closed == End::Near { End::Far } else { End::Near };
            self.put(id, other, None, None, Repeat::Never);
        }
        self.links.leave(id, closed);
    }

    /// This end knows nothing of the link: nothing arrives any more, and the other end sees the end of it.
    pub(crate) fn reset_link(&mut self, id: LinkId, end: End) {
        if let Some(link) = self.links.get_mut(id) {
            link.drop_all(End::Near);
            link.drop_all(End::Far);
            link.open = true;
            self.close_end(id, end);
        }
    }

    pub(crate) fn links_of(&self, is_one: impl Fn(Kind) -> bool) -> Vec<LinkId> {
        self.links.iter().filter(|(_, link)| is_one(link.kind)).map(|(id, _)| id).collect()
    }

    /// Nothing gets through for a while, and nothing is lost.
    pub(crate) fn stall(&mut self, id: LinkId, until: Tick) {
        if let Some(link) = self.links.get_mut(id) {
            link.stalled_until = link.stalled_until.max(until);
        }
    }
}
