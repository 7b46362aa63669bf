//! Actors of others, which this client calls; and its own, which others call.
//!
//! An actor that is visited has a queue of its own and at most one lease, which the head gives as long as the actor has a
//! place. Its calls are at most once, in the order they were submitted.
//!
//! * GC-1: a call runs once or not at all: when the lease ends, what had begun ends with a word that says so. What had not
//!   waits for the actor to be rebuilt, or for the word that it is gone.
//! * GC-2: a visit lasts as long as somebody has a handle to the actor or waits for a call of its.
//! * GC-4 (destruction lasts): an actor of somebody else's that was destroyed here is visited until it is known to be gone, and that
//!   it is to end is said on each link to the head.
//! * GC-3: the head knows of every actor of ours under which lease it lives, as soon as we do; that one is gone is said on
//!   every link until the head has said that it heard.
//! * GC-5: an actor whose name is claimed before its constructor is sent lives in the pool that becomes its place, unless it
//!   has been ended before.

use super::lease::{InFlight, Lease};
use super::queue::Kind;
use super::shapes::ShapeKey;
use super::task::{ActorGone, Charge, PoolBroken};
use super::{Client, Effect, LeaseKey, Outcome, PoolId};
use crate::Tick;
use paceline_proto::control::{ClientToHead, Gone};
use paceline_proto::limits;
use paceline_proto::parts::carried;
use paceline_proto::{ActorId, Death, DeathCause, LeaseId, LeaseSecret, NodeId, Shape, SlotId};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

#[derive(Default)]
pub(super) struct Guests {
    visits: BTreeMap<ActorId, Visit>,
    /// Actors by the queue of their calls.
    queues: BTreeMap<ShapeKey, ActorId>,
    /// Queues of visits that are over, for others.
    spare: Vec<ShapeKey>,
    /// Visits that ended while there was no head to hear of it.
    left: BTreeSet<ActorId>,
    own: BTreeMap<ActorId, Own>,
    /// Actors of others that were destroyed here, and are not known to be gone.
    destroyed: BTreeSet<ActorId>,
    /// Actors of ours by the queue of the pool that they are.
    hosts: BTreeMap<ShapeKey, ActorId>,
}

struct Visit {
    queue: ShapeKey,
    handles: usize,
    state: State,
}

enum State {
    /// It has a place, or is about to have one.
    Open,
    /// Nobody knows what became of it.
    Away(Box<str>),
    Gone(Gone),
}

/// An actor of ours.
struct Own {
    name: Option<String>,
    about: Vec<u8>,
    program: Option<String>,
    lease: Option<LeaseId>,
    gone: Option<Gone>,
    /// A head has said that the name is its.
    named: bool,
}

/// What others are to know of an actor.
#[derive(Clone, Debug, Default)]
pub struct Card {
    /// What they find it by.
    pub name: Option<String>,
    /// What those who find it have to know.
    pub about: Vec<u8>,
    /// The submitted program that we are, if the actor comes back with it.
    pub program: Option<String>,
}

impl<Ticket: Clone> Client<Ticket> {
    /// Somebody here has a handle to this actor of somebody else's.
    pub fn visit(&mut self, actor: ActorId, out: &mut Vec<Effect<Ticket>>) {
        if let Some(visit) = self.guests.visits.get_mut(&actor) {
            visit.handles += 1;
            return;
        }
        let place = self.guests.spare.pop();
        let queue = self.shapes.add(Shape::default(), place);
        self.shapes[queue].guest = true;
        self.guests.queues.insert(queue, actor);
        self.guests.left.remove(&actor);
        self.guests.visits.insert(actor, Visit { queue, handles: 1, state: State::Open });
        out.push(Effect::ToHead(ClientToHead::Visit { actor, stay: true, held: None }));
    }

    /// One handle less.
    pub fn leave_actor(&mut self, actor: ActorId, out: &mut Vec<Effect<Ticket>>) {
        if let Some(visit) = self.guests.visits.get_mut(&actor) {
            visit.handles = visit.handles.saturating_sub(1);
            let queue = visit.queue;
            self.end_visit_if_idle(queue, out);
        }
    }

    /// The visit is over with its last handle and its last call (GC-2).
    pub(super) fn end_visit_if_idle(&mut self, queue: ShapeKey, out: &mut Vec<Effect<Ticket>>) {
        let Some(&actor) = self.guests.queues.get(&queue) else { return };
        let entry = &self.shapes[queue];
        if self.guests.visits[&actor].handles > 0 || entry.len() + entry.in_flight > 0 {
            return;
        }
        self.guests.visits.remove(&actor);
        self.guests.queues.remove(&queue);
        for key in entry.leases.clone() {
            let lease = self.forget_lease(key);
            self.slots.remove(&lease.home());
            out.push(Effect::Close { key });
        }
        self.guests.spare.push(queue);
        if !self.head.is_up() {
            self.guests.left.insert(actor);
        }
        out.push(Effect::ToHead(ClientToHead::Visit { actor, stay: false, held: None }));
    }

