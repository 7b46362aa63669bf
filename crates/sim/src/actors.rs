//! Actors that several clients call, and the slots they live in.
//!
//! An owner has its actor live under one of its leases. When that ends the actor moves to another, after a while or not at
//! all. Others visit it, and call it.

use crate::head::encoded;
use crate::job::Job;
use crate::link::{Data, End, Kind, LinkId, Repeat};
use crate::process::Page;
use crate::trace::{brief_from, brief_to};
use crate::world::{Machine, Sim};
use paceline_core::client::Card;
use paceline_core::node::GuestCalls;
use paceline_core::slot::{Effect, Slot};
use paceline_proto::data::{FromSlot, Status, ToSlot};
use paceline_proto::{ActorId, DeathCause, LeaseId, LeaseSecret};
use std::collections::{BTreeSet, VecDeque};

pub(crate) struct Actor {
    pub id: ActorId,
    owner: usize,
    lease: Option<LeaseId>,
    ended: bool,
    visitors: BTreeSet<usize>,
    /// The visitor that has destroyed it while there was one head, and how many had started then.
    destroyed_by: Option<(usize, u64)>,
}

/// Another client that calls the actor in a slot.
#[derive(Default)]
pub(crate) struct Guest {
    pub number: u32,
    pub core: Slot,
    pub data: Option<LinkId>,
    inbox: VecDeque<Option<(ToSlot, bool)>>,
}

impl Guest {
    /// Its slot is dead, and reads nothing more. Gives its connection.
    pub fn end(&mut self) -> Option<LinkId> {
        self.inbox.clear();
        self.data.take()
    }
}

impl Sim {
    /// Make an actor, let somebody visit one, call one, or let one go.
    pub(crate) fn some_actor(&mut self, client: usize) {
        let mine =
            (0..self.actors.len()).filter(|at| self.actors[*at].owner == client && !self.actors[*at].ended);
        if mine.count() < 2 && self.random.percent(30) {
            return self.make_actor(client);
        }
        let others: Vec<usize> = (self.actors.len().saturating_sub(12)..self.actors.len())
            .filter(|at| self.actors[*at].owner != client)
            .collect();
        if others.is_empty() {
            return;
        }
        // One that has a place is called more often: there is more to go wrong.
        let placed: Vec<usize> =
            others.iter().filter(|at| self.actors[**at].lease.is_some()).copied().collect();
        let some = if placed.is_empty() || self.random.percent(20) { others } else { placed };
        let actor = self.random.pick(&some);
        if !self.actors[actor].visitors.contains(&client) {
            self.actors[actor].visitors.insert(client);
            let id = self.actors[actor].id;
            self.note(|_| format!("client {client} visits actor {actor}"));
            return self.client_does(client, |core, out| core.visit(id, out));
        }
        match self.random.below(20) {
            0 => self.leave_actor(actor, client),
            // Not drawn: seeds of before keep their course.
            1 if self.now.0.is_multiple_of(2) => self.destroy_actor(actor, client),
            1 => self.end_actor(actor),
            _ => {
                for _ in 0..self.random.within(1..6) {
                    let job = self.load.job(&mut self.random);
                    if !self.clients[client].core.has_room(job.size) {
                        return;
                    }
                    self.call_actor(actor, client, job);
                }
            }
        }
    }

    pub(crate) fn make_actor(&mut self, owner: usize) {
        let id = ActorId(self.actors.len() as u128 + 1);
        let name = Some(format!("actor-{id}"));
        self.actors.push(Actor {
            id,
            owner,
            lease: None,
            ended: false,
            visitors: BTreeSet::new(),
            destroyed_by: None,
        });
        let card = Card { name, about: vec![7], program: None };
        self.note(|_| format!("client {owner} makes {id:?}"));
        self.ledger.tally.shared_actors += 1;
        self.client_does(owner, |core, out| core.host_actor(id, card, None, out));
    }

    pub(crate) fn call_actor(&mut self, actor: usize, client: usize, job: Job) -> usize {
        let timeout = std::time::Duration::ZERO;
        let job =
            Job { actor: Some(actor), levels: 0, timeout, priority: 0, retries: 0, beside: false, ..job };
        self.submit_job(client, job)
    }

