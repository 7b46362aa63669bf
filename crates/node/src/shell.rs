//! What surrounds the core: everything that effects act upon.

use crate::news::{Desk, News, Printed};
use crate::objects::Objects;
use crate::opening::{self, Openings};
use crate::places::{LinkPlace, NoPlace, Places};
use crate::relay;
use crate::report;
use crate::requests::Options;
use crate::service::on_news;
use crate::slots::Slots;
use crate::store;
use crate::zygote::Zygote;
use paceline_core::Tick;
use paceline_core::admission::unproved::RELAY_LIMITS;
use paceline_core::node::{Effect, Event, Node, Status, StoreOf};
use paceline_core::objects;
use paceline_net::clock;
use paceline_net::control::{self, Receiver, Sender};
use paceline_net::secure::{Secured, UnprovedLinks};
use paceline_proto::control::{HeadToClient, HeadToNode, Message, NodeToHead, SlotToNode, ZygoteToNode};
use paceline_proto::objects::FromStore;
use paceline_proto::open::{self, Kind};
use paceline_proto::question::NodeQuestion;
use paceline_proto::{
    Address, ClientId, Death, DeathCause, LeaseId, OutOfMemory, ProgramId, Seq, SlotId, Start, StartError,
    Way,
};
use rustix::net::SendFlags;
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, JoinSet};

/// Output is taken from slots only while fewer bytes than this wait for the head (NS-3).
const ENOUGH: usize = 256 << 10;
/// How long the zygote may take to end when the node does.
const ZYGOTE_LIMIT: Duration = Duration::from_millis(500);
/// How often clients that may have gone are looked for.
const TIDY_EVERY: Duration = Duration::from_millis(500);
/// How often zygotes are looked at while somebody needs them.
const LOOK_AT_ZYGOTES_EVERY: Duration = Duration::from_secs(1);
/// A client whose store is silent for about three of these has gone.
const HEARTBEAT: Duration = Duration::from_secs(2);
/// How long the last messages to the head may take then.
const FAREWELL: Duration = Duration::from_millis(300);

pub(crate) struct Shell {
    core: Node,
    options: Options,
    desk: Desk,
    head: Option<Head>,
    heads: u64,
    zygote: Option<Zygote>,
    /// Those of other programs than the client's own.
    programs: BTreeMap<ProgramId, Zygote>,
    /// Zygotes that were told to end.
    ending: JoinSet<()>,
    zygotes: u64,
    slots: Slots,
    openings: Openings,
    places: Places,
    /// Connections to the stores here, and to other nodes by way of this one, that have proved nothing yet.
    unproved: UnprovedLinks,
    /// The same, of those that are for other nodes.
    relayed: UnprovedLinks,
    objects: Objects,
    /// Connections whose fate the core decides in this step.
    connections: BTreeMap<u64, (OwnedFd, Way)>,
    offered: u64,
    wake: Option<Tick>,
    /// When to look at memory next, if somebody uses it.
    look_at: u64,
    /// When to look next at slots that have limits.
    look_at_limits: u64,
    /// When to look next whether zygotes stand still.
    look_at_zygotes: u64,
    /// When to look next for clients that have gone.
    tidy_at: Option<u64>,
    closed: bool,
}

struct Head {
    number: u64,
    sender: Sender<NodeToHead>,
    reader: JoinHandle<()>,
}

impl Drop for Head {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

impl Shell {
    pub(crate) fn new(options: Options, desk: Desk) -> Shell {
        // Where clients bring what they need, they have stores of their own, too.
        let objects = match &options.store {
            Some(_) => Objects::of_cluster(options.config.node, options.object_memory),
            None => Objects::new(options.config.node, options.object_memory),
        };
        Shell {
            core: Node::new(options.config.clone()),
            slots: Slots::new(desk.clone(), options.config.memory),
            places: Places::new(options.limits),
            options,
            openings: Openings::new(desk.clone()),
            unproved: UnprovedLinks::default(),
            relayed: UnprovedLinks::new(RELAY_LIMITS),
            objects,
            desk,
            head: None,
            heads: 0,
            zygote: None,
            programs: BTreeMap::new(),
            ending: JoinSet::new(),
            zygotes: 0,
            connections: BTreeMap::new(),
            offered: 0,
            wake: None,
            look_at: 0,
            look_at_limits: 0,
            look_at_zygotes: 0,
            tidy_at: None,
            closed: false,
        }
    }

