//! What clients say, and what happens when they fall silent.

use super::actors::Said;
use super::{BEATS, Client, ClientLink, Effect, Head, LeaseState, LinkEnd, Want};
use crate::time::Tick;
use paceline_proto::control::{ClientToHead, HeadToClient, HeadToNode, Held, Met};
use paceline_proto::{
    ClientId, CustomName, LeaseId, NodeId, PlacementId, ProgramId, Rule, Shape, Start, StartError,
};
use std::collections::{BTreeMap, BTreeSet};

/// So many names of custom resources are remembered.
const MOST_NAMES: usize = 4096;
/// So many nodes a client may prefer, for so many of its shapes.
const MOST_NEAR: usize = 1024;
const MOST_NEAR_SHAPES: usize = 1024;

impl Head {
    pub(super) fn on_client(
        &mut self,
        now: Tick,
        from: ClientId,
        message: ClientToHead,
        out: &mut Vec<Effect>,
    ) {
        if self.is_work(from) {
            // Nobody else speaks for work.
            return;
        }
        if let Some(client) = self.clients.get_mut(&from) {
            client.heard = client.heard.map(|_| now);
            client.spoke = now;
        }
        match message {
            ClientToHead::Hello { client, name, leases, met, under } => {
                if client == from && self.outranks(met, out) {
                    self.on_hello(now, client, name, &leases, met, under, out);
                }
            }
            ClientToHead::Program { program, start } => self.on_program(from, program, start),
            ClientToHead::Want { shape, count } => self.on_want(now, from, shape, count, out),
            ClientToHead::Near { shape, nodes } => self.on_near(from, shape, nodes),
            ClientToHead::Release { lease } => self.on_release(from, lease, out),
            ClientToHead::Bye => self.on_bye(from, out),
            ClientToHead::Under { lease } => self.on_under(from, lease),
            ClientToHead::Unreachable { lease } => self.on_unreachable(from, lease, out),
            ClientToHead::Broken { lease } => self.on_broken(from, lease, out),
            ClientToHead::Heartbeat { beat } => self.on_client_beat(now, from, beat, out),
            // The shell answers.
            ClientToHead::Ask { .. } | ClientToHead::Answer { .. } => {}
            ClientToHead::Placement { id, rule } => self.on_placement(from, id, rule),
            ClientToHead::Named { resources } => self.learn_names(resources),
            ClientToHead::Standing { weight, priority } => self.on_standing(from, weight, priority),
            ClientToHead::Reopening => self.on_reopening(from),
            ClientToHead::Actor { actor, name, about, lease, gone, program } => {
                self.on_actor(from, Said { actor, name, about, lease, gone, program }, out);
            }
            ClientToHead::Visit { actor, stay, held } => self.on_visit(now, from, actor, stay, held, out),
            ClientToHead::Find { number, name } => self.on_find(from, number, &name, out),
        }
    }

    #[expect(clippy::too_many_arguments, reason = "the fields of one message")]
    fn on_hello(
        &mut self,
        now: Tick,
        id: ClientId,
        name: String,
        named: &[Held],
        met: Option<Met>,
        under: Option<LeaseId>,
        out: &mut Vec<Effect>,
    ) {
        let welcome = HeadToClient::Welcome { cluster: self.config.cluster, epoch: self.config.epoch };
        let known = self.clients.get_mut(&id);
        // Repeated on a link that is up: its list of leases is old by now (HD-5).
        let reopened = known.is_none_or(|client| matches!(client.link, ClientLink::Down { .. }));
        if reopened {
            let client = self.clients.entry(id).or_insert_with(|| Client::new(now, id, name));
            client.link = ClientLink::Up;
            client.reopens = false;
            client.reaches.clear();
        }
        self.tell_client(id, welcome, out);
        if reopened {
            // Before it has anything: what it has counts as its family's.
            under.into_iter().for_each(|lease| self.on_under(id, lease));
            self.reconcile_client(now, id, named, met, out);
            self.tell_of_the_end(id, out);
        }
    }

