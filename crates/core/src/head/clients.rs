//! What clients say, and what happens when they fall silent.

use super::actors::Said;
use super::books::{near_weight, no_room, program_weight, rule_weight};
use super::{BEATS, Client, ClientLink, Config, Effect, Head, LeaseState, LinkEnd, Want};
use crate::time::Tick;
use paceline_proto::control::{ClientToHead, HeadToClient, HeadToNode, Held, Met};
use paceline_proto::{
    ClientId, CustomName, ExclusiveId, LeaseId, NodeId, PlacementId, ProgramId, Resources, Rule, Shape,
    Start, StartError,
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
        if from.work().is_some() {
            // The head alone speaks for work, also for what it has not numbered yet.
            return out.push(Effect::DropClient(from));
        }
        if let Some(client) = self.clients.get_mut(&from) {
            client.heard = client.heard.map(|_| now);
            client.spoke = now;
        }
        match message {
            ClientToHead::Hello { client, name, leases, met, under, beats } => {
                if client == from && self.outranks(met, out) {
                    self.on_hello(now, client, name, &leases, met, under, out);
                    if beats {
                        self.note_heard(now, client);
                    }
                }
            }
            ClientToHead::Program { program, start } => self.on_program(from, program, start),
            ClientToHead::Want { shape, count, exclusive } => {
                self.on_want(now, from, shape, count, exclusive, out);
            }
            ClientToHead::Lost { lease } => self.on_lost(now, from, lease),
            ClientToHead::OwnedByProgram { exclusive, program } => {
                self.on_owned_by_program(now, from, exclusive, &program);
            }
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
            ClientToHead::Synced => self.on_synced(from, out),
            ClientToHead::Welcomed => self.on_client_obeys(from, out),
            ClientToHead::Actor { actor, name, about, lease, gone, program, named } => {
                self.on_actor(now, from, Said { actor, name, about, lease, gone, program, named }, out);
            }
            ClientToHead::Visit { actor, stay, held } => self.on_visit(now, from, actor, stay, held, out),
            ClientToHead::Find { number, name } => self.on_find(now, from, number, &name, out),
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
        let (cluster, epoch, timing) = (self.config.cluster, self.config.epoch, self.timing());
        let welcome = HeadToClient::Welcome { cluster, epoch, timing };
        let is_ours = self.is_this(met);
        let known = self.clients.get_mut(&id);
        // Repeated on a link that is up: its list of leases is old by now (HD-5).
        let reopened = known.as_ref().is_none_or(|client| matches!(client.link, ClientLink::Down { .. }));
        let is_new = known.is_none();
        if reopened {
            let client = self.clients.entry(id).or_insert_with(|| Client::new(now, id, name));
            client.link = ClientLink::Up;
            client.reopens = false;
            client.lost = 0;
            client.obeys &= is_ours;
            client.reaches.clear();
            self.note_kept(id);
        }
        self.tell_client(id, welcome, out);
        if reopened {
            self.note_origin(now, id, is_new, met);
            // Before it has anything: what it has counts as its family's.
            under.into_iter().for_each(|lease| self.on_under(id, lease));
            if let Some(why) = self.refuse_bytes(id, 0).filter(|_| is_new) {
                self.tell_client(id, HeadToClient::Refused { why }, out);
                self.forget_client(id, out);
                return out.push(Effect::DropClient(id));
            }
            self.reconcile_client(now, id, named, met, out);
            if is_ours {
                self.on_client_obeys(id, out);
            }
            self.start_sync(id);
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
        if self.note_heard(now, from) {
            self.tell_client(from, HeadToClient::Heartbeat { beat }, out);
        }
    }

    /// One that says something again and again is here: from now on its silence counts. Returns whether it has a link.
    fn note_heard(&mut self, now: Tick, from: ClientId) -> bool {
        let Some(client) = self.clients.get_mut(&from).filter(|client| client.is_up()) else { return false };
        client.heard = Some(now);
        self.no_later_than(now + self.config.client_lost);
        true
    }

    fn on_program(&mut self, from: ClientId, program: ProgramId, start: Start) {
        let most = self.config.max_programs;
        let weight = program_weight(&start);
        let room = self.refuse_bytes(from, weight).is_none();
        let Some(client) = self.clients.get_mut(&from).filter(|client| client.is_up()) else { return };
        if client.programs.len() >= most || client.programs.contains_key(&program) {
            return;
        }
        if room {
            client.programs.insert(program, start);
            client.bytes += weight;
            self.note_kept(from);
        } else {
            client.dropped = true;
        }
    }

    fn on_placement(&mut self, from: ClientId, id: PlacementId, rule: Rule) {
        let (most, largest) = (self.config.max_placements, self.config.max_group_members);
        let weight = rule_weight(&rule);
        let room = self.refuse_bytes(from, weight).is_none();
        if let Some(client) = self.clients.get_mut(&from).filter(|client| client.is_up() && !id.is_any()) {
            if client.placements.len() + client.oversized.len() >= most || client.knows_of_rule(id) {
                return;
            }
            if !room {
                client.dropped = true;
                return;
            }
            let members: u64 = rule.gang.iter().map(|member| u64::from(member.count)).sum();
            if members > u64::from(largest) {
                client.oversized.insert(id);
                client.bytes += Client::oversized_weight();
                return self.note_kept(from);
            }
            let firm = rule.is_firm();
            client.placements.insert(id, rule);
            client.bytes += weight;
            self.note_kept(from);
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
            let wants = self.clients[&id].wants.keys().copied();
            for shape in wants.filter(|shape| shape.program == program).collect::<Vec<_>>() {
                self.forget_want(id, shape);
            }
            self.note_hunger(id);
            self.tell_client(id, HeadToClient::ProgramFailed { program, why: why.clone() }, out);
        }
    }

    fn on_want(
        &mut self,
        now: Tick,
        id: ClientId,
        shape: Shape,
        count: u32,
        exclusive: Option<ExclusiveId>,
        out: &mut Vec<Effect>,
    ) {
        let crowded = self.refuse_bytes(id, Client::want_weight());
        let Some(client) = self.clients.get_mut(&id).filter(|client| client.is_up()) else { return };
        if let Some(before) = client.wants.get(&shape).and_then(|want| want.exclusive) {
            self.fences.not_wanted(before, id);
        }
        if count == 0 {
            client.wants.remove(&shape);
            client.set_near(shape, Vec::new());
        } else if let Some(why) = client.refuse_want(&self.config, shape, crowded) {
            client.wants.remove(&shape);
            client.set_near(shape, Vec::new());
            let largest = Resources::default();
            self.tell_client(id, HeadToClient::Unplaceable { shape, largest, why }, out);
        } else if !client.knows(shape) {
            // Of a program or a rule that nobody has declared: a message that was overtaken.
            client.wants.remove(&shape);
            client.set_near(shape, Vec::new());
        } else {
            self.turns += 1;
            let fresh = Want { count: 0, order: self.turns, since: now, told: false, exclusive };
            let news = !client.wants.contains_key(&shape);
            let want = client.wants.entry(shape).or_insert(fresh);
            if count > want.count {
                want.since = now;
            }
            (want.count, want.told, want.exclusive) = (count, false, exclusive);
            if let Some(exclusive) = exclusive {
                self.fences.wanted_by(exclusive, id);
            }
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
        if most && !nodes.is_empty() {
            return;
        }
        let weight = near_weight(&nodes);
        // A wish that is not kept is only that: the lease is granted all the same.
        let nodes = if self.refuse_bytes(id, weight).is_some() { Vec::new() } else { nodes };
        self.clients.get_mut(&id).expect("seen above").set_near(shape, nodes);
        self.note_kept(id);
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
            self.forget_wants(id);
            self.note_hunger(id);
        }
    }

    fn on_reopening(&mut self, id: ClientId) {
        if let Some(client) = self.clients.get_mut(&id) {
            client.reopens = true;
        }
    }

    pub(super) fn on_client_down(&mut self, now: Tick, id: ClientId, end: LinkEnd, out: &mut Vec<Effect>) {
        // Work has no link that could end.
        let Some(client) = self.clients.get(&id).filter(|_| id.work().is_none()) else { return };
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
        self.forget_wants(id);
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
        self.forget_wants(id);
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
            bytes: name.len(),
            dropped: false,
            name,
            link: ClientLink::Up,
            heard: None,
            spoke: now,
            reopens: false,
            from_earlier_head: false,
            brings_lost_leases: false,
            lost: 0,
            obeys: false,
            programs: BTreeMap::new(),
            placements: BTreeMap::new(),
            oversized: BTreeSet::new(),
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

    /// Replaces the nodes that it prefers for this shape; nothing: it prefers none.
    fn set_near(&mut self, shape: Shape, nodes: Vec<(NodeId, u32)>) {
        let weight = if nodes.is_empty() { 0 } else { near_weight(&nodes) };
        let before = match nodes.is_empty() {
            true => self.near.remove(&shape),
            false => self.near.insert(shape, nodes),
        };
        self.bytes = self.bytes + weight - before.map_or(0, |before| near_weight(&before));
    }

    pub(super) fn forget_near(&mut self) {
        let near = std::mem::take(&mut self.near);
        self.bytes -= near.values().map(|nodes| near_weight(nodes)).sum::<usize>();
    }

    fn knows_of_rule(&self, id: PlacementId) -> bool {
        self.placements.contains_key(&id) || self.oversized.contains(&id)
    }

    fn knows(&self, shape: Shape) -> bool {
        self.knows_rule(shape) && self.knows_program(shape)
    }

    fn knows_rule(&self, shape: Shape) -> bool {
        shape.placement.is_any() || self.placements.contains_key(&shape.placement)
    }

    fn knows_program(&self, shape: Shape) -> bool {
        shape.program.is_own() || self.programs.contains_key(&shape.program)
    }

    /// Returns why the head does not look for leases of this shape for this client, if it does not.
    fn refuse_want(&self, config: &Config, shape: Shape, crowded: Option<String>) -> Option<String> {
        let (shapes, rules, programs) = (config.max_shapes, config.max_placements, config.max_programs);
        if self.oversized.contains(&shape.placement) {
            let most = config.max_group_members;
            return Some(format!("a group may have {most} members (max_group_members of the head)"));
        }
        // As many as `on_placement` counts: a rule that it dropped is not on its way.
        if !self.knows_rule(shape) && self.placements.len() + self.oversized.len() >= rules {
            return Some(format!(
                "its placement rule is not known: the head keeps {rules} for one client (max_placements of the head)"
            ));
        }
        if !self.knows_program(shape) && self.programs.len() >= programs {
            return Some(format!(
                "its program is not known: the head keeps {programs} for one client (max_programs of the head)"
            ));
        }
        if !self.knows(shape) && self.dropped {
            return Some(no_room(config.max_client_state));
        }
        if self.wants.contains_key(&shape) {
            return None;
        }
        let full = self.wants.len() >= shapes;
        crowded.or_else(|| {
            full.then(|| {
                format!(
                    "this client waits for {shapes} different kinds of slots already (max_shapes of the head)"
                )
            })
        })
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
