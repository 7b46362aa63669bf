//! Groups: leases that are granted together or not at all, each of which is one member with a queue of its own.
//!
//! To the head a group is a shape whose rule names a gang. Here that shape has one queue that stays empty, and as many
//! others as there are members; a task names its member, and runs there and nowhere else.
//!
//! * GR-1: nothing is sent to any member before all are there.
//! * GR-2: a whole group wants nothing more, and is kept until it is closed or has lost a member.
//! * GR-3: with one member the group is lost: whatever is to run in it ends with a word that says which, and nothing of
//!   it runs again. All that is left of it goes back.
//! * GR-4: what the head grants to a group that is whole, lost or closed goes back at once.
//! * GR-5: a group that waits is wanted, also when the head was lost meanwhile, as soon as that is there or a task is for it.

use super::lease::InFlight;
use super::shapes::ShapeKey;
use super::task::{Charge, GroupLost, Unplaceable};
use super::{Client, Effect, LeaseKey, Outcome};
use crate::Tick;
use paceline_proto::control::ClientToHead;
use paceline_proto::parts::carried;
use paceline_proto::placement::Member;
use paceline_proto::{NodeId, ProgramId, Resources, Rule, Shape, SlotId};
use std::collections::{BTreeMap, VecDeque};

#[derive(Default)]
pub(super) struct Groups {
    /// Those that are open, by the key of their shape.
    open: BTreeMap<ShapeKey, Group>,
    /// Queues of members of groups that were closed, for others.
    spare: Vec<ShapeKey>,
}

struct Group {
    members: Vec<ShapeKey>,
    state: State,
}

enum State {
    Waiting,
    Whole,
    Lost(Box<GroupLost>),
    /// No nodes will ever hold it.
    Refused(Box<Unplaceable>),
}

impl<Ticket: Clone> Client<Ticket> {
    /// Ask for a group of `size` members, each of which needs this. Tasks name it by the shape.
    pub fn open_group(
        &mut self,
        size: u32,
        needs: Resources,
        program: ProgramId,
        rule: Rule,
        out: &mut Vec<Effect<Ticket>>,
    ) -> Shape {
        let gang = vec![Member { needs, program, count: size }];
        let mut rule = Rule { gang, ..rule };
        // Rules are told apart by number, and those of clients of one family by the client. A number is used again, so
        // that the head does not have to remember ever more of them.
        let (base, shape) = (0u64..)
            .find_map(|number| {
                rule.nonce = self.id.0.rotate_left(20) ^ number;
                let placement = super::sharing::name(&rule);
                let shape = Shape { needs, program, placement };
                let key = self.shapes.key(&shape);
                (!self.groups.open.contains_key(&key)).then_some((key, shape))
            })
            .expect("there are not that many groups");
        self.add_placement(rule, out);
        let members = (0..size).map(|_| {
            let place = self.groups.spare.pop();
            let member = self.shapes.add(shape, place);
            (self.shapes[member].group, self.shapes[member].gated) = (Some(base), true);
            member
        });
        let members = members.collect();
        self.groups.open.insert(base, Group { members, state: State::Waiting });
        self.shapes[base].group = Some(base);
        self.want(base, size, out);
        shape
    }

    /// Give the group back. What is still to run in it is cancelled, what runs ends with its slot.
    pub fn close_group(&mut self, shape: &Shape, out: &mut Vec<Effect<Ticket>>) {
        let Some(base) = self.shapes.find(shape) else { return };
        if !self.groups.open.contains_key(&base) {
            return;
        }
        self.end_members(base, &Outcome::Cancelled, out);
        let group = self.groups.open.remove(&base).expect("seen above");
        self.groups.spare.extend(group.members);
    }

    /// Where the members are, by number; nothing unless the group is whole.
    pub fn group_places(&self, shape: &Shape) -> Option<Vec<(NodeId, SlotId)>> {
        let group = self.groups.open.get(&self.shapes.find(shape)?)?;
        if !matches!(group.state, State::Whole) {
            return None;
        }
        let place = |member: &ShapeKey| {
            let lease = &self.leases[self.shapes[*member].leases.first()?.0];
            Some((lease.node, lease.slot))
        };
        group.members.iter().map(place).collect()
    }