    pub(super) fn end_idle_visits(&mut self, out: &mut Vec<Effect<Ticket>>) {
        for queue in self.guests.queues.keys().copied().collect::<Vec<_>>() {
            self.end_visit_if_idle(queue, out);
        }
    }

    /// The queue of a call to this actor, or what becomes of it.
    pub(super) fn guest_queue(
        &self,
        actor: ActorId,
        retries: &mut u32,
        priority: &mut i32,
    ) -> Result<ShapeKey, Outcome> {
        // They run in the order they came, and at most once.
        (*retries, *priority) = (0, 0);
        match self.guests.visits.get(&actor) {
            Some(Visit { state: State::Gone(why), .. }) => Err(gone(actor, false, None, why)),
            Some(Visit { state: State::Away(why), .. }) => {
                Err(Outcome::ActorAway { actor, why: why.clone() })
            }
            Some(visit) => Ok(visit.queue),
            None => Err(Outcome::Cancelled),
        }
    }

    /// Say on a new link how things stand.
    pub(super) fn say_actors(&mut self, out: &mut Vec<Effect<Ticket>>) {
        for (&actor, visit) in &self.guests.visits {
            if matches!(visit.state, State::Gone(_)) {
                continue;
            }
            let held = self.shapes[visit.queue].leases.first().map(|key| self.leases[key.0].id);
            out.push(Effect::ToHead(ClientToHead::Visit { actor, stay: true, held }));
        }
        for actor in std::mem::take(&mut self.guests.left) {
            out.push(Effect::ToHead(ClientToHead::Visit { actor, stay: false, held: None }));
        }
        out.extend(self.guests.destroyed.iter().map(|&actor| Effect::ToHead(destroyed(actor))));
        for (&actor, own) in &self.guests.own {
            out.push(Effect::ToHead(own.said(actor)));
        }
    }

    pub(super) fn on_visiting(
        &mut self,
        now: Tick,
        actor: ActorId,
        place: (LeaseId, NodeId, SlotId, LeaseSecret),
        out: &mut Vec<Effect<Ticket>>,
    ) {
        let (lease, node, slot, secret) = place;
        if self.closed || self.lease_keys.contains_key(&lease) {
            return;
        }
        let Some(visit) = self.guests.visits.get_mut(&actor) else {
            return out.push(Effect::ToHead(ClientToHead::Visit { actor, stay: false, held: None }));
        };
        visit.state = State::Open;
        let queue = visit.queue;
        for key in self.shapes[queue].leases.clone() {
            // Its end was lost with a link to the head.
            let earlier = self.leases[key.0].id;
            self.on_ended(now, earlier, &Death::of_lost_node(), out);
        }
        if !self.guests.visits.contains_key(&actor) {
            // That was the last of it, and the head has been told (GC-2).
            return;
        }
        let mut granted = Lease::new(now, lease, node, slot, queue, secret);
        (granted.kind, granted.guest) = (Kind::Once, true);
        self.on_granted(now, granted, out);
    }

    pub(super) fn on_actor_gone(&mut self, actor: ActorId, why: Gone, out: &mut Vec<Effect<Ticket>>) {
        match self.guests.own.get(&actor) {
            // The head knows that it is gone.
            Some(own) if own.gone.is_some() => drop(self.guests.own.remove(&actor)),
            // Somebody else wants it to end.
            Some(_) => return self.destroy_actor(actor, &why.why, out),
            None => {}
        }
        let was_destroyed = self.guests.destroyed.remove(&actor);
        let Some(visit) = self.guests.visits.get_mut(&actor) else { return };
        visit.handles -= usize::from(was_destroyed);
        visit.state = State::Gone(why.clone());
        let queue = visit.queue;
        self.end_guest_lease(queue, &why, out);
        self.end_guest_calls(queue, &gone(actor, false, None, &why), out);
    }

    pub(super) fn on_actor_away(&mut self, actor: ActorId, why: String, out: &mut Vec<Effect<Ticket>>) {
        let Some(visit) = self.guests.visits.get_mut(&actor) else { return };
        let queue = visit.queue;
        visit.state = State::Away(why.clone().into());
        self.end_guest_calls(queue, &Outcome::ActorAway { actor, why: why.into() }, out);
    }