    pub(crate) fn leave_actor(&mut self, actor: usize, client: usize) {
        if self.actors[actor].visitors.remove(&client) && self.clients[client].alive {
            let id = self.actors[actor].id;
            self.client_does(client, |core, out| core.leave_actor(id, out));
        }
    }

    fn end_actor(&mut self, actor: usize) {
        let Actor { id, owner, ended, .. } = self.actors[actor];
        if !ended && self.clients[owner].alive {
            self.actors[actor].ended = true;
            self.note(|_| format!("client {owner} ends {id:?}"));
            self.client_does(owner, |core, out| core.end_actor(id, "its owner has no more use for it", out));
        }
    }

    fn destroy_actor(&mut self, actor: usize, client: usize) {
        let id = self.actors[actor].id;
        // Of two heads the earlier one may say that the owner is gone.
        let one_head = self.heads_alive().len() == 1;
        self.actors[actor].destroyed_by = one_head.then_some((client, self.ledger.tally.head_starts));
        self.note(|_| format!("client {client} destroys {id:?}"));
        self.client_does(client, |core, out| core.destroy_actor(id, "it was destroyed", out));
    }

    /// Ends what was destroyed while another head was in charge, which may have given the owner up, and is no more.
    pub(crate) fn end_forgotten_actors(&mut self) {
        let starts = self.ledger.tally.head_starts;
        for actor in 0..self.actors.len() {
            if self.actors[actor].destroyed_by.is_some_and(|(_, at)| at != starts) {
                self.end_actor(actor);
            }
        }
    }

    pub(crate) fn close_actors(&mut self) {
        for actor in 0..self.actors.len() {
            // One that was destroyed ends without its owner's doing, if whoever did so lives.
            if !self.actors[actor].destroyed_by.is_some_and(|(client, _)| self.clients[client].alive) {
                self.end_actor(actor);
            }
            for client in self.actors[actor].visitors.clone() {
                self.leave_actor(actor, client);
            }
        }
    }

    /// Something has happened to a client: actors whose lease is over have no place, and those without get one.
    pub(crate) fn actors_move(&mut self, client: usize) {
        if !self.actors.iter().any(|actor| actor.owner == client && !actor.ended) {
            return;
        }
        let used: BTreeSet<LeaseId> = self.actors.iter().filter_map(|actor| actor.lease).collect();
        let held: Vec<LeaseId> = (self.clients[client].leases.values())
            .map(|serving| serving.lease)
            .filter(|lease| self.clients[client].shapes.contains_key(lease))
            .collect();
        let mut free: Vec<LeaseId> = held.iter().filter(|lease| !used.contains(lease)).copied().collect();
        let mut moves = Vec::new();
        for actor in self.actors.iter_mut().filter(|actor| actor.owner == client && !actor.ended) {
            let before = actor.lease;
            actor.lease = before.filter(|lease| held.contains(lease));
            if before.is_none() {
                actor.lease = free.pop();
            }
            if actor.lease != before {
                moves.push((actor.id, actor.lease));
            }
        }
        for (actor, lease) in moves {
            self.note(|_| format!("{actor:?} of client {client} moves to {lease:?}"));
            self.client_does(client, |core, out| core.move_actor(actor, lease, out));
        }
    }

    pub(crate) fn guest_attaches(
        &mut self,
        process: usize,
        lease: LeaseId,
        number: u32,
        secret: Option<LeaseSecret>,
        connection: Option<LinkId>,
    ) {
        let Some(id) = connection else { return };
        let Some(link) = self.links.get_mut(id) else { return };
        let Kind::Data(data) = link.kind else { panic!("only data links are attached") };
        link.kind = Kind::Data(Data { process: Some(process), ..data });
        let serving = self.clients[data.client].leases.get(&data.key);
        if let Some(serving) = serving.filter(|serving| serving.lease == lease) {
            assert_eq!(secret, Some(serving.secret), "{lease:?}: guest and slot have different secrets");
        }
        if !self.processes[process].guests.contains_key(&lease) {
            // What an earlier guest of this number left there is no more.
            self.processes[process].guest_pages.insert(number, (lease, Page::default()));
        }
        let guest = self.processes[process].guests.entry(lease).or_default();
        guest.number = number;
        guest.core.attach(lease);
        guest.inbox.clear();
        if let Some(older) = guest.data.replace(id) {
            self.close_end(older, End::Far);
        }
        self.note(|sim| format!("slot {} has guest {number} of {lease:?}", sim.slot_name(process)));
        self.start_reading(id, End::Far);
        self.touch(Machine::Slot(process));
    }