    /// The queue of a member of an open group; or what becomes of a task for it.
    pub(super) fn member_queue(&mut self, shape: &Shape, member: u32) -> Result<ShapeKey, Outcome> {
        let group = self.shapes.find(shape).and_then(|base| self.groups.open.get(&base));
        match group {
            Some(Group { state: State::Lost(lost), .. }) => Err(Outcome::GroupLost(lost.clone())),
            Some(Group { state: State::Refused(why), .. }) => Err(Outcome::Unplaceable(why.clone())),
            Some(group) => group.members.get(member as usize).copied().ok_or(Outcome::Cancelled),
            None => Err(Outcome::Cancelled),
        }
    }

    /// The head refuses the group. What is submitted to it after that word has come ends with it, too.
    pub(super) fn refuse_group(&mut self, base: ShapeKey, why: &Unplaceable) {
        if let Some(group) =
            self.groups.open.get_mut(&base).filter(|group| matches!(group.state, State::Waiting))
        {
            group.state = State::Refused(Box::new(why.clone()));
        }
    }

    /// All queues of a shape: those of its members if it is a group's.
    pub(super) fn queues_of(&self, key: ShapeKey) -> Vec<ShapeKey> {
        let members = self.groups.open.get(&key).map(|group| &*group.members).unwrap_or_default();
        std::iter::once(key).chain(members.iter().copied()).collect()
    }

    pub(super) fn is_in_whole_group(&self, shape: ShapeKey) -> bool {
        let group = self.shapes[shape].group.and_then(|base| self.groups.open.get(&base));
        group.is_some_and(|group| matches!(group.state, State::Whole))
    }

    /// Of a group that is not whole: how many members are there, and how many there will be.
    pub(super) fn group_so_far(&self, shape: ShapeKey) -> Option<(usize, usize)> {
        let group = self.groups.open.get(&self.shapes[shape].group?)?;
        let there = group.members.iter().filter(|member| !self.shapes[**member].leases.is_empty());
        matches!(group.state, State::Waiting).then(|| (there.count(), group.members.len()))
    }

    /// A member that has no lease yet (GR-4).
    pub(super) fn vacant_member(&self, base: ShapeKey) -> Option<ShapeKey> {
        let group = self.groups.open.get(&base)?;
        let waiting = matches!(group.state, State::Waiting);
        let mut members = group.members.iter().filter(|_| waiting);
        members.find(|member| self.shapes[**member].leases.is_empty()).copied()
    }

    /// One more member is there; if it was the last, work begins (GR-1).
    pub(super) fn on_member_granted(&mut self, now: Tick, base: ShapeKey, out: &mut Vec<Effect<Ticket>>) {
        if self.vacant_member(base).is_some() {
            return;
        }
        let Some(group) = self.groups.open.get_mut(&base) else { return };
        group.state = State::Whole;
        let members = group.members.clone();
        self.shapes.crowded.remove(&base);
        self.want(base, 0, out);
        for member in members {
            self.shapes[member].gated = false;
            self.fill(now, member, out);
        }
    }

    /// The head asks for a member back. Of a whole group it gets none (GR-2): its node may be about to leave, and waits
    /// as for anything else that runs there. But nobody sits on a part of one.
    pub(super) fn on_member_recalled(&mut self, key: LeaseKey, out: &mut Vec<Effect<Ticket>>) {
        if !self.is_in_whole_group(self.leases[key.0].shape) {
            self.give_back(key, out);
        }
    }