    fn reconcile_client(
        &mut self,
        now: Tick,
        id: ClientId,
        named: &[Held],
        met: Option<Met>,
        out: &mut Vec<Effect>,
    ) {
        let names: BTreeSet<LeaseId> = named.iter().map(|held| held.lease).collect();
        self.drop_claims(|lease, claim| claim.client == id && !names.contains(lease));
        let held: BTreeSet<LeaseId> = self.clients[&id].leases.values().flatten().copied().collect();
        for named in named.iter().filter(|named| !held.contains(&named.lease)) {
            self.on_claim(now, id, *named, met, out);
        }
        for lease in held {
            match (self.leases[&lease].state, names.contains(&lease)) {
                (LeaseState::Placing | LeaseState::Broken, _) => {}
                (LeaseState::Held { .. }, true) => self.tell_where(id, self.leases[&lease].node, out),
                (LeaseState::Recalled { .. }, true) => {
                    self.tell_where(id, self.leases[&lease].node, out);
                    self.tell_client(id, HeadToClient::Recall { lease }, out)
                }
                // The grant was lost with the link, or the lease was given back while it was down.
                (LeaseState::Held { .. } | LeaseState::Recalled { .. }, false) => self.end(lease, out),
                (LeaseState::Ending | LeaseState::Unclaimed { .. }, _) => {
                    unreachable!("it is on the list of a client")
                }
            }
        }
        self.end_unnamed(id, out);
        self.look_at_actors();
    }

    /// The client cannot reach the slot any more. It keeps the lease until nothing runs under it.
    pub(super) fn on_broken(&mut self, from: ClientId, id: LeaseId, out: &mut Vec<Effect>) {
        if self.on_guest_broken(from, id, out) {
            return;
        }
        if let Some(claim) = self.claims.get_mut(&id).filter(|claim| claim.client == from) {
            claim.broken = true;
        }
        let Some(lease) = self.leases.get(&id).filter(|lease| lease.client == from) else { return };
        if matches!(lease.state, LeaseState::Held { .. } | LeaseState::Recalled { .. }) {
            let node = lease.node;
            self.change_state(id, LeaseState::Broken);
            self.tell_node(node, HeadToNode::End { lease: id }, out);
            self.dirty = true;
        }
    }

    fn on_client_beat(&mut self, now: Tick, from: ClientId, beat: u64, out: &mut Vec<Effect>) {
        let Some(client) = self.clients.get_mut(&from).filter(|client| client.is_up()) else { return };
        client.heard = Some(now);
        self.no_later_than(now + self.config.client_lost);
        self.tell_client(from, HeadToClient::Heartbeat { beat }, out);
    }

    fn on_program(&mut self, from: ClientId, program: ProgramId, start: Start) {
        if let Some(client) = self.clients.get_mut(&from).filter(|client| client.is_up()) {
            client.programs.entry(program).or_insert(start);
        }
    }

    fn on_placement(&mut self, from: ClientId, id: PlacementId, rule: Rule) {
        if let Some(client) = self.clients.get_mut(&from).filter(|client| client.is_up() && !id.is_any()) {
            let firm = rule.is_firm();
            client.placements.entry(id).or_insert(rule);
            if firm {
                self.note_members(from, id);
            }
        }
    }

    pub(super) fn learn_names(&mut self, names: Vec<String>) {
        let room = MOST_NAMES.saturating_sub(self.names.len());
        self.names.extend(names.into_iter().take(room).map(|name| (CustomName::of(&name), name)));
    }

    fn on_standing(&mut self, from: ClientId, weight: u32, priority: i32) {
        if let Some(client) = self.clients.get_mut(&from) {
            (client.weight, client.priority) = (weight.max(1), priority);
            let root = client.root;
            self.rank_family(root);
            self.dirty = true;
        }
    }

