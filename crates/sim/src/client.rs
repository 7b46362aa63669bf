//! A client's shell.

use crate::head::encoded;
use crate::job::{Job, argument};
use crate::link::{Data, End, Kind, LinkId, Repeat};
use crate::news::News;
use crate::pool::{UPDATES, WAITS, standing_of};
use crate::rivals::Peer;
use crate::stalls::{Clock, Standstill};
use crate::trace::{brief_from, brief_to};
use crate::world::{Event as Happening, Machine, Sim};
use bytes::Bytes;
use paceline_core::Tick;
use paceline_core::client::{Client, Effect, Event, LeaseKey, Near, Outcome, Spec, Within, program_name};
use paceline_proto::control::{ClientToHead, HeadToClient};
use paceline_proto::data::{Call, Environment, FromSlot, ToSlot};
use paceline_proto::{ClientId, Death, FunctionId, LeaseId, LeaseSecret, NodeId, ProgramId, Shape, Start};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

/// How many functions a client has.
pub(crate) const FUNCTIONS: u8 = 5;

/// The programs that every client knows beside its own.
pub(crate) const PROGRAMS: Programs = Programs { count: 2 };

#[derive(Clone, Copy)]
pub(crate) struct Programs {
    pub count: usize,
}

impl Programs {
    fn start(self, number: usize) -> Start {
        Start { command: vec![format!("/bin/program-{number}")], variables: Vec::new() }
    }

    pub fn id(self, number: usize) -> ProgramId {
        program_name(&self.start(number))
    }
}

pub(crate) struct ClientHost {
    pub id: ClientId,
    pub name: String,
    pub core: Client<usize>,
    pub alive: bool,
    /// The slot that it is, if it is one.
    pub slot: Option<usize>,
    pub head: Option<LinkId>,
    /// The data link of each lease.
    pub leases: BTreeMap<LeaseKey, Serving>,
    pub functions: Vec<FunctionId>,
    /// On which node a lease is.
    granted: HashMap<LeaseId, usize>,
    /// What a lease is of.
    pub shapes: HashMap<LeaseId, Shape>,
    unsent: Vec<LeaseKey>,
    wake: Option<Tick>,
    /// Nothing gets through to the head before.
    pub cut_off_until: Tick,
    /// When the head was last heard.
    heard: Tick,
    pub clock: Clock,
    pub standstill: Standstill<Event>,
}

#[derive(Clone, Copy)]
pub(crate) struct Serving {
    pub lease: LeaseId,
    /// What it was told to prove to the slot.
    pub secret: LeaseSecret,
    pub link: Option<LinkId>,
    /// Whether the machine knows that the link is up.
    up: bool,
    breaks: u32,
}

impl Sim {
    pub(crate) fn add_client(&mut self, name: &str) -> usize {
        self.add_client_as(name, None)
    }

    /// A client; `slot` if it is one.
    pub(crate) fn add_client_as(&mut self, name: &str, slot: Option<usize>) -> usize {
        let client = self.clients.len();
        // A slot has the clock of its node's machine.
        let clock = match slot {
            Some(process) => self.nodes[self.processes[process].node].clock,
            None => self.some_clock(),
        };
        let id = ClientId(client as u64 + 1);
        let mut config = self.settings.client.clone();
        if slot.is_some() {
            config.keep_idle = Duration::ZERO;
        }
        let mut core = Client::new(id, name, config);
        core.set_environment(Environment { directory: format!("/home/{name}"), ..Environment::default() });
        let bytes = |number| [&(client as u32).to_le_bytes()[..], &[number]].concat();
        let functions = (0..FUNCTIONS).map(|number| core.define(Bytes::from(bytes(number)))).collect();
        self.clients.push(ClientHost {
            id,
            name: name.to_owned(),
            core,
            alive: true,
            slot,
            head: None,
            leases: BTreeMap::new(),
            functions,
            granted: HashMap::new(),
            shapes: HashMap::new(),
            unsent: Vec::new(),
            wake: None,
            cut_off_until: Tick::ZERO,
            heard: self.now,
            clock,
            standstill: Standstill::default(),
        });
        for number in 0..PROGRAMS.count {
            self.client_does(client, |core, out| core.add_program(PROGRAMS.start(number), out));
        }
        self.client_connects(client);
        client
    }