    pub(crate) fn status(&self) -> (Status, objects::Status) {
        (self.core.status(), self.objects.status())
    }

    pub(crate) fn wake(&self) -> Option<u64> {
        self.wake.map(|at| at.0)
    }

    /// Tell each zygote when those of its slots have to have ended that must exist once.
    fn tell_deadlines(&self, slots: &[(SlotId, Tick)]) {
        for zygote in self.zygote.iter().chain(self.programs.values()) {
            let own = slots.iter().filter(|(slot, _)| self.slots.zygote_of(*slot) == Some(zygote.number));
            let own: Vec<(SlotId, u64)> = own.map(|(slot, at)| (*slot, at.0)).collect();
            if !own.is_empty() {
                zygote.kill_at(own);
            }
        }
    }

    /// When to look how full memory is. Never while no call can be running.
    pub(crate) fn memory_wake(&self) -> Option<u64> {
        (self.slots.watches_memory() && self.core.is_used()).then_some(self.look_at)
    }

    pub(crate) fn on_memory_wake(&mut self) {
        let found = self.slots.look_at_memory();
        let pause = found.as_ref().map_or(Duration::from_secs(1), |(reading, _)| reading.pause());
        self.look_at = clock::now() + pause.as_nanos() as u64;
        if let Some((reading, slots)) = found.filter(|(reading, _)| reading.nearly_full()) {
            self.step(Event::Memory { used: reading.used, limit: reading.limit, slots });
        }
    }

    /// When to look at slots that may have only so much. Never if there is none.
    pub(crate) fn limits_wake(&self) -> Option<u64> {
        self.core.limits().next().map(|_| self.look_at_limits)
    }

    pub(crate) fn on_limits_wake(&mut self) {
        let (sizes, pause) = self.slots.look_at_limits(self.core.limits());
        self.look_at_limits = clock::now() + pause.as_nanos() as u64;
        self.step(Event::Sizes(sizes));
    }

    /// When to look whether zygotes stand still. Never while nobody needs them.
    pub(crate) fn zygotes_wake(&self) -> Option<u64> {
        self.core.needs_zygotes().then_some(self.look_at_zygotes)
    }

    pub(crate) fn on_zygotes_wake(&mut self) {
        self.look_at_zygotes = clock::now() + LOOK_AT_ZYGOTES_EVERY.as_nanos() as u64;
        let own = self.zygote.iter().map(|zygote| (ProgramId::OWN, zygote));
        let others = self.programs.iter().map(|(&program, zygote)| (program, zygote));
        let stopped = own.chain(others).filter(|(_, zygote)| zygote.stands_still());
        self.step(Event::ZygotesStopped(stopped.map(|(program, _)| program).collect()));
    }

    /// Whether the core has nothing more to wait for.
    pub(crate) fn has_lost_head(&self) -> bool {
        self.core.has_lost_head()
    }

    pub(crate) fn closed(&self) -> bool {
        self.closed
    }

    pub(crate) fn takes_output(&self) -> bool {
        self.head.as_ref().is_none_or(|head| head.sender.queued() < ENOUGH)
    }

    /// Wait until the head has taken enough for more output.
    pub(crate) fn head_drained(&self) -> impl Future<Output = ()> + use<> {
        let sender = self.head.as_ref().map(|head| head.sender.clone());
        async move {
            if let Some(sender) = sender {
                sender.drained_to(ENOUGH - 1).await;
            }
        }
    }