    /// The guest is not to call any more. False if it is none.
    pub(crate) fn guest_detaches(&mut self, process: usize, lease: LeaseId) -> bool {
        let Some(guest) = self.processes[process].guests.remove(&lease) else { return false };
        if let Some(data) = guest.data {
            self.close_end(data, End::Far);
        }
        true
    }

    pub(crate) fn guest_calls(&self, process: usize) -> Vec<GuestCalls> {
        let pages = self.processes[process].guest_pages.values();
        let calls = |&(lease, page): &(LeaseId, Page)| GuestCalls {
            lease,
            running: page.running,
            finished: page.finished,
        };
        pages.map(calls).collect()
    }

    /// A message for a slot from the client of this link, if that is a guest. False if it is not.
    pub(crate) fn guest_speaks(
        &mut self,
        process: usize,
        link: LinkId,
        message: Option<(ToSlot, bool)>,
    ) -> bool {
        let mut guests = self.processes[process].guests.values_mut();
        let Some(guest) = guests.find(|guest| guest.data == Some(link)) else { return false };
        guest.inbox.push_back(message);
        self.serve(process);
        true
    }

    pub(crate) fn guests_receive(&mut self, process: usize) {
        for lease in self.processes[process].guests.keys().copied().collect::<Vec<_>>() {
            while let Some(guest) = self.processes[process].guests.get_mut(&lease) {
                match guest.inbox.pop_front() {
                    None => break,
                    Some(None) => guest.data = None,
                    Some(Some((message, _))) => self.take_guest_message(process, lease, message),
                }
            }
        }
    }

    fn take_guest_message(&mut self, process: usize, lease: LeaseId, message: ToSlot) {
        self.note(|sim| {
            format!("slot {} <- guest {lease:?}: {}", sim.slot_name(process), brief_to(&message))
        });
        let mut effects = Vec::new();
        let guest = self.processes[process].guests.get_mut(&lease).expect("it has sent something");
        guest.core.on_message(message, &mut effects);
        for effect in effects {
            match effect {
                Effect::Send(message) => self.slot_tells_guest(process, lease, &message),
                Effect::Define { function, .. } => self.processes[process].knows(function),
                // It is the owner's that counts.
                Effect::Environment(_) => {}
                Effect::Interrupt { call } => self.stop_run(process, Some(lease), call, Status::Cancelled),
                Effect::Die { .. } => self.kill(process, DeathCause::Signal(9)),
            }
        }
    }

    fn slot_tells_guest(&mut self, process: usize, lease: LeaseId, message: &FromSlot) {
        let Some(data) = self.processes[process].guests.get(&lease).and_then(|guest| guest.data) else {
            return;
        };
        if let FromSlot::Replies { replies, .. } = message {
            for reply in replies.iter().filter(|reply| reply.status == Status::Withdrawn) {
                self.ledger.on_given_back(lease, reply.seq);
            }
        }
        self.note(|sim| {
            format!("slot {} -> guest {lease:?}: {}", sim.slot_name(process), brief_from(message))
        });
        self.post(data, End::Near, encoded(|out| message.encode(out)), None, Repeat::Later);
    }

    pub(crate) fn guests_flush(&mut self, process: usize) {
        for lease in self.processes[process].guests.keys().copied().collect::<Vec<_>>() {
            let guest = self.processes[process].guests.get_mut(&lease).expect("listed just now");
            if guest.data.is_some()
                && let Some(message) = guest.core.replies_to_send()
            {
                self.slot_tells_guest(process, lease, &message);
            }
        }
    }

    pub(crate) fn guests_announce(&mut self, process: usize) {
        for lease in self.processes[process].guests.keys().copied().collect::<Vec<_>>() {
            let guest = self.processes[process].guests.get_mut(&lease).expect("listed just now");
            if guest.data.is_some()
                && let Some(message) = guest.core.announce_running()
            {
                self.slot_tells_guest(process, lease, &message);
            }
        }
    }
}