    pub(crate) fn client_connects(&mut self, client: usize) {
        if !self.clients[client].alive || self.clients[client].head.is_some() {
            return;
        }
        if let Some(until) = self.clients[client].standstill.until(self.now) {
            return self.agenda.add(until, Happening::ClientConnects { client });
        }
        let Some(head) = self.head_for(Peer::Client(client)) else { return self.client_redials(client) };
        let delay = self.some_delay();
        let link = self.links.add(Kind::Client { client, head }, delay);
        self.stall(link, self.clients[client].cut_off_until);
        self.clients[client].head = Some(link);
        self.client_handles(client, Event::HeadUp);
    }

    pub(crate) fn client_handles(&mut self, client: usize, event: Event) {
        if let Some(event) = self.clients[client].standstill.keep(self.now, event) {
            self.client_takes(client, event);
        }
    }

    pub(crate) fn client_takes(&mut self, client: usize, event: Event) {
        let now = self.clients[client].clock.read(self.now);
        self.client_does(client, |core, effects| core.handle(now, event, effects));
    }

    /// Let the machine do something, and carry out what it says.
    pub(crate) fn client_does<R>(
        &mut self,
        client: usize,
        step: impl FnOnce(&mut Client<usize>, &mut Vec<Effect<usize>>) -> R,
    ) -> R {
        let mut effects = Vec::new();
        let result = step(&mut self.clients[client].core, &mut effects);
        self.touch(Machine::Client(client));
        for effect in effects {
            self.client_performs(client, effect);
        }
        if let Some(process) = self.clients[client].slot {
            self.children_changed(process);
        }
        self.actors_move(client);
        result
    }

    pub(crate) fn client_performs(&mut self, client: usize, effect: Effect<usize>) {
        match effect {
            Effect::ToHead(message) => self.client_tells_head(client, &message),
            Effect::DropHead => self.client_drops_head(client),
            Effect::Open { key, lease, secret, .. } => {
                let serving = Serving { lease, secret, link: None, up: false, breaks: 0 };
                let before = self.clients[client].leases.insert(key, serving);
                assert!(before.is_none(), "{key:?} is opened twice");
                self.connect(client, key, lease);
            }
            Effect::Close { key } => {
                let serving = self.clients[client].leases.remove(&key).expect("only an open lease is closed");
                if let Some(link) = serving.link {
                    self.close_end(link, End::Near);
                }
            }
            Effect::Abandoned { lease, .. } => {
                self.note(|_| format!("client {client} gives up {lease:?} without a head"));
                self.ledger.tally.abandoned += 1;
                let host = &self.clients[client];
                let (alone, least) = (self.now.since(host.heard), host.core.heartbeat() * 3);
                // Its clock may be fast.
                assert!(alone + least / 50 >= least, "HL-2: {lease:?} is abandoned after {alone:?}");
                self.ledger.on_ended(lease, &Death::of_lost_node());
            }
            Effect::Send { key, now } => self.client_sends(client, key, now),
            Effect::Finished { ticket, task, outcome } => {
                self.note(|_| format!("{task:?} of client {client} ends: {outcome:?}"));
                if ticket >= WAITS {
                    return self.on_wait_ended(ticket, &outcome);
                }
                if ticket >= UPDATES {
                    return self.on_update_ended(ticket, &outcome);
                }
                self.tell(|_| News::Ended { task: ticket, how: (&outcome).into() });
                if let Outcome::HeadLost { after } = outcome {
                    let alone = self.now.since(self.clients[client].heard);
                    // Its clock may be fast.
                    assert!(alone + after / 50 >= after, "HL-1: {task:?} is given up after {alone:?}");
                }
                self.check_group_lost(ticket, &outcome);
                if matches!(outcome, Outcome::Value(_)) {
                    self.on_pool_value(ticket, task);
                }
                self.ledger.on_finished(ticket, task, outcome);
            }
            Effect::Unclaimed { .. } => {}
            Effect::Started { ticket } => {
                let known = !self.ledger.entries[ticket].runs.is_empty();
                assert!(known, "task {ticket} is said to run and never did");
                self.ledger.tally.started += 1;
            }
            Effect::Waits { tasks, why, .. } => {
                self.note(|_| format!("{tasks} tasks of client {client} wait for {why}"))
            }
            Effect::WakeAt(at) => {
                let wake = self.clients[client].wake;
                if wake.is_none_or(|wake| at < wake) {
                    self.clients[client].wake = Some(at);
                    let (late, when) = (self.lateness(), self.clients[client].clock.when(at));
                    self.agenda.add(when + late, Happening::WakeClient { client, at });
                }
            }
        }
    }