    pub(crate) fn on_head_connection(&mut self, connection: Secured) {
        if self.head.take().is_some() {
            self.step(Event::HeadDown);
        }
        match control::channel(connection) {
            Ok((sender, receiver)) => {
                self.heads += 1;
                let reader = tokio::spawn(listen(self.heads, receiver, self.desk.clone()));
                self.head = Some(Head { number: self.heads, sender, reader });
                self.step(Event::HeadUp);
            }
            Err(error) => {
                tracing::error!(%error, "the link to the head could not be watched");
                (self.options.headless)();
            }
        }
    }

    pub(crate) fn on_objects(&mut self, connection: Secured, place: Option<LinkPlace>) {
        self.objects.on_link(connection, place);
    }

    /// A place for a link that a slot opens.
    fn place_of(&self, slot: SlotId) -> Result<LinkPlace, NoPlace> {
        self.places.of_slot(slot, self.core.client_of(slot).unwrap_or_default())
    }

    pub(crate) fn on_offer(&mut self, connection: OwnedFd) {
        self.openings.on_offer(connection, None);
    }

    /// A data connection has said which lease it is for.
    pub(crate) fn on_opened(&mut self, connection: OwnedFd, lease: LeaseId, way: Way) {
        self.offered += 1;
        self.connections.insert(self.offered, (connection, way));
        self.step(Event::Connection { connection: self.offered, lease, way });
    }

    /// A connection to the store has said which lease it is for.
    pub(crate) fn on_store(&mut self, connection: OwnedFd, lease: LeaseId, way: Way) {
        let of = match (self.core.store_of(lease), self.objects.pass(lease)) {
            (StoreOf::Nobody, Some((client, secret))) => StoreOf::Here { client, secret },
            (of, _) => of,
        };
        match (of, &self.options.store) {
            (StoreOf::Here { client, secret }, Some(store)) => {
                let desk = self.desk.clone();
                let places = self.places.clone();
                let link_place = match way.is_sealed() {
                    true => places.check_store(client).map(|()| None),
                    false => places.of_store(client).map(Some),
                };
                let link_place = match link_place {
                    Ok(place) => place,
                    Err(why) => return refuse_store((connection, way), client, &why),
                };
                // PL-3.
                let proved = move || link_place.map_or_else(|| places.of_store(client), Ok);
                let proof = match way.is_sealed().then(|| self.unproved.admit(&connection, lease)) {
                    Some(Ok(place)) => Some((secret, place)),
                    Some(Err(error)) => return not_admitted(&error),
                    None => None,
                };
                let shelf = self.objects.shelf();
                store.serve(connection, client, proof, shelf, proved, move || {
                    let _ = desk.tell(News::StoreLeft);
                });
            }
            (StoreOf::There(addresses), _) => {
                pass_on(&self.relayed, connection, Kind::Store, lease, addresses);
            }
            (StoreOf::Here { .. }, None) | (StoreOf::Nobody, _) => opening::refuse_lease((connection, way)),
        }
    }

    /// A connection between the store of objects and that of a client has said which lease it is for.
    pub(crate) fn on_owner(&mut self, connection: OwnedFd, lease: LeaseId, way: Way) {
        let of = self.core.store_of(lease);
        match of {
            StoreOf::Here { client, .. } if !way.is_sealed() => match self.places.of_store(client) {
                Ok(place) => self.objects.on_owner(connection.into(), client, Some(place)),
                Err(why) => refuse_store((connection, way), client, &why),
            },
            StoreOf::Here { client, secret } => {
                let places = self.places.clone();
                if let Err(why) = places.check_store(client) {
                    return refuse_store((connection, way), client, &why);
                }
                let place = match self.unproved.admit(&connection, lease) {
                    Ok(place) => place,
                    Err(error) => return not_admitted(&error),
                };
                let desk = self.desk.clone();
                let proved = move || {
                    let secured = store::answer(connection, Some((secret, place)))?;
                    // PL-3.
                    Ok((secured, places.of_store(client).map_err(io::Error::other)?))
                };
                tokio::task::spawn_blocking(move || match proved() {
                    Ok((secured, link_place)) => {
                        let _ = paceline_net::tcp::notice_silence(&secured.socket, HEARTBEAT);
                        let _ = desk.tell(News::Owner(secured, client, Some(link_place)));
                    }
                    Err::<_, io::Error>(error) => {
                        tracing::info!(%error, %client, "the store of a client was not let in")
                    }
                });
            }
            StoreOf::There(addresses) => {
                pass_on(&self.relayed, connection, Kind::Objects, lease, addresses);
            }
            StoreOf::Nobody => opening::refuse_lease((connection, way)),
        }
    }

