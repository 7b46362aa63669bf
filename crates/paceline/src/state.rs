//! What a session's lock guards: the machine, and the links that carry out what it decides.
//!
//! * ST-1: effects are carried out in order, under the lock, and none of them blocks or runs user code.
//! * ST-2: what a slot sent before its death is handed in before the death is.
//!
//! Opening connections, also again, is in [`crate::connecting`].

use crate::actors::Askers;
use crate::aside::{Aside, Excess};
use crate::cell::Ticket;
use crate::connecting::Connecting;
use crate::host::Host;
use crate::notify::{Notice, Notifier};
use crate::room::{Parked, Warn};
use crate::session::Shared;
use crate::unclaimed;
use paceline_core::Tick;
use paceline_core::client::{Client, Effect, Event, LeaseKey, Outcome};
use paceline_net::kept::Kept;
use paceline_net::secure::Secured;
use paceline_net::spin::{Looked, Spinner};
use paceline_net::{Link, Received, clock};
use paceline_proto::control::{ClientToHead, HeadToClient, Stream};
use paceline_proto::data::{FromSlot, ToSlot};
use paceline_proto::limits;
use paceline_proto::question::{Answer, ClientQuestion, Question};
use paceline_proto::{Address, LeaseId, NodeId, SlotId};
use rustix::event::epoll::{self, EventData, EventFlags};
use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::{Arc, Weak, mpsc};
use std::time::Duration;

/// Send calls that could wait for company once there are this many of them.
const BATCH_CALLS: usize = 64;
/// Or once they have this many bytes together.
const BATCH_BYTES: usize = 16 << 10;

/// Read on only after so many bytes of results went to disk.
const ROUND: usize = 4 << 20;

/// Prints what user code printed in a slot.
pub type Print = Arc<dyn Fn(SlotId, Stream, Vec<u8>) + Send + Sync>;

pub(crate) struct State {
    pub core: Client<Ticket>,
    pub host: Box<dyn Host>,
    /// The link to the head, while there is one.
    pub control: Option<Link>,
    /// By lease key, which are small numbers used again.
    pub links: Vec<Option<Data>>,
    pub by_lease: HashMap<LeaseId, LeaseKey>,
    pub connecting: Connecting,
    /// The session that this is the state of.
    pub session: Weak<Shared>,
    /// All data links, for whoever waits for them.
    pub epoll: Arc<Kept>,
    notifier: Arc<Notifier>,
    print: Print,
    /// Tells the user something in one line.
    pub warn: Warn,
    /// Links with calls that wait for company.
    unsent: Vec<LeaseKey>,
    /// Who waits for a word of actors.
    pub actors: Askers,
    /// Questions to the head that wait for their answers.
    pub asking: HashMap<u64, mpsc::Sender<Answer>>,
    /// What nodes are called, as far as the head has said.
    pub names: HashMap<NodeId, String>,
    /// What the only node is called, if the cluster is inside of this process.
    pub own_name: String,
    /// By which name or address others reach them.
    pub hosts: HashMap<NodeId, String>,
    asked: u64,
    /// The head has said the last that there is to say.
    pub over: bool,
    /// The cluster has ended, and with it everything that was pending here.
    pub gone: bool,
    /// Tasks that have ended.
    pub ended: usize,
    /// Tasks for which there was no room yet, in the order they came.
    pub parked: VecDeque<Parked>,
    aside: Arc<Aside>,
    /// Large results that are too much for memory.
    excess: Excess,
    /// When the machine wants a tick.
    pub wake_at: Option<Tick>,
    effects: Vec<Effect<Ticket>>,
    messages: Vec<ToSlot>,
}

pub(crate) struct Data {
    pub link: Link,
    pub lease: LeaseId,
    pub spinner: Spinner,
    /// Whether the epoll set watches for room to write.
    pub watches_write: bool,
    /// What was sent over it may still be on its way when the death of its slot is known.
    pub far: bool,
    pub since: Tick,
    pub node: NodeId,
    /// How much of what was sent has arrived, and since when it is no more.
    pub arrived: (u64, Tick),
    /// How many attempts had failed in a row before it was here.
    pub failed: u32,
}

pub(crate) fn tick() -> Tick {
    Tick(clock::now())
}

