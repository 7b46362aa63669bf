//! Two starts of the head at a time, and a peer that goes back to the earlier one before it hears the later one's welcome.
//!
//! What goes wrong needs several things at once: an actor that lasts, a later head that hears of it from its owner or its
//! node, and the other of the two at one head for good. So in some runs a head is started from a copy of the journal, the
//! peers are divided between the two, and the first link of one peer to the later head breaks when that has heard its first
//! word (ON-1).
//!
//! Everything is drawn from a stream of its own: runs without it are what they were.

use crate::link::{Kind, LinkId};
use crate::random::Random;
use crate::world::{Event, Sim};
use std::collections::BTreeSet;
use std::time::Duration;

/// Share of runs that have it, among those without submitted programs and without changes of the timing.
const RIVALS_PERCENT: u64 = 35;

/// Clients do something this often at most: there must be time for the heads to give a node up.
const SLOW_PAUSE: Duration = Duration::from_millis(50);

/// The heads as the simulation numbers them.
const EARLIER_HEAD: usize = 0;
const LATER_HEAD: usize = 1;

/// Who has a link to a head.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Peer {
    Client(usize),
    Node(usize),
}

pub(crate) struct Rivals {
    random: Random,
    /// The pool that is the actor.
    actor: Option<usize>,
    /// The peers are divided: these look for the later head, the others for the earlier one.
    later: Option<BTreeSet<Peer>>,
    /// Its next link is to the later head, and breaks before it hears the welcome.
    turns_back: Option<Peer>,
}

impl Rivals {
    /// Returns what a seed has of it, if anything.
    pub fn of_seed(seed: u64) -> Option<Rivals> {
        let mut random = Random::new(seed ^ 0x13u64 << 56);
        let some = random.percent(RIVALS_PERCENT);
        some.then_some(Rivals { random, actor: None, later: None, turns_back: None })
    }
}

impl Sim {
    pub(crate) fn start_rivals(&mut self, rivals: Rivals) {
        self.rivals = Some(rivals);
        self.load.pause = self.load.pause.max(SLOW_PAUSE);
        self.after(Duration::from_millis(100), Event::RivalStarts);
    }

    /// A later head is there, and half of what belongs together goes to it.
    pub(crate) fn rival_starts(&mut self) {
        let Some(mut rivals) = self.rivals.take().filter(|_| self.plan.active) else { return };
        let (beat, lost) = (self.settings.node.heartbeat, self.settings.node.head_lost);
        let client_lost = self.settings.head.client_lost;
        let mut again = beat;
        (rivals.later, rivals.turns_back) = (None, None);
        match rivals.actor.filter(|actor| self.is_in_use(*actor)) {
            None => rivals.actor = self.open_somebodys_actor(&mut rivals.random),
            Some(actor) => {
                let node = self.host_of(actor).filter(|_| self.nodes.len() > 1);
                if let Some(node) = node.filter(|_| self.heads_alive() == [EARLIER_HEAD]) {
                    self.start_rival();
                    let (owner, host) = (Peer::Client(self.owner_of(actor)), Peer::Node(node));
                    let owner_turns_back = rivals.random.percent(50);
                    let (turns_back, goes) = if owner_turns_back { (owner, host) } else { (host, owner) };
                    // One node must be where the owner is, to have the actor built there.
                    let others = (0..self.nodes.len()).map(Peer::Node).filter(|peer| *peer != host);
                    let others = others.filter(|_| !owner_turns_back);
                    let later: BTreeSet<Peer> = others.chain([goes]).collect();
                    let moving: Vec<Peer> = later.iter().copied().chain([turns_back]).collect();
                    (rivals.later, rivals.turns_back) = (Some(later), Some(turns_back));
                    moving.into_iter().for_each(|peer| self.loses_its_head(peer, beat));
                    if !owner_turns_back {
                        // It does not hear when the earlier head ends what its lost client had.
                        let pause = rivals.random.span(beat * 2..client_lost.max(beat * 3));
                        self.after(pause, Event::RivalsNodeIsCutOff { node });
                    }
                    again = lost * 2 + client_lost.min(lost * 2) + beat * 8;
                }
            }
        }
        self.rivals = Some(rivals);
        self.after(again, Event::RivalStarts);
    }

    pub(crate) fn rivals_node_is_cut_off(&mut self, node: usize) {
        if self.plan.active {
            let lasts = self.settings.node.head_lost * 2;
            self.partition(node, self.now + lasts, false);
        }
    }

    /// Its link to the head breaks, and it soon looks for another.
    fn loses_its_head(&mut self, peer: Peer, beat: Duration) {
        self.note(|_| format!("{peer:?} is to look for another head"));
        let is_its = |kind: Kind| match peer {
            Peer::Client(client) => kind.is_of_client(client),
            Peer::Node(node) => kind.is_of_node(node) && kind.head().is_some(),
        };
        for link in self.links_of(|kind| is_its(kind) && kind.head().is_some()) {
            self.break_link(link);
        }
        self.looks_soon(peer, beat);
    }

    /// It looks for a head within a heartbeat, whether it has seen by then that it has none.
    fn looks_soon(&mut self, peer: Peer, beat: Duration) {
        for part in [8, 4, 2, 1] {
            let event = match peer {
                Peer::Client(client) => Event::ClientConnects { client },
                Peer::Node(node) => Event::NodeConnects { node },
            };
            self.after(beat / part, event);
        }
    }

    /// Returns the head that a peer finds that looks for one.
    pub(crate) fn head_for(&mut self, peer: Peer) -> Option<usize> {
        let both = self.heads_alive() == [EARLIER_HEAD, LATER_HEAD];
        let divided = self.rivals.as_ref().filter(|_| both && self.plan.active);
        let Some((rivals, later)) = divided.and_then(|rivals| Some((rivals, rivals.later.as_ref()?))) else {
            return self.some_head();
        };
        let goes = later.contains(&peer) || rivals.turns_back == Some(peer);
        Some(if goes { LATER_HEAD } else { EARLIER_HEAD })
    }

    /// A head has heard the first word of this peer. It may be the last one: the welcome does not arrive.
    pub(crate) fn first_word_was_heard(&mut self, head: usize, link: LinkId, peer: Peer) {
        let Some(rivals) = &mut self.rivals else { return };
        if head != LATER_HEAD || rivals.turns_back != Some(peer) {
            return;
        }
        rivals.turns_back = None;
        self.ledger.tally.turned_back += 1;
        self.note(|_| format!("{peer:?} does not hear the welcome of head {head}"));
        self.break_unanswered(link);
        self.looks_soon(peer, self.settings.node.heartbeat);
    }
}