    /// What waits for the actor ends like this.
    fn end_guest_calls(&mut self, queue: ShapeKey, outcome: &Outcome, out: &mut Vec<Effect<Ticket>>) {
        for key in self.shapes[queue].drain() {
            self.waiting.remove(carried(&self.tasks[key.0].payload));
            self.finish_unplaced(key, outcome.clone(), out);
        }
        self.end_visit_if_idle(queue, out);
    }

    /// A lease whose end was not told goes with its actor.
    fn end_guest_lease(&mut self, queue: ShapeKey, why: &Gone, out: &mut Vec<Effect<Ticket>>) {
        for key in self.shapes[queue].leases.clone() {
            let actor = self.guests.queues[&queue];
            let calls = self.leases[key.0].take_in_flight();
            self.shapes[queue].in_flight -= calls.len();
            for call in calls {
                self.finish_unplaced(call.task, gone(actor, true, None, why), out);
            }
            self.forget_lease(key);
            out.push(Effect::Close { key });
        }
    }

    /// The guest lease is over, and was struck off (GC-1).
    pub(super) fn on_guest_ended(
        &mut self,
        lease: &Lease,
        calls: VecDeque<InFlight>,
        death: &Death,
        charge: Charge,
        out: &mut Vec<Effect<Ticket>>,
    ) {
        let actor = self.guests.queues[&lease.shape];
        for call in calls {
            let sent = call.seq <= lease.last_sent();
            let begun = death.running.max(Some(death.finished)).is_some_and(|last| call.seq <= last);
            if sent && (begun || death.cause == DeathCause::NodeLost) {
                self.finish_unplaced(
                    call.task,
                    gone(actor, true, Some(charge), &"its slot died".into()),
                    out,
                );
            } else if self.tasks[call.task.0].ticket.is_some() {
                self.requeue(call.task);
            } else {
                self.tasks.remove(call.task.0);
            }
        }
        self.end_visit_if_idle(lease.shape, out);
    }

    /// This client has an actor, which lives under this lease if it has a place. Others may call it from now on.
    pub fn host_actor(
        &mut self,
        actor: ActorId,
        card: Card,
        lease: Option<LeaseId>,
        out: &mut Vec<Effect<Ticket>>,
    ) {
        let Card { name, about, program } = card;
        let own = Own { name, about, program, lease, gone: None, named: false };
        out.push(Effect::ToHead(own.said(actor)));
        self.guests.own.insert(actor, own);
    }

    /// The same of an actor that is this pool: it is where the pool's slot is, once that has run its standing calls, and
    /// ends with the pool. Without a card it is known already, by [`Self::host_actor`] (GC-5). False: there is no such pool
    /// any more, or no such actor.
    pub fn host_pool(
        &mut self,
        actor: ActorId,
        card: Option<Card>,
        pool: &PoolId,
        out: &mut Vec<Effect<Ticket>>,
    ) -> bool {
        let Some(queue) = self.pool_key(pool).filter(|_| self.pool_broken(pool).is_none()) else {
            return false;
        };
        if card.is_none() && self.guests.own.get(&actor).is_none_or(|own| own.gone.is_some()) {
            return false;
        }
        let lease = self.prepared_lease(queue);
        (self.shapes[queue].hosts, self.shapes[queue].homeless) = (true, lease.is_none());
        self.guests.hosts.insert(queue, actor);
        match card {
            Some(card) => self.host_actor(actor, card, lease, out),
            None => self.move_actor(actor, lease, out),
        }
        true
    }

    fn prepared_lease(&self, queue: ShapeKey) -> Option<LeaseId> {
        let lease = &self.leases[self.shapes[queue].leases.first()?.0];
        self.has_applied_all(queue, lease).then_some(lease.id)
    }

    /// The slots of a pool have changed, and an actor that others call lives there (GC-3).
    pub(super) fn follow_actor(&mut self, queue: ShapeKey, out: &mut Vec<Effect<Ticket>>) {
        let Some(&actor) = self.guests.hosts.get(&queue) else { return };
        let lease = self.prepared_lease(queue);
        self.shapes[queue].homeless = lease.is_none();
        self.move_actor(actor, lease, out);
    }

    /// The pool ends like this, and with it the actor that it is.
    pub(super) fn end_hosted(&mut self, queue: ShapeKey, outcome: &Outcome, out: &mut Vec<Effect<Ticket>>) {
        let Some(actor) = self.guests.hosts.remove(&queue) else { return };
        (self.shapes[queue].hosts, self.shapes[queue].homeless) = (false, false);
        let why = match outcome {
            Outcome::ActorDied(_) => "its slot died, and it is not rebuilt".into(),
            Outcome::PoolBroken(broken) => match &**broken {
                PoolBroken::Raised { error, .. } => {
                    Gone { why: "its constructor failed".into(), error: error.to_vec() }
                }
                _ => "its constructor failed".into(),
            },
            _ => "its owner has ended it".into(),
        };
        self.actor_ends(actor, why, out);
    }