impl State {
    pub fn new(
        core: Client<Ticket>,
        host: Box<dyn Host>,
        control: Secured,
        epoll: Arc<Kept>,
        notifier: Arc<Notifier>,
        print: Print,
        aside: Arc<Aside>,
    ) -> State {
        State {
            core,
            host,
            control: Some(Link::new(control)),
            links: Vec::new(),
            by_lease: HashMap::new(),
            connecting: Connecting::default(),
            session: Weak::new(),
            epoll,
            notifier,
            print,
            warn: Arc::new(|_| ()),
            unsent: Vec::new(),
            actors: Askers::default(),
            asking: HashMap::new(),
            names: HashMap::new(),
            own_name: String::new(),
            hosts: HashMap::new(),
            asked: 0,
            over: false,
            gone: false,
            ended: 0,
            parked: VecDeque::new(),
            aside,
            excess: Excess::default(),
            wake_at: None,
            effects: Vec::new(),
            messages: Vec::new(),
        }
    }

    /// Let the machine do something and carry out what it says.
    pub fn act<R>(&mut self, step: impl FnOnce(&mut Client<Ticket>, &mut Vec<Effect<Ticket>>) -> R) -> R {
        let result = self.run(step);
        if !self.parked.is_empty() {
            self.let_in();
        }
        result
    }

    pub(crate) fn run<R>(
        &mut self,
        step: impl FnOnce(&mut Client<Ticket>, &mut Vec<Effect<Ticket>>) -> R,
    ) -> R {
        let mut effects = std::mem::take(&mut self.effects);
        let result = step(&mut self.core, &mut effects);
        // Carrying out an effect may lead to more.
        while !effects.is_empty() {
            let mut batch = std::mem::take(&mut effects);
            for effect in batch.drain(..) {
                self.perform(effect, &mut effects);
            }
            if effects.is_empty() {
                effects = batch;
            }
        }
        self.effects = effects;
        result
    }

    pub fn handle(&mut self, event: Event) {
        let now = tick();
        self.act(|core, effects| core.handle(now, event, effects));
    }

    fn perform(&mut self, effect: Effect<Ticket>, more: &mut Vec<Effect<Ticket>>) {
        match effect {
            Effect::ToHead(message) => self.say(&message),
            Effect::DropHead => self.drop_head(),
            Effect::Open { key, lease, node, secret } => self.open(key, lease, node, secret, more),
            Effect::Close { key } => self.close_link(key),
            Effect::Abandoned { lease, node } => {
                tracing::warn!(
                    ?lease,
                    ?node,
                    "lease abandoned: neither its slot nor the head can be reached"
                );
            }
            Effect::Send { key, now } => self.send(key, now),
            Effect::Finished { ticket, task: _, outcome } => {
                self.ended += 1;
                let outcome = unclaimed::pinned(outcome, &self.session);
                let stored = self.aside.store(outcome, &mut self.excess);
                ticket.complete(stored, &self.notifier);
            }
            Effect::Unclaimed { value } => drop(unclaimed::pinned(Outcome::Value(value), &self.session)),
            Effect::Started { ticket } => ticket.started(),
            Effect::WakeAt(at) => self.wake_at = Some(self.wake_at.map_or(at, |wake| wake.min(at))),
            Effect::Waits { tasks, requests, why } => self.say_what_is_waited_for(tasks, requests, &why),
        }
    }

    /// By the callback thread: whoever holds the lock must not meet the user's code.
    fn say_what_is_waited_for(&self, tasks: usize, requests: usize, why: &str) {
        let tasks = if tasks == 1 { "1 task waits".to_owned() } else { format!("{tasks} tasks wait") };
        let tasks = match requests {
            1 => tasks,
            _ => format!("{tasks} in {requests} queues, the first"),
        };
        let text = format!("{tasks} for {why} (hint: wait= bounds how long a task waits for room)");
        let warn = self.warn.clone();
        self.notifier.push(Box::new(move || warn(&text)));
    }

    pub fn say(&mut self, message: &ClientToHead) {
        if let Err(error) = limits::check_to_head(message) {
            let (warn, text) = (self.warn.clone(), format!("the head was not told something: {error}"));
            return self.notifier.push(Box::new(move || warn(&text)));
        }
        // A head that is gone is noticed by reading from it, and told everything when it is back.
        if let Some(control) = &mut self.control {
            let _ = message.encode(control.out());
            let _ = control.flush();
        }
    }

    fn link(&mut self, key: LeaseKey) -> Option<&mut Data> {
        self.links.get_mut(key.0)?.as_mut()
    }