    /// When to look for clients that have gone. Never while all of them are there.
    pub(crate) fn store_wake(&self) -> Option<u64> {
        self.tidy_at
    }

    pub(crate) fn on_store_wake(&mut self) {
        let Some(store) = self.options.store.clone() else { return };
        for client in store.tidy(|client| self.core.serves(client)) {
            self.step(Event::ClientLeft(client));
        }
        self.tidy_at = store.has_orphans().then(|| clock::now() + TIDY_EVERY.as_nanos() as u64);
    }

    pub(crate) fn on_alarm(&mut self) {
        self.wake = None;
        self.step(Event::Tick);
    }

    pub(crate) fn on_printed(&mut self, Printed { slot, stream, text }: Printed) {
        self.step(Event::Output { slot, stream, text });
    }

    pub(crate) fn on_news(&mut self, news: News) {
        match news {
            News::Head(number, message) => self.on_head(number, message),
            News::Answered(number, text) => self.say(&NodeToHead::Answer { number, text }),
            News::Zygote(number, message) => self.on_zygote(number, message),
            News::ZygoteGone(number, wrong) => self.on_zygote_gone(number, wrong),
            News::Slot(slot, message, descriptors, _permit) => {
                self.see_to(slot, &message, descriptors);
                self.step(Event::FromSlot(slot, message));
            }
            News::Gone(slot, cause) => {
                if let Some(death) = self.slots.death(slot, cause) {
                    let calls = self.slots.guest_calls(slot);
                    self.step(Event::GuestCalls { slot, calls });
                    self.step(Event::Exited { slot, death });
                }
            }
            News::StoreLeft => self.tidy_at = Some(clock::now()),
            News::Owner(connection, client, place) => self.objects.on_owner(connection, client, place),
            News::Opened(connection, lease) => self.on_opened(connection, lease, Way::Unix),
        }
    }

    /// What of a slot's message concerns processes and descriptors.
    fn see_to(&mut self, slot: SlotId, message: &SlotToNode, descriptors: Vec<OwnedFd>) {
        match message {
            // A slot may be faster than the zygote that forked it. Later it runs code of the user's, which may lie.
            SlotToNode::Ready { slot: named, pid } => {
                if *named == slot && self.slots.is_unborn(slot) {
                    self.slots.on_forked(slot, *pid);
                }
            }
            SlotToNode::Nest => descriptors.into_iter().for_each(|link| match self.place_of(slot) {
                Ok(place) => (self.options.uplink)(link, place),
                Err(why) => refuse_link(slot, &link, &why, &HeadToClient::Refused { why: why.to_string() }),
            }),
            SlotToNode::Connect => descriptors.into_iter().for_each(|data| match self.place_of(slot) {
                Ok(place) => self.openings.on_offer(data, Some(place)),
                // Its end says as much.
                Err(why) => tracing::warn!(%slot, %why, "data connection of a slot refused"),
            }),
            SlotToNode::Objects => descriptors.into_iter().for_each(|link| match self.place_of(slot) {
                Ok(place) => self.on_objects(link.into(), Some(place)),
                Err(why) => refuse_link(slot, &link, &why, &FromStore::Refused { why: why.to_string() }),
            }),
            SlotToNode::Detached { .. } | SlotToNode::Blocked { .. } | SlotToNode::Waits { .. } => {}
        }
    }