    /// Some node can make no slots of this program: who wants one is told, and may ask again.
    pub(super) fn on_program_failed(&mut self, program: ProgramId, why: &StartError, out: &mut Vec<Effect>) {
        let using = self.clients.iter().filter(|(_, client)| client.programs.contains_key(&program));
        for id in using.map(|(&id, _)| id).collect::<Vec<_>>() {
            let client = self.clients.get_mut(&id).expect("listed just now");
            client.wants.retain(|shape, _| shape.program != program);
            self.note_hunger(id);
            self.tell_client(id, HeadToClient::ProgramFailed { program, why: why.clone() }, out);
        }
    }

    fn on_want(&mut self, now: Tick, id: ClientId, shape: Shape, count: u32, out: &mut Vec<Effect>) {
        let Some(client) = self.clients.get_mut(&id).filter(|client| client.is_up()) else { return };
        let known = (shape.program.is_own() || client.programs.contains_key(&shape.program))
            && (shape.placement.is_any() || client.placements.contains_key(&shape.placement));
        if count == 0 || !known {
            client.wants.remove(&shape);
            client.near.remove(&shape);
        } else {
            self.turns += 1;
            let fresh = Want { count: 0, order: self.turns, since: now, told: false };
            let news = !client.wants.contains_key(&shape);
            let want = client.wants.entry(shape).or_insert(fresh);
            if count > want.count {
                want.since = now;
            }
            (want.count, want.told) = (count, false);
            self.untold.insert(id);
            if news && self.clients[&id].count(shape) == 0 {
                self.note_wait(now, id, shape);
            }
            self.judge(now, id, shape, out);
        }
        self.note_hunger(id);
        self.dirty = true;
    }

    /// It may change where the next lease is granted, and nothing else.
    fn on_near(&mut self, id: ClientId, shape: Shape, mut nodes: Vec<(NodeId, u32)>) {
        let Some(client) = self.clients.get_mut(&id).filter(|client| client.is_up()) else { return };
        nodes.truncate(MOST_NEAR);
        let most = client.near.len() >= MOST_NEAR_SHAPES && !client.near.contains_key(&shape);
        if nodes.is_empty() {
            client.near.remove(&shape);
        } else if !most {
            client.near.insert(shape, nodes);
        }
    }

    fn on_release(&mut self, from: ClientId, id: LeaseId, out: &mut Vec<Effect>) {
        self.drop_claims(|lease, claim| *lease == id && claim.client == from);
        let Some(lease) = self.leases.get(&id) else { return };
        if lease.client == from && lease.state.is_somebodys() {
            self.end(id, out);
        }
    }

    fn on_bye(&mut self, id: ClientId, out: &mut Vec<Effect>) {
        self.end_actors_of(id, out);
        self.end_leases(id, out);
        self.drop_claims(|_, claim| claim.client == id);
        let last = self.leases_of(id).collect();
        if let Some(client) = self.clients.get_mut(&id).filter(|client| client.is_up()) {
            self.going.insert(id, last);
            client.link = ClientLink::Leaving;
            client.wants.clear();
            client.near.clear();
            self.note_hunger(id);
        }
    }

    fn on_reopening(&mut self, id: ClientId) {
        if let Some(client) = self.clients.get_mut(&id) {
            client.reopens = true;
        }
    }

    pub(super) fn on_client_down(&mut self, now: Tick, id: ClientId, end: LinkEnd, out: &mut Vec<Effect>) {
        let Some(client) = self.clients.get(&id) else { return };
        let leaving = matches!(client.link, ClientLink::Leaving);
        // A slot that has no lease any more has no reason to come back.
        let idle = client.under.is_some_and(|under| client.orphan || !self.leases.contains_key(&under));
        if end == LinkEnd::Dead || leaving || idle {
            return self.forget_client(id, out);
        }
        // Silence counts from the last word, whenever its link ended.
        let lost = client.spoke + self.config.client_lost;
        let heartbeat = self.config.heartbeat;
        // The connections of a dead process are closed or reset by its machine. One that lives says so before it closes
        // one, or has seen the same end and is back in a moment; where something on the way resets, it may still have to
        // wait until it is let through again.
        let until = match end {
            LinkEnd::Closed if !client.reopens => lost.min(now + heartbeat),
            LinkEnd::Reset if !client.reopens => lost.min(now + heartbeat * BEATS),
            _ => lost,
        };
        self.cut_client(id, until);
    }