    pub(crate) fn wake_client(&mut self, client: usize, at: Tick) {
        if self.clients[client].wake == Some(at) {
            self.clients[client].wake = None;
            self.client_handles(client, Event::Tick);
        }
    }

    pub(crate) fn client_tells_head(&mut self, client: usize, message: &ClientToHead) {
        let repeat = match message {
            ClientToHead::Hello { .. }
            | ClientToHead::Program { .. }
            | ClientToHead::Release { .. }
            | ClientToHead::Broken { .. }
            | ClientToHead::Heartbeat { .. }
            | ClientToHead::Synced
            | ClientToHead::Welcomed
            | ClientToHead::Reopening => Repeat::Later,
            ClientToHead::Unreachable { .. } => Repeat::AtOnce,
            ClientToHead::Bye | ClientToHead::Ask { .. } | ClientToHead::Answer { .. } => Repeat::Never,
            ClientToHead::Find { .. } => Repeat::Never,
            ClientToHead::Actor { .. } | ClientToHead::Visit { .. } => Repeat::AtOnce,
            ClientToHead::Placement { .. } | ClientToHead::Named { .. } => Repeat::Later,
            ClientToHead::Want { .. }
            | ClientToHead::Lost { .. }
            | ClientToHead::OwnedByProgram { .. }
            | ClientToHead::Near { .. }
            | ClientToHead::Under { .. }
            | ClientToHead::Standing { .. } => Repeat::AtOnce,
        };
        self.ledger.tally.broken_links += u64::from(matches!(message, ClientToHead::Broken { .. }));
        if !matches!(message, ClientToHead::Heartbeat { .. }) {
            self.note(|_| format!("client {client} -> head: {message:?}"));
        }
        if let Some(link) = self.clients[client].head {
            self.post(link, End::Far, encoded(|out| message.encode(out)), None, repeat);
        }
    }

    /// The client says that it cannot reach the slot of one of its leases, whether that is so or not.
    pub(crate) fn gets_nowhere(&mut self, client: usize) {
        let leases: Vec<LeaseId> =
            self.clients[client].leases.values().map(|serving| serving.lease).collect();
        if self.clients[client].alive && !leases.is_empty() {
            let lease = self.random.pick(&leases);
            self.client_tells_head(client, &ClientToHead::Unreachable { lease });
        }
    }