    fn send(&mut self, key: LeaseKey, now: bool) {
        let (calls, bytes) = self.core.outgoing_size(key);
        if now || calls >= BATCH_CALLS || bytes >= BATCH_BYTES {
            self.flush(key);
        } else if !self.unsent.contains(&key) {
            self.unsent.push(key);
        }
    }

    /// Send what waits for company.
    pub fn flush_all(&mut self) {
        while let Some(key) = self.unsent.pop() {
            self.flush(key);
        }
    }

    /// Whether results wait to be written to disk.
    pub fn has_excess(&self) -> bool {
        !self.excess.is_empty()
    }

    /// What is to be written to disk, for a thread that is about to release the lock.
    pub fn take_excess(&mut self) -> Excess {
        std::mem::take(&mut self.excess)
    }

    pub fn notifier(&self) -> &Notifier {
        &self.notifier
    }

    pub fn has_unsent(&self) -> bool {
        !self.unsent.is_empty()
    }

    fn flush(&mut self, key: LeaseKey) {
        let Some(data) = self.links.get_mut(key.0).and_then(Option::as_mut) else { return };
        // Of what runs at most once it matters whether it can have begun. What waits in the link from before is another
        // matter: some of it may have gone.
        let once = self.core.last_sent_once(key).filter(|_| data.link.pending() == 0);
        let refuses = once.is_some() && data.link.refuses();
        self.core.outgoing(key, &mut self.messages);
        for message in self.messages.drain(..) {
            data.link.make_room(message.payload_bytes());
            put(&message, &mut data.link);
        }
        data.write(&self.epoll, key);
        if let Some(last) = once
            && (refuses || data.link.has_refused())
        {
            self.core.unsend(key, last);
        }
    }

    /// Return memory that nobody here looks at any more, over a link that has nothing else to carry.
    pub fn say_what_is_due(&mut self, key: LeaseKey) {
        let epoll = self.epoll.clone();
        if let Some(data) = self.link(key).filter(|data| data.link.pending() > 0) {
            data.write(&epoll, key);
        }
    }

    /// The data link of a lease is ready: read, hand in what came, write what waits. Once much has come that must go to
    /// disk, the rest is left for the next round.
    pub fn on_ready(&mut self, key: LeaseKey) {
        self.read(key, ROUND);
    }

    pub(crate) fn read(&mut self, key: LeaseKey, most_excess: usize) {
        while self.excess.bytes() < most_excess {
            let Some(data) = self.link(key) else { return };
            let received = data.link.receive();
            let healthy = self.take_frames(key);
            match received {
                Ok(Received::More) if healthy => {}
                Ok(Received::All | Received::Nothing) if healthy => break,
                // If the slot has ended, the head says so; else the link alone broke.
                _ => return self.stop_reading(key),
            }
        }
        let epoll = self.epoll.clone();
        if let Some(data) = self.link(key)
            && data.watches_write
        {
            data.write(&epoll, key);
        }
    }

    fn take_frames(&mut self, key: LeaseKey) -> bool {
        while let Some(data) = self.link(key) {
            match data.link.next_message::<FromSlot>() {
                Ok(Some(message)) => self.handle(Event::FromSlot(key, message)),
                Ok(None) => break,
                Err(_) => return false,
            }
        }
        true
    }

    /// The head has something to say. False: it is gone.
    pub fn on_control(&mut self) -> bool {
        let Some(control) = &mut self.control else { return false };
        let received = control.receive();
        loop {
            let frame = self.control.as_mut().map(Link::next_frame);
            match frame {
                Some(Ok(Some(frame))) => match HeadToClient::decode(&frame) {
                    Ok(message) => self.on_head(message),
                    Err(_) => return false,
                },
                Some(Ok(None)) => break,
                Some(Err(_)) | None => return false,
            }
        }
        let Some(control) = &mut self.control else { return false };
        let _ = control.flush();
        matches!(received, Ok(Received::All | Received::More | Received::Nothing))
    }

    /// Ask the head something; the answer comes to the receiver, or its end.
    pub fn ask(&mut self, question: Question) -> mpsc::Receiver<Answer> {
        let (sender, receiver) = mpsc::channel();
        if self.control.is_some() {
            self.asked += 1;
            self.asking.insert(self.asked, sender);
            self.say(&ClientToHead::Ask { number: self.asked, question });
        }
        receiver
    }