    fn on_head(&mut self, number: u64, message: Option<HeadToNode>) {
        if self.head.as_ref().is_none_or(|head| head.number != number) {
            return;
        }
        match message {
            Some(HeadToNode::Ask { number, question }) => {
                self.answer(number, question);
            }
            Some(message) => self.step(Event::FromHead(message)),
            None => {
                self.head = None;
                self.step(Event::HeadDown);
                (self.options.headless)();
            }
        }
    }

    fn answer(&mut self, number: u64, question: NodeQuestion) {
        let text = match (question, self.options.answers.clone()) {
            (NodeQuestion::Status, answers) => {
                let about = answers.and_then(|answers| answers(&NodeQuestion::Status).ok());
                Ok(report::status(&self.core.status(), self.objects.status(), about.as_deref()))
            }
            (NodeQuestion::Logs { .. } | NodeQuestion::CleanLogs | NodeQuestion::ProgramLog { .. }, None) => {
                Err("this node keeps no logs".into())
            }
            // The disk of the logs may hang, and the head must hear of this node meanwhile.
            (question, Some(answers)) => {
                let desk = self.desk.clone();
                tokio::task::spawn_blocking(move || {
                    let _ = desk.tell(News::Answered(number, answers(&question)));
                });
                return;
            }
        };
        self.say(&NodeToHead::Answer { number, text });
    }

    fn on_zygote(&mut self, number: u64, message: ZygoteToNode) {
        match message {
            ZygoteToNode::Hello => {
                if let Some(zygote) = self.zygote.as_mut().filter(|zygote| zygote.number == number) {
                    zygote.on_hello();
                }
                let mut programs = self.programs.iter_mut();
                if let Some((&program, zygote)) = programs.find(|(_, zygote)| zygote.number == number) {
                    zygote.on_hello();
                    self.step(Event::ProgramUp(program));
                }
            }
            ZygoteToNode::Forked { slot, pid } => {
                self.slots.on_forked(slot, pid);
                self.step(Event::Forked { slot, pid });
            }
            ZygoteToNode::Exited { slot, cause, peak, .. } => self.slots.on_exited(slot, cause, peak),
            ZygoteToNode::Stopped { slot, signal } => {
                let ends_at = self.slots.call_ends_at(slot).map(Tick);
                self.step(Event::Stopped { slot, signal, ends_at });
            }
            ZygoteToNode::Continued { slot } => self.step(Event::Continued { slot }),
        }
    }

    fn on_zygote_gone(&mut self, number: u64, wrong: Option<String>) {
        if let Some(zygote) = self.zygote.take_if(|zygote| zygote.number == number) {
            tracing::warn!("the zygote died");
            zygote.bury();
            self.slots.on_zygote_died(number);
            return self.step(Event::ZygoteDied);
        }
        let found = self.programs.iter().find(|(_, zygote)| zygote.number == number);
        let Some(program) = found.map(|(&program, _)| program) else { return };
        let zygote = self.programs.remove(&program).expect("found just now");
        let words = zygote.words();
        let cause = zygote.bury();
        tracing::warn!(?cause, "the zygote of another program died");
        self.slots.on_zygote_died(number);
        let why = match wrong {
            Some(reason) => StartError::Foreign { reason, words },
            None => StartError::Ended { cause, words },
        };
        self.step(Event::ProgramDown(program, why));
    }

    /// Hand an event to the core and do what it says, which may bring about further events.
    pub(crate) fn step(&mut self, event: Event) {
        let mut events = VecDeque::from([event]);
        let mut effects = Vec::new();
        while let Some(event) = events.pop_front() {
            self.core.handle(Tick(clock::now()), event, &mut effects);
            for effect in effects.drain(..) {
                events.extend(self.perform(effect));
            }
        }
        // Whatever was not taken by a slot has nobody.
        self.connections.clear();
    }