    pub(crate) fn client_hears_head(&mut self, link: LinkId, client: usize, message: HeadToClient) {
        let host = &mut self.clients[client];
        if host.head != Some(link) {
            return;
        }
        if !matches!(message, HeadToClient::Welcome { .. }) {
            host.heard = self.now;
        }
        match &message {
            HeadToClient::Granted { lease, node, slot, shape, .. } => {
                host.shapes.insert(*lease, *shape);
                let node = node.0 as usize - 1;
                let news = host.granted.insert(*lease, node).is_none();
                self.ledger.tally.grants += u64::from(news);
                if let Some(process) = self.nodes[node].slots.get(slot).filter(|_| news) {
                    self.processes[*process].granted.push(*lease);
                }
            }
            HeadToClient::Visiting { lease, node, .. } => {
                let news = host.granted.insert(*lease, node.0 as usize - 1).is_none();
                self.ledger.tally.guests += u64::from(news);
            }
            HeadToClient::Output { text, .. } => {
                // What a node itself has to say goes the same way.
                let own = text.starts_with(b"paceline: ");
                assert!(own || text[..] == (client as u64).to_le_bytes(), "another client's line");
                self.ledger.tally.printed += 1;
            }
            HeadToClient::Ended { lease, death } => {
                let served = host.leases.iter().find(|(_, serving)| serving.lease == *lease);
                if let Some((&key, &serving)) = served {
                    self.hand_in_rest(client, key, serving);
                    self.ledger.on_ended(*lease, death);
                }
            }
            HeadToClient::ActorKnown { refused, .. } => assert_eq!(*refused, None, "names are unique here"),
            HeadToClient::Welcome { .. }
            | HeadToClient::ActorGone { .. }
            | HeadToClient::ActorAway { .. }
            | HeadToClient::NameHeld { .. }
            | HeadToClient::Found { .. }
            | HeadToClient::Recall { .. }
            | HeadToClient::Crowded { .. }
            | HeadToClient::ProgramFailed { .. }
            | HeadToClient::NodeAt { .. }
            | HeadToClient::Via { .. }
            | HeadToClient::Heartbeat { .. }
            | HeadToClient::Answer { .. }
            | HeadToClient::Ask { .. }
            | HeadToClient::Over
            | HeadToClient::Bye { .. }
            | HeadToClient::Refused { .. }
            | HeadToClient::Unplaceable { .. }
            | HeadToClient::Waits { .. } => {}
        }
        self.client_handles(client, Event::FromHead(message));
    }

    /// What a dead slot had sent is handed in before its death.
    fn hand_in_rest(&mut self, client: usize, key: LeaseKey, serving: Serving) {
        let Some(id) = serving.link.filter(|_| serving.up) else { return };
        let Some(link) = self.links.get_mut(id).filter(|link| !link.open) else { return };
        let mut rest = Vec::new();
        while let Some(frame) = link.take_early(End::Near) {
            rest.push(frame);
        }
        for frame in rest {
            let message = FromSlot::decode(frame).expect("what was sent can be read");
            self.note(|_| format!("client {client} <- {key:?}: {}", brief_from(&message)));
            self.client_handles(client, Event::FromSlot(key, message));
        }
    }

    pub(crate) fn client_loses_head(&mut self, link: LinkId, client: usize) {
        if self.clients[client].head != Some(link) {
            return;
        }
        self.clients[client].head = None;
        self.note(|_| format!("client {client} has no head"));
        self.client_handles(client, Event::HeadDown);
        let longest = self.settings.redial.unwrap_or(self.settings.head.client_lost * 2);
        let delay = self.random.span(Duration::from_millis(1)..longest);
        self.after(delay, Happening::ClientConnects { client });
    }

    /// The machine has given up the link to the head.
    fn client_drops_head(&mut self, client: usize) {
        self.ledger.tally.silent_heads += 1;
        self.note(|_| format!("client {client} drops its link to the head"));
        if let Some(link) = self.clients[client].head.take() {
            self.close_end(link, End::Near);
        }
        self.client_redials(client);
    }

    fn client_redials(&mut self, client: usize) {
        let longest = self.settings.redial.unwrap_or(self.settings.head.heartbeat * 2);
        let delay = self.random.span(Duration::from_millis(1)..longest);
        self.after(delay, Happening::ClientConnects { client });
    }