    /// The client is out of reach, and keeps what it has until then.
    fn cut_client(&mut self, id: ClientId, until: Tick) {
        let Some(client) = self.clients.get_mut(&id).filter(|client| client.is_up()) else { return };
        client.link = ClientLink::Down { until };
        client.heard = None;
        // It says again what it wants when it comes back; meanwhile nothing new is for it.
        client.wants.clear();
        client.near.clear();
        self.note_hunger(id);
        self.no_later_than(until);
    }

    pub(super) fn give_up_clients(&mut self, now: Tick, out: &mut Vec<Effect>) {
        let mut lost = Vec::new();
        let mut next = None;
        for (&id, client) in &self.clients {
            let (until, up) = match client.link {
                ClientLink::Down { until } => (until, false),
                ClientLink::Up | ClientLink::Leaving => match client.heard {
                    Some(heard) => (heard + self.config.client_lost, true),
                    None => continue,
                },
            };
            if until <= now {
                lost.push((id, up));
            } else {
                next = Some(next.map_or(until, |next: Tick| next.min(until)));
            }
        }
        next.into_iter().for_each(|at| self.no_later_than(at));
        for (id, up) in lost {
            self.forget_client(id, out);
            if up {
                out.push(Effect::DropClient(id));
            }
        }
    }

    pub(super) fn forget_client(&mut self, id: ClientId, out: &mut Vec<Effect>) {
        self.end_actors_of(id, out);
        self.end_leases(id, out);
        self.drop_claims(|_, claim| claim.client == id);
        let under = self.clients.remove(&id).and_then(|client| client.under);
        if let Some(lease) = under {
            self.slots.remove(&(lease, id));
        }
        self.note_hunger(id);
        self.starving.remove(&id);
        self.rank_family(id);
        self.going.remove(&id);
        self.dirty = true;
    }

    fn end_leases(&mut self, id: ClientId, out: &mut Vec<Effect>) {
        let Some(client) = self.clients.get(&id) else { return };
        let leases: Vec<LeaseId> = client.leases.values().flatten().copied().collect();
        leases.into_iter().for_each(|lease| self.end(lease, out));
    }
}

impl Client {
    pub(super) fn new(now: Tick, id: ClientId, name: String) -> Client {
        Client {
            name,
            link: ClientLink::Up,
            heard: None,
            spoke: now,
            reopens: false,
            programs: BTreeMap::new(),
            placements: BTreeMap::new(),
            weight: 1,
            priority: 0,
            wants: BTreeMap::new(),
            near: BTreeMap::new(),
            leases: BTreeMap::new(),
            claimed: BTreeMap::new(),
            root: id,
            depth: 0,
            under: None,
            orphan: false,
            polls: false,
            reaches: BTreeSet::new(),
        }
    }

    pub(super) fn is_up(&self) -> bool {
        matches!(self.link, ClientLink::Up)
    }

    /// How many leases of this shape it has, on their way to it or held.
    pub(super) fn count(&self, shape: Shape) -> usize {
        // What it claims counts: were it given others instead, it would give them back at once, again and again.
        let claimed = self.claimed.get(&shape).copied().unwrap_or(0);
        self.leases.get(&shape).map_or(0, BTreeSet::len) + claimed
    }

    /// Shapes of which it could use another lease.
    pub(super) fn unmet(&self) -> impl Iterator<Item = (Shape, Want)> {
        let wants = self.wants.iter().map(|(&shape, &want)| (shape, want));
        wants.filter(|&(shape, want)| !self.orphan && self.count(shape) < want.count as usize)
    }
}