    fn perform(&mut self, effect: Effect) -> Option<Event> {
        match effect {
            Effect::ToHead(message) => self.say(&self.with_words(message)),
            Effect::DropHead => {
                tracing::warn!("the head is silent or was replaced: looking for it again");
                self.head = None;
                (self.options.headless)();
            }
            Effect::StartZygote => return Some(self.start_zygote()),
            Effect::StartProgram { program, start } => return self.start_program(program, &start),
            Effect::EndProgram { program } => {
                if let Some(zygote) = self.programs.remove(&program) {
                    self.ending.spawn(zygote.end(ZYGOTE_LIMIT));
                }
            }
            Effect::KillZygote { program } => {
                let zygote =
                    if program.is_own() { self.zygote.as_ref() } else { self.programs.get(&program) };
                if let Some(zygote) = zygote {
                    tracing::warn!("a zygote was stopped and stands still: it is killed");
                    zygote.kill();
                }
            }
            Effect::Fork { slot, program } => return self.fork(slot, program),
            Effect::ToSlot { slot, message, connection } => {
                let connection = connection.and_then(|number| self.connections.remove(&number));
                let descriptor = connection.map(|(connection, _)| connection);
                self.slots.send(slot, &message, descriptor.into_iter().collect());
            }
            Effect::Kill { slot } => self.slots.kill(slot),
            Effect::KillAt { slots } => self.tell_deadlines(&slots),
            Effect::EndForMemory { slot, limit } => self.slots.end_for_memory(slot, limit),
            Effect::EndStopped { slot, signal, timed_out } => {
                self.slots.end_stopped(
                    slot,
                    if timed_out { DeathCause::TimedOut } else { DeathCause::Stopped(signal) },
                );
            }
            Effect::Exceeded { slot, used, limit } => self.slots.end_for_limit(slot, used, limit),
            Effect::Confine { slot, limit } => self.slots.confine(slot, limit),
            Effect::Relay { connection, lease, addresses } => {
                if let Some((client, _)) = self.connections.remove(&connection) {
                    match self.relayed.admit(&client, lease) {
                        Ok(place) => relay::pass_on(client, Kind::Relayed, lease, addresses, place),
                        Err(error) => not_admitted(&error),
                    }
                }
            }
            Effect::Refuse { connection } => {
                self.connections.remove(&connection).into_iter().for_each(opening::refuse_lease);
            }
            Effect::ForgetSlot { slot } => self.slots.forget(slot),
            Effect::Terminate { slot } => self.slots.terminate(slot),
            Effect::Printed { name, text, .. } => {
                if let Some(printed) = &self.options.printed {
                    printed(&name, &text);
                }
            }
            Effect::Stray { slot, text } => {
                tracing::warn!(%slot, text = %String::from_utf8_lossy(&text), "a slot that is nobody's printed something");
            }
            Effect::Closed => self.closed = true,
            Effect::WakeAt(at) => self.wake = Some(at),
        }
        None
    }

    fn say(&self, message: &NodeToHead) {
        if let Some(head) = &self.head {
            head.sender.send(message, Vec::new());
        }
    }

    fn start_zygote(&mut self) -> Event {
        self.zygotes += 1;
        match Zygote::start(self.zygotes, &self.options, &self.desk) {
            Ok(zygote) => {
                self.zygote = Some(zygote);
                Event::ZygoteUp
            }
            Err(error) => {
                tracing::error!(%error, command = ?self.options.command, "the zygote could not be started");
                Event::ZygoteDied
            }
        }
    }

    fn start_program(&mut self, program: ProgramId, start: &Start) -> Option<Event> {
        self.zygotes += 1;
        let mut start = start.clone();
        if start.command.is_empty() {
            // The client's own, with other variables.
            start.command.clone_from(&self.options.command);
            start.variables.splice(0..0, self.options.variables.iter().cloned());
        }
        match Zygote::start_program(self.zygotes, &start, self.options.descent.as_ref(), &self.desk) {
            Ok(zygote) => {
                self.programs.insert(program, zygote);
                None
            }
            Err(error) => Some(Event::ProgramDown(program, StartError::NotRun { reason: error.to_string() })),
        }
    }