    fn connect(&mut self, client: usize, key: LeaseKey, lease: LeaseId) {
        let node = self.clients[client].granted[&lease];
        let delay = self.some_delay();
        let kind = Kind::Data(Data { client, key, lease, node, process: None });
        let link = self.links.add(kind, delay);
        self.clients[client].leases.get_mut(&key).expect("the lease is served").link = Some(link);
        let (up, arrives) = (delay.draw(&mut self.random), delay.draw(&mut self.random));
        let cut = self.cut_between(client, node);
        if cut > self.now {
            self.stall(link, cut);
        }
        let wait = cut.since(self.now);
        let (up, arrives) = (up + wait, arrives + wait);
        self.after(up, Happening::Connected { link });
        self.after(arrives, Happening::Arrives { link });
    }

    /// The client's end of a connection is there; the slot's may still be on its way.
    pub(crate) fn connected(&mut self, id: LinkId) {
        let Some(Kind::Data(data)) = self.links.get(id).map(|link| link.kind) else { return };
        let serving = self.clients[data.client].leases.get_mut(&data.key);
        if let Some(serving) = serving.filter(|serving| serving.link == Some(id)) {
            serving.up = true;
            self.ledger.tally.resumed += u64::from(serving.breaks > 0);
            self.client_handles(data.client, Event::LinkUp(data.key));
            self.start_reading(id, End::Near);
        }
    }

    pub(crate) fn has_connected(&self, link: LinkId, data: Data) -> bool {
        let serving = self.clients[data.client].leases.get(&data.key);
        serving.is_none_or(|serving| serving.link != Some(link) || serving.up)
    }

    pub(crate) fn client_hears_slot(&mut self, link: LinkId, data: Data, message: FromSlot) {
        let serving = self.clients[data.client].leases.get(&data.key);
        if serving.is_some_and(|serving| serving.link == Some(link) && serving.up) {
            let Data { client, key, .. } = data;
            self.note(|_| format!("client {client} <- {key:?}: {}", brief_from(&message)));
            self.client_handles(client, Event::FromSlot(key, message));
        }
    }

    pub(crate) fn client_loses_slot(&mut self, link: LinkId, data: Data) {
        let Data { client, key, lease, .. } = data;
        let Some(serving) = self.clients[client].leases.get_mut(&key) else { return };
        if serving.link != Some(link) {
            return;
        }
        serving.link = None;
        serving.breaks += 1;
        let longest = Duration::from_millis(1) * 2u32.pow(serving.breaks.min(8));
        if std::mem::take(&mut serving.up) {
            self.note(|_| format!("client {client} loses the link of {key:?}"));
            self.ledger.on_break(lease);
            self.client_handles(client, Event::LinkDown(key));
        }
        let delay = self.random.span(Duration::from_micros(50)..longest);
        self.after(delay, Happening::Reconnects { client, key, lease });
    }

    pub(crate) fn reconnects(&mut self, client: usize, key: LeaseKey, lease: LeaseId) {
        let serving = self.clients[client].leases.get(&key);
        if serving.is_some_and(|serving| serving.lease == lease && serving.link.is_none()) {
            self.connect(client, key, lease);
        }
    }

    fn client_sends(&mut self, client: usize, key: LeaseKey, now: bool) {
        let batch = self.settings.batch;
        if now || batch.is_zero() {
            return self.flush_lease(client, key);
        }
        if self.clients[client].unsent.is_empty() {
            let delay = self.random.span(Duration::from_micros(1)..batch);
            self.after(delay, Happening::Flushes { client });
        }
        if !self.clients[client].unsent.contains(&key) {
            self.clients[client].unsent.push(key);
        }
    }

    pub(crate) fn flush_client(&mut self, client: usize) {
        for key in std::mem::take(&mut self.clients[client].unsent) {
            self.flush_lease(client, key);
        }
    }