    /// A lease of the group is over, and was struck off. Before the group is whole the head finds another.
    pub(super) fn on_member_ended(
        &mut self,
        base: ShapeKey,
        member: ShapeKey,
        calls: VecDeque<InFlight>,
        charge: Charge,
        out: &mut Vec<Effect<Ticket>>,
    ) {
        let Some(group) = self.groups.open.get_mut(&base) else { return };
        if !matches!(group.state, State::Whole) {
            return;
        }
        let number = group.members.iter().position(|other| *other == member);
        let number = number.expect("the group of a queue has that member") as u32;
        let lost = GroupLost { member: number, size: group.members.len() as u32, charge };
        group.state = State::Lost(Box::new(lost.clone()));
        let outcome = Outcome::GroupLost(Box::new(lost));
        self.end_calls(calls, &outcome, out);
        self.end_members(base, &outcome, out);
    }

    /// Everything of the group ends like this, and its leases go back (GR-3).
    fn end_members(&mut self, base: ShapeKey, outcome: &Outcome, out: &mut Vec<Effect<Ticket>>) {
        self.want_nothing(base, out);
        for member in self.groups.open[&base].members.clone() {
            self.shapes[member].gated = true;
            for task in self.shapes[member].drain() {
                self.waiting.remove(carried(&self.tasks[task.0].payload));
                self.finish_unplaced(task, outcome.clone(), out);
            }
            for key in self.shapes[member].leases.clone() {
                let calls = self.leases[key.0].take_in_flight();
                self.shapes[member].in_flight -= calls.len();
                self.end_calls(calls, outcome, out);
                self.give_back(key, out);
            }
        }
    }

    fn end_calls(&mut self, calls: VecDeque<InFlight>, outcome: &Outcome, out: &mut Vec<Effect<Ticket>>) {
        for call in calls {
            self.finish_unplaced(call.task, outcome.clone(), out);
        }
    }

    /// A lease whose slot serves nobody else goes back.
    pub(super) fn give_back(&mut self, key: LeaseKey, out: &mut Vec<Effect<Ticket>>) {
        let lease = self.forget_lease(key);
        self.note_unconfirmed(&lease);
        // If something runs in it, its slot ends: what it remembers is not to be relied on.
        self.slots.remove(&lease.home());
        out.push(Effect::ToHead(ClientToHead::Release { lease: lease.id }));
        out.push(Effect::Close { key });
    }

    /// Asks for the members of a group that waits, unless the head knows: what was wanted may have been withdrawn while it
    /// was lost, or when its program could not be started.
    pub(super) fn group_demand(&mut self, base: ShapeKey, out: &mut Vec<Effect<Ticket>>) {
        let Some(group) = self.groups.open.get(&base) else { return };
        let waits = matches!(group.state, State::Waiting) && self.shapes[base].wanted == 0;
        if waits && !self.head.is_lost() {
            let size = group.members.len() as u32;
            self.want(base, size, out);
        }
    }

    /// The head is there again.
    pub(super) fn groups_want(&mut self, out: &mut Vec<Effect<Ticket>>) {
        for base in self.groups.open.keys().copied().collect::<Vec<_>>() {
            self.group_demand(base, out);
        }
    }

    fn want(&mut self, base: ShapeKey, count: u32, out: &mut Vec<Effect<Ticket>>) {
        self.shapes[base].wanted = count;
        let shape = *self.shapes.shape(base);
        out.push(Effect::ToHead(ClientToHead::Want { shape, count, exclusive: None }));
    }

    pub(super) fn check_groups(&self) -> Result<(), String> {
        for (&base, group) in &self.groups.open {
            let queue = &self.shapes[base];
            if queue.len() + queue.leases.len() > 0 {
                return Err(format!("GR-1: something is in the queue of {base:?}, and of no member of it"));
            }
            let whole = matches!(group.state, State::Whole);
            if whole != (queue.wanted == 0 && group.members.iter().all(|it| !self.shapes[*it].gated)) {
                return Err(format!("GR-2: {base:?} is whole: {whole}, and wants {}", queue.wanted));
            }
            for member in &group.members {
                let queue = &self.shapes[*member];
                let leases = queue.leases.len();
                if leases > 1 || whole && leases == 0 || !whole && queue.in_flight > 0 {
                    return Err(format!("GR-1: a member of {base:?} has {leases} leases"));
                }
            }
        }
        Ok(())
    }
}