    fn on_head(&mut self, message: HeadToClient) {
        self.host.on_head(&message);
        if let HeadToClient::NodeAt { node, name, addresses } = &message {
            self.names.insert(*node, name.clone());
            let hosts = addresses.iter().filter_map(|address| match address {
                Address::Tcp { host, .. } => Some(host.clone()),
                Address::Unix(_) => None,
            });
            self.hosts.extend(hosts.take(1).map(|host| (*node, host)));
        }
        match message {
            HeadToClient::Output { slot, stream, text } => {
                let print = self.print.clone();
                let notice: Notice = Box::new(move || print(slot, stream, text));
                self.notifier.push(notice);
            }
            HeadToClient::Answer { number, text } => {
                if let Some(asker) = self.asking.remove(&number) {
                    let _ = asker.send(text);
                }
            }
            HeadToClient::Ask { number, question: ClientQuestion::Task { task } } => {
                let text = self.explain(task).map(|told| told.to_string());
                let text = text.and_then(|text| match text.len() <= limits::LONGEST_ANSWER {
                    true => Ok(text),
                    false => Err(format!("there are {} bytes to say, which is too much", text.len())),
                });
                self.say(&ClientToHead::Answer { number, text });
            }
            HeadToClient::Found { number, actor, about, comes, gone } => {
                self.actors.on_found(number, (actor.map(|actor| (actor, about)), comes, gone));
            }
            HeadToClient::ActorKnown { actor, ref refused } => {
                if let Some(why) = self.actors.on_known(actor, refused.clone()) {
                    let warn = self.warn.clone();
                    let text = format!("others can no longer call an actor of this program: {why}");
                    self.notifier.push(Box::new(move || warn(&text)));
                }
                self.handle(Event::FromHead(message));
            }
            HeadToClient::NameHeld { actor, within, why } => {
                if self.actors.on_held(actor, within) {
                    let warn = self.warn.clone();
                    let text = format!("a new actor waits: {why}");
                    self.notifier.push(Box::new(move || warn(&text)));
                }
            }
            HeadToClient::Welcome { .. } => {
                self.handle(Event::FromHead(message));
                self.connecting.set_heartbeat(self.core.heartbeat());
            }
            HeadToClient::Over => self.over = true,
            HeadToClient::Bye { by } if self.host.outlives_us() => {
                self.gone = true;
                self.act(|core, effects| core.stop(&by, effects));
                self.turn_away();
            }
            HeadToClient::Via { lease, .. } => {
                self.on_other_way(lease);
                self.handle(Event::FromHead(message));
            }
            HeadToClient::Ended { lease, ref death } => {
                let cause = death.cause;
                self.on_lease_ended(lease, cause, message);
            }
            message => self.handle(Event::FromHead(message)),
        }
    }

    /// The socket of a lease, if its answer is worth waiting for awake, and for how long.
    pub fn spin_socket(&mut self, key: LeaseKey) -> Option<(Arc<Kept>, Duration)> {
        // What comes over a network takes far longer than one would look for it.
        let data = self.link(key).filter(|data| !data.far)?;
        let limit = data.spinner.look_for(data.link.peer_cpu())?;
        Some((data.link.socket(), limit))
    }

    pub fn learn_spin(&mut self, key: LeaseKey, looked: Looked) {
        if let Some(data) = self.link(key) {
            data.spinner.learn(looked);
        }
    }
}

impl Data {
    /// Send what the socket takes; for the rest, be told when it takes more.
    fn write(&mut self, epoll: &Kept, key: LeaseKey) {
        let all = self.link.flush().unwrap_or(true);
        if all == self.watches_write {
            self.watches_write = !all;
            let interest = if all { EventFlags::IN } else { EventFlags::IN | EventFlags::OUT };
            let _: Result<(), io::Error> =
                epoll::modify(epoll, &self.link, EventData::new_u64(key.0 as u64), interest)
                    .map_err(io::Error::from);
        }
    }
}

/// A batch whose frame would be too long goes call by call. Single calls are checked when they are submitted.
fn put(message: &ToSlot, link: &mut Link) {
    if link.put(message).is_ok() {
        return;
    }
    let ToSlot::Run { acked, calls } = message else { return };
    for call in calls {
        let one = ToSlot::Run { acked: *acked, calls: vec![call.clone()] };
        link.put(&one).expect("a payload that was accepted fits a frame");
    }
}