    fn flush_lease(&mut self, client: usize, key: LeaseKey) {
        let host = &mut self.clients[client];
        let Some(serving) = host.leases.get(&key) else { return };
        let (Some(link), lease) = (serving.link, serving.lease) else { return };
        let mut messages = Vec::new();
        host.core.outgoing(key, &mut messages);
        for message in messages {
            self.note(|_| format!("client {client} -> {key:?}: {}", brief_to(&message)));
            match &message {
                ToSlot::Run { calls, .. } => {
                    let calls: Vec<Call> =
                        calls.iter().filter(|call| standing_of(&call.payload).is_none()).cloned().collect();
                    calls.iter().for_each(|call| self.ledger.on_sent(lease, call));
                    self.check_members(client, lease, &calls);
                }
                ToSlot::Define { .. } | ToSlot::Environment(_) => self.ledger.on_told(lease),
                _ => {}
            }
            self.post(link, End::Far, encoded(|out| message.encode(out)), None, Repeat::Later);
        }
    }

    pub(crate) fn submit_job(&mut self, client: usize, job: Job) -> usize {
        let job = Job { near: self.near_of(&job), ..job };
        let slot = self.clients[client].slot.map(|process| &self.processes[process]);
        let parent = slot.and_then(|slot| slot.busy.as_ref()).map(|busy| busy.task);
        let root = self.root_of(client);
        let task = self.ledger.submit(client, root, parent, job);
        let spec = Spec {
            wait: Duration::ZERO,
            function: self.clients[client].functions[usize::from(job.function)],
            payload: argument(task, job.size),
            shape: job.shape,
            retries: job.retries,
            retry_on: job.retry_on,
            timeout: job.timeout,
            priority: job.priority,
            within: match (job.member, job.pool, job.actor) {
                (Some((_, member)), ..) => Within::Member(member),
                (_, Some(pool), _) => Within::Pool(self.pools[pool].id.number),
                (.., Some(actor)) => Within::Guest(self.actors[actor].id),
                _ => Within::Any,
            },
            near: job.near.map(|(one, other, patience)| {
                let nodes: BTreeSet<NodeId> = [one, other].into();
                Near { nodes: nodes.into_iter().collect(), patience }
            }),
        };
        let now = self.clients[client].clock.read(self.now);
        let mut effects = Vec::new();
        let place = self.clients[client].core.submit(now, spec, task, &mut effects);
        self.ledger.entries[task].place = Some(place);
        self.note(|_| format!("client {client} submits {:?} as task {task}: {job:?}", place.1));
        self.client_does(client, |_, out| out.append(&mut effects));
        task
    }

    /// End a task; `anyway` also if it runs. Says whether it did.
    pub(crate) fn cancel_task(&mut self, task: usize, anyway: bool) -> bool {
        let entry = &mut self.ledger.entries[task];
        let (client, Some((key, id))) = (entry.client, entry.place) else { return false };
        let open = entry.outcome.is_none();
        let before = std::mem::replace(&mut entry.cancelled, true);
        self.note(|_| format!("client {client} cancels {id:?}, anyway: {anyway}"));
        let done = self.client_does(client, |core, out| core.cancel(key, id, anyway, out));
        assert_eq!(done, open && self.ledger.entries[task].outcome.is_some(), "cancel does what it says");
        self.ledger.entries[task].cancelled = before || done;
        done
    }

    /// What a client has cancelled and still runs ends with its slots.
    pub(crate) fn kill_interrupted(&mut self, client: usize) {
        self.note(|_| format!("client {client} kills what it has told to stop"));
        self.client_does(client, |core, out| core.kill_interrupted(out));
    }

    /// The client goes, with a word or without.
    pub(crate) fn end_client(&mut self, client: usize, dies: bool) {
        if !self.clients[client].alive {
            return;
        }
        self.ledger.tally.lost_clients += 1;
        self.note(|_| format!("client {client} goes, without a word: {dies}"));
        for entry in self.ledger.entries.iter_mut().filter(|entry| entry.client == client) {
            entry.cancelled = true;
        }
        // Whoever is dead says nothing and does not see its tasks end; for the books they have.
        let head = self.clients[client].head;
        if dies {
            self.clients[client].head = None;
        }
        self.client_does(client, |core, out| core.close(out));
        self.clients[client].alive = false;
        self.clients[client].head = None;
        if let Some(link) = head {
            self.close_end(link, End::Near);
        }
    }
}