    /// The core cannot know what a program has printed.
    fn with_words(&self, message: NodeToHead) -> NodeToHead {
        match message {
            NodeToHead::ProgramFailed { program, why: StartError::Silent { after, .. } } => {
                let words = self.programs.get(&program).map(Zygote::words).unwrap_or_default();
                NodeToHead::ProgramFailed { program, why: StartError::Silent { after, words } }
            }
            message => message,
        }
    }

    fn fork(&mut self, slot: SlotId, program: ProgramId) -> Option<Event> {
        let zygote = if program.is_own() { self.zygote.as_ref() } else { self.programs.get(&program) };
        let zygote = zygote.ok_or(io::ErrorKind::NotConnected.into());
        let error = zygote.and_then(|zygote| self.slots.fork(slot, zygote)).err()?;
        // For want of descriptors, most likely. It counts as a death, so that it is not tried again at once for ever.
        tracing::error!(%error, "a slot could not be made");
        let cause = DeathCause::Exit(error.raw_os_error().unwrap_or(-1));
        let death = Death { cause, out_of_memory: OutOfMemory::No, running: None, finished: Seq(0) };
        Some(Event::Exited { slot, death })
    }

    /// The last of the node: the zygote goes, and with it whatever is left of slots; the head hears the rest.
    pub(crate) async fn end(
        mut self,
        news: &mut mpsc::UnboundedReceiver<News>,
        printed: &mut mpsc::Receiver<Printed>,
    ) {
        for zygote in self.zygote.take().into_iter().chain(std::mem::take(&mut self.programs).into_values()) {
            self.ending.spawn(zygote.end(ZYGOTE_LIMIT));
        }
        while self.ending.join_next().await.is_some() {}
        if let Some(store) = self.options.store.take() {
            // No slot is left that could be in the way.
            let _ = tokio::task::spawn_blocking(move || store.close()).await;
        }
        while let Ok(news) = news.try_recv() {
            on_news(&mut self, news, printed);
        }
        while let Ok(printed) = printed.try_recv() {
            self.on_printed(printed);
        }
        if let Some(head) = &self.head {
            let _ = tokio::time::timeout(FAREWELL, head.sender.drained_to(0)).await;
        }
    }
}

async fn listen(number: u64, mut receiver: Receiver<HeadToNode>, desk: Desk) {
    loop {
        let message = receiver.next().await.unwrap_or_default().map(|(message, _)| message);
        let last = message.is_none();
        if !desk.tell(News::Head(number, message)) || last {
            return;
        }
    }
}

/// Have another node take a connection that is for a lease there.
fn pass_on(unproved: &UnprovedLinks, connection: OwnedFd, kind: Kind, lease: LeaseId, addresses: &[Address]) {
    // Over a unix socket it would be taken for one that is not sealed.
    let far = addresses.iter().filter(|address| !address.is_unix()).cloned().collect();
    match unproved.admit(&connection, lease) {
        Ok(place) => relay::pass_on(connection, kind, lease, far, place),
        Err(error) => not_admitted(&error),
    }
}

fn not_admitted(error: &io::Error) {
    // Not a warning: whoever sends many would fill the log.
    tracing::debug!(%error, "a connection that has proved nothing was closed");
}

/// Tells a slot why it does not get a link, if that can be told at once.
fn refuse_link(slot: SlotId, link: &OwnedFd, why: &NoPlace, message: &impl Message) {
    tracing::warn!(%slot, %why, "link of a slot refused");
    let mut bytes = Vec::new();
    if message.encode(&mut bytes).is_ok() {
        let _ = rustix::net::send(link, &bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
    }
}

/// There is no place for another link of this client to a store here.
fn refuse_store((connection, way): (OwnedFd, Way), client: ClientId, why: &NoPlace) {
    tracing::warn!(%client, %why, "link to a store refused");
    opening::refuse(connection, way, open::Answer::Busy);
}