    /// The actor lives under another lease now, or under none.
    pub fn move_actor(&mut self, actor: ActorId, lease: Option<LeaseId>, out: &mut Vec<Effect<Ticket>>) {
        let own = self.guests.own.get_mut(&actor).filter(|own| own.lease != lease && own.gone.is_none());
        if let Some(own) = own {
            own.lease = lease;
            out.push(Effect::ToHead(own.said(actor)));
        }
    }

    /// The head knows the actor by what was said of it.
    pub(super) fn on_actor_known(&mut self, actor: ActorId) {
        if let Some(own) = self.guests.own.get_mut(&actor) {
            own.named = own.name.is_some();
        }
    }

    /// The actor is no more.
    pub fn end_actor(&mut self, actor: ActorId, why: &str, out: &mut Vec<Effect<Ticket>>) {
        self.actor_ends(actor, why.into(), out);
    }

    fn actor_ends(&mut self, actor: ActorId, why: Gone, out: &mut Vec<Effect<Ticket>>) {
        let Some(own) = self.guests.own.get_mut(&actor) else { return };
        if own.gone.is_none() {
            own.gone = Some(why);
            out.push(Effect::ToHead(own.said(actor)));
        }
    }

    /// Somebody wants the actor to end. If it is not ours, its owner hears of it.
    pub fn destroy_actor(&mut self, actor: ActorId, why: &str, out: &mut Vec<Effect<Ticket>>) {
        if !self.guests.own.contains_key(&actor) {
            return self.destroy_visited(actor, out);
        }
        match self.guests.hosts.iter().find(|(_, hosted)| **hosted == actor) {
            Some((&queue, _)) => self.destroy_pool(queue, out),
            None => self.end_actor(actor, why, out),
        }
    }

    /// An actor of somebody else's is to end (GC-4).
    fn destroy_visited(&mut self, actor: ActorId, out: &mut Vec<Effect<Ticket>>) {
        if !self.guests.destroyed.insert(actor) {
            return;
        }
        self.visit(actor, out);
        let visit = self.guests.visits.get_mut(&actor).expect("visited just now");
        if matches!(visit.state, State::Gone(_)) {
            // Its owner may have been away, and come back.
            visit.state = State::Open;
            out.push(Effect::ToHead(ClientToHead::Visit { actor, stay: true, held: None }));
        }
        out.push(Effect::ToHead(destroyed(actor)));
    }

    pub(super) fn check_guests(&self) -> Result<(), String> {
        for (actor, visit) in &self.guests.visits {
            let queue = &self.shapes[visit.queue];
            if !queue.guest || queue.leases.len() > 1 || queue.wanted > 0 {
                return Err(format!("GC-1: {actor:?} has {} leases", queue.leases.len()));
            }
            if self.guests.destroyed.contains(actor) && visit.handles == 0 {
                return Err(format!("GC-4: {actor:?} was destroyed, and is not visited"));
            }
            if visit.handles == 0 && queue.len() + queue.in_flight == 0 {
                return Err(format!("GC-2: nobody wants {actor:?}"));
            }
        }
        Ok(())
    }

    /// The lease of a guest, for those who list leases that the head granted for themselves.
    pub(super) fn is_guest(&self, key: LeaseKey) -> bool {
        self.shapes[self.leases[key.0].shape].guest
    }
}

impl Own {
    /// Reasons that are too long for a message are shortened, and what a constructor raised is left out then.
    fn said(&self, actor: ActorId) -> ClientToHead {
        let gone = self.gone.clone().map(|mut gone| {
            limits::clip(&mut gone.why, limits::LONGEST_TEXT);
            if gone.error.len() > limits::LONGEST_ABOUT {
                gone.error.clear();
            }
            gone
        });
        ClientToHead::Actor {
            actor,
            name: self.name.clone(),
            about: self.about.clone(),
            lease: self.lease,
            gone,
            program: self.program.clone(),
            named: self.named,
        }
    }
}

/// Says of an actor of somebody else's that it is to end.
fn destroyed(actor: ActorId) -> ClientToHead {
    let gone = Some("it was destroyed".into());
    Own { name: None, about: Vec::new(), program: None, lease: None, gone, named: false }.said(actor)
}

fn gone(actor: ActorId, ran: bool, charge: Option<Charge>, gone: &Gone) -> Outcome {
    let (why, error) = (gone.why.as_str().into(), gone.error.clone().into());
    Outcome::ActorGone(Box::new(ActorGone { actor, ran, charge, why, error }))
}
